"""`gpf view` refuses in one sentence what it cannot show or record, before it starts anything."""

import json

import pytest

from gpf.cli import run


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere is not a folder; gpf view takes folders of runs"),
        (["--port", "70000"], "port must be from 0 to 65535, got 70000"),
        (["--policy", "random"], "--policy is for --record"),
        (
            ["--record", "episode.txt", "--policy", "random"],
            "record must be a path that ends in .html, got 'episode.txt'",
        ),
        (["--record", "a.html"], "--record takes one run, or --policy for an episode; got 0 folders"),
        (["--record", "a.html", "--policy", "nobody"], "unknown policy 'nobody'"),
        (["--record", "a.html", "--policy", "random", "--scenario", "mars"], "unknown world 'mars'"),
        (["--record", "a.html", "--policy", "random", "--scenario", "own"], "unknown world 'own'"),
        (["--record", "a.html", "--policy", "random", "--seed", "-1"], "seed must be from 0 to 16777215, got -1"),
        (["--record", "a.html", "nowhere"], "nowhere is not a folder"),
    ],
)
def test_mistakes_are_one_sentence(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=said.replace("(", r"\(")) as caught:
        run(["view", *arguments])
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("*.html"))


def test_an_episode_is_recorded_into_a_file_that_needs_nothing_else(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(
        [
            "view",
            "--record",
            "out/episode.html",
            "--policy",
            "cast-and-surge",
            "--scenario",
            "fly-constant",
            "--seed",
            "901",
        ]
    )
    text = (tmp_path / "out" / "episode.html").read_text()
    assert capsys.readouterr().out == f"written: out/episode.html ({len(text.encode()) / 1e6:.2f} MB)\n"
    assert "/static/" not in text


def test_the_same_episode_gives_the_same_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.html", "b.html"):
        run(["view", "--record", name, "--policy", "random", "--scenario", "fly-constant", "--seed", "902"])
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_run_is_recorded_too(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "runs" / "plume-1"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"task": "plume", "config": {"seed": 901}}))
    run(["view", "runs/plume-1", "--record", "run.html"])
    assert (tmp_path / "run.html").stat().st_size < 2_000_000

import json
import subprocess
import sys

import pytest


def gpf(*arguments, cwd):
    return subprocess.run([sys.executable, "-m", "gpf", *arguments], capture_output=True, text=True, cwd=cwd)


def test_evaluate_prints_a_table_and_writes_the_figure(tmp_path):
    done = gpf("evaluate", "--policy", "cast-and-surge", "--scenario", "reference", "--episodes", "50", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for word in ("success", "Wilson", "SPL", "never arrived", "steps/s"):
        assert word in done.stdout
    assert (tmp_path / "runs" / "evaluate" / "cast-and-surge-reference.png").exists()


def test_evaluate_json_is_one_object_on_the_last_line(tmp_path):
    arguments = ("evaluate", "--episodes", "40", "--json", "--figure", "a b/figure.png", "--animation", "walk.gif")
    done = gpf(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert {"success", "low", "high", "mean_steps", "spl", "steps_per_second"} <= result.keys()
    assert result["low"] <= result["success"] <= result["high"]
    assert (tmp_path / "a b" / "figure.png").exists()
    assert (tmp_path / "walk.gif").exists()
    again = json.loads(gpf(*arguments, "--threads", "1", cwd=tmp_path).stdout.splitlines()[-1])
    other = json.loads(gpf(*arguments, "--seed", "1", cwd=tmp_path).stdout.splitlines()[-1])
    assert again["mean_steps"] == result["mean_steps"]
    assert other["mean_steps"] != result["mean_steps"]


def test_a_scenario_can_be_printed_changed_and_used(tmp_path):
    printed = json.loads(gpf("scenario", "reference", cwd=tmp_path).stdout)
    (tmp_path / "mine.json").write_text(json.dumps({**printed, "max_steps": 3}))
    done = gpf("evaluate", "--scenario", "mine.json", "--episodes", "20", "--json", cwd=tmp_path)
    assert json.loads(done.stdout.splitlines()[-1])["success"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policy", "dog"), "policy: 'dog'; accepted: random, reactive, cast-and-surge"),
        (("--scenario", "moon"), "scenario: unknown preset 'moon'; accepted: paper, reference"),
        (("--scenario", "moon.json"), "scenario: cannot read 'moon.json'"),
        (("--episodes", "0"), "episodes: 0; accepted: 1 to 16777216"),
        (("--seed", "-1"), "seed: -1; accepted: 0 to 16777215"),
        (("--threads", "0"), "threads: 0; accepted"),
        (("--paths", "-5"), "paths: -5; accepted: at least 0"),
        (("--figure", "walk.jpg"), "figure: 'walk.jpg'; accepted: a path that ends in .png"),
        (("--animation", "walk.avi"), "animation: 'walk.avi'; accepted"),
    ],
)
def test_a_users_mistake_ends_in_one_line(arguments, message, tmp_path):
    done = gpf("evaluate", "--episodes", "5", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"gpf: {message}")
    assert done.stderr.count("\n") == 1


def test_names_are_printed_as_they_are(tmp_path):
    (tmp_path / "[red]a$x_{$.json").write_text('{"max_steps": 3}')
    done = gpf("evaluate", "--scenario", "[red]a$x_{$.json", "--episodes", "5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "on [red]a$x_{$.json" in done.stdout


def test_a_reader_that_has_had_enough_is_no_error(tmp_path):
    command = f'"{sys.executable}" -m gpf scenario | true'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr == ""


def test_a_folder_that_cannot_be_written_ends_in_one_line(tmp_path):
    (tmp_path / "file").write_text("")
    done = gpf("evaluate", "--episodes", "5", "--figure", "file/figure.png", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("gpf: ")
    assert done.stderr.count("\n") == 1

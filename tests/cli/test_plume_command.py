"""gpf plume: what it prints and writes, and how it refuses."""

import json
import re

import pytest
from matplotlib.figure import Figure
from PIL import Image

from gpf.plume.presets import PRESETS

SHORT = ("--seconds", "60", "--seeds", "2")


@pytest.fixture
def no_figure(monkeypatch):
    """An empty figure, where the real one, which takes seconds to draw, is not the subject."""
    monkeypatch.setattr("gpf.studies.plumes.plume_figure", lambda *arguments: Figure())


def test_the_page_has_statistics_checks_and_a_figure(tmp_path, gpf):
    printed = gpf("plume", "paper", *SHORT)
    for words in ("intermittency", "blank PDF slope", "peak-to-mean ratio", "0.1 to 0.7", "failed", "12.0 m"):
        assert words in printed
    assert "2 seeds of 60 s" in printed
    assert "The checks are designed for 5 seeds of 1,800 s" in printed
    folder = tmp_path / "runs" / "plume"
    assert sorted(path.name for path in folder.iterdir()) == ["plume-paper.json", "plume-paper.md", "plume-paper.png"]
    with Image.open(folder / "plume-paper.png") as image:
        assert min(image.size) > 1000
    text = (folder / "plume-paper.md").read_text()
    gpf("page", "runs/plume/plume-paper.json")
    assert (folder / "plume-paper.md").read_text() == text


def test_json_is_one_object_on_the_last_line(tmp_path, gpf, no_figure):
    line = ("plume", "reference", *SHORT, "--set", "wind_speed=2", "diffusion=0.01", "--page", "here", "--json")
    told = json.loads(gpf(*line).splitlines()[-1])
    assert told["page"] == "here/plume-reference-wind_speed=2-diffusion=0.01.md"
    assert (tmp_path / told["page"]).exists()
    assert (told["scenario"], told["set"]) == ("reference", ["wind_speed=2", "diffusion=0.01"])
    assert told["world"]["wind_speed"] == 2.0
    assert told["statistics"]["threshold"] == 0.003
    assert {check["name"] for check in told["realism"] if check["passed"]} != {
        check["name"] for check in told["realism"]
    }
    assert told["passed"] is False
    again = json.loads(gpf(*line).splitlines()[-1])
    assert again == told


def test_a_higher_threshold_makes_a_plume_more_intermittent(gpf, no_figure):
    shares = []
    for threshold in ("0.003", "0.1"):
        told = json.loads(gpf("plume", "paper", *SHORT, "--threshold", threshold, "--json").splitlines()[-1])
        shares.append(told["statistics"]["axis"][1]["intermittency"])
    assert shares[0] > shares[1] + 0.1


def test_a_world_without_odour_has_a_page_too(gpf):
    printed = gpf("plume", "paper", "--seconds", "0.1", "--seeds", "1", "--set", "emission_rate=0")
    assert "1 seed of 0.1 s" in printed
    assert re.search(r"^intermittency +0\.000 +0\.000 +0\.000 +0\.000", printed, re.MULTILINE)
    assert re.search(r"^mean blank, s +- +- +- +-", printed, re.MULTILINE)


@pytest.mark.parametrize("change", ["wind_direction=90", "wind_direction=30", "wind_speed=0"])
def test_probes_stand_downwind_whatever_the_wind(gpf, no_figure, change):
    told = json.loads(gpf("plume", "paper", *SHORT, "--set", change, "--json").splitlines()[-1])
    assert told["statistics"]["axis"][0]["mean"] > 0.0


def test_the_name_of_a_scenarios_file_is_the_name_of_its_page(tmp_path, gpf, no_figure):
    (tmp_path / "mine.json").write_text('{"diffusion": 0.01}')
    gpf("plume", "mine.json", "--seconds", "5", "--seeds", "1")
    assert (tmp_path / "runs" / "plume" / "plume-mine.md").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "SCENARIO is missing: a preset"),
        (("papper",), "unknown scenario 'papper'; did you mean 'paper'?"),
        (("nowhere.json",), "nowhere.json cannot be read"),
        (("paper", "--set", "wind_sped=2"), "did you mean 'wind_speed'?"),
        (("paper", "--seconds", "0"), "seconds must be positive, got 0"),
        (("paper", "--seconds", "1e12"), "seconds and warmup must be at most 1,000,000"),
        (("paper", "--seeds", "0"), "seeds must be at least 1, got 0"),
        (("paper", "--threshold", "-1"), "threshold must be a number of at least 0, got -1"),
        (("paper", "--thresh", "1"), "unknown option --thresh; did you mean --threshold?"),
    ],
)
def test_a_mistake_is_one_line(mistake, arguments, message):
    assert message in mistake("plume", *arguments)


def test_help_explains_the_options(gpf, capsys):
    with pytest.raises(SystemExit) as ended:
        gpf("plume", "--help")
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for word in ("SCENARIO", "--set", "--seconds", "--seeds", "--threshold", "--page", "--json", "intermittency"):
        assert word in text


@pytest.mark.parametrize("command", ["plume", "scenario", "evaluate", "train", "compare", "world data"])
def test_help_of_a_command_that_takes_a_scenario_names_all_presets(command, gpf, capsys):
    with pytest.raises(SystemExit):
        gpf(*command.split(), "--help")
    text = " ".join(capsys.readouterr().out.split())
    assert ", ".join(PRESETS) in text

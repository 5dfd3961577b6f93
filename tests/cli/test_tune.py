"""gpf tune: what it prints and writes, and how it refuses."""

import json

import pytest


def test_tuning_writes_parameters_that_evaluate_accepts(tmp_path, gpf):
    printed = gpf("tune", "reference", "--set", "max_steps=60", "--effort", "0.02", "--json")
    (one,) = json.loads(printed.splitlines()[-1])["tuned"]
    assert one["after"]["success"] >= 0.0
    parameters = json.loads((tmp_path / one["file"]).read_text())
    assert parameters == one["parameters"]
    line = ("evaluate", f"cast-and-surge:{one['file']}", "--scenarios", "reference", "--episodes", "5", "--json")
    assert json.loads(gpf(*line).splitlines()[-1])["policy"] == f"cast-and-surge:{one['file']}"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (("tune", "refrence"), "unknown scenario 'refrence'; did you mean 'reference'"),
        (("tune", "reference", "--effort", "0"), "effort must be above 0 and at most 100, got 0"),
        (("tune", "reference", "--shipped", "--set", "wind_speed=2"), "--shipped needs cast-and-surge and presets"),
        (("evaluate", "cast-and-surge:nowhere.json"), "there is no file 'nowhere.json'"),
    ],
)
def test_mistakes_are_one_sentence(mistake, line, why):
    assert why in mistake(*line)

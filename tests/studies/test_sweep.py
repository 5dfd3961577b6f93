"""A search draws variants, trains them over seeds, gives up on bad ones, resumes, and says what came of it."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from gpf.reports.pages import read_numbers
from gpf.runs.executors import train_folder
from gpf.settings import read
from gpf.studies.sweep import Range, Search, read_search, sweep

RUNS = Path(__file__).parent.parent / "runs"


class Here:
    """An executor that trains in this process, and counts."""

    def __init__(self, most=10**9):
        self.trained, self.most = [], most

    def train(self, task, wanted, tell, keep_going=False):
        for folder, config in wanted.items():
            if len(self.trained) >= self.most:
                raise KeyboardInterrupt
            self.trained.append(folder)
            try:
                train_folder(task, folder, config.plain(), lambda metrics: None)
            except RuntimeError as error:
                assert keep_going
                tell(folder, "failed", {"error": str(error)})


@pytest.fixture(autouse=True)
def pausing(monkeypatch, one_torch_thread):
    monkeypatch.syspath_prepend(str(RUNS))


def search(**changes):
    values = {
        "task": "pausing:TASK", "measure": "loss", "direction": "min", "trials": 5, "batch": 2, "seeds": 2,
        "space": {"rounds": {"low": 1, "high": 4}, "rules.max_depth": {"choices": [1, 2]}},
    }  # fmt: skip
    return read(Search, {**values, **changes})


def run(asked, folder, executor=None):
    executor = executor or Here()
    path = sweep(asked, folder, folder, "page", "gpf sweep", executor, lambda *told: None)
    return read_numbers(path.with_suffix(".json")), path, executor


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_variants_are_drawn_from_the_space_and_measured_over_seeds(sampler, tmp_path):
    numbers, path, executor = run(search(sampler=sampler), tmp_path)
    assert len(numbers["trials"]) == 5
    assert all(1 <= trial["settings"]["rounds"] <= 4 for trial in numbers["trials"])
    assert all(trial["settings"]["rules.max_depth"] in (1, 2) for trial in numbers["trials"])
    assert all(len(trial["scores"]) == 2 and trial["state"] == "complete" for trial in numbers["trials"])
    for folder in executor.trained:
        result = json.loads((folder / "result.json").read_text())
        config = json.loads((folder / "config.json").read_text())
        assert result["round"] == config["config"]["rounds"]
        assert config["rules"]["max_depth"] in (1, 2)
    text = path.read_text()
    best = min(numbers["trials"], key=lambda trial: np.mean(trial["scores"]))
    first_row = next(line for line in text.splitlines() if line.startswith("| ") and line[2].isdigit())
    assert first_row.startswith(f"| {best['number']} |")


def test_a_grid_is_searched_once_and_whole(tmp_path):
    space = {"rounds": {"choices": [1, 2]}, "rules.max_depth": {"low": 1, "high": 3, "steps": 2}}
    numbers, _, executor = run(search(sampler="grid", space=space, trials=50, seeds=1), tmp_path)
    drawn = {(trial["settings"]["rounds"], trial["settings"]["rules.max_depth"]) for trial in numbers["trials"]}
    assert drawn == {(1, 1), (1, 3), (2, 1), (2, 3)}
    assert len(executor.trained) == 4


def test_an_interrupted_search_resumes_and_repeats_no_finished_run(tmp_path):
    first = Here(most=5)
    with pytest.raises(KeyboardInterrupt):
        run(search(sampler="random"), tmp_path, first)
    done = [folder for folder in first.trained if (folder / "result.json").exists()]
    assert done
    numbers, _, second = run(search(sampler="random"), tmp_path)
    assert not set(done) & set(second.trained)
    assert len([trial for trial in numbers["trials"] if trial["state"] == "complete"]) == 5
    again, _, third = run(search(sampler="random"), tmp_path)
    assert third.trained == []
    assert again["trials"] == numbers["trials"]


def test_a_pruner_gives_up_on_variants_that_do_worse_than_most(tmp_path):
    space = {"rounds": {"choices": [1, 60]}}
    asked = search(sampler="random", space=space, pruner="median", trials=12, batch=1, seeds=3)
    numbers, _, executor = run(asked, tmp_path)
    pruned = [trial for trial in numbers["trials"] if trial["state"] == "pruned"]
    assert pruned
    assert all(len(trial["scores"]) < 3 for trial in pruned)
    assert {trial["settings"]["rounds"] for trial in pruned} == {1}  # one round hardly learns


def test_a_variant_that_diverges_fails_and_the_others_go_on(tmp_path):
    space = {"diverges": {"choices": [True, False]}, "rounds": {"choices": [1]}}
    numbers, _, _ = run(search(sampler="grid", space=space, seeds=1), tmp_path)
    assert [trial["settings"]["diverges"] for trial in numbers["trials"] if trial["scores"]] == [False]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"space": {}}, "space must have at least one"),
        ({"space": {"rounds": {"low": 3, "high": 1}}}, "low must be below high"),
        ({"space": {"rounds": {"low": 0.0, "high": 1.0, "log": True}}}, "low must be above 0"),
        ({"space": {"rounds": {"choices": [1], "low": 1}}}, "either choices, or low and high"),
        ({"space": {"rounds": {"low": 1, "high": 3}}, "sampler": "grid"}, "a grid needs choices, or steps"),
        ({"space": {"round": {"choices": [1]}}}, "unknown setting 'round'; did you mean 'rounds'"),
        ({"space": {"rounds": {"choices": ["x"]}}}, "rounds must be a whole number"),
        ({"sampler": "best"}, "sampler must be one of random, grid, tpe"),
        ({"trials": 0}, "trials must be at least 1"),
        ({"task": "plum"}, "unknown task 'plum'"),
        ({"task": "nowhere:TASK"}, "cannot be imported"),
    ],
)
def test_a_search_that_cannot_be_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        search(**changes)


def test_a_measure_that_no_result_has_is_refused(tmp_path):
    with pytest.raises(ValueError, match="measure must be a number of a run's result .*got 'los'"):
        run(search(measure="los"), tmp_path)


def test_a_search_is_read_from_toml(tmp_path):
    path = tmp_path / "search.toml"
    path.write_text('task = "pausing:TASK"\nmeasure = "loss"\n[space.rounds]\nlow = 1\nhigh = 2\n')
    assert read_search(path).ranges() == {"rounds": Range(low=1, high=2)}
    path.write_text("x = [")
    with pytest.raises(ValueError, match="cannot be read as TOML"):
        read_search(path)
    with pytest.raises(ValueError, match="cannot be read as TOML"):
        read_search(Path(os.devnull) / "none")


def test_numbers_of_a_grid():
    assert Range(low=1, high=9, steps=3).grid() == (1, 5, 9)
    assert Range(low=1.0, high=4.0, steps=3, log=True).grid() == pytest.approx((1.0, 2.0, 4.0))
    assert Range(choices=("a", 1)).grid() == ("a", 1)

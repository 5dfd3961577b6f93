"""World models as runs: resumed as if never stopped, stopped early; what is refused."""

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
from support import edit, final

from gpf.runs.folder import Run, RunError, read_log
from gpf.tasks.world import TASK, three_parts
from gpf.world_model.sequences import read_dataset
from gpf.world_model.trained import load_world

NAVIGATORS = Path(__file__).parent.parent.parent / "docs" / "results" / "navigators.json"
pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture
def config(tiny_world):
    return TASK.of(tiny_world)


def train(folder, config):
    run = TASK.create(folder, config)
    result = TASK.train(run)
    run.close()
    return result


def begin(run):
    return TASK.training(run, TASK.read(run.folder), None)


def test_a_run_that_is_stopped_after_every_round_ends_as_one_that_is_not(config, tmp_path, world_run):
    run = TASK.create(tmp_path / "stopped", config)
    while not (training := begin(run)).over:
        training.round()
    assert final(world_run) == final(tmp_path / "stopped")
    kinds = {line["kind"] for line in read_log(world_run, "events")}
    assert kinds == {"grown", "pruned", "frozen"}
    lines = read_log(world_run, "metrics")
    assert lines[-1]["depth"] == 2
    assert sum(lines[-1]["validation"]) < sum(lines[0]["validation"]) < 2 * np.log(7) + np.log(8)


def test_it_stops_early_where_validation_is_no_better(config, tmp_path):
    result = train(tmp_path / "run", dataclasses.replace(config, learning_rate=0.0, patience=2, rules={}))
    assert result["step"] == 15  # the first is the best, and two more are waited for


def test_the_result_is_that_of_the_best_checkpoint(world_run):
    """What grew and was pruned after it is another network's."""
    result = json.loads((world_run / "result.json").read_text())
    best = min(read_log(world_run, "metrics"), key=lambda line: sum(line["validation"]))
    assert result["parameters"] == best["parameters"]
    assert len(load_world(world_run).model.blocks) == result["depth"] == best["depth"]


def test_what_is_learnt_is_held_out_from_what_is_reported(world_data):
    dataset = read_dataset(world_data)
    parts = three_parts(dataset)
    assert (np.concatenate([part.codes for part in parts]) == dataset.codes).all()
    assert [round(len(part) / len(dataset), 1) for part in parts] == [0.8, 0.1, 0.1]
    assert (dataset.starts[:-1][dataset.found]).size > 10


def test_a_run_of_other_data_is_refused(config, tmp_path):
    TASK.create(tmp_path / "run", config).close()
    edit(tmp_path / "run" / "config.json", lambda held: held.update(data={"steps": 1}))
    with pytest.raises(RunError, match="data must be the sequences that"):
        begin(Run.open(tmp_path / "run"))
    with pytest.raises(RunError, match="has other settings"):
        TASK.check_same(tmp_path / "run", config)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context": 1}, "context .*2.*1"),
        ({"heads": 3}, "heads .*16.*3"),
        ({"batch": 0}, "batch .*1.*0"),
        ({"gpf": False}, "rules .*gpf"),
        ({"rules": {"depth": "1"}}, "rule 'depth'"),
        ({"data": "nowhere"}, "data.*nowhere"),
        ({"context": 10**6}, "data.*context"),
        ({"round_steps": 0}, "round_steps .*0"),
        ({"validation_windows": 0}, "validation_windows .*0"),
        ({"colour": "red"}, "'colour'"),
    ],
)
def test_impossible_configurations_are_refused_in_one_line(tiny_world, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message) as caught:
        begin(TASK.create(tmp_path / "run", TASK.of({**tiny_world, **changes})))
    assert "\n" not in str(caught.value)


def test_a_round_is_a_hundred_steps_unless_told_otherwise():
    assert (TASK.of({}).round_steps, TASK.of({}).validation_windows) == (100, 512)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("world", "plan", "."), "has no config.json"),
        (("world", "plan", "run", "--follow", "the wind"), "follow .*repeat, cast-and-surge.*'the wind'"),
        (("world", "plan", "run", "--horizon", "8"), "horizon.*8.*7|horizon.*7.*8"),
        (("world", "plan", "run", "--beside", "none.json"), "beside .*none.json"),
        (("world", "plan", "run", "--beside", str(NAVIGATORS)), "beside .*has no agent in it"),
        (("world", "plan", "run", "--seed", "-1"), "seed .*0 to .*-1"),
        (("world", "dream", "run", "--epochs", "0"), "epochs .*1.*0"),
        (("world", "data", "--steps", "0"), "steps.*0"),
        (("world", "data", "--from-minari", "plume/none-v0"), "'plume/none-v0'"),
        (("world", "evaluate", "run"), "run is not finished; resume it with: gpf train --resume run"),
        (("world", "evaluate"), "runs|required"),
        (("train", "world", "--resume", "run", "--steps", "5"), "--resume cannot be combined"),
        (("train", "world", "--data", "nowhere"), "nowhere"),
    ],
)
def test_a_users_mistake_is_one_line(begun, tmp_path, monkeypatch, mistake, arguments, message):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    (tmp_path / "run").symlink_to(begun)
    assert re.search(message, mistake(*arguments))


@pytest.fixture(scope="module")
def begun(tmp_path_factory, tiny_world):
    """A run after its first round; to read."""
    config = TASK.of(tiny_world)
    run = TASK.create(tmp_path_factory.mktemp("begun") / "run", config)
    TASK.training(run, config, None).round()
    run.close()
    return run.folder

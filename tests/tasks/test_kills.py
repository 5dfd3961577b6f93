"""Runs of all tasks that are killed at random moments, again and again, end as if they had not been."""

import json
import multiprocessing
import os
import random
import time

import pytest
import safetensors.torch
import torch

from gpf.runs.executors import train_folder
from gpf.runs.folder import read_log, read_result
from gpf.tasks import find_task

KILLS = 23
"""Of each task: more than 200 in all."""
TASKS = {
    "plume": {"evaluate": 40, "steps": 40_000, "lanes": 16, "horizon": 32, "round_epochs": 2, "validate_every": 3,
              "validation_episodes": 20, "rules": {"warmup": 0, "grow_patience": 2, "prune_patience": 3}},
    "plume, parallel": {"learner": "parallel", "steps": 30_000, "lanes": 16, "horizon": 32, "round_epochs": 2,
                        "evaluate": 40, "validate_every": 3, "validation_episodes": 20},
    "plume, online": {"learner": "online", "episodes": 60, "round_epochs": 4, "validate_every": 2,
                      "evaluate": 40, "validation_episodes": 20, "plan": ["20:grow", "30:keep=0.5"]},
    "shifting": {"episodes": 40, "visits": 3, "round_epochs": 3},
    "world": {"steps": 60, "round_steps": 5, "width": 16, "heads": 2, "context": 16, "validation_windows": 16},
    "cifar10": {"images": 500, "epochs": 6, "width": 16},
    "mspacman-longer": {"epochs": 3, "steps": 30, "lanes": 2, "games": 2, "width": 16, "random_steps": 20},
    "shakespeare": {"steps": 24, "round_steps": 4, "layers": 2, "width": 16, "heads": 2, "context": 8,
                    "validation_windows": 4, "test_tokens": 100},
    "permuted-mnist": {"tasks": 6, "samples": 400},
}  # fmt: skip
"""Short runs with several rounds."""


@pytest.fixture(scope="module")
def sequences(tmp_path_factory):
    from gpf.navigation.policies import make_policy
    from gpf.plume.scenario import Scenario
    from gpf.world_model.collection import collect
    from gpf.world_model.sequences import write_dataset

    folder = tmp_path_factory.mktemp("sequences") / "data"
    policy = make_policy("cast-and-surge")
    write_dataset(collect({"cast-and-surge": (policy, 1.0)}, Scenario.preset("reference"), 5_000, 0), folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been(
    name, tmp_path, with_data, sequences, one_torch_thread
):
    task = find_task(name.partition(",")[0])
    config = task.of({**TASKS[name], **({"data": str(sequences)} if name == "world" else {})})
    started = time.monotonic()
    finish(task, tmp_path / "whole", config)
    duration = time.monotonic() - started
    finish(task, tmp_path / "whole again", config)
    assert numbers(tmp_path / "whole again") == numbers(tmp_path / "whole")
    draws, kills, broken = random.Random(name), 0, 0
    while kills < KILLS:
        folder = tmp_path / f"broken {broken}"
        broken += 1
        while read_result(folder) is None if (folder / "config.json").exists() else True:
            kills += killed_within(task, folder, config, draws.uniform(0.0, 0.7 * duration))
        assert numbers(folder) == numbers(tmp_path / "whole")
        same_tensors(folder, tmp_path / "whole")


def finish(task, folder, config):
    assert not killed_within(task, folder, config, 600.0)


def killed_within(task, folder, config, seconds):
    """Train in a process of its own, and kill it after a while; whether it was still alive then."""
    process = multiprocessing.get_context("fork").Process(
        target=train_folder, args=(task, folder, config.plain(), lambda metrics: None)
    )
    process.start()
    process.join(seconds)
    alive = process.is_alive()
    if alive:
        os.kill(process.pid, 9)
    process.join()
    assert alive or process.exitcode == 0
    return alive


def numbers(folder):
    """Everything that a run says, but for times and its identity."""
    times = ("seconds", "steps_per_second")

    def plain(value):
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items() if key not in times}
        return [plain(one) for one in value] if isinstance(value, list) else value

    return plain([read_log(folder, "metrics"), read_log(folder, "events"), read_result(folder)])


def same_tensors(folder, other):
    for checkpoint in ("best", "last"):
        if (other / "checkpoints" / checkpoint).exists():
            mine, theirs = (tensors(side / "checkpoints" / checkpoint) for side in (folder, other))
            assert mine.keys() == theirs.keys()
            assert all(torch.equal(mine[key], theirs[key]) for key in mine)


def tensors(checkpoint):
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    return safetensors.torch.load_file(checkpoint / manifest["tensors"]["file"])

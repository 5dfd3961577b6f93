"""The training loop: the same run again, whatever interrupts it; what does not belong to a run is refused."""

import json
import os
import random
import shlex
import shutil
import signal
import time

import pausing
import pytest
import torch
from support import edit, final, logs, saved_round

from gpf.network import CheckpointError
from gpf.runs.folder import Run, RunError, read_log, read_result
from gpf.runs.training import Interrupted

pytestmark = pytest.mark.usefixtures("one_torch_thread")
TASK = pausing.TASK


def begin(folder, rounds=0, length=6, **settings):
    """A new run of some length, after some of its rounds; its folder."""
    config = TASK.of({"rounds": length, **settings})
    run = TASK.create(folder, config)
    if rounds:
        training = TASK.training(run, config, None)
        for _ in range(rounds):
            training.round()
    run.close()
    return folder


def resume(folder):
    run = Run.open(folder)
    try:
        return TASK.train(run)
    finally:
        run.close()


def refused(folder, error=RunError):
    """The one line with which a folder is refused, in which nothing then has changed."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}
    with pytest.raises(error) as caught:
        resume(folder)
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}
    assert before == after
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_run_that_is_stopped_after_every_round_ends_as_one_that_is_not(tmp_path):
    whole, pieces = begin(tmp_path / "whole"), begin(tmp_path / "pieces")
    result = resume(whole)
    config = TASK.read(pieces)
    for _ in range(6):
        run = Run.open(pieces)
        training = TASK.training(run, config, None)
        training.round()
        run.append("metrics", [{"round": training.progress["round"] + 1, "left": "by a process that was killed"}])
        run.append("events", [{"round": training.progress["round"] + 1, "left": "likewise"}])
        run.close()
    again = resume(pieces)
    assert final(whole) == final(pieces)
    assert again | {"seconds": 0} == result | {"seconds": 0}
    assert [event["kind"] for event in read_log(whole, "events")].count("grown") == 2


def test_killed_at_any_moment_a_run_loses_nothing_and_ends_the_same(tmp_path):
    """SIGKILL at random moments, of a process that has everything loaded, so that most moments are of training."""
    whole, killed = (begin(tmp_path / name, length=60) for name in ("whole", "killed"))
    resume(whole)
    chance, longest, seen = random.Random(0), 0.05, [0]
    for _ in range(12):
        child = os.fork()
        if child == 0:
            try:
                resume(killed)
            finally:
                os._exit(0)
        time.sleep(chance.uniform(0.0, longest))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        seen.append(saved_round(killed))
        if seen[-1] == seen[-2]:
            longest *= 1.5  # the machine is busy
    assert seen == sorted(seen)
    assert len(set(seen)) > 2  # kills fell into different rounds
    resume(killed)
    assert final(killed) == final(whole)


def test_ctrl_c_ends_the_round_saves_and_says_how_to_resume(tmp_path):
    folder = begin(tmp_path / "a run")
    run = Run.open(folder)

    def press(metrics):
        if metrics["round"] == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted, match="^saved; resume with: gpf train --resume ") as said:
        TASK.train(run, report=press)
    run.close()
    assert shlex.split(str(said.value))[-1] == str(folder)
    assert saved_round(folder) == len(read_log(folder, "metrics")) == 3
    resume(folder)
    resume(begin(tmp_path / "whole"))
    assert final(folder) == final(tmp_path / "whole")


def test_a_second_ctrl_c_ends_at_once_and_loses_only_its_round(tmp_path, monkeypatch):
    folder, before = begin(tmp_path / "run", rounds=2), signal.getsignal(signal.SIGINT)

    def interrupted(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(pausing.Training, "learn", interrupted)
    with pytest.raises(Interrupted, match="saved; resume with: gpf train --resume"):
        resume(folder)
    assert saved_round(folder) == 2
    assert signal.getsignal(signal.SIGINT) is before


def test_the_best_checkpoint_is_that_of_the_first_of_the_best_rounds(tmp_path):
    folder = begin(tmp_path / "run")
    resume(folder)
    losses = [line["loss"] for line in read_log(folder, "metrics")]
    manifest = json.loads((folder / "checkpoints" / "best" / "manifest.json").read_text())
    assert manifest["extra"]["progress"]["round"] == 1 + losses.index(min(losses))
    assert manifest["optimizer"] is None


def test_the_result_is_written_as_it_is_returned_and_does_not_name_the_folder(tmp_path):
    folder = begin(tmp_path / "run")
    result = resume(folder)
    assert read_result(folder) == json.loads(json.dumps(result))
    assert "run" not in result
    last = read_log(folder, "metrics")[-1]
    assert {"depth", "density", "frozen", "parameters", "round", "step", "seconds", "flops", "loss"} == result.keys()
    assert (result["step"], result["loss"]) == (last["step"], last["loss"])


def test_parameters_are_all_those_of_the_model_that_are_not_pruned(tmp_path):
    config = TASK.of({"rounds": 3})
    training = TASK.training(TASK.create(tmp_path / "run", config), config, None)
    assert training.round()["parameters"] == (2 + 1) * 4 + (4 + 1) * 1
    training.net.grow()
    training.net.prune(keep=0.5)
    (weight,) = training.net.layers[0].weights
    left = sum(p.numel() for p in training.net.model.parameters()) - int(weight.pruned.sum())
    assert left < (2 + 1) * 4 + (4 + 1) * 4 + (4 + 1)
    assert training.round()["parameters"] == left


def test_training_uses_one_thread_and_gives_the_others_back(tmp_path):
    torch.set_num_threads(2)
    seen = []
    run = TASK.create(tmp_path / "run", TASK.of({"rounds": 1}))
    TASK.train(run, report=lambda metrics: seen.append(torch.get_num_threads()))
    assert (seen, torch.get_num_threads()) == ([1], 2)


def test_weights_that_are_not_finite_end_the_run_and_the_last_good_round_stays(tmp_path):
    folder = begin(tmp_path / "run", rounds=2)
    edit(folder / "config.json", lambda held: held["config"].update(diverges=True))
    with pytest.raises(RuntimeError, match="non-finite.*learning rate"):
        resume(folder)
    assert saved_round(folder) == len(read_log(folder, "metrics")) == 2


# What does not belong together


def lines_of(folder, log):
    return (folder / f"{log}.jsonl").read_text().splitlines(keepends=True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: [],
        lambda lines: lines[1:],
        lambda lines: lines[:1] + lines[2:],
        lambda lines: lines[:-1],
        lambda lines: lines + lines[-1:],
        lambda lines: lines[:1] + lines,
        lambda lines: lines[::-1],
    ],
    ids=["emptied", "no first", "no second", "no last", "last twice", "first twice", "reversed"],
)
def test_metrics_that_lost_or_repeat_lines_are_not_resumed(damage, tmp_path):
    folder = begin(tmp_path / "run", rounds=4)
    (folder / "metrics.jsonl").write_text("".join(damage(lines_of(folder, "metrics"))))
    assert "metrics.jsonl" in refused(folder)


def test_metrics_that_are_gone_are_not_resumed(tmp_path):
    folder = begin(tmp_path / "run", rounds=4)
    (folder / "metrics.jsonl").unlink()
    assert "metrics.jsonl" in refused(folder)


@pytest.mark.parametrize(
    "damage",
    [lambda lines: [], lambda lines: lines[1:], lambda lines: lines[:-1], lambda lines: lines + lines[-1:]],
    ids=["emptied", "no first", "no last", "last twice"],
)
def test_events_that_lost_or_repeat_lines_are_not_resumed(damage, tmp_path):
    folder = begin(tmp_path / "run", rounds=6)
    assert len(lines_of(folder, "events")) >= 2
    (folder / "events.jsonl").write_text("".join(damage(lines_of(folder, "events"))))
    assert "events.jsonl" in refused(folder)


def test_a_finished_run_with_damaged_lines_is_refused_too(tmp_path):
    folder = begin(tmp_path / "run")
    resume(folder)
    (folder / "metrics.jsonl").write_text("".join(lines_of(folder, "metrics")[:-1]))
    assert "metrics.jsonl" in refused(folder)


@pytest.mark.parametrize("settings", [{}, {"seed": 1}], ids=["the same settings", "another seed"])
@pytest.mark.parametrize("whole", [True, False], ids=["with its lines", "alone"])
def test_the_checkpoint_of_another_run_is_refused(settings, whole, tmp_path):
    mine, other = begin(tmp_path / "mine", rounds=3), begin(tmp_path / "other", rounds=3, **settings)
    shutil.rmtree(mine / "checkpoints")
    shutil.copytree(other / "checkpoints", mine / "checkpoints")
    if whole:
        for log in ("metrics", "events"):
            shutil.copy(other / f"{log}.jsonl", mine / f"{log}.jsonl")
    assert "another run" in refused(mine)


def test_a_copied_run_is_the_same_run(tmp_path):
    folder = begin(tmp_path / "run", rounds=3)
    shutil.copytree(folder, tmp_path / "copy", ignore=shutil.ignore_patterns(".lock"))
    resume(folder)
    resume(tmp_path / "copy")
    assert final(folder) == final(tmp_path / "copy")


def test_the_best_checkpoint_in_place_of_the_last_is_refused(tmp_path):
    folder = begin(tmp_path / "run", rounds=3)
    shutil.rmtree(folder / "checkpoints" / "last")
    shutil.copytree(folder / "checkpoints" / "best", folder / "checkpoints" / "last")
    refused(folder, ValueError)


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_without_its_last_checkpoint_is_refused_instead_of_started_again(finished, tmp_path):
    folder = begin(tmp_path / "run", rounds=3)
    if finished:
        resume(folder)
    shutil.rmtree(folder / "checkpoints" / "last")
    assert "last is missing" in refused(folder)


def test_a_run_that_was_killed_before_its_first_checkpoint_starts_again(tmp_path):
    folder = begin(tmp_path / "run", rounds=1)
    shutil.rmtree(folder / "checkpoints")
    resume(folder)
    resume(begin(tmp_path / "whole"))
    assert final(folder) == final(tmp_path / "whole")


@pytest.mark.parametrize(
    "progress",
    [
        {"round": "x"}, {"round": -1}, {"round": None}, {"round": 2.0}, {"round": True}, {"step": -5}, {"step": [1]},
        {"seconds": "slow"}, {"seconds": -1.0}, {"seconds": float("nan")}, {"seconds": float("inf")}, {"events": -1},
        {"events": {}}, {"since_best": "long"}, {"flops": None}, {"best": "x"}, {"best": 3}, {"best": ["x"]},
        {"round": 10**30},
    ],
    ids=str,
)  # fmt: skip
def test_progress_of_the_wrong_type_or_range_is_refused_in_one_line(progress, tmp_path):
    folder = begin(tmp_path / "run", rounds=3)
    manifest = folder / "checkpoints" / "last" / "manifest.json"
    edit(manifest, lambda held: held["extra"]["progress"].update(progress))
    said = refused(folder, ValueError)
    assert "damaged" in said or next(iter(progress)) in said


@pytest.mark.parametrize(
    "damage",
    [
        lambda held: held["extra"].pop("progress"),
        lambda held: held["extra"].update(progress=[]),
        lambda held: held["extra"].update(progress="x"),
        lambda held: held["extra"]["progress"].pop("round"),
        lambda held: held["extra"].pop("run"),
        lambda held: held.update(extra=[]),
        lambda held: held.update(extra=None),
        lambda held: held.update(rules=[]),
        lambda held: held.update(layers=3),
        lambda held: held.update(tensors=None),
        lambda held: [],
        lambda held: {},
    ],
)
def test_a_damaged_manifest_is_refused_in_one_line(damage, tmp_path):
    folder = begin(tmp_path / "run", rounds=3)

    def change(held):
        changed = damage(held)
        return changed if changed in ([], {}) else held

    edit(folder / "checkpoints" / "last" / "manifest.json", change)
    refused(folder, ValueError)


def test_damaged_tensors_are_refused(tmp_path):
    folder = begin(tmp_path / "run", rounds=3)
    (file,) = (folder / "checkpoints" / "last").glob("tensors-*")
    file.write_bytes(file.read_bytes()[:-7])
    refused(folder, CheckpointError)


def test_lines_beyond_the_last_checkpoint_are_dropped_and_written_again(tmp_path):
    folder = begin(tmp_path / "run", rounds=2)
    shutil.copytree(folder / "checkpoints", tmp_path / "earlier")
    run = Run.open(folder)
    training = TASK.training(run, TASK.read(folder), None)
    training.round()
    training.round()
    run.close()
    shutil.rmtree(folder / "checkpoints")
    shutil.copytree(tmp_path / "earlier", folder / "checkpoints")
    resume(folder)
    resume(begin(tmp_path / "whole"))
    assert logs(folder) == logs(tmp_path / "whole")

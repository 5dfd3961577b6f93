"""A task of one's own takes one short file: it trains, resumes, is compared, and has its page and its report."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import toy
from support import final, saved_round

from gpf.runs.folder import Outcome, Run, read_config, read_log
from gpf.studies import page_of

pytestmark = pytest.mark.usefixtures("one_torch_thread")
PLACE = Path(toy.__file__)


def test_it_is_declared_in_sixty_lines():
    assert len(PLACE.read_text().splitlines()) <= 60


def test_killed_at_random_moments_it_ends_with_the_same_metrics_and_weights(tmp_path):
    config = toy.TASK.of({"epochs": 60, "layers": 2})
    for name in ("whole", "killed"):
        toy.TASK.create(tmp_path / name, config).close()
    toy.TASK.train(Run.open(tmp_path / "whole"))
    chance, longest, rounds = random.Random(1), 0.1, [0]
    for _ in range(8):
        child = os.fork()
        if child == 0:
            try:
                toy.TASK.train(Run.open(tmp_path / "killed", patience=30.0))
            finally:
                os._exit(0)
        time.sleep(chance.uniform(0.2, 1.0) * longest)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        rounds.append(saved_round(tmp_path / "killed"))
        if rounds[-1] == rounds[-2]:
            longest *= 2.0  # the machine is busy
    assert rounds == sorted(rounds)
    assert rounds[-1] > 0
    toy.TASK.train(Run.open(tmp_path / "killed"))
    assert final(tmp_path / "killed") == final(tmp_path / "whole")
    assert {event["kind"] for event in read_log(tmp_path / "whole", "events")} >= {"grown", "pruned"}


def test_it_is_compared_over_seeds_by_command_and_has_its_page_and_report(tmp_path, monkeypatch, gpf):
    paths = os.pathsep.join([str(PLACE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-m", "gpf", "compare", "toy:TASK", "--seeds", "2"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}
    )
    assert done.returncode == 0, done.stderr
    assert "runs/tasks/toy.md" in done.stdout
    page = tmp_path / "runs" / "tasks" / "toy.md"
    numbers = json.loads(page.with_suffix(".json").read_text())
    assert {variant: len(scores["loss"]) for variant, scores in numbers["scores"].items()} == {"baseline": 2, "GPF": 2}
    assert page.read_text() == page_of(numbers, "toy")
    assert "gpf compare toy:TASK --seeds 2" in page.read_text()
    for variant in ("baseline", "GPF"):
        for seed in (0, 1):
            run = tmp_path / "runs" / "tasks" / "toy" / variant / str(seed)
            assert read_config(run)["task"] == "toy:TASK"
            assert len(read_log(run, "metrics")) == 8
    gpf("report", run)
    assert "toy, GPF, seed 1" in (run / "report.html").read_text()
    page.unlink()
    gpf("page", page.with_suffix(".json"))
    assert page.read_text() == page_of(numbers, "toy")


def test_it_is_trained_and_resumed_by_command(gpf, tmp_path):
    shown = json.loads(gpf("train", "toy:TASK", "--epochs", "3", "--json").splitlines()[-1])
    assert shown["run"] == "runs/toy-1"
    assert (tmp_path / "runs" / "toy-1" / "report.html").exists()
    again = json.loads(gpf("train", "--resume", "runs/toy-1", "--json").splitlines()[-1])
    assert again["loss"] == shown["loss"]


def test_the_spectra_of_a_run_are_those_after_each_growth_and_at_its_end(tmp_path, monkeypatch):
    from gpf.tasks import report

    run = toy.TASK.create(tmp_path / "run", toy.TASK.of({}))
    toy.TASK.train(run)
    labels = []
    monkeypatch.setattr(report, "weights_figure", lambda names, found, drifts: labels.extend(names))
    report.spectra_figure(toy.TASK, Outcome.read(tmp_path / "run"))
    assert len(labels) == 3  # it grows twice
    assert all("grown" in label for label in labels[:2])
    assert labels[-1] == "end"

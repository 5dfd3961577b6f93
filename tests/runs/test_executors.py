"""Many runs in processes of their own: each is the run that `train` makes, and none is made twice."""

import dataclasses
import json
import subprocess
import sys
import time

import pytest

from gpf.navigation.config import Config
from gpf.runs.folder import Run, RunError, read_log
from gpf.tasks.many import train_all
from gpf.tasks.plume import Training, create_run, train

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture
def config(tmp_path):
    (tmp_path / "short.json").write_text(json.dumps({"preset": "reference", "max_steps": 10}))
    return Config(scenario=str(tmp_path / "short.json"), steps=2000, lanes=8, horizon=16, minibatch=64, width=8)


def test_runs_are_made_once_gone_on_with_and_the_same_as_alone(config, tmp_path):
    wanted = {tmp_path / "runs" / str(seed): dataclasses.replace(config, seed=seed) for seed in range(2)}
    begun = create_run(tmp_path / "runs" / "1", wanted[tmp_path / "runs" / "1"])
    Training(begun, threads=1).round()  # and then it was interrupted
    begun.close()
    alone = train(create_run(tmp_path / "alone", wanted[tmp_path / "runs" / "1"]), threads=1)
    told = []
    results = train_all(wanted, 2, lambda folder, result: told.append((folder.name, result is None)))
    assert [(name, new) for name, new in sorted(told)] == [("0", False), ("0", True), ("1", False), ("1", True)]
    assert [results[folder]["success"] for folder in wanted][1] == alone["success"]
    assert results[tmp_path / "runs" / "1"]["checkpoints"]["last"]["greedy"]["spl"] == pytest.approx(
        alone["checkpoints"]["last"]["greedy"]["spl"]
    )
    told.clear()
    assert train_all(wanted, 1, lambda folder, result: told.append((folder.name, result is None))) == results
    assert told == [("0", False), ("1", False)]  # nothing was made again


def test_a_process_that_has_trained_a_run_trains_the_next_as_if_it_had_not(config, tmp_path):
    wanted = {tmp_path / "runs" / str(seed): dataclasses.replace(config, seed=seed) for seed in range(2)}
    train_all(wanted, 1)
    for folder, one in wanted.items():
        alone = tmp_path / "alone" / folder.name
        train(create_run(alone, one), threads=1)
        tensors = [next((run / "checkpoints" / "last").glob("*.safetensors")) for run in (folder, alone)]
        assert tensors[0].read_bytes() == tensors[1].read_bytes()


def test_a_process_that_cannot_be_started_is_no_deadlock(config, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    with pytest.raises(OSError, match="nothing"):
        train_all({tmp_path / str(seed): dataclasses.replace(config, seed=seed) for seed in range(3)}, 1)


def test_a_folder_of_another_run_is_refused_and_kept(config, tmp_path):
    folder = tmp_path / "run"
    create_run(folder, config).close()
    before = (folder / "config.json").read_text()
    with pytest.raises(RunError, match=r"^run: .* is of another configuration; accepted: this one"):
        train_all({folder: dataclasses.replace(config, width=9)}, 1)
    written = json.loads(before)
    written["versions"]["torch"] = "1.0"
    (folder / "config.json").write_text(json.dumps(written))
    with pytest.raises(RunError, match=r"^run: .* was made with .*'torch': '1.0'"):
        train_all({folder: config}, 1)
    assert json.loads((folder / "config.json").read_text()) == written


def test_a_folder_that_has_lost_its_configuration_is_refused_and_kept(config, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "result.json").write_text("{}")
    with pytest.raises(RunError, match=r"^run: .* exists; accepted: a new folder"):
        train_all({tmp_path / "other": config, folder: config}, 1)
    assert (folder / "result.json").read_text() == "{}"
    assert not (tmp_path / "other").exists()  # nothing has begun


def test_a_run_that_fails_says_so_in_one_line(config, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(RunError, match=r"^run: .* ended with code 2 \(.*learning_rate") as caught:
        train_all({folder: dataclasses.replace(config, learning_rate=1e30)}, 1)
    assert "\n" not in str(caught.value)


def test_no_jobs_are_refused(config, tmp_path):
    with pytest.raises(ValueError, match="^jobs: 0; accepted: at least 1"):
        train_all({tmp_path / "run": config}, 0)


def test_killed_its_runs_stop_and_the_same_call_goes_on_with_them(config, tmp_path):
    folder, long = tmp_path / "run", dataclasses.replace(config, steps=10_000_000)
    code = (
        "import json, sys; from pathlib import Path; from gpf.navigation.config import Config;"
        "from gpf.tasks.many import train_all;"
        "train_all({Path(sys.argv[1]): Config.of(json.loads(sys.argv[2]))}, 1)"
    )
    arguments = [str(folder), json.dumps(dataclasses.asdict(long))]
    parent = subprocess.Popen([sys.executable, "-c", code, *arguments], start_new_session=True)
    waited = time.monotonic() + 120
    while len(read_log(folder, "metrics")) < 3:
        assert parent.poll() is None
        assert time.monotonic() < waited
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    run = Run.open(folder, patience=60.0)  # the run has let go of its folder
    rounds = len(read_log(folder, "metrics"))
    assert Training(run, threads=1).round()["round"] == rounds + 1

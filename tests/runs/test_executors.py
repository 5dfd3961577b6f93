"""Many runs in processes of their own: each is the run that `train` makes, and none is made twice."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pausing
import pytest
from support import edit, final, nobody

from gpf.runs.executors import Local, check_same, find, train_all
from gpf.runs.folder import Run, RunError, read_log

pytestmark = pytest.mark.usefixtures("one_torch_thread")
TASK = pausing.TASK
CONFIG = TASK.of({"rounds": 4})


@pytest.fixture(autouse=True)
def found_by_processes(monkeypatch):
    """Processes find the task of these tests."""
    place = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([place, *filter(None, [os.environ.get("PYTHONPATH")])]))


def wanted_in(folder, seeds=2, **changes):
    return {folder / str(seed): dataclasses.replace(CONFIG, seed=seed, **changes) for seed in range(seeds)}


def alone(folder, config):
    run = TASK.create(folder, config)
    TASK.train(run)
    run.close()
    return folder


def test_runs_are_made_once_resumed_and_the_same_as_alone(tmp_path):
    """Also by a process that has trained another run before."""
    wanted = wanted_in(tmp_path / "runs", 3)
    begun = TASK.create(tmp_path / "runs" / "1", wanted[tmp_path / "runs" / "1"])
    TASK.training(begun, TASK.read(begun.folder), 1).round()  # and then it was interrupted
    begun.close()
    told = []
    results = train_all(TASK, wanted, Local(2), lambda folder, what, said: told.append((folder.name, what, said)))
    assert sorted((name, what) for name, what, _ in told if what != "round") == [
        (name, what) for name in "012" for what in ("begun", "finished")
    ]
    first = next(said for name, what, said in told if (name, what) == ("0", "round"))
    assert first["loss"] == read_log(tmp_path / "runs" / "0", "metrics")[first["round"] - 1]["loss"]
    for folder, config in wanted.items():
        assert final(folder) == final(alone(tmp_path / "alone" / folder.name, config))
        assert results[folder]["loss"] == read_log(folder, "metrics")[-1]["loss"]
    told.clear()
    assert train_all(TASK, wanted, Local(1), lambda folder, what, said: told.append((folder.name, what))) == results
    assert told == [(name, "finished") for name in "012"]  # nothing was made again


def test_a_process_that_cannot_be_started_is_no_deadlock(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    with pytest.raises(OSError, match="nothing"):
        train_all(TASK, wanted_in(tmp_path, 3), Local(1))


def test_a_folder_of_another_run_is_refused_and_kept(tmp_path):
    folder = tmp_path / "run"
    TASK.create(folder, CONFIG).close()
    with pytest.raises(RunError, match=r"has other settings"):
        train_all(TASK, {folder: dataclasses.replace(CONFIG, rounds=9)}, Local(1))
    edit(folder / "config.json", lambda held: held["versions"].update(torch="1.0"))
    before = (folder / "config.json").read_text()
    with pytest.raises(RunError, match=r"was made with .*'torch': '1.0'"):
        train_all(TASK, {folder: CONFIG}, Local(1))
    assert (folder / "config.json").read_text() == before


def test_a_run_of_another_cpu_is_taken_as_it_is(tmp_path):
    folder = tmp_path / "run"
    TASK.create(folder, CONFIG).close()
    check_same(TASK, folder, CONFIG)
    edit(folder / "config.json", lambda held: held["versions"].update(cpu="another"))
    check_same(TASK, folder, CONFIG)
    edit(folder / "config.json", lambda held: held["versions"].__delitem__("cpu"))  # as runs of earlier versions
    check_same(TASK, folder, CONFIG)
    edit(folder / "config.json", lambda held: held.update(versions="none"))
    with pytest.raises(RunError, match=r"was made with none"):
        check_same(TASK, folder, CONFIG)


def test_a_folder_that_has_lost_its_configuration_is_refused_and_kept(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "result.json").write_text("{}")
    with pytest.raises(RunError, match=r"run exists"):
        train_all(TASK, {tmp_path / "other": CONFIG, folder: CONFIG}, Local(1))
    assert (folder / "result.json").read_text() == "{}"
    assert not (tmp_path / "other").exists()  # nothing has begun


def test_a_run_that_fails_says_so_in_one_line_or_lets_the_others_go_on(tmp_path):
    wanted = {tmp_path / "bad": dataclasses.replace(CONFIG, diverges=True), tmp_path / "good": CONFIG}
    told = {}
    results = train_all(
        TASK, wanted, Local(1), lambda folder, what, said: told.update({folder.name: (what, said)}), True
    )
    assert list(results) == [tmp_path / "good"]
    assert told["bad"][0] == "failed"
    assert "non-finite" in told["bad"][1]["error"]
    with pytest.raises(RunError, match=r"bad ended with code 2 \(.*non-finite") as caught:
        train_all(TASK, wanted, Local(1))
    assert "\n" not in str(caught.value)


def test_no_jobs_are_refused():
    with pytest.raises(ValueError, match="jobs .*0"):
        Local(0)


@pytest.mark.parametrize("reference", ["nothing:TASK", "pausing:NOTHING", "pausing", "", ":"])
def test_a_reference_that_leads_nowhere_is_refused_in_one_line(reference):
    with pytest.raises(ValueError, match="must be module:name") as caught:
        find(reference)
    assert "\n" not in str(caught.value)


def test_killed_its_runs_stop_and_the_same_call_resumes_them(tmp_path):
    folder, long = tmp_path / "run", dataclasses.replace(CONFIG, rounds=100_000, pause=0.01)
    code = (
        "import json, sys; from pathlib import Path; from pausing import TASK;"
        "from gpf.runs.executors import Local, train_all;"
        "train_all(TASK, {Path(sys.argv[1]): TASK.of(json.loads(sys.argv[2]))}, Local(1))"
    )
    arguments = [str(folder), json.dumps(long.plain())]
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
    assert TASK.training(run, TASK.read(folder), 1).round()["round"] == rounds + 1


def test_a_study_s_runs_have_data_before_any_begins(tmp_path):
    def missing(config):
        raise ValueError("data must be there")

    with pytest.raises(ValueError, match="data must be there"):
        train_all(dataclasses.replace(TASK, find_data=missing), wanted_in(tmp_path / "runs"), Local(1), nobody)
    assert not (tmp_path / "runs").exists()

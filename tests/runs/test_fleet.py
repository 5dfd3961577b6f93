"""Runs on a Ray cluster of two nodes on loopback: one node is killed halfway, then the driver."""

import functools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import safetensors.torch
import torch

from gpf.runs.executors import Local, train_all
from gpf.runs.fleet import Fleet, check_reachable, packed, unpack
from gpf.runs.folder import read_config, read_log, read_result

HERE = Path(__file__).parent
DRIVER = """
import json, sys
from pathlib import Path
from gpf.runs.executors import train_all
from gpf.runs.fleet import Fleet
from pausing import TASK

address, runs, log, settings = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), json.loads(sys.argv[4])
wanted = {runs / str(seed): TASK.of({**settings["run"], "seed": seed}) for seed in range(settings["runs"])}

def tell(folder, what, told):
    with log.open("a") as file:
        file.write(json.dumps([folder.name, what, told.get("round")]) + "\\n")

train_all(TASK, wanted, Fleet(address), tell)
"""


@pytest.fixture
def pausing(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.syspath_prepend(str(HERE))
    import pausing

    return pausing


def away_from_spaces(test):
    """Ray starts no worker from a path with spaces: there, the test runs again with an interpreter at another path."""

    @functools.wraps(test)
    def run(tmp_path, request, **others):
        if " " not in sys.executable:
            return test(tmp_path=tmp_path, request=request, **others)
        (tmp_path / "venv").symlink_to(sys.prefix)
        command = [str(tmp_path / "venv" / "bin" / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-m", "", "--basetemp", str(tmp_path / "again"), request.node.nodeid]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        done = subprocess.run(command, cwd=request.config.rootpath, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-5000:]
        return None

    return run


def test_an_address_at_which_nobody_answers_is_refused_at_once():
    started = time.monotonic()
    for address in ("127.0.0.1:1", "nowhere", "127.0.0.1:x"):
        with pytest.raises(ValueError, match="cluster must be auto or HOST:PORT"):
            check_reachable(address)
    assert time.monotonic() - started < 10.0


def test_an_archive_brings_a_folder_up_to_date(tmp_path, pausing):
    run = pausing.TASK.create(tmp_path / "a", pausing.TASK.of({"rounds": 4}))
    training = pausing.TASK.training(run, pausing.TASK.read(run.folder), 1)
    training.round()
    unpack(packed(run.folder), tmp_path / "b")
    training.round()
    training.round()
    unpack(packed(run.folder), tmp_path / "b")
    assert weights(tmp_path / "a").keys() == weights(tmp_path / "b").keys()
    assert read_log(tmp_path / "b", "metrics") == read_log(tmp_path / "a", "metrics")
    assert len(list((tmp_path / "b" / "checkpoints" / "last").iterdir())) == 2  # nothing is left of the old one
    expected = training.round()["loss"]
    other = pausing.TASK.training(type(run).open(tmp_path / "b"), pausing.TASK.read(tmp_path / "b"), 1)
    assert other.round()["loss"] == expected


def test_there_is_no_archive_of_no_folder(tmp_path):
    assert packed(tmp_path / "none") is None


@pytest.mark.parametrize("runs", [4, pytest.param(20, marks=pytest.mark.slow)])
@away_from_spaces
def test_a_study_survives_the_loss_of_a_node_and_of_its_driver(tmp_path, pausing, request, runs):
    from ray.cluster_utils import Cluster

    settings = {"runs": runs, "run": {"rounds": 16, "pause": 0.25}}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={"num_cpus": 1, "include_dashboard": False, "node_ip_address": "127.0.0.2"},
    )
    try:
        lost = cluster.add_node(num_cpus=1, node_ip_address="127.0.0.2")
        first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
        driver = start(cluster.address, tmp_path, first, settings)
        wait_until(lambda: count(first, "round") >= 2 and len({line[0] for line in told(first, "round")}) >= 2)
        cluster.remove_node(lost, allow_graceful=False)
        wait_until(lambda: count(first, "finished") >= runs // 2)
        driver.kill()
        driver.wait()
        cluster.add_node(num_cpus=1, node_ip_address="127.0.0.2")
        done = {line[0] for line in told(first, "finished")}
        ids = {name: read_config(tmp_path / "runs" / name)["id"] for name in done}
        driver = start(cluster.address, tmp_path, second, settings)
        assert driver.wait(600) == 0
    finally:
        cluster.shutdown()
    folders = {str(seed): tmp_path / "runs" / str(seed) for seed in range(runs)}
    assert all(read_result(folder) is not None for folder in folders.values())
    assert len(told(first, "begun")) > len({line[0] for line in told(first, "begun")})  # one was sent again
    begun_again = {line[0] for line in told(second, "begun")}
    assert not done & begun_again
    assert done | begun_again == folders.keys()
    assert {name: read_config(folders[name])["id"] for name in done} == ids
    local = {tmp_path / "local" / name: pausing.TASK.of({"rounds": 16, "seed": int(name)}) for name in folders}
    train_all(pausing.TASK, local, Local(1))
    for name, folder in folders.items():
        mine, theirs = weights(folder), weights(tmp_path / "local" / name)
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)
        assert numbers(folder) == numbers(tmp_path / "local" / name)


@away_from_spaces
def test_a_run_that_fails_is_said_so(tmp_path, pausing, request):
    import ray

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1",
             runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"]}})  # fmt: skip
    try:
        wanted = {
            tmp_path / "bad": pausing.TASK.of({"diverges": True}),
            tmp_path / "good": pausing.TASK.of({"rounds": 2}),
        }
        said = []
        results = train_all(
            pausing.TASK, wanted, Fleet(), lambda *what: said.append(what), keep_going=True
        )  # fmt: skip
        assert list(results) == [tmp_path / "good"]
        assert [folder.name for folder, what, told in said if what == "failed"] == ["bad"]
        with pytest.raises(ValueError, match="bad ended with .*non-finite"):
            train_all(pausing.TASK, wanted, Fleet())
    finally:
        ray.shutdown()


def start(address, place, log, settings):
    command = [sys.executable, "-c", DRIVER, address, str(place / "runs"), str(log), json.dumps(settings)]
    return subprocess.Popen(command, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))


def wait_until(condition, seconds=120):
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds
        time.sleep(0.1)


def told(log, what):
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return [line for line in lines if line[1] == what]


def count(log, what):
    return len(told(log, what))


def weights(folder):
    checkpoint = folder / "checkpoints" / "last"
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    return safetensors.torch.load_file(checkpoint / manifest["tensors"]["file"])


def numbers(folder):
    times = ("seconds", "steps_per_second")
    return [{key: value for key, value in line.items() if key not in times} for line in read_log(folder, "metrics")]

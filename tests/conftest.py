import fcntl
import functools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("gpf", deadline=None)  # machines that run tests are busy
settings.load_profile("gpf")
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # before NumPy and torch: other tests have the other cores
    os.environ.setdefault(_name, "1")

SHARED = Path(__file__).parent.parent.parent / "shared" / "data" / "unpack"


@pytest.fixture(scope="session")
def real_data(tmp_path_factory):
    """The folder of the real data sets: GPF_DATA, or what lies beside the project, or else what is downloaded."""
    from gpf.data import data_folder

    if "GPF_DATA" in os.environ or not SHARED.exists():
        return data_folder()
    folder = tmp_path_factory.getbasetemp().parent / "gpf-data"  # of all the workers together
    with folder.with_suffix(".lock").open("a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.seek(0)
        if not lock.read():
            subprocess.run([sys.executable, SHARED, folder], check=True, capture_output=True)
            lock.write("done")
    return folder


@pytest.fixture
def with_data(real_data, monkeypatch):
    """The real data sets are where they are looked for."""
    monkeypatch.setenv("GPF_DATA", str(real_data))
    return real_data


@pytest.fixture(scope="module")
def short_episodes():
    """Episodes in the worlds of federated clients end early: networks that have learned nothing walk to the end."""
    from gpf.federated.worlds import UNSEEN, WORLDS

    with pytest.MonkeyPatch.context() as patch:
        for fields in (*WORLDS.values(), *UNSEEN.values()):
            patch.setitem(fields, "max_steps", 30)
        yield


@functools.cache
def _read_once(name):
    """A data set, which tests only read, and which takes a second to unpack."""
    from gpf import data

    return getattr(data, name)()


@pytest.fixture
def loaded_data(with_data, monkeypatch):
    """The real data sets, which tasks read once for all tests."""
    monkeypatch.setattr("gpf.tasks.cifar10.cifar10", lambda: _read_once("cifar10"))
    monkeypatch.setattr("gpf.tasks.drifting.mnist", lambda: _read_once("mnist"))
    return with_data


@pytest.fixture
def one_torch_thread():
    """Small networks are fastest on one thread, and other tests run on the other cores; always the same seed."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


def shorten(patch):
    """Held-out episodes, and observations whose activations are looked at: a few in place of thousands."""
    from gpf.navigation.rollouts import probe_inputs

    patch.setattr("gpf.tasks.plume.PATHS", 3)
    patch.setattr("gpf.studies.reproduction.HELD_OUT_EPISODES", 20)
    patch.setattr("gpf.tasks.plume_report.EPISODES", 20)
    patch.setattr("gpf.tasks.spectra.probe_inputs", lambda *arguments: probe_inputs(*arguments)[::5])


@pytest.fixture
def few_episodes(monkeypatch):
    """In this process, navigators are reported on few held-out episodes."""
    shorten(monkeypatch)


@pytest.fixture(scope="module")
def few_episodes_in_module():
    """The same for fixtures of a module."""
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        yield


@pytest.fixture(scope="session")
def short_world(tmp_path_factory):
    """The file of a world of short episodes near the source."""
    path = tmp_path_factory.mktemp("worlds") / "short.json"
    path.write_text(json.dumps({"preset": "reference", "max_steps": 30, "start_distance_max": 3.0}))
    return path


@pytest.fixture(scope="session")
def plume_run(tmp_path_factory, short_world):
    """A finished run of a navigator whose layers grew, were pruned and froze; to read, or to copy."""
    from gpf.tasks.plume import TASK

    rules = {
        "warmup": "0", "grow_patience": "1", "grow_trial": "null", "grow_threshold": "9", "prune_patience": "2",
        "belief_threshold": "2", "freeze_patience": "5", "freeze_delta": "9", "max_depth": "2", "grow_at": "[]",
        "grow_by": "1", "prune_to": "none", "granularity": "weight", "remove_units": "false",
    }  # fmt: skip
    settings = {
        "scenario": str(short_world), "depth": 1, "steps": 12_000, "lanes": 16, "horizon": 64, "minibatch": 256,
        "width": 16, "round_epochs": 3, "validate_every": 2, "validation_episodes": 10, "evaluate": 20, "rules": rules,
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("plume") / "run"
    run = TASK.create(folder, TASK.of(settings))
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch)
        patch.setattr("gpf.tasks.plume.RECENT", 20)  # the rules begin soon
        TASK.train(run, 1)
    run.close()
    return folder


@pytest.fixture(scope="session")
def world_data(tmp_path_factory):
    """Sequences that the command collected."""
    from gpf.cli import main

    folder = tmp_path_factory.mktemp("world")
    (folder / "near.json").write_text(
        json.dumps({"preset": "reference", "max_steps": 90, "start_distance_min": 1.0, "start_distance_max": 2.0})
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        command = ["world", "data", "--out", "data", "--steps", "20000", "--scenario", "near.json"]
        patch.setattr(sys, "argv", ["gpf", *command])
        main()
    return folder / "data"


@pytest.fixture(scope="session")
def tiny_world(world_data):
    """Settings of a world model that grows, is pruned and freezes within a second."""
    rules = {"warmup": "0", "grow_patience": "1", "grow_threshold": "10", "max_depth": "2", "prune_patience": "1",
             "freeze_patience": "2", "freeze_delta": "1.0"}  # fmt: skip
    return {
        "data": str(world_data), "width": 16, "heads": 2, "context": 8, "steps": 30, "batch": 8, "rules": rules,
        "round_steps": 5, "validation_windows": 32,
    }  # fmt: skip


@pytest.fixture(scope="session")
def world_run(tmp_path_factory, tiny_world):
    """A finished run of a world model; to read."""
    import torch

    from gpf.tasks.world import TASK

    folder = tmp_path_factory.mktemp("world-run") / "run"
    torch.manual_seed(0)
    run = TASK.create(folder, TASK.of(tiny_world))
    TASK.train(run)
    run.close()
    return folder


@pytest.fixture
def gpf(monkeypatch, capsys, tmp_path, one_torch_thread):
    """Runs a command in this process, which saves the seconds that a new one takes; returns what it prints."""
    from gpf.cli import main

    monkeypatch.setenv("COLUMNS", "120")  # workers of pytest-xdist say 80

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["gpf", *map(str, arguments)])
        main()
        return capsys.readouterr().out

    return run


@pytest.fixture
def mistake(monkeypatch, capsys, tmp_path):
    """Runs a command that is a mistake, in this process; returns the one line that it says."""
    from gpf.cli import main

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["gpf", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr().err
        assert ended.value.code == 2, said
        *phases, said = said.splitlines(keepends=True)
        assert re.match(r"gpf( \w+)*: ", said)
        assert all(re.match(r".*: (episodes|figures|animations|spectra)", phase) for phase in phases), phases
        return said

    return run

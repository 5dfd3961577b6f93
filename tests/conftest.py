import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.fixture
def one_torch_thread():
    """Small networks are fastest on one thread, and other tests run on the other cores; always the same seed."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)

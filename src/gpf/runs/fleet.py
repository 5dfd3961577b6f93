"""Runs on a Ray cluster: placed on any node, resumed elsewhere if a node is lost, copied back to the driver.

Nodes share no files. A run's folder travels as one archive: to the node with what there is of it, and back every few
seconds and at the end. A driver that is killed therefore finds its finished runs, and the others as they last came
back; a run whose node was lost is sent again with the newest archive. Every node needs gpf installed.
"""

import io
import logging
import os
import socket
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any

from gpf.runs.executors import Config, Tell, Trainable, find, train_folder
from gpf.runs.folder import RunError, read_result

BRING_BACK = 5.0
"""Seconds between two archives of a running run."""
TIMEOUT = 3.0
"""Seconds to wait for a cluster's port: Ray itself would wait for minutes."""
TRIES = 5
"""How often a run may be lost before we give up: something else than nodes is wrong then."""


class Fleet:
    """A Ray cluster.

    Args:
        address: `auto` for the one that this machine belongs to, or HOST:PORT.
    """

    def __init__(self, address: str = "auto") -> None:
        try:
            import ray
        except ImportError:
            raise ValueError("--cluster needs the extra fleet: pip install 'gpf-networks[fleet]'") from None
        check_reachable(address)
        self._ray = ray
        if not ray.is_initialized():
            environment = {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.environ.get("PYTHONPATH", "")}
            # Ray takes 127.0.0.1 for this machine's other address; a cluster on loopback is at 127.0.0.2, or the like.
            loopback: dict[str, Any] = (
                {"_node_ip_address": address.partition(":")[0]} if address.startswith("127.") else {}
            )
            ray.init(
                address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                runtime_env={"env_vars": environment},
                **loopback,
            )

    def train(self, task: Trainable, wanted: Mapping[Path, Config], tell: Tell, keep_going: bool = False) -> None:
        """Train a run in each folder to its end."""
        ray = self._ray
        remote = ray.remote(num_cpus=1, max_retries=0, num_returns="streaming")(_train)
        lost = dict.fromkeys(wanted, 0)

        def sent(folder: Path) -> Any:
            tell(folder, "begun", {})
            return remote.remote(task.reference, wanted[folder].plain(), packed(folder))

        going = {sent(folder): folder for folder in wanted}
        try:
            while going:
                ready, _ = ray.wait(list(going), num_returns=1)
                stream, folder = ready[0], going.pop(ready[0])
                try:
                    metrics, archive = ray.get(next(stream))
                except StopIteration:
                    tell(folder, "finished", read_result(folder) or {})
                except ray.exceptions.RayTaskError as error:
                    reason = str(error).strip().splitlines()[-1]
                    if not keep_going:
                        raise RunError(f"run {folder} ended with {reason}") from None
                    tell(folder, "failed", {"error": reason})
                except ray.exceptions.RayError as error:
                    lost[folder] += 1
                    if lost[folder] >= TRIES:
                        raise RunError(f"run {folder} was lost {TRIES} times ({type(error).__name__})") from None
                    going[sent(folder)] = folder
                else:
                    going[stream] = folder
                    if archive is not None:
                        unpack(archive, folder)
                    if metrics is not None:
                        tell(folder, "round", metrics)
        finally:
            for stream in going:
                ray.cancel(stream, force=True)


def _train(reference: str, config: dict[str, Any], archive: bytes | None) -> Iterator[Any]:
    """Train a run on whatever node this is; yields metrics and, now and then and at the end, the whole folder."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "run")
        if archive is not None:
            unpack(archive, folder)
        told: SimpleQueue[dict[str, Any] | BaseException | None] = SimpleQueue()

        def work() -> None:
            try:
                train_folder(find(reference), folder, config, told.put)
            except BaseException as error:  # passed on to the caller
                told.put(error)
            else:
                told.put(None)

        Thread(target=work, daemon=True).start()
        brought = time.monotonic()
        while (said := told.get()) is not None:
            if isinstance(said, BaseException):
                raise said
            due = time.monotonic() - brought >= BRING_BACK
            brought = time.monotonic() if due else brought
            yield said, packed(folder) if due else None
        yield None, packed(folder)


def check_reachable(address: str) -> None:
    """Refuse an address at which no cluster answers."""
    if address == "auto":
        address = os.environ.get("RAY_ADDRESS", "auto")
    if address in ("auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        with socket.create_connection((host, int(port)), TIMEOUT):
            pass
    except (OSError, ValueError) as error:
        raise ValueError(f"cluster must be auto or HOST:PORT of a Ray cluster, got {address!r} ({error})") from None


def packed(folder: Path) -> bytes | None:
    """A run's folder as one archive; None if it does not exist yet.

    Lines that training appends meanwhile are cut back to the last checkpoint when the run is resumed. If a
    checkpoint's files change while they are packed, it is packed again.
    """
    if not (folder / "config.json").exists():
        return None
    while True:
        held = io.BytesIO()
        try:
            with tarfile.open(fileobj=held, mode="w") as archive:
                manifests = {path: path.read_bytes() for path in folder.glob("checkpoints/*/manifest.json")}
                archive.add(folder, ".", filter=_wanted)
            if manifests == {path: path.read_bytes() for path in folder.glob("checkpoints/*/manifest.json")}:
                return held.getvalue()
        except FileNotFoundError:  # it was replaced
            continue


def _wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    name = Path(member.name).name
    return None if name == ".lock" or (name.startswith(".") and name != ".") else member


def unpack(archive: bytes, folder: Path) -> None:
    """Bring a folder up to date with an archived one, in the order in which training writes: checkpoints after logs."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as place:
        new = Path(place)
        with tarfile.open(fileobj=io.BytesIO(archive)) as held:
            held.extractall(new, filter="data")
        files = [path for path in new.rglob("*") if path.is_file()]
        for path in sorted(files, key=lambda path: (path.name == "result.json", path.name == "manifest.json")):
            target = folder / path.relative_to(new)
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)
        kept = {path.relative_to(new) for path in files}
    for old in folder.glob("checkpoints/*/tensors-*"):
        if old.relative_to(folder) not in kept:
            old.unlink()

"""What all trainings share: rounds until they are over, Ctrl-C that saves, and the versions that numbers depend on."""

import importlib.metadata
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import torch

Report = Callable[[dict[str, Any]], None]
"""Called with the metrics of each round."""


class Interrupted(KeyboardInterrupt):
    """The user has asked to stop; the run is saved."""


class InRounds(Protocol):
    """A training that goes on in rounds, each of which ends in a checkpoint."""

    @property
    def over(self) -> bool:
        """Whether there is nothing left to learn."""

    def round(self) -> dict[str, Any]:
        """Learn for one round, and return its metrics."""


Training = TypeVar("Training", bound=InRounds)


def train_to_the_end(
    make: Callable[[], Training], finish: Callable[[Training], dict[str, Any]], report: Report, go_on: str
) -> dict[str, Any]:
    """Train in rounds until it is over, on one thread of torch's, and return what `finish` makes of it.

    Ctrl-C ends the current round, saves, and raises `Interrupted` with what to say; a second one ends at once, and
    loses that round.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the networks are so small that a second thread only waits
    try:
        training = make()
        with _interruptible() as asked_to_stop:
            while not training.over:
                report(training.round())
                if asked_to_stop.is_set():
                    raise Interrupted(go_on)
        return finish(training)
    except KeyboardInterrupt:
        raise Interrupted(go_on) from None
    finally:
        torch.set_num_threads(before)


def versions() -> dict[str, str]:
    """Of everything on which the numbers of a run depend."""
    names = {"gpf": "gpf-networks", "torch": "torch", "numpy": "numpy", "numba": "numba"}
    return {name: importlib.metadata.version(package) for name, package in names.items()}


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """While it lasts, the first Ctrl-C only sets the event; the second is as ever."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def ask(signum: int, frame: object) -> None:
        asked.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)

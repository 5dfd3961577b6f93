"""The one training loop: rounds that end in metrics, events and a checkpoint; Ctrl-C; resuming.

A task says what its network is and how a round is learned. Everything that outlives a round is in the network, in
`progress`, or in what the task puts into its checkpoints.
"""

import os
import shlex
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

from gpf.network import CheckpointError, GrowPruneFreeze, Rules, attach, load
from gpf.network.controller import Watcher
from gpf.network.events import Event
from gpf.runs.folder import Run, RunError, read_config, read_log, read_result, undamaged, write_json

Report = Callable[[dict[str, Any]], None]
"""Called with the metrics of each round."""
Advance = Callable[[int], None]
"""Called with how much of a phase is done."""
Phase = Callable[[str, int], Advance]
"""Called with the name of a new phase and its number of parts; 0 if unknown."""


def silent(name: str, total: int) -> Advance:
    """A `Phase` that shows nothing."""
    return lambda done: None


class Interrupted(KeyboardInterrupt):
    """The user has asked to stop; the run is saved."""


class Settings(Protocol):
    """The settings of a task that the loop needs."""

    @property
    def seed(self) -> int:
        """Of the first weights."""

    def network_rules(self) -> Rules:
        """When the network grows, prunes and freezes."""


@dataclass
class Round:
    """The outcome of one round of a task."""

    metrics: dict[str, Any]
    """Measurements of the task, in addition to those of the loop."""
    score: list[float] | None = None
    """How good the network is; the highest so far is kept as the best checkpoint. None where it was not measured."""
    metric: float | None = None
    """The metric for the rules, if the round is one of their epochs; None if the task passes it to them itself."""
    events: list[dict[str, Any]] = field(default_factory=list)
    """Changes of the network in the round."""


C = TypeVar("C", bound=Settings)


class Loop(Protocol):
    """The interface of anything that is trained in rounds, such as `Training`."""

    progress: dict[str, Any]
    """Plain data: at least `round`, `step`, `seconds` and `flops`."""

    @property
    def over(self) -> bool:
        """Whether training is complete."""

    def round(self) -> dict[str, Any]:
        """Learn for one round, save, and return its metrics."""

    def shape(self) -> dict[str, Any]:
        """The current network: `depth`, `density`, `frozen` and `parameters`."""

    def finish(self, phase: Phase) -> dict[str, Any]:
        """The result of the finished run; long work reports its progress by `phase`."""


class Training(ABC, Generic[C]):
    """A run in the making.

    Attributes:
        run: Its folder.
        config: Its settings.
        threads: To step worlds with; None for one per core.
        net: Its network and optimizer.
        progress: Plain data that checkpoints carry: `round`, `step`, `seconds`, `flops`, `events`, `best`,
            `since_best`, and what a task adds in `first_progress`.
    """

    stack: ClassVar[str] = "layers"
    net: GrowPruneFreeze
    progress: dict[str, Any]

    def __init__(self, run: Run, config: C, threads: int | None = None) -> None:
        self.run = run
        self.config = config
        self.threads = threads
        first: dict[str, Any] = {
            "round": 0, "step": 0, "seconds": 0.0, "flops": 0.0, "events": 0, "best": None, "since_best": 0,
            **self.first_progress(),
        }  # fmt: skip
        last = run.checkpoint("last")
        if (last / "manifest.json").exists():
            self.net = load(last, build=self.build)
            with _fitting(run):
                if self.net.extra.get("run") != run.id:
                    raise ValueError("it belongs to another run")
                self.progress = _like(first, self.net.extra["progress"])
                self.begin(self.net.extra)
        else:
            later = [line for line in read_log(run.folder, "metrics") if line["round"] > 1]
            if later or (run.folder / "result.json").exists():
                raise RunError(f"{last} is missing; only a run with its last checkpoint can be resumed")
            self.progress = first
            torch.manual_seed(config.seed)
            self.net = self._fine_tuned() if "from" in read_config(run.folder) else self._new()
            self.begin(None)
        run.drop_after(self.progress["round"], self.progress["events"])
        self.net.watchers.extend(self.watchers())

    def _new(self) -> GrowPruneFreeze:
        model = self.build()
        optimizer, rules = self.make_optimizer(model), self.config.network_rules()
        return attach(model, optimizer, self.stack, rules=rules, steps=self.planned_steps())

    def _fine_tuned(self) -> GrowPruneFreeze:
        """The network of another run, which the first checkpoint is a copy of, with this run's rules and optimizer."""
        first = self.run.checkpoint("first")
        if not (first / "manifest.json").exists():
            raise RunError(f"run {self.run.folder} was interrupted while it was created; delete it and start it again")
        fresh = self.make_optimizer(self.build()).param_groups
        net = load(first, build=self.build, restore_random=False)
        for group, new in zip(net.optimizer.param_groups, fresh, strict=True):
            group.update({name: value for name, value in new.items() if name not in ("params", "param_names")})
        net.restart(self.config.network_rules())
        torch.manual_seed(self.config.seed)
        return net

    # Methods of a task

    @property
    @abstractmethod
    def over(self) -> bool:
        """Whether training is complete."""

    @abstractmethod
    def build(self) -> nn.Module:
        """The network before training."""

    @abstractmethod
    def make_optimizer(self, model: nn.Module) -> Optimizer:
        """The optimizer of the network."""

    @abstractmethod
    def learn(self) -> Round:
        """Learn for one round and update `progress`, except for the counters of the loop."""

    @abstractmethod
    def finish(self, phase: Phase) -> dict[str, Any]:
        """The result of the finished run; long work reports its progress by `phase`."""

    def planned_steps(self) -> int | None:
        """Number of steps that its optimizer will take, for rules on a schedule; None if unknown."""
        return None

    def first_progress(self) -> dict[str, Any]:
        """Initial values of the task's own counters."""
        return {}

    def begin(self, extra: dict[str, Any] | None) -> None:
        """Create the learner of the network, in its state when a checkpoint with this `extra` was written."""

    def about(self) -> dict[str, Any]:
        """Contents of every checkpoint in addition to the network and the progress."""
        return {}

    def state(self) -> dict[str, Any]:
        """Additional contents of the last checkpoint, to resume from."""
        return {}

    def watchers(self) -> Sequence[Watcher]:
        """Who wants to see the network before and after each event."""
        return ()

    # The loop

    def round(self) -> dict[str, Any]:
        """Learn for one round, write its lines and its checkpoint, and return its metrics."""
        now, started = self.progress, time.perf_counter()
        step, seconds = now["step"], now["seconds"]
        learned = self.learn()
        self.check_finite(learned.metric)
        now["round"] += 1
        now["since_best"] += 1
        shape = self.shape()
        if learned.score is not None and (now["best"] is None or learned.score > now["best"]):
            now["best"], now["since_best"] = learned.score, 0
            self.net.save(self.run.checkpoint("best"), optimizer=False, extra=self._extra())
        events = learned.events
        if learned.metric is not None:
            events = [*events, *map(self.line, self.net.end_epoch(learned.metric))]
        now["events"] += len(events)
        now["seconds"] = seconds + time.perf_counter() - started
        metrics = {
            **{name: now[name] for name in ("round", "step", "seconds", "flops")},
            **shape,
            "steps_per_second": (now["step"] - step) / (now["seconds"] - seconds),
            **learned.metrics,
        }
        self.run.append("metrics", [metrics])
        self.run.append("events", [{"round": now["round"], **event} for event in events])
        self.net.save(self.run.checkpoint("last"), extra={**self._extra(), **self.state()})
        return metrics

    def line(self, event: Event) -> dict[str, Any]:
        """An event as the log has it."""
        return {"step": self.progress["step"], **event.to_json()}

    def shape(self) -> dict[str, Any]:
        """The current network; parameters are those of the whole model that are not pruned."""
        shape = self.net.shape()
        return {
            "depth": shape.depth,
            "density": shape.density,
            "frozen": list(shape.frozen),
            "parameters": self.net.count_parameters(),
        }

    def sound(self) -> bool:
        """Whether all weights are finite."""
        return all(bool(weight.isfinite().all()) for weight in self.net.model.parameters())

    def check_finite(self, metric: float | None) -> None:
        """Stop a run that has diverged."""
        if not ((metric is None or abs(metric) < float("inf")) and self.sound()):
            rate = getattr(self.config, "learning_rate", None)
            hint = "try a lower learning rate" if rate is None else f"try a learning rate below {rate:g}"
            raise RuntimeError(f"the weights became non-finite after {self.progress['step']:,} steps; {hint}")

    def _extra(self) -> dict[str, Any]:
        return {"run": self.run.id, **self.about(), "progress": self.progress}


def train_to_the_end(run: Run, make: Callable[[], Loop], report: Report, phase: Phase = silent) -> dict[str, Any]:
    """Train in rounds until it is over, on one thread of torch's; returns, and writes, what the run amounts to.

    Ctrl-C ends the current round, saves, and raises `Interrupted` with what to say; a second one ends at once, and
    loses that round.
    """
    resume = f"saved; resume with: gpf train --resume {shlex.quote(str(run.folder))}"
    read_result(run.folder)  # a damaged one is refused, as everything else is
    try:
        with one_thread():
            training = make()
            with _failures_on_record(run):
                return _trained(run, training, report, phase, resume)
    except KeyboardInterrupt:
        raise Interrupted(resume) from None


def _trained(run: Run, training: Loop, report: Report, phase: Phase, resume: str) -> dict[str, Any]:
    with _interruptible() as asked_to_stop:
        while not training.over:
            report(training.round())
            if asked_to_stop.is_set():
                raise Interrupted(resume)
    now = training.progress
    result = {
        **training.shape(),
        **{name: now[name] for name in ("round", "step", "seconds", "flops")},
        **training.finish(phase),
    }
    write_json(run.folder / "result.json", result)
    return result


@contextmanager
def _failures_on_record(run: Run) -> Iterator[None]:
    """Let the folder of a run that fails say why, until it is resumed."""
    record = run.folder / "failure.json"
    record.unlink(missing_ok=True)
    try:
        yield
    except Exception as error:
        with suppress(OSError):  # the disk may be full
            write_json(record, {"error": str(error)})
        raise


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread: the networks are so small that a second one only waits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_threads(threads: int | None) -> None:
    """Refuse a number of threads that there cannot be, or that could only slow the machine down."""
    most = max(64, 4 * (os.cpu_count() or 1))
    if threads is not None and not 1 <= threads <= most:
        raise ValueError(f"threads must be from 1 to {most}, got {threads}")


@contextmanager
def _fitting(run: Run) -> Iterator[None]:
    """Say of a checkpoint from which a run cannot be resumed that it does not fit."""
    try:
        with undamaged(run.folder):
            yield
    except CheckpointError:
        raise
    except ValueError as error:
        raise RunError(f"{run.checkpoint('last')} cannot be resumed from: {error}") from None


def _like(first: dict[str, Any], read: Any) -> dict[str, Any]:
    """The progress of a checkpoint, of the names and types that it has at the start; counts are not negative."""
    for name, value in first.items():
        if name not in read:
            raise ValueError(f"its progress lacks {name}")
        fits = value is None or type(read[name]) is type(value)
        if not fits or (isinstance(value, int | float) and not 0 <= read[name] < float("inf")):
            raise ValueError(f"its progress has {name} {read[name]!r}")
    best = read["best"]
    if best is not None and not (isinstance(best, list) and all(isinstance(one, int | float) for one in best)):
        raise ValueError(f"its progress has best {best!r}")
    return {name: read[name] for name in first}


@contextmanager
def _interruptible() -> Iterator[threading.Event]:
    """Inside this context, the first Ctrl-C only sets the event; the second works as usual."""
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

"""A network that learns in rounds, each of which ends in metrics, in what GPF decides, and in a checkpoint.

What the tasks beside the plume share: a task says what its network is and how a round is learnt, and has runs that can
be killed, gone on with, compared and reported.
"""

import dataclasses
import math
import shlex
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar

import torch
from torch import nn
from torch.optim import Optimizer

import gpf
from gpf.navigation.config import rule_changes
from gpf.network import GrowPruneFreeze, Rules
from gpf.runs.folder import Run, RunError, read_config, read_log, write_json
from gpf.spectra.recorder import Recorder, Snapshot, write_snapshot
from gpf.tasks.loop import Report, train_to_the_end, versions

AnyConfig = TypeVar("AnyConfig", bound="TaskConfig")


@dataclass(frozen=True, kw_only=True)
class TaskConfig(ABC):
    """What to train, and how: what all these tasks have in common."""

    TASK: ClassVar[str]

    seed: int = 0
    """Of the first weights and of the order of the data."""

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """A configuration from plain data."""
        return cls(**values)

    @property
    @abstractmethod
    def variant(self) -> str:
        """What kind of network learns, in a word or two."""

    @property
    @abstractmethod
    def length(self) -> tuple[int, str]:
        """How long a run is, and in what that is counted: `round` or `step`."""

    @abstractmethod
    def network_rules(self) -> Rules:
        """When the network grows, prunes and freezes."""

    @abstractmethod
    def find_data(self) -> None:
        """Refuse to begin where the data is missing, and cannot be had."""

    def check(self) -> None:
        """Refuse what cannot be."""
        for spec in dataclasses.fields(self):
            value = getattr(self, spec.name)
            if isinstance(value, bool) or not isinstance(value, int | float):
                continue
            least = 0 if spec.name == "seed" or isinstance(value, float) else 1
            if not least <= value < math.inf:
                raise ValueError(f"{spec.name}: {value}; accepted: at least {least}")
        self.network_rules()


@dataclass(frozen=True, kw_only=True)
class TwoVariants(TaskConfig):
    """A task on which a network that grows is held against one of the final depth from the start."""

    baseline: bool = False
    """All layers from the start, and nothing grows, is pruned or freezes; everything else is the same."""
    rules: dict[str, str] = dataclasses.field(default_factory=dict)
    """Changes to the task's `gpf.Rules`, as FIELD VALUE pairs."""

    @property
    def variant(self) -> str:
        """What kind of network learns."""
        return "baseline" if self.baseline else "GPF"

    @abstractmethod
    def own_rules(self) -> Rules:
        """When the network of this task grows, prunes and freezes."""

    def network_rules(self) -> Rules:
        """The same with what was changed; the baseline's let nothing happen but keep the schedule of batches."""
        rules = dataclasses.replace(self.own_rules(), **rule_changes(self.rules))
        if not self.baseline:
            return rules
        return dataclasses.replace(Rules.fixed(), batch_decay=rules.batch_decay, mode=rules.mode)


class Settings(Protocol):
    """What a training needs to know of its configuration."""

    @property
    def seed(self) -> int:
        """Of the first weights."""

    def network_rules(self) -> Rules:
        """When the network grows, prunes and freezes."""


class NetworkTraining(ABC):
    """A run in the making. What is not in the network or in `progress` does not outlive a round."""

    stack: ClassVar[str] = "layers"
    config: Any

    def __init__(self, run: Run, config: Settings) -> None:
        self.run, self.config = run, config
        self.progress: dict[str, Any] = {
            "round": 0, "step": 0, "seconds": 0.0, "flops": 0.0, "best": None, "since_best": 0,
        }  # fmt: skip
        last = run.checkpoint("last")
        if (last / "manifest.json").exists():
            self.net = gpf.load(last, build=self.build)
            self.progress = dict(self.net.extra["progress"])
        elif any(line["round"] > 1 for line in read_log(run.folder, "metrics")):
            raise RunError(f"run: {last} is missing; accepted: a run with its last checkpoint")
        else:
            torch.manual_seed(config.seed)
            model = self.build()
            self.net = gpf.attach(model, self.make_optimizer(model), self.stack, rules=config.network_rules())
        run.drop_after(self.progress["round"])
        self.net.watchers.append(Recorder(self._keep))

    @property
    @abstractmethod
    def over(self) -> bool:
        """Whether there is nothing left to learn."""

    @abstractmethod
    def build(self) -> nn.Module:
        """The network as it is before it learns."""

    @abstractmethod
    def make_optimizer(self, model: nn.Module) -> Optimizer:
        """What trains it."""

    @abstractmethod
    def learn(self) -> tuple[float, dict[str, Any]]:
        """Learn for one round; returns what the rules look at, and everything else that is to be said of it.

        Of what the rules look at, less is better, or more, as the task's rules have it; the best is kept.
        """

    def extra(self) -> dict[str, Any]:
        """What a checkpoint holds beside the network and the progress."""
        return {}

    def round(self) -> dict[str, Any]:
        """Learn for one round, write its lines and its checkpoint, and return its metrics."""
        now, started = self.progress, time.perf_counter()
        metric, learnt = self.learn()
        if not (math.isfinite(metric) and self.sound()):
            raise RuntimeError(
                f"learning_rate: {self.config.learning_rate}; the loss is no number any more after {now['step']:,}"
                " steps; accepted: a lower one"
            )
        now["round"] += 1
        shape = self.shape()
        better = metric if self.net.rules.mode == "max" else -metric
        now["since_best"] += 1
        if now["best"] is None or better > now["best"]:
            now["best"], now["since_best"] = better, 0
            self.net.save(self.run.checkpoint("best"), optimizer=False, extra=self._about())
        events = self.net.end_epoch(metric)
        now["seconds"] += time.perf_counter() - started
        metrics = {
            **{name: now[name] for name in ("round", "step", "seconds", "flops")},
            **learnt,
            **shape,
        }
        self.run.append("metrics", [metrics])
        self.run.append("events", [{"round": now["round"], "step": now["step"], **e.to_json()} for e in events])
        self.net.save(self.run.checkpoint("last"), extra=self._about())
        return metrics

    def sound(self) -> bool:
        """Whether all weights are numbers still."""
        return all(bool(weight.isfinite().all()) for weight in self.net.model.parameters())

    def shape(self) -> dict[str, Any]:
        """Of the network, as it is now; its parameters are the weights and biases that are not pruned."""
        shape = self.net.shape()
        return {
            "depth": shape.depth,
            "density": shape.density,
            "frozen": list(shape.frozen),
            "parameters": self.net.count_parameters(),
        }

    def _about(self) -> dict[str, Any]:
        return {**self.extra(), "progress": self.progress}

    def _keep(self, snapshot: Snapshot) -> None:
        """Keep the network as it is after a growth, for its spectra; all else would take too much room."""
        if snapshot.event is not None and snapshot.event.kind == "grown":
            write_snapshot(self.run.folder / "spectra", snapshot)


def create_run(folder: Path, config: TaskConfig) -> Run:
    """A new run folder for a configuration; what is refused leaves none behind."""
    config.check()
    config.find_data()
    return Run.create(
        folder,
        {
            "task": config.TASK,
            "config": dataclasses.asdict(config),
            "rules": dataclasses.asdict(config.network_rules()),
            "versions": versions(),
        },
    )


def find_data_of(wanted: Mapping[Path, TaskConfig]) -> None:
    """Have what the runs of a task need, before several processes look for it at once; finished ones need nothing."""
    unfinished = [config for folder, config in wanted.items() if not (folder / "result.json").exists()]
    if unfinished:
        unfinished[0].find_data()


def read_task_config(folder: Path, kind: type[AnyConfig]) -> AnyConfig:
    """The configuration of a run of a task."""
    written = read_config(folder)
    if written.get("task") != kind.TASK:
        raise RunError(f"run: {folder} is of task {written.get('task')!r}; accepted: one of task {kind.TASK!r}")
    try:
        return kind.of(written["config"])
    except (KeyError, TypeError) as error:
        raise RunError(
            f"run: {folder / 'config.json'} is damaged ({type(error).__name__}: {error}); accepted: as it was written"
        ) from None


def same_run(folder: Path, config: TaskConfig) -> bool:
    """Whether a folder holds the run of a configuration, with its rules."""
    rules = dataclasses.asdict(config.network_rules())
    return read_task_config(folder, type(config)) == config and read_config(folder)["rules"] == rules


def train_run(
    run: Run, make: Callable[[], NetworkTraining], finish: Callable[[], dict[str, Any]], report: Report
) -> dict[str, Any]:
    """Train to the end, from wherever the run is; returns, and writes, what `finish` makes of it, and how it went."""
    about = read_config(run.folder)
    task = about["config"].get("problem", about["task"])  # as the command knows it
    go_on = f"saved; go on with: gpf train {task} --resume {shlex.quote(str(run.folder))}"

    def written(training: NetworkTraining) -> dict[str, Any]:
        spent = {name: training.progress[name] for name in ("round", "step", "seconds", "flops")}
        result = {"run": str(run.folder), **finish(), **training.shape(), **spent}
        write_json(run.folder / "result.json", result)
        return result

    return train_to_the_end(make, written, report, go_on)


def load_network(folder: Path, build: Callable[[], nn.Module], checkpoint: str = "last") -> GrowPruneFreeze:
    """The network of a run; no random number is used up."""
    with torch.random.fork_rng():
        return gpf.load(folder / "checkpoints" / checkpoint, build=build, restore_random=False)


def gradient_flops(weights: Sequence[int], frozen: Collection[int] = (), below: bool = False) -> float:
    """Floating-point operations of a gradient step, for one sample: of layers one after the other, by their weights.

    Two a weight forwards, two for the gradient of a weight that learns, two to pass on what comes back, where a layer
    before it learns, or what lies below all of them, such as embeddings. What is pruned counts: it is multiplied with
    zero all the same.
    """
    total, learning = 0.0, below
    for n, size in enumerate(weights):
        total += 2.0 * size * (1 + (n not in frozen) + learning)
        learning = learning or n not in frozen
    return total

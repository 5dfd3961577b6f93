"""Tasks: settings, training, measures, variants to compare, and the paper's claims.

Everything else (runs that resume, many of them at once, comparisons over seeds, pages, reports) is made from that.
"""

import dataclasses
import json
import shlex
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import nn

from gpf import settings
from gpf.network import CheckpointError, GrowPruneFreeze, Rules, load
from gpf.network.controller import Watcher
from gpf.network.events import METRIC
from gpf.reports.tables import Measure, Measures
from gpf.reports.verdicts import Claim
from gpf.runs.folder import (
    CheckpointName,
    Outcome,
    Run,
    RunError,
    environment,
    read_config,
    read_result,
    write_json,
)
from gpf.runs.progress import result_line, training_progress
from gpf.runs.training import Loop, Phase, Report, Training, silent, train_to_the_end
from gpf.spectra.recorder import Recorder, Snapshot, write_snapshot
from gpf.tasks.registry import REGISTRY
from gpf.zoo import run_folder

Outcomes = Mapping[str, Sequence[Outcome]]
"""Of every variant, one of each seed."""
Tell = Callable[[str], None]
"""Called with the name of each phase of a report before it begins."""


class Config(Protocol):
    """Settings that every task has."""

    @property
    def seed(self) -> int:
        """Of the first weights and of the order of the data."""

    def plain(self) -> dict[str, Any]:
        """As plain data, from which `of` makes them again."""

    def check(self) -> None:
        """Refuse what cannot be."""

    def network_rules(self) -> Rules:
        """When the network grows, prunes and freezes."""


C = TypeVar("C", bound=Config)


@dataclass(frozen=True, kw_only=True)
class Task(Generic[C]):
    """Something to learn."""

    name: str
    reference: str
    """Where processes find it: `module:name`."""
    title: str
    make: Callable[[Mapping[str, Any]], C]
    """Settings from plain data."""
    training: Callable[[Run, C, int | None], Loop]
    """The loop of a run, with its settings, and the number of threads to step worlds with."""
    length: Callable[[C], tuple[int, str]]
    """How long a run is, and the count of its metrics that says so: `round`, `step`, ..."""
    length_setting: Callable[[C], str] | None = None
    """Names the setting that says how long a run lasts; None where a run cannot be extended."""
    preset: Mapping[str, Any] = field(default_factory=dict)
    """Settings that this task changes for all its runs."""
    find_data: Callable[[C], object] = lambda config: None
    """Refuses to begin where the data of a run is missing, and cannot be had."""
    about: Callable[[C], dict[str, Any]] = lambda config: {}
    """Further entries of a run's config.json, such as its world."""
    describe: Callable[[dict[str, Any]], str] | None = None
    """Says what the metrics of a round amount to."""
    describe_result: Callable[[dict[str, Any]], str] | None = None
    show: Callable[[dict[str, Any]], None] | None = None
    """Prints a result; None for one line."""
    decisive: tuple[str, ...] = ()
    """Settings on which the defaults of others depend."""
    choices: Mapping[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    """Options besides the settings, on which those of `start` depend: their values, the first by default, and help."""
    metric: Callable[[C], str] = lambda config: METRIC
    """The metric of the rules in words, for the reasons of events in reports."""
    report: Callable[[Path, Tell], Path] | None = None
    """Writes the report of a run; None for one of curves, events and spectra."""

    # How its variants are compared
    summary: str = ""
    """The text before the tables."""
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By name, the settings that differ."""
    ours: tuple[str, ...] = ("GPF",)
    """Those of them that are compared with the others; the first one's spectra are shown."""
    variant_of: Callable[[C], str] = lambda config: "run"
    """The title of a run in its report."""
    measures: Measures = field(default_factory=dict)
    curves: Mapping[str, Callable[[dict[str, Any]], float]] = field(default_factory=dict)
    """By title, of a line of metrics."""
    claims: Callable[[Outcomes], list[Claim]] = lambda outcomes: []
    unit: str = "round"
    """The x-axis of curves: a count in the metrics."""
    seeds: int = 6
    """How many a comparison trains; fewer allow no verdict."""
    network: Callable[[C], nn.Module] | None = None
    """The untrained network, whose spectra are computed."""
    spectra: str = ""
    """Layers whose names end like this are shown in the figure of spectra; all of them for an empty one."""
    on_weights: str = ""
    """The paper's claim about the eigenvalues of the weights."""

    @property
    def address(self) -> str:
        """By what `find_task` finds it again: its name if it is registered, or else its reference."""
        return self.name if REGISTRY.get(self.name) == self.reference else self.reference

    def options(self, typed: Mapping[str, str], source: Path | None = None) -> C:
        """The defaults of the command's options, given what was typed for those that others depend on.

        They are the settings of the run `source`, to fine-tune its network.
        """
        values = {} if source is None else self.read(source).plain()
        for name in self.choices:
            if source is not None and typed.get(name, values[name]) != values[name]:
                raise ValueError(f"--from needs the {name} of that run, {values[name]}, got {typed[name]}")
        return self.of({**values, **typed})

    def show_result(self, result: dict[str, Any]) -> None:
        """Print a result, with the run that it is of."""
        if self.show is not None:
            self.show(result)
        else:
            line = (self.describe_result or result_line)(result)
            print(f"{result['run']}: {line}; {result['seconds']:.0f} s")

    def named(self, events: Sequence[dict[str, Any]], config: C) -> list[dict[str, Any]]:
        """Events whose reasons call the metric by its name."""
        return [{**event, "reason": event["reason"].replace(METRIC, self.metric(config))} for event in events]

    def of(self, values: Mapping[str, Any]) -> C:
        """Settings from plain data, with what this task changes."""
        return self.make({**self.preset, **values})

    def read(self, folder: str | Path) -> C:
        """The settings of a run."""
        folder = run_folder(folder)
        written = read_config(folder)
        if written.get("task") != self.address:
            raise RunError(f"run {folder} must be one of task {self.address!r}, got one of {written.get('task')!r}")
        if not isinstance(written.get("config"), dict):
            raise RunError(f"{folder / 'config.json'} is damaged (config is {settings.shown(written.get('config'))})")
        try:
            config = self.make(written["config"])
            settings.check(config)
        except ValueError as error:
            raise RunError(f"{folder / 'config.json'} is damaged ({error})") from None
        return config

    def check_same(self, folder: Path, config: C) -> None:
        """Refuse a folder that holds the run of other settings, rules or data."""
        written, asked = read_config(folder), json.loads(json.dumps(self._asked(config)))
        new_rules = dataclasses.asdict(Rules())  # a rule that did not exist then has its default
        written["rules"] = {**json.loads(json.dumps(new_rules)), **written.get("rules", {})}
        if {name: written.get(name) for name in asked} != asked:
            raise RunError(f"run {folder} has other settings; use another folder, or delete that one")

    def create(self, folder: str | Path, config: C, source: str | Path | None = None) -> Run:
        """A new run folder; refused settings leave none behind.

        Args:
            folder: Where.
            config: Its settings.
            source: A run of the same task whose network is to be fine-tuned, from its last checkpoint.
        """
        config.check()
        self.find_data(config)
        asked = {**self._asked(config), "versions": environment()}
        if source is None:
            return Run.create(Path(folder), asked)
        self.read(source)
        checkpoint = run_folder(source) / "checkpoints" / "last"
        if not (checkpoint / "manifest.json").exists():
            raise RunError(f"run {source} has no checkpoint to fine-tune")
        self._check_fits(run_folder(source), checkpoint, config)
        run = Run.create(Path(folder), {**asked, "from": str(source)})
        try:
            shutil.copytree(checkpoint, run.checkpoint("first"))
        except BaseException:
            run.discard()
            raise
        return run

    def _check_fits(self, source: Path, checkpoint: Path, config: C) -> None:
        """Refuse to fine-tune a network that is not one of these settings."""
        if self.network is not None:
            try:
                with torch.random.fork_rng():
                    load(checkpoint, build=partial(self.network, config), restore_random=False)
            except CheckpointError as error:
                reason = str(error).partition(": ")[2]
                raise ValueError(f"the network of {source} does not fit the new run's settings ({reason})") from None

    def extend(self, run: Run, more: int) -> None:
        """Extend a finished run; its result until then is kept under another name."""
        config, written = self.read(run.folder), read_config(run.folder)
        if self.length_setting is None:
            raise ValueError(f"a run of task {self.name!r} cannot be extended")
        if more < 1:
            raise ValueError(f"extend must be at least 1, got {more}")
        result = read_result(run.folder)
        if result is None:
            raise RunError(f"run {run.folder} is not finished; resume it first, then extend it")
        values, name = config.plain(), self.length_setting(config)
        before = values[name]
        longer = self.make({**values, name: before + more})
        longer.check()
        total, count = self.length(config)
        if result.get(count, total) < total:
            raise RunError(f"run {run.folder} stopped early, at {count} {result[count]} of {total}, and would again")
        if self.length(longer)[0] <= total:
            raise ValueError(f"extend must add at least one {count} to the {total} of the run, got {more} {name}")
        self.training(run, config, 1)  # what cannot be resumed is refused before anything changes
        (run.folder / "result.json").replace(run.folder / f"result-{before}.json")
        extended = [*written.get("extended", []), before]
        write_json(run.folder / "config.json", {**written, "config": longer.plain(), "extended": extended})

    def _asked(self, config: C) -> dict[str, Any]:
        rules = dataclasses.asdict(config.network_rules())
        return {"task": self.address, "config": config.plain(), "rules": rules, **self.about(config)}

    def train(
        self,
        run: Run,
        threads: int | None = None,
        report: Report = lambda metrics: None,
        phase: Phase = silent,
    ) -> dict[str, Any]:
        """Train to the end, from wherever the run is; returns, and writes, its result."""
        config = self.read(run.folder)
        return train_to_the_end(run, lambda: self.training(run, config, threads), report, phase)

    def load(self, folder: str | Path, checkpoint: CheckpointName = "last") -> GrowPruneFreeze:
        """The network of a run; no random number is used up."""
        if self.network is None:
            raise ValueError(f"task {self.name!r} does not say how its network is built")
        build = partial(self.network, self.read(folder))
        with torch.random.fork_rng():
            return load(Path(folder, "checkpoints", checkpoint), build=build, restore_random=False)


def train_shown(
    task: Task[Any],
    run: Run,
    threads: int | None = None,
    tensorboard: bool = False,
    then: Callable[[Phase], object] = lambda phase: None,
    new: bool = True,
) -> dict[str, Any]:
    """Train a run to its end, and show how far it is; a new one that fails at once leaves no folder behind.

    Args:
        task: Its task.
        run: Its folder, which is released at the end.
        threads: To step worlds with; None for one per core.
        tensorboard: Whether to write the metrics for TensorBoard, too.
        then: A further action, whose phases are shown.
        new: Whether it has just been created.
    """
    try:
        total, count = task.length(task.read(run.folder))
        with training_progress(run.folder, total, tensorboard, count, task.describe) as display:
            result = task.train(run, threads, display.round, display.phase)
            try:
                then(display.phase)
            except KeyboardInterrupt:
                again = f"gpf report {shlex.quote(str(run.folder))}"
                raise KeyboardInterrupt(f"the run is finished; write its report with: {again}") from None
            return result
    except Exception:
        if new:
            run.discard()
        raise
    finally:
        run.close()


@dataclass(frozen=True, kw_only=True)
class TaskConfig(settings.Settings, ABC):
    """Settings that most tasks share."""

    seed: int = settings.number(0, 0)
    """Seed of the initial weights and of the order of the data."""

    @abstractmethod
    def network_rules(self) -> Rules:
        """When the network grows, prunes and freezes."""

    def check(self) -> None:
        """Refuse what cannot be."""
        super().check()
        self.network_rules()


@dataclass(frozen=True, kw_only=True)
class TwoVariants(TaskConfig):
    """A task on which a network that grows is compared with one of the final depth from the start."""

    baseline: bool = False
    """Train the baseline: all layers from the start; nothing grows, is pruned or freezes. The rest is the same."""
    rules: dict[str, str] = field(default_factory=dict)
    """Changes to the rules of growing, pruning and freezing; docs/command-line.md lists them."""

    @property
    def variant(self) -> str:
        """The kind of network."""
        return "baseline" if self.baseline else "GPF"

    @abstractmethod
    def own_rules(self) -> Rules:
        """When the network of this task grows, prunes and freezes."""

    def network_rules(self) -> Rules:
        """The same with what was changed; the baseline's let nothing happen but keep the schedule of batches."""
        rules = dataclasses.replace(self.own_rules(), **settings.rule_changes(Rules, self.rules))
        if not self.baseline:
            return rules
        return dataclasses.replace(Rules.fixed(), batch_decay=rules.batch_decay, mode=rules.mode)


class RoundTraining(Training[C]):
    """A training whose round is one epoch of the rules; its network is kept after each growth, for its spectra."""

    def watchers(self) -> Sequence[Watcher]:
        """One that keeps the network after each growth; all else would take too much room."""
        return [Recorder(self._keep)]

    def _keep(self, snapshot: Snapshot) -> None:
        if snapshot.event is not None and snapshot.event.kind == "grown":
            write_snapshot(self.run.folder / "spectra", snapshot)

    def scored(self, metric: float) -> list[float]:
        """The metric of the rules, as a score to maximise."""
        return [metric if self.net.rules.mode == "max" else -metric]


class Epochs(Config, Protocol):
    """Settings of a task that is learned in epochs, with Adam."""

    @property
    def epochs(self) -> int:
        """How many, each of which is a round."""

    @property
    def learning_rate(self) -> float:
        """Of Adam."""


E = TypeVar("E", bound=Epochs)


class EpochTraining(RoundTraining[E]):
    """A training whose round is a pass over the data, or a game."""

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(model.parameters(), lr=self.config.learning_rate, fused=True)

    @property
    def over(self) -> bool:
        """Whether all epochs are over."""
        return bool(self.progress["round"] >= self.config.epochs)


def gradient_flops(weights: Sequence[float], frozen: Collection[int] = (), below: bool = False) -> float:
    """Floating-point operations of a gradient step, for one sample: of layers one after the other, by their weights.

    Two a weight forwards, two for the gradient of a weight that learns, two to pass on what comes back, where a layer
    before it learns, or what lies below all of them, such as embeddings. Pruned weights count: they are multiplied all
    the same.
    """
    total, learning = 0.0, below
    for n, size in enumerate(weights):
        total += 2.0 * size * (1 + (n not in frozen) + learning)
        learning = learning or n not in frozen
    return total


def of_result(name: str) -> Callable[[Outcome], float]:
    """The value of this name in a run's result."""
    return lambda outcome: float(outcome.result[name])


BOTH: dict[str, dict[str, Any]] = {"baseline": {"baseline": True}, "GPF": {}}
"""The variants of `TwoVariants`."""
COSTS: dict[str, Measure] = {
    "depth": Measure("final layers", 0, ".0f", of_result("depth")),
    "parameters": Measure("parameters that are not zero", -1, ",.0f", of_result("parameters")),
    "flops": Measure("operations, 10^12", -1, ",.1f", lambda outcome: outcome.result["flops"] / 1e12),
}
"""Operations stand for time: a machine that trains for hours is seldom left alone."""

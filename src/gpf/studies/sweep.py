"""Hyperparameter search for a task: Optuna draws variants, our executors train them, and a page shows the results.

A variant is trained seed by seed; after each seed Optuna's pruner may stop it. The state of the search is in SQLite and
every run is in a folder named by its settings, so a killed search resumes without repeating finished runs.
"""

import hashlib
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure

from gpf.reports.pages import Numbers, join, write_page
from gpf.reports.statistics import interval_words
from gpf.reports.tables import markdown_table, summary
from gpf.runs.executors import Executor, Tell, train_all
from gpf.runs.folder import read_result
from gpf.settings import check, number, read, shown
from gpf.studies.navigators import read_toml
from gpf.tasks import find_task

SHOWN = 15
"""Variants in the table, best first."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """The range of a setting: choices, or numbers from low to high."""

    choices: tuple[Any, ...] = ()
    low: int | float | None = None
    high: int | float | None = None
    log: bool = False
    """Whether numbers are drawn by their logarithm."""
    steps: int | None = number(None, 2)
    """In a grid: how many numbers from low to high."""

    def __post_init__(self) -> None:
        check(self)
        if bool(self.choices) == (self.low is not None or self.high is not None):
            raise ValueError("a range must have either choices, or low and high")
        if not self.choices and (self.low is None or self.high is None or not self.low < self.high):
            raise ValueError(f"low must be below high, got {self.low} and {self.high}")
        if self.log and not self.choices and not (self.low or 0) > 0:
            raise ValueError(f"low must be above 0 with log, got {self.low}")

    def suggest(self, trial: Any, name: str) -> Any:
        """A value, drawn by Optuna."""
        if self.choices or self.steps:
            return trial.suggest_categorical(name, list(self.grid()))
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(name, self.low, self.high, log=self.log)
        return trial.suggest_float(name, self.low, self.high, log=self.log)

    def grid(self) -> tuple[Any, ...]:
        """All values of a grid."""
        if self.choices:
            return self.choices
        if self.steps is None:
            raise ValueError("a grid needs choices, or steps from low to high")
        space = np.geomspace if self.log else np.linspace
        values = space(float(self.low or 0), float(self.high or 0), self.steps)
        whole = isinstance(self.low, int) and isinstance(self.high, int)
        return tuple(dict.fromkeys(round(value) if whole else float(value) for value in values.tolist()))


@dataclass(frozen=True, kw_only=True)
class Search:
    """The search space and method; the content of a .toml file."""

    task: str
    space: dict[str, dict[str, Any]]
    """By setting, its range; `rules.NAME` for a rule."""
    measure: str
    """The number of a run's result to optimise, such as spl, or validation.loss."""
    direction: Literal["max", "min"] = "max"
    settings: dict[str, Any] = field(default_factory=dict)
    """The same in all variants."""
    sampler: Literal["random", "grid", "tpe"] = "tpe"
    pruner: Literal["none", "median", "halving"] = "none"
    """Gives up, after a seed, on variants that do worse than most."""
    trials: int = number(20, 1)
    """Variants to draw; of a grid, all of it if there are fewer."""
    batch: int = number(4, 1)
    """Variants that are drawn, and trained, at the same time."""
    seeds: int = number(2, 1)
    first_seed: int = number(0, 0)
    title: str = "Hyperparameter search"

    def __post_init__(self) -> None:
        check(self)
        if not self.space:
            raise ValueError("space must have at least one table [space.SETTING]")
        ranges = self.ranges()
        first = {name: one.grid()[0] if one.choices or one.steps else one.low for name, one in ranges.items()}
        self.config(first, self.first_seed).check()
        if self.sampler == "grid":
            self.grid()

    def ranges(self) -> dict[str, Range]:
        """By setting, its range."""
        return {name: read(Range, values, f"space.{name}") for name, values in self.space.items()}

    def grid(self) -> list[dict[str, Any]]:
        """All variants of a grid."""
        ranges = self.ranges()
        return [
            dict(zip(ranges, values, strict=True)) for values in itertools.product(*(r.grid() for r in ranges.values()))
        ]

    def config(self, drawn: Mapping[str, Any], seed: int) -> Any:
        """The settings of a run."""
        values: dict[str, Any] = {**self.settings, "seed": seed}
        rules = dict(values.get("rules", {}))
        for name, value in drawn.items():
            if name.startswith("rules."):
                rules[name.removeprefix("rules.")] = str(value)
            else:
                values[name] = value
        return find_task(self.task).of({**values, **({"rules": rules} if rules else {})})


def read_search(path: Path) -> Search:
    """A search from a TOML file."""
    return read(Search, {"task": "plume", "space": {}, "measure": "success", **read_toml(path)}, str(path))


def sweep(search: Search, runs: Path, folder: Path, name: str, command: str, executor: Executor, tell: Tell) -> Path:
    """Draw, train, keep the best; write the page, and return where it is."""
    optuna = _optuna()
    runs.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        storage=f"sqlite:///{runs / 'search.sqlite'}",
        study_name=name,
        direction="maximize" if search.direction == "max" else "minimize",
        load_if_exists=True,
    )
    study.sampler, study.pruner = _sampler(optuna, search, len(study.trials)), _pruner(optuna, search)
    for trial in study.get_trials(states=[optuna.trial.TrialState.RUNNING]):  # of a process that was killed
        study.tell(trial.number, state=optuna.trial.TrialState.FAIL)
        study.enqueue_trial(trial.params)
    wanted = search.trials
    if search.sampler == "grid":
        wanted = min(wanted, len(grid := search.grid()))
        for values in grid:
            study.enqueue_trial(values, skip_if_exists=True)
    while (left := wanted - len(_drawn(optuna, study))) > 0:
        batch = [study.ask() for _ in range(min(search.batch, left))]
        _train_batch(optuna, study, search, batch, runs, executor, tell)
    numbers: Numbers = {
        "kind": "sweep",
        "command": command,
        "title": search.title,
        "task": search.task,
        "measure": search.measure,
        "direction": search.direction,
        "sampler": search.sampler,
        "pruner": search.pruner,
        "first_seed": search.first_seed,
        "log": {name: one.log for name, one in search.ranges().items()},
        "trials": [
            {
                "number": trial.number,
                "settings": trial.params,
                "state": trial.state.name.lower(),
                "scores": trial.user_attrs.get("scores", []),
            }
            for trial in _drawn(optuna, study)
        ],
    }
    figure = {f"{name}.png": history_figure(numbers)} if numbers["trials"] else {}
    return write_page(folder, name, numbers, page(numbers, name), figure)


def _train_batch(
    optuna: Any, study: Any, search: Search, batch: Sequence[Any], runs: Path, executor: Executor, tell: Tell
) -> None:
    """Train some variants seed by seed; one that fails, or that the pruner gives up, has no further seeds."""
    ranges, task = search.ranges(), find_task(search.task)
    drawn = {trial: {name: one.suggest(trial, name) for name, one in ranges.items()} for trial in batch}
    scores: dict[Any, list[float]] = {trial: [] for trial in batch}
    going = list(batch)
    for n, seed in enumerate(range(search.first_seed, search.first_seed + search.seeds)):
        places = {trial: runs / _place(drawn[trial]) / str(seed) for trial in going}
        train_all(task, {places[t]: search.config(drawn[t], seed) for t in going}, executor, tell, keep_going=True)
        for trial in list(going):
            result = read_result(places[trial])
            if result is None:
                trial.set_user_attr("failed", True)
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
                going.remove(trial)
                continue
            scores[trial].append(_measured(result, search.measure))
            trial.set_user_attr("scores", scores[trial])
            trial.report(float(np.mean(scores[trial])), n)
            if n + 1 < search.seeds and trial.should_prune():
                study.tell(trial, state=optuna.trial.TrialState.PRUNED)
                going.remove(trial)
    for trial in going:
        study.tell(trial, float(np.mean(scores[trial])))


def _drawn(optuna: Any, study: Any) -> list[Any]:
    """Variants that have ended, including failed ones, but not those that will be tried again."""
    ended = [trial for trial in study.get_trials() if trial.state.is_finished()]
    return [t for t in ended if t.state != optuna.trial.TrialState.FAIL or t.user_attrs.get("failed")]


def _place(drawn: Mapping[str, Any]) -> str:
    """The folder of a variant, by its settings."""
    return hashlib.sha256(json.dumps(drawn, sort_keys=True).encode()).hexdigest()[:12]


def _measured(result: dict[str, Any], measure: str) -> float:
    value: Any = result
    for part in measure.split("."):
        if not isinstance(value, dict) or part not in value:
            numbers = [key for key, held in result.items() if isinstance(held, int | float)]
            raise ValueError(f"measure must be a number of a run's result ({', '.join(numbers)}), got {measure!r}")
        value = value[part]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"measure must be a number of a run's result, got {measure!r}, which is {shown(value)}")
    return float(value)


def _sampler(optuna: Any, search: Search, drawn: int) -> Any:
    """Draws variants; resumed, it does not repeat what it drew. Those of a grid wait in a queue."""
    kind = optuna.samplers.TPESampler if search.sampler == "tpe" else optuna.samplers.RandomSampler
    return kind(seed=drawn)


def _pruner(optuna: Any, search: Search) -> Any:
    if search.pruner == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=0)
    if search.pruner == "halving":
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=1)
    return optuna.pruners.NopPruner()


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ValueError("gpf sweep needs the extra sweep: pip install 'gpf-networks[sweep]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


# The page


def page(numbers: Numbers, name: str) -> str:
    """The text of a page."""
    better = -1 if numbers["direction"] == "max" else 1
    ended = sorted((t for t in numbers["trials"] if t["scores"]), key=lambda t: better * float(np.mean(t["scores"])))
    names = list(ended[0]["settings"]) if ended else []
    most = max((len(trial["scores"]) for trial in ended), default=0)
    rows = [
        [trial["number"], *(_shown(trial["settings"][key]) for key in names), summary(trial["scores"], ".4g"),
         len(trial["scores"]), trial["state"]]
        for trial in ended[:SHOWN]
    ]  # fmt: skip
    words = (
        f"Task {numbers['task']}; {len(numbers['trials'])} variants drawn by {numbers['sampler']}, pruner"
        f" {numbers['pruner']}; seeds from {numbers['first_seed']}. The best {min(SHOWN, len(ended))} by the mean of"
        f" {numbers['measure']} ({numbers['direction']}): {interval_words(most)}. These seeds chose the settings:"
        " report others."
    )
    return join(
        [
            f"# {numbers['title']}",
            words,
            markdown_table(["variant", *names, numbers["measure"], "seeds", "state"], rows),
            f"![history]({name}.png)" if ended else "",
            f"Made by `{numbers['command']}`. Scores of every seed: [{name}.json]({name}.json).",
        ]
    )


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def history_figure(numbers: Numbers) -> Figure:
    """Scores of all variants with the best so far, and scores by each numeric setting."""
    ended = [trial for trial in numbers["trials"] if trial["scores"]]
    values = [float(np.mean(trial["scores"])) for trial in ended]
    names = [
        name
        for name in (ended[0]["settings"] if ended else {})
        if all(
            isinstance(t["settings"][name], int | float) and not isinstance(t["settings"][name], bool) for t in ended
        )
    ]
    figure = Figure(figsize=(4.0 * (1 + len(names)), 3.4), layout="constrained")
    history, *others = figure.subplots(1, 1 + len(names), squeeze=False)[0]
    best = itertools.accumulate(values, max if numbers["direction"] == "max" else min)
    history.plot(range(1, len(values) + 1), values, "o", color="C0", markersize=4)
    history.step(range(1, len(values) + 1), list(best), where="post", color="C3", label="best so far")
    history.set_xlabel("variants")
    history.set_ylabel(numbers["measure"])
    history.legend(fontsize=8)
    for axes, name in zip(others, names, strict=True):
        axes.plot([trial["settings"][name] for trial in ended], values, "o", color="C0", markersize=4)
        if numbers["log"].get(name):
            axes.set_xscale("log")
        axes.set_xlabel(name)
    return figure

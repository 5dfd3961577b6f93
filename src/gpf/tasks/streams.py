"""All methods in all streams over many seeds: tables, what the intervals say, and a figure for each stream.

A run for every stream, learner, method and seed in one folder, and a page: NAME.md, its figures, and NAME.json with the
measures of every seed. Killed, it goes on where it was; finished runs are never repeated.
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from matplotlib.figure import Figure

from gpf.continual import measures
from gpf.reports.figures import draw_band, save_figure
from gpf.reports.statistics import RESAMPLES, interquartile_mean, paired_difference
from gpf.runs.folder import read_log, replace_text
from gpf.tasks.compare import markdown_table
from gpf.tasks.continual import ORACLES, Config, LearnerName, MethodName
from gpf.tasks.many import Told, check_jobs, train_all

TITLES: dict[str, str] = {
    "gpf": "GPF", "depth-1": "depth 1", "depth-2": "depth 2", "depth-4": "depth 4",
    "continual-backprop": "continual backprop",
    "l2-init": "L2 to the first weights", "shrink-and-perturb": "shrink and perturb", "ewc": "online EWC",
    "reset": "oracle: begins anew", "one-each": "oracle: one network each",
    "gpf-no-grow": "GPF without growing", "gpf-no-prune": "GPF without pruning",
    "gpf-no-freeze": "GPF without freezing",
}  # fmt: skip
ABLATIONS: dict[str, dict[str, Any]] = {
    "gpf-no-grow": {"grow": False}, "gpf-no-prune": {"prune": False}, "gpf-no-freeze": {"freeze": False},
}  # fmt: skip


@dataclass(frozen=True)
class Measure:
    """A column of the table."""

    title: str
    better: int
    """1 where more is better, -1 where less is, 0 where it is neither."""
    form: str


MEASURES: dict[str, Measure] = {
    "area": Measure("area under the curve", 1, ".3f"),
    "forgetting": Measure("forgetting", -1, ".3f"),
    "forgetting_whole": Measure("forgetting, first whole episode", -1, ".3f"),
    "recovery": Measure("recovery, episodes", -1, ".0f"),
    "transfer": Measure("forward transfer", 1, ".3f"),
    "steps": Measure("steps, millions", 0, ".2f"),
    "parameters": Measure("parameters", -1, ",.0f"),
    "flops": Measure("FLOPs a step", -1, ",.0f"),
    "dead": Measure("dead units", -1, ".3f"),
    "effective_rank": Measure("effective rank", 0, ".1f"),
    "weight_magnitude": Measure("mean absolute weight", 0, ".3f"),
}


MEANS = ("flops", "dead", "effective_rank", "weight_magnitude")
"""Measures of a visit's end, of which a run's is the mean."""


@dataclass(frozen=True)
class Study:
    """Which methods meet which streams, and how often."""

    streams: tuple[str, ...] = ("harsh", "returning")
    learners: tuple[LearnerName, ...] = get_args(LearnerName)
    methods: tuple[str, ...] = tuple(name for name in get_args(MethodName) if name != "depth-2")
    seeds: int = 10
    first_seed: int = 0
    episodes: int = 1000
    visits: int | None = None
    order: int = 0

    def __post_init__(self) -> None:
        for name, least in (("seeds", 1), ("first_seed", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}: {getattr(self, name)}; accepted: at least {least}")
        for name, accepted in (("methods", (*get_args(MethodName), *ABLATIONS)), ("learners", get_args(LearnerName))):
            if unknown := [one for one in getattr(self, name) if one not in accepted]:
                raise ValueError(f"{name}: {unknown[0]!r}; accepted: {', '.join(accepted)}")
            if not getattr(self, name):
                raise ValueError(f"{name}: none; accepted: {', '.join(accepted)}")
        if "reset" not in self.methods:
            raise ValueError("methods: without reset; accepted: with it, for recovery and transfer are held against it")
        stems = [Path(stream).stem for stream in self.streams]
        if not stems or len(set(stems)) < len(stems):
            raise ValueError(f"streams: {', '.join(self.streams) or 'none'}; accepted: at least one, names that differ")
        for stream in self.streams:
            self.config(stream, self.learners[0], self.methods[0], self.first_seed).resolved()

    def config(self, stream: str, learner: LearnerName, method: str, seed: int) -> Config:
        """What one run is made of."""
        changes = ABLATIONS.get(method, {})
        name: Any = "gpf" if changes else method
        return Config(
            stream=stream, learner=learner, method=name, seed=seed, episodes=self.episodes, visits=self.visits,
            order=self.order, **changes,
        )  # fmt: skip

    @property
    def all_seeds(self) -> range:
        """The seeds of its runs."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def folder(self, runs: Path, stream: str, learner: str, method: str, seed: int) -> Path:
        """Where a run is kept."""
        return runs / Path(stream).stem / learner / method / str(seed)


def study(plan: Study, runs: Path, jobs: int = 2, tell: Told = lambda folder, result: None) -> list[dict[str, Any]]:
    """Train what is missing; returns a row for each stream, learner and method, with the measures of every seed."""
    check_jobs(jobs)
    wanted = {
        plan.folder(runs, stream, learner, method, seed): plan.config(stream, learner, method, seed)
        for seed in plan.all_seeds
        for stream in plan.streams
        for learner in plan.learners
        for method in plan.methods
    }
    results = train_all(wanted, jobs, tell, task="continual")
    rows = []
    for stream in plan.streams:
        for learner in plan.learners:
            visits = {
                method: [results[plan.folder(runs, stream, learner, method, seed)]["visits"] for seed in plan.all_seeds]
                for method in plan.methods
            }
            for method in plan.methods:
                scores = [measured(v, f) for v, f in zip(visits[method], visits["reset"], strict=True)]
                of_each = {name: [score[name] for score in scores] for name in MEASURES}
                seconds = [v[-1]["seconds"] for v in visits[method]]
                rows.append(
                    {"stream": stream, "learner": learner, "method": method, "seconds": seconds, "scores": of_each}
                )
    return rows


def measured(visits: measures.Visits, fresh: measures.Visits) -> dict[str, float | None]:
    """All measures of one run, held against the fresh learner of the same stream and seed."""
    return {
        "area": measures.area(visits),
        "forgetting": measures.forgetting(visits),
        "forgetting_whole": measures.forgetting(visits, "first_whole"),
        "recovery": measures.recovery(visits, fresh),
        "transfer": measures.transfer(visits, fresh),
        "steps": visits[-1]["steps"] / 1e6,
        "parameters": float(max(visit["parameters"] for visit in visits)),
        **{name: float(np.mean([visit[name] for visit in visits])) for name in MEANS},
    }


# What it amounts to


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows of one stream and learner as Markdown."""
    lines = []
    for row in rows:
        cells = [TITLES[row["method"]]]
        for name, measure in MEASURES.items():
            values = row["scores"][name]
            if None in values:
                cells.append("-")
                continue
            middle, low, high = (format(value, measure.form) for value in interquartile_mean(values))
            cells.append(middle if low == high else f"{middle} [{low}, {high}]")
        lines.append(cells)
    return markdown_table(["method", *(measure.title for measure in MEASURES.values())], lines)


def verdicts(rows: Sequence[dict[str, Any]], ours: str = "gpf") -> str:
    """GPF less each other method, seed by seed, and what the interval says; as Markdown."""
    mine = next(row for row in rows if row["method"] == ours)["scores"]
    judged = {name: measure for name, measure in MEASURES.items() if measure.better}
    lines = []
    for row in rows:
        if row["method"] == ours:
            continue
        cells = [TITLES[row["method"]]]
        for name, measure in judged.items():
            if None in row["scores"][name]:
                cells.append("-")
                continue
            cells.append(verdict(mine[name], row["scores"][name], measure))
        lines.append(cells)
    return markdown_table(["GPF against", *(measure.title for measure in judged.values())], lines)


def verdict(ours: Sequence[float], theirs: Sequence[float], measure: Measure) -> str:
    """A difference with its interval, and whether it says that ours is better or worse."""
    d = paired_difference(ours, theirs)
    said = "no difference shown" if not d.shown else "better" if measure.better * d.mean > 0 else "worse"
    return f"{said}: {difference(ours, theirs, measure)}"


def difference(ours: Sequence[float], theirs: Sequence[float], measure: Measure) -> str:
    """Ours less theirs, seed by seed, with its interval."""
    d = paired_difference(ours, theirs)
    mean, least, most = (format(value, f"+{measure.form}") for value in (d.mean, d.low, d.high))
    return f"{mean} [{least}, {most}]"


def gap_closed(rows: Sequence[dict[str, Any]]) -> tuple[float, float, float] | None:
    """The share of the way from depth 1 to the better oracle's area that GPF goes, with its bootstrap interval."""
    areas = {row["method"]: np.array(row["scores"]["area"]) for row in rows}
    if not {"gpf", "depth-1", *ORACLES} <= areas.keys():
        return None
    top = max((areas[name] for name in ORACLES), key=lambda values: float(values.mean()))
    if paired_difference(top, areas["depth-1"]).low <= 0:
        return None  # there is no gap
    drawn = np.random.default_rng(0).integers(0, len(top), (RESAMPLES, len(top)))

    def share(picked: Any) -> Any:
        low, mine, high = (values[picked].mean(axis=-1) for values in (areas["depth-1"], areas["gpf"], top))
        return (mine - low) / (high - low)

    low, high = np.quantile(share(drawn), (0.025, 0.975))
    return float(share(np.arange(len(top)))), float(low), float(high)


def page(plan: Study, rows: Sequence[dict[str, Any]], name: str, command: str, minutes: float) -> str:
    """Everything as Markdown; figures lie beside it."""
    seeds = plan.all_seeds
    sections = [
        "# Shifting worlds: does it keep learning?",
        f"Worlds change without notice in the midst of episodes; seeds {seeds[0]} to {seeds[-1]}, all with the same"
        " order of regimes. A visit is counted in episodes, so that whoever fails has more steps to learn from."
        " Methods that are not said to have another depth have two layers with policy gradient and one with"
        " values. Interquartile means over seeds with 95 % bootstrap intervals. **Area**: success online, over all"
        " visits. **Forgetting**: success in the last episodes of a visit (of each of 100 lanes, its last) less"
        " that in the first to end in the next visit to the same regime, which were under way when the world"
        " changed; or less that in the first that began there. **Recovery**: episodes after a change until the"
        " latest 100 are at 90 % of what a fresh learner ends the visit with. **Forward transfer**: success in"
        " regimes met for the first time, less a fresh learner's. **Parameters**: greatest number of weights and"
        " biases that are not zero, in use and kept. Dead units, effective rank and mean absolute weight: means"
        " over layers and visits' ends. The oracles are told of every change. Differences are means over shared"
        " seeds, with their intervals; better and worse are said where these do not hold zero and a permutation"
        " test has p < 0.05, for which it takes six seeds."
        f" Measures of every seed: [{name}.json]({name}.json).",
    ]
    for stream in plan.streams:
        for learner in plan.learners:
            some = [row for row in rows if row["stream"] == stream and row["learner"] == learner]
            sections += [f"## {Path(stream).stem}, {learner}", table(some)]
            if "gpf" in plan.methods and len(plan.methods) > 1:
                sections.append(verdicts(some))
            closed = gap_closed(some)
            if closed is not None:
                value, low, high = closed
                sections.append(
                    f"Of the gap in area between depth 1 and the better oracle, GPF closes {value:.0%}"
                    f" [{low:.0%}, {high:.0%}]."
                )
            sections.append(f"![{stream}, {learner}]({name}-{Path(stream).stem}-{learner}.png)")
    sections.append(f"Made by `{command}`: {len(rows) * plan.seeds} runs, {minutes:.0f} minutes of one core in all.")
    return "\n\n".join(sections) + "\n"


def write_page(plan: Study, runs: Path, rows: Sequence[dict[str, Any]], folder: Path, name: str, command: str) -> Path:
    """Write the page, its figures and its numbers; returns where the page is."""
    folder.mkdir(parents=True, exist_ok=True)
    for stream in plan.streams:
        for learner in plan.learners:
            save_figure(figure(plan, runs, stream, learner), folder / f"{name}-{Path(stream).stem}-{learner}.png")
    plain = {"plan": dataclasses.asdict(plan), "rows": rows}
    replace_text(folder / f"{name}.json", json.dumps(plain) + "\n")
    minutes = sum(sum(row["seconds"]) for row in rows) / 60.0
    replace_text(folder / f"{name}.md", page(plan, rows, name, command, minutes))
    return folder / f"{name}.md"


def figure(plan: Study, runs: Path, stream: str, learner: str) -> Figure:
    """A stream's timeline: success of all methods with bands, GPF's events, depth and parameters, plasticity."""
    visits = {
        method: [
            read_log(plan.folder(runs, stream, learner, method, seed), "metrics") for seed in plan.all_seeds
        ]
        for method in plan.methods
    }  # fmt: skip
    regimes = [visit["regime"] for visit in visits[plan.methods[0]][0]]
    colours = {method: f"C{n}" for n, method in enumerate(plan.methods)}
    fixed = [method for method in plan.methods if method in ("depth-1", "depth-4", *ORACLES)]
    others = [method for method in plan.methods if method not in fixed]
    groups = [group for group in (fixed, others) if group]
    drawing = Figure(figsize=(14, 3.0 * len(groups) + 9.0), layout="constrained")
    panels = drawing.subplots(len(groups) + 6, 1, sharex=True, height_ratios=[*[3.0] * len(groups), 0.5, *[1.0] * 5])
    for axes, group in zip(panels, groups, strict=False):
        for method in dict.fromkeys([*(["gpf"] if "gpf" in plan.methods else []), *group]):
            curves = np.array([measures.curve(one) for one in visits[method]])
            x = (np.arange(curves.shape[1]) + 0.5) * len(regimes) / curves.shape[1]
            draw_band(axes, x, curves, colours[method], TITLES[method])
        axes.set_ylim(0, 1.03)
        axes.set_ylabel("success: IQM, 95 %")
        axes.legend(fontsize=8, ncols=3, loc="lower right")
    _draw_events(panels[-6], plan, runs, stream, learner, visits)
    shown = [method for method in plan.methods if method not in ORACLES]
    for axes, key, label in (
        (panels[-5], "depth", "depth"),
        (panels[-4], "density", "density"),
        (panels[-3], "parameters", "parameters"),
        (panels[-2], "dead", "dead units"),
        (panels[-1], "effective_rank", "effective rank"),
    ):
        for method in shown:
            values = np.array([[visit[key] for visit in one] for one in visits[method]])
            axes.plot(np.arange(values.shape[1]) + 1, values.mean(axis=0), ".-", color=colours[method], linewidth=1.0)
        axes.set_ylabel(label)
    kinds = list(dict.fromkeys(regimes))
    for axes in panels:
        for n, regime in enumerate(regimes):
            axes.axvspan(n, n + 1, color=f"C{kinds.index(regime) % 10}", alpha=0.12, linewidth=0)
        axes.set_xlim(0, len(regimes))
    above = panels[0].get_xaxis_transform()
    for n, regime in enumerate(regimes):
        panels[0].text(n + 0.5, 1.05, regime, rotation=25, fontsize=8, ha="left", va="bottom", transform=above)
    panels[-1].set_xlabel("visit")
    return drawing


def _draw_events(axes: Any, plan: Study, runs: Path, stream: str, learner: str, visits: dict[str, Any]) -> None:
    """What GPF did in the first seed's run."""
    axes.set_yticks([])
    axes.set_ylabel(f"seed {plan.first_seed}", fontsize=8)
    if "gpf" not in plan.methods:
        return
    marks = {"tries": ("|", "0.4"), "grows": ("^", "C2"), "recalls": ("o", "C0"), "goes": ("_", "0.4"),
             "grown": ("s", "C3")}  # fmt: skip
    said = {"tries": "tries what is kept", "grows": "grows a new path", "recalls": "recalls a version",
            "goes": "goes on", "grown": "grows a layer"}  # fmt: skip
    for line in read_log(plan.folder(runs, stream, learner, "gpf", plan.first_seed), "events"):
        ended = sum(visits["gpf"][0][line["visit"]]["ended"])
        marker, colour = marks.get(line["kind"], (".", "k"))
        axes.plot(line["visit"] + min(1.0, line["episodes"] / ended), 0.0, marker, color=colour, markersize=7)
    for kind, (marker, colour) in marks.items():
        axes.plot([], [], marker, color=colour, linestyle="", label=said[kind])
    axes.legend(fontsize=7, ncols=5, loc="upper left")

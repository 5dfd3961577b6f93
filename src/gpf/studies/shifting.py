"""All methods in all streams over many seeds: tables, verdicts, and a figure for each stream."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from gpf.continual import measures
from gpf.reports.figures import draw_band
from gpf.reports.pages import Numbers, join, write_page
from gpf.reports.statistics import MANY_SEEDS, RESAMPLES, centre_name, interval_words, paired_difference
from gpf.reports.tables import (
    MISSING,
    Measure,
    markdown_table,
    measure_all,
    present,
    scores_table,
    summary,
    verdict,
)
from gpf.reports.verdicts import PAIRED_WORDS, Family, caution, corrected
from gpf.runs.executors import Executor, Tell
from gpf.runs.folder import Outcome
from gpf.settings import choose
from gpf.studies.engine import Cell, Study, check_seeds
from gpf.tasks.shifting import FIXED, ORACLES, TASK, Config, LearnerName, MethodName

Visits = list[dict[str, Any]]
TITLES: dict[str, str] = {
    "gpf": "GPF", "depth-1": "depth 1", "depth-2": "depth 2", "depth-4": "depth 4",
    "budget": "one network of GPF's budget", "continual-backprop": "continual backprop",
    "l2-init": "L2 to the initial weights", "shrink-and-perturb": "shrink and perturb", "ewc": "online EWC",
    "replay": "experience replay", "reset-on-drop": "reset on detected drop",
    "reset": "oracle: starts from scratch", "one-each": "oracle: one network each",
    "gpf-no-grow": "GPF without growing", "gpf-no-prune": "GPF without pruning",
    "gpf-no-freeze": "GPF without freezing", "gpf-no-soften": "GPF without softening",
}  # fmt: skip
ABLATIONS: dict[str, dict[str, Any]] = {
    "gpf-no-grow": {"grow": False}, "gpf-no-prune": {"prune": False}, "gpf-no-freeze": {"freeze": False},
    "gpf-no-soften": {"soften": False},
}  # fmt: skip


def _visits(outcome: Outcome) -> Visits:
    visits: Visits = outcome.result["visits"]
    return visits


def _mean(name: str, title: str, better: int, form: str) -> Measure:
    return Measure(title, better, form, lambda o: float(np.mean([visit[name] for visit in _visits(o)])))


def measures_against(fresh: Mapping[Path, Outcome]) -> dict[str, Measure]:
    """All measures; some are relative to the fresh learner of the same stream and seed, found by a run's folder."""

    def rival(outcome: Outcome) -> Visits:
        return _visits(fresh[outcome.folder])

    return {
        "area": Measure("area under the curve", 1, ".3f", lambda o: measures.area(_visits(o))),
        "forgetting": Measure("forgetting", -1, ".3f", lambda o: measures.forgetting(_visits(o))),
        "forgetting_whole": Measure(
            "forgetting, first whole episode", -1, ".3f", lambda o: measures.forgetting(_visits(o), "first_whole")
        ),
        "recovery": Measure("recovery, episodes", -1, ".0f", lambda o: measures.recovery(_visits(o), rival(o))),
        "transfer": Measure("forward transfer", 1, ".3f", lambda o: measures.transfer(_visits(o), rival(o))),
        "steps": Measure("steps, millions", 0, ".2f", lambda o: _visits(o)[-1]["step"] / 1e6),
        "parameters": Measure(
            "parameters", -1, ",.0f", lambda o: float(max(visit["parameters"] for visit in _visits(o)))
        ),
        "flops": _mean("flops", "FLOPs a step", -1, ",.0f"),
        "dead": _mean("dead", "dead units", -1, ".3f"),
        "effective_rank": _mean("effective_rank", "effective rank", 0, ".1f"),
        "weight_magnitude": _mean("weight_magnitude", "mean absolute weight", 0, ".3f"),
    }


MEASURES = measures_against({})


@dataclass(frozen=True)
class Plan:
    """Which methods meet which streams, and how often."""

    streams: tuple[str, ...] = ("harsh", "returning")
    learners: tuple[LearnerName, ...] = get_args(LearnerName)
    methods: tuple[str, ...] = get_args(MethodName)
    seeds: int = 10
    first_seed: int = 0
    episodes: int = 1000
    visits: int | None = None
    orders: tuple[int, ...] = (0, 1)

    def __post_init__(self) -> None:
        check_seeds(self.seeds, self.first_seed)
        for name, accepted in (("methods", (*get_args(MethodName), *ABLATIONS)), ("learners", get_args(LearnerName))):
            for one in getattr(self, name):
                choose(name.removesuffix("s"), one, accepted)
            if not getattr(self, name):
                raise ValueError(f"{name} must name at least one of {', '.join(accepted)}")
        if "reset" not in self.methods:
            raise ValueError("methods must include reset, which recovery and transfer are measured against")
        stems = [Path(stream).stem for stream in self.streams]
        if not stems or len(set(stems)) < len(stems):
            raise ValueError(f"streams must be at least one, and names that differ, got {', '.join(stems) or 'none'}")
        if not self.orders or len(set(self.orders)) < len(self.orders):
            raise ValueError(
                f"orders must be at least one, and differ, got {', '.join(map(str, self.orders)) or 'none'}"
            )
        for stream in self.streams:
            for order in self.orders_of(stream):
                self.config(stream, order, self.learners[0], self.methods[0], self.first_seed).check()

    def orders_of(self, stream: str) -> tuple[int, ...]:
        """The orders in which a stream is run; that of a file is always the same."""
        return (0,) if stream.endswith(".json") else self.orders

    def config(self, stream: str, order: int, learner: LearnerName, method: str, seed: int) -> Config:
        """Settings of one run."""
        changes = ABLATIONS.get(method, {})
        name: Any = "gpf" if changes else method
        return Config(
            stream=stream, learner=learner, method=name, seed=seed, episodes=self.episodes, visits=self.visits,
            order=order, **changes,
        )  # fmt: skip

    def study(self) -> Study:
        """Its runs."""

        def cell(stream: str, order: int, learner: LearnerName, method: str) -> Cell:
            place = Path(Path(stream).stem, f"order-{order}", learner, method)
            return Cell(
                group(stream, order, learner), method,
                lambda seed: self.config(stream, order, learner, method, seed), place,
            )  # fmt: skip

        cells = [cell(stream, order, learner, method) for stream in self.streams for order in self.orders_of(stream)
                 for learner in self.learners for method in self.methods]  # fmt: skip
        return Study(TASK, range(self.first_seed, self.first_seed + self.seeds), cells)


def group(stream: str, order: int, learner: str) -> str:
    """Settings that the methods of a comparison share."""
    return f"{stream}/{order}/{learner}"


def compare_methods(
    plan: Plan, runs: Path, folder: Path, name: str, command: str, executor: Executor, tell: Tell
) -> Path:
    """Train what is missing, and write the page, its figures and its numbers; returns where the page is."""
    outcomes = plan.study().train(runs, executor, tell)
    rows, figures = [], {}
    for stream in plan.streams:
        for learner, order in itertools.product(plan.learners, plan.orders_of(stream)):
            of = {method: outcomes[group(stream, order, learner), method] for method in plan.methods}
            fresh = {
                one.folder: rival for some in of.values() for one, rival in zip(some, of["reset"], strict=True)
            }  # fmt: skip
            rows += [
                {
                    "stream": stream,
                    "order": order,
                    "learner": learner,
                    "method": method,
                    "seconds": [one.result["seconds"] for one in some],
                    "scores": measure_all(some, measures_against(fresh)),
                }
                for method, some in of.items()
            ]
            figures[figure_name(name, stream, learner, order, plan.orders_of(stream))] = figure(plan, of)
    numbers: Numbers = {"kind": "shifting", "command": command, "plan": dataclasses.asdict(plan), "rows": rows}
    return write_page(folder, name, numbers, page(numbers, name), figures)


def figure_name(name: str, stream: str, learner: str, order: int, orders: Sequence[int]) -> str:
    """The file of the figure of a stream in one of its orders."""
    which = f"-order-{order}" if len(orders) > 1 else ""
    return f"{name}-{Path(stream).stem}-{learner}{which}.png"


# The page


def pooled(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of one stream and learner, a method each: of every seed, the mean of a measure over the orders."""
    of_methods: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        of_methods.setdefault(row["method"], []).append(row)
    return [
        {
            "method": method,
            "scores": {
                key: [_mean_of(values) for values in zip(*(row["scores"][key] for row in some), strict=True)]
                for key in MEASURES
            },
        }
        for method, some in of_methods.items()
    ]


def _mean_of(values: Sequence[float | None]) -> float | None:
    """The mean of the values that are not None; None without any."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def areas_by_order(rows: Sequence[dict[str, Any]], family: Family) -> str:
    """The area of each method of one stream and learner in each order, and GPF less it; as Markdown."""
    measure, area = MEASURES["area"], {(row["order"], row["method"]): row["scores"]["area"] for row in rows}
    orders, methods = (list(dict.fromkeys(row[key] for row in rows)) for key in ("order", "method"))

    def cells(order: int, method: str) -> list[str]:
        shown = [summary(area[order, method], measure.form)]
        if "gpf" in methods:
            rivals = area[order, "gpf"], area[order, method]
            shown.append(MISSING if method == "gpf" else verdict(*rivals, measure, family))
        return shown

    header = [
        title for order in orders
        for title in (f"area, order {order}", *([f"GPF less it, order {order}"] if "gpf" in methods else []))
    ]  # fmt: skip
    lines = [[TITLES[method], *(cell for order in orders for cell in cells(order, method))] for method in methods]
    return markdown_table(["method", *header], lines)


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows of one stream and learner, a method each, as Markdown."""
    return scores_table({TITLES[row["method"]]: row["scores"] for row in rows}, MEASURES, "method")


def verdicts(rows: Sequence[dict[str, Any]], family: Family, ours: str = "gpf") -> str:
    """GPF less each other method, seed by seed, and what the interval says; as Markdown."""
    mine = next(row for row in rows if row["method"] == ours)["scores"]
    judged = {name: measure for name, measure in MEASURES.items() if measure.better}
    lines = [
        [
            TITLES[row["method"]],
            *(verdict(mine[key], row["scores"][key], measure, family) for key, measure in judged.items()),
        ]
        for row in rows
        if row["method"] != ours
    ]
    return markdown_table(["GPF against", *(measure.title for measure in judged.values())], lines)


def gap_closed(rows: Sequence[dict[str, Any]]) -> tuple[float, float, float] | None:
    """The share of the way from depth 1 to the better oracle's area that GPF goes, with its bootstrap interval."""
    areas = {row["method"]: np.array(values) for row in rows if (values := present(row["scores"]["area"]))}
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


def page(numbers: Numbers, name: str) -> str:
    """The text of a page; figures are in the same folder."""
    return corrected(lambda family: _page(numbers, name, family))


def _page(numbers: Numbers, name: str, family: Family) -> str:
    plan, rows = numbers["plan"], numbers["rows"]
    seeds = range(plan["first_seed"], plan["first_seed"] + plan["seeds"])
    minutes = sum(sum(row["seconds"]) for row in rows) / 60.0
    sections = [
        "# Shifting worlds: does it keep learning?",
        f"Worlds change without notice during episodes; seeds {seeds[0]} to {seeds[-1]}"
        f"{_orders_words(plan['orders'])}. A visit is counted in episodes, so a method that fails"
        " has more steps to learn from."
        " Unless its name says otherwise, a method has two layers with policy gradient and one with"
        f" values. Numbers are {interval_words(len(seeds))}. **Area**: online success over all"
        " visits. **Forgetting**: success in the last episodes of a visit (the last one of each of 100 lanes) minus"
        " success in the first to end in the next visit to the same regime, which were running when the world"
        " changed; or minus success in the first that started there. **Recovery**: episodes after a change until the"
        " latest 100 reach 90 % of a fresh learner's final success in the visit. **Forward transfer**: success in"
        " new regimes, minus a fresh learner's. **Parameters**: maximum number of nonzero weights and"
        " biases, used and stored. Dead units, effective rank and mean absolute weight: means"
        f" over layers and ends of visits. The oracles are notified of every change. {PAIRED_WORDS}"
        f" Measures of every seed: [{name}.json]({name}.json).",
        caution(len(seeds)),
        family.sentence,
    ]
    for stream in plan["streams"]:
        for learner in plan["learners"]:
            some = [row for row in rows if row["stream"] == stream and row["learner"] == learner]
            orders = list(dict.fromkeys(row["order"] for row in some))
            over_orders = pooled(some)
            sections += [f"## {Path(stream).stem}, {learner}", table(over_orders)]
            if "gpf" in plan["methods"] and len(plan["methods"]) > 1:
                sections.append(verdicts(over_orders, family))
            if len(orders) > 1:
                sections.append(areas_by_order(some, family))
            closed = gap_closed(over_orders)
            if closed is not None:
                value, low, high = closed
                interval = f" [{low:.0%}, {high:.0%}]" if len(seeds) >= MANY_SEEDS else ""
                sections.append(
                    f"Of the gap in area between depth 1 and the better oracle, GPF closes {value:.0%}{interval}."
                )
            sections += [
                f"![{stream}, {learner}]({figure_name(name, stream, learner, order, orders)})" for order in orders
            ]
    runs = len(rows) * len(seeds)
    sections.append(f"Made by `{numbers['command']}`: {runs} runs, {minutes:.0f} minutes of one core in total.")
    return join(sections)


def _orders_words(orders: Sequence[int]) -> str:
    """In which orders the seeds met the regimes, in words."""
    if len(orders) == 1:
        return ", all with the same order of regimes"
    named = f"{', '.join(map(str, orders[:-1]))} and {orders[-1]}"
    return f" in each of the orders {named} of regimes; a seed's value is its mean over the orders, where none is named"


# Figures


def figure(plan: Plan, outcomes: Mapping[str, Sequence[Outcome]]) -> Figure:
    """A stream's timeline: success of all methods with bands, GPF's events, depth and parameters, plasticity."""
    visits = {method: [_visits(one) for one in some] for method, some in outcomes.items()}
    regimes = [visit["regime"] for visit in visits[plan.methods[0]][0]]
    colours = {method: to_hex(colormaps["tab20"](n)) for n, method in enumerate(plan.methods)}
    fixed = [method for method in plan.methods if method in (*FIXED, "budget", *ORACLES)]
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
        axes.set_ylabel(f"success: {centre_name(plan.seeds)}, 95 %")
        axes.legend(fontsize=8, ncols=3, loc="lower right")
    _draw_events(panels[-6], plan.first_seed, outcomes.get("gpf"))
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


MARKS: dict[str, tuple[str, str, str]] = {
    "trial": ("|", "0.4", "tries stored versions"),
    "new-path": ("^", "C2", "grows a new path"),
    "recalled": ("o", "C0", "recalls a version"),
    "continued": ("_", "0.4", "goes on"),
    "false-alarm": ("x", "0.4", "false alarm"),
}
"""Marker, colour and words of each kind of decision."""


def _draw_events(axes: Any, seed: int, ours: Sequence[Outcome] | None) -> None:
    """GPF's events in the first seed's run."""
    axes.set_yticks([])
    axes.set_ylabel(f"seed {seed}", fontsize=8)
    if not ours:
        return
    visits = _visits(ours[0])
    for line in ours[0].events:
        marker, colour, _ = MARKS.get(line["kind"], (".", "k", ""))
        share = min(1.0, line["episodes"] / sum(visits[line["visit"]]["ended"]))
        axes.plot(line["visit"] + share, 0.0, marker, color=colour, markersize=7)
    for marker, colour, words in MARKS.values():
        axes.plot([], [], marker, color=colour, linestyle="", label=words)
    axes.legend(fontsize=7, ncols=5, loc="upper left")

"""The paper's experiment as published, over many seeds, with a verdict on each of its claims."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gpf.navigation.agents import load_navigator
from gpf.navigation.config import Config
from gpf.plume.scenario import ACTIONS, Scenario
from gpf.plume.tokens import ONEHOT_SIZE
from gpf.reports.figures import draw_band
from gpf.reports.pages import Numbers, join, write_page
from gpf.reports.statistics import centre_name, interval_words
from gpf.reports.tables import markdown_table, show_paired, summary
from gpf.reports.verdicts import Family, caution, corrected
from gpf.runs.executors import Executor, Tell
from gpf.runs.folder import Outcome, replace_text
from gpf.studies.engine import Cell, Study, place_of
from gpf.tasks.plume import TASK

Part = Literal["experiment", "sparsity", "budget", "width"]
PARTS: tuple[Part, ...] = ("experiment", "sparsity", "budget", "width")

EPISODES = 5000
HELD_OUT_EPISODES = 2000
"""On which both checkpoints are evaluated."""
HALF_BUDGET = "half-budget.json"
EVERY = 500
"""Episodes between two evaluations, each over 200 others."""

AUTHORS_RULES = {
    "grow_patience": "1000", "grow_threshold": "0.05", "max_depth": "4", "prune_patience": "5",
    "saliency": "obd", "saliency_threshold": "1e-6", "weight_threshold": "0.02", "belief_threshold": "0.3",
    "belief_increment": "1e-4", "freeze_patience": "null",
}  # fmt: skip
"""The values of the authors' code, in episodes: two evaluations of patience; pruning 1,500 gradient steps after a
growth, which is about 5 episodes; belief that rises by 1 / 6,000,000 a step (an episode has about 600)."""

PAPER_TABLE: dict[int, tuple[float | None, int | None, str]] = {
    500: (0.245, 1, ""), 1000: (0.955, 1, ""), 1500: (0.405, 1, ""), 2000: (0.975, 2, "grown, kept 47.9 %"),
    2500: (0.915, 2, ""), 3000: (0.980, 3, "grown, kept 19.6 %"), 3500: (0.955, 3, ""),
    4000: (0.965, 4, "grown, kept 9.9 %"), 4500: (0.955, 4, ""), 5000: (0.680, 4, ""),
}  # fmt: skip
"""The paper's table: success, layers, events of its one run; 5,000 from its text."""
PAPER_CONTROL = (0.875, 0.465, 0.940, 0.915, 0.965, 0.105, 0.930, 0.745, 0.440, 0.940)
"""The one-layer control of the authors' code at the same episodes."""
PAPER_SHARES = (0.479, 0.196, 0.099)
PAPER_GROWTH = (2000, 3000, 4000)
PAPER_PEAK, PAPER_PEAK_HALF_BUDGET, PAPER_HELD_OUT = 0.980, 0.945, 0.94


@dataclass(frozen=True)
class Agent:
    """Who is trained, and for which part of the page."""

    name: str
    part: Part
    config: Config


def parameters(depth: int, width: int) -> int:
    """Weights and biases of the paper's network with this many hidden layers."""
    inputs, outputs = ONEHOT_SIZE, len(ACTIONS)
    return (inputs + 1) * width + (depth - 1) * (width + 1) * width + (width + 1) * outputs


def width_of(depth: int, budget: int) -> int:
    """The width with which a network of this depth comes closest to a number of parameters."""
    return min(range(1, 1025), key=lambda width: abs(parameters(depth, width) - budget))


def agents(runs: Path, scenario: str = "reference") -> list[Agent]:
    """Everybody whom the page needs."""
    canonical = {"learner": "online", "scenario": scenario, "gpf": False, "episodes": EPISODES}
    grown = {"learner": "online", "scenario": scenario, "episodes": EPISODES}
    authors = {**grown, "rules": AUTHORS_RULES}
    short = str(runs / HALF_BUDGET)
    growth = [f"{episode}:grow" for episode in PAPER_GROWTH]
    pruning = [f"{e + 10}:keep={share}" for e, share in zip(PAPER_GROWTH, PAPER_SHARES, strict=True)]
    planned = {**grown, "rules": {"freeze_patience": "null"}}
    found: list[tuple[str, Part, dict[str, Any]]] = [
        ("canonical", "experiment", canonical),
        ("GPF", "experiment", authors),
        ("GPF, values of the text", "experiment", grown),
        ("Q-learning", "experiment", {**canonical, "q_learning": True}),
        ("grown, not pruned", "sparsity", {**planned, "plan": growth}),
        ("grown and pruned", "sparsity", {**planned, "plan": [*growth, *pruning]}),
        ("canonical, half the budget", "budget", {**canonical, "scenario": short}),
        ("GPF, half the budget", "budget", {**authors, "scenario": short}),
    ]
    for widest in (64, 256):
        for depth in range(1, 5):
            width = width_of(depth, parameters(1, widest))
            if (depth, width) != (1, 64):
                changes = {**canonical, "depth": depth, "width": width}
                found.append((f"depth {depth}, width {width}", "width", changes))
    return [Agent(name, part, Config.of(settings, evaluate=0)) for name, part, settings in found]


def chosen_agents(runs: Path, parts: Sequence[Part], scenario: str = "reference") -> list[Agent]:
    """The agents of some parts; always includes the experiment, which the others are compared with."""
    return [agent for agent in agents(runs, scenario) if agent.part in ("experiment", *parts)]


def reproduction_study(runs: Path, seeds: range, parts: Sequence[Part], scenario: str = "reference") -> Study:
    """Its runs; writes the world of half the budget, if a part needs it."""
    world = Scenario.of(scenario)
    if "budget" in parts:
        runs.mkdir(parents=True, exist_ok=True)
        short = dataclasses.replace(world, max_steps=world.max_steps // 2)
        replace_text(runs / HALF_BUDGET, short.to_json() + "\n")

    def cell(agent: Agent) -> Cell:
        return Cell(
            scenario, agent.name, lambda seed: dataclasses.replace(agent.config, seed=seed), Path(place_of(agent.name))
        )

    return Study(TASK, seeds, [cell(agent) for agent in chosen_agents(runs, parts, scenario)])


def reproduce(
    study: Study, runs: Path, parts: Sequence[Part], scenario: str, folder: Path, command: str,
    executor: Executor, tell: Tell,
) -> Path:  # fmt: skip
    """Train what is missing, and write the page, its figures and its numbers; returns where the page is."""
    outcomes = study.train(runs, executor, tell)
    numbers: Numbers = {
        "kind": "reproduction",
        "command": command,
        "scenario": scenario,
        "max_steps": Scenario.of(scenario).max_steps,
        "seeds": list(study.seeds),
        "parts": [part for part in PARTS if part in ("experiment", *parts)],
        "agents": {
            agent.name: {
                "config": {"depth": agent.config.depth, "width": agent.config.width},
                "runs": [_scores(one, agent) for one in outcomes[scenario, agent.name]],
            }
            for agent in chosen_agents(runs, parts, scenario)
        },
        "seconds": sum(one.result["seconds"] for some in outcomes.values() for one in some),
    }
    figures = {
        "reproduction-training.png": training_figure(numbers),
        "reproduction-q-learning.png": q_learning_figure(numbers),
    }
    return write_page(folder, "reproduction", numbers, page(numbers, "reproduction"), figures)


def _scores(run: Outcome, agent: Agent) -> dict[str, Any]:
    """Scores of a run: validation every 500 episodes, and held-out episodes at its best and its last checkpoint."""
    validated = [line for line in run.lines if line["validation"] is not None]
    scores: dict[str, Any] = {
        "curve": [line["validation"]["success"] for line in validated],
        "depth": [line["depth"] for line in validated],
        "density": [line["density"] for line in validated],
        "events": [
            {
                "episode": line["episodes"],
                "kind": line["kind"],
                "depth": line["after"]["depth"],
                "kept": _kept(line["after"], agent.config.width) if line["kind"] == "pruned" else None,
            }
            for line in run.events
        ],
        "parameters": run.result["parameters"],
    }
    for checkpoint in ("best", "last"):
        navigator = load_navigator(run.folder, checkpoint)
        scores[checkpoint] = float(navigator.evaluate(HELD_OUT_EPISODES).success.mean())
        if agent.part == "experiment":
            scores[f"{checkpoint} of 100"] = float(navigator.evaluate(100).success.mean())
    return scores


def _kept(shape: dict[str, Any], width: int) -> float:
    """The share of the weights that is left in all layers but the newest, which pruning spares."""
    return 1.0 - float(shape["pruned"]) / (shape["weights"] - width * width)


# Summary


def column(scores: dict[str, Any], agent: str, key: str) -> NDArray[np.float64]:
    """One number for each seed of an agent: a key of its runs, `peak` for the best validation, or `final`."""
    runs = scores["agents"][agent]["runs"]
    if key in ("peak", "final"):
        return np.array([max(run["curve"]) if key == "peak" else run["curve"][-1] for run in runs])
    return np.array([run[key] for run in runs])


def curves(scores: dict[str, Any], agent: str) -> NDArray[np.float64]:
    """Success in validation, shape (seeds, evaluations)."""
    return np.array([run["curve"] for run in scores["agents"][agent]["runs"]])


def middle(values: NDArray[np.float64]) -> str:
    """The number over seeds and its interval, in percent."""
    return summary(values, ".1f", scale=100.0)


def change(ours: NDArray[np.float64], theirs: NDArray[np.float64], family: Family) -> str:
    """The mean difference over shared seeds in points, and what its interval and its p say together."""
    d = family.compare(ours, theirs)
    return f"{show_paired(d, '.1f', scale=100.0)}, p = {d.p:.3f}: **{family.judge(d)}**"


def page(scores: Numbers, name: str) -> str:
    """The text of a page; figures are in the same folder."""
    return corrected(lambda family: _page(scores, family))


def _page(scores: Numbers, family: Family) -> str:
    seeds = scores["seeds"]
    sections = [
        "# The paper's experiment and its claims",
        f"Online, one world, one update per step, world `{Path(scores['scenario']).stem}`;"
        f" {EPISODES:,} episodes, an evaluation every {EVERY} over 200 others; seeds {seeds[0]} to"
        f" {seeds[-1]}. Percent of episodes in which the source was found:"
        f" {interval_words(len(seeds))}. Differences are means over shared seeds with 95 % intervals by Student's t; p"
        " is that of a permutation test; a difference is significant if its interval does not include zero and its test"
        " is significant after correction. `best` is the checkpoint of the best evaluation, as in the paper;"
        " `last` is the final one; both over 2,000 held-out episodes unless the table says 100. GPF has the values"
        " of the authors' code, but permanent masks. Scores of every seed: [reproduction.json](reproduction.json).",
        caution(len(seeds)),
        family.sentence,
        _training_section(scores),
        _held_out_section(scores),
        _claims_section(scores, family),
    ]
    sections += [
        make(scores, family)
        for part, make in (("sparsity", _sparsity_section), ("budget", _budget_section), ("width", _width_section))
        if part in scores["parts"]
    ]
    runs = sum(len(agent["runs"]) for agent in scores["agents"].values())
    sections.append(
        f"Made by `{scores['command']}`: {runs} runs, {scores['seconds'] / 60:.0f} minutes of training on one core in"
        " total."
    )
    return join(sections)


def _training_section(scores: dict[str, Any]) -> str:
    rows = []
    seeds = len(scores["seeds"])
    for n, (episode, (success, layers, event)) in enumerate(PAPER_TABLE.items()):
        runs = scores["agents"]["GPF"]["runs"]
        since = [[e for e in run["events"] if episode - EVERY < e["episode"] - 1 <= episode] for run in runs]
        grown = sum(any(e["kind"] == "grown" for e in events) for events in since)
        kept = [e["kept"] for events in since for e in events if e["kept"] is not None]
        happened = [f"grown in {grown} of {seeds}"] if grown else []
        happened += [f"kept {100 * np.mean(kept):.1f} % ({len(kept)})"] if kept else []
        rows.append(
            [
                episode,
                "-" if success is None else f"{100 * success:.1f}",
                middle(curves(scores, "GPF")[:, n]),
                layers,
                f"{np.mean([run['depth'][n] for run in runs]):.1f}",
                event,
                ", ".join(happened),
                f"{100 * PAPER_CONTROL[n]:.1f}",
                middle(curves(scores, "canonical")[:, n]),
                middle(curves(scores, "Q-learning")[:, n]),
            ]
        )
    header = [
        "episode", "GPF, paper", "GPF, ours", "layers, paper", "layers, ours", "events, paper", "events, ours",
        "control, authors' code", "control, ours", "Q-learning, ours",
    ]  # fmt: skip
    return (
        f"## The paper's table and ours\n\n{markdown_table(header, rows)}\n\n"
        "![training curve](reproduction-training.png)\n\n![Q-learning](reproduction-q-learning.png)\n\n"
        + _one_run_section(scores)
    )


def _one_run_section(scores: dict[str, Any]) -> str:
    """The paper's table of one run, from ours with the first seed."""
    run, rows = scores["agents"]["GPF"]["runs"][0], []
    for n, episode in enumerate(PAPER_TABLE):
        rows.append([episode, f"{100 * run['curve'][n]:.1f}", run["depth"][n], ""])
        for event in run["events"]:
            if episode < event["episode"] <= episode + EVERY:
                what = f"kept {100 * event['kept']:.1f} %" if event["kept"] is not None else event["kind"]
                rows.append([event["episode"], "-", event["depth"], what])
    return f"The run of seed {scores['seeds'][0]} alone:\n\n" + markdown_table(
        ["episode", "success", "layers", "event"], rows
    )


def _held_out_section(scores: dict[str, Any]) -> str:
    names = [agent.name for agent in agents(Path()) if agent.part == "experiment"]
    keys = {
        "best evaluation": "peak", "`best`, 100 held out": "best of 100", "`best`, 2,000": "best",
        "`last`, 100 held out": "last of 100", "`last`, 2,000": "last",
    }  # fmt: skip
    rows = [
        [
            name,
            *(middle(column(scores, name, key)) for key in keys.values()),
            f"{100 * column(scores, name, 'last').min():.1f}",
        ]
        for name in names
    ]
    paper = ["paper: GPF, one seed", f"{100 * PAPER_PEAK:.1f}", f"{100 * PAPER_HELD_OUT:.0f}", "-", "-", "-", "-"]
    control = ["authors' code: control, one seed", f"{100 * max(PAPER_CONTROL):.1f}", "-", "-", "-", "-", "-"]
    table = markdown_table(["agent", *keys, "`last`, worst seed"], [*rows, paper, control])
    return f"## Held out\n\n{table}"


def _claims_section(scores: dict[str, Any], family: Family) -> str:
    def both(ours: str, theirs: str) -> list[str]:
        keys = ("peak", "best", "last")
        return [change(column(scores, ours, key), column(scores, theirs, key), family) for key in keys]

    steady = [int(np.count_nonzero((curves(scores, name)[:, 1:] >= 0.9).all(axis=1))) for name in ("canonical", "GPF")]
    rows = [
        ["GPF does better than its one-layer control (98.0 and 96.5 %)", *both("GPF", "canonical")],
        ["The same, with the values that the text gives", *both("GPF, values of the text", "canonical")],
        ["Expected SARSA does better than Q-learning (a figure)", *both("canonical", "Q-learning")],
    ]
    seeds = len(scores["seeds"])
    above = 100 * float(np.mean(column(scores, "GPF", "peak") - column(scores, "GPF", "best")))
    return (
        "## Verdicts\n\n"
        + markdown_table(["claim", "best evaluation", "`best`, held out", "`last`, held out"], rows)
        + "\n\nConsistent behaviour after about 1,000 episodes: from then on, all evaluations reach 90 % or more in"
        f" {steady[0]} of {seeds} seeds of the control and in {steady[1]} of {seeds} of GPF. The best of"
        f" ten evaluations differs by {above:+.1f} points from its checkpoint's held-out success (GPF, mean of seeds)."
    )


def _sparsity_section(scores: dict[str, Any], family: Family) -> str:
    rows = []
    for k, (share, episode) in enumerate(zip(PAPER_SHARES, PAPER_GROWTH, strict=True)):
        places = [episode // EVERY, episode // EVERY + 1]  # the two evaluations before the next growth
        pruned, whole = (
            curves(scores, name)[:, places].mean(axis=1) for name in ("grown and pruned", "grown, not pruned")
        )
        theirs = [PAPER_TABLE[EVERY * (place + 1)][0] for place in places]
        kept = [
            [e["kept"] for e in run["events"] if e["kept"] is not None][k]
            for run in scores["agents"]["grown and pruned"]["runs"]
        ]
        rows.append(
            [
                f"{100 * share:.1f} %",
                f"{100 * np.mean(kept):.1f} %",
                " and ".join(f"{100 * value:.1f}" for value in theirs if value is not None),
                middle(pruned),
                middle(whole),
                change(pruned, whole, family),
            ]
        )
    ends = [
        [name, *(middle(column(scores, name, key)) for key in ("peak", "best", "last")), density(scores, name)]
        for name in ("grown and pruned", "grown, not pruned", "canonical")
    ]
    return (
        "## Success at 47.9, 19.6 and 9.9 % of the weights, with permanent masks\n\n"
        "A layer grows at episodes 2,000, 3,000 and 4,000, and 10 episodes later the weights with the lowest OBD"
        " saliency in the older layers are pruned to the paper's share, permanently. In the authors' code they grow"
        " back.\n\n"
        + markdown_table(
            [
                "kept, paper",
                "kept, ours",
                "its next two evaluations",
                "pruned: mean of two",
                "not pruned",
                "difference",
            ],
            rows,
        )
        + "\n\n"
        + markdown_table(["agent", "best evaluation", "`best`, held out", "`last`, held out", "final density"], ends)
    )


def density(scores: dict[str, Any], agent: str) -> str:
    """The share of all hidden weights that is left at the end, in percent."""
    return f"{100 * np.mean([run['density'][-1] for run in scores['agents'][agent]['runs']]):.1f} %"


def _budget_section(scores: dict[str, Any], family: Family) -> str:
    rows = []
    long, time_step = scores["max_steps"], Scenario().time_step
    for name in ("GPF", "canonical"):
        for key, paper in (("peak", PAPER_PEAK), ("best", None), ("last", None)):
            half, whole = (column(scores, agent, key) for agent in (f"{name}, half the budget", name))
            told = "-"
            if paper is not None and name == "GPF":
                told = f"{100 * PAPER_PEAK_HALF_BUDGET:.1f} to {100 * paper:.1f}"
            words = {"peak": "best evaluation", "best": "`best`, held out", "last": "`last`, held out"}[key]
            rows.append([name, words, told, middle(half), middle(whole), change(whole, half, family)])
    return (
        f"## 50 s and 100 s\n\nIn the authors' code 600 and 1,200 steps of {time_step} s; here {long // 2:,}"
        f" and {long:,}. An episode ends at the source or with its budget: every failure is a timeout by"
        " construction. Trained and evaluated with the same budget.\n\n"
        + markdown_table(["agent", "measure", "paper", f"{long // 2:,} steps", f"{long:,} steps", "difference"], rows)
    )


def _width_section(scores: dict[str, Any], family: Family) -> str:
    rows = []
    for widest in (64, 256):
        first = ""
        for depth in range(1, 5):
            width = width_of(depth, parameters(1, widest))
            name = "canonical" if (depth, width) == (1, 64) else f"depth {depth}, width {width}"
            first = first or name
            cells = [middle(column(scores, name, key)) for key in ("peak", "best", "last")]
            changes = ["", ""]
            if name != first:
                changes = [
                    change(column(scores, name, key), column(scores, first, key), family) for key in ("best", "last")
                ]
            rows.append([depth, width, f"{parameters(depth, width):,}", *cells, *changes])
    header = [
        "depth", "width", "parameters", "best evaluation", "`best`, held out", "`last`, held out",
        "`best`, difference from one layer", "`last`, difference from one layer",
    ]  # fmt: skip
    return (
        "## Deeper or wider, at equal parameters\n\nThe supplement: deeper networks outperformed shorter, wider ones."
        f" Fixed networks, no GPF.\n\n{markdown_table(header, rows)}"
    )


# Figures


def training_figure(scores: dict[str, Any]) -> Figure:
    """The paper's training curve: one run with its events above, all seeds and the paper's own curve below."""
    drawing = Figure(figsize=(10, 9.5), layout="constrained")
    one, every, depth = drawing.subplots(3, 1, sharex=True, height_ratios=(2, 2, 0.8))
    episodes = np.array(list(PAPER_TABLE))
    _draw_one_run(one, scores, episodes)
    one.set_title(f"the run of seed {scores['seeds'][0]}", fontsize=10)
    _draw_runs(every, episodes, curves(scores, "GPF"), "C0", "GPF")
    _draw_runs(every, episodes, curves(scores, "canonical"), "C1", "canonical, one layer")
    for values, colour, label in (
        ([row[0] for row in PAPER_TABLE.values()], "C0", "GPF, as the paper reports it, one seed"),
        (PAPER_CONTROL, "C1", "the control of the authors' code, one seed"),
    ):
        every.plot(episodes, values, ":", color=colour, label=label)
    centre = centre_name(len(scores["seeds"]))
    every.set_title(f"{len(scores['seeds'])} seeds: {centre} and its 95 % interval", fontsize=10)
    depths = np.array([run["depth"] for run in scores["agents"]["GPF"]["runs"]])
    depth.step(episodes, depths.mean(axis=0), where="post", color="C0", label="GPF, mean of all seeds")
    depth.step(episodes, [row[1] for row in PAPER_TABLE.values()], ":", where="post", color="C0", label="paper")
    depth.set_ylabel("hidden layers")
    depth.set_ylim(0.5, 4.5)
    depth.set_xlabel("episodes")
    for axes in (one, every):
        axes.set_ylim(0, 1.06)
        axes.set_ylabel("success in 200 episodes")
    for axes, place in ((one, "lower left"), (every, "lower right"), (depth, "lower right")):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8, loc=place)
    return drawing


def _draw_one_run(axes: Axes, scores: dict[str, Any], episodes: NDArray[np.int64]) -> None:
    run, control = (scores["agents"][name]["runs"][0] for name in ("GPF", "canonical"))
    axes.plot(episodes, run["curve"], "-o", color="C0", markersize=3, label="GPF")
    axes.plot(episodes, control["curve"], ":", color="C1", label="canonical, one layer")
    best = int(np.argmax(run["curve"]))
    axes.plot(episodes[best], run["curve"][best], "o", color="C3", markersize=8, label="best checkpoint")
    for event in run["events"]:
        if event["kind"] == "grown":
            axes.axvline(event["episode"], linestyle="--", color="C2", linewidth=1.0)
        elif event["kept"] is not None:
            axes.text(event["episode"] + 30, 0.04, f"kept {100 * event['kept']:.1f} %", color="C4", fontsize=8)
    axes.plot([], [], "--", color="C2", label="a layer grows")


def q_learning_figure(scores: dict[str, Any]) -> Figure:
    """Q-learning against Expected SARSA, one layer each."""
    drawing = Figure(figsize=(9, 4.2), layout="constrained")
    axes = drawing.subplots()
    episodes = np.array(list(PAPER_TABLE))
    _draw_runs(axes, episodes, curves(scores, "canonical"), "C0", "Expected SARSA")
    _draw_runs(axes, episodes, curves(scores, "Q-learning"), "C3", "Q-learning")
    axes.set_ylim(0, 1.06)
    axes.set_xlabel("episodes")
    axes.set_ylabel("success in 200 episodes")
    centre = centre_name(len(scores["seeds"]))
    axes.set_title(f"{len(scores['seeds'])} seeds each: {centre} and its 95 % interval", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    return drawing


def _draw_runs(axes: Axes, x: NDArray[np.int64], values: NDArray[np.float64], colour: str, label: str) -> None:
    axes.plot(x, values.T, color=colour, linewidth=0.5, alpha=0.25)
    draw_band(axes, x, values, colour, label)

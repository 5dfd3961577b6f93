"""Any set of agents over many seeds, to one table and one figure.

A comparison is a run for every agent, world and seed in one folder, and a page: NAME.md, its figure NAME.png, and
NAME.json with the score of every seed. Killed, it goes on where it was; finished runs are never repeated, and
comparisons that share a folder share the runs of agents of the same name.
"""

import dataclasses
import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gpf.navigation.agents import load_navigator
from gpf.navigation.config import Config
from gpf.navigation.evaluate import BLOCK, HELD_OUT, evaluate
from gpf.navigation.policies import POLICIES, make_policy
from gpf.plume.scenario import Scenario
from gpf.reports.figures import draw_band, save_figure
from gpf.reports.statistics import Paired, interquartile_mean, paired_difference, probability_of_improvement
from gpf.runs.folder import read_log, replace_text
from gpf.tasks.many import Told, train_all
from gpf.tasks.plume import evaluate_held_out

KEYS = {"title", "about", "agents", "scenarios", "seeds", "first_seed", "episodes"}


@dataclass(frozen=True)
class Agent:
    """Somebody who searches: a learner with its settings, or a baseline."""

    name: str
    config: Config | None = None
    policy: str | None = None

    @property
    def place(self) -> str:
        """The name as a folder."""
        return re.sub(r"[^\w-]+", "-", self.name).strip("-")


@dataclass(frozen=True)
class Comparison:
    """Who is compared, where, and how often."""

    agents: tuple[Agent, ...]
    """The first is the one that the others are held against."""
    scenarios: tuple[str, ...] = ("reference",)
    seeds: int = 10
    first_seed: int = 0
    episodes: int = 1000
    """Held-out episodes of each seed's last checkpoint."""
    title: str = "A comparison"
    about: str = ""
    """What there is to say before the table."""

    def __post_init__(self) -> None:
        if not self.agents:
            raise ValueError("agents: none; accepted: at least one")
        for name, least in (("seeds", 1), ("first_seed", 0), ("episodes", 1)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"{name}: {value!r}; accepted: a whole number of at least {least}")
        places = [agent.place for agent in self.agents]
        if len(set(places)) < len(places) or "" in places:
            raise ValueError(
                f"agents: {', '.join(a.name for a in self.agents)}; accepted: names that differ in letters"
            )
        for agent in self.agents:
            if agent.config is not None:
                agent.config.resolved()
            elif agent.policy not in POLICIES:
                raise ValueError(f"policy: {agent.policy!r} of agent {agent.name!r}; accepted: {', '.join(POLICIES)}")
        for scenario in self.scenarios:
            Scenario.of(scenario)

    @property
    def all_seeds(self) -> range:
        """The seeds of its runs."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def folder(self, runs: Path, scenario: str, agent: Agent, seed: int) -> Path:
        """Where a run is kept."""
        return runs / Path(scenario).stem / agent.place / str(seed)


def read_comparison(path: Path) -> Comparison:
    """A comparison from a TOML file.

    seeds = 10
    scenarios = ["reference", "paper"]

    [agents.GPF]
    learner = "online"

    [agents."depth 4"]
    learner = "online"
    gpf = false
    depth = 4

    [agents.cast-and-surge]
    policy = "cast-and-surge"
    """
    try:
        values = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"comparison: {path} cannot be read ({error}); accepted: a TOML file") from None
    if unknown := sorted(values.keys() - KEYS):
        raise ValueError(f"comparison: {path} has {', '.join(unknown)}; accepted: {', '.join(sorted(KEYS))}")
    described = values.pop("agents", {})
    if not isinstance(described, dict) or not all(isinstance(settings, dict) for settings in described.values()):
        raise ValueError(f"agents: {described!r}; accepted: a table [agents.NAME] for each")
    agents = tuple(_agent(name, settings) for name, settings in described.items())
    if "scenarios" in values:
        values["scenarios"] = tuple(values["scenarios"])
    for name in values.keys() & {"title", "about"}:
        if not isinstance(values[name], str):
            raise ValueError(f"{name}: {values[name]!r}; accepted: words")
    return Comparison(agents, **values)


def _agent(name: str, settings: dict[str, Any]) -> Agent:
    if "policy" in settings:
        if extra := sorted(settings.keys() - {"policy"}):
            raise ValueError(f"agent {name!r}: {', '.join(extra)} beside policy; accepted: policy alone")
        return Agent(name, policy=settings["policy"])
    known = {spec.name for spec in dataclasses.fields(Config)} - {"seed", "scenario"}
    if unknown := sorted(settings.keys() - known):
        raise ValueError(f"agent {name!r}: {', '.join(unknown)}; accepted: policy, or {', '.join(sorted(known))}")
    settings = dict(settings)
    if "rules" in settings:
        settings["rules"] = {rule: str(value).lower() for rule, value in settings["rules"].items()}
    try:
        config = Config.of(settings)
        config.resolved()
    except (TypeError, ValueError) as error:
        raise ValueError(f"agent {name!r}: {error}") from None
    return Agent(name, config)


def compare(
    comparison: Comparison, runs: Path, jobs: int = 2, tell: Told = lambda folder, result: None
) -> list[dict[str, Any]]:
    """Train what is missing and evaluate everything; returns a row for each world and agent."""
    wanted = {
        comparison.folder(runs, scenario, agent, seed): dataclasses.replace(agent.config, scenario=scenario, seed=seed)
        for scenario in comparison.scenarios
        for agent in comparison.agents
        if agent.config is not None
        for seed in comparison.all_seeds
    }
    results = train_all(wanted, jobs, tell)
    rows = [
        _row(comparison, runs, scenario, agent, results)
        for scenario in comparison.scenarios
        for agent in comparison.agents
    ]
    for row in rows:
        reference = next(one for one in rows if one["scenario"] == row["scenario"])
        if row is not reference:
            row["difference"] = dataclasses.asdict(paired_difference(row["scores"], reference["scores"]))
            row["spl_difference"] = dataclasses.asdict(paired_difference(row["spl"], reference["spl"]))
            row["improvement"] = probability_of_improvement(row["scores"], reference["scores"])
    return rows


def write_page(
    comparison: Comparison, runs: Path, rows: Sequence[dict[str, Any]], page: Path, name: str, command: str
) -> Path:
    """Write a comparison's page, figure and numbers; returns where the page is."""
    page.mkdir(parents=True, exist_ok=True)
    save_figure(figure(comparison, runs, rows), page / f"{name}.png")
    replace_text(page / f"{name}.json", json.dumps({"episodes": comparison.episodes, "rows": rows}) + "\n")
    seeds = comparison.all_seeds
    words = (
        f"Last checkpoint of every run, no picking; seeds {seeds[0]} to {seeds[-1]}, {comparison.episodes:,} held-out"
        " episodes each. Success is the interquartile mean over seeds with its 95 % bootstrap interval. Against the"
        " first agent of a world: the mean difference over shared seeds (of success in points), with its interval"
        " and the p of a permutation test, bold where the interval does not hold zero and p < 0.05. Parameters are the"
        f" weights and biases of the hidden layers that are not zero. Scores of every seed: [{name}.json]({name}.json)."
    )
    parts = [
        f"# {comparison.title}", comparison.about.strip(), words, table(rows), f"![{comparison.title}]({name}.png)",
        f"Training took, in seconds of one core, median over seeds: {times(rows)}.", f"Made by `{command}`.",
    ]  # fmt: skip
    replace_text(page / f"{name}.md", "\n\n".join(part for part in parts if part) + "\n")
    return page / f"{name}.md"


def _row(
    comparison: Comparison, runs: Path, scenario: str, agent: Agent, results: dict[Path, dict[str, Any]]
) -> dict[str, Any]:
    """What an agent did in a world: its scores seed by seed, and what they amount to."""
    summaries: list[dict[str, Any]] = []
    sizes: list[dict[str, Any]] = []
    for seed in comparison.all_seeds:
        if agent.config is None:
            first = HELD_OUT + seed * BLOCK
            summaries.append(
                evaluate(make_policy(str(agent.policy)), Scenario.of(scenario), comparison.episodes, first).summary()
            )
        else:
            folder = comparison.folder(runs, scenario, agent, seed)
            summaries.append(evaluate_held_out(load_navigator(folder), comparison.episodes).summary())
            sizes.append({key: results[folder][key] for key in ("depth", "density", "parameters", "seconds")})
    scores = [summary["success"] for summary in summaries]
    reached = [summary["mean_steps"] for summary in summaries if summary["mean_steps"] is not None]
    return {
        "scenario": scenario,
        "agent": agent.name,
        "seeds": list(comparison.all_seeds),
        "scores": scores,
        "success": interquartile_mean(scores),
        "worst": min(scores),
        "mean_steps": float(np.mean(reached)) if reached else None,
        "spl": [summary["spl"] for summary in summaries],
        **{key: [size[key] for size in sizes] for key in ("depth", "density", "parameters", "seconds")},
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows as Markdown."""
    header = [
        "world", "agent", "success: IQM [95 %]", "worst seed", "against the first [95 %], p", "mean steps", "SPL",
        "against the first [95 %], p", "depth", "density", "parameters",
    ]  # fmt: skip
    lines = []
    for row in rows:
        middle, low, high = row["success"]
        steps = "-" if row["mean_steps"] is None else f"{row['mean_steps']:.0f}"
        cells = [
            Path(row["scenario"]).stem,
            row["agent"],
            f"{middle:.2%} [{low:.2%}, {high:.2%}]",
            f"{row['worst']:.2%}",
            _against(row.get("difference"), 100.0, ".2f"),
            steps,
            _mean(row["spl"], ".3f"),
            _against(row.get("spl_difference"), 1.0, ".3f"),
            _mean(row["depth"], ".1f"),
            _mean(row["density"], ".3f"),
            _mean(row["parameters"], ",.0f"),
        ]
        lines.append(cells)
    return markdown_table(header, lines)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def _against(difference: dict[str, float] | None, unit: float, form: str) -> str:
    """A paired difference; bold where it is shown."""
    if difference is None:
        return ""
    mean, low, high = (format(unit * difference[key], f"+{form}") for key in ("mean", "low", "high"))
    text = f"{mean} [{low}, {high}], {difference['p']:.3f}"
    return f"**{text}**" if Paired(**difference).shown else text


def times(rows: Sequence[dict[str, Any]]) -> str:
    """How long training took; the one thing that differs when everything is made again."""
    return "; ".join(
        f"{row['agent']} on {Path(row['scenario']).stem} {np.median(row['seconds']):.0f}"
        for row in rows
        if row["seconds"]
    )


def _mean(values: Sequence[float], form: str) -> str:
    return format(float(np.mean(values)), form) if values else "-"


def figure(comparison: Comparison, runs: Path, rows: Sequence[dict[str, Any]]) -> Figure:
    """Validated success over training steps with bands, and held-out success against parameters in use."""
    worlds = comparison.scenarios
    drawing = Figure(figsize=(13, 4.6 * len(worlds)), layout="constrained")
    panels = drawing.subplots(len(worlds), 2, squeeze=False)
    for (curves, sizes), world in zip(panels, worlds, strict=True):
        for n, agent in enumerate(comparison.agents):
            row = next(one for one in rows if one["scenario"] == world and one["agent"] == agent.name)
            colour, (middle, low, high) = f"C{n}", row["success"]
            if agent.config is None:
                for axes in (curves, sizes):
                    axes.axhspan(low, high, color=colour, alpha=0.25, linewidth=0)
                    axes.axhline(middle, color=colour, linestyle="--", linewidth=1.0, label=agent.name)
                continue
            folders = [comparison.folder(runs, world, agent, seed) for seed in comparison.all_seeds]
            steps, values = validation_curves(folders)
            draw_band(curves, steps / 1e6, values, colour, agent.name)
            sizes.plot(row["parameters"], row["scores"], "o", color=colour, alpha=0.7, label=agent.name)
        curves.set_ylim(0, 1.03)
        curves.set_xlabel("steps, millions")
        curves.set_ylabel(f"success in validation on {Path(world).stem}: IQM, 95 %")
        sizes.set_xlabel("weights and biases of the stack that are not zero")
        sizes.set_ylabel("held-out success of each seed's last checkpoint")
        for axes in (curves, sizes):
            axes.grid(alpha=0.3)
            axes.legend(fontsize=8)
    return drawing


def validation_curves(folders: Sequence[Path], points: int = 60) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Success in validation of several runs at the same numbers of steps: (points,) and (runs, points)."""
    curves = []
    for folder in folders:
        lines = [line for line in read_log(folder, "metrics") if line["validation"] is not None]
        curves.append(([line["steps"] for line in lines], [line["validation"]["success"] for line in lines]))
    steps = np.linspace(max(c[0][0] for c in curves), min(c[0][-1] for c in curves), points)
    return steps, np.array([np.interp(steps, *curve) for curve in curves])


def chosen_agents(learners: Sequence[str], networks: Sequence[str], baselines: Sequence[str]) -> tuple[Agent, ...]:
    """Agents by flags: every learner with every network (`gpf`, or a fixed depth), then the baselines."""
    for network in networks:
        if not re.fullmatch(r"gpf|[1-9]\d*", network):
            raise ValueError(f"networks: {network!r}; accepted: gpf, or a number of layers")
    trained = [
        _agent(
            f"{learner}, {'GPF' if network == 'gpf' else f'depth {network}'}",
            {"learner": learner, **({} if network == "gpf" else {"gpf": False, "depth": int(network)})},
        )
        for learner in learners
        for network in networks
    ]
    return (*trained, *(Agent(name, policy=name) for name in baselines))

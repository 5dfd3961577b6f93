"""Compares navigators and baselines in several worlds over many seeds, in one table and one figure."""

import dataclasses
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gpf.navigation.agents import load_navigator
from gpf.navigation.config import Config
from gpf.navigation.evaluate import evaluate
from gpf.navigation.policies import POLICIES, make_policy
from gpf.navigation.seeds import BLOCK, HELD_OUT
from gpf.plume.scenario import Scenario
from gpf.reports.figures import draw_band
from gpf.reports.pages import Numbers, join, write_page
from gpf.reports.statistics import (
    centre_name,
    interval_words,
    over_seeds,
    paired_difference,
    probability_of_improvement,
)
from gpf.reports.tables import markdown_table, show_paired, summary
from gpf.reports.verdicts import Family, caution, corrected
from gpf.runs.executors import Executor, Tell
from gpf.runs.folder import Outcome
from gpf.settings import check, choose, number, read, shown
from gpf.studies.engine import Cell, Study, place_of
from gpf.tasks.plume import TASK


@dataclass(frozen=True)
class Agent:
    """An agent: a learner with its settings, or a baseline."""

    name: str
    config: Config | None = None
    policy: str | None = None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Agents, scenarios and seeds of a comparison; the content of a .toml file."""

    agents: dict[str, dict[str, Any]]
    """By name, the settings of a navigator, or `policy` alone; the others are compared with the first."""
    scenarios: tuple[str, ...] = ("reference",)
    seeds: int = number(10, 1)
    first_seed: int = number(0, 0)
    episodes: int = number(1000, 1, BLOCK)
    """Held-out episodes of each seed's last checkpoint."""
    title: str = "A comparison"
    about: str = ""
    """Introduction above the table."""

    def __post_init__(self) -> None:
        check(self)
        if not self.agents:
            raise ValueError("agents must be at least one table [agents.NAME]")
        if not self.scenarios:
            raise ValueError("scenarios must name at least one")
        for scenario in self.scenarios:
            Scenario.of(scenario)
        self.study()

    @cached_property
    def made(self) -> tuple[Agent, ...]:
        """The agents."""
        return tuple(_agent(name, settings) for name, settings in self.agents.items())

    @property
    def all_seeds(self) -> range:
        """The seeds of its runs."""
        return range(self.first_seed, self.first_seed + self.seeds)

    def study(self) -> Study:
        """Its runs."""

        def cell(scenario: str, name: str, config: Config) -> Cell:
            place = Path(Path(scenario).stem, place_of(name))
            return Cell(scenario, name, lambda seed: dataclasses.replace(config, scenario=scenario, seed=seed), place)

        trained = [(agent.name, agent.config) for agent in self.made if agent.config is not None]
        cells = [cell(scenario, name, config) for scenario in self.scenarios for name, config in trained]
        return Study(TASK, self.all_seeds, cells)


def read_comparison(path: Path, changes: Mapping[str, Any] | None = None) -> Comparison:
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
    return read(Comparison, {"agents": {}, **read_toml(path), **(changes or {})}, str(path))


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} cannot be read as TOML ({error})") from None


def chosen_agents(
    learners: Sequence[str], networks: Sequence[str], baselines: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Agents by flags: every learner with every network (`gpf`, or a fixed depth), then the baselines."""
    agents: dict[str, dict[str, Any]] = {}
    for learner in learners:
        for network in networks:
            if not re.fullmatch(r"gpf|[1-9]\d*", network):
                raise ValueError(f"networks must be gpf or a number of layers, got {network!r}")
            fixed = {} if network == "gpf" else {"gpf": False, "depth": int(network)}
            agents[f"{learner}, {'GPF' if network == 'gpf' else f'depth {network}'}"] = {"learner": learner, **fixed}
    return agents | {name: {"policy": name} for name in baselines}


def _agent(name: str, settings: dict[str, Any]) -> Agent:
    try:
        if "policy" in settings:
            if len(settings) > 1:
                raise ValueError(f"policy must stand alone, got {shown(sorted(settings))}")
            return Agent(name, policy=choose("policy", settings["policy"], POLICIES))
        for field_name in ("seed", "scenario", "evaluate"):
            if field_name in settings:
                raise ValueError(f"{field_name} is a setting of the comparison, not of an agent")
        return Agent(name, Config.of(settings, evaluate=0))  # the comparison evaluates
    except ValueError as error:
        raise ValueError(f"agent {name!r}: {error}") from None


def compare_navigators(
    comparison: Comparison, runs: Path, folder: Path, name: str, command: str, executor: Executor, tell: Tell
) -> Path:
    """Train what is missing, evaluate everything, and write the page; returns where it is."""
    outcomes = comparison.study().train(runs, executor, tell)
    rows = [
        _row(comparison, scenario, agent, outcomes.get((scenario, agent.name), []))
        for scenario in comparison.scenarios
        for agent in comparison.made
    ]
    numbers: Numbers = {
        "kind": "navigators",
        "title": comparison.title,
        "about": comparison.about.strip(),
        "command": command,
        "episodes": comparison.episodes,
        "rows": [{**row, **derived(row, rows)} for row in rows],
    }
    drawing = figure(comparison, outcomes, rows)
    return write_page(folder, name, numbers, page(numbers, name), {f"{name}.png": drawing})


def _row(comparison: Comparison, scenario: str, agent: Agent, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """An agent's scores in a world, by seed and in summary."""
    episodes = comparison.episodes
    if agent.policy is None:
        evaluations = [load_navigator(one.folder).evaluate(episodes) for one in outcomes]
    else:
        world, policy = Scenario.of(scenario), agent.policy
        evaluations = [
            evaluate(make_policy(policy), world, episodes, HELD_OUT + seed * BLOCK) for seed in comparison.all_seeds
        ]
    summaries = [one.summary() for one in evaluations]
    scores = [float(summary["success"] or 0.0) for summary in summaries]
    reached = [summary["mean_steps"] for summary in summaries if summary["mean_steps"] is not None]
    sizes = ("depth", "density", "parameters", "seconds")
    return {
        "scenario": scenario,
        "agent": agent.name,
        "seeds": list(comparison.all_seeds),
        "scores": scores,
        "worst": min(scores),
        "mean_steps": float(np.mean(reached)) if reached else None,
        "spl": [summary["spl"] for summary in summaries],
        **{key: [one.result[key] for one in outcomes] for key in sizes},
    }


def derived(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Summary of an agent's scores, and differences from the first agent of its world; for other programs."""
    reference = _reference(row, rows)
    found: dict[str, Any] = {"success": over_seeds(row["scores"])}
    if row is not reference:
        found["difference"] = dataclasses.asdict(paired_difference(row["scores"], reference["scores"]))
        found["spl_difference"] = dataclasses.asdict(paired_difference(row["spl"], reference["spl"]))
        found["improvement"] = probability_of_improvement(row["scores"], reference["scores"])
    return found


def _reference(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first agent of the world of another."""
    return next(one for one in rows if one["scenario"] == row["scenario"])


# The page


def page(numbers: Numbers, name: str) -> str:
    """The text of a page."""
    return corrected(lambda family: _page(numbers, name, family))


def _page(numbers: Numbers, name: str, family: Family) -> str:
    rows = numbers["rows"]
    seeds = rows[0]["seeds"]
    return join(
        [
            f"# {numbers['title']}",
            numbers["about"],
            f"Last checkpoint of every run, no picking; seeds {seeds[0]} to {seeds[-1]}, {numbers['episodes']:,}"
            f" held-out episodes each. Success rates are {interval_words(len(seeds))}. Differences from the first agent"
            " of a world are means over shared seeds (of success in points), with 95 % intervals by Student's t and the"
            " p of a permutation test; bold ones are significant after correction."
            " Parameters are all nonzero weights and biases of the network. Scores of every seed:"
            f" [{name}.json]({name}.json).",
            caution(len(seeds)),
            table(rows, family),
            family.sentence,
            f"![{numbers['title']}]({name}.png)",
            f"Training time on one core, s, median over seeds: {times(rows)}.",
            f"Made by `{numbers['command']}`.",
        ]
    )


def table(rows: Sequence[dict[str, Any]], family: Family) -> str:
    """The rows as Markdown."""
    success = f"success rate ({centre_name(len(rows[0]['seeds']))}, 95 % CI)"
    header = [
        "world", "agent", success, "worst seed", "difference (95 % CI), p", "mean steps", "SPL",
        "difference (95 % CI), p", "depth", "density", "parameters",
    ]  # fmt: skip
    lines = [
        [
            Path(row["scenario"]).stem,
            row["agent"],
            summary(row["scores"], ".2%"),
            f"{row['worst']:.2%}",
            _against(row, rows, "scores", ".2f", 100.0, family),
            "-" if row["mean_steps"] is None else f"{row['mean_steps']:.0f}",
            _mean(row["spl"], ".3f"),
            _against(row, rows, "spl", ".3f", 1.0, family),
            _mean(row["depth"], ".1f"),
            _mean(row["density"], ".3f"),
            _mean(row["parameters"], ",.0f"),
        ]
        for row in rows
    ]
    return markdown_table(header, lines)


def _against(
    row: dict[str, Any], rows: Sequence[dict[str, Any]], key: str, form: str, scale: float, family: Family
) -> str:
    """The paired difference from the first agent of the same world; bold where it is shown."""
    reference = _reference(row, rows)
    if row is reference:
        return ""
    d = family.compare(row[key], reference[key])
    text = show_paired(d, form, scale) + (f", {d.p:.3f}" if d.seeds > 1 else "")
    return f"**{text}**" if family.shows(d) else text


def times(rows: Sequence[dict[str, Any]]) -> str:
    """How long training took; the one thing that differs when everything is made again."""
    return "; ".join(
        f"{row['agent']} on {Path(row['scenario']).stem} {np.median(row['seconds']):.0f}"
        for row in rows
        if row["seconds"]
    )


def _mean(values: Sequence[float], form: str) -> str:
    return format(float(np.mean(values)), form) if values else "-"


def figure(
    comparison: Comparison, outcomes: Mapping[tuple[str, str], Sequence[Outcome]], rows: Sequence[dict[str, Any]]
) -> Figure:
    """Validated success over training steps with bands, and held-out success against parameters in use."""
    worlds = comparison.scenarios
    drawing = Figure(figsize=(13, 4.6 * len(worlds)), layout="constrained")
    panels = drawing.subplots(len(worlds), 2, squeeze=False)
    for (curves, sizes), world in zip(panels, worlds, strict=True):
        for n, agent in enumerate(comparison.made):
            row = next(one for one in rows if one["scenario"] == world and one["agent"] == agent.name)
            colour, (middle, low, high) = f"C{n}", over_seeds(row["scores"])
            if agent.policy is not None:
                for axes in (curves, sizes):
                    axes.axhspan(low, high, color=colour, alpha=0.25, linewidth=0)
                    axes.axhline(middle, color=colour, linestyle="--", linewidth=1.0, label=agent.name)
                continue
            steps, values = validation_curves(outcomes[world, agent.name])
            draw_band(curves, steps / 1e6, values, colour, agent.name)
            sizes.plot(row["parameters"], row["scores"], "o", color=colour, alpha=0.7, label=agent.name)
        curves.set_ylim(0, 1.03)
        curves.set_xlabel("steps, millions")
        curves.set_ylabel(f"success in validation on {Path(world).stem}: {centre_name(comparison.seeds)}, 95 %")
        sizes.set_xlabel("nonzero weights and biases")
        sizes.set_ylabel("held-out success of each seed's last checkpoint")
        for axes in (curves, sizes):
            axes.grid(alpha=0.3)
            axes.legend(fontsize=8)
    return drawing


def validation_curves(outcomes: Sequence[Outcome], points: int = 60) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Success in validation of several runs at the same numbers of steps: (points,) and (runs, points)."""
    curves = []
    for one in outcomes:
        lines = [line for line in one.lines if line["validation"] is not None]
        curves.append(([line["step"] for line in lines], [line["validation"]["success"] for line in lines]))
    steps = np.linspace(max(c[0][0] for c in curves), min(c[0][-1] for c in curves), points)
    return steps, np.array([np.interp(steps, *curve) for curve in curves])

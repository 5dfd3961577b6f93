"""How well the navigators find the source: every learner, both observations, both worlds, many seeds.

    python benchmarks/navigators.py [--seeds 10] [--scenarios reference paper] [--jobs 2]
                                    [--runs runs/navigators] [--write]

Each run is evaluated at its last checkpoint in 2,000 held-out episodes of its own. Seeds begin at 100: those below were
looked at while settings were chosen. Finished runs are kept in --runs and not repeated.
`--write` puts the tables into docs/navigators.md.
"""

import argparse
import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
from documents import insert

from gpf.navigation.config import Config
from gpf.navigation.evaluate import evaluate
from gpf.navigation.policies import CastAndSurge
from gpf.navigation.statistics import interquartile_mean
from gpf.plume.scenario import Scenario
from gpf.progress import runs_progress
from gpf.tasks.many import train_all

FIRST_SEED = 100
AGENTS = {
    "policy gradient, memory": Config(),
    "policy gradient, 22 inputs": Config(observation="onehot"),
    "Expected SARSA, memory": Config(learner="parallel", observation="memory"),
    "Q-learning, memory": Config(learner="parallel", observation="memory", q_learning=True),
    "Expected SARSA, 22 inputs": Config(learner="parallel"),
    "online Expected SARSA, 22 inputs": Config(learner="online"),
}
GROWTH = {
    "GPF, new layers on trial (default)": Config(),
    "GPF, every new layer stays": Config(rules={"grow_trial": "null"}),
    "no GPF, one layer": Config(gpf=False),
    "no GPF, three layers": Config(gpf=False, depth=3),
}


def main() -> None:
    """Train what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--scenarios", nargs="+", default=["reference", "paper"])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs/navigators"))
    parser.add_argument("--write", action="store_true", help="put the tables into docs/navigators.md")
    arguments = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.seeds)
    tables = {
        "navigators": navigators_table(arguments.runs, arguments.scenarios, seeds, arguments.jobs),
        "growth": growth_table(arguments.runs, seeds[:5], arguments.jobs),
    }
    for name, text in tables.items():
        print(text)
        if arguments.write:
            insert("docs/navigators.md", name, text)


def navigators_table(runs: Path, scenarios: list[str], seeds: range, jobs: int) -> str:
    """All agents in all worlds."""
    wanted = {
        folder(runs, scenario, agent, seed): dataclasses.replace(config, scenario=scenario, seed=seed)
        for scenario in scenarios
        for agent, config in AGENTS.items()
        for seed in seeds
    }
    with runs_progress(str(runs), len(wanted)) as tell:
        results = train_all(wanted, jobs, tell)
    lines = [
        "| scenario | agent | success: IQM [95 %] | worst seed | mean steps | SPL | depth | density |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for scenario in scenarios:
        for agent in AGENTS:
            chosen = [results[folder(runs, scenario, agent, seed)] for seed in seeds]
            lines.append(f"| {scenario} | {agent} | {row(chosen)} |")
        baseline = evaluate(CastAndSurge(), Scenario.preset(scenario), 20_000).summary()
        rate = f"{baseline['success']:.2%} [{baseline['low']:.2%}, {baseline['high']:.2%}]"
        steps, spl = baseline["mean_steps"], baseline["spl"]
        lines.append(f"| {scenario} | cast-and-surge, 20,000 episodes | {rate} | | {steps:.0f} | {spl:.3f} | | |")
    return "\n".join(lines)


def growth_table(runs: Path, seeds: range, jobs: int) -> str:
    """The default learner with and without growing, pruning and freezing."""
    places = {agent: "policy gradient, memory" if config == Config() else agent for agent, config in GROWTH.items()}
    wanted = {
        folder(runs, "reference", places[agent], seed): dataclasses.replace(config, seed=seed)
        for agent, config in GROWTH.items()
        for seed in seeds
    }
    with runs_progress(str(runs), len(wanted)) as tell:
        results = train_all(wanted, jobs, tell)
    lines = [
        "| network | success: IQM [95 %] | worst seed | mean steps | SPL | depth | density | layers frozen | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for agent in GROWTH:
        chosen = [results[folder(runs, "reference", places[agent], seed)] for seed in seeds]
        frozen = np.mean([len(result["frozen"]) for result in chosen])
        seconds = np.median([result["seconds"] for result in chosen])
        lines.append(f"| {agent} | {row(chosen)} | {frozen:.1f} | {seconds:.0f} |")
    return "\n".join(lines)


def folder(runs: Path, scenario: str, agent: str, seed: int) -> Path:
    """Where a run is kept."""
    return runs / scenario / re.sub(r"[^\w-]+", "-", agent) / str(seed)


def row(results: list[dict[str, Any]]) -> str:
    """The columns that both tables share."""
    success = [result["success"] for result in results]
    middle, low, high = interquartile_mean(success)
    return (
        f"{middle:.2%} [{low:.2%}, {high:.2%}] | {min(success):.2%}"
        f" | {np.mean([result['mean_steps'] or np.nan for result in results]):.0f}"
        f" | {np.mean([result['spl'] for result in results]):.3f}"
        f" | {np.mean([result['depth'] for result in results]):.1f}"
        f" | {np.mean([result['density'] for result in results]):.3f}"
    )


if __name__ == "__main__":
    main()

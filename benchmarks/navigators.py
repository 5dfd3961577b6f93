"""How well the navigators find the source: every learner, both observations, both worlds, many seeds.

    python benchmarks/navigators.py [--seeds 10] [--jobs 2] [--runs runs/navigators] [--write]

Each run is evaluated at its last checkpoint in 2,000 held-out episodes of its own. Finished runs are kept in --runs and
not repeated. `--write` puts the tables into docs/navigators.md.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from documents import insert
from many import train_all

from gpf.navigation.evaluate import evaluate
from gpf.navigation.policies import CastAndSurge
from gpf.navigation.statistics import interquartile_mean
from gpf.plume.scenario import Scenario

AGENTS: dict[str, list[str]] = {
    "policy gradient, memory": [],
    "Expected SARSA, memory": ["--learner", "parallel", "--observation", "memory"],
    "Q-learning, memory": ["--learner", "parallel", "--observation", "memory", "--q-learning"],
    "Expected SARSA, 22 inputs": ["--learner", "parallel"],
    "Q-learning, 22 inputs": ["--learner", "parallel", "--q-learning"],
    "policy gradient, 22 inputs": ["--observation", "onehot"],
    "online Expected SARSA, 22 inputs": ["--learner", "online"],
    "online Q-learning, 22 inputs": ["--learner", "online", "--q-learning"],
}
GROWTH: dict[str, list[str]] = {
    "GPF, new layers on trial (default)": [],
    "GPF, every new layer stays": ["--rules", "grow_trial", "null"],
    "no GPF, one layer": ["--no-gpf"],
    "no GPF, three layers": ["--no-gpf", "--depth", "3"],
}


def main() -> None:
    """Train what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs/navigators"))
    parser.add_argument("--write", action="store_true", help="put the tables into docs/navigators.md")
    arguments = parser.parse_args()
    seeds = range(arguments.seeds)
    tables = {
        "navigators": navigators_table(arguments.runs, seeds, arguments.jobs),
        "growth": growth_table(arguments.runs, seeds[:5], arguments.jobs),
    }
    for name, text in tables.items():
        print(text)
        if arguments.write:
            insert("docs/navigators.md", name, text)


def navigators_table(runs: Path, seeds: range, jobs: int) -> str:
    """All agents in both worlds."""
    wanted = {
        folder(runs, scenario, agent, seed): ["--scenario", scenario, "--seed", str(seed), *flags]
        for scenario in ("reference", "paper")
        for agent, flags in AGENTS.items()
        for seed in seeds
    }
    results = train_all(wanted, jobs)
    lines = [
        "| scenario | agent | success: IQM [95 %] | worst seed | mean steps | SPL | depth | density |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for scenario in ("reference", "paper"):
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
    places = {agent: "policy gradient, memory" if not flags else agent for agent, flags in GROWTH.items()}
    wanted = {
        folder(runs, "reference", places[agent], seed): ["--seed", str(seed), *flags]
        for agent, flags in GROWTH.items()
        for seed in seeds
    }
    results = train_all(wanted, jobs)
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
    return runs / scenario / agent.replace(",", "").replace(" ", "-") / str(seed)


def row(results: list[dict[str, Any]]) -> str:
    """The columns that both tables share."""
    success = [result["success"] for result in results]
    middle, low, high = interquartile_mean(success)
    return (
        f"{middle:.2%} [{low:.2%}, {high:.2%}] | {min(success):.2%}"
        f" | {np.mean([result['mean_steps'] for result in results]):.0f}"
        f" | {np.mean([result['spl'] for result in results]):.3f}"
        f" | {np.mean([result['depth'] for result in results]):.1f}"
        f" | {np.mean([result['density'] for result in results]):.3f}"
    )


if __name__ == "__main__":
    main()

"""Navigators based on a world model: one that plans in it, and some that were trained in it alone."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from gpf.navigation import policy_gradient
from gpf.navigation.acting import NetworkPolicy
from gpf.navigation.agents import load_navigator
from gpf.navigation.evaluate import Evaluation, Progress, evaluate
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.policies import CastAndSurge, Policy
from gpf.navigation.seeds import BLOCK, HELD_OUT, VALIDATION
from gpf.navigation.tokenized import SMELL, Tokenized
from gpf.plume.scenario import Scenario
from gpf.reports.pages import Numbers, join
from gpf.reports.statistics import interval_words
from gpf.reports.tables import markdown_table, summary
from gpf.runs.folder import undamaged
from gpf.world_model.dreaming import learn_in_imagination
from gpf.world_model.planner import Planner, Scoring
from gpf.world_model.trained import TrainedWorld

LATENCIES, WARM_UP = 300, 20
"""Planning steps that are timed, one world at a time, after some that are not."""


def make_follow(name: str, scenario: Scenario) -> Tokenized | None:
    """Policy of rollouts: the first action again (`repeat`), cast-and-surge, or a run's navigator; all see tokens."""
    if name == "repeat":
        return None
    if name == "cast-and-surge":
        return Tokenized(CastAndSurge(), scenario, SMELL)
    if not Path(name).is_dir():
        raise ValueError(f"follow must be repeat, cast-and-surge or the folder of a run of gpf train, got {name!r}")
    policy = load_navigator(Path(name)).policy
    return Tokenized(policy, scenario, SMELL if policy.observation == "memory" else 1)


def make_planner(world: TrainedWorld, follow: str, scoring: Scoring, **options: Any) -> Planner:
    """A planner in the world of a model."""
    if scoring.value and Path(follow).is_dir():
        learner = load_navigator(Path(follow)).config.learner
        if isinstance(learner, policy_gradient.Settings) and learner.critic == "privileged":
            raise ValueError(f"value must be 0 with {follow}, whose critic was for learning only; got {scoring.value}")
    return Planner(
        world.model, world.scenario, make_follow(follow, world.scenario), scoring=scoring, coupling=world.coupling,
        **options,
    )  # fmt: skip


class _Timed:
    """A policy whose every choice is timed."""

    PER_LANE: ClassVar[tuple[str, ...]] = ("policy",)

    def __init__(self, policy: Policy) -> None:
        self.policy, self.seconds = policy, list[float]()

    def begin(self, seeds: Sequence[int], scenario: Scenario) -> None:
        self.policy.begin(seeds, scenario)

    def act(self, *observed: Any) -> None:
        started = time.perf_counter()
        self.policy.act(*observed)
        self.seconds.append(time.perf_counter() - started)


def latencies(planner: Planner, count: int | None = None) -> list[float]:
    """Seconds of planning steps in one world, on one thread; the first ones, which warm up, do not count."""
    count = LATENCIES if count is None else count
    before, timed, episode = torch.get_num_threads(), _Timed(planner), 0
    torch.set_num_threads(1)
    try:
        while len(timed.seconds) < count + WARM_UP:
            evaluate(timed, planner.scenario, 1, VALIDATION + episode)
            episode += 1
    finally:
        torch.set_num_threads(before)
    return timed.seconds[WARM_UP : count + WARM_UP]


def check_held_out(episodes: int, seed: int) -> None:
    """Refuse a block of held-out episodes that there cannot be."""
    if not 0 <= seed < BLOCK:
        raise ValueError(f"seed must be 0 to {BLOCK - 1}, got {seed}")
    if not 1 <= episodes <= BLOCK:
        raise ValueError(f"episodes must be 1 to {BLOCK}, got {episodes}")


def held_out(
    policy: Policy, scenario: Scenario, episodes: int, seed: int = 0, progress: Progress | None = None, paths: int = 0
) -> Evaluation:
    """A policy in episodes that nothing was chosen on."""
    check_held_out(episodes, seed)
    return evaluate(policy, scenario, episodes, HELD_OUT + seed * BLOCK, paths=paths, progress=progress)


def passed_by(result: Evaluation) -> float | None:
    """Of the failures whose paths were kept, the share that ended upwind of the source; None without failures."""
    ends = [path[-1, 0] for episode, path in result.paths.items() if not result.success[episode]]
    return float(np.mean(np.array(ends) < 0.0)) if ends else None


def baselines_of(scenario: Scenario) -> dict[str, Policy]:
    """Policies to compare a planner with."""
    return {
        "cast-and-surge that sees the same tokens": Tokenized(CastAndSurge(), scenario, SMELL),
        "cast-and-surge, raw": CastAndSurge(),
    }


def imagined_navigator(
    world: TrainedWorld, epochs: int, seed: int, progress: Callable[[int], None] = lambda epochs: None
) -> tuple[Tokenized, list[float | None]]:
    """A navigator trained in imagination only; it sees only tokens."""
    model, curve = learn_in_imagination(world, epochs, seed, progress=progress)
    policy = NetworkPolicy(FlatNetwork(model), "memory", "sampled", world.scenario)
    return Tokenized(policy, world.scenario, SMELL), curve


def outcome_table(outcomes: dict[str, dict[str, Any]]) -> str:
    """Evaluations of several policies as Markdown."""
    rows = [
        [
            name,
            f"{one['success']:.2%} [{one['low']:.2%}, {one['high']:.2%}]",
            "-" if one["mean_steps"] is None else f"{one['mean_steps']:.0f}",
            f"{one['spl']:.3f}",
            f"{one['episodes']:,}",
        ]
        for name, one in outcomes.items()
    ]
    return markdown_table(["", "success [95 %]", "steps to the source", "SPL", "episodes"], rows)


def navigators_beside(path: Path, scenario: Scenario) -> str:
    """The navigators of a comparison (its .json) in a world, as Markdown."""
    try:
        numbers = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"beside must be the numbers of a gpf compare, got {path} ({error})") from None
    with undamaged(path):
        rows = [row for row in numbers["rows"] if Scenario.of(row["scenario"]) == scenario]
        table = [
            [
                row["agent"],
                summary(row["scores"], ".2%"),
                "-" if row["mean_steps"] is None else f"{row['mean_steps']:.0f}",
                f"{np.mean(row['spl']):.3f}",
                f"{len(row['seeds'])}",
            ]
            for row in rows
        ]
    if not rows:
        raise ValueError(f"beside must be numbers from the same world, but {path} has no agent in it")
    return (
        f"For comparison, from [{path.stem}]({path.stem}.md), agents that see more than tokens or were trained in the"
        f" plume: {interval_words(min(len(row['seeds']) for row in rows))}, last checkpoints.\n\n"
        + markdown_table(["", "success [95 %]", "steps to the source", "SPL", "seeds"], table)
    )


def planner_page(numbers: Numbers, name: str) -> str:
    """The text of the page of a planner."""
    return join(
        [
            "# Planning in imagination",
            outcome_table(numbers["outcomes"]),
            f"A planning step is {numbers['rollouts']} rollouts of {numbers['horizon']} steps;"
            " `benchmarks/world_speed.py` measures its time (see docs/world-model.md).",
            numbers["beside"],
            f"Made by `{numbers['command']}`.",
        ]
    )


def dream_page(numbers: Numbers, name: str) -> str:
    """The text of the page of navigators that have learned in imagination."""
    latest = [[share for share in curve if share is not None][-10:] for curve in numbers["imagined_success"]]
    imagined = ", ".join(f"{np.mean(some):.1%}" for some in latest if some)
    passed = ", ".join("-" if share is None else f"{share:.0%}" for share in numbers["passed_by"])
    return join(
        [
            "# Navigators trained in imagination only",
            "PPO from scratch, in lanes that the world model generates; then evaluated in held-out episodes in the"
            " plume. All rows except the last one see only tokens.",
            outcome_table(numbers["outcomes"]),
            f"Of the imagined episodes that ended in the last ten rollouts of training, {imagined or 'none'} found an"
            f" imagined source, by seed. In the plume, of the first 200 failures of each, {passed} ended upwind of the"
            " source: the navigator had flown past it. The model does not know where the source is. In imagination, any"
            " agent that keeps flying upwind finds it, and a lost smell returns as often as it did for the behaviours"
            " of the data, most of which were able to find it again.",
            f"Made by `{numbers['command']}`.",
        ]
    )


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """Milliseconds at the middle and at the 99th percentile."""
    p50, p99 = np.quantile(seconds, (0.5, 0.99)) * 1e3
    return {"p50_ms": float(p50), "p99_ms": float(p99)}

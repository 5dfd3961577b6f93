"""Agents over many worlds: performance profiles, ranks, probability of improvement, reversals.

Intervals are of a stratified bootstrap (Agarwal et al. 2021): seeds are drawn again within each world.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from gpf.reports.statistics import TAILS
from gpf.reports.verdicts import ENOUGH_SEEDS, Family

Scores = Mapping[str, Mapping[str, Mapping[int, float]]]
"""By agent, world and seed."""
Interval = tuple[float, float, float]
"""A number with the ends of its 95 % interval."""
RESAMPLES = 2000


def _drawn(values: NDArray[np.float64], resamples: int, *place: int) -> NDArray[np.float64]:
    """Resamples of the seeds of an agent in a world, with replacement; always the same ones, (resamples, seeds)."""
    return np.random.default_rng(place).choice(values, (resamples, len(values)))


def _interval(value: float, draws: NDArray[np.float64]) -> Interval:
    low, high = np.quantile(draws, TAILS)
    return value, float(low), float(high)


def _arrays(scores: Mapping[str, Mapping[int, float]]) -> list[NDArray[np.float64]]:
    """The scores of an agent, one array for each world."""
    return [np.array(list(seeds.values())) for seeds in scores.values()]


def profile(
    scores: Mapping[str, Mapping[int, float]], thresholds: NDArray[np.float64], resamples: int = RESAMPLES
) -> NDArray[np.float64]:
    """The share of an agent's (world, seed) runs that score above each threshold; rows value, low and high."""
    worlds = _arrays(scores)
    drawn = np.concatenate([_drawn(values, resamples, n) for n, values in enumerate(worlds)], axis=1)
    every = np.concatenate(worlds)
    shares = np.stack([(drawn > level).mean(axis=1) for level in thresholds], axis=1)
    return np.stack([[(every > level).mean() for level in thresholds], *np.quantile(shares, TAILS, axis=0)])


def complete(scores: Scores) -> list[str]:
    """The agents that have been in every world; only they can be ranked."""
    worlds = {world for of in scores.values() for world in of}
    return [agent for agent, of in scores.items() if set(of) == worlds]


def mean_ranks(scores: Scores, resamples: int = RESAMPLES) -> dict[str, Interval]:
    """The rank of each complete agent by its mean over seeds, as a mean over worlds; 1 is best, ties share a rank."""
    agents = complete(scores)
    if not agents:
        return {}
    worlds = list(scores[agents[0]])
    ranks = np.zeros((resamples, len(agents)))
    exact = np.zeros(len(agents))
    for w, world in enumerate(worlds):
        held = [np.array(list(scores[agent][world].values())) for agent in agents]
        means = np.stack([_drawn(values, resamples, w, a).mean(axis=1) for a, values in enumerate(held)], axis=1)
        ranks += stats.rankdata(-means.round(12), axis=1) / len(worlds)
        exact += stats.rankdata(-np.array([values.mean() for values in held]).round(12)) / len(worlds)
    return {agent: _interval(float(exact[a]), ranks[:, a]) for a, agent in enumerate(agents)}


def improvement(scores: Scores, agent: str, over: str, resamples: int = RESAMPLES) -> Interval:
    """How likely a run of one agent scores higher than one of another in the same world, ties counting half."""
    shared = [world for world in scores[agent] if world in scores[over]]

    def share(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> NDArray[np.float64]:
        a, b = ours[..., :, None], theirs[..., None, :]
        out: NDArray[np.float64] = ((a > b) + 0.5 * (a == b)).mean(axis=(-2, -1))
        return out

    exact, draws = 0.0, np.zeros(resamples)
    for w, world in enumerate(shared):
        mine, others = (np.array(list(scores[name][world].values())) for name in (agent, over))
        exact += float(share(mine, others)) / len(shared)
        draws += share(_drawn(mine, resamples, w, 0), _drawn(others, resamples, w, 1)) / len(shared)
    return _interval(exact, draws)


@dataclass(frozen=True)
class Reversal:
    """Two agents whose order differs between worlds, by tests that count in both directions."""

    first: str
    second: str
    first_better: tuple[str, ...]
    second_better: tuple[str, ...]


def reversals(scores: Scores, family: Family) -> list[Reversal]:
    """All pairs of agents whose ranks reverse between worlds, those with the most worlds on either side first."""
    found = []
    for one, other in itertools.combinations(scores, 2):
        better: dict[int, list[str]] = {1: [], -1: []}
        for world in scores[one]:
            theirs = scores[other].get(world, {})
            seeds = [seed for seed in scores[one][world] if seed in theirs]
            if len(seeds) < ENOUGH_SEEDS:
                continue
            d = family.compare([scores[one][world][seed] for seed in seeds], [theirs[seed] for seed in seeds])
            if family.shows(d):
                better[1 if d.mean > 0 else -1].append(world)
        if better[1] and better[-1]:
            found.append(Reversal(one, other, tuple(better[1]), tuple(better[-1])))
    return sorted(found, key=lambda r: -min(len(r.first_better), len(r.second_better)))


def scores_of(records: Sequence[Mapping[str, object]], measure: str) -> dict[str, dict[str, dict[int, float]]]:
    """A measure of some records, by agent, world and seed."""
    found: dict[str, dict[str, dict[int, float]]] = {}
    for one in records:
        worlds = found.setdefault(str(one["agent"]), {})
        worlds.setdefault(str(one["world"]), {})[int(str(one["seed"]))] = float(str(one[measure]))
    return found

"""Parameters of a hand-written policy for one world: random search, successive halving, then perturbations of the best.

Every round evaluates all its candidates on the same tuning episodes, which no evaluation reports. The score is success
plus a tenth of SPL: reliability first, speed as the tie-break.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpf.navigation.evaluate import Evaluation, evaluate
from gpf.navigation.opponents.bilateral import Bilateral
from gpf.navigation.policies import CastAndSurge
from gpf.navigation.seeds import BLOCK, TUNING
from gpf.plume.scenario import Scenario
from gpf.settings import choose


@dataclass(frozen=True)
class Space:
    """Where a policy's parameters are searched for."""

    kind: type[Any]
    """The policy, a dataclass of its parameters."""
    ranges: dict[str, tuple[float, float]]
    """Lowest and highest value of each parameter."""
    logarithmic: tuple[str, ...]
    """Parameters that are searched on a logarithmic scale."""

    def draw(self, rng: np.random.Generator) -> Any:
        """Parameters drawn from their ranges."""
        return self.kind(**{name: self.at(name, rng.random()) for name in self.ranges})

    def perturbed(self, rng: np.random.Generator, base: Any, scale: float) -> Any:
        """Parameters near those of `base`: each moved by a normal step, in units of its range."""
        moved = {name: self.place(name, getattr(base, name)) + scale * rng.standard_normal() for name in self.ranges}
        return self.kind(**{name: self.at(name, min(max(place, 0.0), 1.0)) for name, place in moved.items()})

    def at(self, name: str, place: float) -> float:
        """The parameter at a place in [0, 1] of its range."""
        low, high = self.ranges[name]
        return float(low * (high / low) ** place if name in self.logarithmic else low + (high - low) * place)

    def place(self, name: str, value: float) -> float:
        """The place of a parameter in its range."""
        low, high = self.ranges[name]
        return (
            math.log(value / low) / math.log(high / low) if name in self.logarithmic else (value - low) / (high - low)
        )


SPACES = {
    "cast-and-surge": Space(
        CastAndSurge,
        {
            "whiff": (3.5e-3, 1.2e-2), "wind_smoothing": (0.005, 0.3), "surge": (3.0, 60.0), "lean": (0.0, 60.0),
            "first_sweep": (0.1, 2.0), "growth": (0.1, 2.0), "climb": (-30.0, 60.0), "descent": (0.0, 30.0),
            "search_sweep": (0.5, 6.0), "search_growth": (0.5, 6.0), "search_climb": (-45.0, 45.0),
        },
        ("whiff", "wind_smoothing", "surge", "first_sweep", "growth", "search_sweep", "search_growth"),
    ),
    "bilateral": Space(
        Bilateral,
        {
            "gain": (0.0, 120.0), "surge": (0.1, 5.0), "cast": (0.3, 10.0), "growth": (0.1, 10.0),
            "climb": (-30.0, 60.0), "smoothing": (0.1, 10.0),
        },
        ("surge", "cast", "growth", "smoothing"),
    ),
}  # fmt: skip
"""By name, the policies that can be tuned."""


@dataclass(frozen=True)
class Round:
    """Candidates that join, how many episodes each is evaluated on, and how many stay."""

    scale: float
    """Size of the perturbations of those that stayed before; 0 for candidates drawn from the whole space."""
    joining: int
    episodes: int
    staying: int


ROUNDS = (
    Round(0.0, 63, 60, 16), Round(0.15, 16, 150, 8), Round(0.15, 16, 300, 6), Round(0.06, 12, 600, 3),
)  # fmt: skip
"""The search; its first round also has the default parameters."""


def scaled(rounds: tuple[Round, ...], effort: float) -> tuple[Round, ...]:
    """The same search with a multiple of the episodes."""
    return tuple(dataclasses.replace(one, episodes=max(1, round(effort * one.episodes))) for one in rounds)


VALIDATION_EPISODES = 1000
"""Tuning episodes that no round uses, on which the result is compared with the default parameters."""


@dataclass(frozen=True)
class Tuned:
    """The result of a search."""

    policy: Any
    """With the parameters that were found, or the default ones if those score higher."""
    before: Evaluation
    """Of the default parameters, on the validation episodes."""
    after: Evaluation
    """Of the result, on the same episodes."""

    @property
    def parameters(self) -> dict[str, float]:
        """As `gpf.settings.read` takes them."""
        return dataclasses.asdict(self.policy)


def tune(
    policy: str, scenario: Scenario, seed: int = 0, rounds: tuple[Round, ...] = ROUNDS,
    validation: int = VALIDATION_EPISODES, tell: Callable[[str], None] = lambda line: None,
) -> Tuned:  # fmt: skip
    """Search for parameters of one of `SPACES` in a world.

    Args:
        policy: Its name.
        scenario: The world.
        seed: Of the search; the episodes are the same for all seeds.
        rounds: The search.
        validation: Episodes on which the result is compared with the default parameters.
        tell: Called with a line after each round.
    """
    space, rng = SPACES[choose("policy", policy, SPACES)], np.random.default_rng(seed)
    staying = [space.kind()]
    for number, one in enumerate(rounds):
        some = [
            space.perturbed(rng, staying[n % len(staying)], one.scale) if one.scale else space.draw(rng)
            for n in range(one.joining)
        ]
        candidates = [*staying, *some]
        scores = [score(evaluate(each, scenario, one.episodes, _first_seed(number))) for each in candidates]
        order = np.argsort(scores)[::-1][: one.staying]
        staying = [candidates[n] for n in order]
        tell(f"round {number + 1}: {len(candidates)} candidates, {one.episodes} episodes, best {scores[order[0]]:.4f}")
    rounded = space.kind(**{name: float(f"{value:.4g}") for name, value in dataclasses.asdict(staying[0]).items()})
    before, after = (evaluate(one, scenario, validation, _first_seed(len(rounds))) for one in (space.kind(), rounded))
    return Tuned(rounded, before, after) if score(after) > score(before) else Tuned(space.kind(), before, before)


def score(result: Evaluation) -> float:
    """Success plus a tenth of SPL."""
    return float(result.success.mean()) + 0.1 * result.spl


def _first_seed(number: int) -> int:
    """Of the episodes of a round; the last block is that of the validation."""
    return TUNING + (300 + number) * BLOCK

"""A planner that imagines the consequences of each action and takes the one with the highest score.

It sees only tokens. At every step it rolls the world model out from the latest history, several times for each of the
six actions; after the first action a rollout repeats it, or follows a policy. The planner takes the action whose
rollouts have the highest mean score.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpf.navigation.acting import NetworkPolicy
from gpf.navigation.policies import forked
from gpf.navigation.tokenized import Reckoning, Tokenized, wind_angles
from gpf.plume.scenario import ACTIONS, Scenario
from gpf.plume.tokens import state_index
from gpf.world_model.imagination import Imagination
from gpf.world_model.model import WorldModel, streams, window
from gpf.world_model.sequences import BOS_CODE, FIRST_ACTION, observation_tokens

LANES_AT_A_TIME = 16
"""Worlds in which the next step is planned together: more do not fit into the processor's cache."""


@dataclass(frozen=True)
class Scoring:
    """Weights of the score of an imagined rollout."""

    whiff: float = 1.0
    """Of a step in which an antenna smells something."""
    upwind: float = 3.0
    """Of a metre made good against the wind."""
    blank: float = 0.0
    """Taken off for a step in which neither antenna does."""
    value: float = 0.0
    """Of what the policy that is followed thinks of the end, where it is a trained navigator's."""
    whiff_level: int = 2
    """The lowest level that counts as a smell; noise alone reaches the first now and then."""
    discount: float = 1.0
    """By which a step counts less than the one before it."""


@dataclass
class Planner:
    """A policy that imagines before it acts.

    An episode does not depend on the others that run in parallel: all draw the same random numbers.
    """

    model: WorldModel
    scenario: Scenario
    """The world whose tokens the model knows."""
    follow: Tokenized | None = None
    """Whom rollouts follow after their first action; None to repeat that."""
    horizon: int = 10
    """Steps of a rollout."""
    rollouts: int = 8
    """Of each action."""
    temperature: float = 1.0
    coupling: float = 0.0
    """See `Imagination`."""
    scoring: Scoring = field(default_factory=Scoring)
    margin: float = 1.0
    """By how much another action must score better than that of the policy that is followed to be taken instead."""
    seed: int = 0

    PER_LANE: ClassVar[tuple[str, ...]] = ("_history", "_seen", "follow")

    def __post_init__(self) -> None:
        most = self.model.context - 1
        if not 1 <= self.horizon <= most:
            raise ValueError(f"horizon must be from 1 to {most} steps, given the model's context, got {self.horizon}")
        if self.rollouts < 1:
            raise ValueError(f"rollouts must be at least 1, got {self.rollouts}")
        if self.scoring.value and not (self.follow and isinstance(self.follow.policy, NetworkPolicy)):
            raise ValueError(f"value must be 0 unless rollouts follow a trained navigator, got {self.scoring.value}")
        stride = self.scenario.speed * self.scenario.time_step
        self._headway = torch.from_numpy(stride * np.cos(wind_angles(self.scenario))).float()

    def begin(self, seeds: Sequence[int], scenario: Scenario) -> None:
        """Forget everything and begin one episode per seed."""
        self._history = np.zeros((len(seeds), 8 * self.model.context + 1), np.int64)
        self._history[:, 0] = BOS_CODE
        self._length = 1
        self._seen = Reckoning(len(seeds), self.scenario)
        self._clock = 0
        if self.follow is not None:
            self.follow.begin(seeds, scenario)

    def act(self, raw: NDArray[np.float32], lanes: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        """Choose actions in the lanes given by their indices, which all began at the same time."""
        self._seen.tokenize(raw, lanes)
        self._note(state_index(self._seen.tokens))
        if self.follow is not None:
            self.follow.seen.tokens[lanes] = self._seen.tokens[lanes]
            self.follow.choose(lanes, actions)  # it records the observation, and chooses its own action
        for start in range(0, len(lanes), LANES_AT_A_TIME):
            some = lanes[start : start + LANES_AT_A_TIME]
            scores = self.scores(some)
            best = scores.argmax(1)
            if self.follow is not None:
                own = actions[some]
                gain = scores.max(1) - scores[np.arange(len(some)), own]
                best = np.where(gain > self.margin, best, own)
            actions[some] = best
        if self.follow is not None:
            self.follow.seen.turn(lanes, actions)
        self._note(FIRST_ACTION + actions)
        self._clock += 1

    def scores(self, lanes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Scores of each action in some lanes, the mean over its rollouts; shape (lanes, 6)."""
        history = torch.from_numpy(self._history[lanes, : self._length])
        copies = len(ACTIONS) * self.rollouts
        generator = torch.Generator().manual_seed((self.seed << 32) + self._clock)
        imagination = Imagination(
            self.model, history, copies, generator, self.temperature, self.coupling, self.rollouts, self.horizon
        )
        first = np.tile(np.repeat(np.arange(len(ACTIONS)), self.rollouts), len(lanes))
        everyone = np.arange(len(first))
        follow = None if self.follow is None else forked(self.follow, np.repeat(lanes, copies))
        if follow is not None and isinstance(follow.policy, NetworkPolicy):
            follow.policy.redraw([(self.seed, self._clock, n) for n in range(self.rollouts)])  # alike for every action
        actions, total, weight = first, torch.zeros(len(first)), 1.0
        for step in range(self.horizon):
            if follow is not None:
                if step:
                    follow.choose(everyone, actions)
                follow.seen.turn(everyone, actions)
            codes = imagination.step(torch.from_numpy(actions.copy()))
            total += weight * self._worth(codes)
            weight *= self.scoring.discount
            if follow is not None:
                follow.seen.tokens[:] = observation_tokens(codes.numpy())
        if follow is not None and self.scoring.value:
            follow.choose(everyone, actions)
            total += weight * self.scoring.value * torch.from_numpy(_values(follow.policy))
        return total.view(len(lanes), len(ACTIONS), self.rollouts).mean(2).double().numpy()

    def _worth(self, codes: Tensor) -> Tensor:
        """The scores of imagined observations."""
        s = self.scoring
        left, right, wind = streams(codes)
        whiff = (torch.maximum(left, right) >= s.whiff_level).float()
        return (s.whiff + s.blank) * whiff - s.blank + s.upwind * self._headway[wind]

    def _note(self, codes: NDArray[np.int64]) -> None:
        """Add codes to the histories; where they are full, keep what the model can look back on."""
        if self._length == self._history.shape[1]:
            self._length = self.model.places
            self._history[:, : self._length] = window(torch.from_numpy(self._history), self.model.context)
        self._history[:, self._length] = codes
        self._length += 1


def _values(policy: object) -> NDArray[np.float32]:
    """A navigator's value estimate of its lanes: the value learned by PPO, or the best of its action values."""
    assert isinstance(policy, NetworkPolicy)
    if policy.outputs.shape[1] > len(ACTIONS):
        return policy.outputs[:, -1]
    best: NDArray[np.float32] = policy.outputs.max(axis=1)
    return best

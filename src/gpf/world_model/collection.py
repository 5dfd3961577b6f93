"""Collects training sequences: episodes of several behaviours in the plume world, at full speed."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gpf.navigation.policies import Policy
from gpf.plume.scenario import ACTIONS, Scenario
from gpf.plume.tokens import state_index
from gpf.plume.world import World
from gpf.world_model.sequences import BOS_CODE, EOS_CODE, FIRST_ACTION, Codes, Dataset, make_dataset

EPISODES_AT_A_TIME = 256
FIRST_SEED = 1 << 54
"""First seed of the worlds in which data is collected: no navigator learns or is evaluated there."""
SEEDS_OF_A_DATASET = 1 << 20
SEEDS = 1 << 24
"""How many datasets there can be."""

Progress = Callable[[int], None]
"""Called with the number of steps so far."""


@dataclass
class Wandering:
    """A policy that now and then does something else: a random action, held for a few steps.

    A model that only ever sees what good policies do cannot tell what would come of anything else.
    """

    policy: Policy
    seed: int
    chance: float = 0.03
    """Of beginning to wander, in a step."""
    longest: int = 10
    """Steps for which an action is held, at most."""

    PER_LANE: ClassVar[tuple[str, ...]] = ("policy", "_held", "_left")

    def begin(self, seeds: Sequence[int], scenario: Scenario) -> None:
        """Forget everything and begin one episode per seed."""
        self.policy.begin(seeds, scenario)
        self._random = np.random.default_rng([self.seed, seeds[0]])
        self._held = np.zeros(len(seeds), np.int64)
        self._left = np.zeros(len(seeds), np.int64)

    def act(self, raw: NDArray[np.float32], lanes: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        """Choose actions in the lanes given by their indices."""
        self.policy.act(raw, lanes, actions)
        begins = (self._left == 0) & (self._random.random(len(self._left)) < self.chance)
        self._held[begins] = self._random.integers(len(ACTIONS), size=begins.sum())
        self._left[begins] = self._random.integers(1, self.longest + 1, size=begins.sum())
        wandering = self._left > 0
        actions[wandering] = self._held[wandering]
        self._left[wandering] -= 1


def collect(
    behaviours: dict[str, tuple[Policy, float]],
    scenario: Scenario,
    steps: int,
    seed: int = 0,
    progress: Progress = lambda steps: None,
) -> Dataset:
    """Collect at least `steps` steps of whole episodes of several behaviours, each a policy and its share of the steps.

    Episodes of all behaviours are mixed, so the last ones can be held out.
    """
    if steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    if not 0 <= seed < SEEDS:
        raise ValueError(f"seed must be from 0 to {SEEDS - 1}, got {seed}")
    total = sum(share for _, share in behaviours.values())
    if not total > 0.0 or any(share < 0.0 for _, share in behaviours.values()):
        raise ValueError(
            f"shares of behaviours must be at least 0 and not all 0, got {[share for _, share in behaviours.values()]}"
        )
    first = FIRST_SEED + seed * SEEDS_OF_A_DATASET
    episodes: list[tuple[Codes, NDArray[np.float32], bool, int]] = []
    done = 0
    for number, (policy, share) in enumerate(behaviours.values()):
        wanted = done + steps * share / total
        while done < wanted - 0.5:
            seeds = range(first, first + EPISODES_AT_A_TIME)
            first += EPISODES_AT_A_TIME
            if first > FIRST_SEED + (seed + 1) * SEEDS_OF_A_DATASET:
                raise ValueError(f"steps must fit into {SEEDS_OF_A_DATASET:,} episodes, got {steps}")
            for codes, rewarded, found in _episodes(policy, scenario, seeds):
                if done < wanted - 0.5:
                    episodes.append((codes, rewarded, found, number))
                    done += len(rewarded)
            progress(min(done, steps))
    order = np.random.default_rng(seed).permutation(len(episodes))
    mixed = [episodes[index] for index in order]
    about: dict[str, Any] = {"behaviours": list(behaviours), "seed": seed, "world": dataclasses.asdict(scenario)}
    rewards = np.concatenate([one[1] for one in mixed])
    return make_dataset([one[0] for one in mixed], rewards, [one[2] for one in mixed], [one[3] for one in mixed], about)


def _episodes(policy: Policy, scenario: Scenario, seeds: range) -> list[tuple[Codes, NDArray[np.float32], bool]]:
    """One episode of each seed: its codes, its rewards, and whether the source was found."""
    count = len(seeds)
    world = World(count, scenario)
    world.seed(seeds)
    world.begin()
    policy.begin(seeds, scenario)
    body = np.zeros((count, 2 * scenario.max_steps + 1), np.uint16)
    rewards = np.zeros((count, scenario.max_steps), np.float32)
    actions = np.zeros(count, np.int64)
    found = np.zeros(count, np.bool_)
    running = np.arange(count)
    body[:, 0] = state_index(world.tokens)
    for t in range(scenario.max_steps):
        policy.act(world.raw, running, actions)
        world.step(actions)
        body[running, 2 * t + 1] = FIRST_ACTION + actions[running]
        body[running, 2 * t + 2] = state_index(world.tokens[running])
        rewards[running, t] = world.rewards[running]
        found |= world.successes
        running = np.flatnonzero(world.lanes["running"])
        if not len(running):
            break
    lengths = world.lanes["step"]
    return [
        (
            np.concatenate([[BOS_CODE], body[i, : 2 * lengths[i] + 1], [EOS_CODE]]).astype(np.uint16),
            rewards[i, : lengths[i]],
            bool(found[i]),
        )
        for i in range(count)
    ]

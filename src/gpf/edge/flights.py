"""Observations of flown episodes, for self-tests and to calibrate activations."""

from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from gpf.navigation.policies import Policy
from gpf.navigation.seeds import PROBE_SEED, training_seeds
from gpf.plume.scenario import Scenario
from gpf.plume.world import World


class Flight(NamedTuple):
    """An episode."""

    sensors: NDArray[np.float32]
    """Raw observations, shape (steps, 5)."""
    actions: NDArray[np.int64]
    outputs: NDArray[np.float32]
    """Of the network, shape (steps, outputs); none for a policy that has none."""


def fly(policy: Policy, scenario: Scenario, episodes: int) -> list[Flight]:
    """Fly episodes that nothing was trained, validated or evaluated on."""
    seeds = training_seeds(PROBE_SEED, episodes)
    world = World(episodes, scenario, threads=1)
    world.seed(seeds)
    world.begin()
    policy.begin(seeds, scenario)
    running, actions = np.arange(episodes), np.zeros(episodes, np.int64)
    log: list[list[tuple[NDArray[np.float32], int, NDArray[np.float32]]]] = [[] for _ in range(episodes)]
    nothing = np.zeros((episodes, 0), np.float32)
    while len(running):
        policy.act(world.raw, running, actions)
        outputs = getattr(policy, "outputs", nothing)
        for lane in running:
            log[lane].append((world.raw[lane, :5].copy(), int(actions[lane]), outputs[lane].copy()))
        world.step(actions)
        running = np.flatnonzero(world.lanes["running"])
    return [Flight(*cast(tuple[NDArray, NDArray, NDArray], map(np.array, zip(*steps, strict=True)))) for steps in log]

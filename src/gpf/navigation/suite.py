"""The worlds of the suite, its held-out episodes, and a version that changes with them.

Results of two versions cannot be compared. Everything that an agent meets in the suite is fixed here: worlds, seeds,
starts and numbers of episodes. The version is a number that is raised by hand when the physics change, and a digest of
all the rest.
"""

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.navigation.evaluate import Evaluation, evaluate
from gpf.navigation.policies import Policy
from gpf.navigation.seeds import BLOCK, SUITE
from gpf.plume.presets import PRESETS, fly_starts
from gpf.plume.recorded import recording_of, resolved
from gpf.plume.scenario import Scenario
from gpf.settings import choose

PHYSICS = 1
"""Raise it when an episode changes although no scenario does; tests/navigation/test_suite.py notices."""
EPISODES = 1000
"""Held-out episodes of a seed in a world."""
SLOW_EPISODES = 100
"""The same for agents that take more than 5 ms for a decision: the first ones."""
SEEDS = 10
"""Seeds of the suite, counted from 0; each has episodes of its own, the same for all agents."""

_HALL: dict[str, Any] = {
    "recording_height": 2.0, "recording_skip": 120.0, "speed": 0.5, "start_distance_max": 8.0, "start_bearing": 60.0,
}  # fmt: skip
"""A hall of GSL-Bench, cut at the height of its source, from when the plume has crossed it."""


@dataclass(frozen=True)
class World:
    """Where agents search."""

    name: str
    group: str
    fields: dict[str, Any]
    """Of its scenario, where they differ from the defaults."""
    flies: bool = False
    """Whether episodes begin at the 240 starts of the flies' assay."""
    recorded: str = ""
    """The hall of GSL-Bench whose plume is replayed; empty for a simulated one."""

    def scenario(self, recordings: str = "") -> Scenario:
        """Its scenario; `recordings` is the folder of the halls of GSL-Bench."""
        if not self.recorded:
            return Scenario(**self.fields)
        if not recordings:
            raise ValueError(f"world {self.name!r} needs recordings, the folder examples/environments of GSL-Bench")
        folder = Path(recordings) / self.recorded
        if not folder.is_dir():
            raise ValueError(f"recordings must be the folder examples/environments of GSL-Bench, got no {folder}")
        return Scenario(**self.fields, recording=str(folder))

    def episodes(self, wanted: int) -> int:
        """How many of the episodes that are wanted there are for a seed."""
        return min(wanted, len(fly_starts())) if self.flies else wanted

    def starts(self, episodes: int) -> NDArray[np.float64] | None:
        """Starts of this many episodes; None if they are drawn. Fewer starts of the flies are spread over all."""
        if not self.flies:
            return None
        every = fly_starts()
        return every[np.arange(episodes) * len(every) // episodes]


_GROUPS = {
    "The paper's world": ("reference", "paper"),
    "Wind and turbulence": ("meandering", "gusty", "turbulent", "weak-source", "calm"),
    "Sources and obstacles": ("two-sources", "decoy", "office"),
    "Sensors": ("slow-sensor", "fast-sensor"),
    "The flies' assays": ("fly-constant", "fly-once", "fly-many"),
}
_SCALES = {"001": 0.0234, "002": 0.00669, "003": 0.0233}
"""Of each hall, such that the 99th percentile of the concentrations within 1 m of the source is 0.5, 1/ppm."""

WORLDS: dict[str, World] = {
    **{
        name: World(name, group, PRESETS[name], flies=name.startswith("fly-"))
        for group, names in _GROUPS.items()
        for name in names
    },
    **{
        f"hall-{hall}": World(f"hall-{hall}", "Recorded plumes", {**_HALL, "recording_scale": scale}, recorded=hall)
        for hall, scale in _SCALES.items()
    },
}
"""By name."""

VARIED: dict[str, Any] = {
    "preset": "turbulent", "source_jitter": 0.2,
    "wind_speed": [0.3, 1.8], "wind_speed_sigma": [0.0, 0.5], "wind_direction_sigma": [0.0, 25.0],
    "wind_correlation_time": [2.0, 10.0], "wind_noise_sigma": [0.0, 0.6], "filament_velocity_sigma": [0.05, 0.4],
    "emission_rate": [2.0, 8.0], "filament_mass": [0.03, 0.1], "diffusion": [0.002, 0.05],
    "start_distance_max": [6.0, 12.0], "start_bearing": [0.0, 60.0],
    "sensor_kind": "linear", "sensor_relative_noise": 0.0, "sensor_noise": [5e-4, 2e-3],
    "sensor_rise_time": [0.0, 2.0], "sensor_recovery_time": [0.0, 8.0],
}  # fmt: skip
"""The world in which generalists are trained: wind, fluctuations, emission, filaments, starts, noise and response times
of the sensors are drawn for each episode (domain randomisation)."""


def world_of(name: str) -> World:
    """A world by its name."""
    return WORLDS[choose("world", name, WORLDS)]


def names_of(recordings: str = "") -> tuple[str, ...]:
    """All worlds; recorded ones only where their recordings are."""
    return tuple(name for name, world in WORLDS.items() if recordings or not world.recorded)


@cache
def version() -> str:
    """The version: a number for the physics, and a digest of worlds, seeds, starts and numbers of episodes."""
    worlds = {
        name: [dataclasses.asdict(Scenario(**world.fields)), world.flies, world.recorded]
        for name, world in WORLDS.items()
    }
    fixed = [worlds, SUITE, BLOCK, EPISODES, SLOW_EPISODES, SEEDS, fly_starts().tolist()]
    digest = hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()
    return f"{PHYSICS}.{digest[:8]}"


def held_out(
    policy: Policy, world: World, scenario: Scenario, seed: int, episodes: int, threads: int | None = None
) -> Evaluation:
    """A policy in the suite's held-out episodes of a seed; this many, or all that the world has."""
    count = world.episodes(episodes)
    return evaluate(policy, scenario, count, SUITE + seed * BLOCK, threads=threads, starts=world.starts(count))


NEEDS = ("vane", "second channel")
"""Features that an agent may need and some worlds lack."""


def lacking(scenario: Scenario) -> dict[str, str]:
    """Features that an agent may need and this world lacks, by name, each with the reason."""
    found = {}
    there = resolved(scenario, recording_of(scenario))
    fastest = there.wind_speed + there.wind_speed_sigma + there.wind_noise_sigma
    if fastest < there.calm_speed:
        found["vane"] = f"its wind of {there.wind_speed:g} m/s is below calm_speed, {there.calm_speed:g} m/s"
    if not there.decoys:
        found["second channel"] = "it has no decoys"
    return found

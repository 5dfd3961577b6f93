"""The worlds of the suite: what is fixed stays fixed, or the version changes.

`python tests/navigation/test_suite.py` writes tests/navigation/suite.json again, when worlds change on purpose. Where
an episode changes although no scenario does, raise PHYSICS in gpf.navigation.suite first.
"""

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from gpf.navigation import suite
from gpf.navigation.policies import CastAndSurge, make_policy
from gpf.navigation.seeds import BLOCK, HELD_OUT, SUITE, TUNING, VALIDATION
from gpf.navigation.suite import (
    EPISODES,
    PHYSICS,
    SEEDS,
    VARIED,
    WORLDS,
    held_out,
    lacking,
    names_of,
    version,
    world_of,
)
from gpf.plume.presets import PRESETS, fly_starts
from gpf.plume.scenario import Scenario
from gpf.plume.world import World
from gpf.world_model.collection import FIRST_SEED, SEEDS_OF_A_DATASET
from gpf.world_model.collection import SEEDS as DATASETS

PINNED = Path(__file__).with_name("suite.json")
STEPS, LANES = 60, 2
SIMULATED = names_of()


def short_episode(name):
    """Everything that two lanes of a world have come to after some steps of random actions, as numbers."""
    world = World(LANES, world_of(name).scenario(), threads=1)
    world.seed([SUITE, SUITE + 1])
    world.begin(starts=world_of(name).starts(LANES))
    random = np.random.default_rng(0)
    for _ in range(STEPS):
        world.step(random.integers(0, 6, LANES))
    lanes = world.lanes
    parts = [world.raw.ravel(), world.rewards, *(lanes[key] for key in ("x", "y", "distance", "wind_speed")),
             world.filaments.sum(axis=(0, 2))]  # fmt: skip
    return np.concatenate([np.asarray(part, np.float64) for part in parts])


def pinned():
    """What the file is to hold."""
    episodes = {name: short_episode(name) for name in SIMULATED}
    return {
        "version": version(),
        "physics": PHYSICS,
        "digests": {name: hashlib.sha256(values.tobytes()).hexdigest()[:16] for name, values in episodes.items()},
        "values": {name: values.tolist() for name, values in episodes.items()},
    }


def test_the_version_is_the_pinned_one():
    assert version() == json.loads(PINNED.read_text())["version"], "worlds changed: write tests/navigation/suite.json"


@pytest.mark.parametrize("name", SIMULATED)
def test_physics_are_those_of_the_version(name):
    """To the last bit, or, on a processor that rounds otherwise, to nine digits."""
    held, values = json.loads(PINNED.read_text()), short_episode(name)
    assert held["physics"] == PHYSICS
    if hashlib.sha256(values.tobytes()).hexdigest()[:16] != held["digests"][name]:
        np.testing.assert_allclose(
            values, held["values"][name], rtol=1e-9, atol=1e-12,
            err_msg="physics changed: raise PHYSICS in gpf.navigation.suite and write tests/navigation/suite.json",
        )  # fmt: skip


def test_a_changed_bit_of_physics_is_noticed(monkeypatch):
    held = np.array(json.loads(PINNED.read_text())["values"]["reference"])
    monkeypatch.setitem(
        WORLDS, "reference", dataclasses.replace(world_of("reference"), fields={**PRESETS["reference"], "speed": 0.501})
    )
    assert not np.allclose(short_episode("reference"), held, rtol=1e-9, atol=1e-12)


def changed(monkeypatch, name, value):
    """The version after something of the suite has changed."""
    monkeypatch.setattr(suite, name, value)
    version.cache_clear()
    found = version()
    monkeypatch.undo()
    version.cache_clear()
    return found


def test_everything_that_is_fixed_changes_the_version(monkeypatch):
    before = version()
    world = WORLDS["turbulent"]
    others = {
        "PHYSICS": PHYSICS + 1,
        "EPISODES": EPISODES + 1,
        "SEEDS": SEEDS + 1,
        "SUITE": SUITE + 1,
        "WORLDS": {**WORLDS, "turbulent": dataclasses.replace(world, fields={**world.fields, "diffusion": 0.0021})},
        "fly_starts": lambda: fly_starts()[::-1],
    }
    found = {name: changed(monkeypatch, name, value) for name, value in others.items()}
    assert len({before, *found.values()}) == len(others) + 1
    assert found["PHYSICS"].startswith(f"{PHYSICS + 1}.")
    assert version() == before


def test_all_presets_are_worlds_of_the_suite():
    assert set(SIMULATED) == set(PRESETS)
    for name in SIMULATED:
        assert world_of(name).scenario() == Scenario.preset(name)


def test_held_out_episodes_belong_to_the_suite_alone():
    firsts = {"held out": HELD_OUT, "validation": VALIDATION, "tuning": TUNING}
    ends = {name: first + BLOCK * BLOCK for name, first in firsts.items()}
    assert all(end <= SUITE for end in ends.values())
    assert FIRST_SEED + DATASETS * SEEDS_OF_A_DATASET <= SUITE
    assert SUITE + BLOCK * BLOCK < 1 << 63
    assert EPISODES <= BLOCK


def test_episodes_of_a_seed_are_always_the_same_and_those_of_another_are_others():
    world, scenario = world_of("reference"), world_of("reference").scenario()
    once, again, other = (held_out(CastAndSurge(), world, scenario, seed, 6) for seed in (0, 0, 1))
    more = held_out(make_policy("random"), world, scenario, 0, 4)
    assert (once.steps == again.steps).all()
    assert (once.start_distance != other.start_distance).all()
    assert (more.start_distance == once.start_distance[:4]).all()  # of all agents, and the first ones of more


def test_flies_begin_at_their_240_starts():
    world = world_of("fly-many")
    assert world.episodes(1000) == 240
    assert (world.starts(240) == fly_starts()).all()
    some = world.starts(24)
    assert len(np.unique(some[:, 4])) == 8  # all headings
    assert len(np.unique(some[:, 2])) == 3  # all distances
    found = held_out(make_policy("random"), world, dataclasses.replace(world.scenario(), max_steps=2), 0, 1000)
    expected = np.hypot(*(fly_starts()[:, 2:4] - fly_starts()[:, :2]).T)
    np.testing.assert_allclose(found.start_distance, expected)


def test_a_world_without_wind_has_no_vane():
    assert "vane" not in lacking(Scenario.preset("calm"))
    still = Scenario(wind_speed=0.0, wind_speed_sigma=0.0)
    assert "0 m/s" in lacking(still)["vane"]
    assert "second channel" in lacking(still)
    assert "second channel" not in lacking(Scenario.preset("decoy"))


def test_a_recorded_world_needs_its_recordings(tmp_path):
    assert not any(WORLDS[name].recorded for name in SIMULATED)
    assert set(names_of("somewhere")) == set(WORLDS)
    with pytest.raises(ValueError, match="world 'hall-001' needs recordings"):
        world_of("hall-001").scenario()
    with pytest.raises(ValueError, match=r"recordings .*examples/environments.* got no .*001"):
        world_of("hall-001").scenario(str(tmp_path))


def test_generalists_meet_every_kind_of_variation():
    ranges = {name for name, *_ in Scenario.of(VARIED).ranges}
    assert {"wind_speed", "wind_noise_sigma", "emission_rate", "sensor_noise", "sensor_rise_time"} <= ranges


if __name__ == "__main__":
    PINNED.write_text(json.dumps(pinned(), indent=1) + "\n")

import math

import numpy as np
import pytest

from gpf.navigation.opponents.track import Pace, Tracks, follow, is_due, look_back
from gpf.plume import Scenario
from gpf.plume.kernels import kernel
from gpf.plume.world import World


@kernel
def _follow(lanes, sensing, row, walk, tracks, raw):
    for n in range(len(lanes)):
        follow(sensing, row, walk, tracks[lanes[n]], raw[lanes[n]])


@kernel
def _look_back(walk, tracks, knots, path):
    due = is_due(walk, tracks[0])
    if due:
        look_back(walk, tracks[0], knots[0], path)
    return due


def step(tracks, raw):
    _follow(np.arange(len(raw)), tracks.sensing, tracks.row, tracks.walk, tracks.tracks, raw)


def test_the_path_of_the_air_follows_the_wind_backwards():
    """In a wind that turns, and before the start in its mean."""
    scenario = Scenario.preset("reference")
    tracks, rng = Tracks(1, scenario), np.random.default_rng(0)
    pace, dt = tracks.pace, scenario.time_step
    path, winds = np.zeros((pace.ages, 2)), []
    for n in range(200):
        speed, direction = rng.uniform(0.5, 1.5), 0.03 * n
        raw = np.array([[0, 0, speed, direction, 0, 0, 0, 0]], np.float32)
        if n > 0:
            winds.append(speed * np.exp(1j * direction))
        step(tracks, raw)
        if _look_back(tracks.walk, tracks.tracks, tracks.knots, path) and n > 0:
            for k in range(pace.ages):
                steps = (k + 1) * pace.interval * pace.spacing
                known = winds[-steps:]
                wanted = dt * (sum(known) + (steps - len(known)) * np.mean(winds))
                assert path[k, 0] + 1j * path[k, 1] == pytest.approx(wanted, abs=1e-4)


def test_dead_reckoning_survives_walls():
    """Agents that walk into all walls of the domain, at all angles, know where they are within two strides."""
    scenario = Scenario(max_steps=2000, success_radius=1e-3)
    lanes = 48
    world, tracks = World(lanes, scenario, threads=1), Tracks(lanes, scenario)
    world.seed(range(lanes))
    world.begin()
    start = np.column_stack([world.lanes["x"], world.lanes["y"]])
    rng = np.random.default_rng(1)
    goal = rng.uniform(-math.pi, math.pi, lanes)
    for n in range(900):
        step(tracks, world.raw)
        if n % 250 == 249:
            goal = rng.uniform(-math.pi, math.pi, lanes)
        aside = tracks.tracks["step"] < tracks.tracks["aside_until"]
        wanted = np.where(aside, tracks.tracks["aside"], goal)
        off = np.abs(np.angle(np.exp(1j * (wanted - world.raw[:, 4])[:, None] - 1j * tracks.row["turns"])))
        world.step(off.argmin(axis=1))
    step(tracks, world.raw)
    there = start + np.column_stack([tracks.tracks["x"], tracks.tracks["y"]])
    error = np.hypot(*(there - np.column_stack([world.lanes["x"], world.lanes["y"]])).T)
    assert (tracks.tracks["high_x"] < 1e8).sum() > 5
    assert np.quantile(error, 0.9) < 0.3


def test_an_observation_is_due_every_quarter_of_a_metre():
    for name in ("reference", "fly-many", "calm"):
        scenario, pace = Scenario.preset(name), Pace.of(Scenario.preset(name))
        assert pace.interval * scenario.speed * scenario.time_step == pytest.approx(0.25, abs=0.05)
        assert pace.ages <= 48

"""Where the time of a step goes in a simple world such as `reference`: each part of a step, timed on its own."""

import time

import numpy as np

from gpf.plume import antennae, physics, rewards, rng, tokens, wind
from gpf.plume.kernels import device
from gpf.plume.world import World

REPEATS = 50
"""Repetitions of each measurement; the fastest counts."""


@device
def wind_part(world):
    for i in range(len(world.lanes)):
        wind.step_mean_wind(world.rows[i], world.lanes[i], world.streams[i])


@device
def emission_part(world):
    for i in range(len(world.lanes)):
        physics.emit_from_one(world.rows[i], world.lanes[i], world.filaments[i], world.streams[i])


@device
def advection_part(world):
    for i in range(len(world.lanes)):
        physics.advect_together(world.rows[i], world.lanes[i], world.filaments[i])


@device
def motion_part(world):
    for i in range(len(world.lanes)):
        physics.turn(world.rows[i], world.lanes[i], i % 6)
        physics.move_freely(world.rows[i], world.lanes[i])


@device
def sensing_part(world):
    for i in range(len(world.lanes)):
        antennae.sense_simply(world.rows[i], world.lanes[i], world.filaments[i], world.scratch, world.streams[i])


@device
def reward_part(world):
    for i in range(len(world.lanes)):
        world.lanes[i].distance += rewards.reward(world.rows[i], world.lanes[i], 1.0, False, world.terms[i])


@device
def tokens_part(world):
    for i in range(len(world.lanes)):
        tokens.tokenize(world.rows[i], world.lanes[i], world.tokens[i])


@device
def random_part(world):
    for i in range(len(world.lanes)):
        p, lane, stream = world.rows[i], world.lanes[i], world.streams[i]
        lane.x = rng.normal(stream) + rng.normal(stream)  # wind speed and direction
        lane.y = rng.normal(stream) + rng.normal(stream)  # noise of the two antennae
        lane.heading = rng.poisson(stream, p.emission_mean, p.emission_none)
        lane.left = rng.normal(stream)  # half a filament a step, two coordinates each


PARTS = {
    "wind": wind_part,
    "filaments: emission": emission_part,
    "filaments: advection": advection_part,
    "motion": motion_part,
    "concentration at both antennae, with noise": sensing_part,
    "reward": reward_part,
    "tokens": tokens_part,
    "random numbers (contained in the above)": random_part,
}


def print_breakdown(lanes: int, whole: float) -> None:
    """Time each part over the lanes of a world in its steady state; `whole` is the time of a whole step, ns."""
    world = World(lanes, "reference", threads=1)
    world.seed(range(lanes))
    world.begin()
    for row in np.random.default_rng(0).integers(0, 6, (400, lanes)):
        world.step(row, restart=True)
    changing = [world.lanes, world.streams, world.filaments, world.terms, world.tokens]
    before = [array.copy() for array in changing]
    alive = float((world.lanes["last"] - world.lanes["first"]).mean())
    print(f"\nwhere a step's time goes, ns (each part alone, {alive:.0f} filaments a lane; best of {REPEATS}):")
    for name, part in PARTS.items():
        best = float("inf")
        for _ in range(REPEATS):
            for array, old in zip(changing, before, strict=True):
                array[...] = old
            arrays = world.arrays()
            start = time.perf_counter()
            part(arrays)
            best = min(best, time.perf_counter() - start)
        print(f"  {name:44} {best / lanes * 1e9:7.0f}")
    print(f"  {'a whole step of the vector environment':44} {whole:7.0f}")
    print("  What bounds it: two exponentials for each filament, which keep the vector units busy.")

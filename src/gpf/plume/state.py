"""The true state of a lane, for figures, oracles and debugging."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpf.plume.physics import BORN, X, Y, variance, wrap
from gpf.plume.world import World


@dataclass(frozen=True, eq=False)
class State:
    """Where everything is in one lane, as copies that are the caller's to keep.

    **Privileged:** an agent cannot know any of this but its own heading. It is meant for figures, oracles, teachers and
    debugging, not as an observation. Angles are in rad, in [-pi, pi), counter-clockwise from +x.
    """

    position: NDArray[np.float64]
    """Where the agent is, (x, y), m."""
    heading: float
    """Where the agent faces, rad."""
    source: NDArray[np.float64]
    """Where the source is, (x, y), m."""
    distance: float
    """Distance from the agent to the source, m."""
    wind_speed: float
    """Wind speed where the agent is, m/s."""
    wind_direction: float
    """Direction that the wind blows to there, rad; without what a turned vane adds."""
    filament_positions: NDArray[np.float64]
    """Centres of the filaments in the domain, oldest first, shape (n, 2), m."""
    filament_radii: NDArray[np.float64]
    """Their radii (Gaussian sigma), shape (n,), m."""
    filament_ages: NDArray[np.float64]
    """Their ages, shape (n,), s."""
    step: int
    """Steps since the episode began."""


def state_of(world: World, index: int) -> State:
    """The state of a lane."""
    row, lane = world.rows.view(np.recarray)[index], world.lanes[index]
    filaments = world.filaments[index][:, lane["first"] : lane["last"]]
    filaments = filaments[:, ~np.isnan(filaments[X])]  # those that have left the domain keep their place, as NaN
    age = lane["tick"] - filaments[BORN]  # in physical steps
    return State(
        position=np.array([lane["x"], lane["y"]]),
        heading=float(lane["heading"]),
        source=np.array([lane["source_x"], lane["source_y"]]),
        distance=float(lane["distance"]),
        wind_speed=float(lane["vane_speed"]),
        wind_direction=wrap.py_func(float(lane["vane_direction"])),
        filament_positions=np.stack([filaments[X], filaments[Y]], axis=1),
        filament_radii=np.sqrt(variance.py_func(row, age)),
        filament_ages=age * float(row["time_step"]),
        step=int(lane["step"]),
    )

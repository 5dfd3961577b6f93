"""The memory of a world: the arrays of the kernels."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gpf.plume.fields import MOST_PLACES
from gpf.plume.obstacles import PackedTerrains
from gpf.plume.playback import PackedRecordings
from gpf.plume.sensors import ELEMENTS, SENSOR_STATE
from gpf.plume.wind import NOISE_SIZE

LANE = np.dtype(
    [(name, np.float64) for name in ("x", "y", "heading", "source_x", "source_y", "distance")]
    + [(name, np.float64) for name in ("wind_speed", "wind_direction", "switched", "vane_speed", "vane_direction")]
    + [(name, np.float64) for name in ("left", "right", "second_left", "second_right", "bump", "frame")]
    + [(name, np.int64) for name in ("step", "tick", "blank_steps", "first", "last", "running", "lost", "mirrored")]
    + [(name, np.float64, (MOST_PLACES - 1,)) for name in ("others_x", "others_y")]
    + [
        ("on", np.int64, (MOST_PLACES,)),
        ("noise", np.float64, (NOISE_SIZE,)),
        ("sensors", np.float64, (ELEMENTS, SENSOR_STATE)),
    ],
    align=True,
)
"""The state of a lane, except its filaments, its wind's grid and its random stream. Positions in m, angles in rad;
`step` counts the agent's steps and `tick` the physical ones; `frame` is where a recording started."""


class Arrays(NamedTuple):
    """The arrays of a world, as one argument of its kernels. The first axis is the lane's, except for `scratch`."""

    rows: NDArray[np.void]
    """Scenarios, see `gpf.plume.row`."""
    lanes: NDArray[np.void]
    streams: NDArray[np.uint64]
    filaments: NDArray[np.float64]
    """Shape (n, 3 or 6, capacity); see `gpf.plume.physics`."""
    grids: NDArray[np.float64]
    """Fluctuations of the wind, shape (n, 2, nodes^2); see `gpf.plume.wind`."""
    scratch: NDArray[np.float64]
    """Working space of a thread, shape (2, capacity)."""
    tokens: NDArray[np.int64]
    raw: NDArray[np.float32]
    rewards: NDArray[np.float64]
    terms: NDArray[np.float64]
    successes: NDArray[np.bool_]
    terminations: NDArray[np.bool_]
    truncations: NDArray[np.bool_]
    bank: NDArray[np.void]
    """Scenarios from which those lanes draw whose fields are ranges; no lane's."""
    terrains: PackedTerrains
    """Obstacles of all scenarios; no lane's."""
    recordings: PackedRecordings
    """Recorded plumes of all scenarios; no lane's."""

"""The kinds of observation that the environments offer, as Gymnasium spaces."""

import math
from typing import Any

import numpy as np
from gymnasium import spaces

from gpf.plume.inputs import shown
from gpf.plume.memory import memory_bounds
from gpf.plume.tokens import OBSERVATION_SIZES, ONEHOT_SIZE
from gpf.plume.world import FASTEST_WIND, World

OBSERVATIONS = ("tokens", "onehot", "raw", "memory")
"""`tokens`: left level, right level, wind octant. `onehot`: the same as 22 zeros and ones. `raw`: see `world.RAW`.
`memory`: 16 features of the recent past, see `memory.FEATURES`."""


def observation_space(kind: str, world: World) -> spaces.Space[Any]:
    """The space of one lane's observations."""
    if kind == "tokens":
        return spaces.MultiDiscrete(list(OBSERVATION_SIZES))
    if kind == "onehot":
        return spaces.Box(0.0, 1.0, (ONEHOT_SIZE,), np.float32)
    if kind == "raw":
        saturation = float(max(world.all_rows()["sensor_saturation"]))
        low = np.array([0.0, 0.0, 0.0, -math.pi, -math.pi, 0.0, 0.0, 0.0], np.float32)
        high = np.array(
            [saturation, saturation, FASTEST_WIND, math.pi, math.pi, 1.0, saturation, saturation], np.float32
        )
        return spaces.Box(low, high, dtype=np.float32)
    if kind == "memory":
        low, high = memory_bounds(world.all_rows())
        return spaces.Box(low, high, dtype=np.float32)
    raise ValueError(f"observation must be one of {', '.join(OBSERVATIONS)}, got {shown(kind)}")

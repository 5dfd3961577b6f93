"""The tokenizer: readings and wind to a few discrete levels, and the vocabulary around them.

An observation is three tokens: the level of the left and the right reading (0 is blank, 1 to 6 are rising bands) and
the octant that the wind comes from, relative to the heading. Each stream counts from 0, as do actions and specials.
"""

import math

import numpy as np
from numpy.typing import NDArray

from gpf.plume.kernels import Record, device, kernel
from gpf.plume.scenario import ACTIONS, LEVELS, OCTANTS

OBSERVATION_SIZES = (LEVELS, LEVELS, OCTANTS)
"""Number of tokens of the left, right and wind stream."""
STATES = LEVELS * LEVELS * OCTANTS
"""Number of different observations."""
ONEHOT_SIZE = sum(OBSERVATION_SIZES)
"""Length of an observation as concatenated one-hot vectors."""

PAD, BOS, EOS, RESET = range(4)
LEVEL_TOKENS = ("BLANK", *(f"C{band}" for band in range(LEVELS - 1)))
OCTANT_TOKENS = tuple(f"W{octant}" for octant in range(OCTANTS))
ACTION_TOKENS = tuple(name.replace(" ", "_").upper() for name in ACTIONS)
SPECIAL_TOKENS = ("PAD", "BOS", "EOS", "RESET")
VOCABULARY: dict[str, tuple[str, ...]] = {
    "left": LEVEL_TOKENS,
    "right": LEVEL_TOKENS,
    "wind": OCTANT_TOKENS,
    "action": ACTION_TOKENS,
    "special": SPECIAL_TOKENS,
}
"""Names of all tokens, by stream; a token's number is its place in its stream."""
VOCABULARY_VERSION = 1
"""Changes with the meaning of a token, to refuse stored sequences."""


@device
def level(p: Record, reading: float) -> int:
    """The concentration level of a reading: how many edges lie below it."""
    count = 0
    for k in range(LEVELS - 1):
        count += reading > p.level_edges[k]
    return count


@device
def octant(p: Record, wind_speed: float, wind_direction: float, heading: float) -> int:
    """The octant that the wind comes from, as the heading sees it; 0 when it is calm."""
    if wind_speed < p.calm_speed:
        return 0
    turns = (p.octant_sign * (wind_direction + math.pi - heading) + p.octant_offset) / (2.0 * math.pi)
    return int((turns - math.floor(turns)) * OCTANTS) % OCTANTS


@device
def tokenize(p: Record, lane: Record, tokens: NDArray[np.int64]) -> None:
    """Write the three tokens of a lane's current observation."""
    tokens[0] = level(p, lane.left)
    tokens[1] = level(p, lane.right)
    tokens[2] = octant(p, lane.vane_speed, lane.vane_direction + p.vane_offset, lane.heading)


def state_index(tokens: np.ndarray) -> np.ndarray:
    """The number, 0 to 391, of observations given as tokens in the last axis."""
    return (tokens[..., 0] * LEVELS + tokens[..., 1]) * OCTANTS + tokens[..., 2]


@kernel
def onehot(tokens: NDArray[np.int64], out: NDArray[np.float32]) -> None:
    """Write observations of shape (n, 3) as one-hot vectors of shape (n, 22)."""
    out[:] = 0.0
    for i in range(len(tokens)):
        out[i, tokens[i, 0]] = 1.0
        out[i, LEVELS + tokens[i, 1]] = 1.0
        out[i, 2 * LEVELS + tokens[i, 2]] = 1.0

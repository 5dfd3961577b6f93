"""The reward of a step, as a sum of named terms."""

import numpy as np
from numpy.typing import NDArray

from gpf.plume.kernels import Record, device

TERMS = ("time", "success", "whiff", "blank", "shaping")
"""Names of the terms, in the order in which `reward` writes them."""


@device
def reward(p: Record, lane: Record, previous_distance: float, success: bool, terms: NDArray[np.float64]) -> float:
    """Write the terms of this step's reward and return their sum; keeps the length of the current blank."""
    whiff = max(lane.left, lane.right) > p.whiff_threshold
    lane.blank_steps = 0 if whiff else lane.blank_steps + 1
    terms[0] = p.reward_time
    terms[1] = p.reward_success if success else 0.0
    terms[2] = p.reward_whiff if whiff else 0.0
    terms[3] = p.reward_blank if lane.blank_steps > p.blank_steps else 0.0
    # Potential-based: discount x potential after - potential before, where the terminal state's potential is 0.
    after = 0.0 if success else lane.distance
    terms[4] = p.reward_shaping * (previous_distance - p.shaping_discount * after)
    if success and p.success_replaces:
        terms[2] = terms[3] = terms[4] = 0.0
    return terms[0] + terms[1] + terms[2] + terms[3] + terms[4]

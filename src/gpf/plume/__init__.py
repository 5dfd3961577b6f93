"""The odour-plume world: physics, sensors, tokens and rewards, and Gymnasium environments around them."""

from gpf.plume.scenario import Scenario

__all__ = ["Scenario"]

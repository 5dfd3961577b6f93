"""Exponential moving average (EMA) of a network's weights, used by the trained navigator.

The policy of an aliased state flips back and forth while it learns; its average does not.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class WeightAverage:
    """The average over rollouts, with weights that fall by `decay` each; at first, the plain mean.

    Attributes:
        values: The average, float32.
    """

    def __init__(self, values: NDArray[np.float32], decay: float) -> None:
        self.decay = decay
        self._begin(values)

    def _begin(self, values: NDArray[np.float32]) -> None:
        self.values: NDArray[np.float32] = values.copy()
        self.count: int = 0
        self._learnt = values.copy()  # the weights as the last rollout left them

    def add(self, values: NDArray[np.float32]) -> None:
        """Take the weights after a rollout into the average."""
        self.count += 1
        self.values += np.float32(max(1.0 - self.decay, 1.0 / self.count)) * (values - self.values)
        self._learnt = values.copy()

    def renew(self, values: NDArray[np.float32]) -> None:
        """Restart if an event has changed the weights; freezing does not."""
        if not np.array_equal(self._learnt, values):
            self._begin(values)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything but the weights themselves."""
        return {"average": self.values, "averaged": np.array(self.count)}

    def restore(self, state: dict[str, NDArray[Any]], values: NDArray[np.float32]) -> None:
        """Restore a state, with its weights."""
        self._begin(values)
        self.values[...] = state["average"]
        self.count = int(state["averaged"])

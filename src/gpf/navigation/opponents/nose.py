"""The source's odour at each antenna, estimated by an agent that knows its own sensors.

The time constants of a slow sensor are undone, and two gas channels are solved for the two substances.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.navigation.policies import above_noise
from gpf.plume.kernels import Record, device
from gpf.plume.row import row_of
from gpf.plume.scenario import Scenario
from gpf.plume.sensors import IDEAL, METAL_OXIDE, calibrated, static_ratio

WHIFF = 3.64e-3
"""Concentration above which there is a whiff, for the presets' sensor."""
_FAST = 0.5
"""Share of its way that a sensor must cover in a step to be read without correction."""

NOSE = np.dtype([("before", np.float64, (4,)), ("sniffed", np.int64)])
"""Memory of sensors: the last readings, where the response is linear, and whether there are any."""
SENSING = np.dtype(
    [(name, np.float64) for name in ("whiff", "slow", "metal", "direction", "rise", "recovery", "mixed")]
    + [("unmixing", np.float64, (2,))]
)
"""Knowledge of an agent about its sensors; see `sensing_of`."""


def sensing_of(scenario: Scenario) -> tuple[Any, Any]:
    """Knowledge about the sensors of a scenario, as records: the `SENSING`, and the scenario's row."""
    row = row_of(scenario)
    steps = scenario.substeps
    rise, recovery = (1.0 - (1.0 - float(row[name])) ** steps for name in ("sensor_rise", "sensor_recovery"))
    slow = row["sensor_kind"] != IDEAL and not scenario.sensor_inverse and min(rise, recovery) < _FAST
    a, b, c, d = scenario.sensitivity
    determinant = a * d - b * c
    mixed = scenario.decoys > 0 and abs(determinant) > 1e-6
    unmixing = (d / determinant, -b / determinant) if mixed else (1.0, 0.0)
    linear = slow and row["sensor_kind"] != METAL_OXIDE
    louder = max(1.0, math.hypot(*unmixing)) * (math.sqrt(2.0) / rise if linear else 1.0)
    whiff = above_noise(WHIFF, scenario) * louder
    known = np.zeros((), SENSING)
    for name, value in {
        "whiff": whiff, "slow": slow, "metal": row["sensor_kind"] == METAL_OXIDE,
        "direction": row["sensor_direction"], "rise": rise, "recovery": recovery, "mixed": mixed, "unmixing": unmixing,
    }.items():  # fmt: skip
        known[name] = value
    return known[()], row


@device
def sniff(q: Record, p: Record, nose: Record, raw: NDArray[np.float32]) -> tuple[float, float]:
    """Concentration of the source's odour at the left and the right antenna, as far as the readings tell."""
    left, right = _restored(q, p, nose, 0, raw[0]), _restored(q, p, nose, 1, raw[1])
    if q.mixed != 0.0:
        left = q.unmixing[0] * left + q.unmixing[1] * _restored(q, p, nose, 2, raw[6])
        right = q.unmixing[0] * right + q.unmixing[1] * _restored(q, p, nose, 3, raw[7])
    nose.sniffed = 1
    return left, right


@device
def _restored(q: Record, p: Record, nose: Record, element: int, reading: float) -> float:
    """The concentration that a reading follows: the input of a first-order response."""
    if q.slow == 0.0:
        return reading
    now = static_ratio(p, reading) if q.metal != 0.0 else reading
    before = nose.before[element] if nose.sniffed != 0 else now
    nose.before[element] = now
    change = now - before
    target = before + change / (q.rise if change * q.direction > 0.0 else q.recovery)
    if q.metal == 0.0:
        return min(max(target, 0.0), p.sensor_saturation)
    if q.direction * (target - p.sensor_clean_air) <= 0.0:
        return 0.0
    return min(calibrated(p, target), p.sensor_saturation)

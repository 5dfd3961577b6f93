"""Gas sensors: dynamics, drift, noise, electronics and calibration.

A sensing element keeps `SENSOR_STATE` numbers and is read once a (sub-)step. The chain, by `Scenario.sensor_kind`:

- ideal: concentration -> noise -> reading.
- linear: concentration -> first-order response -> drift -> noise -> converter -> inverse filter -> reading.
- metal-oxide: concentration -> static RS/R0 -> first-order response -> drift -> noise -> divider and converter
  -> RS/R0 -> inverse filter -> static curve inverted -> reading.

RS is the resistance in gas and R0 a reference resistance. The inverse filter is optional. All updates are exact for an
input that is constant during a (sub-)step; its duration is contained in the numbers of `Scenario.row`.
"""

import math

import numpy as np
from numpy.typing import NDArray

from gpf.plume.kernels import Record, device
from gpf.plume.rng import normal
from gpf.plume.sensor_row import SENSOR_KINDS

ELEMENTS = 4
"""Sensing elements of an agent: two antennae of two gas channels."""
SENSOR_STATE = 4
"""Numbers that a sensing element keeps; see the columns below."""
RESPONSE, DRIFT, SMOOTHED, SMOOTHED_TWICE = range(SENSOR_STATE)
"""Output of the first-order stage (RS/R0 or concentration), slow relative drift, two stages of the inverse filter."""

IDEAL, LINEAR, METAL_OXIDE = (float(number) for number in range(len(SENSOR_KINDS)))
"""Kinds of sensor as the scenario's row stores them."""

LEAST_FACTOR = 0.1
"""Drift never multiplies a response by less than this."""

CLEAN_AIR_SIGMAS = 4.0
"""A metal-oxide sensor reads gas where RS/R0 leaves clean air by more than this many standard deviations of noise."""


@device
def start_sensor(p: Record, state: NDArray[np.float64]) -> None:
    """Put a sensing element into clean air: at rest, and with no slow drift since its calibration."""
    clean = p.sensor_clean_air if p.sensor_kind == METAL_OXIDE else 0.0
    state[RESPONSE] = clean
    state[DRIFT] = 0.0
    state[SMOOTHED] = state[SMOOTHED_TWICE] = clean * max(p.sensor_climate, LEAST_FACTOR)


@device
def respond(
    p: Record, state: NDArray[np.float64], concentration: float, gain: float, stream: NDArray[np.uint64]
) -> float:
    """One reading of one sensing element, after a (sub-)step in this concentration; gain multiplies what it smells."""
    if p.sensor_kind == IDEAL:
        return ideal(p, gain * concentration, stream)
    if p.sensor_kind == LINEAR:
        return _linear(p, state, gain * concentration, stream)
    return _metal_oxide(p, state, gain * concentration, stream)


@device
def ideal(p: Record, concentration: float, stream: NDArray[np.uint64]) -> float:
    """A reading of a sensor that has noise only."""
    return min(max(concentration + p.sensor_noise * normal(stream), 0.0), p.sensor_saturation)


@device
def _linear(p: Record, state: NDArray[np.float64], concentration: float, stream: NDArray[np.uint64]) -> float:
    """A reading of a sensor whose output is proportional to the concentration."""
    value = _follow(p, state, concentration) * _drift(p, state, stream)
    value += math.sqrt(p.sensor_noise**2 + (p.sensor_relative_noise * value) ** 2) * normal(stream)
    value = p.sensor_saturation * _convert(p, value / p.sensor_saturation)
    if p.sensor_inverse != 0.0:
        value, _ = _restore(p, state, value)
    return min(max(value, 0.0), p.sensor_saturation)


@device
def _metal_oxide(p: Record, state: NDArray[np.float64], concentration: float, stream: NDArray[np.uint64]) -> float:
    """A reading of a sensor whose resistance follows a power law of the concentration."""
    ratio = _follow(p, state, static_ratio(p, concentration)) * _drift(p, state, stream)
    ratio = max(ratio * (1.0 + p.sensor_relative_noise * normal(stream)), 0.0)
    voltage = _convert(p, p.sensor_load / (p.sensor_load + ratio))  # in units of the supply's
    voltage = max(voltage, p.sensor_half_code)  # code 0 would be an infinite resistance
    measured = ratio = p.sensor_load * (1.0 - voltage) / voltage
    towards_gas = True
    if p.sensor_inverse != 0.0:
        ratio, towards_gas = _restore(p, state, measured)
    noise = measured * (p.sensor_rise_noise if towards_gas else p.sensor_recovery_noise)
    if p.sensor_direction * (ratio - p.sensor_clean_air) <= CLEAN_AIR_SIGMAS * noise:
        return 0.0
    return min(calibrated(p, ratio), p.sensor_saturation)


@device
def static_ratio(p: Record, concentration: float) -> float:
    """RS/R0 that a metal-oxide sensor settles at: A c^B (c in ppm), or clean air's where that would be beyond it."""
    ratio = p.sensor_curve_scale * (concentration * p.sensor_ppm_per_unit) ** p.sensor_curve_exponent
    if p.sensor_direction < 0.0:
        return min(ratio, p.sensor_clean_air)
    return max(ratio, p.sensor_clean_air)


@device
def calibrated(p: Record, ratio: float) -> float:
    """Concentration at which a metal-oxide sensor settles at this RS/R0; without end at 0, if gas lowers RS."""
    return (max(ratio, 0.0) / p.sensor_curve_scale) ** (1.0 / p.sensor_curve_exponent) / p.sensor_ppm_per_unit


@device
def _follow(p: Record, state: NDArray[np.float64], target: float) -> float:
    """First-order response to a target: fast towards gas, slow back."""
    distance = target - state[RESPONSE]
    state[RESPONSE] += distance * (p.sensor_rise if distance * p.sensor_direction > 0.0 else p.sensor_recovery)
    return state[RESPONSE]


@device
def _drift(p: Record, state: NDArray[np.float64], stream: NDArray[np.uint64]) -> float:
    """Factor of temperature, humidity and a slow Ornstein-Uhlenbeck process."""
    if p.sensor_drift_kick > 0.0:
        state[DRIFT] = p.sensor_drift_decay * state[DRIFT] + p.sensor_drift_kick * normal(stream)
    return max(p.sensor_climate + state[DRIFT], LEAST_FACTOR)


@device
def _convert(p: Record, share: float) -> float:
    """A share of full scale as the analogue-to-digital converter sees it: within its range, rounded to a code."""
    share = min(max(share, 0.0), 1.0)
    return share if p.sensor_codes == 0.0 else np.rint(share * p.sensor_codes) / p.sensor_codes


@device
def _restore(p: Record, state: NDArray[np.float64], measured: float) -> tuple[float, bool]:
    """Input of the first-order stage from its measured output, and whether that output moves towards gas.

    Two low-pass stages smooth the output to y. The input is y_before + (y - y_before) / (1 - exp(-dt / tau)), where tau
    is the rise time if y moves towards gas and the recovery time if it moves back.
    """
    state[SMOOTHED] += p.sensor_inverse_share * (measured - state[SMOOTHED])
    before = state[SMOOTHED_TWICE]
    change = p.sensor_inverse_share * (state[SMOOTHED] - before)
    state[SMOOTHED_TWICE] = before + change
    towards_gas = change * p.sensor_direction > 0.0
    return before + change * (p.sensor_inverse_rise if towards_gas else p.sensor_inverse_recovery), towards_gas

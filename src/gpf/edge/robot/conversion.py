"""Readings of real gas sensors in the units that a navigator was trained with.

Each function returns one that converts a single reading; give it to `Robot` as `convert`.
"""

import math
from collections.abc import Callable

from gpf.plume.scenario import Scenario
from gpf.plume.sensor_row import sensor_numbers

Conversion = Callable[[float], float]
"""A sensor's own number as a concentration; NaN where the sensor must be broken."""


def from_ppm(scenario: Scenario) -> Conversion:
    """Converts ppm; readings above the saturation of the scenario's sensors are clipped to it, as in training."""
    return lambda ppm: min(ppm / scenario.sensor_ppm_per_unit, scenario.sensor_saturation) if ppm == ppm else math.nan


def from_adc(scenario: Scenario) -> Conversion:
    """Converts codes of the analogue-to-digital converter (0 to 2^sensor_bits - 1) with the scenario's calibration.

    A metal-oxide sensor at either end of the converter's range is broken (an open or a short circuit): NaN.
    """
    if scenario.sensor_kind == "ideal" or scenario.sensor_bits == 0:
        raise ValueError(
            "sensor_kind must be linear or metal-oxide, with sensor_bits of at least 1, to convert codes,"
            f" got {scenario.sensor_kind} with {scenario.sensor_bits} bits"
        )
    if scenario.sensor_inverse:
        raise ValueError("sensor_inverse must be false to convert codes one by one, got true")
    from gpf.plume.sensors import CLEAN_AIR_SIGMAS  # with numba, which nothing else here needs

    numbers = sensor_numbers(scenario, scenario.time_step / scenario.substeps)
    codes = numbers["sensor_codes"]
    if scenario.sensor_kind == "linear":
        return lambda code: scenario.sensor_saturation * code / codes if 0.0 <= code <= codes else math.nan

    def reading(code: float) -> float:
        if not 0.0 < code < codes:
            return math.nan
        ratio = scenario.sensor_load * (codes - code) / code  # RS/R0, of the voltage divider
        beyond_air = numbers["sensor_direction"] * (ratio - scenario.sensor_clean_air)
        if beyond_air <= CLEAN_AIR_SIGMAS * numbers["sensor_rise_noise"] * ratio:
            return 0.0
        ppm = (ratio / scenario.sensor_curve_scale) ** (1.0 / scenario.sensor_curve_exponent)
        return min(ppm / scenario.sensor_ppm_per_unit, scenario.sensor_saturation)

    return reading

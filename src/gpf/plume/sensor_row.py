"""The numbers of a scenario's row for its gas sensors: factors for one reading, precomputed."""

import math
from typing import Any

SENSOR_KINDS = ("ideal", "linear", "metal-oxide")
"""Models of a gas sensor; see `gpf.plume.sensors`. A row stores the index."""

SENSOR_NUMBERS = (
    "sensor_kind sensor_direction sensor_noise sensor_saturation sensor_relative_noise sensor_rise sensor_recovery"
    " sensor_ppm_per_unit sensor_curve_scale sensor_curve_exponent sensor_clean_air"
    " sensor_rise_noise sensor_recovery_noise sensor_load sensor_codes sensor_half_code"
    " sensor_climate sensor_drift_decay sensor_drift_kick"
    " sensor_inverse sensor_inverse_rise sensor_inverse_recovery sensor_inverse_share"
).split()
"""Columns of a row: fields of the scenario, and those that `sensor_numbers` works out."""


def sensor_numbers(s: Any, duration: float) -> dict[str, float]:
    """What is worked out of a `Scenario` before its sensors are read, once every `duration` seconds."""
    rise, recovery, assumed_rise, assumed_recovery, smoothing = (
        1.0 if time == 0.0 else -math.expm1(-duration / time)  # share of the way that a response covers
        for time in (
            s.sensor_rise_time,
            s.sensor_recovery_time,
            s.sensor_inverse_rise_time or s.sensor_rise_time,
            s.sensor_inverse_recovery_time or s.sensor_recovery_time,
            s.sensor_inverse_smoothing,
        )
    )
    codes = 2.0**s.sensor_bits - 1.0
    code = 1.0 / codes if codes else 0.0
    direction = -1.0 if s.sensor_kind == "metal-oxide" and s.sensor_curve_exponent < 0.0 else 1.0
    # Relative noise of RS/R0: its own, and that of rounding (uniform, here in clean air); a filter amplifies both.
    rounding = code * (s.sensor_load + s.sensor_clean_air) ** 2 / (s.sensor_load * s.sensor_clean_air)
    noise = math.hypot(s.sensor_relative_noise, rounding / math.sqrt(12.0), 1e-9)  # that of arithmetic, if no other
    rise_gain, recovery_gain = (
        inverse_noise_gain(share, smoothing) if s.sensor_inverse else 1.0 for share in (assumed_rise, assumed_recovery)
    )
    return {
        "sensor_kind": SENSOR_KINDS.index(s.sensor_kind),
        "sensor_direction": direction,  # of the signal, towards gas
        "sensor_rise": rise,
        "sensor_recovery": recovery,
        "sensor_rise_noise": rise_gain * noise,
        "sensor_recovery_noise": recovery_gain * noise,
        "sensor_codes": codes,
        "sensor_half_code": 0.5 * code,
        "sensor_climate": 1.0
        + s.sensor_temperature_drift * (s.sensor_temperature - 20.0)
        + s.sensor_humidity_drift * (s.sensor_humidity - 50.0),
        "sensor_drift_decay": math.exp(-duration / s.sensor_drift_time),
        "sensor_drift_kick": s.sensor_drift_sigma * math.sqrt(-math.expm1(-2.0 * duration / s.sensor_drift_time)),
        "sensor_inverse_rise": 1.0 / assumed_rise,
        "sensor_inverse_recovery": 1.0 / assumed_recovery,
        "sensor_inverse_share": smoothing,
    }


def inverse_noise_gain(response: float, smoothing: float) -> float:
    """What the inverse filter multiplies the SD of white noise by, from the shares that its stages cover in a step."""
    amplification = 2.0 / response * (1.0 / response - 1.0) * smoothing**3
    return math.sqrt((smoothing * (1.0 + (1.0 - smoothing) ** 2) + amplification) / (2.0 - smoothing) ** 3)

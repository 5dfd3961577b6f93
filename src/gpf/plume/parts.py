"""Commercial gas sensors as fields of a `Scenario`; `Scenario.with_sensor` applies one."""

from typing import Any

# Curves, clean-air ratios and time constants of the Figaro parts are those of the literature on robots that smell, for
# ethanol. Those of the MiCS-6814 (carbon monoxide, nitrogen dioxide, ammonia) are read off the curves of its data sheet
# and approximate; so are all load resistors (in the middle of the useful range of RS), noise and the dependence on
# temperature and humidity, which vary from part to part.
_FIGARO = {
    "sensor_kind": "metal-oxide",
    "sensor_relative_noise": 2e-3,
    "sensor_bits": 12,
    "sensor_inverse_smoothing": 0.05,
    "sensor_temperature_drift": -0.012,
    "sensor_humidity_drift": -0.004,
}
_MICS = {
    "sensor_kind": "metal-oxide",
    "sensor_rise_time": 3.0,
    "sensor_recovery_time": 12.0,
    "sensor_relative_noise": 2e-3,
    "sensor_bits": 12,
    "sensor_inverse_smoothing": 0.05,
    "sensor_temperature_drift": 0.005,
    "sensor_humidity_drift": 0.002,
}

SENSORS: dict[str, dict[str, Any]] = {
    "MiCS-6814-RED": {
        **_MICS,
        "sensor_curve_scale": 3.5,
        "sensor_curve_exponent": -0.85,
        "sensor_clean_air": 4.0,
        "sensor_load": 0.5,
    },
    "MiCS-6814-OX": {
        **_MICS,
        "sensor_curve_scale": 6.8,
        "sensor_curve_exponent": 0.99,
        "sensor_clean_air": 0.35,
        "sensor_load": 5.0,
    },
    "MiCS-6814-NH3": {
        **_MICS,
        "sensor_curve_scale": 0.8,
        "sensor_curve_exponent": -0.6,
        "sensor_clean_air": 0.85,
        "sensor_load": 0.2,
    },
    # Onset in 87 ms and recovery in 106 ms, each to 90 % of a step: ln 10 = 2.303 time constants.
    "fast-e-nose": {
        "sensor_kind": "linear",
        "sensor_rise_time": 0.0378,
        "sensor_recovery_time": 0.0460,
        "sensor_relative_noise": 2e-3,
        "sensor_bits": 16,
        "sensor_inverse_smoothing": 0.02,
        "sensor_temperature_drift": 0.0,
        "sensor_humidity_drift": 0.0,
    },
    "TGS2600": {
        **_FIGARO,
        "sensor_rise_time": 4.8,
        "sensor_recovery_time": 18.75,
        "sensor_curve_scale": 0.6796,
        "sensor_curve_exponent": -0.3196,
        "sensor_clean_air": 1.0,
        "sensor_load": 0.5,
    },
    "TGS2611": {
        **_FIGARO,
        "sensor_rise_time": 3.44,
        "sensor_recovery_time": 6.35,
        "sensor_curve_scale": 51.11,
        "sensor_curve_exponent": -0.3658,
        "sensor_clean_air": 8.8,
        "sensor_load": 5.0,
    },
    "TGS2620": {
        **_FIGARO,
        "sensor_rise_time": 2.96,
        "sensor_recovery_time": 15.71,
        "sensor_curve_scale": 62.32,
        "sensor_curve_exponent": -0.7155,
        "sensor_clean_air": 21.0,
        "sensor_load": 5.0,
    },
}
"""Fields of each sensor: kind, response times, static curve, electronics, noise, and how temperature changes it."""

"""Named worlds, as the fields of a scenario that differ from the defaults."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.plume.layout import OFFICE
from gpf.plume.parts import SENSORS

_FILAMENTS: dict[str, Any] = {
    "diffusion": 0.002, "filament_velocity_sigma": 0.2, "filament_velocity_time": 1.0,
    "emission_rate": 6.0, "filament_mass": 0.08, "head_start": 15.0,
}  # fmt: skip
"""Thin filaments that turbulence tears apart."""
_MEANDER: dict[str, Any] = {
    "wind_speed_sigma": 0.0, "wind_direction_sigma": 0.0,
    "wind_grid": 11, "wind_noise_sigma": 0.5, "wind_noise_frequency": 0.2, "wind_noise_damping": 0.1,
    "wind_diffusivity": 4.0,
}  # fmt: skip
"""A wind that differs from place to place and swings slowly."""
_TURBULENT: dict[str, Any] = {**_FILAMENTS, **_MEANDER}
_FLY: dict[str, Any] = {
    "width": 14.0, "height": 12.0, "source_at": (2.0, 6.0), "time_step": 0.04, "max_steps": 300,
    "wind_speed": 0.5, "wind_speed_sigma": 0.0, "wind_direction_sigma": 0.0, "wind_correlation_time": 0.04,
    "emission_rate": 10.0, "filament_radius": 0.03, "diffusion": 0.002, "filament_mass": 0.02,
    "filament_velocity_sigma": 0.05, "filament_lifetime": 40.0, "head_start": 30.0,
    "speed": 2.0, "start_distance_min": 4.0, "start_distance_max": 8.0, "start_bearing": 0.0,
    "start_heading_sigma": 180.0, "success_radius": 0.2, "lost_distance": 2.0,
}  # fmt: skip
"""The assay of Singh et al. (2023): 25 Hz, 12 s, home within 0.2 m, lost 2 m away from the nearest filament."""

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "reference": {
        "start_distance_max": 20.0 / 3.0,
        "octant_offset": 0.0,
        "octant_clockwise": False,
        "timeout_terminates": True,
        "shaping_discount": 1.0,
        "success_replaces": True,
    },
    "meandering": {
        **_FILAMENTS, "filament_velocity_sigma": 0.3, "wind_direction_sigma": 17.0, "wind_correlation_time": 10.0,
    },
    "gusty": {
        **_FILAMENTS, "wind_speed": 1.5, "wind_speed_sigma": 0.6, "wind_direction_sigma": 30.0,
        "wind_correlation_time": 3.0, "filament_velocity_sigma": 0.4,
    },
    "turbulent": _TURBULENT,
    "weak-source": {**_TURBULENT, "emission_rate": 2.0, "filament_mass": 0.04},
    "calm": {
        **_TURBULENT, "wind_speed": 0.3, "wind_noise_sigma": 0.2, "wind_noise_frequency": 0.1,
        "wind_diffusivity": 1.5, "filament_velocity_sigma": 0.08, "filament_velocity_time": 2.0,
        "filament_lifetime": 60.0, "head_start": 45.0, "max_steps": 1800,
    },
    "two-sources": {**_TURBULENT, "sources": 2},
    "decoy": {**_TURBULENT, "decoys": 1, "sensitivity": (1.0, 0.4, 0.3, 1.0)},
    "office": {
        "obstacles": OFFICE, "wind_speed": 0.5, "wind_speed_sigma": 0.1, "wind_direction_sigma": 12.0,
        "wind_correlation_time": 10.0, "diffusion": 0.003, "filament_velocity_sigma": 0.1,
        "filament_lifetime": 90.0, "emission_rate": 4.0, "head_start": 40.0,
        "source_upwind": 0.3, "start_distance_max": 12.0, "start_bearing": 60.0, "max_steps": 2400,
    },
    "slow-sensor": {**_TURBULENT, **SENSORS["MiCS-6814-RED"]},
    "fast-sensor": {**_TURBULENT, **SENSORS["fast-e-nose"], "substeps": 5},
    "fly-constant": _FLY,
    "fly-once": {**_FLY, "wind_switch_time": 32.0, "wind_switch_angle": 45.0},
    "fly-many": {
        **_FLY, "wind_switch_time": 1.0, "wind_switch_period": 3.0, "wind_switch_angle": 60.0,
        "wind_switch_random": True,
    },
}  # fmt: skip
"""Fields of each preset that differ from the defaults."""

FLY_DISTANCES = (4.0, 6.0, 8.0)
"""Distances of the flies' starts downwind of the source, m."""
FLY_HEADINGS = 8
FLY_REPEATS = 10


def fly_starts() -> NDArray[np.float64]:
    """The 240 starts of the flies' assay, as rows of `world.START`: three distances, eight headings, ten each."""
    x, y = _FLY["source_at"]
    headings = 2.0 * np.pi * np.arange(FLY_HEADINGS) / FLY_HEADINGS - np.pi
    rows = [(x, y, x + far, y, heading) for far in FLY_DISTANCES for heading in headings for _ in range(FLY_REPEATS)]
    return np.array(rows)

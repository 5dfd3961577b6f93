"""The worlds of clients, and unseen worlds for evaluation: the home world with a few fields changed."""

import dataclasses
from typing import Any

from gpf.plume.scenario import Scenario

HOME = "reference"
"""The preset that all of them share the other fields with."""
WORLDS: dict[str, dict[str, Any]] = {
    "gusts": {"wind_direction_sigma": 35.0, "wind_speed_sigma": 0.5, "wind_correlation_time": 4.0},
    "calm": {"wind_speed": 0.35, "wind_speed_sigma": 0.1, "wind_speed_floor": 0.05},
    "gale": {"wind_speed": 2.0, "wind_speed_sigma": 0.4},
    "turning wind": {"wind_turn": 2.0},
    "weak source": {"emission_rate": 2.0, "filament_mass": 0.05},
    "pulsed source": {"emission_period": 12.0, "emission_duty": 0.5},
    "wide plume": {"diffusion": 0.2, "filament_mass": 0.2},
    "slow robot": {"speed": 0.3},
}
"""Of the clients, in order."""
UNSEEN: dict[str, dict[str, Any]] = {
    "home": {},
    "noisy sensor": {"sensor_noise": 5e-3},
    "current": {"drift_speed": 0.15, "drift_direction": 90.0},
    "gusts and a weak source": {"wind_direction_sigma": 30.0, "wind_speed_sigma": 0.4, "emission_rate": 2.0},
}
"""Worlds for evaluation only."""


def world(fields: dict[str, Any]) -> Scenario:
    """Home with some fields changed."""
    return dataclasses.replace(Scenario.of(HOME), **fields)


def client_world(client: int) -> Scenario:
    """The world of a client; from the ninth on they repeat."""
    return world(list(WORLDS.values())[client % len(WORLDS)])

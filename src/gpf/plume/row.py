"""A scenario as one row of precomputed numbers for the kernels, per physical step and in radians."""

import math
from typing import Any

import numpy as np

from gpf.plume.scenario import ACTIONS, LEVELS, Scenario
from gpf.plume.sensor_row import SENSOR_NUMBERS, sensor_numbers

_MOST_RELAXATION = 2000
"""Physical steps after which the wind's grid is taken to be in its stationary state."""

_NUMBERS = (
    "width height time_step substeps head_start stride pace drift_x drift_y"
    " emission_mean emission_none emission_period emission_on emission_jitter filament_mass"
    " emission_random emission_stop emission_start places sources decoy_mean decoy_none substances source_spacing"
    " initial_variance variance_growth variance_cubic lifetime_steps cutoff_squared plain_smell"
    " velocity_sigma velocity_keep velocity_kick simple_air terrain bank_first bank_count"
    " recording recording_scale recording_start_random recording_mirrored pixel frames_a_tick"
    " wind_speed wind_speed_kick wind_speed_floor wind_direction wind_turn wind_direction_kick"
    " wind_reversion switch_first switch_period switch_angle switch_random"
    " grid_nodes grid_per_x grid_per_y grid_substeps grid_relaxation"
    " grid_advect_x grid_advect_y grid_diffuse_x grid_diffuse_y"
    " noise_sigma noise_frequency noise_xx noise_xv noise_vx noise_vv noise_kick_x noise_kick_vx noise_kick_v"
    " source_upwind source_jitter source_margin source_x source_y lost_distance"
    " start_distance_min start_distance_max start_bearing start_heading_sigma"
    " antenna_left antenna_forward left_gain right_gain vane_offset"
    " octant_offset octant_sign calm_speed"
    " success_radius max_steps timeout_terminates"
    " reward_time reward_success reward_whiff whiff_threshold reward_blank blank_steps"
    " reward_shaping shaping_discount success_replaces simple"
).split()
ROW = np.dtype(
    [("turns", np.float64, (len(ACTIONS),)), ("level_edges", np.float64, (LEVELS - 1,))]
    + [("sensitivity", np.float64, (4,))]
    + [(name, np.float64) for name in (*_NUMBERS, *SENSOR_NUMBERS)],
    align=True,
)
"""One scenario as the kernels see it; see `row_of`."""


def row_of(scenario: Scenario) -> Any:
    """The numbers that the kernels read: per step, in radians, with what does not change worked out.

    Which terrain and recording are meant, and from which rows an episode draws, depends on the world; see
    `gpf.plume.world.World`.
    """
    step = scenario.time_step / scenario.substeps
    alpha = min(1.0, step / scenario.wind_correlation_time)
    keep = math.exp(-step / scenario.filament_velocity_time)
    turn, cast = math.radians(scenario.turn_angle), math.radians(scenario.cast_angle)
    values = {
        "turns": (0.0, turn, -turn, math.radians(scenario.around_angle), cast, -cast),
        "time_step": step,
        "stride": scenario.speed * scenario.time_step,
        "pace": scenario.speed * step,
        "head_start": round(scenario.head_start / step),
        "emission_mean": scenario.emission_rate * step,
        "emission_none": math.exp(-scenario.emission_rate * step),
        "emission_period": round(scenario.emission_period / step),
        "emission_on": round(scenario.emission_duty * scenario.emission_period / step),
        "emission_random": scenario.emission_random and scenario.emission_period > 0.0 and scenario.emission_duty < 1.0,
        **_spells(scenario, step),
        "places": scenario.sources + scenario.decoys,
        "decoy_mean": scenario.decoy_strength * scenario.emission_rate * step,
        "decoy_none": math.exp(-scenario.decoy_strength * scenario.emission_rate * step),
        "substances": 2 if scenario.decoys else 1,
        "source_x": scenario.source_at[0] if scenario.source_at else -1.0,
        "source_y": scenario.source_at[1] if scenario.source_at else -1.0,
        "initial_variance": scenario.filament_radius**2,
        "variance_growth": 2.0 * scenario.diffusion * step,
        "variance_cubic": scenario.dispersion * step**3,
        "plain_smell": scenario.dispersion == 0.0 and not scenario.decoys,
        "simple_air": scenario.wind_grid == 0 and scenario.filament_velocity_sigma == 0.0,
        "terrain": -1.0,
        "recording": -1.0,
        "simple": _is_simple(scenario),
        "velocity_sigma": scenario.filament_velocity_sigma,
        "velocity_keep": keep,
        "velocity_kick": scenario.filament_velocity_sigma * math.sqrt(1.0 - keep**2),
        "lifetime_steps": math.floor(scenario.filament_lifetime / step + 1e-9),
        "cutoff_squared": scenario.cutoff**2,
        "switch_first": round(scenario.wind_switch_time / step) if scenario.wind_switch_time else 0,
        "switch_period": round(scenario.wind_switch_period / step),
        "switch_angle": math.radians(scenario.wind_switch_angle),
        "switch_random": scenario.wind_switch_random,
        **_grid(scenario, step),
        **sensor_numbers(scenario, step),
        "wind_reversion": alpha,
        "wind_speed_kick": scenario.wind_speed_sigma * math.sqrt(2.0 * alpha),
        "wind_direction": math.radians(scenario.wind_direction),
        "wind_turn": math.radians(scenario.wind_turn) * step,
        "wind_direction_kick": math.radians(scenario.wind_direction_sigma) * math.sqrt(2.0 * alpha),
        "start_bearing": math.radians(scenario.start_bearing),
        "start_heading_sigma": math.radians(scenario.start_heading_sigma),
        "drift_x": scenario.drift_speed * step * math.cos(math.radians(scenario.drift_direction)),
        "drift_y": scenario.drift_speed * step * math.sin(math.radians(scenario.drift_direction)),
        "antenna_left": (-0.5 if scenario.antennae_swapped else 0.5) * scenario.antenna_separation,
        "vane_offset": math.radians(scenario.vane_offset),
        "octant_sign": -1.0 if scenario.octant_clockwise else 1.0,
        "octant_offset": math.radians(scenario.octant_offset),
        "blank_steps": math.floor(scenario.blank_duration / scenario.time_step + 1e-9),
    }
    numbers = (values[name] if name in values else getattr(scenario, name, 0.0) for name in ROW.names or ())
    return np.array(tuple(numbers), ROW)[()]


def _is_simple(scenario: Scenario) -> bool:
    """Whether a step may take the short way of worlds with one wind, one source, plain filaments and ideal sensors."""
    return (
        scenario.substeps == scenario.sources == 1
        and scenario.wind_grid == scenario.decoys == 0
        and scenario.filament_velocity_sigma == scenario.dispersion == scenario.lost_distance == 0.0
        and scenario.sensor_kind == "ideal"
        and not scenario.emission_random
    )


def _spells(scenario: Scenario, step: float) -> dict[str, float]:
    """The probabilities that a source with random spells turns off, or on, in a physical step."""
    on = max(scenario.emission_duty * scenario.emission_period, 1e-9)
    off = max((1.0 - scenario.emission_duty) * scenario.emission_period, 1e-9)
    return {"emission_stop": 1.0 - math.exp(-step / on), "emission_start": 1.0 - math.exp(-step / off)}


def _grid(scenario: Scenario, step: float) -> dict[str, Any]:
    """The kernels' parameters of the fluctuations, for physical steps of this duration, s."""
    n = scenario.wind_grid
    if n == 0:
        return {}
    cell_x, cell_y = scenario.width / (n - 1), scenario.height / (n - 1)
    diffusivity = 0.5 * scenario.wind_diffusivity
    substeps = scenario.grid_substeps
    small = step / substeps
    crossing = math.hypot(scenario.width, scenario.height) / max(scenario.wind_speed, 1e-9)
    spreading = min(scenario.width, scenario.height) ** 2 / (2.0 * math.pi**2 * diffusivity)
    return {
        "grid_nodes": n,
        "grid_per_x": 1.0 / cell_x,
        "grid_per_y": 1.0 / cell_y,
        "grid_substeps": substeps,
        "grid_relaxation": min(math.ceil(2.0 * min(crossing, spreading) / step), _MOST_RELAXATION),
        "grid_advect_x": small / (2.0 * cell_x),
        "grid_advect_y": small / (2.0 * cell_y),
        "grid_diffuse_x": diffusivity * small / cell_x**2,
        "grid_diffuse_y": diffusivity * small / cell_y**2,
        **oscillator(scenario.wind_noise_sigma, scenario.wind_noise_frequency, scenario.wind_noise_damping, step),
    }


def oscillator(sigma: float, frequency: float, damping: float, step: float) -> dict[str, float]:
    """The exact step of a damped oscillator that noise drives: its transition, and the Cholesky factor of its noise.

    Args:
        sigma: Stationary standard deviation, m/s.
        frequency: Natural frequency, rad/s.
        damping: Damping ratio.
        step: Duration of a step, s.
    """
    from scipy.linalg import expm  # takes long to import, and most worlds have no grid

    dynamics = np.array([[0.0, 1.0], [-(frequency**2), -2.0 * damping * frequency]])
    transition = expm(step * dynamics)
    stationary = np.diag([sigma**2, (sigma * frequency) ** 2])
    if step * frequency * (1.0 + damping) > 1.0:
        noise = stationary - transition @ stationary @ transition.T
    else:  # the difference would cancel: integrate what the noise of each moment has become by the end of the step
        nodes, weights = np.polynomial.legendre.leggauss(16)
        responses = expm(0.5 * step * (1.0 + nodes)[:, None, None] * dynamics)[:, :, 1]  # to a unit of velocity
        drive = 4.0 * damping * frequency**3 * sigma**2  # (G f^2)^2
        noise = 0.5 * step * drive * (responses.T * weights) @ responses
    kick_x = math.sqrt(max(noise[0, 0], 0.0))
    kick_vx = noise[1, 0] / kick_x if kick_x > 0.0 else 0.0
    return {
        "noise_sigma": sigma,
        "noise_frequency": frequency,
        "noise_xx": transition[0, 0],
        "noise_xv": transition[0, 1],
        "noise_vx": transition[1, 0],
        "noise_vv": transition[1, 1],
        "noise_kick_x": kick_x,
        "noise_kick_vx": kick_vx,
        "noise_kick_v": math.sqrt(max(noise[1, 1] - kick_vx**2, 0.0)),
    }

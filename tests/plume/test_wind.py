"""The wind's grid against closed forms of a driven oscillator, and a plain finite-difference step written here."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.interpolate import RegularGridInterpolator
from scipy.linalg import expm
from scipy.signal import periodogram

from gpf.plume import Scenario
from gpf.plume.row import oscillator
from gpf.plume.world import World

STILL = {
    "speed": 0.0, "success_radius": 1e-6, "emission_rate": 0.0, "sensor_noise": 0.0, "max_steps": 10**7,
    "head_start": 0.0,
}  # fmt: skip
"""An agent that stays where it is, in a world without odour: only the wind is left."""
GRIDS = ("turbulent", "calm", "fast-sensor")
"""Presets whose grids differ; the others have that of `turbulent`."""


def world_of(count=1, seed=0, **fields):
    world = World(count, Scenario.of({**STILL, **fields}), threads=1)
    world.seed(range(seed, seed + count))
    world.begin()
    return world


def blow(world, steps=1):
    for _ in range(steps):
        world.step(np.zeros(world.count, np.int64))


def corners(world):
    """Positions of the corners' oscillators, shape (lanes, components, corner rows, corner columns)."""
    return world.lanes["noise"][:, 0::2].reshape(-1, 2, 2, 2)


def grids(world, nodes):
    """Fluctuations, shape (lanes, components, rows, columns)."""
    return world.grids.reshape(-1, 2, nodes, nodes)


def dynamics(frequency, damping):
    """The matrix A of d(x, v) = A (x, v) dt + (0, G f^2) dW."""
    return np.array([[0.0, 1.0], [-(frequency**2), -2.0 * damping * frequency]])


def drive(sigma, frequency, damping):
    """The factor G f^2 of the white noise, for which the stationary standard deviation is sigma = G sqrt(f / 4 z)."""
    return sigma * math.sqrt(4.0 * damping / frequency) * frequency**2


def covariance_by_quadrature(sigma, frequency, damping, step):
    """The integral of exp(A s) B B^T exp(A s)^T over a step, by Gauss-Legendre in short pieces."""
    a, b = dynamics(frequency, damping), np.array([0.0, drive(sigma, frequency, damping)])
    nodes, weights = np.polynomial.legendre.leggauss(10)
    pieces = max(1, math.ceil(step * frequency * (1.0 + damping)))
    total = np.zeros((2, 2))
    for piece in range(pieces):
        for node, weight in zip(nodes, weights, strict=True):
            response = expm(a * step * (piece + 0.5 * (1.0 + node)) / pieces) @ b
            total += 0.5 * weight * step / pieces * np.outer(response, response)
    return total


@given(
    sigma=st.floats(0.01, 5.0),
    frequency=st.floats(0.02, 5.0),
    damping=st.floats(0.01, 3.0),
    step=st.sampled_from([1e-4, 1e-3, 0.02, 0.05, 0.1, 1.0]),
)
def test_a_corner_makes_the_exact_step_of_a_driven_oscillator(sigma, frequency, damping, step):
    numbers = oscillator(sigma, frequency, damping, step)
    transition = [[numbers["noise_xx"], numbers["noise_xv"]], [numbers["noise_vx"], numbers["noise_vv"]]]
    np.testing.assert_allclose(transition, expm(step * dynamics(frequency, damping)), rtol=1e-12)
    factor = np.array([[numbers["noise_kick_x"], 0.0], [numbers["noise_kick_vx"], numbers["noise_kick_v"]]])
    expected = covariance_by_quadrature(sigma, frequency, damping, step)
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    np.testing.assert_allclose(factor @ factor.T / scale, expected / scale, atol=1e-6)


def test_the_world_steps_its_corners_by_that_law_and_nothing_else():
    """With the noise's covariance known, what is left of a step must be white: no mean, unit variance, uncorrelated."""
    world = world_of(200, wind_grid=3, wind_noise_sigma=0.7, wind_noise_frequency=0.8, wind_noise_damping=0.2)
    before = world.lanes["noise"].reshape(200, 8, 2).copy()
    transition = expm(0.1 * dynamics(0.8, 0.2))
    left_over = []
    for _ in range(50):
        blow(world)
        after = world.lanes["noise"].reshape(200, 8, 2).copy()
        left_over.append(after - before @ transition.T)
        before = after
    factor = np.linalg.cholesky(covariance_by_quadrature(0.7, 0.8, 0.2, 0.1))
    white = np.linalg.solve(factor, np.concatenate(left_over).reshape(-1, 2).T)  # 80,000 pairs
    assert np.abs(white.mean(axis=1)).max() < 5.0 / math.sqrt(white.shape[1])
    np.testing.assert_allclose(np.cov(white), np.eye(2), atol=5.0 * math.sqrt(2.0 / white.shape[1]))


def test_the_spectrum_of_a_corner_is_that_of_a_damped_oscillator_in_white_noise():
    sigma, frequency, damping, step = 0.5, 1.0, 0.3, 0.1
    world = world_of(
        48, wind_grid=3, wind_noise_sigma=sigma, wind_noise_frequency=frequency, wind_noise_damping=damping
    )
    series = np.empty((4096, 48, 8))
    for moment in series:
        blow(world)
        moment[:] = world.lanes["noise"][:, 0::2]
    assert series.std() == pytest.approx(sigma, rel=0.02)
    hertz, power = periodogram(series, 1.0 / step, window="hann", detrend=False, axis=0)
    omega = 2.0 * np.pi * hertz
    white = 2.0 * drive(sigma, frequency, damping) ** 2  # one-sided, per Hz
    expected = white / ((frequency**2 - omega**2) ** 2 + (2.0 * damping * frequency * omega) ** 2)
    band = (omega > 0.1) & (omega < 6.0)
    ratio = power.mean(axis=(1, 2))[band] / expected[band]
    assert ratio.mean() == pytest.approx(1.0, abs=0.02)
    assert np.abs(ratio - 1.0).max() < 0.3  # each bin is a mean of 384: 5 %


@pytest.mark.parametrize("step", [0.02, 0.05, 0.1])
def test_the_statistics_of_the_corners_do_not_depend_on_the_time_step(step):
    sigma, frequency, damping, lag = 0.5, 0.9, 0.15, 2.0
    world = world_of(
        1500, time_step=step, wind_grid=3,
        wind_noise_sigma=sigma, wind_noise_frequency=frequency, wind_noise_damping=damping,
    )  # fmt: skip
    start = world.lanes["noise"].reshape(-1, 2).copy()
    blow(world, round(lag / step))
    end = world.lanes["noise"].reshape(-1, 2)
    stationary = np.diag([sigma**2, (sigma * frequency) ** 2])
    scale = np.sqrt(np.outer(np.diag(stationary), np.diag(stationary)))
    error = 5.0 * math.sqrt(2.0 / len(start))
    np.testing.assert_allclose(end.T @ end / len(end) / scale, np.eye(2), atol=error)
    lagged = expm(lag * dynamics(frequency, damping)) @ stationary
    np.testing.assert_allclose(end.T @ start / len(end) / scale, lagged / scale, atol=error)


def test_an_episode_begins_with_corners_in_their_stationary_law():
    world = world_of(2000, wind_grid=3, wind_noise_sigma=0.4, wind_noise_frequency=0.3)
    positions, velocities = world.lanes["noise"][:, 0::2], world.lanes["noise"][:, 1::2]
    assert (world.lanes["step"] == 0).all()
    assert positions.std() == pytest.approx(0.4, rel=0.03)
    assert velocities.std() == pytest.approx(0.4 * 0.3, rel=0.03)
    assert abs(np.corrcoef(positions.ravel(), velocities.ravel())[0, 1]) < 0.04


@pytest.mark.parametrize("nodes", [3, 4, 11])
def test_the_edges_of_the_grid_interpolate_its_corners(nodes):
    world = world_of(5, wind_grid=nodes, wind_noise_sigma=0.5)
    blow(world, 20)
    share = np.arange(nodes) / (nodes - 1)
    for grid, corner in zip(grids(world, nodes), corners(world), strict=True):
        for field, ((a, b), (c, d)) in zip(grid, corner, strict=True):
            np.testing.assert_allclose(field[0], a + share * (b - a), atol=1e-12)
            np.testing.assert_allclose(field[-1], c + share * (d - c), atol=1e-12)
            np.testing.assert_allclose(field[:, 0], a + share * (c - a), atol=1e-12)
            np.testing.assert_allclose(field[:, -1], b + share * (d - b), atol=1e-12)


def plain_step(field, wind, cell, diffusivity, duration):
    """One explicit step of dw/dt = -(W + w) . grad w + (K / 2) laplacian w inside; field has shape (2, rows, columns).

    Central differences by shifting whole arrays; what wraps around at the edges is thrown away.
    """
    new = field.copy()
    u, v = wind[0] + field[0], wind[1] + field[1]
    for component in range(2):
        w = field[component]
        east, west = np.roll(w, -1, axis=1), np.roll(w, 1, axis=1)
        north, south = np.roll(w, -1, axis=0), np.roll(w, 1, axis=0)
        carried = u * (east - west) / (2.0 * cell[0]) + v * (north - south) / (2.0 * cell[1])
        spread = (east - 2.0 * w + west) / cell[0] ** 2 + (north - 2.0 * w + south) / cell[1] ** 2
        change = duration * (0.5 * diffusivity * spread - carried)
        new[component, 1:-1, 1:-1] += change[1:-1, 1:-1]
    return new


@pytest.mark.parametrize(
    ("diffusivity", "several"), [(4.0, False), (60.0, True)], ids=["one step", "several steps within one"]
)
def test_the_grid_makes_a_plain_finite_difference_step(diffusivity, several):
    nodes, width, height = 9, 20.0, 12.0
    world = world_of(
        4, width=width, height=height, wind_grid=nodes, wind_noise_sigma=0.4, wind_diffusivity=diffusivity,
        wind_direction=30.0, wind_direction_sigma=20.0,
    )  # fmt: skip
    parts = int(world.rows["grid_substeps"][0])
    assert (parts > 1) == several
    for _ in range(10):
        before = grids(world, nodes).copy()
        blow(world)
        for old, new, lane in zip(before, grids(world, nodes), world.lanes, strict=True):
            angle = lane["wind_direction"]
            wind = lane["wind_speed"] * np.array([math.cos(angle), math.sin(angle)])
            field = new.copy()  # the edges of this step
            field[:, 1:-1, 1:-1] = old[:, 1:-1, 1:-1]
            for _ in range(parts):
                field = plain_step(field, wind, (width / (nodes - 1), height / (nodes - 1)), diffusivity, 0.1 / parts)
            np.testing.assert_allclose(new, field, atol=1e-12)
            assert np.abs(new - old)[:, 1:-1, 1:-1].max() > 1e-4


def test_the_vane_reads_the_mean_wind_plus_the_grid_interpolated_where_the_agent_is():
    nodes, width, height = 7, 20.0, 12.0
    world = world_of(60, width=width, height=height, wind_grid=nodes, wind_noise_sigma=0.5, wind_direction=-50.0)
    rng = np.random.default_rng(0)
    world.lanes["x"], world.lanes["y"] = rng.uniform(0.0, width, 60), rng.uniform(0.0, height, 60)
    world.lanes["x"][:4], world.lanes["y"][:4] = [0.0, width, width, 10.0], [0.0, height, 5.0, height]  # on the edges
    blow(world)
    axes = np.linspace(0.0, height, nodes), np.linspace(0.0, width, nodes)
    for lane, grid, raw in zip(world.lanes, grids(world, nodes), world.raw, strict=True):
        here = RegularGridInterpolator(axes, np.moveaxis(grid, 0, -1))([[lane["y"], lane["x"]]])[0]
        mean = lane["wind_speed"] * np.exp(1j * lane["wind_direction"])
        local = mean + here[0] + 1j * here[1]
        assert lane["vane_speed"] == pytest.approx(abs(local), abs=1e-12)
        assert lane["vane_direction"] == pytest.approx(np.angle(local), abs=1e-9)
        assert raw[2] == pytest.approx(abs(local), rel=1e-6)
        assert raw[3] == pytest.approx(np.angle(local), rel=1e-5)
    assert world.lanes["vane_direction"].std() > 0.1  # the wind differs from place to place


@pytest.mark.parametrize("preset", ["turbulent", "calm"])
def test_the_whole_grid_is_stationary_when_an_episode_begins(preset):
    nodes = Scenario.preset(preset).wind_grid
    world = world_of(1000, preset=preset)
    variance = grids(world, nodes)[..., 1:-1].var(axis=(0, 1, 2))  # of each column of nodes
    blow(world, 600)
    later = grids(world, nodes)[..., 1:-1].var(axis=(0, 1, 2))
    np.testing.assert_allclose(variance / later, 1.0, atol=0.2)  # 2,000 independent fields: 5 % for a ratio


EXTREMES = {
    "strong noise": {"wind_noise_sigma": 10.0},
    "fast noise": {"wind_noise_frequency": 100.0},
    "slow noise": {"wind_noise_frequency": 1e-6},
    "hardly damped": {"wind_noise_damping": 1e-6},
    "overdamped": {"wind_noise_damping": 100.0},
    "no diffusion to speak of": {"wind_diffusivity": 0.05},
    "strong diffusion": {"wind_diffusivity": 1e3},
    "few nodes": {"wind_grid": 3},
    "many nodes": {"wind_grid": 41},
    "no mean wind": {"wind_speed": 0.0, "wind_speed_floor": 0.0},
    "gale": {"wind_speed": 30.0},
    "long steps": {"time_step": 1.0, "emission_rate": 0.0, "wind_correlation_time": 2.0},
    "narrow": {"height": 2.0},
}


@pytest.mark.parametrize("preset", GRIDS)
@pytest.mark.parametrize("extreme", EXTREMES)
def test_the_grid_stays_finite_and_bounded_at_extreme_values(preset, extreme):
    world = world_of(preset=preset, **EXTREMES[extreme])
    greatest = 0.0
    for _ in range(2000 // int(world.rows["substeps"][0])):
        blow(world)
        greatest = max(greatest, np.abs(world.grids).max())
    assert greatest < 20.0 * world.rows["noise_sigma"][0]  # NaN is not below


def test_a_head_start_of_too_many_steps_is_refused():
    with pytest.raises(ValueError, match="^head_start must be at most 10,000 physical steps, 1 s, got 15$"):
        Scenario.of({"preset": "turbulent", "time_step": 1e-3, "substeps": 10})


@pytest.mark.parametrize(
    "fields", [{"wind_diffusivity": 1e-3}, {"wind_diffusivity": 1e4, "wind_grid": 51}, {"wind_noise_sigma": 100.0}]
)
def test_a_grid_that_would_take_thousands_of_parts_of_a_step_is_refused(fields):
    with pytest.raises(ValueError, match="^wind_diffusivity must allow at most 200,000 updates of the wind's nodes"):
        World(1, Scenario.of({"preset": "turbulent", **fields}))

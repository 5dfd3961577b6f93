import numpy as np
import pytest

from gpf.navigation.opponents.nose import NOSE, sensing_of, sniff
from gpf.plume import Scenario
from gpf.plume.kernels import kernel


@kernel
def _sniff(q, p, noses, raw, out):
    out[0], out[1] = sniff(q, p, noses[0], raw)


def sniffed(scenario, series):
    """What is made of readings, rows of (left, right, second left, second right)."""
    sensing, row = sensing_of(scenario)
    noses, out = np.zeros(1, NOSE), np.zeros(2)
    found = []
    for left, right, second_left, second_right in series:
        raw = np.array([left, right, 1.0, 0.0, 0.0, 0.0, second_left, second_right], np.float32)
        _sniff(sensing, row, noses, raw, out)
        found.append(out.copy())
    return np.array(found)


def test_a_fast_sensor_is_read_as_it_is():
    for name in ("reference", "fast-sensor"):
        assert sniffed(Scenario.preset(name), [(0.1, 0.2, 0, 0)])[0] == pytest.approx([0.1, 0.2], rel=1e-6)


def test_two_channels_are_solved_for_the_source():
    """Of the decoys' substance alone there is nothing left, and of the source's all."""
    decoy = Scenario.preset("decoy")
    a, b, c, d = decoy.sensitivity
    found = sniffed(decoy, [(0.3 * b, 0.1 * b, 0.3 * d, 0.1 * d), (0.2 * a, 0.0, 0.2 * c, 0.0)])
    np.testing.assert_allclose(found, [[0.0, 0.0], [0.2, 0.0]], atol=1e-6)


def test_the_response_of_a_slow_sensor_is_undone():
    """A whiff of half a second, through the first-order response of a metal-oxide sensor without noise."""
    slow = Scenario.preset("slow-sensor")
    gas = np.zeros(60)
    gas[20:25] = 0.05
    scale, exponent, air = slow.sensor_curve_scale, slow.sensor_curve_exponent, slow.sensor_clean_air
    ratio, readings = air, []
    for c in gas:
        target = min(scale * (1e3 * c) ** exponent, air) if c > 0 else air
        tau = slow.sensor_rise_time if target < ratio else slow.sensor_recovery_time
        ratio += (target - ratio) * -np.expm1(-slow.time_step / tau)
        readings.append((ratio / scale) ** (1 / exponent) / 1e3)
    found = sniffed(slow, [(r, r, 0, 0) for r in readings])[:, 0]
    whiff = float(sensing_of(slow)[0]["whiff"])
    np.testing.assert_array_equal(found > whiff, gas > 0)
    np.testing.assert_allclose(found[20:25], 0.05, rtol=0.02)


def test_a_noisier_sensor_has_a_higher_threshold():
    quiet, loud = (float(sensing_of(Scenario(sensor_noise=n))[0]["whiff"]) for n in (1e-3, 2e-3))
    assert loud == pytest.approx(2 * quiet)

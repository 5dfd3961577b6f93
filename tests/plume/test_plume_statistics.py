"""Statistics of series that are made to have known ones."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import integrate, optimize

from gpf.plume.measures import (
    concentration_density,
    correlation,
    decay_exponent,
    gaussian_fit,
    integral_time,
    intermittency,
    lagged_correlation,
    peak_to_mean,
    percentile_to_mean,
    tail_scale,
)
from gpf.plume.statistics import plume_statistics, point_statistics

AMOUNTS = st.just(0.0) | st.floats(1e-9, 1e3)
SERIES = arrays(float, st.tuples(st.integers(1, 3), st.integers(2, 40)), elements=AMOUNTS)


def telegraph(whiff, blank, count=8000, step=0.1, seed=0):
    """A concentration of 0 or 1 with exponential whiffs and blanks of these mean durations, s; sampled every step."""
    rng = np.random.default_rng(seed)
    changes = np.cumsum(np.stack([rng.exponential(whiff, count), rng.exponential(blank, count)], axis=1).ravel())
    times = np.arange(0.0, changes[-1], step)
    return (np.searchsorted(changes, times, side="right") % 2 == 0).astype(float)


def tail_samples(scale, start, count, seed=0):
    """Concentrations above `start` with the density exp(-c / scale) / c, by rejection."""
    rng = np.random.default_rng(seed)
    proposed = start + rng.exponential(scale, 40 * count)
    return proposed[rng.random(len(proposed)) < start / proposed][:count]


def test_a_two_state_process_has_the_statistics_that_theory_gives_it():
    found = point_statistics(telegraph(2.0, 6.0), 0.5, 0.1)
    assert found.intermittency == pytest.approx(2.0 / 8.0, abs=0.01)
    assert found.mean == pytest.approx(0.25, abs=0.01)
    assert found.peak_to_mean == pytest.approx(1.0 / found.mean)
    assert found.whiffs.mean == pytest.approx(2.0, rel=0.07)  # gaps shorter than a sample are missed
    assert found.blanks.mean == pytest.approx(6.0, rel=0.07)
    assert found.whiffs.cv == pytest.approx(1.0, abs=0.06)
    assert found.blanks.cv == pytest.approx(1.0, abs=0.06)
    assert found.integral_time == pytest.approx(2.0 * 6.0 / 8.0, rel=0.06)  # autocorrelation exp(-t (1/2 + 1/6))


@given(SERIES, AMOUNTS, st.integers(-20, 20))
def test_scaling_concentration_and_threshold_together_changes_no_statistic(series, threshold, exponent):
    factor = 2.0**exponent  # which rounds nothing
    one, other = point_statistics(series, threshold, 0.1), point_statistics(factor * series, factor * threshold, 0.1)
    assert other.intermittency == one.intermittency
    assert repr(other.whiffs) == repr(one.whiffs)  # as text: NaN is not equal to itself
    assert repr(other.blanks) == repr(one.blanks)
    assert other.mean == factor * one.mean
    for name in ("peak_to_mean", "percentile_to_mean", "integral_time"):
        assert getattr(other, name) == pytest.approx(getattr(one, name), nan_ok=True, rel=1e-6)
    assert other.tail_scale == pytest.approx(factor * one.tail_scale, nan_ok=True, rel=1e-6)


@given(SERIES)
def test_intermittency_falls_as_the_threshold_rises(series):
    shares = [intermittency(series, threshold) for threshold in (0.0, 1.0, 10.0, 100.0, 1e4)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] == 0.0


def test_a_sample_at_the_threshold_belongs_to_a_blank():
    assert intermittency([1.0, 2.0, 3.0, 2.0], 2.0) == 0.25


def test_the_peak_is_the_maximum_of_each_record_over_its_own_mean():
    records = np.array([[0.0, 0.0, 0.0, 4.0], [1.0, 1.0, 3.0, 3.0], [0.0, 0.0, 0.0, 0.0]])
    assert peak_to_mean(records) == pytest.approx((4.0 + 1.5) / 2)
    assert math.isnan(peak_to_mean(np.zeros((2, 3))))


def test_the_percentile_hardly_depends_on_the_length_of_a_record():
    values = np.random.default_rng(0).exponential(size=(1, 400_000))
    assert percentile_to_mean(values) == pytest.approx(math.log(1000.0), rel=0.02)
    assert percentile_to_mean(values[:, :100_000]) == pytest.approx(math.log(1000.0), rel=0.04)
    assert peak_to_mean(values) > 1.5 * math.log(1000.0)


@pytest.mark.parametrize(("scale", "start"), [(2.0, 0.1), (0.5, 0.5), (3.0, 6.0)])
def test_the_tail_gives_back_its_scale(scale, start):
    found, _ = tail_scale(tail_samples(scale, start, 20_000), start)
    assert found == pytest.approx(scale, rel=0.05)


def test_the_scale_of_the_tail_has_the_greatest_likelihood():
    samples = tail_samples(1.0, 0.3, 500, seed=1)

    def loss(log_scale):
        scale = math.exp(log_scale)
        total, _ = integrate.quad(lambda c: math.exp(-c / scale) / c, 0.3, math.inf)
        return samples.mean() / scale + math.log(total)

    best = optimize.minimize_scalar(loss, bounds=(-3.0, 3.0), method="bounded").x
    assert tail_scale(samples, 0.3)[0] == pytest.approx(math.exp(best), rel=1e-3)


def test_the_tail_begins_at_the_median_within_whiffs():
    samples = np.arange(1.0, 102.0)
    assert tail_scale(samples)[1] == 51.0
    assert math.isnan(tail_scale(np.full(50, 2.0))[0])
    assert math.isnan(tail_scale(np.empty(0))[0])


def test_the_density_of_concentrations_integrates_to_one():
    samples = tail_samples(1.0, 0.01, 50_000)
    density = concentration_density(samples)
    assert np.trapezoid(density.values, density.centres) == pytest.approx(1.0, abs=0.06)


@given(st.floats(-2.0, 2.0), st.floats(0.3, 3.0), st.floats(1e-6, 1e6))
def test_a_gaussian_profile_gives_back_its_width(centre, width, height):
    offsets = np.linspace(-9.0, 9.0, 31)
    found = gaussian_fit(offsets, height * np.exp(-0.5 * ((offsets - centre) / width) ** 2))
    assert found == pytest.approx((height, centre, width), rel=1e-3, abs=1e-3 * width)


def test_a_profile_without_odour_has_no_width():
    assert np.isnan(gaussian_fit([-1.0, 0.0, 1.0], [0.0, 0.0, 0.0])).all()


def test_the_decay_is_the_exponent_of_the_distance():
    distances = np.array([3.0, 6.0, 12.0])
    assert decay_exponent(distances, 7.0 * distances**-1.3) == pytest.approx(-1.3)
    assert math.isnan(decay_exponent(distances, [1.0, 0.0, 0.0]))


def test_the_correlation_of_antennae_is_pearsons_averaged_over_records():
    rng = np.random.default_rng(0)
    left = rng.random((3, 200))
    right = left + rng.random((3, 200)) * np.array([[0.1], [1.0], [3.0]])
    expected = np.mean([np.corrcoef(a, b)[0, 1] for a, b in zip(left, right, strict=True)])
    assert correlation(left, right) == pytest.approx(expected)
    assert correlation(left, left) == pytest.approx(1.0)


def test_a_record_that_does_not_vary_has_no_correlation():
    varying, constant = np.random.default_rng(0).random(50), np.full(50, 0.1)
    assert math.isnan(correlation(varying, constant))
    faint = correlation(1e-200 * varying, 1e-200 * varying**2)
    assert faint == pytest.approx(np.corrcoef(varying, varying**2)[0, 1])  # whose squares are zero in double precision
    both = correlation(np.stack([varying, constant]), np.stack([varying**2, varying]))
    assert both == pytest.approx(np.corrcoef(varying, varying**2)[0, 1])


def test_the_correlation_at_a_lag_is_that_of_a_plain_loop():
    rng = np.random.default_rng(2)
    first = rng.random(80)
    second = np.roll(first, 3) + 0.1 * rng.random(80)  # follows three samples later
    a, b = (first - first.mean()) / first.std(), (second - second.mean()) / second.std()
    plain = [sum(a[t] * b[t + lag] for t in range(80 - lag)) / 80 for lag in range(10)]
    found = lagged_correlation(first, second, 9)
    assert found == pytest.approx(plain)
    assert np.argmax(found) == 3


def test_the_integral_time_of_an_autoregressive_series_is_its_correlation_time():
    rng, keep = np.random.default_rng(0), math.exp(-0.1 / 2.0)
    series = np.empty(200_000)
    series[0] = 0.0
    kicks = rng.normal(size=len(series))
    for t in range(1, len(series)):
        series[t] = keep * series[t - 1] + kicks[t]
    assert integral_time(series - series.min(), 0.1) == pytest.approx(2.0, rel=0.1)


def statistics_of(series):
    return plume_statistics(
        [series, series], [(series, series)] * 2, [series] * 3, distances=[1.0, 2.0], offsets=[-1.0, 0.0, 1.0],
        profile_distance=1.0, separation=0.1, threshold=0.5, time_step=0.1,
    )  # fmt: skip


def test_json_holds_all_statistics_and_null_for_what_is_not_defined():
    values = json.loads(statistics_of(np.zeros((2, 50))).to_json(), parse_constant=pytest.fail)
    assert (values["records"], values["seconds"], values["threshold"]) == (2, 5.0, 0.5)
    assert values["axis"][0]["whiffs"] == {"count": 0} | dict.fromkeys(
        ("mean", "cv", "low", "high", "slope", "slope_least_squares")
    )
    assert values["profile"]["width"] is None
    full = json.loads(statistics_of(telegraph(1.0, 2.0, 500)).to_json())
    assert full["axis"][1]["distance"] == 2.0
    assert full["axis"][1]["antenna_correlation"] == pytest.approx(1.0)
    assert full["axis"][0]["blanks"]["count"] > 400


@pytest.mark.parametrize("series", [[], [[[1.0]]], [1.0, math.nan], [1.0, -1.0], [math.inf]])
def test_a_series_must_hold_concentrations(series):
    with pytest.raises(ValueError, match=r"^series must "):
        point_statistics(series, 0.1, 0.1)


@pytest.mark.parametrize("threshold", [-1.0, math.nan, math.inf])
def test_a_threshold_must_be_a_concentration(threshold):
    with pytest.raises(ValueError, match=r"^threshold must be a number of at least 0, got "):
        point_statistics([1.0, 2.0], threshold, 0.1)

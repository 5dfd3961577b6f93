"""Whiffs and blanks of series whose durations have a known law."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gpf.plume.durations import (
    FEWEST,
    cut_offs,
    duration_density,
    duration_statistics,
    least_squares_slope,
    likelihood_slope,
    runs,
)

BITS = st.lists(st.booleans(), min_size=1, max_size=60)


def plain_runs(above):
    """The same by grouping, one sample at a time."""
    groups = [(value, len(list(group))) for value, group in itertools.groupby(above)]
    inner = groups[1:-1]
    ends = groups if len(groups) < 3 else [groups[0], groups[-1]]
    return [n for up, n in inner if up], [n for up, n in inner if not up], [n for _, n in ends]


def power_law(slope, low, high, count, seed=0):
    """Durations with the density t^slope between low and high, by inversion."""
    u, power = np.random.default_rng(seed).random(count), slope + 1.0
    if power == 0.0:
        return low * (high / low) ** u
    return (low**power + u * (high**power - low**power)) ** (1.0 / power)


def alternating(whiffs, blanks):
    """A series of samples that is above its threshold for each of some runs in turn, and below it between them."""
    lengths = np.stack([whiffs, blanks], axis=1).ravel()
    return np.repeat(np.tile([True, False], len(whiffs)), lengths)


@given(BITS)
def test_runs_are_those_that_a_plain_loop_finds(above):
    found = runs(above)
    assert [part.tolist() for part in (found.whiffs, found.blanks, found.cut)] == list(plain_runs(above))


@given(st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=6))
def test_whiffs_blanks_and_runs_cut_off_add_up_to_the_length_of_all_series(series):
    found = runs(series)
    assert found.whiffs.sum() + found.blanks.sum() + found.cut.sum() == 7 * len(series)


@given(BITS)
def test_whiffs_of_a_series_are_blanks_of_its_opposite(above):
    one, other = runs(above), runs(~np.array(above))
    assert one.whiffs.tolist() == other.blanks.tolist()
    assert one.cut.tolist() == other.cut.tolist()


def test_runs_do_not_continue_from_one_series_to_the_next():
    found = runs([[False, True, True], [True, True, False]])
    assert found.whiffs.tolist() == []
    assert found.cut.tolist() == [1, 2, 2, 1]


def test_a_series_that_never_crosses_its_threshold_is_one_run_cut_off():
    assert runs(np.ones(9, bool)).cut.tolist() == [9]


def test_exponential_durations_have_a_cv_of_one_and_power_laws_a_larger_one():
    rng = np.random.default_rng(1)
    exponential = np.ceil(rng.exponential(50.0, 20_000)).astype(int)
    found = duration_statistics(exponential, 0.1)
    assert found.cv == pytest.approx(1.0, abs=0.03)
    assert found.mean == pytest.approx(5.05, rel=0.03)  # rounded up by half a sample
    assert duration_statistics(np.round(power_law(-1.5, 2.0, 2000.0, 20_000)).astype(int), 0.1).cv > 2.0


@pytest.mark.parametrize(("ratio", "cv"), [(38, 1.2), (430, 2.5)])
def test_the_cv_of_the_theory_grows_with_the_distance_between_its_cut_offs(ratio, cv):
    """With density t^-1.5 between 1 and r^2, CV^2 = (r + 1 + 1 / r) / 3 - 1; the documents give two values."""
    root = math.sqrt(ratio)
    assert math.sqrt((root + 1.0 + 1.0 / root) / 3.0 - 1.0) == pytest.approx(cv, abs=0.005)
    durations = np.round(power_law(-1.5, 50.0, 50.0 * ratio, 100_000, seed=5)).astype(int)
    assert duration_statistics(durations, 0.1).cv == pytest.approx(cv, rel=0.02)


@pytest.mark.parametrize("slope", [-1.2, -1.5, -2.0])
def test_pareto_durations_give_back_their_exponent(slope):
    blanks = np.round(power_law(slope, 1.0, 100.0, 8000, seed=2) / 0.1).astype(int)
    found = runs(alternating(np.full(8000, 5), blanks))
    assert set(found.whiffs) == {5}
    stated = duration_statistics(found.blanks, 0.1, low=1.1, high=99.0)  # samples at the ends are half empty
    assert (stated.low, stated.high) == pytest.approx((1.1, 99.0))
    assert stated.slope == pytest.approx(slope, abs=0.04)
    assert stated.slope_least_squares == pytest.approx(slope, abs=0.12)
    estimated = duration_statistics(found.blanks, 0.1)
    assert 0.8 <= estimated.low <= 1.6
    assert estimated.slope == pytest.approx(slope, abs=0.12)


def test_exponential_durations_of_a_few_samples_are_told_from_a_power_law_by_their_cv_alone():
    found = duration_statistics(np.random.default_rng(0).geometric(1 / 3.3, 5000), 0.1)
    assert found.slope == pytest.approx(-1.2, abs=0.1)
    assert found.cv < 0.9
    assert (
        duration_statistics(np.random.default_rng(0).geometric(1 / 30, 5000), 0.1).slope > -0.9
    )  # longer ones: by both


def test_durations_below_the_lower_cut_off_do_not_count():
    law = np.round(power_law(-1.5, 20.0, 2000.0, 5000, seed=3)).astype(int)
    short = np.full(5000, 3)
    mixed = likelihood_slope(np.concatenate([law, short]), 20, 2000)
    assert mixed == likelihood_slope(law, 20, 2000)
    assert abs(likelihood_slope(np.concatenate([law, short]), 1, 2000) - mixed) > 0.2


def test_the_likelihood_is_that_of_a_zipf_law():
    lengths = stats.zipfian(1.4, 300).rvs(2000, random_state=4)
    values, counts = np.unique(lengths, return_counts=True)
    slopes = np.linspace(-1.6, -1.2, 201)
    likelihoods = [counts @ stats.zipfian.logpmf(values, -slope, 300) for slope in slopes]
    assert likelihood_slope(lengths, 1, 300) == pytest.approx(slopes[np.argmax(likelihoods)], abs=2e-3)


def test_least_squares_find_the_slope_of_an_exact_power_law():
    counts = np.round(1e6 * np.arange(1, 201) ** -1.5).astype(int)
    lengths = np.repeat(np.arange(1, 201), counts)
    assert least_squares_slope(lengths, 4, 200) == pytest.approx(-1.5, abs=0.03)


def test_the_density_of_equally_frequent_durations_is_the_same_in_all_bins():
    density = duration_density(np.repeat(np.arange(1, 101), 7))
    assert density.values == pytest.approx(np.full(len(density.values), 0.01))
    assert (np.diff(np.log(density.centres[-8:])) < 0.4).all()


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=200))
def test_cut_offs_enclose_at_least_half_of_the_durations(lengths):
    lengths = np.array(lengths)
    low, high = cut_offs(lengths)
    assert 1 <= low < high
    assert np.mean(lengths >= low) >= 0.5
    assert np.mean(lengths <= high) >= 0.5


@pytest.mark.parametrize("count", [0, 1, FEWEST - 1])
def test_too_few_durations_have_no_slope(count):
    found = duration_statistics(np.full(count, 4), 0.5)
    assert found.count == count
    assert math.isnan(found.slope)
    assert math.isnan(found.mean) == (count == 0)
    assert math.isnan(found.cv) == (count < 2)


def test_cut_offs_in_the_wrong_order_are_refused():
    with pytest.raises(ValueError, match=r"^the upper cut-off must be above the lower one, got 1 and 2 s$"):
        duration_statistics(np.arange(1, 50), 0.1, low=2.0, high=1.0)

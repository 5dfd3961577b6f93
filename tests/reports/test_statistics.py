import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from gpf.reports.statistics import (
    interquartile_mean,
    paired_difference,
    performance_profile,
    probability_of_improvement,
    wilson,
)

OURS = [0.961, 0.907, 0.905, 0.942, 0.924, 0.937, 0.979, 0.954, 0.843, 0.773]
THEIRS = [0.884, 0.931, 0.892, 0.829, 0.733, 0.736, 0.956, 0.901]


def test_wilson_by_hand():
    """9 of 10, 95 %: (0.9 + 0.19207 -+ 1.95996 sqrt(0.009 + 0.0096036)) / 1.384146."""
    low, high = wilson(9, 10)
    assert low == pytest.approx(0.59585, abs=1e-5)
    assert high == pytest.approx(0.98212, abs=1e-5)


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_wilson_equals_scipys(counts, confidence):
    interval = binomtest(*counts).proportion_ci(confidence, method="wilson")
    assert wilson(*counts, confidence) == pytest.approx((interval.low, interval.high), abs=1e-9)


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (3, 2), (-1, 5)])
def test_impossible_counts_are_refused(successes, trials):
    with pytest.raises(ValueError, match="^successes: "):
        wilson(successes, trials)


def test_the_interquartile_mean_leaves_the_outer_quarters_out():
    middle, low, high = interquartile_mean([0.0, 0.9, 0.91, 0.92, 0.93, 0.94, 0.95, 1.0])
    assert middle == pytest.approx((0.91 + 0.92 + 0.93 + 0.94) / 4)
    assert low < middle < high
    assert interquartile_mean([0.5]) == (0.5, 0.5, 0.5)


def test_the_bootstrap_interval_covers_the_truth_about_as_often_as_it_says():
    """Of normal scores, whose interquartile mean is 0; with 20 seeds percentile intervals are a little too narrow."""
    rng = np.random.default_rng(1)
    covered = [
        low <= 0.0 <= high for _, low, high in (interquartile_mean(rng.normal(size=20), 500) for _ in range(300))
    ]
    assert 0.86 < np.mean(covered) < 0.98


def test_numbers_are_those_of_rliable():
    """rliable 1.2 (Agarwal et al. 2021) on the same scores; its interval is from 20,000 resamples of its own."""
    assert interquartile_mean(OURS)[0] == pytest.approx(0.9281666667)
    assert interquartile_mean(THEIRS)[0] == pytest.approx(0.8765)
    assert interquartile_mean(OURS)[1:] == pytest.approx((0.8776625, 0.95133333), abs=2e-3)
    assert probability_of_improvement(OURS, THEIRS)[0] == pytest.approx(0.75)
    assert performance_profile(OURS, [0.8, 0.85, 0.9, 0.95])[0] == pytest.approx([0.9, 0.8, 0.8, 0.3])


def test_the_probability_of_improvement_by_hand():
    value, low, high = probability_of_improvement([1, 2, 3], [2, 2])
    assert value == pytest.approx((0 + 0.5 + 1) / 3)
    assert low <= value <= high
    assert probability_of_improvement([5, 6], [1, 2]) == (1.0, 1.0, 1.0)
    assert probability_of_improvement([1.0], [1.0]) == (0.5, 0.5, 0.5)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_improvement_over_each_other_adds_up_to_one(one, other):
    assert probability_of_improvement(one, other, 10)[0] + probability_of_improvement(other, one, 10)[
        0
    ] == pytest.approx(1)


def test_profiles_fall_from_one_to_zero_inside_their_bands():
    value, low, high = performance_profile(OURS, np.linspace(0.5, 1.0, 30))
    assert value[0] == 1.0
    assert value[-1] == 0.0
    assert (np.diff(value) <= 0).all()
    assert ((low <= value) & (value <= high)).all()


def test_a_paired_difference_by_hand():
    """Differences 1, 2, 3: of the eight ways to choose signs, two have a mean of 2 or more in absolute value."""
    found = paired_difference([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert found.mean == pytest.approx(2.0)
    assert found.p == pytest.approx(2 / 8)
    assert 1.0 <= found.low <= found.high <= 3.0


def test_pairing_sees_what_lies_hidden_in_the_scatter_of_seeds():
    rng = np.random.default_rng(0)
    seeds = rng.normal(size=20)
    found = paired_difference(seeds + 0.1 + 0.02 * rng.normal(size=20), seeds)
    assert found.low > 0
    assert found.p < 0.001
    low = probability_of_improvement(seeds + 0.1, seeds)[1]
    assert low < 0.5  # unpaired, it does not show


def test_permutations_of_nothing_are_seldom_significant():
    rng = np.random.default_rng(3)
    ps = [paired_difference(rng.normal(size=8), rng.normal(size=8), 10).p for _ in range(300)]
    assert 0.02 < np.mean(np.array(ps) <= 0.05) < 0.085


@pytest.mark.parametrize("scores", [[], [np.nan], [[1.0]]])
def test_what_is_no_list_of_scores_is_refused(scores):
    with pytest.raises(ValueError, match=r"^scores: .*; accepted: at least one number"):
        interquartile_mean(scores)
    with pytest.raises(ValueError, match=r"^theirs: 1 scores beside 2"):
        paired_difference([1.0, 2.0], [1.0])

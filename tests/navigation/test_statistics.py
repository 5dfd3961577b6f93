import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from gpf.navigation.statistics import interquartile_mean, wilson


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

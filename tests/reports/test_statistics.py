import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gpf.reports.statistics import (
    MANY_SEEDS,
    benjamini_hochberg,
    centre_name,
    interquartile_mean,
    interval_words,
    mean_interval,
    over_seeds,
    paired_difference,
    performance_profile,
    probability_of_improvement,
    smallest_p,
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
    interval = stats.binomtest(*counts).proportion_ci(confidence, method="wilson")
    assert wilson(*counts, confidence) == pytest.approx((interval.low, interval.high), abs=1e-9)


@pytest.mark.parametrize(("successes", "trials"), [(0, 0), (3, 2), (-1, 5)])
def test_impossible_counts_are_refused(successes, trials):
    with pytest.raises(ValueError, match="^successes must be 0 to trials"):
        wilson(successes, trials)


def test_the_mean_of_three_by_hand():
    """Of 1, 2, 3: standard error 1 / sqrt(3), and t with two degrees of freedom is 4.30265 at 97.5 %."""
    mean, low, high = mean_interval([1.0, 2.0, 3.0])
    assert mean == 2.0
    assert (low, high) == pytest.approx((2.0 - 4.30265 / 3**0.5, 2.0 + 4.30265 / 3**0.5), abs=1e-5)
    assert mean_interval([0.5]) == (0.5, 0.5, 0.5)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=30).filter(lambda some: np.std(some) > 1e-6))
def test_the_interval_of_a_mean_is_scipys(scores):
    wanted = stats.ttest_1samp(scores, 0.0).confidence_interval(0.95)
    assert mean_interval(scores)[1:] == pytest.approx((wanted.low, wanted.high), abs=1e-9)


def test_few_seeds_have_a_mean_and_many_an_interquartile_mean():
    scores = [0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.5, 0.6, 0.7, 5.0]
    assert over_seeds(scores[:9]) == mean_interval(scores[:9])
    assert over_seeds(scores) == interquartile_mean(scores)
    assert (centre_name(9), centre_name(MANY_SEEDS)) == ("mean", "IQM")
    assert "Student's t" in interval_words(9)
    assert "bootstrap" in interval_words(MANY_SEEDS)
    assert "no interval" in interval_words(1)


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
    assert (found.low, found.high) == pytest.approx(mean_interval([1.0, 2.0, 3.0])[1:])
    assert found.seeds == 3


@given(st.integers(2, 8), st.integers(0, 10**6))
def test_p_is_that_of_scipys_permutation_test(seeds, seed):
    ours, theirs = np.random.default_rng(seed).normal(size=(2, seeds))
    wanted = stats.permutation_test(
        (ours, theirs), lambda a, b: (a - b).mean(), permutation_type="samples", n_resamples=np.inf
    )
    assert paired_difference(ours, theirs).p == pytest.approx(min(1.0, wanted.pvalue))


def test_five_seeds_are_never_significant_and_six_can_be():
    assert paired_difference([1.0] * 5, [0.0] * 5).p == smallest_p(5) == 2 / 2**5 > 0.05
    assert paired_difference([1.0] * 6, [0.0] * 6).p == smallest_p(6) == 2 / 2**6 < 0.05
    assert paired_difference([1.0] * 20, [0.0] * 20).p == smallest_p(20)


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
    ps = [paired_difference(rng.normal(size=8), rng.normal(size=8)).p for _ in range(300)]
    assert 0.02 < np.mean(np.array(ps) <= 0.05) < 0.085


@pytest.mark.parametrize("scores", [[], [np.nan], [[1.0]]])
def test_what_is_no_list_of_scores_is_refused(scores):
    for of in (interquartile_mean, mean_interval):
        with pytest.raises(ValueError, match=r"^scores must be at least one number, all of them finite, got "):
            of(scores)
    with pytest.raises(ValueError, match=r"^theirs must have a score for each of the 2 seeds of ours, got 1"):
        paired_difference([1.0, 2.0], [1.0])


def test_the_example_of_benjamini_and_hochberg():
    """Their fifteen p-values of 1995: the fourth is at most 0.05 x 4 / 15 = 0.013, and no later one is small enough."""
    p_values = [
        0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590,
        1.0,
    ]  # fmt: skip
    assert benjamini_hochberg(p_values, 0.05) == [True] * 4 + [False] * 11
    assert benjamini_hochberg(p_values[::-1], 0.05) == [False] * 11 + [True] * 4


def test_a_p_that_is_too_great_for_its_rank_counts_if_a_greater_one_is_small_enough_for_its_own():
    assert benjamini_hochberg([0.04, 0.045, 0.05], 0.05) == [True] * 3  # 0.04 is above 0.05 / 3
    assert benjamini_hochberg([0.04, 0.045, 0.06], 0.05) == [False] * 3
    assert benjamini_hochberg([0.03125] * 10 + [1.0] * 6, 0.05) == [True] * 10 + [False] * 6  # 0.05 x 10 / 16 exactly
    assert benjamini_hochberg([], 0.05) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.floats(0.01, 0.5))
def test_what_counts_is_what_counts_for_scipy(p_values, level):
    adjusted = stats.false_discovery_control(p_values)
    for found, p in zip(benjamini_hochberg(p_values, level), adjusted, strict=True):
        assert found == (p <= level) or p == pytest.approx(level, rel=1e-9)


@pytest.mark.parametrize("p_values", [[-0.1], [1.1], [np.nan], [[0.5]]])
def test_what_is_no_probability_is_refused(p_values):
    with pytest.raises(ValueError, match="^p_values must be numbers from 0 to 1, got "):
        benjamini_hochberg(p_values)

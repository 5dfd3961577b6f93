"""Baselines and measures, each against a worked example."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gpf.world_model.baselines import NGram, Predictions, Uniform, predictions
from gpf.world_model.measures import (
    Dreams,
    Predicted,
    _excerpts,
    antenna_correlation,
    durations,
    kolmogorov_distance,
    whiff_rate,
)
from gpf.world_model.sequences import BOS_CODE, PAD_CODE, Episode, encode, make_dataset


def some(targets, contexts=None):
    tokens = np.zeros((len(targets), 3), np.int64)
    tokens[:, 0] = targets
    held = np.zeros((len(targets), 1), np.int64) if contexts is None else np.array(contexts).reshape(len(targets), -1)
    return Predictions(held, tokens)


def test_contexts_are_the_latest_pairs_of_the_same_episode():
    first = Episode(np.array([[0, 0, 1], [0, 0, 2], [0, 1, 3]]), np.array([4, 5]))
    second = Episode(np.array([[1, 0, 0], [0, 0, 0]]), np.array([2]))
    asked = predictions(make_dataset([encode([first]), encode([second])], np.zeros(3), [1, 0], [0, 0], {}), 2)
    assert asked.contexts.tolist() == [[1 * 6 + 4, -1], [2 * 6 + 5, 1 * 6 + 4], [56 * 6 + 2, -1]]
    assert asked.targets.tolist() == [[0, 0, 2], [0, 1, 3], [0, 0, 0]]


def test_the_uniform_guess():
    assert Uniform().probabilities(some([0, 3])).tolist() == [[1 / 7, 1 / 7, 1 / 8]] * 2


def test_counts_are_filled_up_as_witten_and_bell_do():
    """Left token 0 thrice and 1 once: two followers, of whom each has (count + 2 / 7) / (4 + 2)."""
    marginal = NGram(0)
    marginal.fit(some([0, 0, 0, 1]))
    assert marginal.probabilities(some([0, 1, 2]))[:, 0] == pytest.approx(
        [(3 + 2 / 7) / 6, (1 + 2 / 7) / 6, (2 / 7) / 6]
    )
    # After context 5 came 0 once; after 6 came 1; context 7 is new, and falls back.
    markov = NGram(1)
    markov.fit(some([0, 1], [5, 6]))
    below = {0: (1 + 2 / 7) / 4, 1: (1 + 2 / 7) / 4}
    got = markov.probabilities(some([0, 1, 0], [5, 5, 7]))[:, 0]
    assert got == pytest.approx([(1 + below[0]) / 2, below[1] / 2, below[0]])


def test_a_context_is_not_mistaken_for_another():
    """The last pair of all before the first, and the second with nothing before it: 0 and 1 followed them."""
    contexts = [[0, 392 * 6 - 1], [1, -1]]
    gram = NGram(2)
    gram.fit(some([0, 1], contexts))
    marginal = (1 + 2 / 7) / 4
    markov = (1 + marginal) / 2
    assert gram.probabilities(some([0, 1], contexts))[:, 0] == pytest.approx([(1 + markov) / 2] * 2)


def test_probabilities_sum_to_one(dataset):
    learnt, test = dataset.split(0.2)
    gram = NGram(2)
    gram.fit(predictions(learnt, 2))
    asked = predictions(test, 2)
    few = Predictions(asked.contexts[:50], asked.targets[:50])
    for stream, size in enumerate((7, 7, 8)):
        total = np.zeros(50)
        for token in range(size):
            targets = few.targets.copy()
            targets[:, stream] = token
            total += gram.probabilities(Predictions(few.contexts, targets))[:, stream]
        assert total == pytest.approx(np.ones(50))


def test_a_known_chain_is_learnt_to_its_entropy():
    random = np.random.default_rng(0)
    contexts = random.integers(3, size=30_000)
    targets = np.where(random.random(30_000) < 0.8, contexts, (contexts + 1) % 3)
    data = some(targets, contexts)
    for gram, wanted in ((NGram(1), -(0.8 * math.log(0.8) + 0.2 * math.log(0.2))), (NGram(0), math.log(3))):
        gram.fit(data)
        assert -np.log(gram.probabilities(data)[:, 0]).mean() == pytest.approx(wanted, abs=0.01)


def test_calibration_error_worked_by_hand():
    confidences = np.repeat([[0.9], [0.6]], [10, 10], axis=0).repeat(3, axis=1)
    hits = np.zeros((20, 3), np.bool_)
    hits[:7] = True  # 0.7 of those with 0.9
    hits[10:16] = True  # 0.6 of those with 0.6
    predicted = Predicted(np.full((20, 3), 0.5), confidences, hits)
    assert predicted.calibration_error(0) == pytest.approx(0.5 * 0.2 + 0.5 * 0.0)
    assert predicted.cross_entropy == pytest.approx(np.full(3, math.log(2)))


def test_certainty_belongs_to_the_last_bin():
    predicted = Predicted(np.ones((4, 3)), np.array([[1.0], [1.0], [0.99], [0.0]]).repeat(3, axis=1), np.ones((4, 3)))
    confidence, hits, count = predicted.reliability(1)
    assert count.tolist() == [1, *[0] * 13, 3]
    assert confidence[-1] == pytest.approx(2.99 / 3)
    assert hits[[0, -1]].tolist() == [1.0, 1.0]


def test_spells_worked_by_hand():
    tokens = np.zeros((2, 6, 3), np.int64)
    tokens[0, 1, 0] = 1
    tokens[0, 2, 1] = 3
    tokens[1, 5, 0] = 2
    assert sorted(durations(tokens, whiffs=True).tolist()) == [1, 2]
    assert sorted(durations(tokens, whiffs=False).tolist()) == [1, 3, 5]
    assert whiff_rate(tokens) == 3 / 12


@given(st.lists(st.integers(0, 9), min_size=2, max_size=20), st.lists(st.integers(0, 9), min_size=2, max_size=20))
def test_the_distance_is_scipys(ours, theirs):
    with np.errstate(all="ignore"):  # of p, which nobody asked for
        wanted = stats.ks_2samp(ours, theirs, method="asymp").statistic
    assert kolmogorov_distance(np.array(ours), np.array(theirs)) == pytest.approx(wanted)


def test_dreams_that_are_true_differ_in_nothing():
    tokens = np.random.default_rng(0).integers(0, 7, (30, 50, 3))
    same = Dreams(tokens, tokens).summary()
    assert same["whiff_rate_off"] == same["blank_distance"] == same["whiff_distance"] == 0
    assert same["correlation"] == same["imagined_correlation"] == antenna_correlation(tokens)
    flat = np.zeros_like(tokens)
    flat[:, 1::2, 1] = 1  # one antenna smells every other step: half as often, and blanks never last
    dull = Dreams(tokens, flat).summary()
    assert dull["whiff_rate_off"] == pytest.approx(0.5 / whiff_rate(tokens) - 1.0)
    assert dull["imagined_correlation"] == 0.0
    assert dull["blank_distance"] == pytest.approx((durations(tokens, whiffs=False) > 1).mean())
    blank = np.zeros_like(tokens)
    assert Dreams(blank, blank).summary()["whiff_rate_off"] == Dreams(blank, blank).summary()["whiff_distance"] == 0.0
    assert Dreams(blank, flat).summary()["whiff_rate_off"] == Dreams(blank, flat).summary()["whiff_distance"] == 1.0


def test_excerpts_follow_their_histories(dataset):
    long = make_dataset(
        [encode([Episode(np.random.default_rng(n).integers(0, 7, (100, 3)), np.arange(99) % 6)]) for n in range(3)],
        np.zeros(297), [0, 0, 0], [0, 0, 0], {},
    )  # fmt: skip
    histories, actions, real = _excerpts(long, 40, 0)
    assert histories.shape == (40, 66)
    assert actions.shape == (40, 50)
    assert real.shape == (40, 50, 3)
    whole = [long.sequence(n).tolist() for n in range(3)]
    for history, action, seen in zip(histories.tolist(), actions.tolist(), real.tolist(), strict=True):
        joined = history[1:]
        for a, (left, right, wind) in zip(action, seen, strict=True):
            joined += [392 + a, (left * 7 + right) * 8 + wind]
        begins = [at for one in whole for at in range(1, len(one)) if one[at : at + len(joined)] == joined]
        assert len(begins) == 1
        assert history[0] == (BOS_CODE if begins == [1] else PAD_CODE)
    assert {BOS_CODE, PAD_CODE} == set(histories[:, 0].tolist())
    assert _excerpts(dataset, 1, 0) is None  # of 60 steps at most


@pytest.mark.parametrize(("steps", "enough"), [(81, False), (82, True)])
def test_an_excerpt_needs_its_history_and_its_steps(steps, enough):
    """32 steps of history and 50 to compare."""
    episode = Episode(np.zeros((steps + 1, 3), np.int64), np.zeros(steps, np.int64))
    excerpts = _excerpts(make_dataset([encode([episode])], np.zeros(steps), [0], [0], {}), 5, 0)
    assert (excerpts is not None) is enough
    assert not enough or (excerpts[0][:, 0] == BOS_CODE).all()


def test_what_is_said_of_dreams_is_said_of_the_right_side():
    real, imagined = np.zeros((1, 10, 3), np.int64), np.zeros((1, 10, 3), np.int64)
    real[0, :4, 0], imagined[0, 5:7, 1] = 3, 3
    said = Dreams(real, imagined).summary()
    assert (said["whiff_rate"], said["imagined_whiff_rate"]) == (0.4, 0.2)
    assert said["whiff_rate_off"] == pytest.approx(-0.5)

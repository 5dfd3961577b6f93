import math

import numpy as np
import pytest
from numba import njit
from scipy import stats

from gpf.plume.rng import next_bits, normal, poisson, seed_streams, uniform

MASK = (1 << 64) - 1


def rotate(x, k):
    return ((x << k) | (x >> (64 - k))) & MASK


def plain_xoshiro256pp(state, count):
    """The published generator, in Python's unbounded integers."""
    s = [int(word) for word in state]
    out = []
    for _ in range(count):
        out.append((rotate((s[0] + s[3]) & MASK, 23) + s[0]) & MASK)
        t = (s[1] << 17) & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = rotate(s[3], 45)
    return out


@njit
def fill(draw, stream, out):
    for i in range(len(out)):
        out[i] = draw(stream)


@njit
def fill_poisson(stream, mean, out):
    for i in range(len(out)):
        out[i] = poisson(stream, mean, math.exp(-mean))


def test_bits_are_those_of_the_published_generator():
    stream = seed_streams([7])[0]
    expected = plain_xoshiro256pp(stream, 100)
    assert [int(next_bits(stream)) for _ in range(100)] == expected


def test_streams_come_from_numpys_seed_sequence_and_differ():
    streams = seed_streams(range(1000))
    assert (streams[3] == np.random.SeedSequence(3).generate_state(4, np.uint64)).all()
    assert len({tuple(stream) for stream in streams.tolist()}) == 1000


def test_uniform_is_uniform():
    draws = np.empty(400_000)
    fill(uniform, seed_streams([1])[0], draws)
    assert draws.min() >= 0.0
    assert draws.max() < 1.0
    assert stats.kstest(draws, "uniform").pvalue > 1e-3


def test_normal_is_normal_in_body_and_tail():
    draws = np.empty(4_000_000)
    fill(normal, seed_streams([2])[0], draws)
    assert stats.kstest(draws[:400_000], "norm").pvalue > 1e-3
    for threshold in (2.0, 3.0, 3.6541528853610088, 4.0, 4.5):  # the fourth number is where the ziggurat's tail begins
        for side in (draws > threshold, draws < -threshold):
            assert stats.binomtest(int(side.sum()), len(draws), stats.norm.sf(threshold)).pvalue > 1e-4
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 4 / math.sqrt(len(draws))


@njit
def fill_from_tail(stream, threshold, out):
    for i in range(len(out)):
        out[i] = 0.0
        while abs(out[i]) <= threshold:
            out[i] = normal(stream)


def test_the_tail_is_that_of_a_normal_distribution():
    """One draw in 3,900 lies beyond the last layer, where another method takes over."""
    draws, tail = np.empty(20_000), 3.6541528853610088
    fill_from_tail(seed_streams([4])[0], tail, draws)
    assert stats.kstest(np.abs(draws), stats.truncnorm(tail, np.inf).cdf).pvalue > 1e-3
    assert stats.binomtest(int((draws > 0).sum()), len(draws)).pvalue > 1e-3


@pytest.mark.parametrize("mean", [0.0, 0.05, 0.5, 3.0, 20.0])
def test_poisson_is_poisson(mean):
    draws = np.empty(300_000, np.int64)
    fill_poisson(seed_streams([3])[0], mean, draws)
    top = int(stats.poisson.isf(1e-4, mean)) if mean else 0
    observed = np.bincount(np.minimum(draws, top + 1), minlength=top + 2)
    expected = len(draws) * np.append(stats.poisson.pmf(range(top + 1), mean), stats.poisson.sf(top, mean))
    used = expected > 5
    if used.sum() < 2:
        assert (draws == 0).all()
        return
    statistic = ((observed - expected)[used] ** 2 / expected[used]).sum()
    assert stats.chi2.sf(statistic, used.sum() - 1) > 1e-4

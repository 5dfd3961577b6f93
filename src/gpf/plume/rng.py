"""One small, fast random stream per lane: xoshiro256++ with a ziggurat for normals.

A stream is four uint64 words. Streams are seeded through NumPy's SeedSequence, so neighbouring seeds give unrelated
streams, and they never share state: draws of one lane cannot depend on another.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gpf.plume.kernels import device

# Ziggurat of 256 layers (Marsaglia & Tsang 2000): start of the tail and area of a layer.
_TAIL = 3.6541528853610088
_AREA = 0.00492867323399
_SCALE = 2.0**52


def _ziggurat_tables() -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Acceptance limits, widths and densities of the layers; layer 0 is the base with the tail."""
    edge = np.empty(256)  # right edge of layer i; the layers narrow towards i = 1
    edge[255] = _TAIL
    for i in range(254, 0, -1):
        edge[i] = math.sqrt(-2.0 * math.log(_AREA / edge[i + 1] + math.exp(-0.5 * edge[i + 1] ** 2)))
    edge[0] = _AREA / math.exp(-0.5 * _TAIL**2)  # the base as a rectangle of the same area
    accept = np.empty(256)
    accept[0] = _TAIL / edge[0]
    accept[1] = 0.0
    accept[2:] = edge[1:255] / edge[2:]
    density = np.exp(-0.5 * edge**2)
    density[0] = 1.0
    return (accept * _SCALE).astype(np.int64), edge / _SCALE, density


_ACCEPT, _WIDTH, _DENSITY = _ziggurat_tables()

_U1, _U8, _U9, _U11, _U17, _U19, _U23, _U41, _U45 = (np.uint64(n) for n in (1, 8, 9, 11, 17, 19, 23, 41, 45))
_BYTE = np.uint64(0xFF)
_BITS52 = np.uint64(0x000FFFFFFFFFFFFF)


def seed_streams(seeds: Sequence[int] | Sequence[tuple[int, ...]]) -> NDArray[np.uint64]:
    """The initial state of one stream per seed, as an array of shape (len(seeds), 4); a seed may be several numbers."""
    return np.array([np.random.SeedSequence(seed).generate_state(4, np.uint64) for seed in seeds])


@device
def next_bits(stream: NDArray[np.uint64]) -> np.uint64:
    """The next 64 random bits of a stream (xoshiro256++, Blackman & Vigna 2019)."""
    s0, s1, s2, s3 = stream[0], stream[1], stream[2], stream[3]
    total = s0 + s3
    result = ((total << _U23) | (total >> _U41)) + s0
    s2 ^= s0
    s3 ^= s1
    stream[1] = s1 ^ s2
    stream[0] = s0 ^ s3
    stream[2] = s2 ^ (s1 << _U17)
    stream[3] = (s3 << _U45) | (s3 >> _U19)
    return result


@device
def uniform(stream: NDArray[np.uint64]) -> float:
    """A number in [0, 1), on a grid of 2^-53."""
    return np.int64(next_bits(stream) >> _U11) * (1.0 / 9007199254740992.0)


@device
def normal(stream: NDArray[np.uint64]) -> float:
    """A standard normal number."""
    while True:
        bits = next_bits(stream)
        layer = bits & _BYTE
        magnitude = np.int64((bits >> _U9) & _BITS52)
        x = magnitude * _WIDTH[layer] * (1.0 - 2.0 * np.int64((bits >> _U8) & _U1))  # no branch on the random sign
        if magnitude < _ACCEPT[layer]:
            return x  # 985 of 1,000 draws end here
        if layer == 0:
            while True:
                excess = -math.log1p(-uniform(stream)) / _TAIL
                height = -math.log1p(-uniform(stream))
                if height + height > excess * excess:
                    return math.copysign(_TAIL + excess, x)
        # The log of a fresh draw, not exp(-x^2 / 2): LLVM would compute the latter for every draw, ahead of the branch.
        if math.log(_DENSITY[layer] + uniform(stream) * (_DENSITY[layer - _U1] - _DENSITY[layer])) < -0.5 * x * x:
            return x


@device
def fill_normals(stream: NDArray[np.uint64], out: NDArray[np.float64], first: int, last: int) -> None:
    """Write standard normal numbers to out[first:last], the same as this many calls of `normal`.

    The state stays in registers, which is more than twice as fast; only the rare draws beyond a layer go by the stream.
    """
    s0, s1, s2, s3 = stream[0], stream[1], stream[2], stream[3]
    for k in range(np.uint64(first), np.uint64(last)):
        before0, before1, before2, before3 = s0, s1, s2, s3
        total = s0 + s3
        bits = ((total << _U23) | (total >> _U41)) + s0
        shifted = s1 << _U17
        s2 ^= s0
        s3 ^= s1
        s1 ^= s2
        s0 ^= s3
        s2 ^= shifted
        s3 = (s3 << _U45) | (s3 >> _U19)
        layer = bits & _BYTE
        magnitude = np.int64((bits >> _U9) & _BITS52)
        if magnitude < _ACCEPT[layer]:
            out[k] = magnitude * _WIDTH[layer] * (1.0 - 2.0 * np.int64((bits >> _U8) & _U1))
        else:  # draw it again, with all that it takes
            stream[0], stream[1], stream[2], stream[3] = before0, before1, before2, before3
            out[k] = normal(stream)
            s0, s1, s2, s3 = stream[0], stream[1], stream[2], stream[3]
    stream[0], stream[1], stream[2], stream[3] = s0, s1, s2, s3


@device
def poisson(stream: NDArray[np.uint64], mean: float, probability_of_none: float) -> int:
    """A Poisson count by inversion; `probability_of_none` is exp(-mean), which the caller keeps."""
    u = uniform(stream)
    count = 0
    term = probability_of_none
    cumulative = term
    while u >= cumulative and term > 1e-18:
        count += 1
        term *= mean / count
        cumulative += term
    return count

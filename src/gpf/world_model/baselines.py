"""Baselines for world models: predictions of the next observation from counts.

Each gives every stream's probability of the token that came, for all predictions of a dataset at once.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gpf.plume.scenario import ACTIONS
from gpf.plume.tokens import OBSERVATION_SIZES, STATES
from gpf.world_model.sequences import FIRST_ACTION, FIRST_SPECIAL, Dataset, observation_tokens

_PAIRS = STATES * len(ACTIONS)


@dataclass(frozen=True)
class Predictions:
    """Prediction targets, one row for each observation that follows an action.

    Attributes:
        contexts: The (observation, action) pairs before it, latest first, as one number each; -1 before the start of
            the episode. Shape (n, order).
        targets: Tokens of the three streams, shape (n, 3).
    """

    contexts: NDArray[np.int64]
    targets: NDArray[np.int64]


def predictions(dataset: Dataset, order: int) -> Predictions:
    """Every observation of a dataset that follows an action, with the pairs before it."""
    codes = np.asarray(dataset.codes).astype(np.int64)
    at = np.flatnonzero((codes >= FIRST_ACTION) & (codes < FIRST_SPECIAL))
    pairs = codes[at - 1] * len(ACTIONS) + codes[at] - FIRST_ACTION
    contexts = np.full((len(at), order), -1)
    first = codes[at - 2] >= FIRST_SPECIAL  # of its episode
    begun = np.maximum.accumulate(np.where(first, np.arange(len(at)), 0))
    age = np.arange(len(at)) - begun
    for back in range(order):
        known = age >= back
        contexts[known, back] = pairs[np.flatnonzero(known) - back]
    return Predictions(contexts, observation_tokens(codes[at + 1]))


class Baseline(Protocol):
    """Something that predicts from counts."""

    def fit(self, data: Predictions) -> None:
        """Count."""

    def probabilities(self, data: Predictions) -> NDArray[np.float64]:
        """Of the tokens that came, shape (n, 3)."""


class Uniform:
    """All tokens are as likely."""

    def fit(self, data: Predictions) -> None:
        """There is nothing to count."""

    def probabilities(self, data: Predictions) -> NDArray[np.float64]:
        """One over the number of tokens."""
        return np.tile(1.0 / np.array(OBSERVATION_SIZES), (len(data.targets), 1))


class NGram:
    """The share of each token after the same last pairs of observation and action; where those were rare, after fewer.

    Counts of a context are filled up by those of the shorter one, in proportion to how many different tokens have
    followed it (Witten and Bell 1991). Order 0 is the marginal distribution; order 1 is Markov, given the action.
    """

    def __init__(self, order: int) -> None:
        self.order = order

    def fit(self, data: Predictions) -> None:
        """Count what followed every context."""
        self._tables = []
        for stream, size in enumerate(OBSERVATION_SIZES):
            tables = []
            for order in range(self.order + 1):
                keys, rows = np.unique(_keys(data.contexts, order), return_inverse=True)
                counts = np.zeros((len(keys), size))
                np.add.at(counts, (rows, data.targets[:, stream]), 1.0)
                tables.append((keys, counts))
            self._tables.append(tables)

    def probabilities(self, data: Predictions) -> NDArray[np.float64]:
        """Of the tokens that came."""
        out = np.zeros((len(data.targets), len(OBSERVATION_SIZES)))
        everyone = np.arange(len(data.targets))
        for stream, size in enumerate(OBSERVATION_SIZES):
            share = np.full((len(everyone), size), 1.0 / size)
            for order, (keys, counts) in enumerate(self._tables[stream]):
                wanted = _keys(data.contexts, order)
                rows = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
                seen = np.where((keys[rows] == wanted)[:, None], counts[rows], 0.0)
                followers = (seen > 0).sum(1, keepdims=True)
                total = seen.sum(1, keepdims=True) + followers
                share = np.where(total > 0, (seen + followers * share) / np.maximum(total, 1.0), share)
            out[:, stream] = share[everyone, data.targets[:, stream]]
        return out


def _keys(contexts: NDArray[np.int64], order: int) -> NDArray[np.int64]:
    """The latest `order` pairs as one number."""
    keys = np.zeros(len(contexts), np.int64)
    for back in range(order):
        keys = keys * (_PAIRS + 1) + contexts[:, back] + 1
    return keys


ORDER = 4
"""Pairs that the longest n-gram looks back on."""
BASELINES: dict[str, Baseline] = {
    "uniform": Uniform(),
    "marginal": NGram(0),
    "Markov, given the action": NGram(1),
    **{f"{order}-gram with back-off": NGram(order) for order in range(2, ORDER + 1)},
}

"""Quality of a world model: predictions compared with n-grams, calibration, and free-running rollouts."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpf.plume.tokens import OBSERVATION_SIZES
from gpf.world_model.baselines import BASELINES, ORDER, predictions
from gpf.world_model.batches import passages
from gpf.world_model.imagination import imagine
from gpf.world_model.model import WorldModel, streams
from gpf.world_model.sequences import FIRST_ACTION, PAD_CODE, STREAMS, Dataset, observation_tokens
from gpf.world_model.trained import TrainedWorld

BINS = 15
"""Of confidence, in the calibration error."""
DREAM_STEPS, DREAM_HISTORY, DREAMS = 50, 32, 2000
"""Steps of a free-running rollout, steps of real history before it, and how many."""


@dataclass(frozen=True)
class Predicted:
    """A model's predictions for every observation of a dataset that follows an action.

    Attributes:
        probabilities: Of the actual tokens, shape (n, 3).
        confidences: Of the predicted tokens, the likeliest ones, shape (n, 3).
        hits: Whether the prediction was correct, shape (n, 3).
    """

    probabilities: NDArray[np.float64]
    confidences: NDArray[np.float64]
    hits: NDArray[np.bool_]

    @property
    def cross_entropy(self) -> NDArray[np.float64]:
        """Of each stream, nats a token."""
        out: NDArray[np.float64] = -np.log(self.probabilities).mean(axis=0)
        return out

    def reliability(self, stream: int) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        """Of each bin of confidence: its mean confidence, the share of hits, and how many are in it."""
        confidence, hit = self.confidences[:, stream], self.hits[:, stream]
        place = np.minimum((confidence * BINS).astype(int), BINS - 1)
        count = np.bincount(place, minlength=BINS)
        total = np.maximum(count, 1)
        return (
            np.bincount(place, confidence, BINS) / total,
            np.bincount(place, hit.astype(float), BINS) / total,
            count,
        )

    def calibration_error(self, stream: int) -> float:
        """Expected calibration error: how far confidence and hits are apart, on average (Guo et al. 2017)."""
        confidence, hits, count = self.reliability(stream)
        return float(np.sum(np.abs(confidence - hits) * count) / count.sum())


@torch.inference_mode()
def predict(model: WorldModel, dataset: Dataset) -> Predicted:
    """A model's predictions for a dataset; each has at least half a context before it, if possible."""
    probabilities, confidences, hits = [], [], []
    for codes, mask in passages(dataset, model.context):
        logits = model(codes[:, :-1])[mask]
        targets = streams(codes[:, 1:][mask])
        shares = [part.double().softmax(1) for part in logits.split(OBSERVATION_SIZES, dim=1)]
        probabilities.append(
            torch.stack([share.gather(1, t[:, None])[:, 0] for share, t in zip(shares, targets, strict=True)], 1)
        )
        confidences.append(torch.stack([share.max(1).values for share in shares], 1))
        hits.append(torch.stack([share.argmax(1) == t for share, t in zip(shares, targets, strict=True)], 1))
    together = [torch.cat(parts).numpy() for parts in (probabilities, confidences, hits)]
    return Predicted(together[0], together[1], together[2])


def baseline_cross_entropies(learnt: Dataset, test: Dataset) -> dict[str, NDArray[np.float64]]:
    """Of every baseline, the cross-entropy of each stream, nats a token."""
    seen, asked = predictions(learnt, ORDER), predictions(test, ORDER)
    out = {}
    for name, baseline in BASELINES.items():
        baseline.fit(seen)
        out[name] = -np.log(baseline.probabilities(asked)).mean(axis=0)
    return out


@dataclass(frozen=True)
class Dreams:
    """Free-running rollouts and the simulator's sequences after the same histories and actions.

    Attributes:
        real, imagined: Tokens, shape (rollouts, steps, 3).
    """

    real: NDArray[np.int64]
    imagined: NDArray[np.int64]

    def summary(self) -> dict[str, float]:
        """How like each other they are."""
        rates = [whiff_rate(tokens) for tokens in (self.real, self.imagined)]
        blanks = [durations(tokens, whiffs=False) for tokens in (self.real, self.imagined)]
        whiffs = [durations(tokens, whiffs=True) for tokens in (self.real, self.imagined)]
        correlations = [antenna_correlation(tokens) for tokens in (self.real, self.imagined)]
        return {
            "whiff_rate": rates[0],
            "imagined_whiff_rate": rates[1],
            "whiff_rate_off": rates[1] / rates[0] - 1.0 if rates[0] else float(rates[1] > 0),
            "blank_distance": kolmogorov_distance(*blanks),
            "whiff_distance": kolmogorov_distance(*whiffs),
            "correlation": correlations[0],
            "imagined_correlation": correlations[1],
        }


def dream(world: TrainedWorld, dataset: Dataset, seed: int = 0) -> Dreams | None:
    """Roll a model out from real histories with the actions that were actually taken; None if all are too short."""
    excerpts = _excerpts(dataset, DREAMS, seed)
    if excerpts is None:
        return None
    histories, actions, real = excerpts
    imagined = imagine(
        world.model, histories, actions, generator=torch.Generator().manual_seed(seed), coupling=world.coupling
    )
    return Dreams(real, observation_tokens(imagined.numpy()))


def _excerpts(dataset: Dataset, count: int, seed: int) -> tuple[Tensor, Tensor, NDArray[np.int64]] | None:
    """Histories, the actions that followed, and what was then observed, from random places of random sequences."""
    random = np.random.default_rng(seed)
    size = 2 * (DREAM_HISTORY + DREAM_STEPS)
    places = (np.diff(dataset.starts) - 2 - size + 1) // 2  # at which an excerpt can begin
    long = np.flatnonzero(places > 0)
    if not len(long):
        return None
    chosen = random.choice(long, count, p=places[long] / places[long].sum())
    excerpts = []
    for index in chosen:
        body = np.asarray(dataset.sequence(index))[1:-1].astype(np.int64)
        first = 2 * random.integers(places[index])
        excerpts.append(
            np.concatenate([dataset.sequence(index)[:1] if first == 0 else [PAD_CODE], body[first : first + size + 1]])
        )
    codes = np.stack(excerpts).astype(np.int64)
    history = codes[:, : 2 * DREAM_HISTORY + 2]
    rest = codes[:, 2 * DREAM_HISTORY + 2 :]
    return (
        torch.from_numpy(history),
        torch.from_numpy(rest[:, 0::2] - FIRST_ACTION),
        observation_tokens(rest[:, 1::2]),
    )


def whiff_rate(tokens: NDArray[np.int64]) -> float:
    """Share of steps in which an antenna smells something."""
    return float((tokens[..., :2].max(axis=-1) > 0).mean())


def antenna_correlation(tokens: NDArray[np.int64]) -> float:
    """Of the levels of both antennae; 0 where one of them never changes."""
    left, right = tokens[..., 0].ravel(), tokens[..., 1].ravel()
    return float(np.corrcoef(left, right)[0, 1]) if np.ptp(left) and np.ptp(right) else 0.0


def durations(tokens: NDArray[np.int64], whiffs: bool) -> NDArray[np.int64]:
    """Lengths of the spells with, or without, a smell, within each rollout, steps; those at its ends count as cut."""
    smells = tokens[..., :2].max(axis=-1) > 0
    wanted = smells if whiffs else ~smells
    edges = np.zeros((len(wanted), 1), np.bool_)
    changes = np.diff(np.concatenate([edges, wanted, edges], axis=1).astype(np.int8), axis=1)
    begins, ends = np.nonzero(changes == 1), np.nonzero(changes == -1)
    lengths: NDArray[np.int64] = ends[1] - begins[1]
    return lengths


def kolmogorov_distance(ours: NDArray[np.int64], theirs: NDArray[np.int64]) -> float:
    """The greatest difference between the shares of two samples up to any value; 1 where only one is empty."""
    if not len(ours) or not len(theirs):
        return float(len(ours) != len(theirs))
    values = np.union1d(ours, theirs)
    shares = [np.searchsorted(np.sort(sample), values, side="right") / len(sample) for sample in (ours, theirs)]
    return float(np.abs(shares[0] - shares[1]).max())


def measure(world: TrainedWorld, test: Dataset) -> dict[str, Any]:
    """Everything about one trained world."""
    predicted, dreams = predict(world.model, test), dream(world, test)
    return {
        "cross_entropy": predicted.cross_entropy.tolist(),
        "calibration_error": [predicted.calibration_error(n) for n in range(len(STREAMS))],
        "dreams": None if dreams is None else dreams.summary(),
    }

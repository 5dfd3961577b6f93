"""Plasticity: how well a network can still learn, by the measures of Dohare et al. 2024, for every layer."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gpf.spectra.activations import Array
from gpf.spectra.capture import capture, weight_matrix
from gpf.spectra.empirical import checked_matrix

DORMANT = 0.01
"""A unit that is active on less than this share of the samples is dormant."""
HELD = 0.99
"""Share of the sum of singular values that counts as all of it."""


@dataclass(frozen=True)
class Plasticity:
    """One layer's."""

    name: str
    units: int
    weight_magnitude: float
    """Mean absolute weight that is not exactly zero; 0 where all are."""
    dead: float
    """Share of units whose activation is zero for every sample."""
    dormant: float
    """Share of units that are active on less than 1 % of the samples, dead ones included."""
    effective_rank: float
    """exp of the entropy of the activations' singular values as shares of their sum (Roy & Vetterli 2007)."""
    stable_rank: float
    """Frobenius^2 / spectral^2 of the activations."""
    held_rank: int
    """The minimum number of singular values that hold 99 % of their sum (the stable rank of Dohare et al.)."""
    gradient_norm: float | None
    """Of the weights' gradient as it is: in a run, that of the last minibatch, clipped; None where there is none."""

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def plasticity(model: nn.Module, batch: Any, most: int = 256) -> list[Plasticity]:
    """The measures of all weight layers that a batch passes through, the last one included."""
    return [measure(layer.name, layer.module, layer.activated) for layer in capture(model, batch, most)]


def measure(name: str, module: nn.Module, activations: Tensor) -> Plasticity:
    """The measures of one layer, of its activations for some samples."""
    weights = weight_matrix(module)
    alive = weights != 0
    values = activations.double().cpu().numpy()
    active = (values != 0.0).mean(axis=0)
    singular = singular_values(values)
    gradient: Any = module.weight.grad
    return Plasticity(
        name=name,
        units=values.shape[1],
        weight_magnitude=float(weights.abs().sum() / alive.sum().clamp(min=1)),
        dead=float((active == 0.0).mean()),
        dormant=float((active < DORMANT).mean()),
        effective_rank=effective_rank(singular),
        stable_rank=stable_rank(singular),
        held_rank=held_rank(singular),
        gradient_norm=None if gradient is None else float(torch.linalg.vector_norm(gradient)),
    )


def singular_values(matrix: Any) -> Array:
    """Greatest first."""
    out: Array = np.linalg.svd(checked_matrix(matrix), compute_uv=False)
    return out


def effective_rank(singular: Array) -> float:
    """exp(-sum p ln p), p being each singular value's share in their sum; 0 for a matrix of zeros."""
    total = singular.sum()
    if total == 0.0:
        return 0.0
    p = singular[singular > 0.0] / total
    return float(np.exp(-np.sum(p * np.log(p))))


def stable_rank(singular: Array) -> float:
    """Frobenius^2 / spectral^2; 0 for a matrix of zeros."""
    top = singular[0] ** 2
    return float(np.sum(singular**2) / top) if top > 0.0 else 0.0


def held_rank(singular: Array, share: float = HELD) -> int:
    """The minimum number of singular values that hold a share of their sum; 0 for a matrix of zeros."""
    total = singular.sum()
    if total == 0.0:
        return 0
    return int(np.searchsorted(np.cumsum(singular), share * total * (1.0 - 1e-12))) + 1

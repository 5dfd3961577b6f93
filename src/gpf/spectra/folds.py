"""Folds: how often a path through the data crosses between linear regions of a ReLU network.

Inside a region the network is linear; at its border a unit switches on or off, and the space is folded there. Along a
straight path the borders of the first layer are found exactly and, because the network is linear between them, those of
the next one too, and so on: nothing is sampled, and no region is missed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gpf.spectra.activations import Array
from gpf.spectra.capture import capture


@dataclass(frozen=True)
class Folds:
    """Regions of one layer, over the paths."""

    layer: int
    crossings: Array
    """Borders of this layer's units that each path crosses."""
    regions: Array
    """Different linear regions of the network up to this layer that each path passes through."""
    units: float
    """Mean share of units that switch at least once on a path."""


def folds(model: nn.Module, data: Tensor, paths: int = 64, seed: int = 0) -> list[Folds]:
    """Count folds along straight paths between random pairs of data points, layer by layer.

    Args:
        model: A chain of linear layers with ReLU between, such as gpf.MLP; pruned and frozen ones too. Normalisation
            is not piecewise linear, and refused.
        data: One point a row.
        paths: How many pairs.
        seed: Of their choice.
    """
    layers = relu_chain(model)
    if data.dim() != 2 or len(data) < 2 or data.shape[1] != layers[0][0].shape[1]:
        raise ValueError(
            f"data must be at least two points of {layers[0][0].shape[1]} numbers, got the shape {tuple(data.shape)}"
        )
    if not torch.isfinite(data).all():
        raise ValueError("data must hold finite numbers only")
    _check_chain(model, layers, data)
    if paths < 1:
        raise ValueError(f"paths must be at least 1, got {paths}")
    rng = np.random.default_rng(seed)
    points = data.detach().double().cpu().numpy()
    pairs = [rng.choice(len(points), 2, replace=False) for _ in range(paths)]
    walked = [walk(layers, points[first], points[second]) for first, second in pairs]
    return [
        Folds(
            layer=n,
            crossings=np.array([path[n][0] for path in walked], float),
            regions=np.array([path[n][1] for path in walked], float),
            units=float(np.mean([path[n][2] for path in walked])),
        )
        for n in range(len(layers))
    ]


def relu_chain(model: nn.Module) -> list[tuple[Array, Array]]:
    """Weights and biases of the layers of a ReLU chain that are followed by one."""
    flat = [module for module in model.modules() if not list(module.children())]
    flat = [module for module in flat if not isinstance(module, nn.Identity | nn.Dropout | nn.Flatten)]
    for module in flat:
        if not isinstance(module, nn.Linear | nn.ReLU):
            raise ValueError(f"model must be a chain of Linear and ReLU, got {type(module).__name__} in it")
    layers: list[tuple[Array, Array]] = []
    for module, after in zip(flat, [*flat[1:], None], strict=True):
        if isinstance(module, nn.Linear) and isinstance(after, nn.ReLU):
            weight = module.weight.detach().double().cpu().numpy()
            bias = np.zeros(len(weight)) if module.bias is None else module.bias.detach().double().cpu().numpy()
            layers.append((weight, bias))
        elif isinstance(module, nn.Linear) and after is not None:
            raise ValueError("model must be a chain of Linear and ReLU, got two Linear without a ReLU between them")
    if not layers:
        raise ValueError("model must be a chain of Linear and ReLU, got no Linear followed by a ReLU")
    if not all(np.isfinite(weight).all() and np.isfinite(bias).all() for weight, bias in layers):
        raise ValueError("model must have finite weights only")
    return layers


def _check_chain(model: nn.Module, layers: Sequence[tuple[Array, Array]], data: Tensor) -> None:
    """Refuse a model that does something else than its layers one after another."""
    weight: Any = next(model.parameters())
    points = data[:8].to(weight)
    values = points.double().cpu().numpy()
    for (w, b), seen in zip(layers, capture(model, points), strict=False):
        before = values @ w.T + b
        found = seen.outputs.double().cpu().numpy()
        if found.shape != before.shape or not np.allclose(found, before, rtol=1e-3, atol=1e-3 * np.abs(before).max()):
            raise ValueError("model must apply its layers one after another")
        values = np.maximum(before, 0.0)


def walk(layers: Sequence[tuple[Array, Array]], start: Array, end: Array) -> list[tuple[int, int, float]]:
    """For each layer: crossings, regions so far and the share of units that switch, on a straight path."""
    places = np.array([0.0, 1.0])  # where the path bends, up to the layer in hand
    values = np.stack([start, end])  # the layer's inputs there; linear in between
    out = []
    for weight, bias in layers:
        before = values @ weight.T + bias
        first, second = before[:-1], before[1:]
        switches = (first > 0.0) != (second > 0.0)
        piece, unit = np.nonzero(switches)
        share = first[piece, unit] / (first[piece, unit] - second[piece, unit])
        crossings = places[piece] + share * (places[piece + 1] - places[piece])
        old_places = places
        places = np.unique(np.concatenate([places, crossings]))
        places = places[np.append(True, np.diff(places) > 1e-12)]  # the same place, up to rounding
        places[-1] = 1.0
        at = np.clip(np.searchsorted(old_places, places, side="right") - 1, 0, len(old_places) - 2)
        along = ((places - old_places[at]) / (old_places[at + 1] - old_places[at]))[:, None]
        values = np.maximum((1.0 - along) * before[at] + along * before[at + 1], 0.0)
        out.append((len(piece), len(places) - 1, len(np.unique(unit)) / len(weight)))
    return out

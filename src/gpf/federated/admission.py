"""Checks of replies: a server refuses a bad one, with the reason in one sentence, before merging."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpf.federated.merging import Network

FLOATS = ("float16", "float32", "float64")


class Refused(ValueError):  # noqa: N818 - it says what happened to the message
    """An invalid message; its text says why, in one sentence."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Upper limits of a message."""

    manifest: int = 1 << 18
    """Bytes of a manifest."""
    tensors: int = 1 << 26
    """Bytes of the tensors of a message."""
    arrays: int = 4096
    """Number of arrays."""
    magnitude: float = 1e4
    """Absolute value of a weight."""
    new_layers: int = 1
    """Layers that a client may have beyond those that it was sent."""
    examples: int = 10**9
    """Number of examples that a client may claim to have learned from."""


def check_update(network: Network, before: Network, limits: Limits) -> None:
    """Refuse a network that clients cannot have made of the one before."""
    if network.stack != before.stack:
        raise Refused(f"stack must be {before.stack!r}, got {network.stack!r}")
    deepest = before.depth + limits.new_layers
    if network.depth > deepest:
        raise Refused(f"depth must be at most {deepest}, got {network.depth}")
    expected = _expected(before, network.depth)
    for name, array in network.arrays.items():
        if name not in expected:
            raise Refused(f"arrays must be those of the network that was sent, got {name!r} too")
        shape, dtype = expected[name]
        if array.shape != shape or array.dtype != dtype:
            raise Refused(f"{name} must be {dtype} of shape {shape}, got {array.dtype} of shape {array.shape}")
        if not np.isfinite(array).all():
            raise Refused(f"{name} must be finite, got NaN or infinity")
        if array.size and np.abs(array).max() > limits.magnitude:
            raise Refused(f"{name} must be at most {limits.magnitude:g} in size, got {np.abs(array).max():g}")
    for name in expected:
        if name not in network.arrays and before.layer_of(name) not in network.frozen:
            raise Refused(f"{name} is missing; only a frozen layer may be left out")
        if name not in network.arrays and name not in before.arrays:
            raise Refused(f"{name} is missing; a new layer must be sent")
    for name, mask in network.masks.items():
        if name not in network.arrays or before.layer_of(name) is None:
            raise Refused(f"{name} must be a weight of the stack to have a mask")
        if mask.shape != network.arrays[name].shape or mask.ndim < 2:
            raise Refused(f"the mask of {name} must have shape {network.arrays[name].shape}, got {mask.shape}")
    if any(not 0 <= layer < network.depth for layer in network.frozen):
        raise Refused(f"frozen layers must be from 0 to {network.depth - 1}, got {sorted(network.frozen)}")


def _expected(before: Network, depth: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Shape and type of each array of a network of this depth."""
    found = {name: array for name, array in before.arrays.items() if (before.layer_of(name) or 0) < depth}
    last = before.of_layer(before.depth - 1)
    for layer in range(before.depth, depth):
        found |= {
            f"{before.stack}.{layer}.{name}": np.zeros((*a.shape[:1],) * a.ndim, a.dtype) for name, a in last.items()
        }
    return {name: (array.shape, array.dtype) for name, array in found.items()}


def number(about: dict[str, Any], name: str, low: float, high: float, whole: bool = False) -> float:
    """A number that a client reports, within bounds."""
    value: Any = about.get(name)
    fits = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not fits or not low <= value <= high:  # NaN is not
        kind = "a whole number" if whole else "a number"
        raise Refused(f"{name} must be {kind} from {low:g} to {high:g}, got {str(value)[:40]}")
    return float(value)

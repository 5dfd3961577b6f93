"""The merge rule: networks of different depth, with different masks and frozen layers, become one. NumPy only.

An entry of a weight is *owned* by the clients that have its layer, have not pruned it, and let its layer learn. Its
merged value is the weighted mean over its owners, or a robust average; without owners it keeps its value. Depth,
freezing and pruning are decided by vote: one client, one vote.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Mask = NDArray[np.bool_]
Average = Literal["mean", "trimmed", "median"]


@dataclass(frozen=True, eq=False)
class Network:
    """A network as named arrays, with the structure of its stack.

    Attributes:
        arrays: Parameters by name; those of layer i begin with `{stack}.{i}.`. A client may leave out frozen layers.
        depth: Number of layers in the stack.
        masks: Of the arrays of which entries are pruned, which entries are left.
        frozen: Layers that do not learn.
        stack: Prefix of the names of the layers' arrays.
    """

    arrays: Mapping[str, Array]
    depth: int
    masks: Mapping[str, Mask] = field(default_factory=dict)
    frozen: frozenset[int] = frozenset()
    stack: str = "layers"

    def layer_of(self, name: str) -> int | None:
        """The layer that an array belongs to; None for arrays outside the stack."""
        if not name.startswith(f"{self.stack}."):
            return None
        place = name[len(self.stack) + 1 :].partition(".")[0]
        return int(place) if place.isdecimal() else None

    def of_layer(self, layer: int) -> dict[str, Array]:
        """The arrays of a layer, by their names within it."""
        prefix = f"{self.stack}.{layer}."
        return {name.removeprefix(prefix): array for name, array in self.arrays.items() if name.startswith(prefix)}

    @property
    def density(self) -> float:
        """The share of the weights of the stack that is left; weights are arrays of two dimensions or more."""
        weights = {name: a for name, a in self.arrays.items() if self.layer_of(name) is not None and a.ndim > 1}
        pruned = sum(int((~mask).sum()) for name, mask in self.masks.items() if name in weights)
        return 1.0 - pruned / max(1, sum(a.size for a in weights.values()))


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How networks are merged."""

    average: Average = "mean"
    """`mean` weighted by the clients' weights; `trimmed` mean or coordinate-wise `median`, of equal weights, against
    faulty clients (Yin et al. 2018)."""
    trim: float = 0.25
    """Share of the owners of an entry whose values are left out at each end, for `trimmed`."""
    depth_share: float = 0.5
    """A layer is added when more than this share of the clients has it."""
    freeze_share: float = 0.5
    """A layer is frozen when more than this share of the clients that have it froze it."""
    prune_share: float = 0.5
    """An entry is pruned when more than this share of the clients that have its layer pruned it."""

    def __post_init__(self) -> None:
        if self.average not in get_args(Average):
            raise ValueError(f"average must be one of {', '.join(get_args(Average))}, got {self.average!r}")
        if not 0.0 <= self.trim < 0.5:
            raise ValueError(f"trim must be from 0 to below 0.5, got {self.trim}")
        for name in ("depth_share", "freeze_share", "prune_share"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name} must be from 0 to below 1, got {getattr(self, name)}")


def merge(
    before: Network,
    clients: Sequence[Network],
    weights: Sequence[float] | None = None,
    rule: Rule | None = None,
    depth: int | None = None,
) -> Network:
    """Merge the networks that clients returned for `before`.

    Args:
        before: The network that they were sent.
        clients: The networks that they returned, in any order; without any, `before` is returned.
        weights: Weights of clients in means, such as numbers of examples; None for equal weights.
        rule: How to average and to vote.
        depth: Layers of the merged network; None to decide it by vote.
    """
    rule = rule or Rule()
    if not clients:
        return before
    clients, shares = _in_order(clients, _checked(weights, len(clients)))
    depth = voted_depth(before, clients, rule) if depth is None else depth
    frozen = voted_frozen(clients, depth, rule)
    arrays: dict[str, Array] = {}
    masks: dict[str, Mask] = {}
    for name in _names(before, clients, depth):
        kept = voted_mask(before, clients, name, rule)
        if kept is not None and not kept.all():
            masks[name] = kept
        arrays[name] = _merged(before, clients, shares, name, frozen, kept, rule)
    return Network(arrays, depth, masks, frozen, before.stack)


# Votes


def voted_depth(before: Network, clients: Sequence[Network], rule: Rule) -> int:
    """The greatest depth that enough clients have; never less than before."""
    depth = before.depth
    while _exceeds([client.depth > depth for client in clients], rule.depth_share):
        depth += 1
    return depth


def voted_frozen(clients: Sequence[Network], depth: int, rule: Rule) -> frozenset[int]:
    """The layers that enough of those that have them froze."""
    votes = {n: [n in client.frozen for client in clients if client.depth > n] for n in range(depth)}
    return frozenset(n for n, some in votes.items() if _exceeds(some, rule.freeze_share))


def voted_mask(before: Network, clients: Sequence[Network], name: str, rule: Rule) -> Mask | None:
    """Which entries of an array are left; None if no client with its layer pruned any.

    A frozen layer that a client did not send is as it was before.
    """
    layer = before.layer_of(name)
    voters = [client for client in clients if layer is None or client.depth > layer]
    if not voters:
        return before.masks.get(name)
    ballots = [_mask_of(client, before, name) for client in voters]
    given = [ballot for ballot in ballots if ballot is not None]
    if not given:
        return None
    pruned = np.sum([~ballot for ballot in given], axis=0)
    kept: Mask = ~(pruned > rule.prune_share * len(voters))
    return kept


def _mask_of(client: Network, before: Network, name: str) -> Mask | None:
    return client.masks.get(name) if name in client.arrays else before.masks.get(name)


def _exceeds(votes: Sequence[bool], share: float) -> bool:
    return bool(votes) and sum(votes) > share * len(votes)


# Values


def coefficients(
    before: Network, clients: Sequence[Network], weights: Sequence[float], name: str
) -> NDArray[np.float64]:
    """The share of each client in the mean of each entry, (clients, *shape): they sum to 1 where anyone owns it."""
    owned = ownership(before, clients, name)
    shares = np.asarray(weights, np.float64).reshape(-1, *[1] * (owned.ndim - 1)) * owned
    total = shares.sum(axis=0)
    out: NDArray[np.float64] = np.divide(shares, total, out=np.zeros_like(shares), where=total > 0)
    return out


def ownership(before: Network, clients: Sequence[Network], name: str) -> Mask:
    """Which clients own which entries of an array, (clients, *shape)."""
    layer = before.layer_of(name)
    shape = _example(before, clients, name).shape
    owned = np.zeros((len(clients), *shape), np.bool_)
    for row, client in zip(owned, clients, strict=True):
        if name in client.arrays and layer not in client.frozen:
            row[...] = client.masks.get(name, True)
    return owned


def _merged(
    before: Network,
    clients: Sequence[Network],
    weights: NDArray[np.float64],
    name: str,
    frozen: frozenset[int],
    kept: Mask | None,
    rule: Rule,
) -> Array:
    """The merged values of an array."""
    layer, example = before.layer_of(name), _example(before, clients, name)
    fallback = before.arrays.get(name)
    if fallback is None:  # new to the federation: clients that froze it own it too; without any it is the identity
        clients = [Network(c.arrays, c.depth, c.masks, frozenset(), c.stack) for c in clients]
        fallback = identity_array(example)
    elif layer in frozen:
        return _masked(fallback, kept)
    owned = ownership(before, clients, name)
    values = np.zeros(owned.shape, np.float64)
    for row, client in zip(values, clients, strict=True):
        if name in client.arrays:
            row[...] = client.arrays[name]
    if rule.average == "mean":
        average = (coefficients(before, clients, weights.tolist(), name) * values).sum(axis=0)
    else:
        average = _robust(values, owned, 0.5 if rule.average == "median" else rule.trim)
    low = np.where(owned, values, np.inf).min(axis=0)
    high = np.where(owned, values, -np.inf).max(axis=0)
    anyone = owned.any(axis=0)
    # Rounding may leave the range of the values; clipping keeps equal values exactly equal.
    bounded = np.clip(average, np.where(anyone, low, 0.0), np.where(anyone, high, 0.0))
    return _masked(np.where(anyone, bounded, fallback).astype(example.dtype), kept)


def _robust(values: NDArray[np.float64], owned: Mask, trim: float) -> NDArray[np.float64]:
    """The mean of the owners' values without a share of the lowest and of the highest; with a half, the median."""
    count = owned.sum(axis=0)
    ranked = np.sort(np.where(owned, values, np.inf), axis=0)  # those of owners come first
    cut = np.minimum(np.floor(trim * count), np.maximum(0, (count - 1) // 2)).astype(int)
    rank = np.arange(len(values)).reshape(-1, *[1] * (values.ndim - 1))
    used = (rank >= cut) & (rank < count - cut)
    total = np.where(used, ranked, 0.0).sum(axis=0)
    out: NDArray[np.float64] = total / np.maximum(1, used.sum(axis=0))
    return out


def _masked(values: Array, kept: Mask | None) -> Array:
    return values.copy() if kept is None else np.where(kept, values, values.dtype.type(0))


def identity_array(like: Array) -> Array:
    """An array of a layer that passes on what a ReLU before it gave: the identity, and no bias."""
    if like.ndim < 2:
        return np.zeros_like(like)
    if like.ndim != 2 or like.shape[0] != like.shape[1]:
        raise ValueError(f"a new layer must be a square matrix to be the identity, got shape {like.shape}")
    return np.eye(len(like), dtype=like.dtype)


def _example(before: Network, clients: Sequence[Network], name: str) -> Array:
    """An array of this name, for its shape and type; for an unowned layer, shaped as the last layer of `before`."""
    for network in (before, *clients):
        if name in network.arrays:
            return network.arrays[name]
    last = before.of_layer(before.depth - 1)[name[len(before.stack) + 1 :].partition(".")[2]]
    return np.zeros((len(last),) * last.ndim, last.dtype)  # as wide as that layer


def _names(before: Network, clients: Sequence[Network], depth: int) -> list[str]:
    """The names of the merged network's arrays."""
    stem = [name for name in before.arrays if before.layer_of(name) is None]
    within = before.of_layer(before.depth - 1)
    layers = {n: before.of_layer(n) or within for n in range(depth)}
    return [f"{before.stack}.{n}.{name}" for n, arrays in layers.items() for name in arrays] + stem


def _in_order(clients: Sequence[Network], weights: NDArray[np.float64]) -> tuple[list[Network], NDArray[np.float64]]:
    """Clients sorted by content: floating-point sums then do not depend on the order of arrival."""
    ranked = sorted(range(len(clients)), key=lambda n: (weights[n], _digest(clients[n])))
    return [clients[n] for n in ranked], weights[ranked]


def _digest(network: Network) -> bytes:
    digest = hashlib.sha256(repr((network.depth, sorted(network.frozen))).encode())
    for kind in (network.arrays, network.masks):
        for name in sorted(kind):
            digest.update(name.encode() + np.ascontiguousarray(kind[name]).tobytes())
    return digest.digest()


def _checked(weights: Sequence[float] | None, count: int) -> NDArray[np.float64]:
    values = np.ones(count) if weights is None else np.asarray(weights, np.float64)
    if values.shape != (count,) or not all(math.isfinite(one) and one > 0 for one in values):
        raise ValueError(f"weights must be a positive number for each of {count} clients, got {weights!r}")
    return values / values.sum()

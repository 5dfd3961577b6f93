"""Selects what to prune in a stack: single weights or whole units, by thresholds or down to a share."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gpf.network import pruning, sharding
from gpf.network.compaction.units import Units, unit_mask, unit_means
from gpf.network.layer import Layer, Weight
from gpf.network.moments import second_moment
from gpf.network.optimizers import Optimizers
from gpf.network.rules import Rules, Saliency
from gpf.network.wrappers import share_gradients

LEAST_OF_A_LAYER = 0.5
"""Share of the planned share of units that every layer keeps, to avoid bottlenecks."""


@dataclass(frozen=True)
class Candidate:
    """A weight that may lose entries."""

    layer: int
    weight: Weight
    kind: Saliency
    squares: Tensor | None
    """The mean of the squared gradients, if the saliency needs it."""

    def cost(self) -> Tensor:
        """The saliency of each entry."""
        return pruning.saliency(self.weight.values, self.kind, self.squares)

    def ordered(self) -> Tensor:
        """A tensor whose absolute values are ordered as the saliencies; the weight itself where that will do."""
        return self.weight.values if self.kind == "magnitude" else self.cost()


@dataclass(frozen=True)
class Selection:
    """The entries to prune."""

    masks: list[tuple[int, Weight, Tensor]]
    """Layer, weight, and which of its entries to prune, including those that are already pruned."""
    chosen: int
    """Number of weights, or units, that go and were there."""
    total: int
    """Number of weights, or units, among which there was a choice."""
    what: str
    """`weights` or `units`."""


def candidates(
    layers: Sequence[Layer], rules: Rules, optimizers: Optimizers, spared: Collection[int] = ()
) -> list[Candidate]:
    """The weights of the layers that learn and are not spared, with their saliencies, where these are known."""
    found = []
    for i, layer in enumerate(layers):
        for weight in [] if layer.frozen or i in spared else layer.weights:
            squares = mean_square_gradient(layer, weight, optimizers) if rules.saliency == "obd" else None
            if rules.saliency != "obd" or squares is not None:  # it has had a gradient since the growth
                found.append(Candidate(i, weight, rules.saliency, squares))
    return found


def mean_square_gradient(layer: Layer, weight: Weight, optimizers: Optimizers) -> Tensor | None:
    """The mean of the squared gradients of a weight: gathered since the growth, or what its optimizer keeps."""
    if weight.squares is not None:
        return weight.squares / layer.gradients if layer.gradients else None
    moment = second_moment(optimizers, weight.parameter)
    return None if moment is None else sharding.local(moment)


def select(
    candidates: Sequence[Candidate],
    units: Sequence[Units],
    rules: Rules,
    keep: float | None,
    removed: Sequence[int] | None = None,
) -> Selection:
    """The entries that the rules allow to prune or, with `keep`, those whose pruning leaves this share.

    Args:
        candidates: The weights that may lose entries.
        units: Where whole units can go; looked at if the rules' granularity is the unit.
        rules: The rules.
        keep: The share of the weights, or of the units, to keep.
        removed: How many weights, or units, each layer has lost for good; they count as gone.
    """
    if rules.granularity == "unit":
        return _select_units(candidates, units, rules, keep, removed)
    gone = [one.weight.pruned for one in candidates]
    parameters = [one.weight.parameter for one in candidates]
    if keep is None:
        masks = [_below(one.weight.belief, one.cost(), rules) for one in candidates]
    else:
        masks = _all_but(keep, [one.ordered() for one in candidates], gone, parameters, _lost(candidates, removed))
    total = sum(parameter.numel() for parameter in parameters)
    chosen = 0
    for mask, before, parameter in zip(masks, gone, parameters, strict=True):
        chosen += sharding.total([_count_new(mask, before)], parameter)[0]
    found = [(one.layer, one.weight, mask) for one, mask in zip(candidates, masks, strict=True)]
    return Selection(found, chosen, total, "weights")


def regrowing(
    layers: Sequence[Layer], keep: float, share: float, distributed: bool
) -> tuple[list[tuple[Layer, Weight, Tensor]], int]:
    """Which pruned weights come back, those with the largest gradients since the last epoch; and the number of all.

    Args:
        layers: The layers that learn.
        keep: The share of their weights to keep.
        share: The share of those that may come back.
        distributed: Whether gradients were gathered by several processes.
    """
    if distributed:
        for layer in layers:
            share_gradients(layer)
    total = sum(layer.removed_weights + sum(w.parameter.numel() for w in layer.weights) for layer in layers)
    found = [(layer, weight, weight.dense) for layer in layers for weight in layer.masked if weight.dense is not None]
    count = round(share * round(keep * total))
    masks = pruning.returning([dense for _, _, dense in found], [_mask(weight) for _, weight, _ in found], count)
    return [(layer, weight, mask) for (layer, weight, _), mask in zip(found, masks, strict=True)], max(1, total)


def _select_units(
    candidates: Sequence[Candidate],
    units: Sequence[Units],
    rules: Rules,
    keep: float | None,
    removed: Sequence[int] | None,
) -> Selection:
    by_name = {(one.layer, one.weight.name): one for one in candidates}
    groups = [group for group in units if all((group.layer, name) in by_name for name in group.members)]
    beliefs, costs, gone = [], [], []
    for group in groups:
        members = {name: by_name[group.layer, name] for name in group.members}
        beliefs.append(unit_means(group, {name: one.weight.belief for name, one in members.items()}))
        costs.append(unit_means(group, {name: one.cost() for name, one in members.items()}))
        pruned = {name: _mask(one.weight).float() for name, one in members.items()}
        gone.append(unit_means(group, pruned) == 1.0)
    if keep is None:
        dead = [_below(belief, cost, rules) for belief, cost in zip(beliefs, costs, strict=True)]
    else:
        ranks = [
            _with_some_spared(cost * _scale(group, by_name), LEAST_OF_A_LAYER * keep * whole)
            for group, cost, whole in zip(groups, costs, _whole_counts(groups, removed), strict=True)
        ]
        dead = _all_but(keep, ranks, gone, costs, _lost(candidates, removed))
        dead = [pruning.round_survivors(*masks, rules.unit_multiple) for masks in zip(dead, gone, ranks, strict=True)]
    for units_gone, cost in zip(dead, costs, strict=True):
        if units_gone.all():
            units_gone[cost.argmax()] = False  # without any unit nothing would pass
    masks: dict[tuple[int, str], Tensor] = {}
    for group, units_gone in zip(groups, dead, strict=True):
        like = {name: by_name[group.layer, name].weight.parameter for name in group.members}
        for name, mask in unit_mask(group, units_gone, like).items():
            key = group.layer, name
            masks[key] = masks[key] | mask if key in masks else mask
    chosen = sum(_count_new(now, before) for now, before in zip(dead, gone, strict=True))
    total = sum(group.count for group in groups)
    found = [(layer, by_name[layer, name].weight, mask) for (layer, name), mask in masks.items()]
    return Selection(found, chosen, total, "units")


def _scale(group: Units, by_name: Mapping[tuple[int, str], Candidate]) -> float:
    """The factor that makes mean saliencies of units of different sizes comparable.

    Weights of a layer with few inputs are large from the start. Magnitudes become like norms, and the rises of the loss
    that OBD estimates are added up.
    """
    members = [by_name[group.layer, name] for name in group.members]
    entries = sum(view(by_name[group.layer, name].weight.values)[0].numel() for name, view in group.members.items())
    return math.sqrt(entries) if members[0].kind == "magnitude" else float(entries)


def _lost(candidates: Sequence[Candidate], removed: Sequence[int] | None) -> int:
    return 0 if removed is None else sum(removed[layer] for layer in {one.layer for one in candidates})


def _whole_counts(groups: Sequence[Units], removed: Sequence[int] | None) -> list[float]:
    """The units that each group had at first; a layer's losses are divided among its groups."""
    by_layer: dict[int, int] = {}
    for group in groups:
        by_layer[group.layer] = by_layer.get(group.layer, 0) + group.count
    lost = {layer: 0 if removed is None else removed[layer] for layer in by_layer}
    return [group.count * (1.0 + lost[group.layer] / by_layer[group.layer]) for group in groups]


def _with_some_spared(cost: Tensor, spared: float) -> Tensor:
    """The costs of units; some of the highest, and at least one, exceed all others: they have to stay."""
    cost = cost.clone()
    cost[cost.topk(min(len(cost), max(1, math.ceil(spared)))).indices] = torch.inf
    return cost


def _below(belief: Tensor, cost: Tensor, rules: Rules) -> Tensor:
    return pruning.prunable(belief, cost, rules.belief_threshold, rules.saliency_threshold)


def _all_but(
    keep: float, costs: Sequence[Tensor], gone: Sequence[Tensor | None], wholes: Sequence[Tensor], lost: int
) -> list[Tensor]:
    """Masks of the entries whose pruning leaves this share; this many were removed earlier.

    `wholes` are the tensors of which costs may be shards.
    """
    total = sum(whole.numel() for whole in wholes)
    return sharding.cheapest_of_all(costs, gone, wholes, max(0, total - round(keep * (total + lost))))


def _count_new(mask: Tensor, before: Tensor | None) -> int:
    return int(torch.count_nonzero(mask if before is None else mask & ~before))


def _mask(weight: Weight) -> Tensor:
    return torch.zeros_like(weight.parameter, dtype=torch.bool) if weight.pruned is None else weight.pruned

"""Updates a layer at the end of an epoch: belief in its weights, and whether they have stopped changing."""

import functools

from gpf.network import belief, freezing, sharding
from gpf.network.layer import Layer
from gpf.network.rules import Rules


def observe(layer: Layer, rules: Rules) -> None:
    """Bring the beliefs and the stillness of a layer up to date with the epoch that has ended."""
    for weight in layer.weights:
        threshold = rules.activation_threshold
        weight.belief = belief.raised(
            weight.belief,
            weight.values,
            rules.weight_threshold,
            rules.belief_increment,
            None if threshold is None else layer.active(weight, threshold),
            rules.belief_fall,
        )
    layer.forget_activations()
    if rules.freeze_patience is not None:
        _observe_stillness(layer, rules)


def _observe_stillness(layer: Layer, rules: Rules) -> None:
    moves = [(w.previous, w.values, w.pruned) for w in layer.weights if w.previous is not None]
    if moves:
        total = functools.partial(sharding.total, like=layer.weights[0].parameter)
        calm = freezing.still_share(moves, rules.freeze_delta, total) >= rules.freeze_fraction
        layer.still = layer.still + 1 if calm else 0
    for weight in layer.weights:
        if weight.previous is None:
            weight.previous = weight.values.clone()
        else:
            weight.previous.copy_(weight.values)

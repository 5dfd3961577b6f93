"""Conclusions from a run's spectra and plasticity: one sentence each, derived from the numbers."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from gpf.spectra.empirical import analyse_weights
from gpf.spectra.inspection import Inspection

DRAWS = 19
"""Random matrices that a layer is compared with: being farther from the law than all of them happens by chance once in
20 times."""
FEW_DEAD = 0.05
"""Share of dead units that is no sign of lost plasticity."""
RANK_KEPT = 0.75
"""Share of its first effective rank that a layer must keep to show no sign of lost plasticity."""


def weights_conclusion(final: Inspection) -> str:
    """How many eigenvalues of the final weights lie outside the bulk of the random law, and what that means."""
    judged = [(layer.name, layer.weights.bulk, layer.weights) for layer in final.layers if layer.weights.bulk]
    if not judged:
        return "All layers have too few eigenvalues for a comparison with random weights."
    total = sum(min(weights.shape) for _, _, weights in judged)
    spikes = sum(len(bulk.spikes) for _, bulk, _ in judged)
    strange = [
        f"{name} ({bulk.distance:.2f}, chance {_chance(weights.shape):.2f})"
        for name, bulk, weights in judged
        if bulk.distance > _chance(weights.shape)
    ]
    said = f"{spikes} of {total} eigenvalues of the final weights lie outside the bulk of the random law"
    if spikes:
        said += f" ({', '.join(f'{name}: {len(bulk.spikes)}' for name, bulk, _ in judged if len(bulk.spikes))})"
    if strange:
        said += (
            f", but {'the others' if spikes else 'inside it they'} do not follow that law either, by their Kolmogorov"
            f" distance from it: {', '.join(strange)}. So the weights are not random there, and the number of"
            " eigenvalues outside the bulk is no measure of what was learned."
        )
    elif spikes:
        said += (
            ", where random weights of this size hardly ever have one, and the others follow that law: learning shows"
            f" in {spikes} strong direction{'s' if spikes > 1 else ''}, and the rest looks like noise."
        )
    else:
        said += ": by their eigenvalues alone, these weights are indistinguishable from random ones."
    small = [layer.name for layer in final.layers if layer.weights.bulk is None]
    return said + (f" Too small to judge: {', '.join(small)}." if small else "")


def activations_conclusion(final: Inspection) -> str:
    """In which layers the activations differ from those of a random layer by more than chance, and what that means."""
    known = [
        (layer.name, layer.gram.kolmogorov, layer.gram.chance)
        for layer in final.layers
        if layer.gram is not None and layer.gram.kolmogorov is not None and layer.gram.chance is not None
    ]
    if not known:
        return "There is no law to compare the activations of these layers with."
    beyond = [f"{name} ({distance:.2f}, chance {chance:.2f})" for name, distance, chance in known if distance > chance]
    if not beyond:
        return (
            f"At the end, the activations of none of the {len(known)} layers differ from the law of a random layer by"
            " more than chance: by their eigenvalues alone, they are indistinguishable from those of a random layer"
            " with the same inputs."
        )
    others = len(known) - len(beyond)
    rest = f" Those of the other {others} are indistinguishable from those of a random layer with the same inputs."
    return (
        f"At the end, the activations of {len(beyond)} of {len(known)} layers differ from the law of a random layer"
        f" by more than chance: learning changed the directions in use. The layers: {', '.join(beyond)}."
        + (rest if others else "")
    )


def plasticity_conclusion(lines: Sequence[list[dict[str, Any]]]) -> str:
    """Whether layers lost units or rank between their first and their last measurement."""
    if len(lines) < 2:
        return "There was only one validation: nothing to compare it with."
    first: dict[str, dict[str, Any]] = {}
    for line in lines:
        for layer in line:
            first.setdefault(layer["name"], layer)
    last = {layer["name"]: layer for layer in lines[-1]}
    dead = [f"{name}: {layer['dead']:.0%}" for name, layer in last.items() if layer["dead"] > FEW_DEAD]
    fallen = [
        f"{name}: {first[name]['effective_rank']:.1f} to {layer['effective_rank']:.1f}"
        for name, layer in last.items()
        if layer["effective_rank"] < RANK_KEPT * first[name]["effective_rank"]
    ]
    if not dead and not fallen:
        most = max(layer["dead"] for layer in last.values())
        kept = min(layer["effective_rank"] / (first[name]["effective_rank"] or 1.0) for name, layer in last.items())
        return (
            f"No sign of lost plasticity: at the last validation at most {most:.0%} of a layer's units are dead, and"
            f" every layer keeps at least {kept:.0%} of the effective rank that it had at its first."
        )
    said = []
    if dead:
        said.append(f"dead units at the last validation ({', '.join(dead)})")
    if fallen:
        said.append(f"an effective rank that fell since the layer's first validation ({', '.join(fallen)})")
    return f"Some plasticity may be lost: {' and '.join(said)}."


@lru_cache(maxsize=64)
def _chance(shape: tuple[int, int]) -> float:
    """The greatest distance from the law of `DRAWS` random matrices of a shape, without their spikes."""
    rng = np.random.default_rng(0)
    bulks = [analyse_weights(rng.normal(size=shape)).bulk for _ in range(DRAWS)]
    return max(bulk.distance for bulk in bulks if bulk is not None)

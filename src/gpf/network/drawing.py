"""Draws a network as a few lines of text."""

from collections.abc import Sequence

from torch import nn

from gpf.network.events import Shape
from gpf.network.layer import Layer


def drawing(model: nn.Module, stack: str, layers: Sequence[Layer], shape: Shape, epoch: int) -> str:
    """A line for the whole stack and one for each layer: block, shapes, density, belief, and whether it is frozen."""
    lines = [
        f"{type(model).__name__}.{stack}: depth {shape.depth}, density {shape.density:.3f},"
        f" {shape.parameters - shape.pruned:,} of {shape.parameters:,} parameters, epoch {epoch}",
        f"{'layer':>5}  {'block':<24} {'weights':<28} {'density':>7} {'belief':>7}  state",
    ]
    for i, layer in enumerate(layers):
        shapes = " ".join("x".join(map(str, weight.parameter.shape)) for weight in layer.weights)
        total = sum(weight.parameter.numel() for weight in layer.weights)
        left = 1.0 - sum(weight.count_pruned() for weight in layer.weights) / max(1, total)
        state = "frozen" if layer.frozen else f"still for {layer.still}"
        name = type(layer.block).__name__
        lines.append(f"{i:>5}  {name:<24.24} {shapes:<28.28} {left:>7.3f} {layer.mean_belief():>7.3f}  {state}")
    return "\n".join(lines)

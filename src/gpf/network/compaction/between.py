"""Modules that may lie between two maps without mixing units, and their output for a constant."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from gpf.network.compaction.cuts import Cuts
from gpf.network.compaction.maps import CONVOLUTIONS, count

_ELEMENTWISE = {
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.CELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Softplus, nn.Softsign,
    nn.Tanh, nn.Hardtanh, nn.Sigmoid, nn.Hardsigmoid, nn.Hardswish, nn.Identity,
}  # fmt: skip
_DROPOUT = {nn.Dropout, nn.Dropout1d, nn.Dropout2d}
_POOLING = {
    nn.MaxPool1d, nn.MaxPool2d, nn.AvgPool1d, nn.AvgPool2d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d,
}  # fmt: skip
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)


def keeps_units_apart(part: nn.Module, producer: nn.Module, flat: bool) -> bool:
    """Whether a module treats each unit of a map by itself, and makes a constant of a constant in evaluation.

    Args:
        part: The module.
        producer: The map that it follows, with others between.
        flat: Whether the outputs of a convolution were flattened on the way.
    """
    if is_elementwise(part) or type(part) in _DROPOUT:
        return True
    pictures = isinstance(producer, CONVOLUTIONS) and not flat
    if isinstance(part, _NORMS):
        norm = nn.BatchNorm2d if isinstance(producer, nn.Conv2d) else nn.BatchNorm1d
        # Without running statistics the constant would depend on the batch.
        return type(part) is norm and not flat and part.running_mean is not None
    if type(part) is nn.Flatten:
        return pictures and part.start_dim == 1 and part.end_dim == -1
    if type(part) not in _POOLING or not pictures or getattr(part, "return_indices", False):
        return False
    padded = getattr(part, "padding", 0) not in (0, (0,), (0, 0))
    return not (isinstance(part, nn.AvgPool1d | nn.AvgPool2d) and (padded or getattr(part, "divisor_override", None)))


def is_elementwise(function: object) -> bool:
    """Whether an object is one of the elementwise functions of torch or transformers."""
    ours = type(function) in _ELEMENTWISE
    theirs = type(function).__module__ == "transformers.activations"
    return ours or theirs


def acts_elementwise(function: Callable[[Tensor], Tensor]) -> bool:
    """Whether any function, as a user may have given it, takes each element by itself, found out by trying."""
    if is_elementwise(function):
        return True
    if isinstance(function, nn.Module) and list(function.parameters()):
        return False
    numbers = torch.linspace(-2.0, 2.0, 9)
    try:
        alone = torch.cat([function(number[None].clone()) for number in numbers])
        return torch.allclose(function(numbers.clone()), alone, rtol=1e-5, atol=1e-6)  # one by one it rounds otherwise
    except (RuntimeError, IndexError, TypeError):  # it needs a certain shape, or returns something else
        return False


def flattened(between: Sequence[object]) -> bool:
    """Whether the outputs of a convolution are flattened by one of these functions."""
    return any(type(part) is nn.Flatten for part in between)


def fits(producer: nn.Module, between: Sequence[object], consumer: nn.Module) -> bool:
    """Whether a map takes just the units of another, with these functions between."""
    outputs, inputs = count(producer, "outputs"), count(consumer, "inputs")
    if isinstance(producer, CONVOLUTIONS) and flattened(between):
        return type(consumer) is nn.Linear and inputs % outputs == 0
    alike = type(producer) is type(consumer) or not isinstance(producer, CONVOLUTIONS) | isinstance(
        consumer, CONVOLUTIONS
    )
    return alike and inputs == outputs


def on_constants(function: Callable[[Tensor], Tensor], constants: Tensor) -> Tensor:
    """Outputs of a function between maps for units that put out constants, one each, in evaluation."""
    if type(function) in _DROPOUT | _POOLING | {nn.Flatten}:
        return constants
    if isinstance(function, _NORMS):
        mean, variance = function.running_mean, function.running_var
        weight, bias = function.weight, function.bias
        assert mean is not None and variance is not None  # noqa: PT018 - `keeps_units_apart` has seen to it
        scaled = (constants - mean) * torch.rsqrt(variance + function.eps)
        return scaled if weight is None else scaled * weight.detach() + bias.detach()
    return function(constants.clone())  # it may work in place


def remove_from(function: object, dead: Tensor, cuts: Cuts) -> None:
    """Take units out of the statistics of a normalisation; other functions have none."""
    if not isinstance(function, _NORMS):
        return
    kept = (~dead).nonzero().flatten()
    for name in ("weight", "bias", "running_mean", "running_var"):
        if getattr(function, name) is not None:
            cuts.take(function, name, 0, kept)
    function.num_features = len(kept)

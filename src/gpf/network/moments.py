"""State that torch's optimizers keep for each parameter."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gpf.network.optimizers import Optimizers

Decay = Callable[[dict[str, Any]], float]


def _beta2(group: dict[str, Any]) -> float:
    return group["betas"][1]


def _alpha(group: dict[str, Any]) -> float:
    return group["alpha"]


_SECOND_MOMENTS: dict[type[Optimizer], tuple[str, Decay]] = {
    torch.optim.Adam: ("exp_avg_sq", _beta2),
    torch.optim.AdamW: ("exp_avg_sq", _beta2),
    torch.optim.NAdam: ("exp_avg_sq", _beta2),
    torch.optim.RAdam: ("exp_avg_sq", _beta2),
    torch.optim.RMSprop: ("square_avg", _alpha),
}
_LEAVE_ZEROS_ALONE = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop)
_DIVISORS = ("exp_avg_sq", "max_exp_avg_sq", "square_avg")


def keeps_second_moment(optimizer: Optimizer | None) -> bool:
    """Whether the optimizer keeps a running mean of squared gradients."""
    return type(optimizer) in _SECOND_MOMENTS


def second_moment(optimizers: Optimizers, parameter: nn.Parameter) -> Tensor | None:
    """The optimizer's mean of squared gradients, with its bias towards zero corrected; None before the first step."""
    group, optimizer = optimizers.find(parameter)
    if optimizer is None or group is None or type(optimizer) not in _SECOND_MOMENTS:
        return None
    name, decay = _SECOND_MOMENTS[type(optimizer)]
    state = optimizer.state.get(parameter, {})
    if name not in state:
        return None
    return state[name] / (1.0 - decay(optimizers.groups[group]) ** float(state["step"]))


def leaves_zeros_alone(optimizer: Optimizer) -> bool:
    """Whether a weight of zero with zero gradient and zero momentum stays exactly zero through a step."""
    return type(optimizer) in _LEAVE_ZEROS_ALONE


def only_divides(optimizer: Optimizer | None, name: str) -> bool:
    """Whether a part of an optimizer's state only ever divides the update of a weight.

    Pruned weights have 1 there instead of 0: their update is 0 either way, and torch takes roots of zeros ten times as
    slowly as roots of other numbers.
    """
    return name in _DIVISORS and type(optimizer) in _SECOND_MOMENTS

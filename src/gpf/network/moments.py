"""What torch's optimizers keep of a parameter's gradients."""

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

_SECOND_MOMENTS = {
    torch.optim.Adam: ("exp_avg_sq", lambda group: group["betas"][1]),
    torch.optim.AdamW: ("exp_avg_sq", lambda group: group["betas"][1]),
    torch.optim.NAdam: ("exp_avg_sq", lambda group: group["betas"][1]),
    torch.optim.RAdam: ("exp_avg_sq", lambda group: group["betas"][1]),
    torch.optim.RMSprop: ("square_avg", lambda group: group["alpha"]),
}
_LEAVE_ZEROS_ALONE = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop)


def keeps_second_moment(optimizer: Optimizer) -> bool:
    """Whether the optimizer keeps a running mean of squared gradients."""
    return type(optimizer) in _SECOND_MOMENTS


def second_moment(optimizer: Optimizer, parameter: nn.Parameter) -> Tensor | None:
    """The optimizer's mean of squared gradients, with its bias towards zero corrected; None before the first step."""
    name, decay = _SECOND_MOMENTS[type(optimizer)]
    state = optimizer.state.get(parameter, {})
    if name not in state:
        return None
    group = next(group for group in optimizer.param_groups if any(p is parameter for p in group["params"]))
    return state[name] / (1.0 - decay(group) ** float(state["step"]))


def leaves_zeros_alone(optimizer: Optimizer) -> bool:
    """Whether a weight of zero with zero gradient and zero moments stays exactly zero through a step."""
    return type(optimizer) in _LEAVE_ZEROS_ALONE

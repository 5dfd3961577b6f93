"""Gradient steps in compiled code, which calls no hooks: when it can replace torch, and what it then owes gpf.

Here is the one list of hooks that such code may leave out, because it does itself what they are for.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from gpf.network.controller import GrowPruneFreeze
from gpf.network.hooks import Hook
from gpf.network.layer import Layer, Weight
from gpf.network.masking import Masking


@dataclass
class Duties:
    """What compiled code has to do in the place of hooks."""

    masks: dict[nn.Parameter, Tensor] = field(default_factory=dict)
    """1 where an entry is kept and 0 where it is pruned, of parameters with pruned entries."""
    counters: list[Callable[..., None]] = field(default_factory=list)
    """To be called once for each step."""


class _UnknownError(Exception):
    """Something rides on the training that compiled code would leave out."""


def duties(model: nn.Module, optimizer: torch.optim.Optimizer) -> Duties | str:
    """What compiled Adam steps on a model owe gpf; or, in words, why torch has to take them."""
    owed = Duties()
    try:
        _check_optimizer(model, optimizer)
        for function in _functions(_hooks_of_steps(optimizer)):
            _take_over_step_hook(function, owed)
        for function in _functions(_hooks_of_modules(model)):
            if not _is(function, Layer._before_forward):
                raise _UnknownError("a module has a hook")
        for parameter in model.parameters():
            _take_over_gradient_hooks(parameter, owed)
    except _UnknownError as reason:
        return str(reason)
    return owed


def _check_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Plain Adam, of one setting, of float32 parameters of the model, which are all that learns."""
    if type(optimizer) is not torch.optim.Adam:
        raise _UnknownError(f"the optimizer is {type(optimizer).__name__}, not Adam")
    if any(group[name] for group in optimizer.param_groups for name in ("amsgrad", "weight_decay", "maximize")):
        raise _UnknownError("Adam has amsgrad, weight decay or maximize")
    if len({(float(group["lr"]), *group["betas"], group["eps"]) for group in optimizer.param_groups}) > 1:
        raise _UnknownError("parameter groups have different settings")
    members = {p for group in optimizer.param_groups for p in group["params"]}
    if members != {p for p in model.parameters() if p.requires_grad}:
        raise _UnknownError("the optimizer does not train exactly what requires gradients")
    if any(p.dtype != torch.float32 or not p.is_cpu for p in model.parameters()):
        raise _UnknownError("a parameter is not float32 on the CPU")


def _take_over_step_hook(function: Any, owed: Duties) -> None:
    if _is(function, Masking._before_step):
        if any(weight.squares is not None for layer in function.__self__.layers for weight in layer.weights):
            raise _UnknownError("squared gradients are gathered")
    elif _is(function, GrowPruneFreeze._count_step):
        owed.counters.append(function)
    elif not _is(function, Masking._after_step):
        raise _UnknownError("the optimizer has a hook")


def _take_over_gradient_hooks(parameter: nn.Parameter, owed: Duties) -> None:
    if parameter._backward_hooks:
        raise _UnknownError("a parameter has a hook")
    for function in _functions(iter((parameter._post_accumulate_grad_hooks or {}).values())):
        if not _is(function, Weight.mask_gradient):
            raise _UnknownError("a parameter has a hook")
        weight = function.__self__
        if weight.dense is not None:
            raise _UnknownError("gradients of pruned weights are gathered")
        if weight.keep is not None:
            owed.masks[parameter] = weight.keep


def _hooks_of_steps(optimizer: torch.optim.Optimizer) -> Iterator[Any]:
    for hooks in (
        optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks,
        optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks,
    ):  # fmt: skip
        yield from hooks.values()


def _hooks_of_modules(model: nn.Module) -> Iterator[Any]:
    names = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
    for name in names:
        yield from getattr(modules, f"_global{name}").values()
        for module in model.modules():
            yield from getattr(module, name).values()


def _functions(hooks: Iterator[Any]) -> Iterator[Any]:
    """What hooks of ours call, and other hooks themselves."""
    for hook in hooks:
        if not isinstance(hook, Hook):
            yield hook
        elif hook.function is not None:
            yield hook.function


def _is(function: Any, method: Any) -> bool:
    """Whether a function is this method of some object."""
    return method is not None and getattr(function, "__func__", None) is method

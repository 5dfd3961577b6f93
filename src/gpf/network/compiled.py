"""Compiled gradient steps call no hooks. This file says when they can replace torch, and which hooks they replace.

This is the only list of hooks that compiled code may skip because it does their work itself.
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
class HookReplacements:
    """The work of hooks that compiled code has to do itself."""

    masks: dict[nn.Parameter, Tensor] = field(default_factory=dict)
    """1 where an entry is kept and 0 where it is pruned, of parameters with pruned entries."""
    counters: list[Callable[..., None]] = field(default_factory=list)
    """To be called once for each step."""


class _UnknownError(Exception):
    """The training has a hook or a setting that compiled code does not support."""


def replace_hooks(model: nn.Module, optimizer: torch.optim.Optimizer) -> HookReplacements | str:
    """The hooks that compiled Adam steps on a model replace, or the reason why torch has to take the steps."""
    replacements = HookReplacements()
    try:
        _check_optimizer(model, optimizer)
        for function in _functions(_hooks_of_steps(optimizer)):
            _take_over_step_hook(function, replacements)
        for function in _functions(_hooks_of_modules(model)):
            if not _is(function, Layer._before_forward):
                raise _UnknownError("a module has a hook")
        for parameter in model.parameters():
            _take_over_gradient_hooks(parameter, replacements)
    except _UnknownError as reason:
        return str(reason)
    return replacements


def _check_optimizer(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Accept only plain Adam with one group of settings, over exactly the trainable float32 parameters of the model."""
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


def _take_over_step_hook(function: Any, replacements: HookReplacements) -> None:
    if _is(function, Masking._before_step):
        if any(weight.squares is not None for layer in function.__self__.layers for weight in layer.weights):
            raise _UnknownError("squared gradients are gathered")
    elif _is(function, GrowPruneFreeze._count_step):
        replacements.counters.append(function)
    elif not _is(function, Masking._after_step):
        raise _UnknownError("the optimizer has a hook")


def _take_over_gradient_hooks(parameter: nn.Parameter, replacements: HookReplacements) -> None:
    if parameter._backward_hooks:
        raise _UnknownError("a parameter has a hook")
    for function in _functions(iter((parameter._post_accumulate_grad_hooks or {}).values())):
        if not _is(function, Weight.mask_gradient):
            raise _UnknownError("a parameter has a hook")
        weight = function.__self__
        if weight.dense is not None:
            raise _UnknownError("gradients of pruned weights are gathered")
        if weight.keep is not None:
            replacements.masks[parameter] = weight.keep


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
    """The functions that our hooks call, and other hooks themselves."""
    for hook in hooks:
        if not isinstance(hook, Hook):
            yield hook
        elif hook.function is not None:
            yield hook.function


def _is(function: Any, method: Any) -> bool:
    """Whether a function is this method of some object."""
    return method is not None and getattr(function, "__func__", None) is method

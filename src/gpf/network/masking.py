"""Keeps pruned weights at zero in spite of anything that training code does.

Gradients are masked as soon as they are accumulated and again before every step, and values before every forward pass
in evaluation, all of it unconditionally. In training, values of small weights are masked before every forward pass and
after every step; those of larger ones if they were written since: autograd's counters reveal it, and a few pruned
entries reveal writes through `data` and, after a step, injected momentum. The state of the optimizer is
cleared where it is loaded, and after every step of an optimizer that moves weights without a gradient.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from gpf.network import sharding, surgery
from gpf.network.hooks import Hook
from gpf.network.layer import Layer, Weight, multiply
from gpf.network.moments import leaves_zeros_alone
from gpf.network.optimizers import Optimizers

Route = list[tuple[Layer, list[Weight]]]


class Masking:
    """The hooks on a model and on its optimizers that keep pruned weights at zero.

    Args:
        layers: The layers of the stack, as they are at any time.
        model: The model.
        optimizers: Its optimizers.
    """

    def __init__(self, layers: Sequence[Layer], model: nn.Module, optimizers: Optimizers) -> None:
        self.layers = layers
        self.optimizers = optimizers
        self._routes: dict[int, Route] = {}
        self._handles: list[RemovableHandle] = [model.register_load_state_dict_post_hook(Hook(self._after_load))]
        if sharding.is_sharded(model):  # values are gathered before a block's own hooks run
            self._handles.append(model.register_forward_pre_hook(Hook(self._mask_values), prepend=True))
        for optimizer in optimizers:
            self._handles += [
                optimizer.register_step_pre_hook(Hook(self._before_step)),
                optimizer.register_step_post_hook(Hook(self._after_step)),
                optimizer.register_load_state_dict_post_hook(Hook(self.silence)),
            ]

    def remove(self) -> None:
        """Remove all hooks, but those that each layer has on its block."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def structure_changed(self) -> None:
        """Look again at which optimizer trains which weights."""
        self._routes.clear()

    def watch_wrapper(self, wrapper: nn.Module) -> None:
        """Mask values before a compiled model is called, which cannot do it inside."""
        while wrapper is not None:
            if hasattr(wrapper, "_orig_mod"):
                self._handles.append(wrapper.register_forward_pre_hook(Hook(self._mask_values)))
                return
            wrapper = getattr(wrapper, "module", None)  # type: ignore[assignment]

    def silence(self, *_: Any) -> None:
        """Set pruned weights to zero wherever they are kept: values, gradients, the optimizers' state."""
        for layer in self.layers:
            for weight in layer.masked:
                surgery.silence(weight, self.optimizers)

    def _after_load(self, *_: Any) -> None:
        for i, layer in enumerate(self.layers):
            for weight in layer.weights:
                if weight.is_replaced(layer.block):
                    raise ValueError(replaced(i, weight))
        self.silence()

    def _mask_values(self, *_: Any) -> None:
        for layer in self.layers:
            layer.mask_values()

    @torch.no_grad()
    def _before_step(self, optimizer: Optimizer, *_: Any) -> None:
        """Mask what the optimizer is about to use, and gather squared gradients."""
        for layer, weights in self._route(optimizer):
            layer.mask_written_values(look=False)  # after the step they are looked at
            multiply((w.parameter.grad, w.keep) for w in weights)
            gathered = [w for w in weights if w.squares is not None and w.parameter.grad is not None]
            for weight in gathered:
                gradient = sharding.local(weight.parameter.grad)  # type: ignore[arg-type]
                weight.squares.addcmul_(gradient, gradient)  # type: ignore[union-attr]
            layer.gradients += bool(gathered)

    def _after_step(self, optimizer: Optimizer, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Put zeros back where a step may have moved them: by the optimizer's way, or by gradients of a closure."""
        closure = named.get("closure") if len(arguments) < 2 else arguments[1]
        if leaves_zeros_alone(optimizer) and closure is None:
            for layer, _ in self._route(optimizer):
                layer.accept_values()
            return
        for _layer, weights in self._route(optimizer):
            for weight in weights:
                surgery.silence(weight, self.optimizers)

    def _route(self, optimizer: Optimizer) -> Route:
        """The layers that learn, with those of their weights that an optimizer trains."""
        if id(optimizer) not in self._routes:
            members = {id(p) for group in optimizer.param_groups for p in group["params"]}
            found = [(layer, [w for w in layer.weights if id(w.parameter) in members]) for layer in self.layers]
            self._routes[id(optimizer)] = [(layer, weights) for layer, weights in found if weights]
        return self._routes[id(optimizer)]


def replaced(layer: int, weight: Weight) -> str:
    """The message for a weight that is no longer in the model, as after `load_state_dict(assign=True)`."""
    return f"{weight.name} of layer {layer} was replaced by another tensor; attach gpf again"

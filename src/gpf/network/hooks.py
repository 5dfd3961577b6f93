"""Hooks that stay with the module they were registered on."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class Hook:
    """A function as a hook. Copies and pickles of the module that it is on get a hook that does nothing."""

    def __init__(self, function: Callable[..., None] | None = None) -> None:
        self.function = function

    def __call__(self, *arguments: Any) -> None:  # noqa: D102 - what the function does
        if self.function is not None:
            self.function(*arguments)

    def __deepcopy__(self, memo: object) -> "Hook":
        return Hook()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Hook, ()


def carry_hooks(old: Tensor, new: Tensor) -> None:
    """Put the hooks that a user has put on a parameter on the one that takes its place."""
    learns = new.requires_grad
    new.requires_grad_(True)  # a frozen one takes no hook, and may thaw
    for hook in (old._backward_hooks or {}).values():
        new.register_hook(hook)
    for after in (old._post_accumulate_grad_hooks or {}).values():
        if not isinstance(after, Hook):
            new.register_post_accumulate_grad_hook(after)
    new.requires_grad_(learns)


def remove_hooks(model: nn.Module) -> None:
    """Remove all hooks of ours from a copy of a model."""
    for module in model.modules():
        for hooks in (module._forward_hooks, module._forward_pre_hooks, module._load_state_dict_post_hooks):
            for key in [key for key, hook in hooks.items() if isinstance(hook, Hook)]:
                del hooks[key]

"""Hooks that stay with the module they were put on."""

from collections.abc import Callable
from typing import Any

from torch import nn


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


def remove_hooks(model: nn.Module) -> None:
    """Remove all hooks of ours from a copy of a model."""
    for module in model.modules():
        for hooks in (module._forward_hooks, module._forward_pre_hooks, module._load_state_dict_post_hooks):
            for key in [key for key, hook in hooks.items() if isinstance(hook, Hook)]:
                del hooks[key]

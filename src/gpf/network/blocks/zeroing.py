"""Sets the output projections of residual blocks, x + f(x), such that f is zero; explains where that fails."""

from collections.abc import Callable, Iterable

import torch
from torch import nn

Initialiser = Callable[[nn.Module], None]


def zero_outputs(*paths: str) -> Initialiser:
    """An initialiser for residual blocks, x + f(x): sets the output projections of f to zero.

    Where PEFT has wrapped a projection, both the projection and its LoRA adapters are set to zero.

    >>> from torch import nn
    >>> from gpf.network import register_identity
    >>> class Block(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.up, self.down = nn.Linear(4, 16), nn.Linear(16, 4)
    ...     def forward(self, x):
    ...         return x + self.down(self.up(x).relu())
    >>> register_identity(Block, zero_outputs("down"))
    """

    def initialise(block: nn.Module) -> None:
        fill_outputs(block, paths, 0.0)

    return initialise


@torch.no_grad()
def fill_outputs(block: nn.Module, paths: Iterable[str], value: float) -> None:
    """Set all parameters at these paths of a block to a value; raises before it changes any."""
    parameters = [parameter for path in paths for parameter in _output_parameters(block, path)]
    if not any(p.requires_grad for p in parameters) and any(p.requires_grad for p in block.parameters()):
        names = ", ".join(paths)
        raise no_identity(block, f"{names} would be zero and cannot learn, because requires_grad is False")
    for parameter in parameters:
        parameter.fill_(value)


def no_identity(block: nn.Module, why: str) -> ValueError:
    """The error for a block that cannot start as the identity, with the ways out."""
    return ValueError(
        f"grow_init='identity' is not possible for a block of type {type(block).__name__}, because {why};"
        " use grow_init='gated', grow_init='copy', grow_init='kaiming', grow_init='built'"
        " or gpf.network.register_identity"
    )


def _output_parameters(block: nn.Module, path: str) -> list[nn.Parameter]:
    owner, _, name = path.rpartition(".")
    try:
        found = getattr(block.get_submodule(owner), name)
    except AttributeError:
        raise no_identity(block, f"it has no {path}") from None
    if isinstance(found, nn.Parameter):
        return [found]
    adapters: list[nn.Parameter] = []
    if hasattr(found, "base_layer"):  # wrapped by PEFT
        if len(getattr(found, "lora_magnitude_vector", ())):
            raise no_identity(block, f"{path} has DoRA adapters, which divide by the norm of its weight")
        adapters = [p for p in getattr(found, "lora_B", nn.Module()).parameters() if p.is_floating_point()]
        found = found.base_layer
    own = list(found.parameters(recurse=False))
    weight = getattr(found, "weight", None)
    computed = hasattr(found, "parametrizations") or (weight is not None and not isinstance(weight, nn.Parameter))
    if not own or computed:
        raise no_identity(block, f"{path} ({type(found).__name__}) has no weight of its own to set to zero")
    if not all(parameter.is_floating_point() for parameter in own):
        raise no_identity(block, f"the weight of {path} is quantised")
    return [*own, *adapters]

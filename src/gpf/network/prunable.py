"""Which parameters of a block can be pruned: those where zero means an absent connection."""

import re
from collections.abc import Callable, Iterator

from torch import Tensor, nn

Prunable = Callable[[str, nn.Parameter], bool]
"""Given a parameter's name within its block and the parameter: whether single entries of it may be pruned."""

_NEVER = (nn.Embedding, nn.EmbeddingBag)
_NO_CONNECTIONS = re.compile(r"(^A_log$|position|relative|embed|token|scale|gamma|time_|lambda)", re.IGNORECASE)
"""Names of parameters that modules hold as such and in which zero does not mean absent: Mamba's `A_log`, tables of
positions, class tokens, scales of layers, time constants."""


def named_weights(block: nn.Module, chosen: Prunable | None = None) -> Iterator[tuple[str, nn.Parameter, nn.Module]]:
    """The parameters of a block that can be pruned, with their names and the modules that hold them.

    Parameters that the user has frozen are not pruned, nor is a parameter from which the effective weight is
    computed (`weight_norm`, `spectral_norm`, any parametrization): its zeros are not those of the weight.

    Args:
        block: The block.
        chosen: The user's choice among them; what is usual if not given.
    """
    owners = {id(p): (module, name) for module in block.modules() for name, p in module.named_parameters(recurse=False)}
    for name, parameter in block.named_parameters():
        owner, own_name = owners[id(parameter)]
        usual = is_usual(owner, own_name, parameter)
        if not parameter.requires_grad or not (usual if chosen is None else chosen(name, parameter)):
            continue
        if parameter.dim() < 2 or is_computed_from(owner, own_name):
            raise ValueError(f"prunable must choose plain weights of two dimensions or more, got {name}")
        yield name, parameter, owner


def is_usual(owner: nn.Module, name: str, parameter: Tensor) -> bool:
    """Whether a parameter is pruned unless the user says otherwise: weights of maps, and what looks like them."""
    if parameter.dim() < 2 or isinstance(owner, _NEVER) or is_computed_from(owner, name):
        return False
    if name == "weight":
        return True
    wide = sum(size > 1 for size in parameter.shape) >= 2  # others are vectors with further axes
    return wide and _NO_CONNECTIONS.search(name) is None


def is_computed_from(owner: nn.Module, name: str) -> bool:
    """Whether the effective weight is computed from a parameter: a parametrization, or one of torch's older forms."""
    if type(owner).__name__ in ("ParametrizationList", "_WeightNorm", "_SpectralNorm"):
        return True
    base, _, suffix = name.rpartition("_")
    return suffix in ("g", "v", "orig") and hasattr(owner, base)

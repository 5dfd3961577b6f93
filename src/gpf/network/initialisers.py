"""How a new block starts.

`identity` keeps the network's function. What it takes depends on the block's type; a type of your own joins by
`register_identity`.
"""

from collections.abc import Callable

import torch
from torch import nn

from gpf.network.rules import Init

Initialiser = Callable[[nn.Module], None]
_IDENTITIES: dict[type | str, Initialiser] = {}
_PASSIVE = (nn.ReLU, nn.Dropout, nn.Identity)
"""Modules that leave what a ReLU put out as it is (dropout: on average)."""


def register_identity(block: type | str, initialiser: Initialiser) -> None:
    """Say how a block type becomes the identity; the type may be given by its name, without importing it."""
    _IDENTITIES[block] = initialiser


def zero_outputs(*paths: str) -> Initialiser:
    """An initialiser for residual blocks, x + f(x): sets the output projections of f to zero.

    >>> from torch import nn
    >>> class Block(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.up, self.down = nn.Linear(4, 16), nn.Linear(16, 4)
    ...     def forward(self, x):
    ...         return x + self.down(self.up(x).relu())
    >>> register_identity(Block, zero_outputs("down"))
    """

    def initialise(block: nn.Module) -> None:
        for path in paths:
            for parameter in block.get_submodule(path).parameters(recurse=False):
                nn.init.zeros_(parameter)

    return initialise


@torch.no_grad()
def initialise(block: nn.Module, last: nn.Module, init: Init) -> None:
    """Set the parameters of a block that is to follow `last`; raises before it changes anything that is in use."""
    if init == "kaiming":
        for module in block.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if parameter.dim() >= 2:
                    columns_are_units = type(module).__name__ == "Conv1D"
                    nn.init.kaiming_normal_(parameter.T if columns_are_units else parameter, nonlinearity="relu")
                elif "bias" in name:
                    nn.init.zeros_(parameter)
    elif init == "copy":
        _copy(block, last)
    elif init == "identity":
        if _ends_in_relu(block) and not _ends_in_relu(last):
            raise _no_identity(block, "it ends in ReLU and the block before it does not, so negative values would go")
        _find_identity(block)(block)


def _ends_in_relu(block: nn.Module) -> bool:
    if type(block) is nn.Sequential:
        ends = [module for module in block if not isinstance(module, nn.Dropout | nn.Identity)]
        return bool(ends) and _ends_in_relu(ends[-1])
    return isinstance(block, nn.ReLU)


def _copy(block: nn.Module, last: nn.Module) -> None:
    try:
        block.load_state_dict(last.state_dict())
    except RuntimeError:
        raise ValueError(
            "grow_init: 'copy' needs a new block of the same shape as the last one, and it differs;"
            " accepted here: identity, kaiming, built"
        ) from None


def _find_identity(block: nn.Module) -> Initialiser:
    for kind in type(block).__mro__:
        for key in (kind, kind.__name__):
            if key not in _IDENTITIES:
                continue
            if type(block).forward is not getattr(kind, "forward", None):  # a subclass that does something else
                raise _no_identity(block, f"it is a {kind.__name__} with a forward of its own")
            return _IDENTITIES[key]
    raise _no_identity(block, "its type is not known")


def _no_identity(block: nn.Module, why: str) -> ValueError:
    return ValueError(
        f"grow_init: no 'identity' for a block of type {type(block).__name__}: {why}; accepted: a type for which"
        " gpf.network.register_identity was called, or grow_init='built' to take blocks as they come"
    )


def _identity_sequential(block: nn.Module) -> None:
    """One linear map or convolution, and after it nothing but ReLU and dropout."""
    first, *rest = block.children()
    if not all(isinstance(module, _PASSIVE) for module in rest):
        raise _no_identity(block, "only ReLU and dropout may follow its first module")
    if not isinstance(first, nn.Linear | nn.Conv2d):
        raise _no_identity(block, "its first module is neither Linear nor Conv2d")
    _find_identity(first)(first)


def _identity_linear(layer: nn.Module) -> None:
    assert isinstance(layer, nn.Linear)
    if layer.in_features != layer.out_features:
        raise _no_identity(layer, f"{layer.in_features} inputs and {layer.out_features} outputs")
    _check_plain(layer)
    nn.init.eye_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def _check_plain(layer: nn.Module) -> None:
    if not isinstance(layer.weight, nn.Parameter) or hasattr(layer, "parametrizations"):
        raise _no_identity(layer, "its weight is computed from others")


def _identity_conv2d(layer: nn.Module) -> None:
    assert isinstance(layer, nn.Conv2d)
    same_size = all(k % 2 == 1 for k in layer.kernel_size) and (
        layer.padding == "same"
        or (
            not isinstance(layer.padding, str)
            and all(
                2 * p == d * (k - 1) for p, d, k in zip(layer.padding, layer.dilation, layer.kernel_size, strict=True)
            )
        )
    )
    _check_plain(layer)
    if layer.in_channels != layer.out_channels or not same_size or any(s != 1 for s in layer.stride):
        raise _no_identity(layer, "it changes the number of channels or the size of the image")
    nn.init.dirac_(layer.weight, layer.groups)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def _identity_transformer(layer: nn.Module) -> None:
    assert isinstance(layer, nn.TransformerEncoderLayer)
    if not layer.norm_first:
        raise _no_identity(layer, "it normalises its output (norm_first=False)")
    zero_outputs("self_attn.out_proj", "linear2")(layer)


def _identity_gpt2(block: nn.Module) -> None:
    attentions = [name for name in ("attn", "crossattention") if hasattr(block, name)]
    zero_outputs(*(f"{name}.c_proj" for name in attentions), "mlp.c_proj")(block)


register_identity(nn.Sequential, _identity_sequential)
register_identity(nn.Linear, _identity_linear)
register_identity(nn.Conv2d, _identity_conv2d)
register_identity(nn.TransformerEncoderLayer, _identity_transformer)
register_identity("GPT2Block", _identity_gpt2)

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
        for name, parameter in block.named_parameters():
            if parameter.dim() >= 2:
                nn.init.kaiming_normal_(parameter, nonlinearity="relu")
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
    elif init == "copy":
        _copy(block, last)
    elif init == "identity":
        _find_identity(block)(block)


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
            if key in _IDENTITIES:
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
    nn.init.eye_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def _identity_conv2d(layer: nn.Module) -> None:
    assert isinstance(layer, nn.Conv2d)
    same_size = layer.padding == "same" or (
        not isinstance(layer.padding, str)
        and all(2 * p == d * (k - 1) for p, d, k in zip(layer.padding, layer.dilation, layer.kernel_size, strict=True))
    )
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


register_identity(nn.Sequential, _identity_sequential)
register_identity(nn.Linear, _identity_linear)
register_identity(nn.Conv2d, _identity_conv2d)
register_identity(nn.TransformerEncoderLayer, _identity_transformer)
register_identity("GPT2Block", zero_outputs("attn.c_proj", "mlp.c_proj"))

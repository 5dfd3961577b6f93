"""How a new block starts.

`identity` keeps the network's function. The steps depend on the block's type; a type of your own joins by
`register_identity`.
"""

import math

import torch
from torch import Tensor, nn

from gpf.network.blocks.architectures import TORCH, TRANSFORMERS, Identity, is_nonnegative, is_of_transformers
from gpf.network.blocks.gated import Gated
from gpf.network.blocks.zeroing import Initialiser, no_identity
from gpf.network.rules import Init
from gpf.network.sharding import class_of, full

_BatchNorm = nn.BatchNorm1d | nn.BatchNorm2d
_PASSIVE = (nn.ReLU, nn.Dropout, nn.Identity)
"""Modules that leave what a ReLU put out as it is (dropout: on average)."""
_REGISTERED: dict[type | str, Identity] = {}


def register_identity(block: type | str, initialiser: Initialiser) -> None:
    """Say how a block type becomes the identity; the type may be given by its name, without importing it."""
    _REGISTERED[block] = lambda new, last: initialiser(new)


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
        _find_identity(block)(block, last)


def _copy(block: nn.Module, last: nn.Module) -> None:
    """Copy what the new block has; the last one may have more, such as the position bias of T5's first block."""
    theirs = {name: full(tensor) for name, tensor in last.state_dict().items()}
    wanted = block.state_dict()
    if any(name not in theirs or theirs[name].shape != tensor.shape for name, tensor in wanted.items()):
        raise ValueError(
            "grow_init: 'copy' needs a new block of the same shape as the last one, and it differs;"
            " accepted here: identity, gated, kaiming, built"
        )
    block.load_state_dict({name: theirs[name] for name in wanted})


def _find_identity(block: nn.Module) -> Identity:
    for kind in type(block).__mro__:
        known = _REGISTERED.get(kind) or _REGISTERED.get(kind.__name__) or _BUILT_IN.get(kind)
        if known is None and is_of_transformers(kind):
            known = TRANSFORMERS.get(kind.__name__)
        if known is None:
            continue
        if type(block).forward is not getattr(kind, "forward", None):  # a subclass that does something else
            raise no_identity(block, f"it is a {kind.__name__} with a forward of its own")
        return known
    raise no_identity(block, "its type is not known")


def _gated(block: nn.Module, last: nn.Module) -> None:
    assert isinstance(block, Gated)
    nn.init.zeros_(block.gate)


def _sequential(block: nn.Module, last: nn.Module) -> None:
    """One linear map or convolution, and after it only BatchNorm, ReLU and dropout."""
    if is_nonnegative(block) and not is_nonnegative(last):
        raise no_identity(block, "it ends in ReLU and the block before it does not, so negative values would go")
    first, *rest = [*block.children()] or [nn.Identity()]
    norm = rest.pop(0) if rest and isinstance(rest[0], _BatchNorm) else None
    if not all(isinstance(module, _PASSIVE) for module in rest):
        raise no_identity(block, "apart from BatchNorm only ReLU and dropout may follow its first module")
    if not isinstance(first, nn.Linear | nn.Conv2d):
        raise no_identity(block, "its first module is neither Linear nor Conv2d")
    moments = None if norm is None else _moments(last)
    if norm is not None and moments is None:
        raise no_identity(
            block, "its BatchNorm needs a block before it that ends in BatchNorm, or in BatchNorm and ReLU"
        )
    _find_identity(first)(first, last)
    if isinstance(norm, _BatchNorm) and moments is not None:
        _pass_through(norm, *moments)


def _moments(last: nn.Module) -> tuple[Tensor, Tensor] | None:
    """Mean and variance of a block's outputs by channel, predicted from the BatchNorm that it ends in.

    BatchNorm puts out bias + weight z, with z of mean 0 and variance 1, which a ReLU cuts off at 0. z is taken to be
    normal, unless the block is still the identity: then its outputs are those of the ReLU before it, and BatchNorm says
    what they are.
    """
    parts = [m for m in last.children() if not isinstance(m, nn.Dropout | nn.Identity)]
    ends_in_relu = bool(parts) and isinstance(parts[-1], nn.ReLU)
    before_relu = parts[:-1] if ends_in_relu else parts
    if class_of(last) is not nn.Sequential or not before_relu or not isinstance(before_relu[-1], _BatchNorm):
        return None
    norm = before_relu[-1]
    if norm.weight is None or norm.bias is None:
        return None
    mean, deviation = norm.bias.double(), norm.weight.double().abs()
    if not ends_in_relu or _is_identity(before_relu[0]):
        return mean, (deviation.square() - norm.eps * _is_identity(before_relu[0])).clamp_min(0.0)
    return _rectified(mean, deviation)


def _rectified(mean: Tensor, deviation: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of max(0, y) for a normal y."""
    ratio = mean / deviation.clamp_min(1e-12)
    above = torch.special.ndtr(ratio)  # the probability that y is positive
    density = torch.exp(-0.5 * ratio.square()) / math.sqrt(2.0 * math.pi)
    first = mean * above + deviation * density
    second = (mean.square() + deviation.square()) * above + mean * deviation * density
    return first, (second - first.square()).clamp_min(0.0)


def _is_identity(layer: nn.Module) -> bool:
    """Whether a linear map or convolution still has the values that growth gave it."""
    if not isinstance(layer, nn.Linear | nn.Conv2d) or (layer.bias is not None and bool(layer.bias.any())):
        return False
    expected = torch.empty_like(layer.weight)
    if isinstance(layer, nn.Conv2d):
        nn.init.dirac_(expected, layer.groups)
    else:
        nn.init.eye_(expected)
    return torch.equal(expected, layer.weight)


def _pass_through(norm: _BatchNorm, mean: Tensor, variance: Tensor) -> None:
    """Let BatchNorm put out what comes in, if that has this mean and variance; in eval mode, whatever comes in."""
    if norm.running_mean is None or norm.running_var is None or not norm.affine:
        raise no_identity(norm, "it has no running statistics, or no weight and bias")
    norm.running_mean.copy_(mean)
    norm.running_var.copy_(variance)
    norm.weight.copy_((norm.running_var + norm.eps).sqrt())
    norm.bias.copy_(norm.running_mean)


def _linear(layer: nn.Module, last: nn.Module) -> None:
    assert isinstance(layer, nn.Linear)
    if layer.in_features != layer.out_features:
        raise no_identity(layer, f"it has {layer.in_features} inputs and {layer.out_features} outputs")
    _check_plain(layer)
    nn.init.eye_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def _check_plain(layer: nn.Module) -> None:
    if not isinstance(layer.weight, nn.Parameter) or hasattr(layer, "parametrizations"):
        raise no_identity(layer, "its weight is computed from others")


def _conv2d(layer: nn.Module, last: nn.Module) -> None:
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
        raise no_identity(layer, "it changes the number of channels or the size of the image")
    nn.init.dirac_(layer.weight, layer.groups)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


_BUILT_IN: dict[type, Identity] = {
    **TORCH,
    Gated: _gated,
    nn.Sequential: _sequential,
    nn.Linear: _linear,
    nn.Conv2d: _conv2d,
}

"""Batch normalisation folded into the map before it: the same outputs in evaluation, with one operation less."""

from itertools import pairwise
from typing import Any

from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

_NORMS: dict[type[nn.Module], tuple[type[nn.Module], Any]] = {
    nn.Linear: (nn.BatchNorm1d, fuse_linear_bn_eval),
    nn.Conv1d: (nn.BatchNorm1d, fuse_conv_bn_eval),
    nn.Conv2d: (nn.BatchNorm2d, fuse_conv_bn_eval),
    nn.Conv3d: (nn.BatchNorm3d, fuse_conv_bn_eval),
}
"""Maps, the normalisation that may follow each, and what folds it in."""


def fuse_norms(model: nn.Module) -> None:
    """Fold each batch normalisation of a model into the map that stands before it in a `Sequential`, in place.

    An `Identity` stays in its place, which keeps paths and indices valid. The model is then for evaluation only.
    Unchanged are maps and normalisations that are used more than once, that have hooks, or that normalise by the batch.
    """
    model.eval()
    places = [id(module) for _, module in model.named_modules(remove_duplicate=False)]
    for module in list(model.modules()):
        if type(module) is not nn.Sequential:
            continue
        for (name, one), (next_name, following) in pairwise(list(module.named_children())):
            norm, fold = _NORMS.get(type(one), (nn.Identity, None))
            if fold is None or type(following) is not norm or following.running_mean is None:
                continue
            if any(places.count(id(part)) > 1 or _has_hooks(part) for part in (one, following)):
                continue
            setattr(module, name, fold(one, following))
            setattr(module, next_name, nn.Identity())


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)

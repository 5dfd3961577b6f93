"""The same function in a smaller dense model, without the units that pruning has cut off.

A unit without incoming weights puts out a constant, which is folded into the biases that follow; one without outgoing
weights is not heard. Removing units may cut off others, so this continues until nothing more can go.
"""

import copy

import torch
from torch import nn

from gpf.network.compaction.cuts import Cuts
from gpf.network.compaction.fusing import fuse_norms
from gpf.network.compaction.shrinking import shrink
from gpf.network.hooks import remove_hooks


def compact(model: nn.Module, stack: str, fuse: bool = False) -> nn.Module:
    """A copy of a model with all units of a stack removed that its pruned weights have cut off.

    Knows chains of Linear, Conv1d or Conv2d with functions between that keep units apart, where the stack is a
    `Sequential` (a `ModuleList` may be run in any way) or the model an `MLP`, up to the map that follows the stack; the
    feed-forward parts of torch's transformer layers; and those and the attention heads of Hugging Face's usual models
    (see `removable`). Other blocks are copied as they are. Every layer keeps one unit. The copy computes the same
    in evaluation; in training, dropout no longer touches what was folded into biases.

    With `fuse`, batch normalisation anywhere in the model is folded into the map before it (see `fuse_norms`). The copy
    is then for evaluation mode only.
    """
    model = copy.deepcopy(model)
    remove_hooks(model)
    with torch.no_grad():
        shrink(model, stack, Cuts())
        if fuse:
            fuse_norms(model)
    return model

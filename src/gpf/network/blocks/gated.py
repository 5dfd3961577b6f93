"""Wraps any block in a gate, for function-preserving growth where the block cannot be the identity."""

from typing import Any

import torch
from torch import Tensor, nn


class Gated(nn.Module):
    """x + gate (block(x) - x), with a gate that starts at 0: the identity at first, and at gate 1 the block alone.

    For blocks that cannot be the identity by themselves, because they normalise their output (BERT) or end in GELU. The
    first argument is the hidden state, like the output, or the first entry of a tuple. Everything else passes
    through: the remaining arguments, the remaining outputs, and attributes, which are the block's.

    Args:
        block: The gated block. Its output must have the shape of its input.

    >>> import torch
    >>> x = torch.randn(2, 8)
    >>> gated = Gated(nn.Sequential(nn.Linear(8, 8), nn.GELU()))
    >>> torch.equal(gated(x), x)
    True
    """

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block
        example = next((p for p in block.parameters() if p.is_floating_point()), None)
        zero = torch.zeros(1)  # FSDP shards no scalars
        self.gate: nn.Parameter = nn.Parameter(zero if example is None else zero.to(example.device, example.dtype))
        self.train(block.training)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The block's output, as far as the gate is open."""
        before = args[0] if args else kwargs.get("hidden_states", next(iter(kwargs.values()), None))
        output = self.block(*args, **kwargs)
        after = output[0] if isinstance(output, tuple) else output
        if not isinstance(before, Tensor) or not isinstance(after, Tensor) or before.shape != after.shape:
            raise ValueError(
                f"a gated block must turn a tensor into one of the same shape, got {_kind(before)} and {_kind(after)}"
                f" from {type(self.block).__name__}"
            )
        mixed = before + self.gate * (after - before)
        return (mixed, *output[1:]) if isinstance(output, tuple) else mixed

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            block = self.__dict__.get("_modules", {}).get("block")
            if block is None:
                raise
            return getattr(block, name)  # models ask their blocks, for the kind of attention and the like


def ungated(block: nn.Module) -> nn.Module:
    """The block behind the gate, or the block itself if it has no gate."""
    return block.block if isinstance(block, Gated) else block


def without_gate(block: nn.Module, name: str) -> str:
    """The name that a parameter has in the block itself, if that is behind a gate."""
    return name.removeprefix("block.") if isinstance(block, Gated) else name


def _kind(value: object) -> str:
    return "x".join(map(str, value.shape)) or "a number" if isinstance(value, Tensor) else type(value).__name__

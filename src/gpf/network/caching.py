"""Caches activations of frozen leading layers for each row of a fixed data set, so these layers run once per row."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from gpf.network.layer import Layer


class Cached(Protocol):
    """The attributes of a network that a cache uses."""

    model: nn.Module
    layers: list[Layer]


class FrozenCache:
    """Inputs of the first layer that learns, by row of a data set; made by `GrowPruneFreeze.cache_frozen`.

    It is emptied by itself when the leading frozen layers, or weights of theirs or of what is frozen outside of the
    stack, change. Rows are computed as usual while nothing is frozen, while something before the stack learns, while
    leading layers have active dropout, and where the limit is reached.

    Args:
        net: The network.
        limit: Bytes that the cache may take.
    """

    def __init__(self, net: Cached, limit: int) -> None:
        if not isinstance(limit, int) or limit < 0:
            raise ValueError(f"limit must be a whole number of bytes of at least 0, got {limit!r}")
        self.net = net
        self.limit = limit
        self._watched: list[tuple[object, int]] = []
        self._places: dict[int, int] = {}
        self._values: Tensor | None = None

    def __len__(self) -> int:
        """Number of rows that are kept."""
        return len(self._places)

    def clear(self) -> None:
        """Forget all rows."""
        self._places, self._values = {}, None

    @contextmanager
    def rows(self, indices: Tensor | Sequence[int]) -> Iterator[None]:
        """For a while, the model is given these rows of the data set, the batch along the first axis."""
        rows = [int(row) for row in indices]
        layers = list(itertools.takewhile(lambda layer: layer.frozen, self.net.layers))
        leading = [layer.block for layer in layers]
        self._follow(layers)
        if not leading or any(map(_is_random, leading)):
            yield
            return
        replaced = self._readers(leading, rows) if all(row in self._places for row in rows) else None
        forwards = replaced or {leading[-1]: self._writer(leading[-1], rows)}
        before = {block: vars(block).get("forward") for block in forwards}
        for block, forward in forwards.items():
            vars(block)["forward"] = forward
        try:
            yield
        finally:
            for block, usual in before.items():
                if usual is None:
                    del vars(block)["forward"]
                else:
                    vars(block)["forward"] = usual

    def _follow(self, leading: list[Layer]) -> None:
        """Forget all rows if anything that they were computed from has changed since."""
        inside = [tensor for layer in leading for tensor in (*layer.parameters(), *layer.block.buffers())]
        outside = [parameter for parameter in self.net.model.parameters() if not parameter.requires_grad]
        watched: list[tuple[object, int]] = [(layer.block, 0) for layer in leading]
        watched += [(weight.pruned, 0) for layer in leading for weight in layer.weights]
        watched += [(tensor, tensor._version) for tensor in (*inside, *outside)]
        same = len(watched) == len(self._watched) and all(
            one is other and version == then
            for (one, version), (other, then) in zip(watched, self._watched, strict=True)
        )
        if not same:
            self.clear()
            self._watched = watched

    def _readers(self, leading: list[nn.Module], rows: list[int]) -> dict[nn.Module, Callable[..., Any]]:
        """Functions in place of the blocks' own: the last puts out what is kept, the others what comes in."""
        places = torch.tensor([self._places[row] for row in rows])
        learning = False  # whether something before the stack does

        def reader(block: nn.Module) -> Callable[..., Any]:
            usual = block.forward

            def forward(x: Any, *others: Any, **named: Any) -> Any:
                nonlocal learning
                if block is leading[0]:
                    learning = bool(getattr(x, "requires_grad", False))
                if learning:
                    return usual(x, *others, **named)
                assert self._values is not None
                return self._values[places.to(self._values.device)] if block is leading[-1] else x

            return forward

        return {block: reader(block) for block in leading}

    def _writer(self, block: nn.Module, rows: list[int]) -> Callable[..., Any]:
        """The last block's function, which also keeps what it puts out."""
        usual = block.forward

        def forward(*inputs: Any, **named: Any) -> Any:
            out = usual(*inputs, **named)
            if isinstance(out, Tensor) and torch.is_grad_enabled() and not out.requires_grad:
                self._keep(out.detach(), rows)
            return out

        return forward

    def _keep(self, out: Tensor, rows: list[int]) -> None:
        if out.dim() == 0 or len(out) != len(rows):
            raise ValueError(f"rows must name each row of the batch, got {len(rows)} for activations of {[*out.shape]}")
        if self._values is not None and (self._values.shape[1:], self._values.dtype) != (out.shape[1:], out.dtype):
            return
        room = self.limit // max(1, out[0].numel() * out.element_size())
        new = {row: i for i, row in enumerate(rows) if row not in self._places}
        chosen = list(new.items())[: max(0, room - len(self._places))]
        if not chosen:
            return
        size = len(self._places) + len(chosen)
        if self._values is None or size > len(self._values):
            grown = out.new_empty(min(room, 2 * size), *out.shape[1:])
            if self._values is not None:
                grown[: len(self._places)] = self._values[: len(self._places)]
            self._values = grown
        self._values[len(self._places) : size] = out[[i for _, i in chosen]]
        self._places |= {row: place for place, (row, _) in enumerate(chosen, len(self._places))}


def _is_random(block: nn.Module) -> bool:
    """Whether a block puts out something else each time, by dropout."""
    dropouts = (module for module in block.modules() if isinstance(module, nn.modules.dropout._DropoutNd))
    return any(module.training and module.p > 0 for module in dropouts)

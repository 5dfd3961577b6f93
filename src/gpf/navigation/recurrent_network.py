"""A recurrent network: residual recurrent blocks in a stack that can grow, be pruned and freeze.

    x = encoder(observation);  x = x + out(cell(relu(x))) in every block;  outputs = head(relu(x))

A new block whose `out` is zero leaves the outputs as they are.
"""

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gpf.navigation.recurrence import gru, minimal_gru
from gpf.network import register_identity, register_units, zero_outputs

CellName = Literal["mingru", "gru"]
"""`mingru`, of which gates see the input alone, so that a sequence is one scan; `gru`, of which gates see the state."""
LONGEST = 1000.0
"""Time constant of the slowest unit of a new block, steps; the others lie between it and `SHORTEST`. The slowest ones
sum up what they see, as dead reckoning must."""
SHORTEST = 2.0
GAIN = 2.0**0.5
"""Of maps of what was rectified, which has half of the variance."""


class RecurrentBlock(nn.Module):
    """What both kinds of block have: as many units of memory as the stack is wide, and a map of them back to it."""

    out: nn.Linear

    @property
    def units(self) -> int:
        """Numbers that it remembers."""
        return self.out.in_features

    def states(self, x: Tensor, starts: Tensor, state: Tensor) -> Tensor:
        """What it remembers after each step: (T, n, width), (T, n), (n, units) -> (T, n, units)."""
        raise NotImplementedError

    def forward(self, x: Tensor, starts: Tensor | None = None, state: Tensor | None = None) -> Tensor:
        """X and what the block adds, of sequences (T, n, width) or of single steps, (n, width)."""
        sequence = x if x.dim() == 3 else x[None]
        if starts is None:
            starts = torch.zeros(sequence.shape[:2], dtype=torch.bool)
        if state is None:
            state = x.new_zeros(sequence.shape[1], self.units)
        added: Tensor = self.out(self.states(sequence.relu(), starts, state))
        return x + added.view_as(x)


def _shares(units: int) -> Tensor:
    """How far each unit goes towards its candidate in a step: the inverses of time constants in even ratios."""
    return 1.0 / torch.logspace(math.log10(SHORTEST), math.log10(LONGEST), units)


class MinimalGRUBlock(RecurrentBlock):
    """A minimal GRU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate: nn.Linear = nn.Linear(width, width)
        self.candidate: nn.Linear = nn.Linear(width, width)
        self.out: nn.Linear = nn.Linear(width, width)
        with torch.no_grad():
            for part, gain in ((self.gate, GAIN), (self.candidate, GAIN), (self.out, 1.0)):
                nn.init.orthogonal_(part.weight, gain)
                nn.init.zeros_(part.bias)
            self.gate.bias.copy_(_shares(width).logit())

    def states(self, x: Tensor, starts: Tensor, state: Tensor) -> Tensor:
        """The scan."""
        return minimal_gru(self.gate(x), self.candidate(x), starts, state)


class GRUBlock(RecurrentBlock):
    """A GRU, as torch's."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.input: nn.Linear = nn.Linear(width, 3 * width)
        self.recurrent: nn.Linear = nn.Linear(width, 3 * width)
        self.out: nn.Linear = nn.Linear(width, width)
        with torch.no_grad():
            for part, gain in ((self.input, GAIN), (self.recurrent, 1.0), (self.out, 1.0)):
                for rows in part.weight.split(width):
                    nn.init.orthogonal_(rows, gain)
                nn.init.zeros_(part.bias)
            self.input.bias[width : 2 * width] = -_shares(width).logit()

    def states(self, x: Tensor, starts: Tensor, state: Tensor) -> Tensor:
        """Step by step."""
        return gru(self.input(x), self.recurrent.weight, self.recurrent.bias, starts, state)


BLOCKS: dict[str, type[MinimalGRUBlock | GRUBlock]] = {"mingru": MinimalGRUBlock, "gru": GRUBlock}
register_identity(MinimalGRUBlock, zero_outputs("out"))
register_identity(GRUBlock, zero_outputs("out"))
register_units(MinimalGRUBlock, lambda block: [([block.gate, block.candidate], [], block.out)])


class RecurrentNetwork(nn.Module):
    """inputs - width, recurrent blocks, - outputs; the stack is `layers`."""

    def __init__(self, inputs: int, width: int, outputs: int, depth: int = 1, cell: CellName = "mingru") -> None:
        super().__init__()
        self.cell = cell
        self.encoder: nn.Linear = nn.Linear(inputs, width)
        nn.init.normal_(self.encoder.weight, std=0.5)  # of the paper's 22 inputs three are 1
        nn.init.zeros_(self.encoder.bias)
        self.layers: nn.ModuleList = nn.ModuleList()
        self.head: nn.Linear = nn.Linear(width, outputs)
        for place in range(depth):
            self.layers.append(self.make_block(place))

    def make_block(self, depth: int) -> MinimalGRUBlock | GRUBlock:
        """A further block, the `depth`-th counted from 0."""
        return BLOCKS[self.cell](self.head.in_features)

    @property
    def units(self) -> list[int]:
        """Numbers that each block remembers."""
        return [block.units for block in self.blocks]

    @property
    def blocks(self) -> list[MinimalGRUBlock | GRUBlock]:
        """The stack."""
        stack: Any = self.layers
        return list(stack)

    def forward(self, x: Tensor, starts: Tensor | None = None, state: Tensor | None = None) -> Tensor:
        """The outputs for sequences (T, n, inputs), or for first observations (n, inputs).

        Args:
            x: Observations.
            starts: Bool (T, n), where an episode begins; nowhere, if not given.
            state: What all blocks remember before the first step, (n, units of all blocks); nothing, if not given.
        """
        x = self.encoder(x)
        parts = [None] * len(self.layers) if state is None else state.split(self.units, dim=1)
        for block, part in zip(self.layers, parts, strict=True):
            x = block(x, starts, part)
        outputs: Tensor = self.head(x.relu())
        return outputs

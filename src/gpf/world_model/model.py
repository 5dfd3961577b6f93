"""The world model: a small decoder-only transformer over plume tokens.

Three tables of embeddings, of the left and right level and of the wind, are summed at the place of an observation;
actions and special tokens have one each. Three linear heads give the next observation's streams, each its own softmax.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from gpf.network import register_identity, register_units, zero_outputs
from gpf.plume.scenario import ACTIONS
from gpf.plume.tokens import OBSERVATION_SIZES, SPECIAL_TOKENS, STATES
from gpf.world_model.sequences import CODES, PAD_CODE


@dataclass
class Cache:
    """Keys and values of what has been read: of a past that `copies` rollouts share, and of what each has added.

    Attributes:
        shared: Of every block, keys and values of shape (L, heads, P, d), of L pasts of P places.
        own: Of every block, keys and values of shape (L, heads, copies, room, d), of which `length` are in use.
    """

    shared: list[tuple[Tensor, Tensor]]
    own: list[tuple[Tensor, Tensor]]
    length: int = 0

    @property
    def places(self) -> int:
        """Places of the sequence that have been read."""
        return self.shared[0][0].shape[2] + self.length


class Block(nn.Module):
    """Attention and a perceptron, each after a normalisation and added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention: nn.LayerNorm = nn.LayerNorm(width)
        self.qkv: nn.Linear = nn.Linear(width, 3 * width)
        self.merge: nn.Linear = nn.Linear(width, width)
        self.before_perceptron: nn.LayerNorm = nn.LayerNorm(width)
        self.up: nn.Linear = nn.Linear(width, 4 * width)
        self.down: nn.Linear = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """X and what comes out: (B, T, C); every place sees those before it and itself."""
        return self.read(x)[0]

    def read(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """As `forward`; also the keys and values, (B, heads, T, d) each."""
        q, k, v = self._split(x)
        seen = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self._finish(x, seen.transpose(1, 2).flatten(2)), (k, v)

    def extend(self, x: Tensor, shared: tuple[Tensor, Tensor], own: tuple[Tensor, Tensor], length: int) -> Tensor:
        """The next T places of L pasts with R copies each, x of shape (L * R, T, C), after `length` of their own."""
        count, heads, past, size = shared[0].shape
        copies, new = x.shape[0] // count, x.shape[1]
        q, k, v = (part.view(count, copies, heads, new, size).transpose(1, 2) for part in self._split(x))
        for kept, added in zip(own, (k, v), strict=True):
            kept[:, :, :, length : length + new] = added
        keys, values = (kept[:, :, :, : length + new] for kept in own)
        q = q * (1.0 / math.sqrt(size))
        to_past = q.flatten(2, 3) @ shared[0].transpose(2, 3)  # (L, heads, R * T, P)
        to_own = q @ keys.transpose(3, 4)  # (L, heads, R, T, length + T)
        if new > 1:
            later = torch.ones(new, new, dtype=torch.bool).triu(1)
            to_own[..., length:].masked_fill_(later, -math.inf)
        weights = torch.cat([to_past.view(count, heads, copies, new, past), to_own], dim=-1).softmax(-1)
        seen = (weights[..., :past].flatten(2, 3) @ shared[1]).view(count, heads, copies, new, size)
        seen = seen + weights[..., past:] @ values
        return self._finish(x, seen.permute(0, 2, 3, 1, 4).reshape(x.shape))

    def _split(self, x: Tensor) -> list[Tensor]:
        q_k_v = self.qkv(self.before_attention(x)).unflatten(2, (3, self.heads, -1))
        return [part.transpose(1, 2) for part in q_k_v.unbind(2)]

    def _finish(self, x: Tensor, seen: Tensor) -> Tensor:
        x = x + self.merge(seen)
        return x + self.down(functional.gelu(self.up(self.before_perceptron(x))))


register_identity(Block, zero_outputs("merge", "down"))
register_units(Block, lambda block: [(block.up, [functional.gelu], block.down)])


class WorldModel(nn.Module):
    """Given codes of a sequence (`gpf.world_model.sequences`), the distribution of the observation that comes next.

    Args:
        width: Size of the embeddings, C.
        heads: Of the attention.
        depth: Blocks at the start; more may be grown.
        context: Steps that it can look back on, N: it takes a special token, and N observations and actions.
    """

    left: nn.Embedding
    right: nn.Embedding
    wind: nn.Embedding

    def __init__(self, width: int = 64, heads: int = 4, depth: int = 1, context: int = 64) -> None:
        super().__init__()
        for name, value in (("width", width), ("heads", heads), ("depth", depth), ("context", context)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if width % heads:
            raise ValueError(f"heads must be a divisor of the width, {width}, got {heads}")
        self.width = width
        self.heads = heads
        self.context = context
        self.left, self.right, self.wind = (nn.Embedding(size, width) for size in OBSERVATION_SIZES)
        self.action: nn.Embedding = nn.Embedding(len(ACTIONS), width)
        self.special: nn.Embedding = nn.Embedding(len(SPECIAL_TOKENS), width)
        self.place: nn.Embedding = nn.Embedding(2 * context + 1, width)
        self.blocks: nn.ModuleList = nn.ModuleList(self.make_block(n) for n in range(depth))
        self.norm: nn.LayerNorm = nn.LayerNorm(width)
        self.head: nn.Linear = nn.Linear(width, sum(OBSERVATION_SIZES))
        for table in (self.left, self.right, self.wind, self.action, self.special, self.place):
            nn.init.normal_(table.weight, std=0.05)
        nn.init.zeros_(self.head.weight)  # at first, all tokens are as likely
        nn.init.zeros_(self.head.bias)

    @property
    def places(self) -> int:
        """Codes that it can look back on."""
        return 2 * self.context + 1

    def _stack(self) -> list[Block]:
        return [block for block in self.blocks if isinstance(block, Block)]

    def make_block(self, depth: int) -> Block:
        """A new block, for whatever place in the stack."""
        return Block(self.width, self.heads)

    def forward(self, codes: Tensor) -> Tensor:
        """Logits of the three streams side by side, (B, T, 22), of what follows each of the codes, (B, T)."""
        self._check(codes, 0)
        x = self._embed(codes, 0)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def read(self, codes: Tensor, copies: int = 1, room: int | None = None) -> tuple[Tensor, Cache]:
        """Logits after the last of L pasts' codes, (L, 22), and a cache for `copies` rollouts of each.

        The cache has room for `room` more codes, by default as many as the context allows.
        """
        self._check(codes, 0)
        room = self.places - codes.shape[1] if room is None else room
        x = self._embed(codes, 0)
        shared = []
        for block in self._stack():
            x, kept = block.read(x)
            shared.append(kept)
        count, size = len(codes), self.width // self.heads
        own = [
            (torch.empty(count, self.heads, copies, room, size), torch.empty(count, self.heads, copies, room, size))
            for _ in self.blocks
        ]
        return self.head(self.norm(x[:, -1])), Cache(shared, own)

    def extend(self, codes: Tensor, cache: Cache) -> Tensor:
        """Logits of what follows the last of the next codes, (L * R, T), of R rollouts of each of L pasts."""
        self._check(codes, cache.places)
        x = self._embed(codes, cache.places)
        for block, shared, own in zip(self._stack(), cache.shared, cache.own, strict=True):
            x = block.extend(x, shared, own, cache.length)
        cache.length += codes.shape[1]
        return self.head(self.norm(x[:, -1]))

    def table(self) -> Tensor:
        """The embedding of every code, (402, C): of observations, the sum of their streams'."""
        left, right, wind = self.left.weight, self.right.weight, self.wind.weight
        observations = left[:, None, None] + right[None, :, None] + wind[None, None, :]
        return torch.cat([observations.view(STATES, self.width), self.action.weight, self.special.weight])

    def _embed(self, codes: Tensor, before: int) -> Tensor:
        return functional.embedding(codes, self.table()) + self.place.weight[before : before + codes.shape[1]]

    def _check(self, codes: Tensor, before: int) -> None:
        if before + codes.shape[1] > self.places:
            raise ValueError(
                f"history must have at most {self.places} codes, the context of {self.context} steps, got"
                f" {before + codes.shape[1]} (gpf.world_model.model.window takes the latest)"
            )
        if codes.numel() and not 0 <= int(codes.min()) <= int(codes.max()) < CODES:
            wrong = codes[(codes < 0) | (codes >= CODES)][0]
            raise ValueError(f"code must be from 0 to {CODES - 1}, got {int(wrong)}")


def window(codes: Tensor, steps: int) -> Tensor:
    """The latest codes of histories, (B, T), of at most `steps` steps; PAD replaces the codes before them.

    A history begins with a special token and continues with observations and actions in turn.
    """
    keep = 2 * steps - (codes.shape[1] % 2 == 0)  # it ends in an observation, or in an action
    if codes.shape[1] <= keep + 1:
        return codes
    return torch.cat([torch.full_like(codes[:, :1], PAD_CODE), codes[:, -keep:]], dim=1)


def next_token_loss(logits: Tensor, codes: Tensor) -> tuple[Tensor, Tensor]:
    """The paper's loss of each stream, and the number of observations: logits (B, T, 22) of codes (B, T + 1).

    Only observations are predicted, from everything before them. Those after PAD are not: their past is unknown.
    """
    after = codes[:, 1:]
    predicted = (after < STATES) & (codes[:, :-1] != PAD_CODE)
    targets = streams(after[predicted])
    losses = [
        functional.cross_entropy(part, target)
        for part, target in zip(logits[predicted].split(OBSERVATION_SIZES, dim=1), targets, strict=True)
    ]
    return torch.stack(losses), predicted.sum()


def streams(codes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Left, right and wind tokens of codes of observations."""
    _, rights, winds = OBSERVATION_SIZES
    return codes // (rights * winds), codes // winds % rights, codes % winds

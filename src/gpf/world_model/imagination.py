"""Rollouts in the world model: the observations that given actions would bring."""

import math
from typing import Any

import torch
from torch import Tensor

from gpf.plume.tokens import OBSERVATION_SIZES
from gpf.world_model.model import Cache, WorldModel, window
from gpf.world_model.sequences import BOS_CODE, FIRST_ACTION, RESET_CODE

_RIGHTS, _WINDS = OBSERVATION_SIZES[1:]


class Imagination:
    """Rollouts from histories: L of them, with `copies` each, in parallel.

    Args:
        model: The world model.
        histories: Codes, (L, T); each begins with a special token and ends with an observation or BOS.
        copies: Rollouts of each.
        generator: Of the random numbers.
        temperature: 1 for the model's distributions; lower values favour likely tokens; 0 takes the likeliest.
        coupling: Correlation of the two normal variables that draw the readings of both antennae, given the past. The
            model's heads do not predict it.
        draws: Number of rollouts with their own random numbers; each following group of this size shares them. None
            for all.
        room: Steps that fit into the cache after the past; then the latest past is encoded again, repeatedly. None for
            half of the context.
    """

    def __init__(
        self,
        model: WorldModel,
        histories: Tensor,
        copies: int = 1,
        generator: torch.Generator | None = None,
        temperature: float = 1.0,
        coupling: float = 0.0,
        draws: int | None = None,
        room: int | None = None,
    ) -> None:
        if not temperature >= 0.0:
            raise ValueError(f"temperature must be at least 0, got {temperature}")
        if not -1.0 <= coupling <= 1.0:
            raise ValueError(f"coupling must be from -1 to 1, got {coupling}")
        most = model.context - 1
        if room is not None and not 1 <= room <= most:
            raise ValueError(f"room must be from 1 to {most} steps with a context of {model.context}, got {room}")
        self.model = model
        self.generator = generator
        self.temperature = temperature
        self.coupling = coupling
        self._draws = draws
        self._room = max(1, model.context // 2) if room is None else room
        self._histories, self._copies = histories, copies
        self._recent: list[Tensor] = []
        self._waiting: Tensor | None = None  # the last observations, not read yet
        self._logits, self._cache = self._read(histories, copies)

    def first(self) -> Tensor:
        """Imagine the first observation of episodes whose histories are BOS alone; codes, (L * copies,)."""
        logits = self._logits.repeat_interleave(self._copies, 0)
        return self._observed(self._sample(logits))

    @torch.inference_mode()
    def step(self, actions: Tensor, resets: Tensor | None = None) -> Tensor:
        """Take actions, (L * copies,), and imagine what is observed then; codes, (L * copies,).

        Where the world is reset instead, the episode ends, and what is imagined is the first observation of another.
        """
        codes = FIRST_ACTION + actions
        if resets is not None:
            codes = torch.where(resets, RESET_CODE, codes)
        new = codes[:, None] if self._waiting is None else torch.stack([self._waiting, codes], dim=1)
        if self._cache.places + new.shape[1] > self.model.places:
            new = self._restart(codes)
        logits = self.model.extend(new, self._cache)
        self._recent.append(codes)
        return self._observed(self._sample(logits))

    def _observed(self, codes: Tensor) -> Tensor:
        self._waiting = codes
        self._recent.append(codes)
        return codes

    def _read(self, histories: Tensor, copies: int) -> tuple[Tensor, Cache]:
        with torch.inference_mode():
            return self.model.read(window(histories, self.model.context - self._room), copies)

    def _restart(self, actions: Tensor) -> Tensor:
        """Encode the latest past of every rollout again, without its last observation; returns that and the actions."""
        past = self._histories.repeat_interleave(self._copies, 0)
        past = torch.cat([past, torch.stack(self._recent, dim=1)], dim=1) if self._recent else past
        self._histories = window(past, self.model.context)
        self._recent.clear()
        self._copies = 1
        kept = window(past, self.model.context - self._room)
        _, self._cache = self.model.read(kept[:, :-1], 1)
        return torch.stack([kept[:, -1], actions], dim=1)

    def _sample(self, logits: Tensor) -> Tensor:
        """Draw an observation from the three streams' logits, (n, 22)."""
        if self.temperature == 0.0:
            left, right, wind = (part.argmax(1) for part in logits.split(OBSERVATION_SIZES, dim=1))
        else:
            drawn = self._draws or len(logits)
            chances = coupled(torch.rand(3, drawn, generator=self.generator), self.coupling)
            chances = chances.repeat(1, len(logits) // drawn)
            parts = (logits / self.temperature).split(OBSERVATION_SIZES, dim=1)
            left, right, wind = (draw(part, chance) for part, chance in zip(parts, chances, strict=True))
        return (left * _RIGHTS + right) * _WINDS + wind


def imagine(
    model: WorldModel, histories: Tensor, actions: Tensor, copies: int = 1, cached: bool = True, **options: Any
) -> Tensor:
    """The observations, (L * copies, H), that follow histories, (L, T), if actions, (L * copies, H), are taken.

    Without the cache everything is recomputed at each step, from the latest past that fits. That is much slower, and
    equal up to rounding as long as histories and rollouts fit into the context and the cache's room.
    """
    if cached:
        imagination = Imagination(model, histories, copies, **options)
        return torch.stack([imagination.step(action) for action in actions.unbind(1)], dim=1)
    past = histories.repeat_interleave(copies, 0)
    sampler = Imagination(model, histories[:, :1], copies, **options)
    seen = []
    with torch.inference_mode():
        for action in actions.unbind(1):
            past = torch.cat([past, FIRST_ACTION + action[:, None]], dim=1)
            seen.append(sampler._sample(model(window(past, model.context))[:, -1]))
            past = torch.cat([past, seen[-1][:, None]], dim=1)
    return torch.stack(seen, dim=1)


def beginnings(count: int) -> Tensor:
    """Histories of episodes that are about to begin, (count, 1)."""
    return torch.full((count, 1), BOS_CODE)


def draw(logits: Tensor, chances: Tensor) -> Tensor:
    """The tokens, (n,), at which the distributions of logits, (n, K), pass the chances, (n,)."""
    return (logits.softmax(1).cumsum(1) < chances[:, None]).sum(1).clamp(max=logits.shape[1] - 1)


def coupled(chances: Tensor, coupling: float) -> Tensor:
    """The same chances, (3, n), but that the first two go together: a Gaussian copula of this correlation."""
    if coupling:
        normal = torch.special.ndtri(chances[:2].double().clamp(1e-12, 1 - 1e-12))
        both = coupling * normal[0] + math.sqrt(1.0 - coupling**2) * normal[1]
        chances[1] = torch.special.ndtr(both).float()
    return chances


def estimate_coupling(logits: Tensor, left: Tensor, right: Tensor, seed: int = 0) -> float:
    """The coupling under which both antennae have a whiff at once as often as they had, given predictions of each."""
    chances = torch.rand(3, len(logits), generator=torch.Generator().manual_seed(seed))
    parts = logits.split(OBSERVATION_SIZES, dim=1)[:2]
    seen = float(((left > 0) & (right > 0)).double().mean())
    low, high = -1.0, 1.0
    for _ in range(20):  # to one in a million; the share rises with the coupling
        middle = (low + high) / 2.0
        drawn = [draw(part, chance) for part, chance in zip(parts, coupled(chances.clone(), middle)[:2], strict=True)]
        share = float(((drawn[0] > 0) & (drawn[1] > 0)).double().mean())
        low, high = (middle, high) if share < seen else (low, middle)
    return (low + high) / 2.0

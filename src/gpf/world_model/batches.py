"""Windows of sequences, for training and evaluating a world model."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from gpf.plume.tokens import STATES
from gpf.world_model.sequences import BOS_CODE, EOS_CODE, FIRST_ACTION, FIRST_SPECIAL, PAD_CODE, RESET_CODE, Dataset

BEGINNINGS = 0.1
"""Share of the windows to learn from that begin with an episode; of all windows it would be a few in a thousand, and
every episode has a beginning."""


class Windows:
    """Random windows of a dataset: a special token, then `steps` steps, then the observation that follows.

    Episodes are separated by RESET, so a window may hold the end of one and the start of the next. A window at the
    start of an episode begins with BOS, and any other with PAD, which means that earlier steps are missing.
    """

    def __init__(self, dataset: Dataset, steps: int) -> None:
        codes = np.asarray(dataset.codes)
        stream = codes[codes != EOS_CODE].astype(np.int64)
        self._stream = np.where(stream == BOS_CODE, RESET_CODE, stream)
        self._size = 2 * steps + 1
        last = len(self._stream) - self._size
        places = np.flatnonzero(self._stream < STATES)
        self._places = places[places <= last]
        self._beginnings = self._places[self._stream[self._places - 1] == RESET_CODE]
        if not len(self._beginnings):
            raise ValueError(f"data must have more steps than the context of {steps}, got {dataset.steps}")

    def draw(self, count: int, seed: tuple[int, ...]) -> Tensor:
        """Codes of windows, (count, 2 steps + 2), the same for the same seed."""
        random = np.random.default_rng(seed)
        begin = random.random(count) < BEGINNINGS
        places = np.where(begin, random.choice(self._beginnings, count), random.choice(self._places, count))
        codes = np.empty((count, self._size + 1), np.int64)
        codes[:, 1:] = self._stream[places[:, None] + np.arange(self._size)]
        codes[:, 0] = np.where(self._stream[places - 1] == RESET_CODE, BOS_CODE, PAD_CODE)
        return torch.from_numpy(codes)


def passages(dataset: Dataset, steps: int, batch: int = 64) -> Iterator[tuple[Tensor, Tensor]]:
    """Every observation of a dataset that follows an action, once, with at least half a window before it if possible.

    Yields codes, (B, 2 steps + 2), padded with PAD at the end, and a mask of the positions after the first that the
    model predicts, (B, 2 steps + 1).
    """
    rows, masks = [], []
    size, half = 2 * steps + 1, steps // 2
    for index in range(len(dataset)):
        body = np.asarray(dataset.sequence(index))[1:-1].astype(np.int64)
        length = (len(body) - 1) // 2
        for first in range(0, max(1, length - half), steps - half):
            part = body[2 * first : 2 * first + size]
            codes = np.full(size + 1, PAD_CODE)
            codes[1 : 1 + len(part)] = part
            codes[0] = BOS_CODE if first == 0 else PAD_CODE
            mask = np.zeros(size, np.bool_)
            mask[2 if first == 0 else 2 * half + 2 : len(part) : 2] = True
            rows.append(codes)
            masks.append(mask & (codes[:-1] >= FIRST_ACTION) & (codes[:-1] < FIRST_SPECIAL))
            if len(rows) == batch:
                yield torch.from_numpy(np.stack(rows)), torch.from_numpy(np.stack(masks))
                rows, masks = [], []
    if rows:
        yield torch.from_numpy(np.stack(rows)), torch.from_numpy(np.stack(masks))

"""The engine of all studies: cells x seeds -> runs -> outcomes, from which measures and pages are computed.

A cell is one agent or variant in one world. Its runs lie in a folder of its own, one for each seed. Killed, a study
resumes where it was; finished runs are never repeated, and studies that share a folder share the runs of cells of the
same place.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpf.runs.executors import Executor, Tell, train_all
from gpf.runs.folder import Outcome
from gpf.tasks.task import Config, Task


@dataclass(frozen=True)
class Cell:
    """One agent or variant in one world, over all seeds."""

    group: str
    """The world, or whatever else its rivals share."""
    name: str
    """Its name on the page."""
    config: Callable[[int], Config]
    """Its settings with a seed."""
    place: Path
    """Its folder, in that of the study's runs."""


@dataclass(frozen=True)
class Study:
    """The task and settings to train."""

    task: Task[Any]
    seeds: range
    cells: Sequence[Cell]

    def __post_init__(self) -> None:
        check_seeds(len(self.seeds), self.seeds.start)
        places = [cell.place for cell in self.cells]
        if len(set(places)) < len(places):
            twice = next(place for place in places if places.count(place) > 1)
            raise ValueError(f"agents must have names that differ in letters, got {twice.name!r} twice")

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return len(self.cells) * len(self.seeds)

    def train(
        self, runs: Path, executor: Executor | None = None, tell: Tell = lambda folder, what, told: None
    ) -> dict[tuple[str, str], list[Outcome]]:
        """Train what is missing; returns the outcomes of all seeds, by group and name."""
        wanted = {
            self.folder(runs, cell, seed): cell.config(seed) for seed in self.seeds for cell in self.cells
        }  # fmt: skip
        for config in wanted.values():
            config.check()
        train_all(self.task, wanted, executor, tell)
        return {
            (cell.group, cell.name): [Outcome.read(self.folder(runs, cell, seed)) for seed in self.seeds]
            for cell in self.cells
        }

    @staticmethod
    def folder(runs: Path, cell: Cell, seed: int) -> Path:
        """Where a run is kept."""
        return runs / cell.place / str(seed)


def check_seeds(count: int, first: int) -> None:
    """Refuse a number of seeds, or a first one, that there cannot be."""
    if count < 1:
        raise ValueError(f"seeds must be at least 1, got {count}")
    if first < 0:
        raise ValueError(f"first_seed must be at least 0, got {first}")


def place_of(name: str) -> str:
    """A name as a folder."""
    return re.sub(r"[^\w-]+", "-", name).strip("-") or "-"

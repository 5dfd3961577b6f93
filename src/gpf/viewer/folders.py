"""The runs that are shown: their names, and the folders behind them."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpf.runs.folder import RunError
from gpf.runs.listing import run_folders

FILES = ("config.json", "manifest.json", "events.jsonl")
"""A folder that is shown has one of these: that of a run, of a checkpoint, or a log of the events of a network."""


class Folders:
    """Runs below some folders, by names such as `runs/plume-1`. No name leads out of these folders."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._roots: dict[str, Path] = {}
        for folder in folders:
            if not folder.is_dir():
                raise RunError(f"{folder} is not a folder; gpf view takes folders of runs")
            root = folder.resolve()
            label, number = root.name, 2
            while self._roots.get(label, root) != root:
                label, number = f"{root.name}-{number}", number + 1
            self._roots[label] = root

    def names(self) -> Iterator[tuple[str, Path]]:
        """Every run with its folder."""
        for label, root in self._roots.items():
            for folder in run_folders(root):
                yield (Path(label) / folder.relative_to(root)).as_posix(), folder

    def others(self) -> Iterator[tuple[str, Path]]:
        """Every checkpoint and every log of events that is not part of a run, with its folder."""
        for label, root in self._roots.items():
            for folder, below, files in os.walk(root):
                if any(file in files for file in FILES):
                    below.clear()
                    if "config.json" not in files:
                        yield (Path(label) / Path(folder).relative_to(root)).as_posix(), Path(folder)

    def find(self, name: str) -> Path:
        """The folder of a run by its name."""
        label, _, below = name.partition("/")
        root = self._roots.get(label)
        try:
            if root is not None:
                folder = (root / below).resolve()
                if folder.is_relative_to(root) and any((folder / file).is_file() for file in FILES):
                    return folder
        except (OSError, ValueError, RuntimeError):  # too long, a null byte, or a loop of links
            pass
        raise RunError(f"there is no run {name!r} in the folders that are shown")

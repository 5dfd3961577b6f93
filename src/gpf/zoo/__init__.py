"""Trained navigators that come with gpf: `zoo:reference` works wherever the folder of a navigator's run does."""

from pathlib import Path

from gpf.settings import unknown

PREFIX = "zoo:"
NAMES = ("reference", "turbulent")
"""The navigators. Each is a run folder without the state of its training; its CARD.md says what it is good for."""


def is_of_zoo(name: str | Path) -> bool:
    """Whether this names a navigator of the zoo rather than a folder."""
    return str(name).startswith(PREFIX)


def run_folder(name: str | Path) -> Path:
    """The folder of a navigator's run: one of the zoo by its name, such as `zoo:reference`, or the path unchanged."""
    if not is_of_zoo(name):
        return Path(name)
    if (short := str(name).removeprefix(PREFIX)) not in NAMES:
        raise ValueError(unknown("navigator of the zoo", str(name), [PREFIX + one for one in NAMES]))
    return Path(__file__).parent / short

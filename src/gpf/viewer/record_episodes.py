"""An episode as one self-contained HTML file."""

from pathlib import Path
from typing import Any

from gpf.viewer.episodes import PLUME, Flight
from gpf.viewer.flying import Pilot, world_of
from gpf.viewer.record import LIMIT, page, write_page


def record_episode(path: Path, pilot: Pilot, world: str, seed: int) -> int:
    """Fly an episode and write it as a page; returns the file's size, bytes.

    An episode that would be too large has the plume of every second step, or every third, and so on.
    """
    flight = Flight(world_of(world, pilot), pilot.policy, seed, pilot.values)
    header, frames = flight.header(), [flight.frame()]
    while flight.end is None:
        flight.fly()
        frames.append(flight.frame())
    choice = {"world": world, "policy": {"name": pilot.name}, "seed": seed}
    every = 1
    while True:
        kept = [frame if n % every == 0 or frame["end"] else _without_plume(frame) for n, frame in enumerate(frames)]
        answers = {"/episode": {"header": header, "frames": kept, "choice": choice}}
        size = len(page("#/fly", answers))
        if size <= LIMIT or every > len(frames):
            return write_page(path, "#/fly", answers)
        every += max(1, int(every * (size / LIMIT - 1.0)))


def _without_plume(frame: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in frame.items() if name not in PLUME}

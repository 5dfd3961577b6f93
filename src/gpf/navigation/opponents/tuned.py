"""Cast-and-surge with the parameters that were tuned for each preset (`gpf tune all --shipped`)."""

import dataclasses
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpf.navigation.policies import CastAndSurge
from gpf.plume.presets import PRESETS
from gpf.plume.scenario import Scenario
from gpf.settings import read

FILE = "cast_and_surge.json"
"""Parameters by preset, next to this file."""
_OF_AN_EPISODE = ("max_steps", "timeout_terminates", "success_replaces", "shaping_discount")
"""Fields that do not make another world of it, together with those of the reward."""


class TunedCastAndSurge(CastAndSurge):
    """Cast-and-surge with the parameters of its world; in a world that is no preset, with the default ones."""

    def begin(self, seeds: Sequence[int], scenario: Scenario) -> None:
        """Forget everything and begin one episode per seed."""
        for name, value in parameters_of(scenario).items():
            setattr(self, name, value)
        super().begin(seeds, scenario)


def parameters_of(scenario: Scenario) -> dict[str, float]:
    """The parameters of the preset that a scenario is, whatever its reward; the default ones of any other world."""
    world = _physics(scenario)
    for name, parameters in shipped().items():
        if name in PRESETS and _physics(Scenario.preset(name)) == world:
            return dataclasses.asdict(read(CastAndSurge, parameters, name))
    return dataclasses.asdict(CastAndSurge())


@functools.cache
def shipped() -> dict[str, dict[str, float]]:
    """The parameters that come with the package, by preset."""
    path = Path(__file__).with_name(FILE)
    known: dict[str, dict[str, float]] = json.loads(path.read_text()) if path.is_file() else {}
    return known


def ship(preset: str, parameters: dict[str, float]) -> None:
    """Write the parameters of a preset to the package."""
    known = {**shipped(), preset: parameters}
    path = Path(__file__).with_name(FILE)
    path.write_text(json.dumps({name: known[name] for name in PRESETS if name in known}, indent=1) + "\n")
    shipped.cache_clear()


def _physics(scenario: Scenario) -> dict[str, Any]:
    """A scenario without its reward and its time limit."""
    fields = dataclasses.asdict(scenario)
    return {
        name: value for name, value in fields.items() if not name.startswith("reward_") and name not in _OF_AN_EPISODE
    }

"""Streams of regimes: one unbroken run of episodes in which the world changes without notice, and may return.

A regime is a scenario with a name: home, with a few fields changed. A stream is a list of visits to regimes, each for a
number of episodes. Presets draw their order from a seed.
"""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpf.plume.inputs import read_json, shown, whole_number
from gpf.plume.scenario import Scenario

MOST_VISITS = 10_000
"""Visits that a stream may have."""
MOST_EPISODES = 100_000_000
"""Episodes that a stream may have in all its visits together."""

HOME_STEPS = 600
"""Steps of an episode at home: half of the presets' 1,200, or much of a stream would be waiting for the lost."""
REGIMES: dict[str, dict[str, Any]] = {
    "home": {},
    # wind
    "gusts": {"wind_direction_sigma": 35.0, "wind_speed_sigma": 0.5, "wind_correlation_time": 4.0},
    "calm": {"wind_speed": 0.35, "wind_speed_sigma": 0.1, "wind_speed_floor": 0.05},
    "gale": {"wind_speed": 2.0, "wind_speed_sigma": 0.4},
    "turning wind": {"wind_turn": 2.0},
    # source
    "weak": {"emission_rate": 2.0, "filament_mass": 0.05},
    "pulsed": {"emission_period": 12.0, "emission_duty": 0.5},
    "wide": {"diffusion": 0.2, "filament_mass": 0.2},
    # sensor
    "low gain": {"left_gain": 0.2, "right_gain": 0.2},
    "noisy": {"sensor_noise": 5e-3},
    "left antenna dead": {"left_gain": 0.0},
    "right antenna dead": {"right_gain": 0.0},
    "antennae swapped": {"antennae_swapped": True},
    "vane turned left": {"vane_offset": 90.0},
    "vane turned right": {"vane_offset": -90.0},
    "vane turned around": {"vane_offset": 180.0},
    # motion and time
    "half speed": {"speed": 0.25},
    "current": {"drift_speed": 0.15, "drift_direction": 90.0},
    "half the time": {"max_steps": 300},
}
"""Fields of each regime that differ from home's."""


@dataclass(frozen=True)
class Visit:
    """A stay in a regime."""

    regime: str
    episodes: int
    gradual: bool = False
    """Whether the world drifts there from the regime before, over the whole visit, and does not jump."""


@dataclass(frozen=True)
class Stream:
    """Visits one after the other, in worlds that differ from home by what their regimes change."""

    visits: tuple[Visit, ...]
    home: Scenario
    regimes: dict[str, dict[str, Any]] = dataclasses.field(default_factory=lambda: REGIMES)

    def __post_init__(self) -> None:
        whole_number("number of visits", len(self.visits), 2, MOST_VISITS)
        for n, visit in enumerate(self.visits):
            if not isinstance(visit.regime, str) or visit.regime not in self.regimes:
                raise ValueError(
                    f"regime of visit {n} must be one of {', '.join(self.regimes)}, got {shown(visit.regime)}"
                )
            whole_number(f"episodes of visit {n}", visit.episodes, 1, MOST_EPISODES)
            if not isinstance(visit.gradual, bool):
                raise ValueError(f"gradual of visit {n} must be true or false, got {shown(visit.gradual)}")
            if visit.gradual and n == 0:
                raise ValueError("gradual of visit 0 must be false, for there is no world before it")
            if n and visit.regime == self.visits[n - 1].regime:
                raise ValueError(f"regime of visit {n} must differ from that of the visit before, got {visit.regime!r}")
        _check_total(sum(visit.episodes for visit in self.visits))
        for name in self.regimes:
            self.scenario(name)

    def scenario(self, regime: str) -> Scenario:
        """The world of a regime."""
        known = {spec.name for spec in dataclasses.fields(Scenario)}
        for name in self.regimes[regime]:
            if name not in known:
                raise ValueError(f"regime {shown(regime)} has {shown(name)}, which is not a field of a Scenario")
        try:
            return dataclasses.replace(self.home, **self.regimes[regime])
        except ValueError as error:
            raise ValueError(f"regime {shown(regime)}: {error}") from None

    def at(self, visit: int, progress: float) -> Scenario:
        """The world in a visit of which this share is over."""
        there = self.scenario(self.visits[visit].regime)
        if not self.visits[visit].gradual:
            return there
        return between(self.scenario(self.visits[visit - 1].regime), there, progress)

    def to_json(self) -> dict[str, Any]:
        """The stream as plain data, from which `of` makes it again."""
        return {
            "home": json.loads(self.home.to_json()),
            "regimes": self.regimes,
            "visits": [dataclasses.asdict(visit) for visit in self.visits],
        }

    @classmethod
    def of(cls, source: "dict[str, Any] | str | Path") -> "Stream":
        """A stream from plain data, or from a JSON file: `visits`, and optionally `regimes` and `home`."""
        if isinstance(source, str | Path):
            source = read_json(Path(source), "stream")
        if not isinstance(source, dict) or source.keys() - {"home", "regimes", "visits"} or "visits" not in source:
            raise ValueError(f"stream must be an object of visits, and of home and regimes, got {shown(source)}")
        visits, regimes = source["visits"], source.get("regimes", {})
        if not isinstance(visits, list | tuple):
            raise ValueError(f"visits must be a list, got {shown(visits)}")
        whole_number("number of visits", len(visits), 2, MOST_VISITS)
        if not isinstance(regimes, dict) or not all(isinstance(fields, dict) for fields in regimes.values()):
            raise ValueError(f"regimes must be an object with an object of fields for each name, got {shown(regimes)}")
        try:
            world = Scenario.of(source["home"]) if "home" in source else usual_home()
        except ValueError as error:
            raise ValueError(f"home: {error}") from None
        return cls(tuple(_visit(n, visit) for n, visit in enumerate(visits)), world, {**REGIMES, **regimes})


def _visit(number: int, values: Any) -> Visit:
    """A visit from plain data."""
    try:
        return Visit(**values)
    except TypeError:
        raise ValueError(
            f"visit {number} must be an object of regime, episodes and optionally gradual, got {shown(values)}"
        ) from None


def _check_total(episodes: int) -> None:
    if episodes > MOST_EPISODES:
        raise ValueError(f"episodes of all visits must be at most {MOST_EPISODES:,}, got {episodes:,}")


def between(before: Scenario, after: Scenario, share: float) -> Scenario:
    """A world on its way from one to another: numbers in proportion, everything else at half-time."""
    values = {}
    for spec in dataclasses.fields(Scenario):
        old, new = getattr(before, spec.name), getattr(after, spec.name)
        if old != new:
            whole = isinstance(old, bool | int | str | tuple)
            values[spec.name] = (new if share >= 0.5 else old) if whole else old + share * (new - old)
    return dataclasses.replace(before, **values)


def usual_home() -> Scenario:
    """The default world that regimes change."""
    return dataclasses.replace(Scenario.preset("reference"), max_steps=HOME_STEPS)


def roomiest(scenarios: Sequence[Scenario]) -> Scenario:
    """A world whose memory has room for the filaments of every one of these, and for their changes."""
    fields = ("emission_rate", "filament_lifetime", "max_steps", "time_step")
    values: dict[str, Any] = {name: max(getattr(one, name) for one in scenarios) for name in fields}
    return dataclasses.replace(scenarios[0], **values)


def drawn(seed: int, among: tuple[str, ...], count: int, first: str = "home") -> list[str]:
    """An order of visits: `first`, then rounds through all regimes in random order, none twice in a row."""
    if len(set(among) | {first}) < 2:
        raise ValueError(f"regimes must be at least two, or nothing would change, got {', '.join(among)}")
    random = np.random.default_rng([seed, 7])
    order = [first]
    while len(order) < count:
        round_ = [str(name) for name in random.permutation(among)]
        if round_[0] == order[-1]:
            round_ = round_[1:] + round_[:1]
        order += round_
    return order[:count]


GENTLE = ("home", "gusts", "gale", "weak", "wide", "turning wind")
HARSH = (
    "antennae swapped", "vane turned left", "low gain", "left antenna dead", "vane turned around", "noisy", "current",
    "vane turned right", "half speed", "pulsed", "half the time", "calm", "home",
)  # fmt: skip
RETURNING = ("home", "vane turned left", "antennae swapped", "vane turned around")


def preset(name: str, seed: int = 0, episodes: int = 1500, count: int | None = None) -> Stream:
    """A stream by name: `gentle` drifts, `harsh` jumps from one new world to the next, `returning` comes back."""
    kinds = {"gentle": (GENTLE, 13, True), "harsh": (HARSH, 14, False), "returning": (RETURNING, 13, False)}
    if name not in kinds:
        raise ValueError(f"stream must be one of {', '.join(kinds)}, or a path to a .json file, got {shown(name)}")
    among, usual, gradual = kinds[name]
    count = whole_number("visits", usual if count is None else count, 2, MOST_VISITS)
    _check_total(count * whole_number("episodes", episodes, 1, MOST_EPISODES))
    order = drawn(seed, among, count)
    visits = tuple(Visit(regime, episodes, gradual and n > 0) for n, regime in enumerate(order))
    return Stream(visits, usual_home())

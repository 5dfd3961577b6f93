"""Objects that the scenarios of a world refer to: obstacles, recordings, and draws of fields with ranges."""

import dataclasses
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.plume.obstacles import PackedTerrains, Terrain, check_reachable, make_terrain, pack_terrains, terrain_of
from gpf.plume.physics import PLAIN_ROWS, ROWS
from gpf.plume.playback import PackedRecordings, pack
from gpf.plume.recorded import recording_of, resolved
from gpf.plume.recordings import Recording
from gpf.plume.row import ROW, row_of
from gpf.plume.scenario import Scenario

DRAWS = 256
"""Size of the Latin hypercube sample from which episodes draw their scenario, where fields are ranges."""


@lru_cache(maxsize=8)
def draws(scenario: Scenario) -> tuple[Scenario, ...]:
    """The scenarios from which episodes draw: the scenario itself, or a Latin hypercube sample of its ranges.

    Of each range every one of `DRAWS` equal parts is drawn from once, in an order of its own. The sample is always the
    same: a seed determines the scenario of an episode.
    """
    if not scenario.ranges:
        return (scenario,)
    rng = np.random.default_rng(0)
    columns = {}
    kinds = {spec.name: spec.type for spec in dataclasses.fields(Scenario)}
    for name, low, high in scenario.ranges:
        shares = (rng.permutation(DRAWS) + rng.random(DRAWS)) / DRAWS
        values = (low + (high - low) * shares).tolist()
        columns[name] = values
        if kinds[name] is int:  # every whole number has the same share, the ends too
            columns[name] = np.floor(low + (high - low + 1.0) * shares).astype(int).tolist()
    fixed = dataclasses.replace(scenario, ranges=())
    return tuple(
        dataclasses.replace(fixed, **{name: column[n] for name, column in columns.items()}) for n in range(DRAWS)
    )


@dataclasses.dataclass(frozen=True)
class Room:
    """The sizes of a lane: filaments, their rows, and nodes of the wind's grid along a side."""

    capacity: int
    filament_rows: int
    nodes: int

    @classmethod
    def of(cls, scenarios: Sequence[Scenario]) -> "Room":
        """Room for each of these scenarios, and for all that they draw."""
        every = [one for scenario in scenarios for one in draws(scenario)]
        return cls(
            max(1 if one.recording else one.filament_capacity for one in every),
            ROWS if any(one.needs_rows for one in every) else PLAIN_ROWS,
            max(one.wind_grid for one in every),
        )


class Catalogue:
    """The obstacles, recordings and draws of a world's scenarios, packed for its kernels."""

    def __init__(self) -> None:
        self.bank: NDArray[np.void] = np.empty(0, ROW)
        self.terrains: PackedTerrains = pack_terrains([])
        self.recordings: PackedRecordings = pack([])
        self._terrains: list[Terrain] = []
        self._recordings: list[Recording] = []
        self._rows: dict[Scenario, Any] = {}

    def row(self, scenario: Scenario) -> Any:
        """The row of a scenario, which points to what it needs; that is added if it is not there yet."""
        if scenario not in self._rows:
            self._rows[scenario] = self._new_row(scenario)
        return self._rows[scenario]

    def next_rows(self, row: Any) -> NDArray[np.void]:
        """The rows that the next episode of a lane with this row may draw."""
        first, count = int(row["bank_first"]), int(row["bank_count"])
        return self.bank[first : first + count] if count else np.array([row], ROW)

    def terrains_of(self, row: Any) -> list[Terrain]:
        """The obstacles of a row: none, one terrain, or two where episodes may be mirrored, the mirrored one last."""
        first = int(row["terrain"])
        return self._terrains[first : first + (2 if row["recording_mirrored"] else 1)] if first >= 0 else []

    def _new_row(self, scenario: Scenario) -> Any:
        recording = recording_of(scenario)
        rows = np.array([self._row_of_draw(one, recording) for one in draws(scenario)], ROW)
        if scenario.ranges:
            rows["bank_first"], rows["bank_count"] = len(self.bank), len(rows)
            self.bank = np.concatenate([self.bank, rows])
        return rows[0]

    def _row_of_draw(self, scenario: Scenario, recording: Recording | None) -> Any:
        world = resolved(scenario, recording)
        row = np.array(row_of(world))
        terrain = terrain_of(world)
        if terrain is not None:
            _check_places(world, terrain)
            row["terrain"] = self._terrain_index(terrain, world.recording_mirrored)
            row["simple"] = row["simple_air"] = row["plain_smell"] = 0.0
        if recording is not None:
            row["recording"] = self._recording_index(recording)
            row["pixel"] = world.recording_pixel or recording.pixel
            row["frames_a_tick"] = row["time_step"] / recording.interval
            row["simple"] = row["simple_air"] = row["plain_smell"] = 0.0
        return row[()]

    def _terrain_index(self, terrain: Terrain, mirrored: bool) -> int:
        """Where a terrain lies among the packed ones; with `mirrored`, one that is mirrored follows it."""
        for n, known in enumerate(self._terrains):
            if known is terrain and (not mirrored or _is_mirrored(self._terrains, n)):
                return n
        self._terrains.append(terrain)
        if mirrored:
            self._terrains.append(make_terrain(terrain.solid[::-1], terrain.cell_x, terrain.cell_y))
        self.terrains = pack_terrains(self._terrains)
        return len(self._terrains) - (2 if mirrored else 1)

    def _recording_index(self, recording: Recording) -> int:
        for n, known in enumerate(self._recordings):
            if known is recording:
                return n
        self._recordings.append(recording)
        self.recordings = pack(self._recordings)
        return len(self._recordings) - 1


def _is_mirrored(terrains: Sequence[Terrain], n: int) -> bool:
    """Whether the next terrain is this one, mirrored."""
    return n + 1 < len(terrains) and np.array_equal(terrains[n + 1].solid, terrains[n].solid[::-1])


def _check_places(scenario: Scenario, terrain: Terrain) -> None:
    """Refuse obstacles that leave no room for the source, or for the start of the agent."""
    if scenario.source_at:
        check_reachable(terrain, scenario.source_at)
        return
    rng = np.random.default_rng(0)
    extent = np.array([scenario.width, scenario.height])
    direction = np.radians(scenario.wind_direction)
    middle = 0.5 - scenario.source_upwind * np.array([np.cos(direction), np.sin(direction)])
    shares = middle + scenario.source_jitter * (2.0 * rng.random((1000, 2)) - 1.0)
    places = extent * np.clip(shares, scenario.source_margin, 1.0 - scenario.source_margin)
    if not any(terrain.label_at(place) for place in places.tolist()):
        raise ValueError("obstacles must leave room for the source, upwind of the centre of the domain, got none there")

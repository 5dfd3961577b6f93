"""Results of the suite as plain data: the format of a file, and one sentence for every fault."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpf.navigation.suite import EPISODES, SEEDS, SLOW_EPISODES, version, world_of
from gpf.plume.inputs import read_json
from gpf.settings import check, number, read, shown
from gpf.tasks.searching import QUANTILES


@dataclass(frozen=True, kw_only=True)
class Record:
    """An agent's results in a world with a seed."""

    agent: str
    world: str
    seed: int = number(0, 0, SEEDS - 1)
    episodes: int = number(0, 1)
    success: float = number(0.0, 0.0, 1.0)
    """Share of the episodes in which the source was found."""
    spl: float = number(0.0, 0.0, 1.0)
    """Success weighted by path length."""
    arrival: tuple[float, ...] | None = None
    """5, 25, 50, 75 and 95 % quantiles of the arrival times, s; None where the source was never found."""
    decision_ms: float = number(0.0, 0.0)
    """Median time of a decision in a single episode, ms."""
    parameters: int = number(0, 0)
    """Of its network, those that are not zero; 0 for none."""
    seconds: float = number(0.0, 0.0)
    """That its training took on one core, s; 0 for none."""

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        return dataclasses.asdict(self)


_OPTIONAL = ("seconds",)
"""Optional fields of a record."""


@dataclass(frozen=True)
class Results:
    """Records of some agents, and what these are: `kind` and `about`, by name."""

    agents: dict[str, dict[str, str]]
    records: list[Record]

    def plain(self) -> dict[str, Any]:
        """As a file of results has them, with the version."""
        return {"version": version(), "agents": self.agents, "results": [one.plain() for one in self.records]}

    def with_others(self, others: "Results", path: Path) -> "Results":
        """These results and those of other agents."""
        for name in others.agents:
            if name in self.agents:
                raise ValueError(f"{path}: agent {name!r} is in the table already; give it another name")
        return Results({**self.agents, **others.agents}, [*self.records, *others.records])


def read_results(path: Path) -> Results:
    """The results of a file, all of them checked; nothing is taken from a file in which something is wrong."""
    held = read_json(path, "results")
    try:
        return checked_results(held)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def checked_results(held: Any) -> Results:
    """Results from plain data."""
    if not isinstance(held, Mapping):
        raise ValueError(f"results must be an object of version, agents and results, got {shown(held)}")
    for name, kind in (("version", str), ("agents", dict), ("results", list)):
        if not isinstance(held.get(name), kind) or not held[name]:
            wanted = {"version": "text", "agents": "an object with at least one agent", "results": "a list of records"}
            raise ValueError(f"{name} must be {wanted[name]}, got {shown(held.get(name))}")
    if held["version"] != version():
        raise ValueError(f"version must be {version()}, that of this suite, got {shown(held['version'])}")
    agents = {name: _checked_agent(name, about) for name, about in held["agents"].items()}
    records = [_checked_record(f"results[{n}]", values) for n, values in enumerate(held["results"])]
    _check_together(agents, records)
    return Results(agents, records)


def _checked_agent(name: str, about: Any) -> dict[str, str]:
    good = isinstance(about, dict) and isinstance(about.get("about"), str) and set(about) <= {"about", "kind"}
    if not good or not isinstance(about.get("kind", ""), str):
        raise ValueError(f"agents.{name} must be an object with a text about, got {shown(about)}")
    return {"kind": "added", **about}


def _checked_record(where: str, values: Any) -> Record:
    if not isinstance(values, Mapping):
        raise ValueError(f"{where} must be an object, got {shown(values)}")
    for spec in dataclasses.fields(Record):
        if spec.name not in values and spec.name not in _OPTIONAL:
            raise ValueError(f"{where} lacks {spec.name}")
    record = read(Record, values, where)
    try:
        world = world_of(record.world)
        check(record)
        accepted = sorted({world.episodes(EPISODES), world.episodes(SLOW_EPISODES)})
        if record.episodes not in accepted:
            numbers = " or ".join(f"{count:,} ({'all' if n else 'slow'} agents)" for n, count in enumerate(accepted))
            raise ValueError(f"episodes must be {numbers} in world {record.world!r}, got {record.episodes}")
        found = record.success * record.episodes
        if abs(found - round(found)) > 1e-6:
            raise ValueError(f"success must be a share of {record.episodes} episodes, got {record.success}")
        if record.spl > record.success + 1e-9:
            raise ValueError(f"spl must be at most success, {record.success}, got {record.spl}")
        _check_arrival(record)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return record


def _check_arrival(record: Record) -> None:
    """Refuse arrival times that are missing, too many, or not in order."""
    times = record.arrival
    if (times is None) != (record.success == 0.0):
        raise ValueError(f"arrival must be null where success is 0, and only there, got {shown(times)}")
    if times is None:
        return
    in_order = all(math.isfinite(one) and one >= 0.0 for one in times) and list(times) == sorted(times)
    if len(times) != len(QUANTILES) or not in_order:
        quantiles = ", ".join(map(str, QUANTILES))
        raise ValueError(f"arrival must be the {quantiles} % quantiles in s, in rising order, got {shown(list(times))}")


def _check_together(agents: Mapping[str, Any], records: Sequence[Record]) -> None:
    """Refuse records of unknown agents, agents without records, and records that come twice."""
    seen = set[tuple[str, str, int]]()
    for n, one in enumerate(records):
        if one.agent not in agents:
            raise ValueError(f"results[{n}]: agent must be one of agents ({', '.join(agents)}), got {one.agent!r}")
        place = one.agent, one.world, one.seed
        if place in seen:
            raise ValueError(f"results[{n}]: agent {one.agent!r} has two records of seed {one.seed} in {one.world!r}")
        seen.add(place)
    for name in agents:
        if name not in {one.agent for one in records}:
            raise ValueError(f"agents.{name} has no record in results")

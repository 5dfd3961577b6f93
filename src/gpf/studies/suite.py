"""The suite: every agent in every world, over seeds, on one page; results of others can be added."""

import hashlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpf.navigation.seeds import VALIDATION
from gpf.navigation.suite import EPISODES, SEEDS, SLOW_EPISODES, WORLDS, names_of, world_of
from gpf.plume.world import World
from gpf.reports.pages import read_numbers, write_page
from gpf.runs.executors import Executor, Tell
from gpf.runs.folder import Outcome
from gpf.settings import check, number
from gpf.studies.engine import Cell, Study, place_of
from gpf.studies.suite_figure import figure
from gpf.studies.suite_page import page
from gpf.studies.suite_results import Record, Results, checked_results, read_results
from gpf.tasks.agents import AGENTS, check_installed, find_agent
from gpf.tasks.search import TASK, own_policy
from gpf.tasks.searching import Config

QUICK_WORLDS = ("reference", "turbulent", "fly-many")
"""Where agents search with `--quick`."""
QUICK_EPISODES = 8
EVERYWHERE = "everywhere"
"""The place of an agent that is trained once for all worlds."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Who searches where, and how often."""

    agents: tuple[str, ...] = tuple(AGENTS)
    """Agents of the suite, or `module:function` of a user's agent."""
    worlds: tuple[str, ...] = names_of()
    seeds: int = number(SEEDS, 1)
    first_seed: int = number(0, 0)
    episodes: int = number(EPISODES, 1)
    quick: bool = False
    recordings: str = ""
    """Folder of the halls of GSL-Bench."""

    def __post_init__(self) -> None:
        check(self)
        for kind, names in (("agents", self.agents), ("worlds", self.worlds)):
            if not names:
                raise ValueError(f"{kind} must name at least one")
            if len(set(names)) < len(names):
                raise ValueError(f"{kind} must be different ones, got {', '.join(names)}")
        for name in self.worlds:
            world_of(name)
        for name in self.agents:
            check_installed(name)

    def seeds_of(self, agent: str) -> range:
        """The seeds of an agent; slow learners have fewer."""
        most = find_agent(agent).seeds or self.seeds
        return range(self.first_seed, self.first_seed + min(self.seeds, most))

    @property
    def runs(self) -> int:
        """How many runs there are."""
        return sum(study.runs for study in self.studies())

    @property
    def protocol(self) -> str:
        """Seeds and episodes in a sentence, which says so if they are not those of the suite."""
        seeds = range(self.first_seed, self.first_seed + self.seeds)
        said = f"Seeds {seeds[0]} to {seeds[-1]}" if len(seeds) > 1 else f"Seed {seeds[0]}"
        said += f", {self.episodes:,} held-out episodes each in each world (slow agents at most {SLOW_EPISODES})."
        if self.quick:
            return f"{said} **A trial with `--quick`: no agent is trained.**"
        official = self.episodes == EPISODES and self.first_seed + self.seeds <= SEEDS
        return said if official else f"{said} **This is not the suite's protocol; the results cannot be submitted.**"

    def studies(self) -> list[Study]:
        """All runs, as one study for each number of seeds."""
        counts = sorted({len(self.seeds_of(agent)) for agent in self.agents})
        return [
            Study(TASK, range(self.first_seed, self.first_seed + count), cells)
            for count in counts
            if (cells := [c for agent in self.agents if len(self.seeds_of(agent)) == count for c in self._cells(agent)])
        ]

    def _cells(self, agent: str) -> list[Cell]:
        """The runs of an agent: one for each world, or one for all of them."""
        who, code = find_agent(agent), code_of(agent)
        folder = place_of(agent) + (f"-{code}" if code else "")

        def cell(group: str, place: str, worlds: tuple[str, ...]) -> Cell:
            recorded = any(WORLDS[name].recorded for name in worlds)
            recordings = str(Path(self.recordings).resolve()) if recorded else ""
            episodes = who.episodes(self.episodes)

            def config(seed: int) -> Config:
                return Config(
                    agent=agent, worlds=worlds, seed=seed, episodes=episodes, recordings=recordings, quick=self.quick,
                    code=code,
                )  # fmt: skip

            return Cell(group, agent, config, Path(folder, place))

        if not who.everywhere:
            return [cell(world, world, (world,)) for world in self.worlds]
        digest = hashlib.sha256(" ".join(self.worlds).encode()).hexdigest()[:8]
        place = EVERYWHERE if self.worlds == names_of() else f"{EVERYWHERE}-{digest}"
        return [cell(EVERYWHERE, place, self.worlds)]

    def check(self) -> None:
        """Refuse what cannot be, before anything begins; agents of the user's own are tried for a step."""
        for agent in self.agents:
            for world in self.worlds:
                config = Config(agent=agent, worlds=(world,), recordings=self.recordings, code=code_of(agent))
                config.check()
                if find_agent(agent).kind == "own":
                    try_out(agent, world, config)


def code_of(agent: str) -> str:
    """A digest of the module of a user's agent; empty for an agent of the suite. Also imports the module."""
    if ":" not in agent:
        return ""
    if (here := str(Path.cwd())) not in sys.path:  # as it is in the processes that run the agent
        sys.path.insert(0, here)
    module = agent.partition(":")[0]
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise ValueError(f"agent {agent!r} cannot be imported; it must be module:function, found from this folder")
    return hashlib.sha256(Path(spec.origin).read_bytes()).hexdigest()[:8]


def try_out(agent: str, world: str, config: Config) -> None:
    """Let a user's agent act once in two lanes of a world."""
    scenario = config.scenario(world)
    policy, lanes = own_policy(agent, world, scenario), World(2, scenario, threads=1)
    seeds = range(VALIDATION, VALIDATION + 2)
    lanes.seed(seeds)
    lanes.begin()
    policy.begin(seeds, scenario)
    policy.act(lanes.raw, np.arange(2), np.zeros(2, np.int64))


def run_suite(plan: Plan, runs: Path, executor: Executor, tell: Tell) -> Results:
    """Train and evaluate what is missing; returns all records."""
    outcomes: dict[tuple[str, str], list[Outcome]] = {}
    for study in plan.studies():
        outcomes |= study.train(runs, executor, tell)
    agents = {name: {"kind": find_agent(name).kind, "about": find_agent(name).about} for name in plan.agents}
    records = [one for (_, agent), some in outcomes.items() for one in _records(agent, plan.seeds_of(agent), some)]
    order = {name: n for n, name in enumerate(plan.worlds)}
    place = {name: n for n, name in enumerate(plan.agents)}
    return Results(agents, sorted(records, key=lambda one: (order[one.world], place[one.agent], one.seed)))


def _records(agent: str, seeds: Sequence[int], outcomes: Sequence[Outcome]) -> list[Record]:
    return [
        Record(
            agent=agent, world=world, seed=seed, episodes=one["episodes"], success=one["success"], spl=one["spl"],
            arrival=tuple(one["arrival"]) if one["arrival"] else None, decision_ms=one["decision_ms"],
            parameters=one.get("parameters", outcome.result["parameters"]), seconds=outcome.result["seconds"],
        )
        for seed, outcome in zip(seeds, outcomes, strict=True)
        for world, one in outcome.result["evaluations"].items()
    ]  # fmt: skip


def write_suite(results: Results, settings: Mapping[str, object], folder: Path, name: str, command: str) -> Path:
    """Write the page, its figure and its numbers; returns where the page is."""
    numbers = {"kind": "suite", "command": command, **settings, **results.plain()}
    return write_page(folder, name, numbers, page(numbers, name), {f"{name}.png": figure(results.plain())})


def add_results(paths: Sequence[Path], folder: Path, name: str, command: str) -> Path:
    """Add others' results to a page; nothing changes if anything is wrong with one of them."""
    place = folder / f"{name}.json"
    if not place.exists():
        raise ValueError(f"{place} does not exist; run gpf suite first, or pass the folder of its page with --page")
    numbers = read_numbers(place)
    try:
        results = checked_results(numbers)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
    for path in paths:
        results = results.with_others(read_results(path), path)
    settings = {"protocol": numbers.get("protocol", "")}
    return write_suite(results, settings, folder, name, f"{numbers['command']}; {command}")

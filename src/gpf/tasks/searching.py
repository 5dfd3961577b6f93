"""Parts of all runs of the suite: the agent, its worlds, and the measures.

Evaluations are written one by one, next to the checkpoints; a run that is killed repeats none.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gpf import settings
from gpf.navigation.checked import Checked, check_needs
from gpf.navigation.config import Config as NavigatorConfig
from gpf.navigation.policies import Policy
from gpf.navigation.seeds import BLOCK, VALIDATION
from gpf.navigation.suite import EPISODES, VARIED, held_out, world_of
from gpf.network import Rules
from gpf.plume.scenario import Scenario
from gpf.plume.world import World
from gpf.runs.folder import Run, read_object, write_json
from gpf.runs.training import Phase
from gpf.tasks.agents import Agent, check_installed, find_agent
from gpf.world_model.config import Config as WorldConfig

DECISIONS, WARM_UP, PATIENCE = 200, 20, 5.0
"""Decisions that are timed, after some that are not, and the seconds after which fewer must do."""
OF_PLANNER = ("collect", "horizon", "rollouts")
"""Settings of a planner that are not those of its world model."""
QUANTILES = (5, 25, 50, 75, 95)
"""Of arrival times."""

Make = Callable[[str, Scenario], Policy]
"""The policy of an agent in a world, by the world's name and scenario."""


@dataclass(frozen=True, kw_only=True)
class Config(settings.Settings):
    """Who searches where."""

    agent: str = "cast-and-surge"
    """An agent of the suite, or `module:function` of your own."""
    worlds: tuple[str, ...] = ("reference",)
    """Where it is evaluated. It is trained in the first, unless it is a generalist."""
    seed: int = settings.number(0, 0, BLOCK - 1)
    """Of its training, and of its held-out episodes."""
    episodes: int = settings.number(EPISODES, 1, BLOCK)
    """Held-out episodes in each world."""
    recordings: str = ""
    """Folder of the halls of GSL-Bench, where worlds are recorded."""
    quick: bool = False
    """Train for a moment only."""
    code: str = ""
    """Digest of the module of your own agent; a changed one is another run."""

    @cached_property
    def who(self) -> Agent:
        """The agent."""
        return find_agent(self.agent)

    def check(self) -> None:
        """Refuse what cannot be."""
        super().check()
        check_installed(self.agent)
        if not self.worlds:
            raise ValueError("worlds must name at least one")
        for name in self.worlds:
            check_needs(self.who.needs, self.scenario(name), self.agent, name)
        self.network_rules()

    def scenario(self, world: str) -> Scenario:
        """The scenario of a world."""
        return world_of(world).scenario(self.recordings)

    def training_world(self) -> Scenario:
        """Where it is trained."""
        return Scenario.of(VARIED) if self.who.everywhere else self.scenario(self.worlds[0])

    def navigator(self) -> NavigatorConfig:
        """The settings of one of our navigators."""
        return NavigatorConfig.of(self.who.trained(self.quick), seed=self.seed, evaluate=0)

    def world_model(self) -> WorldConfig:
        """The settings of a planner's world model."""
        given = self.who.trained(self.quick)
        return WorldConfig.of({"seed": self.seed, **{k: v for k, v in given.items() if k not in OF_PLANNER}})

    def network_rules(self) -> Rules:
        """When its network grows, prunes and freezes."""
        if self.who.kind == "learned":
            return self.navigator().network_rules()
        if self.who.kind == "planner":
            return self.world_model().network_rules()
        return Rules.fixed()


def untrained() -> dict[str, Any]:
    """The progress of what has not learned anything."""
    return {"round": 0, "step": 0, "seconds": 0.0, "flops": 0.0}


def evaluations(run: Run, config: Config, make: Make, threads: int | None, phase: Phase) -> dict[str, Any]:
    """Results of an agent in each of its worlds; those that have been evaluated before are read back."""
    folder = run.folder / "evaluations"
    folder.mkdir(exist_ok=True)
    for name in config.worlds:
        if not (folder / f"{name}.json").exists():
            phase(f"evaluation in {name}", 0)
            write_json(folder / f"{name}.json", evaluated(config, name, make, threads))
    return {"evaluations": {name: read_object(folder, folder / f"{name}.json") for name in config.worlds}}


def evaluated(config: Config, name: str, make: Make, threads: int | None) -> dict[str, Any]:
    """Results of an agent in a world: success, SPL, arrival times in s, and the time of a decision in ms."""
    scenario = config.scenario(name)
    policy = make(name, scenario)
    result = held_out(policy, world_of(name), scenario, config.seed, config.episodes, threads)
    arrival = scenario.time_step * np.quantile(result.arrival, np.array(QUANTILES) / 100) if len(result.arrival) else ()
    return {
        "episodes": result.episodes,
        "found": int(result.success.sum()),
        "success": float(result.success.mean()),
        "spl": result.spl,
        "arrival": [float(seconds) for seconds in arrival] or None,
        "decision_ms": decision_ms(policy, scenario),
        **({"parameters": policy.parameters} if isinstance(policy, Checked) else {}),
    }


def decision_ms(policy: Policy, scenario: Scenario) -> float:
    """The median time of a decision in a single episode, ms; its first ones, which warm up, do not count."""
    world, lane, actions = World(1, scenario, threads=1), np.zeros(1, np.int64), np.zeros(1, np.int64)
    seconds: list[float] = []
    began, episode = time.perf_counter(), 0
    while len(seconds) < DECISIONS + WARM_UP and (time.perf_counter() - began < PATIENCE or len(seconds) <= WARM_UP):
        if not world.lanes["running"][0]:
            world.seed([VALIDATION + episode])
            world.begin()
            policy.begin([VALIDATION + episode], scenario)
            episode += 1
        started = time.perf_counter()
        policy.act(world.raw, lane, actions)
        seconds.append(time.perf_counter() - started)
        world.step(actions)
    return 1e3 * statistics.median(seconds[WARM_UP:])

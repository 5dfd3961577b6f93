"""One agent in the suite, with one seed: trains it if it learns, then evaluates it in each of its worlds."""

import json
from collections.abc import Mapping
from typing import Any

from gpf.navigation.checked import Checked
from gpf.navigation.policies import Policy, make_policy
from gpf.navigation.suite import version
from gpf.plume.scenario import Scenario
from gpf.runs.executors import find
from gpf.runs.folder import Run
from gpf.runs.training import Loop, Phase
from gpf.tasks.plume import PlumeTraining
from gpf.tasks.searching import Config, evaluations, untrained
from gpf.tasks.task import Task


def make_loop(run: Run, config: Config, threads: int | None) -> Loop:
    """The training of an agent, and its evaluations."""
    kind = config.who.kind
    if kind == "learned":
        return NavigatorSearch(run, config, threads)
    if kind == "planner":
        from gpf.tasks.planning import PlannerSearch

        return PlannerSearch(run, config, threads)
    if kind == "outsider":
        from gpf.tasks.outsiders import OutsiderSearch

        return OutsiderSearch(run, config, threads)
    return RuleSearch(run, config, threads)


class RuleSearch:
    """An agent that does not learn: one of ours, or a user's."""

    over = True

    def __init__(self, run: Run, config: Config, threads: int | None = None) -> None:
        self.run: Run = run
        self.config: Config = config
        self.threads: int | None = threads
        self.progress: dict[str, Any] = untrained()
        self._parameters = 0

    def round(self) -> dict[str, Any]:
        """There is nothing to learn."""
        raise RuntimeError("an agent that does not learn has no rounds")

    def shape(self) -> dict[str, Any]:
        """There is no network of ours; a user's agent may say how many parameters it has."""
        return {"depth": 0, "density": 1.0, "frozen": [], "parameters": 0}

    def finish(self, phase: Phase) -> dict[str, Any]:
        """Its evaluations."""
        return evaluations(self.run, self.config, self._make, self.threads, phase)

    def _make(self, world: str, scenario: Scenario) -> Policy:
        if self.config.who.kind == "own":
            return own_policy(self.config.agent, world, scenario)
        return make_policy(self.config.who.settings["policy"])


def own_policy(reference: str, world: str, scenario: Scenario) -> Checked:
    """A user's agent in a world."""
    make = find(reference)
    if not callable(make):
        raise ValueError(f"agent {reference!r} must be a function of a scenario, got {type(make).__name__}")
    return Checked(make, reference, world, scenario)


class NavigatorSearch(PlumeTraining):
    """One of our navigators: its training, and then its last checkpoint in each world."""

    def __init__(self, run: Run, config: Config, threads: int | None = None) -> None:
        self.search = config
        super().__init__(run, config.navigator(), threads)

    def finish(self, phase: Phase) -> dict[str, Any]:
        """Its evaluations."""
        policy = self.policy()
        return evaluations(self.run, self.search, lambda world, scenario: policy, self.threads, phase)


def _about(config: Config) -> dict[str, Any]:
    """The suite's version, where the agent is trained, and how."""
    who = config.who
    trained = config.navigator().plain() if who.kind == "learned" else who.trained(config.quick)
    world = json.loads(config.training_world().to_json())
    return {"suite": version(), "world": world, "settings": json.loads(json.dumps(trained))}


def _line(metrics: dict[str, Any]) -> str:
    success = metrics.get("success")
    return f"step {metrics['step']:,}" + (f", success {success:.1%}" if success is not None else "")


def _result_line(result: dict[str, Any]) -> str:
    found = {name: one["success"] for name, one in result["evaluations"].items()}
    return ", ".join(f"{name} {success:.1%}" for name, success in found.items())


def _make_config(values: Mapping[str, Any]) -> Config:
    return Config.of(values)


TASK = Task(
    name="search",
    reference=f"{__name__}:TASK",
    title="An agent in the suite",
    make=_make_config,
    training=make_loop,
    length=lambda config: (1, "round"),
    about=_about,
    describe=_line,
    describe_result=_result_line,
    variant_of=lambda config: config.agent,
)

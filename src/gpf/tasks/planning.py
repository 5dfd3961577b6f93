"""The planner in the suite: its world model is trained in the world in which it searches."""

from pathlib import Path
from typing import Any

from gpf.navigation.policies import CastAndSurge, Policy, make_policy
from gpf.navigation.tokenized import SMELL, Tokenized
from gpf.plume.scenario import Scenario
from gpf.runs.folder import Run
from gpf.runs.training import Phase
from gpf.tasks import world as world_task
from gpf.tasks.searching import Config, evaluations
from gpf.world_model.collection import Wandering, collect
from gpf.world_model.config import Config as WorldConfig
from gpf.world_model.planner import Planner
from gpf.world_model.sequences import Dataset
from gpf.world_model.trained import load_network

COLLECTED = 1_000_000
"""Steps of the sequences that a world model learns from."""
BEHAVIOURS = {"random": 0.1, "reactive": 0.15, "cast-and-surge": 0.45}
"""Whose steps these are, in what proportion, as in `gpf world data`."""


class PlannerSearch(world_task.Training):
    """A world model's training, and then a planner in that world."""

    def __init__(self, run: Run, config: Config, threads: int | None = None) -> None:
        self.search = config
        self._settings = config.who.trained(config.quick)
        super().__init__(run, config.world_model(), threads)

    def dataset(self, folder: Path, config: WorldConfig) -> Dataset:
        """Sequences that are collected whenever the run begins or is resumed: always the same ones."""
        policies: dict[str, tuple[Policy, float]] = {}
        for name, share in BEHAVIOURS.items():
            policy = make_policy(name)
            policies[name] = (policy if name == "random" else Wandering(policy, config.seed), share)
        steps = int(self._settings.get("collect", COLLECTED))
        return collect(policies, self.search.training_world(), steps, config.seed)

    def finish(self, phase: Phase) -> dict[str, Any]:
        """The model's validation, and the planner's evaluations."""
        measured = super().finish(phase)
        return measured | evaluations(self.run, self.search, self._make, self.threads, phase)

    def _make(self, name: str, scenario: Scenario) -> Planner:
        net = load_network(self.run.checkpoint("best"), self.config)
        model: Any = net.model
        model.eval()
        options = {name: value for name, value in self._settings.items() if name in ("horizon", "rollouts")}
        follow = Tokenized(CastAndSurge(), scenario, SMELL)
        return Planner(model, scenario, follow, coupling=float(net.extra["coupling"]), **options)

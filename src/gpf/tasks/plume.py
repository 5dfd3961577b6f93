"""Train a navigator that finds the source of a smell.

Four learners share one loop, one kind of network and one kind of run folder. An agent with and one without GPF differ
only in `Rules`: those of the second change nothing.
"""

import json
import math
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from gpf.navigation import online
from gpf.navigation.acting import NetworkPolicy
from gpf.navigation.agents import Learner, Navigator, as_bytes, from_bytes, load_navigator, make_learner, make_model
from gpf.navigation.config import LEARNERS, Config
from gpf.navigation.evaluate import Evaluation, evaluate
from gpf.navigation.rollouts import Episodes, probe_inputs
from gpf.navigation.seeds import BLOCK, VALIDATION
from gpf.network.controller import Watcher
from gpf.network.events import Event
from gpf.plume.scenario import Scenario
from gpf.runs.folder import CheckpointName, Run, next_folder, read_config
from gpf.runs.training import Phase, Round, Training, check_threads
from gpf.spectra.plasticity import plasticity
from gpf.spectra.recorder import Recorder, write_snapshot
from gpf.tasks.task import Task, Tell, gradient_flops, train_shown

RECENT = 500
"""Training episodes over which success and SPL are averaged."""
PATHS = 200
"""Successful, and failed, held-out episodes whose trajectories are kept."""
REPORTED = ("success", "low", "high", "mean_steps", "spl", "episodes")
"""Fields of a result about held-out episodes."""


class PlumeTraining(Training[Config]):
    """A round is some epochs of the learner; now and then it is validated."""

    def __init__(self, run: Run, config: Config, threads: int | None = None) -> None:
        self.world: Scenario = Scenario.of(read_config(run.folder).get("world", {}))
        self._plan = config.planned_events()
        super().__init__(run, config, threads)
        self._probe = torch.from_numpy(probe_inputs(self.world, config.learner.observation, config.without))

    def first_progress(self) -> dict[str, Any]:
        """Epochs, episodes, outcomes of the latest of them, and the last validation."""
        return {"epoch": 0, "episodes": 0, "recent": [], "validation": None}

    def build(self) -> nn.Module:
        """The network as it is before it learns."""
        return make_model(self.config)

    def make_optimizer(self, model: nn.Module) -> Optimizer:
        """The learner's own."""
        return self.config.learner.make_optimizer(model)

    def planned_steps(self) -> int:
        """Epochs; the share that is over is reported after each."""
        return self.config.epochs

    def begin(self, extra: dict[str, Any] | None) -> None:
        """Make the learner, and restore its state."""
        self.learner: Learner = make_learner(self.config, self.world, self.net, self.threads)
        if extra is not None:
            state = self.learner.state()
            self.learner.restore(from_bytes({name: extra[f"learner/{name}"] for name in state}, state))

    def watchers(self) -> Sequence[Watcher]:
        """One that keeps the network around every event, for its spectra."""
        return [Recorder(partial(write_snapshot, self.run.folder / "spectra"))]

    @property
    def over(self) -> bool:
        """Whether there is nothing left to learn."""
        return bool(self.progress["epoch"] >= self.config.epochs)

    def learn(self) -> Round:
        """Some epochs, each of which may end in events, and a validation if it is due."""
        config, now = self.config, self.progress
        events: list[dict[str, Any]] = []
        returns: list[float] = []
        for _ in range(min(config.learner.round_epochs, config.epochs - now["epoch"])):
            episodes = self.learner.epoch(now["epoch"] / config.epochs)
            now["epoch"] += 1
            now["episodes"] += len(episodes.success)
            steps = config.learner.epoch_steps(episodes)
            now["step"] += steps
            now["flops"] += steps * self._step_flops()
            now["recent"] = self._recent(episodes)
            returns += episodes.returns.tolist()
            metric = self._metric()
            if metric is None and self.net.rules.planned:
                metric = 0.0  # a plan goes by the steps, and does not wait for the first episodes to end
            happened = [] if metric is None else self.net.end_epoch(metric, now["epoch"] / config.epochs)
            happened += self._planned()
            if happened:
                self.learner.rebind(self.net)
                events += [{"episodes": now["episodes"], **self.line(event)} for event in happened]
        validation, score = None, None
        if (now["round"] + 1) % config.learner.validate_every == 0 or self.over:
            self.check_finite(None)  # before it is evaluated
            validation = self._validate()
            score = [validation["success"], -(validation["mean_steps"] or self.world.max_steps)]
        recent = now["recent"]
        metrics = {
            "epoch": now["epoch"],
            "episodes": now["episodes"],
            "success": float(np.mean([success for success, _ in recent])) if recent else None,
            "spl": float(np.mean([spl for _, spl in recent])) if recent else None,
            "validation": validation,
            "return": float(np.mean(returns)) if returns else None,
        }
        if validation is not None:
            metrics["plasticity"] = [layer.to_json() for layer in plasticity(self.net.model, self._probe)]
        return Round(metrics, score, events=events)

    def _step_flops(self) -> float:
        epochs = getattr(self.config.learner, "update_epochs", 1)
        return step_flops(self.net.model, epochs, self.net.frozen)

    def policy(self) -> NetworkPolicy:
        """The current navigator."""
        learner, network = self.config.learner, self.learner.network
        if self.learner.average is not None:
            network = network.with_values(self.learner.average.values)
        return NetworkPolicy(network, learner.observation, learner.acting, self.world, self.config.without)

    def _recent(self, episodes: Episodes) -> list[list[Any]]:
        """Success and SPL of the latest episodes, oldest first.

        All lanes begin at once and the first episodes to end are the fast ones, so none counts before every lane has
        had the time for a whole one.
        """
        learner, longest = self.config.learner, self.world.max_steps + 1
        lived = self.progress["epoch"] * (longest if isinstance(learner, online.Settings) else learner.horizon)
        if lived <= self.world.max_steps:
            return []
        outcomes = zip(episodes.success.tolist(), episodes.spl.tolist(), strict=True)
        return [*self.progress["recent"], *map(list, outcomes)][-RECENT:]

    def _metric(self) -> float | None:
        """The metric of growth: SPL of the recent episodes; online, as in the paper, success of the last validation.

        None while there is none; GPF's epochs begin with the first.
        """
        if isinstance(self.config.learner, online.Settings):
            return None if self.progress["validation"] is None else float(self.progress["validation"]["success"])
        recent = self.progress["recent"]
        return float(np.mean([spl for _, spl in recent])) if len(recent) == RECENT else None

    def _planned(self) -> list[Event]:
        """Do what the plan has for the epoch that has ended."""
        due = self._plan.get(self.progress["epoch"], [])
        return [self.net.grow("planned") if keep is None else self.net.prune("planned", keep) for keep in due]

    def _validate(self) -> dict[str, Any]:
        """How the navigator does on episodes that it does not learn from, but that choices may be made on."""
        first_seed = VALIDATION + self.config.seed * BLOCK
        episodes = self.config.learner.validation_episodes
        summary = evaluate(self.policy(), self.world, episodes, first_seed, threads=self.threads).summary()
        self.progress["validation"] = {name: summary[name] for name in ("success", "mean_steps", "spl")}
        return self.progress["validation"]

    def about(self) -> dict[str, Any]:
        """The description of the navigator, and the average of its weights that acts."""
        learner = self.config.learner
        about: dict[str, Any] = {"learner": learner.NAME}
        about |= {name: getattr(learner, name) for name in ("observation", "acting", "reward")}
        if self.learner.average is not None:
            about["average"] = torch.from_numpy(self.learner.average.values)
        return about

    def state(self) -> dict[str, Any]:
        """The state of the learner."""
        return {f"learner/{name}": tensor for name, tensor in as_bytes(self.learner.state()).items()}

    def finish(self, phase: Phase) -> dict[str, Any]:
        """The last checkpoint on held-out episodes; the best one as well, where it had been far better."""
        learner = self.config.learner
        validation = {"last": self.progress["validation"]["success"], "best": self.progress["best"][0]}
        regressed = has_regressed(validation["last"], validation["best"], learner.validation_episodes)
        result: dict[str, Any] = {"acting": learner.acting, "validation": validation, "regressed": regressed}
        if not self.config.evaluate:
            return {**result, **dict.fromkeys(REPORTED), "episodes": 0}
        last = self._held_out("last", phase)
        last.save(self.run.folder / "held_out.npz")
        result |= {key: last.summary()[key] for key in REPORTED}
        if regressed:
            best = self._held_out("best", phase).summary()
            result["best"] = {key: best[key] for key in REPORTED}
        return result

    def _held_out(self, checkpoint: CheckpointName, phase: Phase) -> Evaluation:
        advance = phase("evaluation" if checkpoint == "last" else "best checkpoint", self.config.evaluate)
        return load_navigator(self.run.folder, checkpoint).evaluate(
            self.config.evaluate, threads=self.threads, paths=PATHS, progress=lambda done, found: advance(done)
        )


def step_flops(model: nn.Module, update_epochs: int, frozen: Collection[int] = ()) -> float:
    """FLOPs of an environment step: the network acts once, and learns from it once in every epoch over the rollout."""
    weights = [parameter.numel() for parameter in model.parameters() if parameter.dim() > 1]
    return 2.0 * sum(weights) + update_epochs * gradient_flops(weights, frozen)


def has_regressed(last: float, best: float, episodes: int) -> bool:
    """Whether the last validation is far below the best one, beyond chance: the best is the maximum of many.

    Args:
        last: Share of the episodes of the last validation in which the source was found.
        best: The same of the best of all validations.
        episodes: Of each validation.
    """
    mean = (last + best) / 2.0
    deviation = math.sqrt(2.0 * mean * (1.0 - mean) / episodes)
    return best - last > max(0.02, 4.0 * deviation)


def _about(config: Config) -> dict[str, Any]:
    world = Scenario.of(config.scenario)
    config.rewarded(world)  # what is refused leaves no folder behind
    return {"world": json.loads(world.to_json())}


def _line(metrics: dict[str, Any]) -> str:
    success = "-" if metrics["success"] is None else f"{metrics['success']:.1%}"
    return (
        f"success {success}, depth {metrics['depth']}, {metrics['density']:.0%} dense,"
        f" {metrics['steps_per_second'] / 1000:,.0f}k steps/s"
    )


def _result_line(result: dict[str, Any]) -> str:
    success = result["validation"]["last"] if result["success"] is None else result["success"]
    return f"success {success:.2%}, depth {result['depth']}, density {result['density']:.3f}"


def _metric_name(config: Config) -> str:
    if isinstance(config.learner, online.Settings):
        return "success rate of the last validation"
    return f"SPL of the last {RECENT} training episodes"


def _report(folder: Path, tell: Tell) -> Path:
    from gpf.tasks.plume_report import write_report

    return write_report(folder, tell)


def _show(result: dict[str, Any]) -> None:
    from gpf.tasks.plume_result import show_result

    show_result(result)


TASK = Task(
    name="plume",
    reference=f"{__name__}:TASK",
    title="Find the source of a smell",
    make=Config.of,
    training=PlumeTraining,
    length=lambda config: (config.epochs, "epoch"),
    length_setting=lambda config: "episodes" if isinstance(config.learner, online.Settings) else "steps",
    about=_about,
    describe=_line,
    describe_result=_result_line,
    metric=_metric_name,
    report=_report,
    show=_show,
    decisive=("learner", "observation", "reward"),
    choices={
        "learner": (
            tuple(LEARNERS),
            "Who learns: policy-gradient (PPO), recurrent (PPO with a memory that it learns), parallel (Expected SARSA"
            " in many lanes) or online (the paper's protocol), each with settings of its own.",
        )
    },
    unit="step",
    network=make_model,
)


def train(folder: str | Path | None = None, *, threads: int | None = None, **settings: Any) -> Navigator:
    """Train a navigator, and return it; everything about it is in its run's folder. `gpf report` writes its report.

    Args:
        folder: Of the run, which must be new; None for runs/plume-1, runs/plume-2 and so on.
        threads: To step worlds with; None for one per core. The result is the same.
        **settings: Those of `gpf train`, such as `learner`, `scenario`, `seed` or `steps`.
    """
    check_threads(threads)
    place = next_folder(Path("runs"), TASK.name) if folder is None else Path(folder)
    run = TASK.create(place, TASK.of(settings))
    train_shown(TASK, run, threads)
    return load_navigator(place)

"""Train a navigator that finds the source of a smell.

Three learners share one loop, one kind of network and one kind of run folder. An agent with and one without GPF differ
in nothing but `Rules`: those of the second let nothing happen.
"""

import dataclasses
import json
import shlex
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpf.navigation.acting import NetworkPolicy
from gpf.navigation.agents import (
    Navigator,
    as_bytes,
    from_bytes,
    load_navigator,
    load_network,
    make_learner,
    make_network,
    read_run_config,
)
from gpf.navigation.config import Config, network_rules, planned_events
from gpf.navigation.evaluate import BLOCK, HELD_OUT, VALIDATION, Evaluation, evaluate
from gpf.navigation.rollouts import Episodes, probe_inputs
from gpf.network import Rules
from gpf.network.events import Event
from gpf.plume.scenario import Scenario
from gpf.runs.folder import Run, RunError, read_config, read_log, write_json
from gpf.spectra.plasticity import plasticity
from gpf.spectra.recorder import Recorder, write_snapshot
from gpf.tasks.loop import Report, train_to_the_end, versions

EPOCHS_IN_A_ROUND = {"policy-gradient": 8, "parallel": 8, "online": 100}
"""After a round there are a line of metrics and a checkpoint; a killed run loses no more than one."""
ROUNDS_BETWEEN_VALIDATIONS = {"policy-gradient": 10, "parallel": 15, "online": 5}
VALIDATION_EPISODES = {"policy-gradient": 500, "parallel": 500, "online": 200}
RECENT = 500
"""Training episodes over which success and SPL are averaged."""

EPISODES = 2000
"""Held-out episodes on which a trained navigator is reported."""
PATHS = 200
"""Successful, and failed, episodes whose trajectories its figure shows."""


class Training:
    """A run in the making. What is not in the network, the learner or `progress` does not outlive a round."""

    def __init__(self, run: Run, threads: int | None = None) -> None:
        self.run, self.threads = run, threads
        self.config, self.world = read_run_config(run.folder)
        self._plan = planned_events(self.config.plan)
        last = run.checkpoint("last")
        self.progress: dict[str, Any] = {
            "round": 0, "epoch": 0, "steps": 0, "episodes": 0, "seconds": 0.0,
            "recent": [], "validation": None, "best": None,
        }  # fmt: skip
        if (last / "manifest.json").exists():
            self.net = load_network(last, self.config, restore_random=True)
            self.learner = make_learner(self.config, self.world, self.net, threads)
            self._restore(last)
        else:
            self._check_unbegun()
            self.net = make_network(self.config)
            self.learner = make_learner(self.config, self.world, self.net, threads)
        run.drop_after(self.progress["round"])
        self.net.watchers.append(Recorder(partial(write_snapshot, run.folder / "spectra")))
        self._probe = torch.from_numpy(probe_inputs(self.world, vars(self.config)["observation"], self.config.without))

    def _restore(self, checkpoint: Path) -> None:
        """Go on from what the checkpoint says beside the network."""
        extra, state = self.net.extra, self.learner.state()
        try:
            self.learner.restore(from_bytes({name: extra[f"learner/{name}"] for name in state}, state))
            self.progress = {name: extra["progress"][name] for name in self.progress}
        except (KeyError, ValueError, TypeError) as error:
            raise RunError(
                f"run: {checkpoint} does not fit its run ({type(error).__name__}: {error});"
                " accepted: the last checkpoint, as this run wrote it"
            ) from None

    def _check_unbegun(self) -> None:
        """Refuse to begin anew where there is more than a killed first round can have left."""
        later = [line for line in read_log(self.run.folder, "metrics") if line["round"] > 1]
        if later or (self.run.folder / "result.json").exists():
            raise RunError(f"run: {self.run.checkpoint('last')} is missing; accepted: a run with its last checkpoint")

    @property
    def over(self) -> bool:
        """Whether there is nothing left to learn."""
        return bool(self.progress["epoch"] >= self.config.epochs)

    def round(self) -> dict[str, Any]:
        """Learn for one round, write its lines and its checkpoint, and return its metrics."""
        config, now, started = self.config, self.progress, time.perf_counter()
        events: list[dict[str, Any]] = []
        returns: list[float] = []
        steps_before, seconds_before = now["steps"], now["seconds"]
        for _ in range(min(EPOCHS_IN_A_ROUND[config.learner], config.epochs - now["epoch"])):
            episodes = self.learner.epoch(now["epoch"] / config.epochs)
            now["epoch"] += 1
            now["episodes"] += len(episodes.success)
            now["steps"] += self._steps_of(episodes)
            now["recent"] = self._recent(episodes)
            returns += episodes.returns.tolist()
            metric = self._metric()
            happened = [] if metric is None else self.net.end_epoch(metric)
            happened += self._planned()
            if happened:
                self.learner.rebind(self.net)
                when = {"round": now["round"] + 1, "steps": now["steps"], "episodes": now["episodes"]}
                events += [{**when, **event.to_json()} for event in happened]
        now["round"] += 1
        self._check_finite()
        due = now["round"] % ROUNDS_BETWEEN_VALIDATIONS[config.learner] == 0 or self.over
        validation = self._validate() if due else None
        now["seconds"] += time.perf_counter() - started
        metrics = {**self._metrics(validation), "return": float(np.mean(returns)) if returns else None}
        if validation is not None:
            metrics["plasticity"] = [layer.to_json() for layer in plasticity(self.net.model, self._probe)]
        metrics["steps_per_second"] = (now["steps"] - steps_before) / (now["seconds"] - seconds_before)
        self.run.append("metrics", [metrics])
        self.run.append("events", events)
        if validation is not None and self._is_best(validation):
            self.net.save(self.run.checkpoint("best"), optimizer=False, extra=self._about())
        self.net.save(self.run.checkpoint("last"), extra={**self._about(), **self._state()})
        return metrics

    def policy(self) -> NetworkPolicy:
        """The navigator as it is now."""
        values = vars(self.config)
        network = self.learner.network
        if self.learner.average is not None:
            network = network.with_values(self.learner.average.values)
        return NetworkPolicy(network, values["observation"], values["acting"], self.world, self.config.without)

    def _steps_of(self, episodes: Episodes) -> int:
        values = vars(self.config)
        if self.config.learner == "online":
            return int(episodes.steps.sum())
        return int(values["lanes"] * values["horizon"])

    def _recent(self, episodes: Episodes) -> list[tuple[bool, float]]:
        """Success and SPL of the latest episodes, oldest first.

        All lanes begin at once and the first episodes to end are the fast ones, so that none counts before every lane
        has had the time for a whole one.
        """
        lived = self.progress["epoch"] * (self.config.horizon or self.world.max_steps + 1)
        if lived <= self.world.max_steps:
            return []
        outcomes = zip(episodes.success.tolist(), episodes.spl.tolist(), strict=True)
        return [*self.progress["recent"], *outcomes][-RECENT:]

    def _metric(self) -> float | None:
        """What growth looks at: SPL of the recent episodes; online, as in the paper, success of the last validation.

        None while there is none; GPF's epochs begin with the first.
        """
        if self.config.learner == "online":
            return None if self.progress["validation"] is None else float(self.progress["validation"]["success"])
        recent = self.progress["recent"]
        return float(np.mean([spl for _, spl in recent])) if len(recent) == RECENT else None

    def _planned(self) -> list[Event]:
        """Do what the plan has for the epoch that has ended."""
        due = self._plan.get(self.progress["epoch"], [])
        return [self.net.grow("planned") if keep is None else self.net.prune("planned", keep) for keep in due]

    def _check_finite(self) -> None:
        if not np.isfinite(self.learner.network.values).all():
            raise RuntimeError(
                f"learning_rate: {self.config.learning_rate}; the weights are no numbers any more after"
                f" {self.progress['steps']:,} steps; accepted: a lower one"
            )

    def _validate(self) -> dict[str, Any]:
        """How the navigator does on episodes that it does not learn from, but that choices may be made on."""
        episodes = VALIDATION_EPISODES[self.config.learner]
        result = evaluate(
            self.policy(), self.world, episodes, VALIDATION + self.config.seed * BLOCK, threads=self.threads
        )
        summary = result.summary()
        self.progress["validation"] = {name: summary[name] for name in ("success", "mean_steps", "spl")}
        return self.progress["validation"]

    def _is_best(self, validation: dict[str, Any]) -> bool:
        rank = [validation["success"], -(validation["mean_steps"] or self.world.max_steps)]
        if self.progress["best"] is not None and rank <= self.progress["best"]:
            return False
        self.progress["best"] = rank
        return True

    def _metrics(self, validation: dict[str, Any] | None) -> dict[str, Any]:
        now, shape = self.progress, self.net.shape()
        recent = now["recent"]
        return {
            **{name: now[name] for name in ("round", "epoch", "steps", "episodes", "seconds")},
            "success": float(np.mean([success for success, _ in recent])) if recent else None,
            "spl": float(np.mean([spl for _, spl in recent])) if recent else None,
            "depth": shape.depth,
            "density": shape.density,
            "frozen": list(shape.frozen),
            "parameters": shape.parameters - shape.pruned,
            "validation": validation,
        }

    def _about(self) -> dict[str, Any]:
        """What a checkpoint says of itself."""
        about = {name: getattr(self.config, name) for name in ("learner", "observation", "acting", "reward")}
        about["progress"] = self.progress
        if self.learner.average is not None:
            about["average"] = torch.from_numpy(self.learner.average.values)
        return about

    def _state(self) -> dict[str, torch.Tensor]:
        return {f"learner/{name}": tensor for name, tensor in as_bytes(self.learner.state()).items()}


def create_run(folder: Path, config: Config) -> Run:
    """A new run folder for a configuration."""
    config = config.resolved()
    world = Scenario.of(config.scenario)
    values = vars(config)
    world.rewarded(values["reward"], values["discount"], values["loitering"])  # what is refused leaves no folder behind
    return Run.create(
        folder,
        {
            "task": "plume",
            "config": dataclasses.asdict(config),
            "rules": dataclasses.asdict(network_rules(config)),
            "world": json.loads(world.to_json()),
            "versions": versions(),
        },
    )


def same_run(folder: Path, config: Config) -> bool:
    """Whether a folder holds the run of a configuration: with its settings, its rules and its world."""
    config = config.resolved()
    (settings, world), rules = read_run_config(folder), read_config(folder)["rules"]
    known = {spec.name for spec in dataclasses.fields(Rules)}
    return (
        settings == config
        and world == Scenario.of(config.scenario)
        and rules.keys() <= known
        and Rules(**rules) == network_rules(config)
    )


def train(run: Run, threads: int | None = None, report: Report = lambda metrics: None) -> dict[str, Any]:
    """Train to the end, from wherever the run is; returns, and writes, its result.

    Ctrl-C ends the current round, saves, and raises `Interrupted`; a second one ends at once, and loses that round.
    """
    check_threads(threads)
    go_on = f"saved; go on with: gpf train --resume {shlex.quote(str(run.folder))}"
    return train_to_the_end(lambda: Training(run, threads), lambda _: finish(run, threads), report, go_on)


def check_threads(threads: int | None) -> None:
    """Refuse a number of threads that there cannot be."""
    if threads is not None and threads < 1:
        raise ValueError(f"threads: {threads}; accepted: at least 1")


def finish(run: Run, threads: int | None = None) -> dict[str, Any]:
    """Evaluate both checkpoints of a trained run on held-out episodes; write the result and the figures."""
    from gpf.navigation.figures import evaluation_figure, training_figure
    from gpf.reports.figures import save_figure

    config, _ = read_run_config(run.folder)
    results: dict[str, dict[str, Any]] = {}
    for name in ("last", "best"):
        results[name] = {}
        for acting in ("greedy", "sampled") if config.learner == "policy-gradient" else ("greedy",):
            navigator = load_navigator(run.folder, name, acting)
            stood_behind = name == "last" and acting == config.acting
            held_out = evaluate_held_out(navigator, EPISODES, threads, paths=PATHS if stood_behind else 0)
            results[name][acting] = held_out.summary()
            if stood_behind:
                shape, progress = navigator.net.shape(), navigator.net.extra["progress"]
                shown = held_out
    summary = results["last"][vars(config)["acting"]]
    result = {
        "run": str(run.folder),
        **{key: summary[key] for key in ("success", "low", "high", "mean_steps", "spl", "episodes")},
        "acting": config.acting,
        "depth": shape.depth,
        "density": shape.density,
        "frozen": list(shape.frozen),
        "parameters": shape.parameters - shape.pruned,
        "steps": progress["steps"],
        "seconds": progress["seconds"],
        "checkpoints": results,
    }
    rate = f"{summary['success']:.2%} [{summary['low']:.2%}, {summary['high']:.2%}] of {EPISODES:,} held-out episodes"
    title = f"{run.folder.name}, last checkpoint, {config.acting}: {rate}"
    save_figure(evaluation_figure(shown, title), run.folder / "figures" / "trajectories.png")
    save_figure(training_figure(run.folder), run.folder / "figures" / "training.png")
    write_json(run.folder / "result.json", result)
    return result


def evaluate_held_out(navigator: Navigator, episodes: int, threads: int | None = None, paths: int = 0) -> Evaluation:
    """A navigator in episodes that nothing was chosen on: those of its own seed's block."""
    first_seed = HELD_OUT + navigator.config.seed * BLOCK
    return evaluate(navigator.policy, navigator.scenario, episodes, first_seed, threads=threads, paths=paths)

"""Learn in a stream of worlds that changes without notice, with one of several methods.

All methods share the learner, its settings, the lanes and the stream; they differ in what they do to the network. A
run is a folder like any other: a line of metrics for every visit, a line for every event, checkpoints to go on from.
"""

import dataclasses
import shlex
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch

import gpf
from gpf.continual.methods import ContinualBackprop, L2Init, Method, OnlineEWC, ShrinkAndPerturb, linear_layers
from gpf.continual.recall import Recall, Settings
from gpf.navigation import parallel, policy_gradient
from gpf.navigation.acting import INPUTS
from gpf.navigation.agents import as_bytes, from_bytes
from gpf.navigation.evaluate import BLOCK
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.rollouts import Rollouts, probe_inputs
from gpf.network import MLP, Rules
from gpf.plume.regimes import Stream, preset, roomiest
from gpf.plume.scenario import ACTIONS, Scenario
from gpf.runs.folder import Run, RunError, read_config, read_log, write_json
from gpf.spectra.plasticity import plasticity
from gpf.tasks.loop import Report, train_to_the_end, versions

LearnerName = Literal["policy-gradient", "parallel"]
MethodName = Literal[
    "gpf",
    "depth-1",
    "depth-2",
    "depth-4",
    "continual-backprop",
    "l2-init",
    "shrink-and-perturb",
    "ewc",
    "reset",
    "one-each",
]
ORACLES: tuple[MethodName, ...] = ("reset", "one-each")
"""Methods that are told of every change: one begins anew, one has a network for each regime."""
FIXED: dict[str, int] = {"depth-1": 1, "depth-2": 2, "depth-4": 4}
"""Layers of the methods that are named after them."""
LAYERS: dict[LearnerName, int] = {"policy-gradient": 2, "parallel": 1}
"""Layers of all others; what suited each learner in first looks on another order."""
KEPT: dict[LearnerName, float] = {"policy-gradient": 0.25, "parallel": 0.6}
"""Share of the weights of what GPF puts away: a policy bears more pruning than values, of which the greatest acts."""

STRENGTHS: dict[LearnerName, dict[str, float]] = {
    "policy-gradient": {"l2-init": 1e-3, "shrink-and-perturb": 1e-3, "continual-backprop": 1e-5, "ewc": 1000.0},
    "parallel": {"l2-init": 1e-4, "shrink-and-perturb": 1e-5, "continual-backprop": 1e-5, "ewc": 10.0},
}
"""Of each method, the one with the greatest area among several, a factor of ten apart, on another order and seed."""

WIDTH = 64
LANES, HORIZON = 100, 40
DISCOUNT = 0.99
EXPLORATION = 0.1
EPOCHS_IN_A_ROUND = 24
POLICY_GRADIENT = policy_gradient.Settings(
    learning_rate=3e-3, discount=DISCOUNT, passes=3, minibatch=1000, entropy=0.01
)
VALUES = parallel.Settings(
    learning_rate=3e-3, discount=DISCOUNT, passes=3, minibatch=1000, averaging=0.0,
    exploration_start=EXPLORATION, exploration_end=EXPLORATION,
)  # fmt: skip
"""Rates are constant: nobody knows when the stream will end."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """Which method learns in which stream, and how."""

    stream: str = "returning"
    """A preset (gentle, harsh, returning), or a path to a .json file."""
    order: int = 0
    """Of the regimes in a preset: the seed that it is drawn with, the same for all runs that are compared."""
    method: MethodName = "gpf"
    learner: LearnerName = "policy-gradient"
    seed: int = 0
    """Of the network's first weights, the worlds and exploration."""
    episodes: int = 1000
    """Of each visit, in a preset."""
    visits: int | None = None
    """How many, in a preset; None for its own number."""
    grow: bool = True
    """Whether GPF grows new paths."""
    prune: bool = True
    """Whether GPF prunes what it puts away."""
    freeze: bool = True
    """Whether GPF keeps versions of the network, unchanged, for when their world returns."""

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Config":
        """A configuration from plain data."""
        return cls(**values)

    def resolved(self) -> "Config":
        """The same, checked."""
        for name, kind in (("method", MethodName), ("learner", LearnerName)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name}: {getattr(self, name)!r}; accepted: {', '.join(get_args(kind))}")
        if not 0 <= self.seed < BLOCK:
            raise ValueError(f"seed: {self.seed}; accepted: 0 to {BLOCK - 1}")
        if self.order < 0:
            raise ValueError(f"order: {self.order}; accepted: at least 0")
        if self.visits is not None and self.visits < 2:
            raise ValueError(f"visits: {self.visits}; accepted: at least 2, or nothing would change")
        for name in ("grow", "prune", "freeze"):
            if not getattr(self, name) and self.method != "gpf":
                raise ValueError(f"{name}: False; accepted: only with method gpf, not {self.method}")
        self.made_stream()
        return self

    def made_stream(self) -> Stream:
        """The stream that it names."""
        if self.stream.endswith(".json"):
            return Stream.of(Path(self.stream))
        return preset(self.stream, self.order, self.episodes, self.visits)


_NOBODY: dict[str, Any] = {name: [None] * LANES for name in ("first", "first_whole", "last")}


class Training:
    """A run in the making; only the network, the learner, the method and `progress` outlive a round."""

    def __init__(self, run: Run, threads: int | None = None) -> None:
        self.run = run
        self.config, self.stream = read_run(run.folder)
        self.progress: dict[str, Any] = {
            "round": 0, "steps": 0, "visit": 0, "seconds": 0.0,
            "ended": [], "found": [], "parameters": 0, "began": [0] * LANES, **_NOBODY,
        }  # fmt: skip
        last = run.checkpoint("last")
        going_on = (last / "manifest.json").exists()
        if going_on:
            self.net = gpf.load(last, build=lambda: self._fresh(self._depth), restore_random=True)
        else:
            torch.manual_seed(self.config.seed)
            model = self._fresh(self._depth)
            optimizer = torch.optim.Adam(model.parameters(), lr=self._rate, eps=1e-5, fused=True)
            self.net = gpf.attach(model, optimizer, rules=self._rules())
        self.learner = self._make_learner(threads)
        self.method, self.recall = self._make_method()
        self._tried: tuple[tuple[int, ...], list[FlatNetwork]] = (), []  # the trial by its first epoch and versions
        self._kept: dict[str, dict[str, torch.Tensor]] = {}  # the oracle's network of each regime
        if going_on:
            self._restore()
        run.drop_after(self.progress["round"])
        self._probe = torch.from_numpy(probe_inputs(self.stream.home, "memory"))
        self._enter(self.progress["visit"])

    @property
    def _rate(self) -> float:
        return POLICY_GRADIENT.learning_rate if self.config.learner == "policy-gradient" else VALUES.learning_rate

    @property
    def _depth(self) -> int:
        return FIXED.get(self.config.method, LAYERS[self.config.learner])

    def _fresh(self, depth: int) -> MLP:
        """A model that has learnt nothing."""
        shared = self.config.learner == "policy-gradient"
        model = MLP(INPUTS["memory"], WIDTH, len(ACTIONS) + shared, depth)
        if shared:
            policy_gradient.PolicyGradientLearner.prepare(model)
        return model

    def _rules(self) -> Rules:
        if self.config.method != "gpf":
            return Rules.fixed()
        # Recall sees drops, grows, prunes and freezes: whole versions, and not single layers.
        return Rules.continual(
            max_depth=self._depth, grow_patience=None, prune_patience=None, freeze_patience=None, drop=None
        )

    def _make_learner(self, threads: int | None) -> Any:
        room = roomiest([self.stream.scenario(visit.regime) for visit in self.stream.visits])
        model: Any = self.net.model
        rollouts = Rollouts(
            LANES, HORIZON, self._rewarded(room), "memory", model.head.out_features, self.config.seed, threads or 1
        )
        if self.config.learner == "policy-gradient":
            return policy_gradient.PolicyGradientLearner(model, self.net.optimizer, rollouts, POLICY_GRADIENT)
        return parallel.ParallelLearner(model, self.net.optimizer, rollouts, VALUES)

    def _rewarded(self, scenario: Scenario) -> Scenario:
        return scenario.rewarded("search", DISCOUNT, 0.0)

    def _make_method(self) -> tuple[Method | None, Recall | None]:
        model: Any = self.net.model
        optimizer, seed = self.net.optimizer, self.config.seed
        strength = STRENGTHS[self.config.learner].get(self.config.method, 0.0)
        match self.config.method:
            case "gpf":
                settings = Settings(
                    keep=KEPT[self.config.learner] if self.config.prune else 1.0,
                    budget=sum(p.numel() for p in self._fresh_without_drawing(4).parameters()),
                    grow=self.config.grow,
                    freeze=self.config.freeze,
                )
                return None, Recall(self.net, self._fresh, settings)
            case "continual-backprop":
                return ContinualBackprop(model, optimizer, linear_layers(model), strength, seed=seed), None
            case "l2-init":
                return L2Init(model, optimizer, strength), None
            case "shrink-and-perturb":
                return ShrinkAndPerturb(model, optimizer, strength, strength, seed), None
            case "ewc":
                return OnlineEWC(model, optimizer, strength), None
        return None, None

    def _fresh_without_drawing(self, depth: int) -> MLP:
        with torch.random.fork_rng():
            return self._fresh(depth)

    def _restore(self) -> None:
        """Go on from what the checkpoint says beside the network."""
        extra, state = self.net.extra, self.learner.state()
        try:
            self.learner.restore(from_bytes({name: extra[f"learner/{name}"] for name in state}, state))
            self.progress = {name: extra["progress"][name] for name in self.progress}
            if self.method:
                self.method.restore(_with_prefix(extra, "method/"))
            if self.recall:
                self.recall.restore(_with_prefix(extra, "recall/"), extra["recall"])
            self._kept = {
                regime: _with_prefix(extra, f"kept/{number}/") for number, regime in enumerate(extra["regimes"])
            }
        except (KeyError, ValueError, TypeError) as error:
            raise RunError(
                f"run: {self.run.checkpoint('last')} does not fit its run ({type(error).__name__}: {error});"
                " accepted: the last checkpoint, as this run wrote it"
            ) from None

    @property
    def over(self) -> bool:
        """Whether the stream has ended."""
        return bool(self.progress["visit"] >= len(self.stream.visits))

    def round(self) -> dict[str, Any]:
        """Learn for one round, write what happened in it and its checkpoint."""
        now, started = self.progress, time.perf_counter()
        now["round"] += 1
        visits: list[dict[str, Any]] = []
        events: list[dict[str, Any]] = []
        for _ in range(EPOCHS_IN_A_ROUND):
            happened = self._epoch()
            events += [
                {
                    **{name: now[name] for name in ("round", "steps", "visit")},
                    "episodes": sum(now["ended"]), "parameters": self._parameters(), "depth": self.net.depth, **event,
                }
                for event in happened
            ]  # fmt: skip
            visit = self.stream.visits[now["visit"]]
            if sum(now["ended"]) >= visit.episodes:
                visits.append(self._visit_line(now["seconds"] + time.perf_counter() - started))
                now.update(visit=now["visit"] + 1, ended=[], found=[], parameters=0, **_NOBODY)
                if self.over:
                    break
                self._leave(now["visit"])
                self._enter(now["visit"])
            elif visit.gradual:
                self._enter(now["visit"])
        now["seconds"] += time.perf_counter() - started
        self._check_finite()
        self.run.append("metrics", visits)
        self.run.append("events", events)
        self.net.save(self.run.checkpoint("last"), extra=self._state())
        return {"visit": now["visit"], "steps": now["steps"], "seconds": now["seconds"]}

    def _epoch(self) -> list[dict[str, Any]]:
        """Walk all lanes through a rollout and learn from it, beside what is on trial; returns what happened."""
        now, rollouts, recall = self.progress, self.learner.rollouts, self.recall
        others = self._on_trial(recall) if recall and recall.trial else []
        self.learner.epoch(0.0, others)
        said: list[str] = []
        if recall and recall.trial:
            bounds = rollouts.bounds(len(others))
            by_network = np.add.reduceat(rollouts.successes.sum(axis=0), bounds[:-1])
            said = recall.after_trial(by_network.tolist(), (np.diff(bounds) * HORIZON).tolist())
        elif recall:
            said = recall.after_epoch(int(rollouts.successes.sum()), rollouts.steps)
        events = [{"kind": words.split()[0], "reason": words} for words in said]
        if events:
            self.learner.rebind(self.net)
        now["steps"] += rollouts.steps
        now["ended"].append(int(rollouts.ends.sum()))
        now["found"].append(int(rollouts.successes.sum()))
        now["parameters"] = max(now["parameters"], self._parameters())
        self._note_lanes()
        return events

    def _on_trial(self, recall: Recall) -> list[FlatNetwork]:
        """The versions that are on trial; they do not change while it lasts."""
        key = recall.epoch - recall.trial.epochs, *recall.trial.candidates  # type: ignore[union-attr]
        if key != self._tried[0]:
            models: list[Any] = recall.others()
            self.learner.rebind(self.net)
            self._tried = key, [FlatNetwork(model) for model in models]
        return self._tried[1]

    def _note_lanes(self) -> None:
        """Remember each lane's first episode to end in this visit, and its first and latest that began here too."""
        now, rollouts = self.progress, self.learner.rollouts
        now.update({name: list(now[name]) for name in _NOBODY})
        for t, lane in np.argwhere(rollouts.ends).tolist():
            found = bool(rollouts.successes[t, lane])
            if now["first"][lane] is None:
                now["first"][lane] = found
            if now["began"][lane] == now["visit"]:
                if now["first_whole"][lane] is None:
                    now["first_whole"][lane] = found
                now["last"][lane] = found
            now["began"][lane] = now["visit"]

    def _enter(self, visit: int) -> None:
        """Let the world be that of a visit; lanes go on in the midst of their episodes."""
        if visit < len(self.stream.visits):
            done = sum(self.progress["ended"]) / self.stream.visits[visit].episodes
            self.learner.rollouts.world.set_scenario(self._rewarded(self.stream.at(visit, min(1.0, done))))

    def _leave(self, visit: int) -> None:
        """What the oracles do at a change, of which nobody else knows."""
        if self.config.method not in ORACLES:
            return
        before, after = (self.stream.visits[n].regime for n in (visit - 1, visit))
        weights = self._fresh(self.net.depth).state_dict()
        if self.config.method == "one-each":
            self._kept[before] = {name: tensor.detach().clone() for name, tensor in self._learnt().items()}
            weights = self._kept.get(after, weights)
        with torch.no_grad():
            for name, tensor in self._learnt().items():
                tensor.copy_(weights[name]) if name in weights else tensor.zero_()

    def _learnt(self) -> dict[str, torch.Tensor]:
        """The weights, and what the optimizer remembers of each."""
        found = dict(self.net.model.state_dict(keep_vars=True))
        for name, parameter in self.net.model.named_parameters():
            found |= {f"{name}/{key}": value for key, value in self.net.optimizer.state[parameter].items()}
        return found

    def _parameters(self) -> int:
        """Weights and biases that the method needs, kept ones included."""
        if self.recall:
            return self.recall.parameters
        others = self._kept.keys() - {
            self.stream.visits[min(self.progress["visit"], len(self.stream.visits) - 1)].regime
        }
        return self.net.count_parameters() * (1 + len(others))

    def _visit_line(self, seconds: float) -> dict[str, Any]:
        now = self.progress
        layers = plasticity(self.net.model, self._probe)[:-1]  # the head has no units to lose
        known = {name: [found for found in now[name] if found is not None] for name in _NOBODY}
        return {
            "round": now["round"], "visit": now["visit"], "regime": self.stream.visits[now["visit"]].regime,
            "ended": now["ended"], "found": now["found"],
            **{name: [sum(found), len(found)] for name, found in known.items()},
            "steps": now["steps"], "seconds": seconds, "depth": self.net.depth, "density": self.net.density,
            "parameters": now["parameters"],
            "flops": 2 * self.net.count_parameters(),
            "dead": float(np.mean([layer.dead for layer in layers])),
            "effective_rank": float(np.mean([layer.effective_rank for layer in layers])),
            "weight_magnitude": float(np.mean([layer.weight_magnitude for layer in layers])),
        }  # fmt: skip

    def _check_finite(self) -> None:
        if not np.isfinite(self.learner.network.values).all():
            raise RuntimeError(f"method: {self.config.method}; the weights are no numbers any more; accepted: another")

    def _state(self) -> dict[str, Any]:
        extra: dict[str, Any] = {f"learner/{n}": t for n, t in as_bytes(self.learner.state()).items()}
        extra["progress"] = self.progress
        if self.method:
            extra |= {f"method/{name}": tensor for name, tensor in self.method.state().items()}
        if self.recall:
            tensors, extra["recall"] = self.recall.state()
            extra |= {f"recall/{name}": tensor for name, tensor in tensors.items()}
        extra["regimes"] = list(self._kept)
        for number, weights in enumerate(self._kept.values()):
            extra |= {f"kept/{number}/{name}": tensor for name, tensor in weights.items()}
        return extra


def _with_prefix(extra: dict[str, Any], prefix: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in extra.items() if name.startswith(prefix)}


def read_run(folder: Path) -> tuple[Config, Stream]:
    """The configuration of a run in a stream, and that stream."""
    written = read_config(folder)
    try:
        return Config.of(written["config"]), Stream.of(written["stream"])
    except (KeyError, TypeError) as error:
        raise RunError(
            f"run: {folder / 'config.json'} is damaged ({type(error).__name__}: {error});"
            " accepted: that of a run in a stream, as gpf continual wrote it"
        ) from None


def same_run(folder: Path, config: Config) -> bool:
    """Whether a folder holds the run of a configuration, in the same stream."""
    return read_run(folder) == (config.resolved(), config.made_stream())  # streams are plain data


def create_run(folder: Path, config: Config) -> Run:
    """A new run folder for a configuration."""
    stream = config.resolved().made_stream()
    return Run.create(
        folder,
        {
            "task": "continual",
            "config": dataclasses.asdict(config),
            "stream": stream.to_json(),
            "versions": versions(),
        },
    )


def train(run: Run, threads: int | None = None, report: Report = lambda metrics: None) -> dict[str, Any]:
    """Live through the whole stream, from wherever the run is; returns, and writes, its result."""
    go_on = f"saved; go on with the same command ({shlex.quote(str(run.folder))})"
    return train_to_the_end(lambda: Training(run, threads), lambda _: finish(run), report, go_on)


def finish(run: Run) -> dict[str, Any]:
    """Write what a run amounts to."""
    lines = read_log(run.folder, "metrics")
    result = {
        "run": str(run.folder),
        "success": sum(sum(line["found"]) for line in lines) / sum(sum(line["ended"]) for line in lines),
        "depth": lines[-1]["depth"],
        "parameters": max(line["parameters"] for line in lines),
        "steps": lines[-1]["steps"],
        "seconds": lines[-1]["seconds"],
        "visits": lines,
    }
    write_json(run.folder / "result.json", result)
    return result

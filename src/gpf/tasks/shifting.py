"""Learn in a stream of worlds that changes without notice, with one of several methods.

All methods share the learner, its settings, the lanes and the stream; they differ in what they do to the network. A
run is a folder like any other: a line of metrics for every visit, a line for every event, checkpoints to resume from.
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer

from gpf.continual.decisions import Decision
from gpf.continual.methods import ContinualBackprop, L2Init, Method, OnlineEWC, ShrinkAndPerturb, linear_layers
from gpf.continual.recall import Recall, Settings
from gpf.continual.replay import Cloning, Replay, clone_policy, clone_values
from gpf.navigation import parallel, policy_gradient
from gpf.navigation.agents import as_bytes, from_bytes
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.inputs import INPUTS
from gpf.navigation.rollouts import Rollouts, probe_inputs
from gpf.navigation.seeds import BLOCK
from gpf.network import MLP, Rules
from gpf.plume.regimes import Stream, preset, roomiest
from gpf.plume.scenario import ACTIONS, Scenario
from gpf.runs.folder import Run, read_config, read_log
from gpf.runs.training import Phase, Round, Training
from gpf.settings import number
from gpf.spectra.plasticity import plasticity
from gpf.tasks.drifting import with_prefix
from gpf.tasks.task import Task, TaskConfig

LearnerName = Literal["policy-gradient", "parallel"]
MethodName = Literal[
    "gpf",
    "depth-1",
    "depth-2",
    "depth-4",
    "budget",
    "continual-backprop",
    "l2-init",
    "shrink-and-perturb",
    "ewc",
    "replay",
    "reset-on-drop",
    "reset",
    "one-each",
]
ORACLES: tuple[MethodName, ...] = ("reset", "one-each")
"""Methods that are notified of every change: one starts from scratch, one has a network for each regime."""
FIXED: dict[str, int] = {"depth-1": 1, "depth-2": 2, "depth-4": 4}
"""Layers of the methods that are named after them."""
BUDGET_DEPTH = 4
"""GPF may keep, in use and frozen together, as many parameters as a fixed network of this depth has."""
LAYERS: dict[LearnerName, int] = {"policy-gradient": 2, "parallel": 1}
"""Layers of all others, chosen for each learner on another order."""
KEPT: dict[LearnerName, float] = {"policy-gradient": 0.25, "parallel": 0.6}
"""Share of weights in a stored version: a policy tolerates more pruning than values, which act by their maximum."""
SOFTENED = 0.3
"""Factor of the logits of GPF's policy at a drop. Values act greedily, whatever their scale."""

STRENGTHS: dict[LearnerName, dict[str, float]] = {
    "policy-gradient": {
        "l2-init": 1e-3,
        "shrink-and-perturb": 1e-3,
        "continual-backprop": 1e-5,
        "ewc": 1000.0,
        "replay": 0.01,
    },
    "parallel": {"l2-init": 1e-4, "shrink-and-perturb": 1e-5, "continual-backprop": 1e-5, "ewc": 10.0, "replay": 1.0},
}
"""Of each method, the one with the greatest area among several, a factor of ten apart, on another order and seed."""

STORED, REPLAYED = 10_000, 500
"""Samples that replay stores, and replays in each gradient step, next to the minibatch of 1,000."""

WIDTH = 64
LANES, HORIZON = 100, 40
DISCOUNT = 0.99
EXPLORATION = 0.1
POLICY_GRADIENT = policy_gradient.Settings(
    learning_rate=3e-3, discount=DISCOUNT, update_epochs=3, minibatch=1000, entropy=0.01
)
VALUES = parallel.Settings(
    learning_rate=3e-3, discount=DISCOUNT, update_epochs=3, minibatch=1000, ema=0.0,
    exploration_start=EXPLORATION, exploration_end=EXPLORATION,
)  # fmt: skip
"""Rates are constant: the end of the stream is unknown."""


@dataclass(frozen=True, kw_only=True)
class Config(TaskConfig):
    """Which method learns in which stream, and how."""

    stream: str = "returning"
    """Stream of worlds: a preset (gentle, harsh, returning), or a path to a .json file of visits."""
    order: int = number(0, 0)
    """Seed of the order of the worlds, in a preset; the same for all runs that are compared."""
    method: MethodName = "gpf"
    """Method of continual learning; reset is a fresh learner in every visit, one-each a network for each world."""
    learner: LearnerName = "policy-gradient"
    """Learner: policy-gradient (PPO) or parallel (Expected SARSA)."""
    seed: int = number(0, 0, BLOCK - 1)
    """Seed of the initial weights, of the episodes and of exploration."""
    episodes: int = 1000
    """Episodes of each visit to a world, in a preset."""
    visits: int | None = number(None, 2)
    """Number of visits, in a preset; None for the preset's own."""
    grow: bool = True
    """Whether GPF grows."""
    prune: bool = True
    """Whether GPF prunes the versions of the network that it stores."""
    freeze: bool = True
    """Whether GPF stores frozen versions of the network, to reuse when their world returns."""
    soften: bool = True
    """Whether GPF makes its policy explore again when success drops; only with learner policy-gradient."""
    round_epochs: int = 24
    """Rollouts of a round, after which there are metrics and a checkpoint."""

    def check(self) -> None:
        """Refuse what cannot be."""
        super().check()
        for name in ("grow", "prune", "freeze", "soften"):
            if not getattr(self, name) and self.method != "gpf":
                raise ValueError(f"{name} can only be turned off with method gpf, not with {self.method}")
        if not self.soften and self.learner != "policy-gradient":
            raise ValueError(f"soften can only be turned off with learner policy-gradient, not with {self.learner}")
        self.made_stream()

    @property
    def depth(self) -> int:
        """Layers, at first and for GPF at most."""
        return FIXED.get(self.method, LAYERS[self.learner])

    def network_rules(self) -> Rules:
        """None of their own: `Recall` sees drops, grows, prunes and freezes, and that whole versions."""
        if self.method != "gpf":
            return Rules.fixed()
        return Rules.continual(
            max_depth=self.depth, grow_patience=None, prune_patience=None, freeze_patience=None, drop=None
        )

    def made_stream(self) -> Stream:
        """The stream that it names."""
        if self.stream.endswith(".json"):
            return Stream.of(Path(self.stream))
        return preset(self.stream, self.order, self.episodes, self.visits)


@torch.no_grad()
def soften(model: Any) -> None:
    """Make the policy of a network less sure, and leave its features and its value unchanged."""
    model.head.weight[: len(ACTIONS)] *= SOFTENED
    model.head.bias[: len(ACTIONS)] *= SOFTENED


_NOBODY: dict[str, Any] = {name: [None] * LANES for name in ("first", "first_whole", "last")}


class StreamTraining(Training[Config]):
    """A round is some rollouts, wherever in the stream; a visit that ends in it is part of its metrics."""

    method: Method | None
    recall: Recall | None

    def __init__(self, run: Run, config: Config, threads: int | None = None) -> None:
        self.stream: Stream = Stream.of(read_config(run.folder).get("stream", {}))
        super().__init__(run, config, threads)
        self._probe = torch.from_numpy(probe_inputs(self.stream.home, "memory"))
        self._enter(self.progress["visit"])

    def first_progress(self) -> dict[str, Any]:
        """The visit, and what has happened in it."""
        return {"visit": 0, "ended": [], "found": [], "most": 0, "began": [0] * LANES, **_NOBODY}

    def build(self) -> nn.Module:
        """The network as it is before it learns."""
        if self.config.method == "budget":
            return self._fresh(self.config.depth, self._widest(self.config.depth))
        return self._fresh(self.config.depth)

    def make_optimizer(self, model: nn.Module) -> Optimizer:
        """Adam."""
        settings = POLICY_GRADIENT if self.config.learner == "policy-gradient" else VALUES
        return torch.optim.Adam(model.parameters(), lr=settings.learning_rate, eps=1e-5, fused=True)

    def begin(self, extra: dict[str, Any] | None) -> None:
        """Make the learner and the method, and restore their state."""
        self.learner: Any = self._make_learner()
        self.method, self.recall = self._make_method()
        self._tried: tuple[tuple[int, ...], list[FlatNetwork]] = (), []  # the trial by its first epoch and versions
        self._kept: dict[str, dict[str, torch.Tensor]] = {}  # the oracle's network of each regime
        if extra is None:
            return
        state = self.learner.state()
        self.learner.restore(from_bytes({name: extra[f"learner/{name}"] for name in state}, state))
        if self.method:
            self.method.restore(with_prefix(extra, "method/"))
        if self.recall:
            self.recall.restore(with_prefix(extra, "recall/"), extra["recall"])
        self._kept = {regime: with_prefix(extra, f"kept/{n}/") for n, regime in enumerate(extra["regimes"])}

    def _fresh(self, depth: int, width: int = WIDTH) -> MLP:
        """A model that has learned nothing."""
        shared = self.config.learner == "policy-gradient"
        model = MLP(INPUTS["memory"], width, len(ACTIONS) + shared, depth)
        if shared:
            policy_gradient.PolicyGradientLearner.prepare(model)
        return model

    def _make_learner(self) -> Any:
        room = roomiest([self.stream.scenario(visit.regime) for visit in self.stream.visits])
        model: Any = self.net.model
        rollouts = Rollouts(
            LANES, HORIZON, self._rewarded(room), "memory", model.head.out_features, self.config.seed, self.threads or 1
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
                    budget=self._size(BUDGET_DEPTH),
                    grow=self.config.grow,
                    freeze=self.config.freeze,
                )
                policy = self.config.learner == "policy-gradient"
                return None, Recall(self.net, self._fresh, settings, soften if policy and self.config.soften else None)
            case "reset-on-drop":
                return None, Recall(self.net, self._fresh, Settings(renew=True))
            case "continual-backprop":
                return ContinualBackprop(model, optimizer, linear_layers(model), strength, seed=seed), None
            case "l2-init":
                return L2Init(model, optimizer, strength), None
            case "shrink-and-perturb":
                return ShrinkAndPerturb(model, optimizer, strength, strength, seed), None
            case "ewc":
                return OnlineEWC(model, optimizer, strength), None
            case "replay":
                return self._make_replay(model, strength), None
        return None, None

    def _make_replay(self, model: Any, strength: float) -> Replay:
        """Experience replay, whose loss weighs values, and is clipped, as the learner's own."""
        if self.config.learner == "policy-gradient":
            cloning: Cloning = partial(clone_policy, value_weight=POLICY_GRADIENT.value_weight)
            clip = POLICY_GRADIENT.gradient_clip
        else:
            cloning, clip = clone_values, VALUES.gradient_clip
        sizes = INPUTS["memory"], model.head.out_features
        return Replay(
            model, self.net.optimizer, sizes, cloning, strength, clip, STORED, REPLAYED, self.config.seed
        )  # fmt: skip

    def _size(self, depth: int, width: int = WIDTH) -> int:
        """Parameters of a model; no random numbers are drawn."""
        with torch.device("meta"):
            return sum(p.numel() for p in self._fresh(depth, width).parameters())

    def _widest(self, depth: int) -> int:
        """The greatest width with which a model of this depth stays within GPF's budget."""
        budget, width = self._size(BUDGET_DEPTH), WIDTH
        while self._size(depth, width + 1) <= budget:
            width += 1
        return width

    @property
    def over(self) -> bool:
        """Whether the stream has ended."""
        return bool(self.progress["visit"] >= len(self.stream.visits))

    def learn(self) -> Round:
        """Some rollouts; the world may change between two of them."""
        now = self.progress
        visits: list[dict[str, Any]] = []
        events: list[dict[str, Any]] = []
        for _ in range(self.config.round_epochs):
            decisions = self._epoch()
            events += [
                {
                    "step": now["step"], "visit": now["visit"], "episodes": sum(now["ended"]),
                    "parameters": self._parameters(), "depth": self.net.depth, **decision.to_json(),
                }
                for decision in decisions
            ]  # fmt: skip
            visit = self.stream.visits[now["visit"]]
            if sum(now["ended"]) >= visit.episodes:
                visits.append(self._visit())
                now.update(visit=now["visit"] + 1, ended=[], found=[], most=0, **_NOBODY)
                if self.over:
                    break
                self._leave(now["visit"])
                self._enter(now["visit"])
            elif visit.gradual:
                self._enter(now["visit"])
        return Round({"visit": now["visit"], "visits": visits}, events=events)

    def _epoch(self) -> list[Decision]:
        """Walk all lanes through a rollout and learn from it, next to the versions on trial; returns what happened."""
        now, rollouts, recall = self.progress, self.learner.rollouts, self.recall
        others = self._on_trial(recall) if recall and recall.trial else []
        self.learner.epoch(0.0, others)
        decisions: list[Decision] = []
        if recall and recall.trial:
            bounds = rollouts.bounds(len(others))
            by_network = np.add.reduceat(rollouts.successes.sum(axis=0), bounds[:-1])
            decisions = recall.after_trial(by_network.tolist(), (np.diff(bounds) * HORIZON).tolist())
        elif recall:
            decisions = recall.after_epoch(int(rollouts.successes.sum()), rollouts.steps)
        if decisions:
            self.learner.rebind(self.net)
        if isinstance(self.method, Replay):
            inputs, outputs = (
                torch.from_numpy(part[:-1]).flatten(0, 1) for part in (rollouts.inputs, rollouts.outputs)
            )
            self.method.add(inputs, outputs)
        now["step"] += rollouts.steps
        now["ended"].append(int(rollouts.ends.sum()))
        now["found"].append(int(rollouts.successes.sum()))
        now["most"] = max(now["most"], self._parameters())
        self._note_lanes()
        return decisions

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
        """Let the world be that of a visit; lanes continue their current episodes."""
        if visit < len(self.stream.visits):
            done = sum(self.progress["ended"]) / self.stream.visits[visit].episodes
            self.learner.rollouts.world.set_scenario(self._rewarded(self.stream.at(visit, min(1.0, done))))

    def _leave(self, visit: int) -> None:
        """Changes of the oracles, which alone are notified of a change."""
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

    def _visit(self) -> dict[str, Any]:
        """The numbers of a visit at its end."""
        now = self.progress
        layers = plasticity(self.net.model, self._probe)[:-1]  # the head has no units to lose
        known = {name: [found for found in now[name] if found is not None] for name in _NOBODY}
        return {
            "visit": now["visit"], "regime": self.stream.visits[now["visit"]].regime,
            "ended": now["ended"], "found": now["found"],
            **{name: [sum(found), len(found)] for name, found in known.items()},
            "step": now["step"], "depth": self.net.depth, "density": self.net.density,
            "parameters": now["most"],
            "flops": 2 * self.net.count_parameters(),
            "dead": float(np.mean([layer.dead for layer in layers])),
            "effective_rank": float(np.mean([layer.effective_rank for layer in layers])),
            "weight_magnitude": float(np.mean([layer.weight_magnitude for layer in layers])),
        }  # fmt: skip

    def state(self) -> dict[str, Any]:
        """The state of the learner, the method and the oracle."""
        extra: dict[str, Any] = {f"learner/{n}": t for n, t in as_bytes(self.learner.state()).items()}
        if self.method:
            extra |= {f"method/{name}": tensor for name, tensor in self.method.state().items()}
        if self.recall:
            tensors, extra["recall"] = self.recall.state()
            extra |= {f"recall/{name}": tensor for name, tensor in tensors.items()}
        extra["regimes"] = list(self._kept)
        for n, weights in enumerate(self._kept.values()):
            extra |= {f"kept/{n}/{name}": tensor for name, tensor in weights.items()}
        return extra

    def finish(self, phase: Phase) -> dict[str, Any]:
        """Success over all episodes, the most parameters there were, and every visit."""
        visits = [visit for line in read_log(self.run.folder, "metrics") for visit in line["visits"]]
        return {
            "success": sum(sum(visit["found"]) for visit in visits) / sum(sum(visit["ended"]) for visit in visits),
            "depth": visits[-1]["depth"],
            "parameters": max(visit["parameters"] for visit in visits),
            "visits": visits,
        }


def _line(metrics: dict[str, Any]) -> str:
    return f"visit {metrics['visit']}, depth {metrics['depth']}, {metrics['steps_per_second']:,.0f} steps/s"


def _result_line(result: dict[str, Any]) -> str:
    return f"success {result['success']:.2%}, depth {result['depth']}"


TASK = Task(
    name="shifting",
    reference=f"{__name__}:TASK",
    title="Keep finding the source in worlds that change without notice",
    make=Config.of,
    training=StreamTraining,
    length=lambda config: (len(config.made_stream().visits), "visit"),
    about=lambda config: {"stream": config.made_stream().to_json()},
    describe=_line,
    describe_result=_result_line,
    variant_of=lambda config: config.method,
    unit="step",
    curves={
        "success in visits that ended": lambda line: _success(line["visits"]),
        "layers": lambda line: float(line["depth"]),
        "parameters that are not zero": lambda line: float(line["parameters"]),
    },
)


def _success(visits: list[dict[str, Any]]) -> float:
    ended = sum(sum(visit["ended"]) for visit in visits)
    return sum(sum(visit["found"]) for visit in visits) / ended if ended else float("nan")

"""Continual problems on which networks lose the ability to learn (Dohare et al. 2024), and methods that keep it.

Permuted MNIST: in each task the pixels are in another order. Slowly changing regression: in each task one of the slow
inputs of a fixed random function has flipped. Every sample is seen once, and counts before it is learned from.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gpf.continual.decisions import Decision
from gpf.continual.methods import ContinualBackprop, L2Init, Method, linear_layers
from gpf.continual.recall import Recall, Settings
from gpf.data import mnist
from gpf.network import MLP, Rules
from gpf.reports.tables import Measure
from gpf.runs.folder import Outcome, Run, read_log
from gpf.runs.training import Phase, Round
from gpf.spectra.plasticity import plasticity
from gpf.tasks.task import RoundTraining, Task, TaskConfig, of_result

ProblemName = Literal["permuted-mnist", "regression"]
MethodName = Literal["backprop", "continual-backprop", "l2-init", "reset-on-change", "gpf"]
TITLES: dict[MethodName, str] = {
    "backprop": "backprop", "continual-backprop": "continual backprop", "l2-init": "L2 to the first weights",
    "reset-on-change": "reset on detected change", "gpf": "GPF",
}  # fmt: skip
STRENGTHS: dict[ProblemName, dict[str, float]] = {
    "permuted-mnist": {"continual-backprop": 1e-3, "l2-init": 3e-3},
    "regression": {"continual-backprop": 1e-4, "l2-init": 1e-2},
}
"""Of each method, the best of several, a factor of three or ten apart, on another seed."""
CARRY = 0.25
"""Share of its weights that GPF carries from task to task; also from another seed."""
BATCHES_IN_AN_EPOCH = 10
"""Gradient steps after which GPF checks its success."""
DROP = 0.5
"""Share of its best accuracy below which the task is thought to have changed."""
PROBE = 500
"""Samples of a task on whose activations plasticity is measured, at its end."""


@dataclass(frozen=True, kw_only=True)
class Config(TaskConfig):
    """Which method learns which problem, and how."""

    problem: ProblemName = "permuted-mnist"
    """Problem to learn."""
    method: MethodName = "gpf"
    """How plasticity is kept: not at all (backprop), or by one of the others."""
    tasks: int = 50
    """Number of tasks, one after another."""
    samples: int = 10_000
    """Samples of each task."""
    batch: int = 16
    """Samples in a gradient step."""
    learning_rate: float = 1e-3
    """Learning rate of the optimizer."""
    strength: float | None = None
    """Strength of the method: share of units replaced per step (continual-backprop), or penalty weight (l2-init);
    None for the value tuned on another seed."""

    def network_rules(self) -> Rules:
        """Rules that change the network by themselves: in the regression, which has no rate of success to recall by."""
        if self.problem == "regression" and self.method == "gpf":
            return Rules.continual(mode="min", max_depth=3, grow_patience=5, prune_patience=5, freeze_patience=20)
        return dataclasses.replace(Rules.fixed(), mode="max" if self.problem == "permuted-mnist" else "min")

    def check(self) -> None:
        """Refuse what cannot be."""
        if self.problem == "regression" and self.method == "reset-on-change":
            raise ValueError("method reset-on-change is for permuted-mnist: a regression has no accuracy that drops")
        if self.strength is not None and self.method not in STRENGTHS[self.problem]:
            raise ValueError(f"strength is not a setting of {self.method}, got {self.strength}")
        super().check()


class PermutedMNIST:
    """Digits whose pixels are in another order in each task."""

    inputs: ClassVar[int] = 784
    outputs: ClassVar[int] = 10
    width: ClassVar[int] = 100
    depth: ClassVar[int] = 3

    def __init__(self, seed: int, samples: int) -> None:
        (images, classes), _ = mnist()
        self._images, self._classes = torch.from_numpy(images), torch.from_numpy(classes)
        self._seed, self._samples = seed, samples

    def task(self, number: int) -> tuple[Tensor, Tensor]:
        """Samples of a task, and their classes."""
        random = np.random.default_rng((self._seed, number))
        order = torch.from_numpy(random.permutation(self.inputs))
        chosen = torch.from_numpy(random.permutation(len(self._images))[: self._samples])
        return self._images[chosen][:, order].float() / 255.0, self._classes[chosen]

    @staticmethod
    def losses(outputs: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and how each sample counts: whether it was known."""
        return functional.cross_entropy(outputs, wanted), outputs.detach().argmax(1) == wanted


class SlowRegression:
    """A fixed function of bits. Some are slow: one of them flips from task to task.

    The function is a layer of threshold units with weights of 1 and -1; a unit is on when more than a share of its
    weights agree with the bits.
    """

    inputs: ClassVar[int] = 21
    outputs: ClassVar[int] = 1
    width: ClassVar[int] = 5
    depth: ClassVar[int] = 1
    SLOW, UNITS, SHARE = 15, 100, 0.7

    def __init__(self, seed: int, samples: int) -> None:
        self._seed, self._samples = seed, samples
        random = np.random.default_rng((seed, 1))
        self._first = random.choice([-1.0, 1.0], (self.inputs, self.UNITS))
        self._last = random.choice([-1.0, 1.0], (self.UNITS, 1))
        self._threshold = self.inputs * self.SHARE - (self._first < 0).sum(0)

    def task(self, number: int) -> tuple[Tensor, Tensor]:
        """Samples of a task, and their values."""
        random = np.random.default_rng((self._seed, 2))
        slow = random.integers(2, size=self.SLOW)
        for flipped in random.integers(self.SLOW, size=number):
            slow[flipped] ^= 1
        bits = np.random.default_rng((self._seed, 3, number)).integers(2, size=(self._samples, self.inputs))
        bits[:, : self.SLOW], bits[:, -1] = slow, 1
        on = bits @ self._first > self._threshold
        return torch.from_numpy(bits).float(), torch.from_numpy(on @ self._last).float()

    @staticmethod
    def losses(outputs: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
        """The loss, and how each sample counts: its squared error."""
        errors = (outputs - wanted).square()
        return errors.mean(), errors.detach()[:, 0]


PROBLEMS: dict[ProblemName, type[PermutedMNIST] | type[SlowRegression]] = {
    "permuted-mnist": PermutedMNIST, "regression": SlowRegression,
}  # fmt: skip


class Training(RoundTraining[Config]):
    """A round is a task."""

    method: Method | None
    recall: Recall | None

    def __init__(self, run: Run, config: Config, threads: int | None = None) -> None:
        self.problem: PermutedMNIST | SlowRegression = PROBLEMS[config.problem](config.seed, config.samples)
        super().__init__(run, config)

    def begin(self, extra: dict[str, Any] | None) -> None:
        """Make the method, and let it remember."""
        self.method, self.recall = self._make_method()
        if self.method and extra is not None:
            self.method.restore(with_prefix(extra, "method/"))
        if self.recall and extra is not None:
            self.recall.restore(with_prefix(extra, "recall/"), extra["recall"])

    def build(self) -> MLP:
        """The network as it is before it learns."""
        return self._fresh(self.problem.depth)

    def _fresh(self, depth: int) -> MLP:
        return MLP(self.problem.inputs, self.problem.width, self.problem.outputs, depth)

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(model.parameters(), lr=self.config.learning_rate, fused=True)

    def _make_method(self) -> tuple[Method | None, Recall | None]:
        model: Any = self.net.model
        optimizer, config = self.net.optimizer, self.config
        strength = STRENGTHS[config.problem].get(config.method, 0.0) if config.strength is None else config.strength
        match config.method:
            case "continual-backprop":
                return ContinualBackprop(model, optimizer, linear_layers(model), strength, seed=config.seed), None
            case "l2-init":
                return L2Init(model, optimizer, strength), None
            case "gpf" if config.problem == "permuted-mnist":
                budget = sum(p.numel() for p in model.parameters())
                return None, Recall(self.net, self._fresh, Settings(drop=DROP, carry=CARRY, budget=budget))
            case "reset-on-change":
                return None, Recall(self.net, self._fresh, Settings(drop=DROP, renew=True))
        return None, None

    @property
    def over(self) -> bool:
        """Whether all tasks are over."""
        return bool(self.progress["round"] >= self.config.tasks)

    def learn(self) -> Round:
        """One pass over a task."""
        now, model, optimizer = self.progress, self.net.model, self.net.optimizer
        inputs, wanted = self.problem.task(now["round"])
        counted, decisions = [], list[Decision]()
        model.train()
        for epoch in torch.arange(len(inputs)).split(self.config.batch * BATCHES_IN_AN_EPOCH):
            others = self.recall.others() if self.recall and self.recall.trial else []
            known = []
            for batch in epoch.split(self.config.batch):
                loss, counts = self.problem.losses(model(inputs[batch]), wanted[batch])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                known.append(counts)
                now["step"] += 1
            counted += known
            if self.recall:
                hits = int(torch.cat(known).sum())
                decisions += self._take_note(self.recall, hits, others, inputs[epoch], wanted[epoch])
        score = float(torch.cat(counted).float().mean())
        found = plasticity(model, inputs[:PROBE]) if math.isfinite(score) and self.sound() else []
        measured = {
            "score": score,
            "plasticity": [layer.to_json() for layer in found],
            "decisions": [decision.to_json() for decision in decisions],
            "kept": self.recall.parameters if self.recall else self.net.count_parameters(),
        }
        return Round(measured, self.scored(score), score)

    def finish(self, phase: Phase) -> dict[str, Any]:
        """How samples counted on average, over all tasks, over the first ten and over the last."""
        scores = [line["score"] for line in read_log(self.run.folder, "metrics")]
        some = min(10, len(scores))
        return {
            "mean": float(np.mean(scores)),
            "first": float(np.mean(scores[:some])),
            "last": float(np.mean(scores[-some:])),
        }

    def _take_note(
        self, recall: Recall, hits: int, others: list[nn.Module], inputs: Tensor, wanted: Tensor
    ) -> list[Decision]:
        """Report the success of the network and of the versions on trial to `Recall`."""
        if recall.trial is None:
            return recall.after_epoch(hits, len(inputs))
        with torch.inference_mode():
            theirs = [int(self.problem.losses(other(inputs), wanted)[1].sum()) for other in others]
        return recall.after_trial([hits, *theirs], [len(inputs)] * (1 + len(theirs)))

    def state(self) -> dict[str, Any]:
        """The state of the method."""
        found: dict[str, Any] = {}
        if self.method:
            found |= {f"method/{name}": tensor for name, tensor in self.method.state().items()}
        if self.recall:
            tensors, found["recall"] = self.recall.state()
            found |= {f"recall/{name}": tensor for name, tensor in tensors.items()}
        return found


def with_prefix(extra: dict[str, Any], prefix: str) -> dict[str, Tensor]:
    """Those of a checkpoint's tensors whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in extra.items() if name.startswith(prefix)}


def _layer_mean(name: str) -> Callable[[dict[str, Any]], float]:
    """The mean over all layers except the last of a measure of plasticity."""

    def of(line: dict[str, Any]) -> float:
        return float(np.mean([layer[name] for layer in line["plasticity"][:-1]]))

    return of


def _last_tasks(of: Callable[[dict[str, Any]], float]) -> Callable[[Outcome], float]:
    return lambda outcome: float(np.mean([of(line) for line in outcome.lines[-10:]]))


def _variants(problem: ProblemName) -> dict[str, dict[str, Any]]:
    """The methods that a problem's page compares, by title."""
    return {
        title: {"method": method}
        for method, title in TITLES.items()
        if (problem, method) != ("regression", "reset-on-change")
    }


PLASTICITY: dict[str, Measure] = {
    name: Measure(title, better, form, _last_tasks(_layer_mean(name)))
    for name, title, better, form in (
        ("dead", "dead units, last ten tasks", -1, ".3f"),
        ("effective_rank", "effective rank", 0, ".1f"),
        ("weight_magnitude", "mean absolute weight", 0, ".3f"),
    )
}
CURVES: dict[str, Callable[[dict[str, Any]], float]] = {
    "dead units": _layer_mean("dead"),
    "effective rank": _layer_mean("effective_rank"),
    "mean absolute weight": _layer_mean("weight_magnitude"),
}


def _task(name: ProblemName, attribute: str, title: str, summary: str, what: str, better: int) -> Task[Config]:
    return Task(
        name=name,
        reference=f"{__name__}:{attribute}",
        title=title,
        summary=summary,
        make=Config.of,
        training=Training,
        length=lambda config: (config.tasks, "round"),
        length_setting=lambda config: "tasks",
        find_data=lambda config: mnist() if config.problem == "permuted-mnist" else None,
        preset={"problem": name},
        metric=lambda config: f"{what} of the last task",
        variants=_variants(name),
        variant_of=lambda config: TITLES[config.method],
        measures={
            **{
                key: Measure(f"{what}, {words}", better, ".4f", of_result(key))
                for key, words in (("mean", "all tasks"), ("first", "first ten"), ("last", "last ten"))
            },
            **PLASTICITY,
            "parameters": Measure(
                "parameters in use and kept", -1, ",.0f", lambda o: float(max(line["kept"] for line in o.lines))
            ),
        },
        curves={what: lambda line: float(line["score"]), **CURVES},
    )


PERMUTED_MNIST = _task(
    "permuted-mnist",
    "PERMUTED_MNIST",
    "Permuted MNIST: who can still learn after fifty tasks?",
    "784-100x3-10, Adam, rate 1e-3; 50 tasks of 10,000 images, batches of 16, each image seen once. Accuracy is"
    " online: before an image is learned from. GPF detects a change and carries a quarter of its weights"
    " into the next task; with room for one network it keeps no version, and its layers are three from the start.",
    "accuracy",
    1,
)
REGRESSION = _task(
    "regression",
    "REGRESSION",
    "Slowly changing regression",
    "21-5-1, Adam, rate 1e-3; one of 15 slow bits flips after every 10,000 samples, batches of 16, each seen once."
    " Errors are online: before a sample is learned from.",
    "squared error",
    -1,
)

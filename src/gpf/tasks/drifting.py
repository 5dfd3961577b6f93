"""Problems that change for ever, on which networks lose the ability to learn (Dohare et al. 2024), and who keeps it.

Permuted MNIST: in each task the pixels are in another order. Slowly changing regression: in each task one of the slow
inputs of a fixed random function has flipped. Every sample is seen once, and counts before it is learnt from.
"""

import dataclasses
import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gpf.continual.methods import ContinualBackprop, L2Init, Method, linear_layers
from gpf.continual.recall import Recall, Settings
from gpf.data import mnist
from gpf.network import MLP, Rules
from gpf.runs.folder import Run, read_log
from gpf.spectra.plasticity import plasticity
from gpf.tasks.loop import Report
from gpf.tasks.rounds import NetworkTraining, TaskConfig, read_task_config, train_run
from gpf.tasks.rounds import create_run as create_run
from gpf.tasks.rounds import same_run as same_run

ProblemName = Literal["permuted-mnist", "regression"]
MethodName = Literal["backprop", "continual-backprop", "l2-init", "gpf"]
TITLES: dict[MethodName, str] = {
    "backprop": "backprop", "continual-backprop": "continual backprop", "l2-init": "L2 to the first weights",
    "gpf": "GPF",
}  # fmt: skip
STRENGTHS: dict[ProblemName, dict[str, float]] = {
    "permuted-mnist": {"continual-backprop": 1e-3, "l2-init": 3e-3},
    "regression": {"continual-backprop": 1e-4, "l2-init": 1e-2},
}
"""Of each method, the best of several, a factor of three or ten apart, on another seed."""
CARRY = 0.25
"""Share of its weights that GPF carries from task to task; likewise."""
BATCHES_IN_AN_EPOCH = 10
"""Gradient steps after which GPF takes note of how it does."""
PROBE = 500
"""Samples of a task on whose activations plasticity is measured, at its end."""


@dataclass(frozen=True, kw_only=True)
class Config(TaskConfig):
    """Which method learns which problem, and how."""

    TASK: ClassVar[str] = "drifting"

    problem: ProblemName = "permuted-mnist"
    method: MethodName = "gpf"
    tasks: int = 50
    samples: int = 10_000
    """Of each task."""
    batch: int = 16
    learning_rate: float = 1e-3
    strength: float | None = None
    """Of continual backprop, the share of units that are replaced in a step; of L2 to the first weights, its weight.
    None for what did best on another seed."""

    @property
    def variant(self) -> str:
        """What learns."""
        return TITLES[self.method]

    @property
    def length(self) -> tuple[int, str]:
        """How long a run is."""
        return self.tasks, "round"

    def find_data(self) -> None:
        """The digits, which may have to be downloaded; the regression is made up."""
        if self.problem == "permuted-mnist":
            mnist()

    def network_rules(self) -> Rules:
        """What changes the network by itself: in the regression, where there is no rate of success to recall by."""
        if self.problem == "regression" and self.method == "gpf":
            return Rules.continual(mode="min", max_depth=3, grow_patience=5, prune_patience=5, freeze_patience=20)
        return dataclasses.replace(Rules.fixed(), mode="max" if self.problem == "permuted-mnist" else "min")

    def check(self) -> None:
        """Refuse what cannot be."""
        for name, kind in (("problem", ProblemName), ("method", MethodName)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name}: {getattr(self, name)!r}; accepted: {', '.join(get_args(kind))}")
        if self.strength is not None and self.method not in STRENGTHS[self.problem]:
            raise ValueError(f"strength: {self.strength}; accepted: none with {self.method}, which has no such thing")
        super().check()


class PermutedMNIST:
    """Digits whose pixels are in another order in each task."""

    inputs, outputs, width, depth = 784, 10, 100, 3

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
        """What is learnt from, and how each of the samples counts: whether it was known."""
        return functional.cross_entropy(outputs, wanted), outputs.detach().argmax(1) == wanted


class SlowRegression:
    """A fixed function of bits, of which some are slow: one of them flips from task to task.

    The function is a layer of threshold units with weights of 1 and -1; a unit is on when more than a share of its
    weights agree with the bits.
    """

    inputs, outputs, width, depth = 21, 1, 5, 1
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
        """What is learnt from, and how each of the samples counts: its squared error."""
        errors = (outputs - wanted).square()
        return errors.mean(), errors.detach()[:, 0]


PROBLEMS: dict[ProblemName, type[PermutedMNIST] | type[SlowRegression]] = {
    "permuted-mnist": PermutedMNIST, "regression": SlowRegression,
}  # fmt: skip


class Training(NetworkTraining):
    """A round is a task."""

    config: Config

    def __init__(self, run: Run) -> None:
        config = read_task_config(run.folder, Config)
        self.problem = PROBLEMS[config.problem](config.seed, config.samples)
        super().__init__(run, config)
        self.method, self.recall = self._make_method()
        extra = self.net.extra
        if self.method and extra:
            self.method.restore(_with_prefix(extra, "method/"))
        if self.recall and extra:
            self.recall.restore(_with_prefix(extra, "recall/"), extra["recall"])

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
                return None, Recall(self.net, self._fresh, Settings(drop=0.5, carry=CARRY, budget=budget))
        return None, None

    @property
    def over(self) -> bool:
        """Whether all tasks are over."""
        return bool(self.progress["round"] >= self.config.tasks)

    def learn(self) -> tuple[float, dict[str, Any]]:
        """One pass over a task."""
        now, model, optimizer = self.progress, self.net.model, self.net.optimizer
        inputs, wanted = self.problem.task(now["round"])
        counted, said = [], list[str]()
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
                said += self._take_note(self.recall, int(torch.cat(known).sum()), others, inputs[epoch], wanted[epoch])
        score = float(torch.cat(counted).float().mean())
        found = plasticity(model, inputs[:PROBE]) if math.isfinite(score) and self.sound() else []
        return score, {
            "score": score,
            "plasticity": [layer.to_json() for layer in found],
            "said": said,
            "kept": self.recall.parameters if self.recall else self.net.count_parameters(),
        }

    def _take_note(
        self, recall: Recall, hits: int, others: list[nn.Module], inputs: Tensor, wanted: Tensor
    ) -> list[str]:
        """Tell what watches over the network how it, and what is tried beside it, has done."""
        if recall.trial is None:
            return recall.after_epoch(hits, len(inputs))
        with torch.inference_mode():
            theirs = [int(self.problem.losses(other(inputs), wanted)[1].sum()) for other in others]
        return recall.after_trial([hits, *theirs], [len(inputs)] * (1 + len(theirs)))

    def extra(self) -> dict[str, Any]:
        """What the method remembers."""
        found: dict[str, Any] = {}
        if self.method:
            found |= {f"method/{name}": tensor for name, tensor in self.method.state().items()}
        if self.recall:
            tensors, found["recall"] = self.recall.state()
            found |= {f"recall/{name}": tensor for name, tensor in tensors.items()}
        return found


def _with_prefix(extra: dict[str, Any], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in extra.items() if name.startswith(prefix)}


def train(run: Run, threads: int | None = None, report: Report = lambda metrics: None) -> dict[str, Any]:
    """Train to the end, from wherever the run is; returns, and writes, its result."""
    return train_run(run, lambda: Training(run), partial(finish, run.folder), report)


def finish(folder: Path) -> dict[str, Any]:
    """What a run amounts to: how samples counted on average, over all tasks, over the first ten and over the last."""
    scores = [line["score"] for line in read_log(folder, "metrics")]
    some = min(10, len(scores))
    return {
        "mean": float(np.mean(scores)),
        "first": float(np.mean(scores[:some])),
        "last": float(np.mean(scores[-some:])),
    }

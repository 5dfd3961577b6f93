"""CIFAR-10 with a fully connected network: four layers from the start, or one that grows to four."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gpf.data import Images, cifar10
from gpf.network import MLP, GrowPruneFreeze, Rules
from gpf.runs.folder import Run, read_log
from gpf.tasks.loop import Report
from gpf.tasks.rounds import NetworkTraining, TwoVariants, gradient_flops, load_network, read_task_config, train_run
from gpf.tasks.rounds import create_run as create_run
from gpf.tasks.rounds import same_run as same_run

INPUTS, CLASSES = 3072, 10
AT_A_TIME = 1000
"""Images that are classified together where nothing is learnt."""


@dataclass(frozen=True, kw_only=True)
class Config(TwoVariants):
    """What network to train on CIFAR-10, and how; the values are the paper's."""

    TASK: ClassVar[str] = "cifar10"

    layers: int = 4
    """Hidden layers: of the baseline from the start, of the other at most."""
    width: int = 512
    """Units of each."""
    epochs: int = 30
    """Passes over the images."""
    batch: int = 128
    """Images in a gradient step, before the decay with the loss."""
    learning_rate: float = 1e-4
    images: int = 50_000
    """How many to learn from."""

    @property
    def length(self) -> tuple[int, str]:
        """How long a run is."""
        return self.epochs, "round"

    def find_data(self) -> None:
        """The images, which may have to be downloaded."""
        three_parts(self.images)

    def own_rules(self) -> Rules:
        """The paper's values for a classifier."""
        return Rules.classifier(max_depth=self.layers)


class Training(NetworkTraining):
    """A round is an epoch; the rules look at the loss on the validation images."""

    config: Config

    def __init__(self, run: Run) -> None:
        config = read_task_config(run.folder, Config)
        learnt, self._validation, self._test = three_parts(config.images)
        self._images, self._classes = (torch.from_numpy(part) for part in learnt)
        self._normalise = Normalisation(self._images)
        super().__init__(run, config)

    def build(self) -> MLP:
        """The network as it is before it learns."""
        return make_model(self.config)

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(model.parameters(), lr=self.config.learning_rate, fused=True)

    @property
    def over(self) -> bool:
        """Whether all epochs are over."""
        return bool(self.progress["round"] >= self.config.epochs)

    def learn(self) -> tuple[float, dict[str, Any]]:
        """One pass over the images, in an order of its own."""
        now, model, optimizer = self.progress, self.net.model, self.net.optimizer
        random = np.random.default_rng((self.config.seed, now["round"]))
        order = torch.from_numpy(random.permutation(len(self._images)))
        size = self.net.batch_size(self.config.batch, now.get("loss", float(np.log(CLASSES))))
        total = torch.zeros(())
        model.train()
        for batch in order.split(size):
            loss = functional.cross_entropy(model(self._normalise(self._images[batch])), self._classes[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(batch)
        layers = [weight.numel() for name, weight in model.named_parameters() if weight.dim() > 1]
        now["step"] += -(-len(order) // size)
        now["flops"] += len(order) * gradient_flops(layers, self.net.frozen)
        now["loss"] = float(total) / len(order)
        validation, test = (measure(model, self._normalise, part) for part in (self._validation, self._test))
        return validation["loss"], {
            "batch": size, "loss": now["loss"], "validation": validation, "test": test,
        }  # fmt: skip

    def extra(self) -> dict[str, Any]:
        """By what images are normalised."""
        return {"scale": self._normalise.scale, "shift": self._normalise.shift}


class Normalisation:
    """Bytes to numbers, of mean 0 and variance 1 in each colour of the images that it was made from."""

    def __init__(self, images: Tensor) -> None:
        planes = [images[:, part].double() for part in torch.arange(INPUTS).split(INPUTS // 3)]
        mean = torch.stack([plane.mean() for plane in planes]).repeat_interleave(INPUTS // 3)
        scale = torch.stack([1.0 / plane.std() for plane in planes]).repeat_interleave(INPUTS // 3)
        self.scale, self.shift = scale.float(), (-mean * scale).float()

    def __call__(self, images: Tensor) -> Tensor:
        """(n, 3072) bytes as numbers."""
        return torch.addcmul(self.shift, images.float(), self.scale)


def three_parts(images: int) -> tuple[Images, Images, Images]:
    """To learn from, to decide on, and to report: the training images, and halves of the test images."""
    (learnt, classes), (held_out, theirs) = cifar10()
    if images > len(learnt):
        raise ValueError(f"images: {images:,}; accepted: at most {len(learnt):,}")
    half = len(held_out) // 2
    return (learnt[:images], classes[:images]), (held_out[:half], theirs[:half]), (held_out[half:], theirs[half:])


def make_model(config: Config) -> MLP:
    """The network as it is before it learns."""
    return MLP(INPUTS, config.width, CLASSES, config.layers if config.baseline else 1)


@torch.inference_mode()
def measure(model: nn.Module, normalise: Normalisation, part: Images) -> dict[str, float]:
    """Loss and accuracy on some images."""
    model.eval()
    images, classes = (torch.from_numpy(values) for values in part)
    loss, hits = 0.0, 0
    for some, wanted in zip(images.split(AT_A_TIME), classes.split(AT_A_TIME), strict=True):
        logits = model(normalise(some))
        loss += float(functional.cross_entropy(logits, wanted, reduction="sum"))
        hits += int((logits.argmax(1) == wanted).sum())
    return {"loss": loss / len(images), "accuracy": hits / len(images)}


def train(run: Run, threads: int | None = None, report: Report = lambda metrics: None) -> dict[str, Any]:
    """Train to the end, from wherever the run is; returns, and writes, its result."""
    return train_run(run, lambda: Training(run), partial(finish, run.folder), report)


def finish(folder: Path) -> dict[str, Any]:
    """What a run amounts to: at the epoch that validation chose, and at the last one."""
    lines = read_log(folder, "metrics")
    best, last = min(lines, key=lambda line: line["validation"]["loss"]), lines[-1]
    most = max(lines, key=lambda line: line["validation"]["accuracy"])
    return {
        "best_epoch": best["round"],
        "validation": best["validation"],
        "test": best["test"],
        "accuracy": most["test"]["accuracy"],
        "most_accurate": {"epoch": most["round"], **most["test"], "parameters": most["parameters"]},
        "last": {"validation": last["validation"], "test": last["test"]},
    }


def load(folder: Path, checkpoint: str = "last") -> GrowPruneFreeze:
    """The network of a run."""
    return load_network(folder, partial(make_model, read_task_config(folder, Config)), checkpoint)

"""CIFAR-10 with a small residual network or the paper's MLP, of fixed depth or growing, at equal steps and FLOPs."""

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gpf import settings
from gpf.network import MLP, Rules, register_identity, zero_outputs
from gpf.reports.tables import Measure
from gpf.reports.verdicts import Claim
from gpf.runs.folder import Run
from gpf.tasks.cifar10 import AT_A_TIME, CLASSES, INPUTS, Normalisation, three_parts
from gpf.tasks.depths import (
    DEPTH_COSTS,
    FASTER,
    NARROW,
    PAPER,
    SMALLER,
    DepthConfig,
    DepthTraining,
    depth_variants,
    equal_compute_claim,
    faster_claims,
    smaller_claims,
)
from gpf.tasks.task import Outcomes, Task, gradient_flops, of_result

NetworkName = Literal["residual", "mlp"]
DEPTHS = (1, 2, 4)
"""Depths of the fixed networks on the page; the last one is that of the networks that grow."""
EQUAL_FLOPS = (2, 4)
"""Depths of those that also take as many FLOPs as `faster`."""
Splits = tuple[tuple[Tensor, Tensor], ...]
SIDE = 4
"""Width and height of the maps of features in the residual blocks."""
STEM = 16
"""Channels of the residual network's first convolution, on maps of 16 x 16."""


@dataclass(frozen=True, kw_only=True)
class Config(DepthConfig):
    """Network on CIFAR-10, and its training."""

    network: NetworkName = "residual"
    """The network: `residual`, convolutional, or `mlp`, the paper's 3072-512-...-10."""
    layers: int = settings.number(4, 1)
    steps: int = settings.number(800, 1)
    width: int = settings.number(64, 1)
    """Channels of the residual blocks, or units of a hidden layer."""
    hidden: int | None = settings.number(None, 1)
    """Channels between the two convolutions of a residual block; None for as many as `width`."""
    batch: int = settings.number(128, 1)
    weight_decay: float = settings.number(0.05, 0.0)
    round_steps: int = settings.number(50, 1)
    images: int = settings.number(50_000, 1, 50_000)
    """Number of training images."""

    def faster_rules(self) -> Rules:
        """An MLP's first layer has another shape than the others, and the stack cannot be copied."""
        return Rules.faster(self.layers, grow_init="identity" if self.network == "mlp" else "stack")

    def paper_rules(self) -> Rules:
        """The paper's values for the image classifier."""
        return Rules.classifier(max_depth=self.layers, batch_decay=0.0)

    def layer_weights(self) -> tuple[float, float, float]:
        """Every weight of a convolution counts once for each place of its output."""
        width = self.width
        if self.network == "mlp":
            return float((INPUTS - width) * width), float(width**2), float(width * CLASSES)
        stem = 27 * STEM * (4 * SIDE) ** 2 + 9 * STEM * width * (2 * SIDE) ** 2
        return float(stem), float(18 * width * (self.hidden or width) * SIDE**2), float(width * CLASSES)

    def step_flops(self, depth: int) -> float:
        """The same; nothing lies below an MLP's first layer, which has all inputs."""
        if self.network == "mlp":
            hidden = [float(self.width**2)] * (depth - 1)
            return self.batch * gradient_flops([float(INPUTS * self.width), *hidden, float(self.width * CLASSES)])
        return super().step_flops(depth)

    def check(self) -> None:
        """Refuse what cannot be."""
        super().check()
        if self.hidden is not None and self.network != "residual":
            raise ValueError(f"hidden is a setting of network residual, got {self.hidden} with {self.network}")


class ResidualBlock(nn.Module):
    """Two convolutions with batch normalisation, added to what came in; hidden channels can be pruned."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.body: nn.Sequential = nn.Sequential(
            nn.Conv2d(width, hidden, 3, padding=1, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU(),
            nn.Conv2d(hidden, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: Tensor) -> Tensor:  # (B, C, H, W), not negative
        """X and what the block adds, rectified."""
        return (x + self.body(x)).relu()


register_identity(ResidualBlock, zero_outputs("body.4"))


class ResidualNetwork(nn.Module):
    """Two convolutions and a mean that bring images to 4 x 4, residual blocks, and a linear classifier."""

    def __init__(self, width: int, hidden: int, depth: int) -> None:
        super().__init__()
        self.width = width
        self.hidden = hidden
        self.stem: nn.Sequential = nn.Sequential(
            nn.Conv2d(3, STEM, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(STEM),
            nn.ReLU(),
            nn.Conv2d(STEM, width, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.AvgPool2d(2),
        )
        self.layers: nn.Sequential = nn.Sequential(*(self.make_block(n) for n in range(depth)))
        self.head: nn.Linear = nn.Linear(width, CLASSES)

    def make_block(self, depth: int) -> ResidualBlock:
        """A new block, for whatever place in the stack."""
        return ResidualBlock(self.width, self.hidden)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of images as (B, 3072) numbers."""
        pictures = images.unflatten(1, (3, 32, 32)).contiguous(memory_format=torch.channels_last)
        logits: Tensor = self.head(self.layers(self.stem(pictures)).mean((2, 3)))
        return logits


def make_model(config: Config) -> nn.Module:
    """The network as it is built."""
    if config.network == "mlp":
        return MLP(INPUTS, config.width, CLASSES, config.start_layers)
    model: Any = ResidualNetwork(config.width, config.hidden or config.width, config.start_layers)
    made: nn.Module = model.to(memory_format=torch.channels_last)  # faster on CPUs
    return made


@cache
def normalised(images: int) -> Splits:
    """Images of the training, validation and test splits as (n, 3072) numbers, and their classes."""
    parts = three_parts(images)
    normalise = Normalisation(torch.from_numpy(parts[0][0]))
    return tuple((normalise(torch.from_numpy(x)), torch.from_numpy(y)) for x, y in parts)


class Training(DepthTraining[Config]):
    """Batches in a new order in every pass over the images, each mirrored at random."""

    stack: ClassVar[str] = "layers"

    def __init__(self, run: Run, config: Config, threads: int | None = None) -> None:
        self._training, self._validation, self._test = normalised(config.images)
        self._order: tuple[int, Tensor] = -1, torch.empty(0)
        super().__init__(run, config)

    def build(self) -> nn.Module:
        """The network as it is before it learns."""
        return make_model(self.config)

    def loss(self, step: int) -> Tensor:
        """Cross-entropy."""
        images, classes = self._training
        a_pass = len(images) // self.config.batch
        epoch, place = divmod(step, a_pass)
        if epoch != self._order[0]:
            random = np.random.default_rng((self.config.seed, epoch))
            self._order = epoch, torch.from_numpy(random.permutation(len(images)))
        batch = self._order[1][place * self.config.batch : (place + 1) * self.config.batch]
        mirrored = np.random.default_rng((self.config.seed, epoch, place)).random(len(batch)) < 0.5
        pictures = images[batch].view(-1, 3, 32, 32)
        pictures = torch.where(torch.from_numpy(mirrored)[:, None, None, None], pictures.flip(3), pictures)
        return functional.cross_entropy(self.net.model(pictures.flatten(1)), classes[batch])

    def validate(self) -> dict[str, float]:
        """Loss and accuracy on the validation split."""
        loss, accuracy = measure(self.net.model, *self._validation)
        return {"validation": loss, "accuracy": accuracy}

    def test(self) -> dict[str, float]:
        """Loss and accuracy on the test split."""
        loss, accuracy = measure(self.net.model, *self._test)
        return {"test": loss, "test_accuracy": accuracy}

    def multiply_adds(self) -> tuple[float | None, list[float], float]:
        """One a weight and place; units that are removed do not count."""
        below, _, above = self.config.layer_weights()
        flat = self.config.network == "mlp"  # its first layer is a block of the stack
        weights = [sum(p.numel() for p in layer.parameters() if p.dim() > 1) for layer in self.net.layers]
        return None if flat else below, [float(size * (1 if flat else SIDE**2)) for size in weights], above


@torch.inference_mode()
def measure(model: nn.Module, images: Tensor, classes: Tensor) -> tuple[float, float]:
    """Loss and accuracy on some images."""
    model.eval()
    logits = torch.cat([model(some) for some in images.split(AT_A_TIME)])
    return float(functional.cross_entropy(logits, classes)), float((logits.argmax(1) == classes).float().mean())


MEASURES: dict[str, Measure] = {
    "accuracy": Measure("test accuracy", 1, ".2%", of_result("test_accuracy")),
    "test": Measure("test loss", -1, ".3f", of_result("test")),
    **DEPTH_COSTS,
}


def _task(network: NetworkName, attribute: str, title: str, summary: str, preset: dict[str, object]) -> Task[Config]:
    residual = network == "residual"
    if residual:
        narrow, smaller = {"hidden": 20, "steps": 2_050}, {"steps": 1_500, "rules": {"prune_to": "0.31"}}
    else:
        narrow = {"width": 186, "steps": 1_580}
        smaller = {"steps": 1_100, "rules": {"prune_to": "0.17", "prune_from": "0.05", "prune_until": "0.3"}}

    def claims(of: Outcomes) -> list[Claim]:
        return [
            *faster_claims(of, DEPTHS[-1], {"flops": 0.7}, "accuracy", 1),
            *equal_compute_claim(of, MEASURES["accuracy"]),
            *smaller_claims(of, MEASURES["accuracy"], 0.005, 0.4),
        ]

    return Task(
        name=f"images-{network}",
        reference=f"{__name__}:{attribute}",
        make=Config.of,
        preset={"network": network, **preset},
        training=Training,
        length=lambda config: (config.all_steps, "step"),
        find_data=lambda config: three_parts(config.images),
        variant_of=lambda config: config.variant,
        network=make_model,
        metric=lambda config: "validation loss",
        title=title,
        summary=summary,
        variants={
            **depth_variants(DEPTHS, EQUAL_FLOPS, smaller=smaller),
            NARROW: {"kind": "fixed", "layers": DEPTHS[-1], **narrow},
        },
        ours=(FASTER, SMALLER, PAPER),
        measures=MEASURES,
        curves={
            "validation accuracy": lambda line: float(line["accuracy"]),
            "layers": lambda line: float(line["depth"]),
        },
        claims=claims,
        unit="step",
        seeds=6,
    )


SHARED = (
    " AdamW with warm-up and a cosine schedule, batches of 128, images mirrored at random. Fixed networks have as many"
    " steps as GPF, or as many training FLOPs as `faster`. `smaller` takes as many training FLOPs as the deepest fixed"
    " network: its steps become cheaper as units go, and it takes more of them. The narrow network takes as many"
    " FLOPs; it has from the start about as many parameters as `smaller` has at the end."
)
RESIDUAL = _task(
    "residual",
    "RESIDUAL",
    "CIFAR-10, a small residual network: fixed depths, and networks that grow",
    "Two strided convolutions, then residual blocks of two 3 x 3 convolutions with 64 channels on 4 x 4 maps." + SHARED,
    {},
)
MLP_TASK = _task(
    "mlp",
    "MLP_TASK",
    "CIFAR-10, the paper's MLP: fixed depths, and networks that grow",
    "Fully connected, 3072-512-...-10." + SHARED,
    {"width": 512, "learning_rate": 5e-4, "steps": 400},
)

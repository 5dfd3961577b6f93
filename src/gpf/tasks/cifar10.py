"""CIFAR-10 with a fully connected network: four layers from the start, or one that grows to four."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gpf.data import Images, cifar10
from gpf.network import MLP, Rules
from gpf.reports.statistics import paired_difference
from gpf.reports.tables import Measure, difference, summary
from gpf.reports.verdicts import Claim, Verdict
from gpf.runs.folder import Outcome, Run, read_log
from gpf.runs.training import Phase, Round
from gpf.tasks.task import COSTS, EpochTraining, Outcomes, Task, TwoVariants, gradient_flops

INPUTS, CLASSES = 3072, 10
AT_A_TIME = 1000
"""Images that are classified together in evaluation."""


@dataclass(frozen=True, kw_only=True)
class Config(TwoVariants):
    """Network on CIFAR-10, and its training; the values are the paper's."""

    layers: int = 4
    """Hidden layers: of the baseline from the start, of GPF at most."""
    width: int = 512
    """Units of a hidden layer."""
    epochs: int = 30
    """Epochs: passes over the training images."""
    batch: int = 128
    """Images in a gradient step, at the start; GPF lowers it as the loss falls."""
    learning_rate: float = 1e-4
    """Learning rate of Adam."""
    images: int = 50_000
    """Number of training images."""

    def own_rules(self) -> Rules:
        """The paper's values for a classifier."""
        return Rules.classifier(max_depth=self.layers)


class Training(EpochTraining[Config]):
    """A round is an epoch; the rules look at the loss on the validation images."""

    def __init__(self, run: Run, config: Config, threads: int | None = None) -> None:
        learnt, self._validation, self._test = three_parts(config.images)
        self._images, self._classes = (torch.from_numpy(part) for part in learnt)
        self._normalise = Normalisation(self._images)
        super().__init__(run, config)

    def build(self) -> MLP:
        """The network as it is before it learns."""
        return make_model(self.config)

    def first_progress(self) -> dict[str, Any]:
        """The loss of the last epoch, on which the size of batches depends; at first, that of a guess."""
        return {"loss": float(np.log(CLASSES))}

    def learn(self) -> Round:
        """One pass over the images, in an order of its own."""
        now, model, optimizer = self.progress, self.net.model, self.net.optimizer
        random = np.random.default_rng((self.config.seed, now["round"]))
        order = torch.from_numpy(random.permutation(len(self._images)))
        size = self.net.batch_size(self.config.batch, now["loss"])
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
        measured = {"batch": size, "loss": now["loss"], "validation": validation, "test": test}
        return Round(measured, self.scored(validation["loss"]), validation["loss"])

    def about(self) -> dict[str, Any]:
        """By what images are normalised."""
        return {"scale": self._normalise.scale, "shift": self._normalise.shift}

    def finish(self, phase: Phase) -> dict[str, Any]:
        """At the epoch that validation chose, and at the last one."""
        lines = read_log(self.run.folder, "metrics")
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


class Normalisation:
    """Bytes to numbers, of mean 0 and variance 1 in each colour of the images that it was made from."""

    def __init__(self, images: Tensor) -> None:
        planes = [images[:, part].double() for part in torch.arange(INPUTS).split(INPUTS // 3)]
        mean = torch.stack([plane.mean() for plane in planes]).repeat_interleave(INPUTS // 3)
        scale = torch.stack([1.0 / plane.std() for plane in planes]).repeat_interleave(INPUTS // 3)
        self.scale: Tensor = scale.float()
        self.shift: Tensor = (-mean * scale).float()

    def __call__(self, images: Tensor) -> Tensor:
        """(n, 3072) bytes as numbers."""
        return torch.addcmul(self.shift, images.float(), self.scale)


def three_parts(images: int) -> tuple[Images, Images, Images]:
    """To learn from, to decide on, and to report: the training images, and halves of the test images."""
    (learnt, classes), (held_out, theirs) = cifar10()
    if images > len(learnt):
        raise ValueError(f"images must be at most {len(learnt):,}, got {images:,}")
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


def _rise(outcome: Outcome) -> float:
    """By how much the validation's loss ends above its least."""
    losses = [line["validation"]["loss"] for line in outcome.lines]
    return float(losses[-1] - min(losses))


def _parameters_then(outcome: Outcome) -> float:
    """At the epoch whose accuracy is reported."""
    return float(outcome.result["most_accurate"]["parameters"])


def _compact_parameters(outcome: Outcome) -> float:
    """Of the finished network without the units that pruning has cut off; what is zero in the others counts."""
    return float(sum(parameter.numel() for parameter in TASK.load(outcome.folder).compact().parameters()))


def _claims(of: Outcomes) -> list[Claim]:
    rises = {name: [_rise(one) for one in runs] for name, runs in of.items()}
    ours = [name for name in TASK.ours if name in of]
    words = {
        "baseline": "the validation loss begins to diverge for the baseline model",
        **dict.fromkeys(ours, "but steadily decreases for the dynamic GPF model"),
    }
    claims = [
        Claim(
            words[name],
            f"{name}: validation loss ends {summary(rises[name], '.3f')} above its least, which is at epoch"
            f" {summary([one.result['best_epoch'] for one in of[name]], '.0f')}",
            Verdict.of_claim(
                (min(rises[name]) > 0.01) == (name == "baseline"),
                max(rises[name]) > 0.01 >= min(rises[name]),
                seeds=len(rises[name]),
            ),
        )
        for name in words
    ]
    theirs = [one.result["most_accurate"]["accuracy"] for one in of["baseline"]]
    for name in ours:
        mine = [one.result["most_accurate"]["accuracy"] for one in of[name]]
        rise = paired_difference(rises[name], rises["baseline"])
        then, in_the_end = (
            [a / b for a, b in zip(map(of_run, of[name]), map(of_run, of["baseline"]), strict=True)]
            for of_run in (_parameters_then, lambda one: one.result["parameters"])
        )
        claims.append(
            Claim(
                "more stable learning even while simultaneously adding layers and pruning neurons",
                f"{name}: that rise less the baseline's is {difference(rises[name], rises['baseline'], '.3f')}; best"
                f" test accuracy {summary(mine, '.2%')} against {summary(theirs, '.2%')}, difference"
                f" {difference(mine, theirs, '.2%')}, with {summary(then, '.0%')} of the baseline's parameters then and"
                f" {summary(in_the_end, '.0%')} at the end",
                Verdict.of_bounds(rise.low, rise.high, seeds=len(mine)),
            )
        )
    return claims


LEAN: dict[str, str] = {
    "warmup": "4", "grow_patience": "4", "grow_threshold": "0.02", "activation_threshold": "none",
    "weight_threshold": "0.05", "saliency_threshold": "0.03", "freeze_patience": "14",
}  # fmt: skip
"""Changes to the paper's values under which a classifier loses most of its weights; from a look at another seed.

With the paper's `freeze_patience` the first layer, which has most of them, freezes before it can be pruned.
"""
UNITS: dict[str, str] = {
    "warmup": "4", "grow_patience": "4", "grow_threshold": "0.02", "activation_threshold": "1.1",
    "weight_threshold": "1000", "saliency_threshold": "1000", "belief_increment": "1", "belief_fall": "1",
    "freeze_patience": "14",
}  # fmt: skip
"""Changes that prune whole units, which makes the rest compact; chosen on another seed.

Belief is all or nothing: whether a unit's mean activation was above the threshold in the epoch before the pruning.
"""


TASK = Task(
    name="cifar10",
    reference=f"{__name__}:TASK",
    make=Config.of,
    training=Training,
    length=lambda config: (config.epochs, "round"),
    length_setting=lambda config: "epochs",
    find_data=lambda config: three_parts(config.images),
    variant_of=lambda config: config.variant,
    network=make_model,
    metric=lambda config: "validation loss",
    title="CIFAR-10: four layers, or one that grows to four",
    summary="Fully connected, 3072-512x4-10, Adam, rate 1e-4, batches of 128 e^(-loss / 2), 30 epochs of all 50,000"
    " training images, in all. One layer is GPF's initial network, unchanged. GPF has the paper's values of its"
    " rules; GPF, lean, has others, under which more of the weights are pruned; GPF, units, others again, under"
    " which whole units are. A network is compact without the units that pruning has cut off. The rules look"
    " at the loss on one half of the test images; accuracies are those on the other half, at the epoch in which the"
    " first half's was best.",
    variants={
        "baseline": {"baseline": True},
        "one layer": {"baseline": True, "layers": 1},
        "GPF": {},
        "GPF, lean": {"rules": LEAN},
        "GPF, units": {"rules": UNITS},
    },
    ours=("GPF", "GPF, lean", "GPF, units"),
    measures={
        "accuracy": Measure("best test accuracy", 1, ".2%", lambda o: float(o.result["most_accurate"]["accuracy"])),
        "layers_then": Measure(
            "layers then", 0, ".0f", lambda o: float(o.lines[o.result["most_accurate"]["epoch"] - 1]["depth"])
        ),
        "parameters_then": Measure("parameters that are not zero then", -1, ",.0f", _parameters_then),
        "last_accuracy": Measure(
            "final test accuracy", 1, ".2%", lambda o: float(o.result["last"]["test"]["accuracy"])
        ),
        "loss": Measure("minimum validation loss", -1, ".3f", lambda o: float(o.result["validation"]["loss"])),
        "last_loss": Measure(
            "final validation loss", -1, ".3f", lambda o: float(o.result["last"]["validation"]["loss"])
        ),
        "compact": Measure("parameters when compact", -1, ",.0f", _compact_parameters),
        **COSTS,
    },
    curves={
        "validation loss": lambda line: float(line["validation"]["loss"]),
        "test accuracy": lambda line: float(line["test"]["accuracy"]),
        "training loss": lambda line: float(line["loss"]),
        "layers": lambda line: float(line["depth"]),
        "parameters that are not zero": lambda line: float(line["parameters"]),
    },
    claims=_claims,
    on_weights="the eigenvalue spectra for the weights of the GPF network follow the Marchenko-Pastur distribution",
)

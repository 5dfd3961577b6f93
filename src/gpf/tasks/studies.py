"""Which networks are held against each other on which task, what is measured of each, and what the paper says of it."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from gpf.reports.statistics import interquartile_mean, paired_difference
from gpf.runs.folder import read_log, read_result
from gpf.tasks.streams import Measure

LATE = 2_000
"""Gradient steps at the end of a language model's training in which its loss is looked at."""
CALM = 0.02
"""Nats by which a loss may end above its least, or spread more than another, before we call that volatile."""


@dataclass(frozen=True)
class Outcome:
    """A finished run."""

    folder: Path
    result: dict[str, Any]
    lines: list[dict[str, Any]]
    events: list[dict[str, Any]]

    @classmethod
    def read(cls, folder: Path) -> "Outcome":
        """From its folder."""
        return cls(folder, read_result(folder) or {}, read_log(folder, "metrics"), read_log(folder, "events"))


Outcomes = dict[str, list[Outcome]]
"""Of every variant, one of each seed."""
Measures = dict[str, tuple[Measure, Callable[[Outcome], float]]]
"""By name, what is measured of a run."""


@dataclass(frozen=True)
class Claim:
    """What the paper says, what we have measured, and what that means for it."""

    paper: str
    measured: str
    verdict: str


@dataclass(frozen=True)
class Study:
    """A task on which variants are held against each other."""

    module: str
    """Of gpf.tasks."""
    title: str
    about: str
    variants: dict[str, dict[str, Any]]
    """By name, what is changed in the task's configuration."""
    measures: Measures
    curves: dict[str, Callable[[dict[str, Any]], float]]
    """By title, of a line of metrics."""
    claims: Callable[[Outcomes], list[Claim]]
    unit: str = "round"
    """What the lines of metrics are counted in: round or step."""
    seeds: int = 3
    spectra: str = ""
    """Layers whose names end like this are shown in the figure of spectra; all of them for an empty one."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Changed for all variants."""
    on_weights: str = ""
    """What the paper says of the eigenvalues of the weights."""

    def load_module(self) -> Any:
        """The task's own file: its `Config`, how it trains, and what it makes of a run."""
        return importlib.import_module(f"gpf.tasks.{self.module}")

    def config(self, variant: str, seed: int, changes: dict[str, Any]) -> Any:
        """The configuration of a run."""
        return self.load_module().Config.of({**self.settings, **changes, **self.variants[variant], "seed": seed})


def interval(values: Sequence[float], form: str) -> str:
    """The interquartile mean of some seeds' values, with its interval."""
    middle, low, high = (format(value, form) for value in interquartile_mean(values))
    return middle if low == high else f"{middle} [{low}, {high}]"


def _rise(outcome: Outcome) -> float:
    """By how much the validation's loss ends above its least."""
    losses = [line["validation"]["loss"] for line in outcome.lines]
    return float(losses[-1] - min(losses))


def _parameters_then(outcome: Outcome) -> float:
    """At the epoch whose accuracy is reported."""
    return float(outcome.result["most_accurate"]["parameters"])


def _compact_parameters(outcome: Outcome) -> float:
    """Of the finished network without the units that pruning has cut off; what is zero in the others counts."""
    from gpf.tasks.cifar10 import load

    return float(sum(parameter.numel() for parameter in load(outcome.folder).compact().parameters()))


def _cifar10_claims(of: Outcomes) -> list[Claim]:
    rises = {name: [_rise(one) for one in runs] for name, runs in of.items()}
    ours = [name for name in of if name.startswith("GPF")]
    words = {
        "baseline": "the validation loss begins to diverge for the baseline model",
        **dict.fromkeys(ours, "but steadily decreases for the dynamic GPF model"),
    }
    claims = [
        Claim(
            words[name],
            f"{name}: validation loss ends {interval(rises[name], '.3f')} above its least, which is at epoch"
            f" {interval([one.result['best_epoch'] for one in of[name]], '.0f')}",
            judge((min(rises[name]) > 0.01) == (name == "baseline"), max(rises[name]) > 0.01 >= min(rises[name])),
        )
        for name in words
    ]
    theirs = [one.result["most_accurate"]["accuracy"] for one in of["baseline"]]
    for name in ours:
        mine = [one.result["most_accurate"]["accuracy"] for one in of[name]]
        d, rise = paired_difference(mine, theirs), paired_difference(rises[name], rises["baseline"])
        then, in_the_end = (
            [a / b for a, b in zip(map(of_run, of[name]), map(of_run, of["baseline"]), strict=True)]
            for of_run in (_parameters_then, lambda one: one.result["parameters"])
        )
        claims.append(
            Claim(
                "more stable learning even while simultaneously adding layers and pruning neurons",
                f"{name}: that rise less the baseline's is {rise.mean:+.3f} [{rise.low:+.3f}, {rise.high:+.3f}]; best"
                f" test accuracy {interval(mine, '.2%')} against {interval(theirs, '.2%')}, difference {d.mean:+.2%}"
                f" [{d.low:+.2%}, {d.high:+.2%}], with {interval(then, '.0%')} of the baseline's parameters then and"
                f" {interval(in_the_end, '.0%')} in the end",
                "confirmed" if rise.high < 0.0 else "refuted" if rise.low > 0.0 else "not shown",
            )
        )
    return claims


def judge(holds: bool, divided: bool = False) -> str:
    """What numbers say of a claim; divided, where some of them say so and some do not."""
    return "partly" if divided else "confirmed" if holds else "refuted"


def _mspacman_claims(of: Outcomes) -> list[Claim]:
    spreads = {name: [float(np.std(one.result["validation"])) for one in runs] for name, runs in of.items()}
    about_their_means = {
        name: np.concatenate(
            [np.subtract(one.result["validation"], np.median(one.result["validation"])) for one in runs]
        )
        for name, runs in of.items()
    }
    p = 1.0  # where nobody's rewards ever change, there is no variance to test
    if any(np.ptp(values) for values in about_their_means.values()):
        p = float(stats.levene(*about_their_means.values(), center="median").pvalue)
    d = paired_difference(np.log(np.maximum(spreads["GPF"], 1e-9)), np.log(np.maximum(spreads["baseline"], 1e-9)))
    less = d.mean < 0 and p < 0.05
    return [
        Claim(
            "the volatility in validation rewards for the baseline policy is much higher than that of the dynamic GPF"
            " policy",
            f"standard deviation over epochs {interval(spreads['GPF'], '.1f')} (GPF) against"
            f" {interval(spreads['baseline'], '.1f')}, a ratio of {np.exp(d.mean):.2f} [{np.exp(d.low):.2f},"
            f" {np.exp(d.high):.2f}]; Brown and Forsythe's test of equal variances: p = {p:.3g}. Of training losses, by"
            f" seed, the largest of an epoch: {_largest_losses(of['GPF'])} (GPF), {_largest_losses(of['baseline'])}",
            "confirmed" if less and d.high < 0 else "refuted" if d.low > 0 and p < 0.05 else "not shown",
        )
    ]


def _largest_loss(outcome: Outcome) -> float:
    return max(float(line["loss"]) for line in outcome.lines)


def _largest_losses(runs: Sequence[Outcome]) -> str:
    return ", ".join(f"{_largest_loss(one):.2g}" for one in runs)


def _late_losses(outcome: Outcome) -> list[float]:
    return [loss for line in outcome.lines for loss in line["loss"]][-LATE:]


def pruned_shares(outcome: Outcome) -> list[float]:
    """Of each pruning, the share of the weights there were that went."""
    shares = []
    for event in outcome.events:
        if event["kind"] == "pruned":
            before, after = event["before"], event["after"]
            shares.append((after["pruned"] - before["pruned"]) / (before["weights"] - before["pruned"]))
    return shares


def _shakespeare_claims(of: Outcomes) -> list[Claim]:
    volatile = {name: [float(np.std(_late_losses(one))) for one in runs] for name, runs in of.items()}
    gains = {
        name: [one.lines[0]["validation"] - one.lines[-1]["validation"] for one in runs] for name, runs in of.items()
    }
    d = paired_difference(volatile["GPF"], volatile["baseline"])
    rises = [one.lines[-1]["validation"] - min(line["validation"] for line in one.lines) for one in of["GPF"]]
    at_full_depth = [
        max((event["step"] for event in one.events if event["kind"] == "grown"), default=0) for one in of["GPF"]
    ]
    deepest = [one.result["depth"] for one in of["GPF"]]
    pruned = [pruned_shares(one) for one in of["GPF"]]
    early_and_late = [(np.mean(s[: len(s) // 2]), np.mean(s[len(s) // 2 :])) for s in pruned if len(s) > 1]
    mine, theirs = ([one.result["test"] for one in of[name]] for name in ("GPF", "baseline"))
    e = paired_difference(mine, theirs)
    flops = [a.result["flops"] / b.result["flops"] for a, b in zip(of["GPF"], of["baseline"], strict=True)]
    return [
        Claim(
            "[of the baseline] convergence is not achieved and the loss is very volatile",
            f"its validation loss falls by {interval(gains['baseline'], '.2f')} nats; the training loss of the last"
            f" {LATE:,} steps has a standard deviation of {interval(volatile['baseline'], '.3f')}, GPF's of"
            f" {interval(volatile['GPF'], '.3f')}",
            "confirmed" if d.high < -CALM else "refuted" if d.low > -CALM else "not shown",
        ),
        Claim(
            "the GPF variant shows good convergence",
            f"its validation loss falls by {interval(gains['GPF'], '.2f')} nats and ends"
            f" {interval(rises, '.3f')} above its least; test loss {interval(mine, '.3f')} nats a token against"
            f" {interval(theirs, '.3f')}, difference {e.mean:+.3f}"
            f" [{e.low:+.3f}, {e.high:+.3f}], with {interval(flops, '.0%')} of the baseline's operations",
            judge(max(rises) < CALM, max(rises) >= CALM > min(rises)),
        ),
        Claim(
            "achieved the maximum layer count at around epoch 2500",
            f"ours had {interval(deepest, '.0f')} blocks at step {interval(at_full_depth, ',.0f')}",
            "a matter of the rules",
        ),
        Claim(
            "the percentage of neurons pruned decays as training progresses",
            f"{np.mean([a for a, _ in early_and_late]):.1%} of the weights in a pruning of the first half,"
            f" {np.mean([b for _, b in early_and_late]):.1%} in one of the second"
            if early_and_late
            else "fewer than two prunings in each run",
            judge(all(a > b for a, b in early_and_late)) if early_and_late else "not shown",
        ),
    ]


def _drifting_claims(of: Outcomes) -> list[Claim]:
    return []


def _layer_mean(name: str) -> Callable[[dict[str, Any]], float]:
    """The mean over layers, but for the last, of a measure of plasticity."""

    def of(line: dict[str, Any]) -> float:
        return float(np.mean([layer[name] for layer in line["plasticity"][:-1]]))

    return of


def _last_tasks(of: Callable[[dict[str, Any]], float]) -> Callable[[Outcome], float]:
    return lambda outcome: float(np.mean([of(line) for line in outcome.lines[-10:]]))


BOTH: dict[str, dict[str, Any]] = {"baseline": {"baseline": True}, "GPF": {}}
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
"""Changes under which whole units go, so that what is left can be made compact; from a look at another seed.

Belief is all or nothing: whether a unit's mean activation was above the threshold in the epoch before the pruning.
"""
COSTS: Measures = {
    "depth": (Measure("layers in the end", 0, ".0f"), lambda o: float(o.result["depth"])),
    "parameters": (Measure("parameters that are not zero", -1, ",.0f"), lambda o: float(o.result["parameters"])),
    "flops": (Measure("operations, 10^12", -1, ",.1f"), lambda o: o.result["flops"] / 1e12),
}
"""Operations stand for time: a machine that trains for hours is seldom left alone."""
METHODS: dict[str, dict[str, Any]] = {
    "backprop": {"method": "backprop"}, "continual backprop": {"method": "continual-backprop"},
    "L2 to the first weights": {"method": "l2-init"}, "GPF": {"method": "gpf"},
}  # fmt: skip
PLASTICITY: Measures = {
    name: (Measure(title, better, form), _last_tasks(_layer_mean(name)))
    for name, title, better, form in (
        ("dead", "dead units, last ten tasks", -1, ".3f"),
        ("effective_rank", "effective rank", 0, ".1f"),
        ("weight_magnitude", "mean absolute weight", 0, ".3f"),
    )
}
DRIFTING_CURVES: dict[str, Callable[[dict[str, Any]], float]] = {
    "dead units": _layer_mean("dead"),
    "effective rank": _layer_mean("effective_rank"),
    "mean absolute weight": _layer_mean("weight_magnitude"),
}


def _drifting(problem: str, title: str, about: str, what: str, better: int, form: str) -> Study:
    return Study(
        module="drifting",
        title=title,
        about=about,
        variants=METHODS,
        settings={"problem": problem},
        measures={
            **{
                name: (Measure(f"{what}, {words}", better, form), _of_result(name))
                for name, words in (("mean", "all tasks"), ("first", "first ten"), ("last", "last ten"))
            },
            **PLASTICITY,
            "parameters": (
                Measure("parameters in use and kept", -1, ",.0f"),
                lambda o: float(max(line["kept"] for line in o.lines)),
            ),
        },
        curves={what: lambda line: float(line["score"]), **DRIFTING_CURVES},
        claims=_drifting_claims,
        seeds=6,
    )


def _of_result(name: str) -> Callable[[Outcome], float]:
    return lambda outcome: float(outcome.result[name])


def _validation_a_character(outcome: Outcome) -> float:
    from gpf.tasks.shakespeare import characters_to_a_token, three_parts

    return float(outcome.result["validation"]) / characters_to_a_token(three_parts().validation)


def _mspacman(title: str, about: str, settings: dict[str, Any], more: Measures | None = None) -> Study:
    return Study(
        module="mspacman",
        title=title,
        about=about,
        variants=BOTH,
        settings=settings,
        measures={
            "reward": (Measure("points of a game, last checkpoint", 1, ".0f"), _of_result("reward")),
            "spread": (
                Measure("their standard deviation", 0, ".0f"),
                lambda o: float(np.std(o.result["test"])),
            ),
            **(more or {}),
            "first_played": (Measure("points while learning, first epoch", 0, ".0f"), lambda o: _played(o.lines[:1])),
            "last_played": (Measure("last five epochs", 0, ".0f"), lambda o: _played(o.lines[-5:])),
            "volatility": (
                Measure("standard deviation of validations over epochs", -1, ".0f"),
                lambda o: float(np.std(o.result["validation"])),
            ),
            "largest_loss": (Measure("largest training loss of an epoch", -1, ".2g"), _largest_loss),
            **COSTS,
        },
        curves={
            "points of a game, validation": lambda line: float(np.mean(line["validation"])),
            "loss": lambda line: float(line["loss"]),
            "layers": lambda line: float(line["depth"]),
            "parameters that are not zero": lambda line: float(line["parameters"]),
        },
        claims=_mspacman_claims,
        seeds=5,
    )


def _played(lines: Sequence[dict[str, Any]]) -> float:
    """Mean points of the games that were learnt from; at first, nearly all of their actions were random."""
    return float(np.mean([points for line in lines for points in line["played"]]))


def _longer() -> dict[str, Any]:
    from gpf.tasks.mspacman import LONGER

    return LONGER


def _longer_changes() -> str:
    from gpf.tasks.mspacman import Config

    before = Config()
    return ", ".join(
        f"{name.replace('_', ' ')}{'' if value is True else f' {value} in place of {getattr(before, name)}'}"
        for name, value in _longer().items()
    )


STUDIES: dict[str, Callable[[], Study]] = {
    "cifar10": lambda: Study(
        module="cifar10",
        title="CIFAR-10: four layers, or one that grows to four",
        about="Fully connected, 3072-512x4-10, Adam, rate 1e-4, batches of 128 e^(-loss / 2), 30 epochs of all 50,000"
        " training images, in all. One layer is what GPF begins with, left as it is. GPF has the paper's values of its"
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
        measures={
            "accuracy": (
                Measure("best test accuracy", 1, ".2%"),
                lambda o: float(o.result["most_accurate"]["accuracy"]),
            ),
            "layers_then": (
                Measure("layers then", 0, ".0f"),
                lambda o: float(o.lines[o.result["most_accurate"]["epoch"] - 1]["depth"]),
            ),
            "parameters_then": (Measure("parameters that are not zero then", -1, ",.0f"), _parameters_then),
            "last_accuracy": (Measure("in the end", 1, ".2%"), lambda o: float(o.result["last"]["test"]["accuracy"])),
            "loss": (Measure("least validation loss", -1, ".3f"), lambda o: float(o.result["validation"]["loss"])),
            "last_loss": (
                Measure("in the end", -1, ".3f"),
                lambda o: float(o.result["last"]["validation"]["loss"]),
            ),
            "compact": (Measure("parameters when compact", -1, ",.0f"), _compact_parameters),
            **COSTS,
        },
        curves={
            "validation loss": lambda line: float(line["validation"]["loss"]),
            "test accuracy": lambda line: float(line["test"]["accuracy"]),
            "training loss": lambda line: float(line["loss"]),
            "layers": lambda line: float(line["depth"]),
            "parameters that are not zero": lambda line: float(line["parameters"]),
        },
        claims=_cifar10_claims,
        on_weights="the eigenvalue spectra for the weights of the GPF network follow the Marchenko-Pastur distribution",
    ),
    "mspacman": lambda: _mspacman(
        "Ms Pac-Man, the paper's setting",
        "Expected SARSA on frames of 32 x 32 pixels, 3072-128x4-9, 30 epochs of one game of at most 150 steps: 4,500"
        " steps in all, in which nobody learns to play.",
        {},
    ),
    "mspacman-longer": lambda: _mspacman(
        "Ms Pac-Man, a setting that learns",
        f"As in the paper's setting, but for {_longer_changes()}. Points of random play are those of the same games in"
        " which all actions are random.",
        _longer(),
        {"random": (Measure("of random play", 0, ".0f"), _of_result("random"))},
    ),
    "shakespeare": lambda: Study(
        module="shakespeare",
        title="GPT-2 on TinyShakespeare: twelve blocks, or one that grows to twelve",
        about="Vocabulary 50,257, context 64, 8 heads, width 64, AdamW, rate 1e-4, batches of 8, 10,000 steps. Nine"
        " tenths of the text to learn from, a half of the rest for the rules to look at, the other half to report.",
        variants=BOTH,
        measures={
            "test": (Measure("test loss, nats a token", -1, ".3f"), _of_result("test")),
            "test_a_character": (Measure("nats a character", -1, ".3f"), _of_result("test_a_character")),
            "validation": (Measure("validation loss in the end", -1, ".3f"), _of_result("validation")),
            "validation_a_character": (Measure("nats a character", -1, ".3f"), _validation_a_character),
            **COSTS,
        },
        curves={
            "validation loss, nats a token": lambda line: float(line["validation"]),
            "training loss": lambda line: float(np.mean(line["loss"])),
            "layers": lambda line: float(line["depth"]),
            "parameters that are not zero": lambda line: float(line["parameters"]),
        },
        claims=_shakespeare_claims,
        unit="step",
        spectra=".up",
    ),
    "permuted-mnist": lambda: _drifting(
        "permuted-mnist",
        "Permuted MNIST: who can still learn after fifty tasks?",
        "784-100x3-10, Adam, rate 1e-3; 50 tasks of 10,000 images, batches of 16, each image seen once. Accuracy is"
        " online: before an image is learnt from. GPF takes notice of a change and carries a quarter of its weights"
        " into the next task; with room for one network it keeps no version, and its layers are three from the start.",
        "accuracy",
        1,
        ".4f",
    ),
    "regression": lambda: _drifting(
        "regression",
        "Slowly changing regression",
        "21-5-1, Adam, rate 1e-3; one of 15 slow bits flips after every 10,000 samples, batches of 16, each seen once."
        " Errors are online: before a sample is learnt from.",
        "squared error",
        -1,
        ".4f",
    ),
}
"""By the name that `gpf compare` and `gpf train` know them by."""

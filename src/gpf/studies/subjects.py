"""The tasks on which `gpf pays` asks where growing, pruning and freezing pay, as data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from gpf.navigation import policy_gradient
from gpf.navigation.flat import FlatNetwork, forward
from gpf.network import MLP
from gpf.reports.statistics import paired_difference
from gpf.reports.tables import Measure, Measures, difference, summary
from gpf.reports.verdicts import Claim, Verdict
from gpf.runs.folder import Outcome
from gpf.tasks import characters, images, plume
from gpf.tasks.cifar10 import INPUTS
from gpf.tasks.depths import PAPER, fixed
from gpf.tasks.task import Outcomes, Task, of_result

Variants = Callable[[Outcomes], Mapping[str, Mapping[str, Any]]]
"""Variants by name with their settings, given the outcomes of those that were trained before."""
SHRINKING = "GPF, units removed"
GROWING = "GPF, grown and units removed"
SHRINKING_STEPS = 4_000_000
"""Steps for which units are removed: with them it takes about the training FLOPs of four fixed layers in 3 million."""
LATENCY = Measure("latency, µs", -1, ",.0f", lambda outcome: None)
"""Measured when the page is written."""


@dataclass(frozen=True)
class Subject:
    """A task, its networks, and what is measured of them."""

    name: str
    title: str
    about: str
    task: Task[Any]
    variants: tuple[Variants, ...]
    """Groups of variants that are trained one after the other."""
    seeds: range
    measures: Measures
    test: str
    """The measure by which networks are compared."""
    quality: str
    """The fields of a line of metrics that `time_shares` reads."""
    curve: Callable[[dict[str, Any]], float | None]
    """The fields of a line of metrics that curves show."""
    label: str
    sign: int
    """Of the curve: 1 where more is better, -1 where less is."""
    forward: Callable[[Outcome], Callable[[], object]]
    """One forward pass of the compacted network of a run."""
    claims: Callable[[Outcomes], list[Claim]]
    latency: Measure = LATENCY


def _compacted(task: Task[Any], inputs: Callable[[Any], torch.Tensor]) -> Callable[[Outcome], Callable[[], object]]:
    """Forward passes of torch models, one sample at a time."""

    def of(outcome: Outcome) -> Callable[[], object]:
        model = task.load(outcome.folder).compact(fuse=True).eval()
        sample = inputs(task.read(outcome.folder))

        def forward() -> torch.Tensor:
            with torch.inference_mode():
                out: torch.Tensor = model(sample)
            return out

        return forward

    return of


def _of_task(task: Task[Any], name: str, test: str, quality: str, sign: int, sample: Any) -> Subject:
    """A task whose variants are fixed networks and GPF's kinds."""
    ours, others = ({k: v for k, v in task.variants.items() if (k in task.ours) == mine} for mine in (True, False))
    return Subject(
        name=name,
        title=task.title,
        about=task.summary,
        task=task,
        variants=(lambda found: ours, lambda found: others),
        seeds=range(task.seeds),
        measures=task.measures,
        test=test,
        quality=quality,
        curve=lambda line: float(line[quality]),
        label=next(iter(task.curves)),
        sign=sign,
        forward=_compacted(task, sample),
        claims=task.claims,
    )


# Navigation


NAVIGATION_SEEDS = range(200, 210)
"""Nothing was tuned on these."""
NAVIGATION_DEPTHS = (1, 2, 3, 4)
EQUAL_FLOPS = (2, 3)
"""Depths of the fixed networks that may also take as many FLOPs as GPF that removes units."""


def _ours_in_navigation(found: Outcomes) -> dict[str, dict[str, Any]]:
    return {
        SHRINKING: {"depth": 4, "rules": policy_gradient.SHRINKING, "steps": SHRINKING_STEPS},
        GROWING: {"depth": 2, "rules": policy_gradient.GROWING},
        PAPER: {},
    }


def _fixed_in_navigation(found: Outcomes) -> dict[str, dict[str, Any]]:
    """Fixed depths with 3 million steps, and with as many FLOPs as GPF that removes units took, on average."""
    budget = float(np.mean([one.result["flops"] for one in found[SHRINKING]]))
    settings = policy_gradient.Settings()
    variants: dict[str, dict[str, Any]] = {}
    for depth in NAVIGATION_DEPTHS:
        variants[fixed(depth)] = {"gpf": False, "depth": depth}
        if depth not in EQUAL_FLOPS:
            continue
        steps = round(budget / plume.step_flops(settings.make_model(64, depth), settings.update_epochs))
        variants[fixed(depth, True)] = {"gpf": False, "depth": depth, "steps": steps}
    return variants


def _spl(line: dict[str, Any]) -> float | None:
    return None if line["validation"] is None else float(line["validation"]["spl"])


def _act(outcome: Outcome) -> Callable[[], object]:
    """One decision of a navigator's network in the compiled code that navigators act with."""
    model = plume.TASK.load(outcome.folder).compact()
    assert isinstance(model, MLP)
    network = FlatNetwork(model)
    activations = network.activations()[0]
    return lambda: forward(network.layers, network.values, activations)


NAVIGATION_MEASURES: dict[str, Measure] = {
    "spl": Measure("SPL", 1, ".3f", of_result("spl")),
    "success": Measure("success rate", 1, ".2%", of_result("success")),
    "depth": Measure("final layers", 0, ".0f", of_result("depth")),
    "size": Measure("parameters that are not zero", -1, ",.0f", of_result("parameters")),
    "flops": Measure("training TFLOPs", -1, ",.3f", lambda outcome: outcome.result["flops"] / 1e12),
    "seconds": Measure("training time, s", -1, ".0f", of_result("seconds")),
}


def _navigation_claims(of: Outcomes) -> list[Claim]:
    scores = {name: [float(one.result["spl"]) for one in some] for name, some in of.items()}
    sizes = {name: float(np.mean([one.result["parameters"] for one in some])) for name, some in of.items()}
    deepest, seeds = fixed(NAVIGATION_DEPTHS[-1]), len(of[SHRINKING])
    against, before = (paired_difference(scores[SHRINKING], scores[name]) for name in (deepest, PAPER))
    share = sizes[SHRINKING] / sizes[deepest]
    return [
        Claim(
            f"GPF's SPL with units removed is at least that of {deepest}, with at most 60% of its parameters",
            f"{summary(scores[SHRINKING], '.3f')} against {summary(scores[deepest], '.3f')}, difference"
            f" {difference(scores[SHRINKING], scores[deepest], '.3f')}, with {share:.0%} of the parameters",
            Verdict.REFUTED
            if share > 0.6 and seeds >= 6
            else Verdict.of_bounds(-against.high, -against.low, seeds=seeds),
        ),
        Claim(
            "GPF's SPL with units removed is higher than with the paper's rules",
            f"{summary(scores[SHRINKING], '.3f')} against {summary(scores[PAPER], '.3f')}, difference"
            f" {difference(scores[SHRINKING], scores[PAPER], '.3f')}",
            Verdict.of_bounds(-before.high, -before.low, seeds=seeds),
        ),
    ]


NAVIGATION = Subject(
    name="navigation",
    title="Navigation: PPO in the plume world",
    about="PPO, 3 million steps in `reference`. With units removed, GPF starts with four layers and loses the weakest"
    " units, 30 % of all, between 30 % and 80 % of its 4 million steps, which take about as many training FLOPs as the"
    " 3 million of four fixed layers. Grown, it starts with two layers and doubles them after a quarter of the steps."
    " SPL and success are those of 2,000 held-out episodes.",
    task=plume.TASK,
    variants=(_ours_in_navigation, _fixed_in_navigation),
    seeds=NAVIGATION_SEEDS,
    measures=NAVIGATION_MEASURES,
    test="spl",
    quality="spl",
    curve=_spl,
    label="SPL in validation",
    sign=1,
    forward=_act,
    claims=_navigation_claims,
    latency=Measure("latency, µs", -1, ",.2f", lambda outcome: None),
)

SUBJECTS: dict[str, Subject] = {
    subject.name: subject
    for subject in (
        _of_task(
            characters.TASK, "characters", "test", "validation", -1,
            lambda config: torch.zeros(1, config.context, dtype=torch.long),
        ),
        _of_task(
            characters.TOKENS, "tokens", "test", "validation", -1,
            lambda config: torch.zeros(1, config.context, dtype=torch.long),
        ),
        _of_task(
            images.RESIDUAL, "images-residual", "accuracy", "accuracy", 1,
            lambda config: torch.zeros(1, INPUTS),
        ),
        _of_task(
            images.MLP_TASK, "images-mlp", "accuracy", "accuracy", 1,
            lambda config: torch.zeros(1, INPUTS),
        ),
        NAVIGATION,
    )
}  # fmt: skip

"""Does growing, pruning or freezing pay? Fixed networks of every depth, at equal steps and at equal FLOPs, against GPF.

Shared by the tasks that ask this: their settings, their training loop, their variants and the claims to check.
"""

import dataclasses
import math
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from gpf import settings
from gpf.network import Rules
from gpf.reports.statistics import over_seeds, paired_difference
from gpf.reports.tables import Measure, difference, summary
from gpf.reports.verdicts import Claim, Verdict
from gpf.runs.folder import Outcome, read_log
from gpf.runs.training import Phase, Round
from gpf.tasks.task import Outcomes, RoundTraining, TaskConfig, gradient_flops, of_result

Kind = Literal["fixed", "faster", "smaller", "paper"]
FASTER, SMALLER, PAPER = "GPF, faster", "GPF, smaller", "GPF, the paper's rules"
NARROW = "narrow from the start, equal parameters"
NAMES: dict[str, str] = {"faster": FASTER, "smaller": SMALLER, "paper": PAPER}


@dataclass(frozen=True, kw_only=True)
class DepthConfig(TaskConfig):
    """Network, and length of its training."""

    kind: Kind = "faster"
    """Rules: `fixed` changes nothing, `faster` grows from a quarter of the layers, `smaller` removes units while it
    trains, `paper` has the paper's rules and starts with one layer."""
    layers: int = settings.number(8, 1)
    """Blocks: of a fixed network from the start, of one that grows at the end."""
    steps: int = settings.number(1_000, 1)
    """Gradient steps."""
    budget_layers: int | None = settings.number(None, 1)
    """Final layers of a network trained with `faster` and `steps` steps whose FLOPs this one may take; None gives it
    `steps` steps."""
    batch: int = settings.number(16, 1)
    """Samples in a gradient step."""
    learning_rate: float = settings.number(2e-3, 0.0)
    """Peak learning rate of AdamW; linear warm-up over 5 % of the steps, then a cosine to a tenth of the peak."""
    weight_decay: float = settings.number(0.1, 0.0)
    """Weight decay of AdamW, for matrices and kernels."""
    round_steps: int = settings.number(50, 1)
    """Gradient steps of a round, which is an epoch of the rules."""
    rules: dict[str, str] = field(default_factory=dict)
    """Changes to the rules of growing, pruning and freezing; docs/command-line.md lists them."""

    @abstractmethod
    def paper_rules(self) -> Rules:
        """The rules as the paper has them, with values for this task."""

    @abstractmethod
    def layer_weights(self) -> tuple[float, float, float]:
        """Multiply-adds of a forward pass for one sample: below the stack, in one block, and above the stack."""

    def faster_rules(self) -> Rules:
        """The rules of `faster`."""
        return Rules.faster(self.layers)

    def network_rules(self) -> Rules:
        """The rules of this kind of network, with what was changed."""
        match self.kind:
            case "fixed":
                return Rules.fixed()
            case "faster":
                rules = self.faster_rules()
            case "smaller":
                rules = Rules.smaller()
            case "paper":
                rules = self.paper_rules()
        return dataclasses.replace(rules, **settings.rule_changes(Rules, self.rules))

    def check(self) -> None:
        """Refuse what cannot be."""
        super().check()
        if self.budget_layers is not None and self.kind not in ("fixed", "faster"):
            raise ValueError(f"budget_layers is for kinds fixed and faster, got {self.budget_layers} with {self.kind}")
        if self.kind == "fixed" and self.rules:
            raise ValueError(f"rules cannot be changed with kind fixed, got {', '.join(self.rules)}")

    @property
    def start_layers(self) -> int:
        """Blocks that the network is built with."""
        return 1 if self.kind == "paper" else self.layers

    def step_flops(self, depth: int) -> float:
        """FLOPs of a gradient step of a network of some depth of which nothing is pruned or frozen."""
        below, block, above = self.layer_weights()
        return self.batch * gradient_flops([below, *[block] * depth, above])

    def planned_flops(self, steps: int | None = None) -> float:
        """FLOPs of a run of a network that is fixed, or grows as planned at the ends of rounds."""
        rules, total = self.network_rules(), 0.0
        all_steps = self.all_steps if steps is None else steps
        if rules.start_depth is None or not rules.grow_at:
            return all_steps * self.step_flops(self.layers)
        depth, passed = rules.start_depth, 0
        for done in range(0, all_steps, self.round_steps):
            some = min(self.round_steps, all_steps - done)
            total += some * self.step_flops(depth)
            if passed < len(rules.grow_at) and (done + some) / all_steps >= rules.grow_at[passed]:
                depth, passed = min(2 * depth, self.layers), passed + 1
        return total

    @cached_property
    def all_steps(self) -> int:
        """Gradient steps of the run: as given, or as many as the budget allows."""
        if self.budget_layers is None:
            return self.steps
        budget = dataclasses.replace(self, kind="faster", layers=self.budget_layers, budget_layers=None, rules={})
        flops = budget.planned_flops()
        steps = bisect_left(range(int(flops / self.step_flops(1)) + 2), flops, key=self.planned_flops)
        return max(1, steps - (self.planned_flops(steps) + self.planned_flops(steps - 1) > 2.0 * flops))

    def rate_at(self, step: int) -> float:
        """The learning rate of a step."""
        steps = self.all_steps
        rising = max(1, steps // 20)
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        share = (step - rising) / max(1, steps - rising)
        return self.learning_rate * (0.55 + 0.45 * math.cos(math.pi * share))

    @property
    def variant(self) -> str:
        """The name of a run."""
        if self.kind == "fixed":
            return fixed(self.layers, self.budget_layers is not None)
        return NAMES[self.kind] + (f" to {self.layers}, equal FLOPs" if self.budget_layers is not None else "")


D = TypeVar("D", bound=DepthConfig)


class DepthTraining(RoundTraining[D]):
    """A round is some gradient steps; the rules look at the validation loss."""

    @abstractmethod
    def loss(self, step: int) -> Tensor:
        """The training loss of a step, on a batch that depends only on the seed and the step."""

    @abstractmethod
    def validate(self) -> dict[str, float]:
        """Measures on the validation split; `validation` is the loss."""

    @abstractmethod
    def test(self) -> dict[str, float]:
        """Measures on the test split, on which nothing was decided."""

    @abstractmethod
    def multiply_adds(self) -> tuple[float | None, list[float], float]:
        """Multiply-adds of a forward pass for one sample: below the stack, in each block as it is now, and above.

        None where nothing lies below the stack; 0 where what lies there only looks up what it learns.
        """

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """AdamW, without weight decay for vectors."""
        decayed = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() < 2]
        groups: list[dict[str, Any]] = [
            {"params": decayed, "weight_decay": self.config.weight_decay},
            {"params": others},
        ]
        return torch.optim.AdamW(groups, lr=self.config.learning_rate, weight_decay=0.0, betas=(0.9, 0.99), fused=True)

    def planned_steps(self) -> int:
        """All of them are known."""
        return self.config.all_steps

    @property
    def over(self) -> bool:
        """Whether all steps are over."""
        return bool(self.progress["step"] >= self.config.all_steps)

    def learn(self) -> Round:
        """Gradient steps, then a validation."""
        now = self.progress
        steps = min(self.config.round_steps, self.config.all_steps - now["step"])
        now["flops"] += steps * self._step_flops()
        losses: list[Tensor] = []
        self.net.model.train()
        for _ in range(steps):
            losses.append(self.gradient_step(now["step"]))
            now["step"] += 1
        measured = {"loss": torch.stack(losses).mean().item(), **self.validate()}
        return Round(measured, self.scored(measured["validation"]), measured["validation"])

    def gradient_step(self, step: int) -> Tensor:
        """One step of the optimizer; returns the loss."""
        optimizer, rate = self.net.optimizer, self.config.rate_at(step)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = self.loss(step)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    def _step_flops(self) -> float:
        below, blocks, above = self.multiply_adds()
        under = [] if below is None else [below]
        frozen = {len(under) + layer for layer in self.net.frozen}
        return self.config.batch * gradient_flops([*under, *blocks, above], frozen)

    def finish(self, phase: Phase) -> dict[str, Any]:
        """The test split, at the last checkpoint; and what a forward pass costs there."""
        phase("test", 0)
        below, blocks, above = self.multiply_adds()
        last = read_log(self.run.folder, "metrics")[-1]
        return {
            **self.test(),
            "validation": last["validation"],
            "inference_flops": 2.0 * ((below or 0.0) + sum(blocks) + above),
            "size": sum(parameter.numel() for parameter in self.net.model.parameters()),
        }


def fixed(layers: int, equal_compute: bool = False) -> str:
    """The name of a fixed network on the page."""
    return f"fixed, {layers} layer{'s' if layers > 1 else ''}{', equal FLOPs' if equal_compute else ''}"


def is_rival(name: str) -> bool:
    """Whether a variant is a fixed network that takes as many FLOPs as `faster`."""
    return name.startswith("fixed") and name.endswith("FLOPs")


def depth_variants(
    depths: Sequence[int], equal_flops: Iterable[int], **grown: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Fixed networks of some depths at equal steps, of some at equal FLOPs, and GPF's kinds with their settings."""
    return {
        **{fixed(n): {"kind": "fixed", "layers": n} for n in depths},
        **{fixed(n, True): {"kind": "fixed", "layers": n, "budget_layers": depths[-1]} for n in equal_flops},
        **{name: {"kind": kind, **grown.get(kind, {})} for kind, name in NAMES.items()},
    }


def share_to_reach(
    ours: Outcome, theirs: Outcome, cost: str, quality: str = "validation", sign: int = -1
) -> float | None:
    """The cost at which our run first was as good as the other's end, as a share of all that the other cost.

    None where it never was.

    Args:
        ours: Our run.
        theirs: The other.
        cost: A count of the metrics, such as `flops` or `seconds`.
        quality: A measure of the metrics.
        sign: Of the quality: -1 where less is better, 1 where more is.
    """
    target = sign * theirs.lines[-1][quality]
    reached = next((line for line in ours.lines if sign * line[quality] >= target), None)
    return None if reached is None else float(reached[cost] / theirs.lines[-1][cost])


def faster_claims(
    of: Outcomes, layers: int, most: Mapping[str, float], quality: str = "validation", sign: int = -1
) -> list[Claim]:
    """Whether `faster` gets as far as the fixed network of its final depth at most at these shares of its costs."""
    words = {"flops": "training FLOPs", "seconds": "training time"}
    what = {"validation": "validation loss", "accuracy": "validation accuracy"}[quality]
    claims = []
    for cost, share in most.items():
        found = [share_to_reach(*pair, cost, quality, sign) for pair in zip(of[FASTER], of[fixed(layers)], strict=True)]
        reached = [one for one in found if one is not None]
        claims.append(
            Claim(
                f"`faster` reaches the final {what} of the fixed network of its final depth with"
                f" at most {share:.0%} of its {words[cost]}",
                f"{len(reached)} of {len(found)} seeds reach it, with {summary(reached, '.1%')} of the {words[cost]}",
                Verdict.of_claim(
                    len(reached) == len(found) and over_seeds(reached)[2] <= share,
                    0 < sum(one <= share for one in reached) < len(found),
                    seeds=len(found),
                ),
            )
        )
    return claims


def block_claim(of: Outcomes, layers: int, most: float) -> Claim:
    """Whether `faster` gets as far as the fixed network of its final depth at this share of its blocks' FLOPs."""
    pairs = list(zip(of[FASTER], of[fixed(layers)], strict=True))
    found = [block_share(mine, fixed_one) for mine, fixed_one in pairs]
    reached = [share for share in found if share is not None]
    return Claim(
        "`faster` reaches the final validation loss of the fixed network of its final depth with at most"
        f" {most:.0%} of its blocks' training FLOPs",
        f"{len(reached)} of {len(found)} seeds reach it, with {summary(reached, '.1%')} of the blocks' training FLOPs",
        Verdict.of_claim(
            len(reached) == len(found) and over_seeds(reached)[2] <= most,
            0 < sum(share <= most for share in reached) < len(found),
            seeds=len(found),
        ),
    )


def block_share(ours: Outcome, theirs: Outcome) -> float | None:
    """Blocks times steps until our validation loss is as low as the other's final one, as a share of all of theirs."""

    def costs(outcome: Outcome) -> list[float]:
        steps = np.diff([0, *(line["step"] for line in outcome.lines)])
        after = [line["depth"] for line in outcome.lines]  # rules grow a network at the end of a round
        return list(np.cumsum(steps * np.array([after[0], *after[:-1]])))

    target = theirs.lines[-1]["validation"]
    for line, cost in zip(ours.lines, costs(ours), strict=True):
        if line["validation"] <= target:
            return float(cost / costs(theirs)[-1])
    return None


def equal_compute_claim(of: Outcomes, measure: Measure) -> list[Claim]:
    """Whether `faster` is no worse than the best fixed depth at equal FLOPs."""
    rivals = {name: [measure.of(one) or 0.0 for one in some] for name, some in of.items() if is_rival(name)}
    if not rivals:
        return []
    mine = [measure.of(one) or 0.0 for one in of[FASTER]]
    best = max(rivals, key=lambda name: measure.better * float(np.mean(rivals[name])))
    d = paired_difference(mine, rivals[best])
    low, high = sorted((-measure.better * d.low, -measure.better * d.high))
    return [
        Claim(
            f"at equal FLOPs, `faster` is better than the best fixed depth in {measure.title}",
            f"{summary(mine, measure.form)} against {summary(rivals[best], measure.form)} ({best}), difference"
            f" {difference(mine, rivals[best], measure.form)}",
            Verdict.of_bounds(low, high, seeds=len(mine)),
        )
    ]


def smaller_claims(of: Outcomes, measure: Measure, margin: float, most: float) -> list[Claim]:
    """Whether `smaller` is within a margin of the best fixed network at a share of its inference FLOPs."""
    fixed_ones = {name: some for name, some in of.items() if name.startswith("fixed") and not name.endswith("FLOPs")}
    scores = {name: [measure.of(one) or 0.0 for one in some] for name, some in fixed_ones.items()}
    best = max(scores, key=lambda name: measure.better * float(np.mean(scores[name])))
    mine = [measure.of(one) or 0.0 for one in of[SMALLER]]
    d = paired_difference(mine, scores[best])
    share = np.mean([one.result["inference_flops"] for one in of[SMALLER]]) / np.mean(
        [one.result["inference_flops"] for one in fixed_ones[best]]
    )
    low, high = sorted((-measure.better * d.low, -measure.better * d.high))
    return [
        Claim(
            f"`smaller` is within {format(margin, measure.form)} of the best fixed network in {measure.title}, with at"
            f" most {most:.0%} of its inference FLOPs",
            f"{summary(mine, measure.form)} against {summary(scores[best], measure.form)} ({best}), difference"
            f" {difference(mine, scores[best], measure.form)}, with {share:.0%} of the inference FLOPs",
            Verdict.REFUTED
            if share > most and len(mine) >= 6
            else Verdict.of_bounds(low, high, margin, seeds=len(mine)),
        )
    ]


DEPTH_COSTS: dict[str, Measure] = {
    "depth": Measure("final layers", 0, ".0f", of_result("depth")),
    "size": Measure("parameters", -1, ",.0f", of_result("size")),
    "inference": Measure("inference MFLOPs", -1, ",.2f", lambda outcome: outcome.result["inference_flops"] / 1e6),
    "flops": Measure("training TFLOPs", -1, ",.2f", lambda outcome: outcome.result["flops"] / 1e12),
    "seconds": Measure("training time, s", -1, ".0f", of_result("seconds")),
}
"""The costs of the networks of these tasks."""

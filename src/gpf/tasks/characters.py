"""Characters of TinyShakespeare: GPT-2's blocks, as many from the start, or fewer that grow, at equal compute too."""

import dataclasses
import math
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from gpf import settings
from gpf.data import tinyshakespeare
from gpf.network import Rules
from gpf.reports.statistics import paired_difference
from gpf.reports.tables import Measure, difference, summary
from gpf.reports.verdicts import Claim, Verdict
from gpf.runs.folder import Outcome, Run, read_log
from gpf.runs.training import Phase, Round
from gpf.tasks.shakespeare import GPT, LEARNT, Text, mean_loss, windows
from gpf.tasks.task import COSTS, Outcomes, RoundTraining, Task, TaskConfig, gradient_flops, of_result

ALPHABET = 65
"""Different characters of the text."""
Kind = Literal["fixed", "faster", "paper"]


@dataclass(frozen=True, kw_only=True)
class Config(TaskConfig):
    """What transformer to train on the characters of TinyShakespeare, and how."""

    kind: Kind = "faster"
    """Rules: `fixed` changes nothing, `faster` grows from a quarter of the layers, `paper` has those of the paper."""
    layers: int = 8
    """Transformer blocks: of a fixed network from the start, of one that grows in the end."""
    width: int = 96
    """Size of the embeddings."""
    heads: int = 4
    """Attention heads."""
    context: int = 64
    """Context length, characters."""
    steps: int = 2_500
    """Gradient steps."""
    budget_layers: int | None = None
    """Final layers of a growing network whose operations a fixed network may take; None gives it `steps` steps."""
    batch: int = 16
    """Windows of the text in a gradient step."""
    learning_rate: float = 2e-3
    """Highest learning rate of AdamW; it rises for a twentieth of the steps and falls as a cosine to a tenth of it."""
    weight_decay: float = 0.1
    """Weight decay of AdamW."""
    round_steps: int = 50
    """Gradient steps of a round, which is an epoch of the rules."""
    validation_windows: int = 256
    """Windows of the text in a validation, at the end of a round."""
    rules: dict[str, str] = field(default_factory=dict)
    """Changes to the rules of growing, pruning and freezing; docs/command-line.md lists them."""

    def network_rules(self) -> Rules:
        """The rules of this kind of network, with what was changed."""
        if self.kind == "fixed":
            return Rules.fixed()
        if self.kind == "faster":
            rules = Rules.faster(self.layers)
        else:
            rules = Rules(
                warmup=2, grow_patience=2, grow_threshold=0.02, max_depth=self.layers, weight_threshold=0.02,
                belief_increment=0.1, prune_patience=10, belief_threshold=0.5, saliency="obd",
                saliency_threshold=1e-12, freeze_patience=15, freeze_delta=5e-4,
            )  # fmt: skip
        return dataclasses.replace(rules, **settings.rule_changes(Rules, self.rules))

    def check(self) -> None:
        """Refuse what cannot be."""
        super().check()
        if self.width % self.heads:
            raise ValueError(f"heads must be a divisor of the width, {self.width}, got {self.heads}")

    @property
    def all_steps(self) -> int:
        """Gradient steps of the run."""
        if self.budget_layers is None or self.kind != "fixed":
            return self.steps
        grown = dataclasses.replace(self, kind="faster", layers=self.budget_layers, budget_layers=None)
        return max(1, round(planned_flops(grown) / step_flops(self, self.layers)))

    @property
    def variant(self) -> str:
        """What a run is called."""
        if self.kind == "fixed":
            return fixed(self.layers, self.budget_layers is not None)
        return GROWN if self.kind == "faster" else PAPER


@cache
def encoded() -> tuple[str, Text]:
    """The alphabet, and the text as places in it: to learn from, to decide on, and to report."""
    text = tinyshakespeare()
    alphabet = "".join(sorted(set(text)))
    if len(alphabet) != ALPHABET:
        raise ValueError(f"TinyShakespeare must have {ALPHABET} different characters, got a text with {len(alphabet)}")
    places = {letter: i for i, letter in enumerate(alphabet)}
    codes = torch.tensor([places[letter] for letter in text])
    bound = int(len(text) * LEARNT)
    half = (len(text) - bound) // 2
    return alphabet, Text(codes[:bound], codes[bound : bound + half], codes[bound + half :])


def make_model(config: Config) -> GPT:
    """The network as it is built: of its final depth, unless the paper's rules begin with one layer."""
    depth = 1 if config.kind == "paper" else config.layers
    return GPT(config.width, config.heads, depth, config.context, vocabulary=ALPHABET)


def step_flops(config: Config, depth: int, frozen: tuple[int, ...] = ()) -> float:
    """Floating-point operations of a gradient step of a network of some depth."""
    blocks = [12 * config.width**2] * depth
    attention = 3 * 2.0 * 2 * config.context * config.width * depth
    head = ALPHABET * config.width
    return config.batch * config.context * (gradient_flops([*blocks, head], frozen, below=True) + attention)


def planned_flops(config: Config) -> float:
    """Operations of a whole run of a network that is fixed, or grows as planned at the ends of rounds."""
    rules, depth, total = config.network_rules(), config.layers, 0.0
    if rules.start_depth is None or not rules.grow_at:
        return config.all_steps * step_flops(config, depth)
    depth, passed = rules.start_depth, 0
    for done in range(0, config.steps, config.round_steps):
        steps = min(config.round_steps, config.steps - done)
        total += steps * step_flops(config, depth)
        if passed < len(rules.grow_at) and (done + steps) / config.steps >= rules.grow_at[passed]:
            depth, passed = min(2 * depth, config.layers), passed + 1
    return total


def rate_at(config: Config, step: int) -> float:
    """The learning rate of a step: it rises in a straight line, then falls as half a cosine to a tenth."""
    steps = config.all_steps
    rising = max(1, steps // 20)
    if step < rising:
        return config.learning_rate * (step + 1) / rising
    share = (step - rising) / max(1, steps - rising)
    return config.learning_rate * (0.55 + 0.45 * math.cos(math.pi * share))


class Training(RoundTraining[Config]):
    """A round is some gradient steps; the rules look at the loss on some windows of the validation's part."""

    stack: ClassVar[str] = "blocks"

    def __init__(self, run: Run, config: Config, threads: int | None = None) -> None:
        self._text = encoded()[1]
        self._steps = config.all_steps
        super().__init__(run, config)

    def build(self) -> GPT:
        """The network as it is before it learns."""
        return make_model(self.config)

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """AdamW, without decay of vectors and embeddings of places."""
        decayed = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() < 2]
        groups: list[dict[str, Any]] = [
            {"params": decayed, "weight_decay": self.config.weight_decay},
            {"params": others},
        ]
        return torch.optim.AdamW(groups, lr=self.config.learning_rate, weight_decay=0.0, betas=(0.9, 0.99), fused=True)

    def planned_steps(self) -> int:
        """All of them are known."""
        return self._steps

    @property
    def over(self) -> bool:
        """Whether all steps are over."""
        return bool(self.progress["step"] >= self._steps)

    def learn(self) -> Round:
        """Gradient steps on windows from anywhere in the text."""
        config, now, optimizer = self.config, self.progress, self.net.optimizer
        model: Any = self.net.model
        losses: list[Tensor] = []
        model.train()
        for _ in range(min(config.round_steps, self._steps - now["step"])):
            random = np.random.default_rng((config.seed, now["step"]))
            starts = random.integers(len(self._text.learnt) - config.context, size=config.batch)
            for group in optimizer.param_groups:
                group["lr"] = rate_at(config, now["step"])
            loss = model.loss(windows(self._text.learnt, torch.from_numpy(starts), config.context))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.detach())
            now["step"] += 1
        now["flops"] += len(losses) * step_flops(config, self.net.depth, self.net.frozen)
        spread = len(self._text.validation) - config.context - 1
        places = torch.linspace(0, spread, config.validation_windows).long()
        validation = mean_loss(model, windows(self._text.validation, places, config.context))
        measured = {"loss": torch.stack(losses).mean().item(), "validation": validation}
        return Round(measured, self.scored(validation), validation)

    def finish(self, phase: Phase) -> dict[str, Any]:
        """The loss on the part of the text that nothing was decided on, of the last checkpoint."""
        phase("test", 0)
        model: Any = self.net.model
        context, test = self.config.context, self._text.test
        return {
            "test": mean_loss(model, windows(test, torch.arange(0, len(test) - context, context), context)),
            "validation": read_log(self.run.folder, "metrics")[-1]["validation"],
        }


GROWN = "GPF, faster"
PAPER = "GPF, the paper's rules"


def fixed(layers: int, equal_compute: bool = False) -> str:
    """What a fixed network is called on the page."""
    return f"fixed, {layers} layer{'s' if layers > 1 else ''}{', equal compute' if equal_compute else ''}"


def _variants() -> dict[str, dict[str, Any]]:
    depths = range(1, Config().layers + 1)
    return {
        **{fixed(n): {"kind": "fixed", "layers": n} for n in depths},
        **{fixed(n, True): {"kind": "fixed", "layers": n, "budget_layers": depths[-1]} for n in depths},
        GROWN: {"kind": "faster"},
        PAPER: {"kind": "paper"},
    }


def share_to_reach(ours: Outcome, theirs: Outcome, cost: str) -> float | None:
    """What our run had cost when it reached the other's final validation loss, in units of all that the other cost.

    None where it never did.
    """
    target = theirs.lines[-1]["validation"]
    reached = next((line for line in ours.lines if line["validation"] <= target), None)
    return None if reached is None else float(reached[cost] / theirs.lines[-1][cost])


def _claims(of: Outcomes) -> list[Claim]:
    """What is to be shown: less compute than the fixed network of the final depth, and the best fixed depth beaten."""
    grown, deepest = of[GROWN], of[fixed(Config().layers)]
    claims = []
    for what, cost, most in (("operations", "flops", 0.6), ("time", "seconds", 0.65)):
        shares = [share_to_reach(a, b, cost) for a, b in zip(grown, deepest, strict=True)]
        reached = [share for share in shares if share is not None]
        claims.append(
            Claim(
                f"reaches the final validation loss of the fixed network of its depth with at most {most:.0%} of its"
                f" {what}",
                f"{len(reached)} of {len(shares)} seeds reach it, with {summary(reached, '.1%')} of the {what}",
                Verdict.of_claim(
                    len(reached) == len(shares) and max(reached) <= most,
                    0 < sum(share <= most for share in reached) < len(shares),
                    seeds=len(shares),
                ),
            )
        )
    rivals = {name: [one.result["test"] for one in runs] for name, runs in of.items() if name.endswith("equal compute")}
    mine = [one.result["test"] for one in grown]
    if rivals:
        best = min(rivals, key=lambda name: float(np.mean(rivals[name])))
        d = paired_difference(mine, rivals[best])
        claims.append(
            Claim(
                "at equal operations it ends no higher than the best fixed depth",
                f"test loss {summary(mine, '.3f')} against {summary(rivals[best], '.3f')} ({best}), difference"
                f" {difference(mine, rivals[best], '.4f')}",
                Verdict.of_bounds(d.low, d.high, seeds=len(mine)),
            )
        )
    return claims


TASK = Task(
    name="characters",
    reference=f"{__name__}:TASK",
    make=Config.of,
    training=Training,
    length=lambda config: (config.all_steps, "step"),
    find_data=lambda config: encoded(),
    variant_of=lambda config: config.variant,
    network=make_model,
    metric=lambda config: "validation loss",
    title="Characters of TinyShakespeare: fixed depths, and networks that grow",
    summary="GPT-2's blocks of width 96, context 64, batches of 16, AdamW with a rate of 2e-3 that rises and then falls"
    " as a cosine. Fixed networks of every depth have as many steps as GPF, and with equal compute as many operations.",
    variants=_variants(),
    ours=(GROWN, PAPER),
    measures={
        "test": Measure("test loss, nats a character", -1, ".3f", of_result("test")),
        "validation": Measure("final validation loss", -1, ".3f", of_result("validation")),
        "seconds": Measure("training time, s", -1, ".0f", of_result("seconds")),
        **COSTS,
    },
    curves={
        "validation loss, nats a character": lambda line: float(line["validation"]),
        "layers": lambda line: float(line["depth"]),
    },
    claims=_claims,
    unit="step",
    seeds=6,
)

"""GPT-2's architecture on TinyShakespeare: twelve blocks from the start, or one that grows to twelve."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from gpf.data import gpt2_encoding, tinyshakespeare
from gpf.network import Rules
from gpf.reports.figures import pruned_shares
from gpf.reports.statistics import paired_difference
from gpf.reports.tables import Measure, difference, summary
from gpf.reports.verdicts import Claim, Verdict
from gpf.runs.folder import Outcome, Run, read_log
from gpf.runs.training import Phase, Round
from gpf.tasks.task import BOTH, COSTS, Outcomes, RoundTraining, Task, TwoVariants, gradient_flops, of_result
from gpf.world_model.model import Block, Cache

VOCABULARY = 50_257
LEARNT = 0.9
"""Share of the text to learn from; the rest is to decide on, and to report, a half each."""
ROWS = 64
"""Tokens whose logits are held at a time: more do not fit into the processor's cache."""


@dataclass(frozen=True, kw_only=True)
class Config(TwoVariants):
    """Transformer on TinyShakespeare, and its training; the values are the paper's."""

    layers: int = 12
    """Transformer blocks: of the baseline from the start, of GPF at most."""
    width: int = 64
    """Size of the embeddings."""
    heads: int = 8
    """Attention heads."""
    context: int = 64
    """Context length, tokens."""
    steps: int = 10_000
    """Gradient steps."""
    batch: int = 8
    """Windows of the text in a gradient step."""
    learning_rate: float = 1e-4
    """Learning rate of AdamW."""
    weight_decay: float = 0.01
    """Weight decay of AdamW."""
    round_steps: int = 100
    """Gradient steps of a round, which is an epoch of the rules."""
    validation_windows: int = 64
    """Windows of the text in a validation, at the end of a round."""
    test_tokens: int | None = None
    """Tokens of the test split to evaluate on; None for all of it."""

    def own_rules(self) -> Rules:
        """An epoch is a round. The paper names LeCun's pruning and no values; these are ours.

        A new block's outputs begin at zero and learn slowly, at this rate: pruned as soon as the paper's classifier is,
        most of them would be lost before they are of use, and the network would stay behind the baseline.
        """
        return Rules(
            warmup=2, grow_patience=1, grow_threshold=0.2, max_depth=self.layers,
            weight_threshold=0.02, belief_increment=0.1, prune_patience=20, belief_threshold=0.5,
            saliency="obd", saliency_threshold=1e-12, freeze_patience=30, freeze_delta=5e-4,
        )  # fmt: skip

    def check(self) -> None:
        """Refuse what cannot be."""
        super().check()
        if self.width % self.heads:
            raise ValueError(f"heads must be a divisor of the width, {self.width}, got {self.heads}")


class GPT(nn.Module):
    """Embeddings of tokens and places, a stack of blocks, and the tokens' embeddings again to tell what comes next."""

    def __init__(self, width: int, heads: int, depth: int, context: int, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        self.width = width
        self.heads = heads
        self.context = context
        self.token: nn.Embedding = nn.Embedding(vocabulary, width)
        self.place: nn.Embedding = nn.Embedding(context, width)
        self.blocks: nn.ModuleList = nn.ModuleList(self.make_block(n) for n in range(depth))
        self.norm: nn.LayerNorm = nn.LayerNorm(width)
        for table in (self.token, self.place):
            nn.init.normal_(table.weight, std=0.02)

    def make_block(self, depth: int) -> Block:
        """A new block, for whatever place in the stack."""
        return Block(self.width, self.heads)

    def _stack(self) -> list[Block]:
        return [block for block in self.blocks if isinstance(block, Block)]

    def hidden(self, tokens: Tensor) -> Tensor:
        """Features after each of the tokens, (B, T) to (B, T, C)."""
        if tokens.shape[1] > self.context:
            raise ValueError(f"tokens must be at most {self.context}, the context, got {tokens.shape[1]}")
        x = self.token(tokens) + self.place.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of what follows each of the tokens, (B, T) to (B, T, vocabulary)."""
        return self.hidden(tokens) @ self.token.weight.T

    def loss(self, tokens: Tensor) -> Tensor:
        """Mean cross-entropy of what follows, of tokens (B, T + 1)."""
        return linear_cross_entropy(
            self.hidden(tokens[:, :-1]).flatten(0, 1), self.token.weight, tokens[:, 1:].flatten()
        )

    def read(self, tokens: Tensor, room: int) -> tuple[Tensor, Cache]:
        """Logits of what follows the last token, (1, vocabulary), and a cache with room for this many more."""
        x = self.token(tokens) + self.place.weight[: tokens.shape[1]]
        shared = []
        for block in self._stack():
            x, kept = block.read(x)
            shared.append(kept)
        size = self.width // self.heads
        shape = (len(tokens), self.heads, 1, room, size)
        own = [(torch.empty(shape), torch.empty(shape)) for _ in self.blocks]
        return self.norm(x[:, -1]) @ self.token.weight.T, Cache(shared, own)

    def extend(self, tokens: Tensor, cache: Cache) -> Tensor:
        """Logits of what follows the next tokens, (1, 1)."""
        x = self.token(tokens) + self.place.weight[cache.places]
        for block, shared, own in zip(self._stack(), cache.shared, cache.own, strict=True):
            x = block.extend(x, shared, own, cache.length)
        cache.length += 1
        return self.norm(x[:, -1]) @ self.token.weight.T


class _LinearCrossEntropy(torch.autograd.Function):
    """Cross-entropy of a linear layer's outputs, a few rows at a time: all logits at once would be 100 MB.

    Gradients are computed on the way, while the logits are still in the processor's cache. They stand upright, a column
    for each row of x, which makes all three products fast.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
        count, learns = len(x), ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        hit = weight[targets]
        total = -(x * hit).sum()
        to_x, to_weight = (hit.mul_(-1.0 / count), torch.zeros_like(weight)) if learns else (None, None)
        room = x.new_empty(len(weight) * min(ROWS, count))
        for start in range(0, count, ROWS):
            rows = x[start : start + ROWS]
            logits = room[: len(weight) * len(rows)].view(len(weight), len(rows))
            torch.mm(weight, rows.T, out=logits)
            most = logits.amax(0)
            shares = logits.sub_(most).exp_()  # not yet divided by their sums
            sums = shares.sum(0)
            total += (sums.log() + most).sum()
            if to_x is not None and to_weight is not None:
                scale = (1.0 / (sums * count))[:, None]
                to_x[start : start + ROWS] += (shares.T @ weight).mul_(scale)
                to_weight.addmm_(shares, rows * scale)
        if to_weight is not None:
            to_weight.index_add_(0, targets, x, alpha=-1.0 / count)
        ctx.save_for_backward(to_x, to_weight)
        return total / count

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        to_x, to_weight = ctx.saved_tensors
        return to_x * grad, to_weight.mul_(grad), None


def linear_cross_entropy(x: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """The mean of -log softmax(x weight^T)[target], as `cross_entropy` has it, without keeping all logits."""
    return _LinearCrossEntropy.apply(x, weight, targets)


@dataclass(frozen=True)
class Text:
    """The text as tokens: train, validation and test split."""

    learnt: Tensor
    validation: Tensor
    test: Tensor


@cache
def three_parts() -> Text:
    """To learn from, to decide on, and to report: nine tenths of the text, and halves of the rest."""
    encoding, text = gpt2_encoding(), tinyshakespeare()  # an extra that is missing is named before a download
    bound = int(len(text) * LEARNT)
    learnt, held_out = (torch.tensor(encoding.encode_ordinary(part)) for part in (text[:bound], text[bound:]))
    half = len(held_out) // 2
    return Text(learnt, held_out[:half], held_out[half:])


def characters_to_a_token(tokens: Tensor) -> float:
    """How long the tokens of a part are, on average."""
    return len(gpt2_encoding().decode(tokens.tolist())) / len(tokens)


class Training(RoundTraining[Config]):
    """A round is some gradient steps; the rules look at the loss on some windows of the validation's part."""

    stack: ClassVar[str] = "blocks"

    def __init__(self, run: Run, config: Config, threads: int | None = None) -> None:
        self._text = three_parts()
        super().__init__(run, config)

    def build(self) -> GPT:
        """The network as it is before it learns."""
        return make_model(self.config)

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(
            model.parameters(), lr=self.config.learning_rate, weight_decay=self.config.weight_decay, fused=True
        )

    @property
    def over(self) -> bool:
        """Whether all steps are over."""
        return bool(self.progress["step"] >= self.config.steps)

    def learn(self) -> Round:
        """Gradient steps on windows from anywhere in the text."""
        config, now, optimizer = self.config, self.progress, self.net.optimizer
        model: Any = self.net.model
        losses = []
        model.train()
        for _ in range(min(config.round_steps, config.steps - now["step"])):
            random = np.random.default_rng((config.seed, now["step"]))
            starts = random.integers(len(self._text.learnt) - config.context, size=config.batch)
            loss = model.loss(windows(self._text.learnt, torch.from_numpy(starts), config.context))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
            now["step"] += 1
        now["flops"] += len(losses) * config.batch * config.context * self._flops()
        spread = len(self._text.validation) - config.context - 1
        places = torch.linspace(0, spread, config.validation_windows).long()
        validation = mean_loss(model, windows(self._text.validation, places, config.context))
        measured = {"loss": torch.stack(losses).tolist(), "validation": validation}
        return Round(measured, self.scored(validation), validation)

    def finish(self, phase: Phase) -> dict[str, Any]:
        """The loss on the part of the text that nothing was decided on, of the last checkpoint."""
        phase("test", 0)
        model: Any = self.net.model
        context, test = self.config.context, self._text.test[: self.config.test_tokens]
        loss = mean_loss(model, windows(test, torch.arange(0, len(test) - context, context), context))
        return {
            "test": loss,
            "test_a_character": loss / characters_to_a_token(test),
            "validation": read_log(self.run.folder, "metrics")[-1]["validation"],
        }

    def _flops(self) -> float:
        """Of a gradient step, for one token; the tokens' embeddings, which tell what comes next, learn all the time."""
        blocks = [12 * self.config.width**2] * self.net.depth
        attention = 2.0 * 2 * self.config.context * self.config.width  # forwards; backwards twice as much
        weights = [*blocks, VOCABULARY * self.config.width]
        return gradient_flops(weights, self.net.frozen, below=True) + 3 * attention * len(blocks)


def windows(text: Tensor, starts: Tensor, context: int) -> Tensor:
    """Pieces of a text, (n, context + 1)."""
    return text[starts[:, None] + torch.arange(context + 1)]


@torch.inference_mode()
def mean_loss(model: GPT, tokens: Tensor, at_a_time: int = 16) -> float:
    """Nats a token, of windows (n, T + 1)."""
    model.eval()
    return float(sum(model.loss(some) * len(some) for some in tokens.split(at_a_time)) / len(tokens))


def make_model(config: Config) -> GPT:
    """The network as it is before it learns."""
    return GPT(config.width, config.heads, config.layers if config.baseline else 1, config.context)


@torch.inference_mode()
def sample(folder: Path, prompt: str, tokens: int, temperature: float, seed: int) -> str:
    """Let the network of a run continue a text."""
    if not temperature >= 0.0:
        raise ValueError(f"temperature must be at least 0, got {temperature}")
    if tokens < 1:
        raise ValueError(f"tokens must be at least 1, got {tokens}")
    model: Any = TASK.load(folder).model
    model.eval()
    encoding, random = gpt2_encoding(), torch.Generator().manual_seed(seed)
    said: list[int] = encoding.encode_ordinary(prompt) or encoding.encode_ordinary("\n")
    cache: Cache | None = None
    for _ in range(tokens):
        if cache is None or cache.places == model.context:  # it is full: read the latest half again
            past = said[-model.context // 2 :] if cache is not None else said[-model.context :]
            logits, cache = model.read(torch.tensor([past]), model.context - len(past))
        else:
            logits = model.extend(torch.tensor([said[-1:]]), cache)
        if temperature == 0.0:
            said.append(int(logits.argmax()))
        else:
            said.append(int(torch.multinomial((logits[0] / temperature).softmax(0), 1, generator=random)))
    return str(encoding.decode(said))


LATE = 2_000
"""Gradient steps at the end of a language model's training over which its loss is averaged."""
CALM = 0.02
"""Nats by which a loss may end above its least, or spread more than another, before we call that volatile."""


def _late_losses(outcome: Outcome) -> list[float]:
    return [loss for line in outcome.lines for loss in line["loss"]][-LATE:]


def _claims(of: Outcomes) -> list[Claim]:
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
    flops = [a.result["flops"] / b.result["flops"] for a, b in zip(of["GPF"], of["baseline"], strict=True)]
    return [
        Claim(
            "[of the baseline] convergence is not achieved and the loss is very volatile",
            f"its validation loss falls by {summary(gains['baseline'], '.2f')} nats; the training loss of the last"
            f" {LATE:,} steps has a standard deviation of {summary(volatile['baseline'], '.3f')}, GPF's of"
            f" {summary(volatile['GPF'], '.3f')}",
            Verdict.of_bounds(d.low, d.high, -CALM, seeds=len(mine)),
        ),
        Claim(
            "the GPF variant shows good convergence",
            f"its validation loss falls by {summary(gains['GPF'], '.2f')} nats and ends"
            f" {summary(rises, '.3f')} above its least; test loss {summary(mine, '.3f')} nats a token against"
            f" {summary(theirs, '.3f')}, difference {difference(mine, theirs, '.3f')}, with {summary(flops, '.0%')} of"
            " the baseline's operations",
            Verdict.of_claim(max(rises) < CALM, max(rises) >= CALM > min(rises), seeds=len(rises)),
        ),
        Claim(
            "achieved the maximum layer count at around epoch 2500",
            f"ours had {summary(deepest, '.0f')} blocks at step {summary(at_full_depth, ',.0f')}",
            Verdict.OF_THE_RULES,
        ),
        Claim(
            "the percentage of neurons pruned decays as training progresses",
            f"{np.mean([a for a, _ in early_and_late]):.1%} of the weights in a pruning of the first half,"
            f" {np.mean([b for _, b in early_and_late]):.1%} in one of the second"
            if early_and_late
            else "fewer than two prunings in each run",
            Verdict.of_claim(all(a > b for a, b in early_and_late), seeds=len(early_and_late))
            if early_and_late
            else Verdict.UNDECIDED,
        ),
    ]


def _validation_a_character(outcome: Outcome) -> float:
    return float(outcome.result["validation"]) / characters_to_a_token(three_parts().validation)


TASK = Task(
    name="shakespeare",
    reference=f"{__name__}:TASK",
    make=Config.of,
    training=Training,
    length=lambda config: (config.steps, "step"),
    length_setting=lambda config: "steps",
    find_data=lambda config: three_parts(),
    variant_of=lambda config: config.variant,
    network=make_model,
    metric=lambda config: "validation loss",
    title="GPT-2 on TinyShakespeare: twelve blocks, or one that grows to twelve",
    summary="Vocabulary 50,257, context 64, 8 heads, width 64, AdamW, rate 1e-4, batches of 8, 10,000 steps. Nine"
    " tenths of the text to learn from, a half of the rest for the rules to look at, the other half to report.",
    variants=BOTH,
    measures={
        "test": Measure("test loss, nats a token", -1, ".3f", of_result("test")),
        "test_a_character": Measure("nats a character", -1, ".3f", of_result("test_a_character")),
        "validation": Measure("final validation loss", -1, ".3f", of_result("validation")),
        "validation_a_character": Measure("nats a character", -1, ".3f", _validation_a_character),
        **COSTS,
    },
    curves={
        "validation loss, nats a token": lambda line: float(line["validation"]),
        "training loss": lambda line: float(np.mean(line["loss"])),
        "layers": lambda line: float(line["depth"]),
        "parameters that are not zero": lambda line: float(line["parameters"]),
    },
    claims=_claims,
    unit="step",
    spectra=".up",
)

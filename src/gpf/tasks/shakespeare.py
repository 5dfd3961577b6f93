"""GPT-2's architecture on TinyShakespeare: twelve blocks from the start, or one that grows to twelve."""

from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from gpf.data import gpt2_encoding, tinyshakespeare
from gpf.network import GrowPruneFreeze, Rules
from gpf.runs.folder import Run, read_log
from gpf.tasks.loop import Report
from gpf.tasks.rounds import NetworkTraining, TwoVariants, gradient_flops, load_network, read_task_config, train_run
from gpf.tasks.rounds import create_run as create_run
from gpf.tasks.rounds import same_run as same_run
from gpf.world_model.model import Block, Cache

VOCABULARY = 50_257
LEARNT = 0.9
"""Share of the text to learn from; the rest is to decide on, and to report, a half each."""
STEPS_IN_A_ROUND = 100
VALIDATION_WINDOWS = 64
ROWS = 64
"""Tokens whose logits are held at a time: more do not fit into the processor's cache."""


@dataclass(frozen=True, kw_only=True)
class Config(TwoVariants):
    """What transformer to train on TinyShakespeare, and how; the values are the paper's."""

    TASK: ClassVar[str] = "shakespeare"

    layers: int = 12
    """Blocks: of the baseline from the start, of the other at most."""
    width: int = 64
    heads: int = 8
    context: int = 64
    """Tokens to look back on."""
    steps: int = 10_000
    batch: int = 8
    """Windows of the text in a gradient step."""
    learning_rate: float = 1e-4
    weight_decay: float = 0.01

    @property
    def length(self) -> tuple[int, str]:
        """How long a run is."""
        return self.steps, "step"

    def find_data(self) -> None:
        """The text and the vocabulary, which may have to be downloaded."""
        tinyshakespeare()
        gpt2_encoding()

    def own_rules(self) -> Rules:
        """An epoch is a round of a hundred steps. The paper names LeCun's pruning and no values; these are ours.

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
            raise ValueError(f"heads: {self.heads}; accepted: a divisor of the width, {self.width}")


class GPT(nn.Module):
    """Embeddings of tokens and places, a stack of blocks, and the tokens' embeddings again to tell what comes next."""

    def __init__(self, width: int, heads: int, depth: int, context: int, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        self.width, self.heads, self.context = width, heads, context
        self.token = nn.Embedding(vocabulary, width)
        self.place = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(self.make_block(n) for n in range(depth))
        self.norm = nn.LayerNorm(width)
        for table in (self.token, self.place):
            nn.init.normal_(table.weight, std=0.02)

    def make_block(self, depth: int) -> Block:
        """A new block, for whatever place in the stack."""
        return Block(self.width, self.heads)

    def _stack(self) -> list[Block]:
        return [block for block in self.blocks if isinstance(block, Block)]

    def hidden(self, tokens: Tensor) -> Tensor:
        """What is known after each of the tokens, (B, T) to (B, T, C)."""
        if tokens.shape[1] > self.context:
            raise ValueError(f"tokens: {tokens.shape[1]}; accepted: at most {self.context}, the context")
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
        """Logits of what follows the last token, (1, vocabulary), and a cache with room for so many more."""
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
    for each row of x, for so all three products are fast.
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
    """The text as tokens, in three parts."""

    learnt: Tensor
    validation: Tensor
    test: Tensor


@cache
def three_parts() -> Text:
    """To learn from, to decide on, and to report: nine tenths of the text, and halves of the rest."""
    text, encoding = tinyshakespeare(), gpt2_encoding()
    bound = int(len(text) * LEARNT)
    learnt, held_out = (torch.tensor(encoding.encode_ordinary(part)) for part in (text[:bound], text[bound:]))
    half = len(held_out) // 2
    return Text(learnt, held_out[:half], held_out[half:])


def characters_to_a_token(tokens: Tensor) -> float:
    """How long the tokens of a part are, on average."""
    return len(gpt2_encoding().decode(tokens.tolist())) / len(tokens)


class Training(NetworkTraining):
    """A round is a hundred gradient steps; the rules look at the loss on some windows of the validation's part."""

    stack: ClassVar[str] = "blocks"
    config: Config

    def __init__(self, run: Run) -> None:
        self._text = three_parts()
        super().__init__(run, read_task_config(run.folder, Config))

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

    def learn(self) -> tuple[float, dict[str, Any]]:
        """A hundred gradient steps on windows from anywhere in the text."""
        config, now, optimizer = self.config, self.progress, self.net.optimizer
        model: Any = self.net.model
        losses = []
        model.train()
        for _ in range(min(STEPS_IN_A_ROUND, config.steps - now["step"])):
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
        places = torch.linspace(0, spread, VALIDATION_WINDOWS).long()
        validation = mean_loss(model, windows(self._text.validation, places, config.context))
        return validation, {"loss": torch.stack(losses).tolist(), "validation": validation}

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


def load(folder: Path, checkpoint: str = "last") -> GrowPruneFreeze:
    """The network of a run."""
    return load_network(folder, partial(make_model, read_task_config(folder, Config)), checkpoint)


def train(run: Run, threads: int | None = None, report: Report = lambda metrics: None) -> dict[str, Any]:
    """Train to the end, from wherever the run is; returns, and writes, its result."""
    return train_run(run, lambda: Training(run), partial(finish, run.folder), report)


def finish(folder: Path) -> dict[str, Any]:
    """What a run amounts to: the loss on the part of the text that nothing was decided on, of its last checkpoint."""
    config, text = read_task_config(folder, Config), three_parts()
    model: Any = load(folder).model
    starts = torch.arange(0, len(text.test) - config.context, config.context)
    loss = mean_loss(model, windows(text.test, starts, config.context))
    return {
        "test": loss,
        "test_a_character": loss / characters_to_a_token(text.test),
        "validation": read_log(folder, "metrics")[-1]["validation"],
    }


@torch.inference_mode()
def sample(folder: Path, prompt: str, tokens: int, temperature: float, seed: int) -> str:
    """Let the network of a run go on with a text."""
    if not temperature >= 0.0:
        raise ValueError(f"temperature: {temperature}; accepted: at least 0")
    if tokens < 1:
        raise ValueError(f"tokens: {tokens}; accepted: at least 1")
    model: Any = load(folder).model
    model.eval()
    encoding, random = gpt2_encoding(), torch.Generator().manual_seed(seed)
    said: list[int] = encoding.encode_ordinary(prompt) or encoding.encode_ordinary("\n")
    cache: Cache | None = None
    for _ in range(tokens):
        if cache is None or cache.places == model.context:  # it is full: read the latest half anew
            past = said[-model.context // 2 :] if cache is not None else said[-model.context :]
            logits, cache = model.read(torch.tensor([past]), model.context - len(past))
        else:
            logits = model.extend(torch.tensor([said[-1:]]), cache)
        if temperature == 0.0:
            said.append(int(logits.argmax()))
        else:
            said.append(int(torch.multinomial((logits[0] / temperature).softmax(0), 1, generator=random)))
    return str(encoding.decode(said))

"""TinyShakespeare as characters or as GPT-2's tokens: blocks of fixed depth or growing, at equal steps and FLOPs."""

from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from gpf import settings
from gpf.data import tinyshakespeare
from gpf.network import Rules
from gpf.reports.tables import Measure
from gpf.reports.verdicts import Claim
from gpf.runs.folder import Run
from gpf.tasks.depths import (
    DEPTH_COSTS,
    FASTER,
    PAPER,
    SMALLER,
    DepthConfig,
    DepthTraining,
    block_claim,
    depth_variants,
    equal_compute_claim,
    faster_claims,
    smaller_claims,
)
from gpf.tasks.shakespeare import GPT, LEARNT, VOCABULARY, Text, mean_loss, three_parts, windows
from gpf.tasks.task import Outcomes, Task, of_result

ALPHABET = 65
"""Different characters of the text."""
DEPTHS = (1, 2, 4, 8)
"""Depths of the fixed networks on the page; the last one is that of the networks that grow."""

EQUAL_FLOPS = (1, 2)
"""Depths of those that also take as many FLOPs as `faster`; deeper ones are further and further behind."""
TOKEN_DEPTHS = (1, 12)
"""Depths of the fixed networks that read GPT-2's tokens."""


@dataclass(frozen=True, kw_only=True)
class Config(DepthConfig):
    """Transformer on TinyShakespeare, and its training."""

    text: Literal["characters", "gpt2"] = "characters"
    """Units of the text: 65 different characters, or GPT-2's 50,257 tokens."""
    layers: int = settings.number(DEPTHS[-1], 1)
    steps: int = settings.number(1_000, 1)
    width: int = settings.number(96, 1)
    """Size of the embeddings."""
    heads: int = settings.number(4, 1)
    """Attention heads."""
    context: int = settings.number(64, 1)
    """Context length, characters or tokens."""
    validation_windows: int = settings.number(256, 1)
    """Windows of the text in a validation, at the end of a round."""

    def paper_rules(self) -> Rules:
        """The paper names no values for a language model; these are ours, with the paper's patience in rounds."""
        return Rules(
            warmup=2, grow_patience=2, grow_threshold=0.02, max_depth=self.layers, weight_threshold=0.02,
            belief_increment=0.1, prune_patience=10, belief_threshold=0.5, saliency="obd",
            saliency_threshold=1e-12, freeze_patience=15, freeze_delta=5e-4,
        )  # fmt: skip

    def layer_weights(self) -> tuple[float, float, float]:
        """Of all tokens of a window: embeddings are looked up, attention has two products of (context, width)."""
        block = 12 * self.width**2 + 2 * self.context * self.width
        return 0.0, float(self.context * block), float(self.context * self.vocabulary * self.width)

    @property
    def vocabulary(self) -> int:
        """Number of different characters or tokens."""
        return ALPHABET if self.text == "characters" else VOCABULARY

    def check(self) -> None:
        """Refuse what cannot be."""
        super().check()
        if self.width % self.heads:
            raise ValueError(f"heads must be a divisor of the width, {self.width}, got {self.heads}")


@cache
def encoded() -> tuple[str, Text]:
    """The alphabet, and the text as places in it: training, validation and test split."""
    text = tinyshakespeare()
    alphabet = "".join(sorted(set(text)))
    if len(alphabet) != ALPHABET:
        raise ValueError(f"TinyShakespeare must have {ALPHABET} different characters, got a text with {len(alphabet)}")
    places = {letter: i for i, letter in enumerate(alphabet)}
    codes = torch.tensor([places[letter] for letter in text])
    bound = int(len(text) * LEARNT)
    half = (len(text) - bound) // 2
    return alphabet, Text(codes[:bound], codes[bound : bound + half], codes[bound + half :])


def read(config: Config) -> Text:
    """The text as numbers, in three splits."""
    return encoded()[1] if config.text == "characters" else three_parts()


def make_model(config: Config) -> GPT:
    """The network as it is built."""
    return GPT(config.width, config.heads, config.start_layers, config.context, config.vocabulary)


class Training(DepthTraining[Config]):
    """Windows from anywhere in the text."""

    stack: ClassVar[str] = "blocks"

    def __init__(self, run: Run, config: Config, threads: int | None = None) -> None:
        self._text = read(config)
        super().__init__(run, config)

    def build(self) -> GPT:
        """The network as it is before it learns."""
        return make_model(self.config)

    def loss(self, step: int) -> Tensor:
        """Cross-entropy in nats a character, or a token."""
        config = self.config
        random = np.random.default_rng((config.seed, step))
        starts = random.integers(len(self._text.learnt) - config.context, size=config.batch)
        model: Any = self.net.model
        loss: Tensor = model.loss(windows(self._text.learnt, torch.from_numpy(starts), config.context))
        return loss

    def validate(self) -> dict[str, float]:
        """The loss on windows that are spread over the validation split."""
        context, text = self.config.context, self._text.validation
        places = torch.linspace(0, len(text) - context - 1, self.config.validation_windows).long()
        model: Any = self.net.model
        return {"validation": mean_loss(model, windows(text, places, context))}

    def test(self) -> dict[str, float]:
        """The loss on the whole test split."""
        context, text = self.config.context, self._text.test
        model: Any = self.net.model
        return {"test": mean_loss(model, windows(text, torch.arange(0, len(text) - context, context), context))}

    def multiply_adds(self) -> tuple[float | None, list[float], float]:
        """One a weight and token, and attention's; units that are removed do not count."""
        below, _, above = self.config.layer_weights()
        attention = 2 * self.config.context * self.config.width
        matrices = [sum(p.numel() for p in layer.parameters() if p.dim() == 2) for layer in self.net.layers]
        return below, [float(self.config.context * (size + attention)) for size in matrices], above


def _measures(unit: str) -> dict[str, Measure]:
    return {
        "test": Measure(f"test loss, nats a {unit}", -1, ".3f", of_result("test")),
        "validation": Measure("final validation loss", -1, ".3f", of_result("validation")),
        **DEPTH_COSTS,
    }


MEASURES: dict[str, Measure] = _measures("character")
TOKEN_MEASURES: dict[str, Measure] = _measures("token")


def _claims(of: Outcomes) -> list[Claim]:
    return [
        *faster_claims(of, DEPTHS[-1], {"flops": 0.6, "seconds": 0.65}),
        *equal_compute_claim(of, MEASURES["test"]),
        *smaller_claims(of, MEASURES["test"], 0.02, 0.5),
    ]


def _token_claims(of: Outcomes) -> list[Claim]:
    return [block_claim(of, TOKEN_DEPTHS[-1], 0.75), *equal_compute_claim(of, TOKEN_MEASURES["test"])]


TASK = Task(
    name="characters",
    reference=f"{__name__}:TASK",
    make=Config.of,
    training=Training,
    length=lambda config: (config.all_steps, "step"),
    find_data=read,
    variant_of=lambda config: config.variant,
    network=make_model,
    metric=lambda config: "validation loss",
    title="Characters of TinyShakespeare: fixed depths, and networks that grow",
    summary="GPT-2's blocks of width 96, context 64, batches of 16, AdamW with a peak learning rate of 2e-3, warm-up"
    " and a cosine schedule. Fixed networks have as many steps as GPF, or as many training FLOPs as `faster`. `smaller`"
    " takes about as many training FLOPs as the deepest fixed network: its steps become cheaper as units go.",
    variants=depth_variants(DEPTHS, EQUAL_FLOPS, smaller={"steps": 1_200}),
    ours=(FASTER, SMALLER, PAPER),
    measures=MEASURES,
    curves={
        "validation loss, nats a character": lambda line: float(line["validation"]),
        "layers": lambda line: float(line["depth"]),
    },
    claims=_claims,
    unit="step",
    seeds=6,
)

TOKENS = Task(
    name="tokens",
    reference=f"{__name__}:TOKENS",
    make=Config.of,
    preset={"text": "gpt2", "width": 64, "heads": 8, "layers": TOKEN_DEPTHS[-1], "batch": 8, "steps": 600},
    training=Training,
    length=lambda config: (config.all_steps, "step"),
    find_data=read,
    variant_of=lambda config: config.variant,
    network=make_model,
    metric=lambda config: "validation loss",
    title="GPT-2's tokens of TinyShakespeare: twelve blocks, or a stack that grows to twelve",
    summary="The paper's network: vocabulary 50,257, context 64, 8 heads, width 64, batches of 8. 600 steps of AdamW,"
    " about one pass over the text, with a peak learning rate of 2e-3, warm-up and a cosine schedule; the paper's"
    " 10,000 steps would take an hour a run. More than four fifths of all FLOPs compute logits of the vocabulary,"
    " at any depth, so the first claim counts FLOPs of blocks only.",
    variants={
        name: settings
        for name, settings in depth_variants(TOKEN_DEPTHS, TOKEN_DEPTHS[:1]).items()
        if settings["kind"] in ("fixed", "faster")
    },
    ours=(FASTER,),
    measures=TOKEN_MEASURES,
    curves={
        "validation loss, nats a token": lambda line: float(line["validation"]),
        "layers": lambda line: float(line["depth"]),
    },
    claims=_token_claims,
    unit="step",
    seeds=6,
)

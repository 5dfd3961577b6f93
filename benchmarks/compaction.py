"""What `compact()` brings in the usual architectures, after whole units were pruned.

    python benchmarks/compaction.py [--rounds 15] [--threads 1] [--share 0.9] [--write] [--json]

Models with random weights, at the sizes of small real ones. In each group of units that can be removed (neurons,
channels, attention heads), a random share is pruned, one unit at least stays, and `compact()` removes them.
Forward passes before and after are timed in turns; the median of the ratios within a round counts. `--write` puts the
table into docs/network.md.
"""

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable

import torch
from documents import insert
from torch import Tensor, nn

import gpf
from gpf.network.compaction.compact import compact
from gpf.network.compaction.units import unit_groups, unit_mask
from gpf.reports.tables import markdown_table

Made = tuple[nn.Module, str, Tensor]
"""A model, the path of its stack, and an input."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--share", type=float, default=0.9, help="of the units that is pruned")
    parser.add_argument("--write", action="store_true", help="put the table into docs/network.md")
    parser.add_argument("--json", action="store_true", help="end with one JSON object of speed-ups")
    arguments = parser.parse_args()
    if not 0.0 <= arguments.share < 1.0:
        parser.error(f"--share must be from 0 to below 1, got {arguments.share}")
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    rows, speedups = [], {}
    for name, make in MODELS.items():
        model, stack, x = make()
        smaller, pruned = prune_and_compact(model.eval(), stack, arguments.share)
        assert_same(model, smaller, x)
        before, after = time_in_turns(model, smaller, x, arguments.rounds)
        speedups[name] = statistics.median(a / b for a, b in zip(before, after, strict=True))
        rows.append(
            (
                name,
                pruned,
                f"{count(model):,}",
                f"{count(smaller):,}",
                f"{1e3 * statistics.median(before):.1f}",
                f"{1e3 * statistics.median(after):.1f}",
                f"{speedups[name]:.1f}",
            )
        )
        print(f"{name}: {speedups[name]:.1f} times as fast", flush=True)
    header = ["model", "units pruned", "parameters", "after", "forward pass, ms", "after", "speed-up"]
    table = markdown_table(header, rows)
    print(table)
    if arguments.write:
        insert("docs/network.md", "compaction", table)
    if arguments.json:
        print(json.dumps(speedups))


@torch.no_grad()
def prune_and_compact(model: nn.Module, stack: str, share: float) -> tuple[nn.Module, str]:
    """Prune a random share of each group of units in place; the smaller model, and what was pruned in words."""
    pruned = total = 0
    blocks = list(model.get_submodule(stack).children())
    for group in unit_groups(model, stack):
        dead = torch.zeros(group.count, dtype=torch.bool)
        dead[torch.randperm(group.count)[: min(group.count - 1, int(share * group.count))]] = True
        parameters = dict(blocks[group.layer].named_parameters())
        for name, mask in unit_mask(group, dead, parameters).items():
            parameters[name].masked_fill_(mask, 0.0)
        pruned, total = pruned + int(dead.sum()), total + group.count
    return compact(model, stack), f"{pruned:,} of {total:,}"


@torch.no_grad()
def assert_same(model: nn.Module, smaller: nn.Module, x: Tensor) -> None:
    """The smaller model computes the same."""
    expected = output(model, x)
    torch.testing.assert_close(output(smaller, x), expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


def output(model: nn.Module, x: Tensor) -> Tensor:
    out = model(x)
    return out if isinstance(out, Tensor) else out[0]


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@torch.no_grad()
def time_in_turns(model: nn.Module, smaller: nn.Module, x: Tensor, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of a forward pass of both in each round, after one that does not count."""
    seconds: tuple[list[float], list[float]] = [], []
    gc.disable()
    for number in range(rounds + 1):
        for one, times in zip((model, smaller), seconds, strict=True):
            start = time.perf_counter()
            one(x)
            if number:
                times.append(time.perf_counter() - start)
    gc.enable()
    return seconds


def mlp() -> Made:
    return gpf.MLP(784, 1024, 10, depth=4), "layers", torch.randn(256, 784)


def cnn() -> Made:
    def block(depth: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(3 if depth == 0 else 64, 64, 3, padding=1), nn.ReLU())

    model = nn.Sequential(
        nn.Sequential(*map(block, range(6))), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)
    )
    return model, "0", torch.randn(16, 3, 32, 32)


def gpt2() -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=1024, n_positions=256, n_embd=384, n_layer=6, n_head=12, bos_token_id=0, eos_token_id=0
    )
    return GPT2LMHeadModel(config), "transformer.h", torch.randint(0, 1024, (4, 128))


def llama() -> Made:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=1024, hidden_size=384, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=24,
        num_key_value_heads=12, max_position_embeddings=256,
    )  # fmt: skip
    return LlamaForCausalLM(config), "model.layers", torch.randint(0, 1024, (4, 128))


def vit() -> Made:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        image_size=96, patch_size=8, hidden_size=384, intermediate_size=1536, num_hidden_layers=6,
        num_attention_heads=12,
    )  # fmt: skip
    return ViTForImageClassification(config), "vit.layers", torch.randn(4, 3, 96, 96)


def bert() -> Made:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=1024, hidden_size=384, intermediate_size=1536, num_hidden_layers=6, num_attention_heads=12
    )
    return BertModel(config), "encoder.layer", torch.randint(0, 1024, (4, 128))


def convnext() -> Made:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(hidden_sizes=[48, 96, 192, 384], depths=[2, 2, 6, 2])
    return ConvNextForImageClassification(config), "convnext.encoder.stages", torch.randn(4, 3, 96, 96)


MODELS: dict[str, Callable[[], Made]] = {
    "MLP, 784-1024x4-10, batch 256": mlp,
    "CNN, 6 x 64 channels, 16 images of 32 x 32": cnn,
    "GPT-2, 6 x 384, 12 heads, 4 x 128 tokens": gpt2,
    "Llama, 6 x 384, 24 heads in 12 groups, 4 x 128 tokens": llama,
    "ViT, 6 x 384, 12 heads, 4 images of 96 x 96": vit,
    "BERT, 6 x 384, 12 heads, 4 x 128 tokens": bert,
    "ConvNeXt, 48 to 384 channels, 4 images of 96 x 96": convnext,
}


if __name__ == "__main__":
    main()

"""What it costs to have gpf attached, and how fast its own operations are.

    python benchmarks/network_overhead.py [--only MLP GPT-2 CNN] [--rounds 40] [--threads 1] [--skip-large]
                                          [--write] [--json]

Training steps of a plain model, of one with gpf attached, and of ones in which half and 90 % of the weights are pruned
are timed in turns, with torch's default and its fused Adam, for three models: a 3072-512x4-10 MLP at batch 128, a
GPT-2 of 4 blocks and width 128 at 16 x 64 tokens, and a CNN of 4 convolutions with 64 channels at 32 images of 32 x 32.
The rules are the classifier's, which gather weights and activations. Medians of the ratios within a round count, over
eight builds of each model, because its place in memory makes it faster or slower by some percent. Then
`prune(keep=)` and `save` are timed on a model of 47 million parameters. `--write` puts the table into docs/network.md.
"""

import argparse
import copy
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from documents import insert
from torch import nn

import gpf
from gpf.network import surgery
from gpf.reports.tables import markdown_table

# Everything is observed from the first epoch on, and nothing happens by itself.
RULES = gpf.Rules.classifier(warmup=0, max_depth=4, freeze_patience=10**9)
VARIANTS = {"plain": None, "attached": 1.0, "half pruned": 0.5, "90 % pruned": 0.1}
BUILDS = 8
AIMS = {"attached": (1.03, 1.03), "half pruned": (1.08, 1.05), "90 % pruned": (1.08, 1.05)}
"""With torch's default Adam, and with its fused one."""
Case = tuple[nn.Module, str, Callable[[int], nn.Module], Callable[[nn.Module], torch.Tensor]]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS), help="models whose steps are timed")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--skip-large", action="store_true", help="leave out the model of 47 million parameters")
    parser.add_argument("--write", action="store_true", help="put the table into docs/network.md")
    parser.add_argument("--json", action="store_true", help="end with one JSON object of ratios")
    arguments = parser.parse_args()
    if arguments.rounds < BUILDS:
        parser.error(f"--rounds must be at least {BUILDS}, one for each time that models are built")
    if arguments.write and (arguments.skip_large or set(arguments.only) != set(MODELS)):
        parser.error("--write needs all rows: leave out --only and --skip-large")
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    rows: list[tuple[str, str, str]] = []
    ratios: dict[str, float] = {}
    for name in arguments.only:
        for form, fused in (("default Adam", False), ("fused Adam", True)):
            seconds = measure_builds(MODELS[name], fused, arguments.rounds)
            for variant, aims in AIMS.items():
                found = ratio(seconds, variant, "plain")
                ratios[f"{name}, {form}, {variant}"] = found
                rows.append((f"{name}, {form}: step, {variant} / plain", f"{found:.3f}", f"at most {aims[fused]}"))
                print(*rows[-1], flush=True)
    rows += epoch_and_memory(arguments.rounds, ratios)
    if not arguments.skip_large:
        rows += large(ratios)
    table = markdown_table(["ratio", "measured", "aim"], rows)
    print(table)
    if arguments.write:
        insert("docs/network.md", "overhead", table)
    if arguments.json:
        print(json.dumps(ratios))


def mlp() -> Case:
    """A 3072-512x4-10 network at batch 128."""
    x, y = torch.randn(128, 3072), torch.randint(0, 10, (128,))
    model = gpf.MLP(3072, 512, 10, 4)
    return model, "layers", model.make_block, lambda m: nn.functional.cross_entropy(m(x), y)


def gpt2(width: int = 128, depth: int = 4, batch: int = 16, vocabulary: int = 256) -> Case:
    """GPT-2 of four blocks of width 128, 16 x 64 tokens."""
    from transformers import GPT2Config, GPT2LMHeadModel
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block

    config = GPT2Config(
        vocab_size=vocabulary, n_positions=64, n_embd=width, n_layer=depth, n_head=max(1, width // 32),
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    tokens = torch.randint(0, vocabulary, (batch, 64))
    return (
        GPT2LMHeadModel(config),
        "transformer.h",
        lambda place: GPT2Block(config, place),
        lambda m: m(tokens, labels=tokens).loss,
    )


def cnn() -> Case:
    """Four convolutions of 64 channels, 32 images."""

    def block(place: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(64 if place else 3, 64, 3, padding=1), nn.ReLU())

    model = nn.Sequential(
        nn.Sequential(*(block(i) for i in range(4))), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(1024, 10)
    )
    x, y = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
    return model, "0", block, lambda m: nn.functional.cross_entropy(m(x), y)


MODELS: dict[str, Callable[[], Case]] = {"MLP": mlp, "GPT-2": gpt2, "CNN": cnn}


def measure_builds(make: Callable[[], Case], fused: bool, rounds: int) -> dict[str, list[float]]:
    """Seconds of a step of each variant, of models that were built several times.

    Where a model lies in memory makes steps some percent faster or slower for as long as it is there.
    """
    seconds: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
    for build in range(BUILDS):
        found = measure_in_turns(steps_of(make(), fused, first=build), max(1, rounds // BUILDS))
        for variant, times in found.items():
            seconds[variant] += times
    return seconds


def steps_of(case: Case, fused: bool, first: int = 0) -> dict[str, Callable[[], object]]:
    """A training step of each variant of a model, after some that are not timed; the `first` one is built first."""
    base, stack, block, loss = case
    found: dict[str, Callable[[], object]] = {}
    variants = list(VARIANTS.items())
    for variant, keep in variants[first % len(variants) :] + variants[: first % len(variants)]:
        model = copy.deepcopy(base)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=fused)
        step = training_step(model, optimizer, loss)
        step()
        if keep is not None:
            net = gpf.attach(model, optimizer, stack=stack, block=block, rules=RULES)
            if keep < 1.0:
                prune_smallest(net, 1.0 - keep)
        found[variant] = step
    return found


def prune_smallest(net: gpf.GrowPruneFreeze, share: float) -> None:
    """Prune this share of the weights in each layer, the smallest."""
    for layer in net.layers:
        for weight in layer.weights:
            size = weight.parameter.detach().abs()
            limit = size.flatten().kthvalue(max(1, int(share * size.numel()))).values
            surgery.prune(layer, weight, size <= limit, net.optimizers)


def training_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, loss_of: Callable[[nn.Module], torch.Tensor]
) -> Callable[[], object]:
    """One step of plain training."""

    def step() -> None:
        loss = loss_of(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def epoch_and_memory(rounds: int, ratios: dict[str, float]) -> list[tuple[str, str, str]]:
    """What an epoch's end takes of the time of a step, and what is kept of the size of the parameters."""
    model, stack, block, loss = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    net = gpf.attach(model, optimizer, stack=stack, block=block, rules=RULES)
    step = training_step(model, optimizer, loss)
    step()
    prune_smallest(net, 0.5)
    weights = [weight for layer in net.layers for weight in layer.masked]
    seconds = measure_in_turns(
        {
            "step": step,
            "end_epoch": lambda: net.end_epoch(1.0),
            "mask": lambda: [weight.mask_gradient(weight.parameter) for weight in weights],
        },
        rounds,
    )
    ratios["end_epoch"] = ratio(seconds, "end_epoch", "step")
    ratios["mask"] = ratio(seconds, "mask", "step")
    ratios["memory"] = extra_memory(net) / sum(p.numel() * p.element_size() for p in model.parameters())
    return [
        ("MLP, fused Adam: one masking of all gradients / step", f"{ratios['mask']:.3f}", "what bounds the rows above"),
        ("MLP, half pruned: `end_epoch` / step", f"{ratios['end_epoch']:.2f}", "below 1"),
        ("MLP: beliefs, masks, freeze window / parameters, bytes", f"{ratios['memory']:.2f}", "at most 4"),
    ]


def large(ratios: dict[str, float]) -> list[tuple[str, str, str]]:
    """`prune(keep=)` and `save` of a GPT-2 with 47 million parameters in its blocks."""
    model, stack, block, loss = gpt2(width=768, depth=7, batch=1, vocabulary=64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    net = gpf.attach(model, optimizer, stack=stack, block=block, rules=gpf.Rules())
    training_step(model, optimizer, loss)()
    net.end_epoch(1.0)
    start = time.perf_counter()
    net.prune(keep=0.5)
    ratios["prune_seconds"] = time.perf_counter() - start
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(5):
            for name, write in saving(net, Path(folder)).items():
                start = time.perf_counter()
                write()
                found.setdefault(name, []).append(time.perf_counter() - start)
    ratios["save"] = ratio(found, "gpf", "torch")
    millions = sum(layer.size for layer in net.layers) / 1e6
    return [
        (f"`prune(keep=0.5)` of a GPT-2, {millions:.0f} M parameters, s", f"{ratios['prune_seconds']:.2f}", "below 1"),
        ("`save` / `torch.save` of model and optimizer, the same", f"{ratios['save']:.2f}", "at most 3"),
    ]


def saving(net: gpf.GrowPruneFreeze, folder: Path) -> dict[str, Callable[[], Any]]:
    """Both ways to write a checkpoint."""

    def plain() -> None:
        torch.save({"model": net.model.state_dict(), "optimizer": net.optimizer.state_dict()}, folder / "plain.pt")

    return {"torch": plain, "gpf": lambda: net.save(folder / "gpf")}


def measure_in_turns(contestants: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each contestant in each round, in another order each time, after one that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    start = time.perf_counter()
    for run in contestants.values():
        run()
    repeats = max(1, round(0.1 * len(contestants) / (time.perf_counter() - start)))  # about 0.1 s a turn
    names = list(contestants)
    gc.disable()
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            contestants[name]()  # what the one before left in the caches does not count
            start = time.perf_counter()
            for _ in range(repeats):
                contestants[name]()
            if number:
                seconds[name].append((time.perf_counter() - start) / repeats)
    gc.enable()
    return seconds


def ratio(seconds: dict[str, list[float]], of: str, to: str) -> float:
    """The median over rounds of one contestant's time in units of another's."""
    return statistics.median(a / b for a, b in zip(seconds[of], seconds[to], strict=True))


def extra_memory(net: gpf.GrowPruneFreeze) -> int:
    """Bytes that the controller keeps in addition to the model and its optimizer."""
    kept = [
        values
        for layer in net.layers
        for weight in layer.weights
        for values in (weight.belief, weight.pruned, weight.keep, weight.previous, weight.squares)
    ]
    return sum(values.numel() * values.element_size() for values in kept if values is not None)


if __name__ == "__main__":
    main()

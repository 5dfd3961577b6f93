"""What it costs to have gpf attached, and what compaction brings.

    python benchmarks/network_overhead.py [--rounds 30] [--threads 1] [--write] [--json]

A 3072-512x4-10 network, batch 128, Adam, the classifier's rules (weights and activations gathered). Steps of a plain
model, of one with gpf attached, and of one with gpf attached and half its weights pruned are timed in turns, with
torch's default and its fused Adam; medians of the ratios within a round count. `--write` puts the table into
docs/network.md.
"""

import argparse
import copy
import gc
import json
import statistics
import time
from collections.abc import Callable

import torch
from documents import insert
from torch import nn

import gpf
from gpf.network import surgery
from gpf.reports.tables import markdown_table

BATCH, WIDTH, DEPTH = 128, 512, 4


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="put the table into docs/network.md")
    parser.add_argument("--json", action="store_true", help="end with one JSON object of ratios")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    x, y = torch.randn(BATCH, 3072), torch.randint(0, 10, (BATCH,))

    # Everything is observed from the first epoch on, and nothing happens by itself.
    rules = gpf.Rules.classifier(warmup=0, max_depth=DEPTH, freeze_patience=10**9)
    base = gpf.MLP(3072, WIDTH, 10, DEPTH)
    steps_of: dict[str, Callable[[], object]] = {}
    nets = {}
    for form in ("", ", fused Adam"):
        for name in ("plain", "attached", "half pruned"):
            model = copy.deepcopy(base)
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=bool(form))
            if name != "plain":
                nets[name + form] = gpf.attach(model, optimizer, rules=rules)
            if name == "half pruned":
                prune_half(nets[name + form])
            steps_of[name + form] = training_step(model, optimizer, x, y)
    net, other = nets["attached"], nets["half pruned"]
    steps = measure_in_turns({**steps_of, "end_epoch": lambda: other.end_epoch(1.0)}, arguments.rounds)
    ratios = {
        "step": ratio(steps, "attached", "plain"),
        "step_fused": ratio(steps, "attached, fused Adam", "plain, fused Adam"),
        "step_half_pruned": ratio(steps, "half pruned", "plain"),
        "step_half_pruned_fused": ratio(steps, "half pruned, fused Adam", "plain, fused Adam"),
        "end_epoch_steps": ratio(steps, "end_epoch", "plain"),
        "memory": extra_memory(other) / sum(p.numel() * p.element_size() for p in base.parameters()),
    }
    before, after = cut_units(net, x, share=0.9)
    forward = measure_in_turns({"before": before, "compact": after}, arguments.rounds)
    ratios["compact"] = ratio(forward, "before", "compact")

    rows = [
        ("training step, gpf attached / plain", f"{ratios['step']:.3f}", "at most 1.05"),
        ("the same with fused Adam", f"{ratios['step_fused']:.3f}", "at most 1.05"),
        ("training step, half the weights pruned / plain, fused Adam", f"{ratios['step_half_pruned_fused']:.3f}", ""),
        (
            "the same with torch's default Adam, whose square root is slow at zeros",
            f"{ratios['step_half_pruned']:.3f}",
            "",
        ),
        ("`end_epoch` / training step", f"{ratios['end_epoch_steps']:.2f}", "below 1"),
        ("beliefs, masks, freeze window / parameters, bytes", f"{ratios['memory']:.2f}", "at most 4"),
        (
            "forward pass at batch 128 / the same after `compact()`, 90 % of units pruned",
            f"{ratios['compact']:.1f}",
            "at least 4",
        ),
    ]
    table = markdown_table(["ratio", "measured", "aim"], rows)
    medians = {name: 1e3 * statistics.median(times) for name, times in (steps | forward).items()}
    print("ms, median: " + ", ".join(f"{name} {value:.2f}" for name, value in medians.items()))
    print(table)
    if arguments.write:
        insert("docs/network.md", "overhead", table)
    if arguments.json:
        print(json.dumps(ratios))


def prune_half(net: gpf.GrowPruneFreeze) -> None:
    """Prune the smaller half of the weights in each layer."""
    for layer in net.layers:
        for weight in layer.weights:
            surgery.prune(layer, weight, weight.parameter.abs() < weight.parameter.abs().median(), {})


def training_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor
) -> Callable[[], object]:
    """One step of plain training."""

    def step() -> None:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def measure_in_turns(contestants: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each contestant in each round, after one that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    gc.disable()
    for number in range(rounds + 1):
        for name, run in contestants.items():
            start = time.perf_counter()
            for _ in range(3):
                run()
            if number:
                seconds[name].append((time.perf_counter() - start) / 3)
    gc.enable()
    return seconds


def ratio(seconds: dict[str, list[float]], of: str, to: str) -> float:
    """The median over rounds of one contestant's time in units of another's."""
    return statistics.median(a / b for a, b in zip(seconds[of], seconds[to], strict=True))


def extra_memory(net: gpf.GrowPruneFreeze) -> int:
    """Bytes that the controller keeps beside the model and its optimizer."""
    kept = [
        values
        for layer in net.layers
        for weight in layer.weights
        for values in (weight.belief, weight.pruned, weight.keep, weight.previous, weight.squares)
    ]
    return sum(values.numel() * values.element_size() for values in kept if values is not None)


def cut_units(
    net: gpf.GrowPruneFreeze, x: torch.Tensor, share: float
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Prune all weights into a share of each layer's units; the forward pass before and after compaction."""
    for layer in net.layers:
        weight = layer.weights[0]
        mask = torch.zeros_like(weight.parameter, dtype=torch.bool)
        mask[torch.randperm(WIDTH)[: int(share * WIDTH)]] = True
        surgery.prune(layer, weight, mask, {})
    model, smaller = net.model.eval(), net.compact().eval()
    with torch.no_grad():
        torch.testing.assert_close(smaller(x), model(x), rtol=1e-4, atol=1e-5)
    return torch.no_grad()(lambda: model(x)), torch.no_grad()(lambda: smaller(x))


if __name__ == "__main__":
    main()

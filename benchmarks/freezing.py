"""What a training step costs with frozen leading layers, and with their activations cached.

    python benchmarks/freezing.py [--rounds 15] [--frozen 6] [--write]

Stacks of eight blocks on a fixed data set that fits in memory, on one core. Four copies of a model take turns: nothing
frozen, the leading blocks frozen, those and what precedes them frozen, and the same with `net.cache_frozen()`. The
median of the ratios within a round counts. `--write` puts the table into docs/network.md.
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable

import torch
from documents import insert
from torch import Tensor, nn

import gpf
from gpf.reports.tables import markdown_table
from gpf.tasks.images import ResidualNetwork
from gpf.tasks.shakespeare import GPT

BATCH = 16
ROWS = 64
BLOCKS = 8


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--frozen", type=int, default=6, help="leading blocks of eight that are frozen")
    parser.add_argument("--write", action="store_true", help="put the table into docs/network.md")
    arguments = parser.parse_args()
    if not 0 < arguments.frozen < BLOCKS:
        parser.error(f"--frozen must be from 1 to {BLOCKS - 1}, got {arguments.frozen}")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = []
    for name, (model, stack, x) in models().items():
        steps = ways(model, stack, x, arguments.frozen)
        for step in steps:
            step()  # fills the cache
        times = [[timed(step) for step in steps] for _ in range(arguments.rounds)]
        ratios = [statistics.median(one[n] / one[0] for one in times) for n in range(len(steps))]
        rows.append(
            [name, f"{1e3 * statistics.median(one[0] for one in times):.0f}", *(f"{r:.2f}" for r in ratios[1:])]
        )
    header = [
        f"stack of {BLOCKS}",
        "an epoch, ms",
        f"{arguments.frozen} blocks frozen",
        "and what precedes them",
        "and cached",
    ]
    table = markdown_table(header, rows)
    print(table)
    if arguments.write:
        insert("docs/network.md", "freezing", table)


def models() -> dict[str, tuple[nn.Module, str, Tensor]]:
    """By name, a model, the path of its stack, and a data set."""
    return {
        "GPT-2's blocks, width 96": (GPT(96, 4, BLOCKS, 64, vocabulary=65), "blocks", torch.randint(65, (ROWS, 64))),
        "residual convolutions, 64 channels": (ResidualNetwork(64, 64, BLOCKS), "layers", torch.randn(ROWS, 3072)),
        "MLP, width 512": (gpf.MLP(784, 512, 10, BLOCKS), "layers", torch.randn(ROWS, 784)),
    }


def ways(model: nn.Module, stack: str, x: Tensor, frozen: int) -> list[Callable[[], None]]:
    """Passes over the data set: with nothing frozen, with frozen blocks, with all before them, and with a cache."""
    return [
        epoch_of(model, stack, x, blocks, below, cached)
        for blocks, below, cached in (
            (0, False, False),
            (frozen, False, False),
            (frozen, True, False),
            (frozen, True, True),
        )
    ]


def epoch_of(model: nn.Module, stack: str, x: Tensor, blocks: int, below: bool, cached: bool) -> Callable[[], None]:
    """A pass over the data set, with a copy of the model whose first `blocks` blocks are frozen."""
    model = copy.deepcopy(model)
    inside = {id(p) for p in model.get_submodule(stack).parameters()}
    after = {id(p) for name in ("norm", "head") if hasattr(model, name) for p in getattr(model, name).parameters()}
    for parameter in model.parameters():
        if below and id(parameter) not in inside | after:
            parameter.requires_grad_(False)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
    net = gpf.attach(model, optimizer, stack=stack, rules=gpf.Rules.fixed())
    for layer in range(blocks):
        net.freeze(layer)
    cache = net.cache_frozen(limit=2**28 if cached else 0)
    if below:
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()  # its statistics are fixed, as a cache needs it

    def epoch() -> None:
        for rows in torch.arange(ROWS).split(BATCH):
            with cache.rows(rows):
                loss = model(x[rows]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return epoch


def timed(call: Callable[[], None]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()

"""How fast the tasks train, against plain loops of torch over the same networks, in one process and in turns.

    python benchmarks/tasks_speed.py [--run runs/tasks/cifar10/GPF-units/0] [--rounds 7] [--write] [--json]

- CIFAR-10: `gpf train cifar10`'s epoch over 5,000 images, validation included, against a loop written without gpf; four
  layers from the start, and the same four layers in GPF's care, with its statistics and the masks of a third of all
  weights. With `--run`, also the compact network of a finished run against the same network before.
- GPT-2: 10 gradient steps of `gpf train shakespeare` with twelve blocks, against a loop with torch's own cross-entropy.

Ratios are medians over rounds of ours / plain: below 1 is faster. `--write` puts the table into docs/tasks.md.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from documents import insert
from torch.nn import functional

from gpf.network import MLP
from gpf.reports.tables import markdown_table
from gpf.tasks import cifar10, shakespeare
from gpf.tasks.task import RoundTraining, Task

IMAGES, STEPS, WINDOWS = 5_000, 10, 8


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="a finished run of gpf train cifar10, to make compact")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--write", action="store_true", help="put the table into docs/tasks.md")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        ratios = {**classifier(folder, arguments.rounds), **language_model(folder, arguments.rounds)}
    rows = [
        ["an epoch of CIFAR-10, four layers from the start", f"{ratios['baseline']:.3f}"],
        ["the same in GPF's care, a third of the weights masked", f"{ratios['gpf']:.3f}"],
        ["a step of GPT-2, twelve blocks from the start", f"{ratios['gpt2_baseline']:.3f}"],
        ["the same in GPF's care", f"{ratios['gpt2_gpf']:.3f}"],
    ]
    if arguments.run:
        ratios["compact"], about = compacted(arguments.run, arguments.rounds)
        rows.append([about, f"{ratios['compact']:.3f}"])
    text = markdown_table(["against a plain loop of torch", "time, ours / plain"], rows)
    print(text)
    if arguments.write:
        insert("docs/tasks.md", "speed", text)
    if arguments.json:
        print(json.dumps(ratios))


def in_turns(rounds: int, plain: Callable[[], object], **ours: Callable[[], object]) -> dict[str, float]:
    """Median ratios of our times to the plain one's."""
    times: dict[str, list[float]] = {name: [] for name in ("plain", *ours)}
    for turn in range(rounds + 1):
        for name, work in {"plain": plain, **ours}.items():
            started = time.perf_counter()
            work()
            if turn:  # the first warms up
                times[name].append(time.perf_counter() - started)
    return {name: statistics.median(a / b for a, b in zip(times[name], times["plain"], strict=True)) for name in ours}


def classifier(folder: Path, rounds: int) -> dict[str, float]:
    """CIFAR-10 with four layers."""
    constant = {"images": IMAGES, "rules": {"batch_decay": "0"}}
    baseline = begin(cifar10.TASK, folder / "baseline", baseline=True, **constant)
    gpf = begin(cifar10.TASK, folder / "gpf", **constant)
    while gpf.net.depth < 4:
        gpf.net.grow()
    gpf.net.prune(keep=2 / 3)
    learnt, *held_out = cifar10.three_parts(IMAGES)
    model = MLP(cifar10.INPUTS, 512, cifar10.CLASSES, 4)
    return in_turns(
        rounds, plain_epoch(model, learnt, held_out), baseline=partial(epoch_of, baseline), gpf=partial(epoch_of, gpf)
    )


def begin(task: Task[Any], folder: Path, **settings: Any) -> RoundTraining:
    """A run that has not learnt anything yet."""
    config = task.of(settings)
    training = task.training(task.create(folder, config), config, 1)
    assert isinstance(training, RoundTraining)
    return training


def epoch_of(training: RoundTraining) -> None:
    """All of a round, with what the rules do, but for the files: a plain loop writes none."""
    metric = training.learn().metric
    assert metric is not None
    training.net.end_epoch(metric)


def plain_epoch(model: Any, learnt: Any, held_out: Any) -> Callable[[], None]:
    """What anybody would write: a pass over the images, and a look at those held out."""
    images, classes = torch.from_numpy(learnt[0]), torch.from_numpy(learnt[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    planes = images.view(-1, 3, 1024).float()
    mean, deviation = (value.repeat_interleave(1024) for value in (planes.mean(dim=(0, 2)), planes.std(dim=(0, 2))))
    scale, shift = 1.0 / deviation, -mean / deviation

    def epoch() -> None:
        model.train()
        for batch in torch.randperm(len(images)).split(128):
            x = torch.addcmul(shift, images[batch].float(), scale)
            loss = functional.cross_entropy(model(x), classes[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.inference_mode():
            for some, wanted in held_out:
                for part, targets in zip(
                    torch.from_numpy(some).split(1000), torch.from_numpy(wanted).split(1000), strict=True
                ):
                    logits = model(torch.addcmul(shift, part.float(), scale))
                    functional.cross_entropy(logits, targets).item()
                    (logits.argmax(1) == targets).sum().item()

    return epoch


def compacted(run: Path, rounds: int) -> tuple[float, str]:
    """The network of a run without the units that pruning has cut off, against the same network with them."""
    net = cifar10.TASK.load(run)
    small, large = net.compact(), net.detach()
    learnt, *held_out = cifar10.three_parts(IMAGES)
    for model in (small, large):
        for parameter in model.parameters():
            parameter.requires_grad_(True)
    ratio = in_turns(rounds, plain_epoch(large, learnt, held_out), compact=plain_epoch(small, learnt, held_out))
    sizes = [sum(p.numel() for p in model.parameters()) for model in (large, small)]
    about = f"a finished network made compact, {sizes[0]:,} to {sizes[1]:,} parameters, against itself"
    return ratio["compact"], about


def language_model(folder: Path, rounds: int) -> dict[str, float]:
    """GPT-2 with twelve blocks."""
    short = {"round_steps": STEPS, "validation_windows": WINDOWS}
    baseline = begin(shakespeare.TASK, folder / "gpt2", baseline=True, **short)
    gpf = begin(shakespeare.TASK, folder / "gpt2-gpf", **short)
    while gpf.net.depth < 12:
        gpf.net.grow()
    gpf.learn()  # saliency is of gradients: there must have been some
    gpf.net.prune(keep=2 / 3)
    assert gpf.net.shape().density < 0.7  # the newest block is left alone
    text, random = shakespeare.three_parts(), np.random.default_rng(0)
    model = shakespeare.GPT(64, 8, 12, 64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)

    def losses(tokens: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    def steps() -> None:
        model.train()
        for _ in range(STEPS):
            starts = torch.from_numpy(random.integers(len(text.learnt) - 64, size=8))
            loss = losses(shakespeare.windows(text.learnt, starts, 64))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.inference_mode():
            losses(shakespeare.windows(text.validation, torch.arange(WINDOWS), 64)).item()

    found = in_turns(rounds, steps, baseline=partial(epoch_of, baseline), gpf=partial(epoch_of, gpf))
    return {f"gpt2_{name}": ratio for name, ratio in found.items()}


if __name__ == "__main__":
    main()

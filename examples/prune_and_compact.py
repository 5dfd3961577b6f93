"""Prune an image classifier to a target while it trains, remove the pruned units, and measure the latency.

python examples/prune_and_compact.py [--keep 0.25] [--quick]

Images are scikit-learn's handwritten digits of 8 x 8 pixels.
Needs: scikit-learn
"""

import argparse
import time

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import gpf


def block(channels: int) -> nn.Sequential:
    """A convolution that keeps the shape."""
    return nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())


def digits() -> tuple[Tensor, Tensor]:
    """Images (n, 1, 8, 8) and labels, shuffled."""
    pixels, labels = load_digits(return_X_y=True)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    return torch.tensor(pixels, dtype=torch.float32).reshape(-1, 1, 8, 8)[order] / 16.0, torch.tensor(labels)[order]


def latency(model: nn.Module, images: Tensor, rounds: int = 30) -> float:
    """Milliseconds of a forward pass, the fastest of several."""
    fastest = float("inf")
    with torch.inference_mode():
        for _ in range(rounds):
            start = time.perf_counter()
            model(images)
            fastest = min(fastest, time.perf_counter() - start)
    return 1e3 * fastest


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Share of images that are classified correctly."""
    with torch.inference_mode():
        return (model(images).argmax(1) == labels).double().mean().item()


def main() -> None:
    """Train, prune, compact, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=float, default=0.25, help="share of the channels that are kept")
    parser.add_argument("--quick", action="store_true", help="two epochs")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    images, labels = digits()
    training, test = slice(0, 1300), slice(1300, None)
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.Sequential(*(block(32) for _ in range(3))),
        nn.Flatten(),
        nn.Linear(32 * 64, 10),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    epochs = 2 if arguments.quick else 16
    net = gpf.attach(
        model, optimizer, stack="1", rules=gpf.Rules.smaller("unit", prune_to=arguments.keep), steps=epochs * 21
    )
    for _ in range(epochs):
        for rows in torch.randperm(1300).split(64):
            loss = nn.functional.cross_entropy(model(images[training][rows]), labels[training][rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        for event in net.end_epoch(loss.item()):
            print(event)
    model.eval()
    small = net.compact(fuse=True)
    torch.testing.assert_close(small(images), model(images), atol=1e-3, rtol=1e-3)
    for name, one in (("trained", model), ("compacted", small)):
        parameters = sum(p.numel() for p in one.parameters())
        correct = accuracy(one, images[test], labels[test])
        print(f"{name}: accuracy {correct:.1%}, {parameters:,} parameters, {latency(one, images[:256]):.2f} ms")


if __name__ == "__main__":
    torch.set_num_threads(1)  # fastest for a small network
    main()

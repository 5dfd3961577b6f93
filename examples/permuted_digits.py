"""Digits whose pixels change places without notice, in three ways that return: a network that recalls earlier versions.

python examples/permuted_digits.py [--visits 12] [--quick]

Accuracy is measured online, before a batch is learned. `Recall` stores pruned versions of the network. When accuracy
drops, it tries them, and installs the one that fits or starts a new one.
Needs: scikit-learn
"""

import argparse
from collections.abc import Iterator

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import gpf
from gpf.continual import Recall, Settings

BATCH, BATCHES, TASKS = 64, 5, 3
"""Images of a gradient step, steps of an epoch (the unit of time of `Recall`), and arrangements of pixels."""


def fresh(depth: int) -> gpf.MLP:
    """A network that has learned nothing."""
    return gpf.MLP(inputs=64, width=64, outputs=10, depth=depth)


def stream(visits: int, epochs: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Visits to the tasks in turns; of each epoch the task, images and labels."""
    pixels, labels = (torch.tensor(part) for part in load_digits(return_X_y=True))
    generator = torch.Generator().manual_seed(0)
    orders = [torch.randperm(64, generator=generator) for _ in range(TASKS)]
    for visit in range(visits):
        for _ in range(epochs):
            rows = torch.randint(len(labels), (BATCHES * BATCH,), generator=generator)
            yield visit % TASKS, pixels[rows][:, orders[visit % TASKS]].float() / 16.0, labels[rows]


def learn(recalls: bool, visits: int, epochs: int) -> list[float]:
    """Accuracy of each epoch, while the network learns."""
    torch.manual_seed(0)
    model = fresh(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    net = gpf.attach(model, optimizer, rules=gpf.Rules.fixed())
    recall = (
        Recall(net, fresh, Settings(settled=8, head_start=0, trial=1, useful=0.6, keep=0.5, budget=20_000))
        if recalls
        else None
    )
    found: list[float] = []
    for task, images, labels in stream(visits, epochs):
        others = recall.others() if recall and recall.trial else []
        with torch.no_grad():
            rivals = [float((other(images).argmax(1) == labels).sum()) for other in others]
        hits = 0.0
        for rows in torch.arange(len(labels)).split(BATCH):
            outputs = model(images[rows])
            hits += float((outputs.argmax(1) == labels[rows]).sum())
            loss = nn.functional.cross_entropy(outputs, labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        found.append(hits / len(labels))
        if recall is None:
            continue
        if recall.trial:
            decisions = recall.after_trial([hits, *rivals], [len(labels)] * (1 + len(rivals)))
        else:
            decisions = recall.after_epoch(hits, len(labels))
        for decision in decisions:
            print(f"  epoch {len(found)}, task {task}: {decision}")
    return found


def main() -> None:
    """Learn in both ways, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--visits", type=int, default=12)
    parser.add_argument("--quick", action="store_true", help="four short visits")
    arguments = parser.parse_args()
    visits, epochs = (4, 12) if arguments.quick else (arguments.visits, 60)
    for name, recalls in (("one network", False), ("versions that are recalled", True)):
        accuracy = torch.tensor(learn(recalls, visits, epochs)).reshape(visits, epochs)
        returns = accuracy[TASKS:, 2:10].mean()  # a drop is seen after one epoch, a trial takes another
        print(f"{name}: accuracy {accuracy.mean():.1%}; in epochs 3 to 10 of a return {returns:.1%}")


if __name__ == "__main__":
    torch.set_num_threads(1)  # fastest for a small network
    main()

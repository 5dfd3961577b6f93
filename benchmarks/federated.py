"""Time and megabytes of a federated round, relative to plain FedAvg, in one run.

    python benchmarks/federated.py [--rounds 30] [--clients 8] [--write]

Two federations live side by side, and their rounds are timed in turns: federated GPF as the study runs it, and plain
FedAvg on a fixed network of its final depth. The plain one packs its arrays as safetensors, averages them with NumPy,
and checks nothing: no digests, no limits, no NaN, no structure. Clients learn from the same number of environment
steps in both. Times are medians: of a whole round, and of messages, checks, merging and adoption alone. Megabytes are
means, because they change as networks grow and are pruned. `--write` puts the table into docs/federated.md.
"""

import argparse
import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from documents import insert
from safetensors.numpy import load, save

from gpf.federated.clients import Client, Plan
from gpf.federated.rounds import Server
from gpf.reports.tables import markdown_table

Costs = dict[str, float]
SEED = 900
DEPTH = 3
"""Hidden layers of the plain network, and the most that GPF may grow to, as in the study."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--write", action="store_true", help="put the table into docs/federated.md")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    ours = Merged(Plan(seed=SEED, rounds=arguments.rounds, max_depth=DEPTH), arguments.clients)
    plain = Plain(Plan(seed=SEED, rounds=arguments.rounds, gpf=False, depth=DEPTH), arguments.clients)
    found: dict[str, list[Costs]] = {"federated GPF": [], "FedAvg": []}
    for _ in range(arguments.rounds):
        found["federated GPF"].append(ours.round())
        found["FedAvg"].append(plain.round())
    table = markdown_table(["a round", *found, "ratio"], rows(found))
    print(table)
    if arguments.write:
        insert("docs/federated.md", "cost", table)


def rows(found: Mapping[str, list[Costs]]) -> list[list[str]]:
    """Medians of times, with the median ratio of rounds that were timed next to each other; means of megabytes."""
    out = []
    for key, title, unit in (
        ("seconds", "whole round, s", 1),
        ("overhead", "without learning and validation, ms", 1e3),
    ):
        ours, plain = ([unit * costs[key] for costs in some] for some in found.values())
        ratio = statistics.median(one / other for one, other in zip(ours, plain, strict=True))
        out.append([title, f"{statistics.median(ours):.3g}", f"{statistics.median(plain):.3g}", f"{ratio:.2f}"])
    ours, plain = ([costs["megabytes"] for costs in some] for some in found.values())
    sent = statistics.mean(ours), statistics.mean(plain)
    out.append(["megabytes", f"{sent[0]:.3g}", f"{sent[1]:.3g}", f"{sent[0] / sent[1]:.2f}"])
    return out


class Stopwatch:
    """Seconds that clients take to learn and validate; what is left of a round is the cost of federating."""

    def __init__(self) -> None:
        self.learning = 0.0

    def watch(self, client: Client) -> None:
        """Time a client's learning and validation from now on."""
        for name in ("train", "validate"):
            setattr(client, name, self._timed(getattr(client, name)))

    def _timed(self, call: Any) -> Any:
        def timed(*arguments: Any) -> Any:
            started = time.perf_counter()
            result = call(*arguments)
            self.learning += time.perf_counter() - started
            return result

        return timed


class Merged:
    """Federated GPF, as the study runs it."""

    def __init__(self, plan: Plan, clients: int) -> None:
        self.server = Server(plan.first_network(), thresholds=plan.thresholds())
        self.clients = [Client(plan, n) for n in range(clients)]
        self.watch = Stopwatch()
        for client in self.clients:
            self.watch.watch(client)

    def round(self) -> Costs:
        """A round, and what it took."""
        started, self.watch.learning = time.perf_counter(), 0.0
        request = self.server.request()
        report = self.server.finish_round([(client.name, client.answer(request)) for client in self.clients])
        seconds = time.perf_counter() - started
        sent = report.bytes_up + len(self.clients) * report.bytes_down
        return {"seconds": seconds, "overhead": seconds - self.watch.learning, "megabytes": sent / 1e6}


class Plain:
    """FedAvg with nothing around it."""

    def __init__(self, plan: Plan, clients: int) -> None:
        self.arrays = dict(plan.first_network().arrays)
        self.clients = [Client(plan, n) for n in range(clients)]
        self.watch = Stopwatch()
        for client in self.clients:
            self.watch.watch(client)

    def round(self) -> Costs:
        """A round, and what it took."""
        started, self.watch.learning = time.perf_counter(), 0.0
        request = save(self.arrays)
        replies = [self._answer(client, request) for client in self.clients]
        updates = [load(reply) for reply in replies]
        self.arrays = {name: np.mean([update[name] for update in updates], axis=0) for name in self.arrays}
        seconds = time.perf_counter() - started
        sent = sum(map(len, replies)) + len(self.clients) * len(request)
        return {"seconds": seconds, "overhead": seconds - self.watch.learning, "megabytes": sent / 1e6}

    @staticmethod
    def _answer(client: Client, request: bytes) -> bytes:
        parameters = dict(client.net.model.named_parameters())
        with torch.no_grad():
            for name, array in load(request).items():
                parameters[name].copy_(torch.from_numpy(array))
        client.learner.rebind(client.net)
        client.validate()
        client.train()
        client.validate()
        return save({name: parameter.detach().numpy() for name, parameter in parameters.items()})


if __name__ == "__main__":
    main()

"""Eight robots in eight worlds learn from each other: federated GPF, and what it is compared with.

All clients live in this process, and their messages are bytes, as they would be on a network. The Flower app in
`federated/` runs the same clients and the same server in processes of their own.
"""

import dataclasses
import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from gpf.federated.adoption import extract
from gpf.federated.clients import Client, Plan, flat_network, success
from gpf.federated.merging import Average, Network, Rule
from gpf.federated.rounds import Server
from gpf.federated.wire import Message, pack, unpack
from gpf.federated.worlds import UNSEEN, WORLDS, client_world, world
from gpf.navigation.seeds import BLOCK, HELD_OUT
from gpf.network import Rules
from gpf.reports.statistics import paired_difference
from gpf.reports.tables import Measure, show_paired
from gpf.reports.verdicts import Claim, Verdict
from gpf.runs.folder import Outcome, Run, replace_text
from gpf.runs.training import Phase
from gpf.settings import number
from gpf.spectra.empirical import gram_spectrum
from gpf.tasks.plume import step_flops
from gpf.tasks.task import Outcomes, Task, of_result

Method = Literal["gpf", "local", "fixed", "one-layer", "central"]
ALONE: tuple[Method, ...] = ("local", "central")
"""Methods in which nothing is merged."""
CLIENTS = len(WORLDS)
REACHED = 0.9
"""Success that the rounds to it are counted of."""
SETTLED = 0.05
"""Distance of a spectrum from its final one, in units of the final mean eigenvalue, below which it has converged."""
BYTES_OF_A_STEP = 16 * 4 + 1 + 4 + 1
"""Bytes of a step for a central learner: 16 float32 features, an action, a reward, and whether the episode ended."""


@dataclass(frozen=True, kw_only=True)
class Config(Plan):
    """Settings of the study, and the method."""

    method: Method = "gpf"
    """gpf: federated GPF; local: every client alone, with GPF; fixed: FedAvg on a network of the final depth;
    one-layer: FedAvg on one hidden layer; central: one learner with the data of all clients, with GPF."""
    average: Average = "mean"
    """How values are merged: mean, or trimmed mean or coordinate-wise median against faulty clients."""
    depth_by: Literal["vote", "validation"] = "vote"
    """How depth is decided where clients differ: by their vote, or by validating a merged network of each depth."""
    faulty: int = number(0, 0, CLIENTS)
    """Clients, the last ones, that send all weights with the sign reversed: valid messages that pass every check."""
    final_depth: int = number(3, 1)
    """Hidden layers of the method `fixed`."""
    evaluate: int = number(200, 1, BLOCK // 64)
    """Held-out episodes in each world on which the result is evaluated."""
    save_every: int = number(6, 1)
    """Rounds between two checkpoints."""

    def network_rules(self) -> Rules:
        """When the clients' networks grow, prune and freeze."""
        return self.plan.rules()

    def check(self) -> None:
        """Refuse what cannot be."""
        super().check()
        self.plan.rules()
        if self.depth > self.max_depth:
            raise ValueError(f"depth must be at most max_depth, {self.max_depth}, got {self.depth}")

    @property
    def plan(self) -> Plan:
        """Settings that the clients share under this method."""
        values = {spec.name: getattr(self, spec.name) for spec in dataclasses.fields(Plan)}
        match self.method:
            case "fixed":
                values |= {"gpf": False, "depth": self.final_depth}
            case "one-layer":
                values |= {"gpf": False, "depth": 1}
            case "central":
                values |= {"lanes": self.lanes * CLIENTS, "propose": False}
            case "local":
                values |= {"propose": False}
        return Plan(**values)


class FederatedTraining:
    """A round of the federation is a round of the run; `progress` and all clients are saved every few rounds."""

    stack: ClassVar[str] = "layers"

    def __init__(self, run: Run, config: Config, threads: int | None = None) -> None:
        self.run: Run = run
        self.config: Config = config
        self.plan: Plan = config.plan
        if config.method == "central":
            every = [client_world(n) for n in range(CLIENTS)]
            self.clients: list[Client] = [Client(self.plan, 0, every, threads or 1)]
        else:
            self.clients = [Client(self.plan, n, (), threads or 1) for n in range(CLIENTS)]
        self.server: Server = Server(
            self.plan.first_network(), Rule(average=config.average), thresholds=self.plan.thresholds()
        )
        self.progress: dict[str, Any] = {"round": 0, "step": 0, "seconds": 0.0, "flops": 0.0, "bytes": 0, "events": 0}
        self._folder = run.folder / "federation"
        pointer = self._folder / "last.json"
        if pointer.exists():
            self._restore(self._folder / json.loads(pointer.read_text())["folder"])
        run.drop_after(self.progress["round"], self.progress["events"])

    @property
    def over(self) -> bool:
        """Whether all rounds are over."""
        return bool(self.progress["round"] >= self.plan.rounds)

    def shape(self) -> dict[str, Any]:
        """The current merged network; means over clients that have their own."""
        networks = self.networks()
        return {
            "depth": float(np.mean([network.depth for network in networks])),
            "density": float(np.mean([network.density for network in networks])),
            "frozen": sorted(networks[0].frozen),
            "parameters": float(np.mean([_parameters(network) for network in networks])),
        }

    def networks(self) -> list[Network]:
        """The networks that are evaluated: one for all clients, or one of each."""
        alone = self.config.method in ALONE
        return [extract(client.net) for client in self.clients] if alone else [self.server.network]

    def round(self) -> dict[str, Any]:
        """A round of every client, merged; or, where nothing is merged, of every client alone."""
        now, started = self.progress, time.perf_counter()
        events: list[dict[str, Any]] = []
        if self.config.method in ALONE:
            found = float(np.mean([client.validate() for client in self.clients]))
            for client in self.clients:
                client.learn_alone()
            sent = self.plan.examples * BYTES_OF_A_STEP if self.config.method == "central" else 0
        else:
            found, sent, events = self._merged_round()
        now["round"] += 1
        now["step"] += self.plan.examples * len(self.clients)
        now["flops"] += self.plan.examples * sum(step_flops(c.net.model, 4, c.net.frozen) for c in self.clients)
        now["bytes"] += sent
        now["events"] += len(events)
        now["seconds"] += time.perf_counter() - started
        metrics = {
            **{name: now[name] for name in ("round", "step", "seconds", "flops")},
            **self.shape(),
            "success": found,
            "bytes": sent,
            "spectra": [_eigenvalues(network) for network in self.networks()],
        }
        self.run.append("metrics", [metrics])
        self.run.append("events", [{"round": now["round"], "step": now["step"], **event} for event in events])
        if now["round"] % self.config.save_every == 0 or self.over:
            self._save()
        return metrics

    def _merged_round(self) -> tuple[float, int, list[dict[str, Any]]]:
        """Success of the network that was sent, bytes of all messages, and what happened to the merged network."""
        before, request = self.server.network, self.server.request()
        replies = [(client.name, client.answer(request)) for client in self.clients]
        honest = len(replies) - self.config.faulty
        replies[honest:] = [(name, with_reversed_weights(data)) for name, data in replies[honest:]]
        validated = self.config.depth_by == "validation"
        report = self.server.finish_round(replies, self._score if validated else None)
        after, events = self.server.network, []
        if after.depth > before.depth:
            events.append(
                {"kind": "merged", "layers": list(range(before.depth, after.depth)), "reason": "voted: a new layer"}
            )
        if after.frozen - before.frozen:
            events.append({"kind": "merged", "layers": sorted(after.frozen - before.frozen), "reason": "voted: frozen"})
        if before.density - after.density > 1e-3:
            reason = f"voted: pruned, density {before.density:.3f} to {after.density:.3f}"
            events.append({"kind": "merged", "layers": list(range(after.depth)), "reason": reason})
        assert report.success is not None  # all clients have answered
        return report.success, report.bytes_up + len(self.clients) * report.bytes_down, events

    def _score(self, network: Network) -> float:
        return float(np.mean([client.validate(network) for client in self.clients]))

    def finish(self, phase: Phase) -> dict[str, Any]:
        """Success on held-out episodes in the clients' worlds and in others, and what it took to get there."""
        advance = phase("evaluation", CLIENTS + len(UNSEEN))
        networks = [flat_network(self.plan, network) for network in self.networks()]
        own, unseen = [], []
        for n in range(CLIENTS):
            own.append(self._held_out([networks[n % len(networks)]], client_world(n), n))
            advance(n + 1)
        for n, fields in enumerate(UNSEEN.values()):
            unseen.append(self._held_out(networks, world(fields), CLIENTS + n))
            advance(CLIENTS + n + 1)
        lines = Outcome.read(self.run.folder).lines
        reached = [line["round"] - 1 for line in lines if line["success"] >= REACHED]
        return {
            "success": float(np.mean(own)),
            "own": dict(zip(WORLDS, own, strict=True)),
            "unseen_success": float(np.mean(unseen)),
            "unseen": dict(zip(UNSEEN, unseen, strict=True)),
            "megabytes": self.progress["bytes"] / 1e6,
            "rounds_to_reach": reached[0] if reached else self.plan.rounds + 1,
            "spectrum_settled": settled([line["spectra"] for line in lines]),
            "refused": sum(len(report.refused) for report in self.server.reports),
            "thresholds": dict(self.server.thresholds),
        }

    def _held_out(self, networks: Sequence[Any], where: Any, place: int) -> float:
        """Success in a world, on its own episodes of this seed; the mean over networks."""
        first = HELD_OUT + self.config.seed * BLOCK + place * (BLOCK // 64)
        episodes = self.config.evaluate
        return float(np.mean([success(self.plan, one, where, episodes, first, 1) for one in networks]))

    # Resuming

    def _save(self) -> None:
        """Everything in a new folder, which counts from the moment that the pointer names it."""
        name = f"round-{self.progress['round']:05d}"
        folder = self._folder / name
        shutil.rmtree(folder, ignore_errors=True)
        for client in self.clients:
            client.save(folder / client.name)
        self.server.save(folder / "server")
        replace_text(folder / "progress.json", json.dumps(self.progress) + "\n")
        replace_text(self._folder / "last.json", json.dumps({"folder": name}) + "\n")
        for old in self._folder.glob("round-*"):
            if old.name != name:
                shutil.rmtree(old)

    def _restore(self, folder: Path) -> None:
        self.progress = json.loads((folder / "progress.json").read_text())
        self.server.restore(folder / "server")
        for client in self.clients:
            client.restore(folder / client.name)


def with_reversed_weights(data: bytes) -> bytes:
    """A client's message with the sign of every weight reversed."""
    message = unpack(data)
    network = message.network
    arrays = {name: -array for name, array in network.arrays.items()}
    return pack(Message(dataclasses.replace(network, arrays=arrays), message.about))


def _parameters(network: Network) -> int:
    pruned = sum(int((~mask).sum()) for mask in network.masks.values())
    return sum(array.size for array in network.arrays.values()) - pruned


# Spectra


def _eigenvalues(network: Network) -> list[float]:
    """Eigenvalues of the first hidden layer's weights, W W^T over its inputs: that layer is there from the start."""
    weights = network.arrays[f"{network.stack}.0.linear.weight"]
    return [round(float(value), 6) for value in gram_spectrum(weights, weights.shape[1]).values]


def settled(spectra: Sequence[Sequence[Sequence[float]]]) -> float:
    """The first round from which on the spectrum stays close to its final one; the mean over networks.

    Distance is the Wasserstein distance of the eigenvalues, in units of the final mean eigenvalue.
    """
    return float(np.mean([_settled(np.sort([line[n] for line in spectra], axis=1)) for n in range(len(spectra[0]))]))


def _settled(values: Any) -> int:
    distances = np.abs(values - values[-1]).mean(axis=1) / values[-1].mean()
    far = np.flatnonzero(distances > SETTLED)
    return int(far[-1]) + 2 if len(far) else 1


# The page

GPF, LOCAL, FIXED, ONE, CENTRAL = (
    "federated GPF", "local training only", "FedAvg, final depth", "FedAvg, one layer", "one central learner",
)  # fmt: skip
FASTER_SPECTRA = "learning from each other gives faster and assured convergence of eigenvalue spectra"


def claims(outcomes: Outcomes) -> list[Claim]:
    """The paper's supposition about models that learn from each other, and the measurement."""
    if not {GPF, LOCAL} <= set(outcomes):
        return []
    ours, alone = ([float(one.result["spectrum_settled"]) for one in outcomes[name]] for name in (GPF, LOCAL))
    d = paired_difference(ours, alone)
    return [
        Claim(
            FASTER_SPECTRA,
            f"the first layer's spectrum is within {SETTLED:.0%} of its final one from round {np.mean(ours):.1f} on in"
            f" the federation and {np.mean(alone):.1f} alone: {show_paired(d, '.1f')} rounds",
            Verdict.of_bounds(d.low, d.high, seeds=d.seeds),
        )
    ]


def _rounds(outcome: Outcome) -> float:
    return float(outcome.result["rounds_to_reach"])


def _line(metrics: dict[str, Any]) -> str:
    return f"success {metrics['success']:.1%}, depth {metrics['depth']:g}, {metrics['density']:.0%} dense"


def _result_line(result: dict[str, Any]) -> str:
    return (
        f"success {result['success']:.2%}, {result['unseen_success']:.2%} in unseen worlds, depth {result['depth']:g},"
        f" {result['megabytes']:.1f} MB"
    )


def _distance(line: dict[str, Any]) -> float:
    """The mean eigenvalue, over networks."""
    return float(np.mean(line["spectra"]))


VARIANTS: dict[str, dict[str, Any]] = {
    GPF: {}, LOCAL: {"method": "local"}, FIXED: {"method": "fixed"}, ONE: {"method": "one-layer"},
    CENTRAL: {"method": "central"},
}  # fmt: skip

TASK = Task(
    name="federated",
    reference=f"{__name__}:TASK",
    title="Robots that learn from each other",
    make=Config.of,
    training=FederatedTraining,
    length=lambda config: (config.rounds, "round"),
    describe=_line,
    describe_result=_result_line,
    metric=lambda config: "SPL of a client's last episodes",
    summary=(
        f"{CLIENTS} clients in {CLIENTS} different plume worlds ({', '.join(WORLDS)}), and {len(UNSEEN)} worlds"
        f" without clients ({', '.join(UNSEEN)}). All methods take the same environment steps. Success is that of the"
        " last networks on held-out episodes; local training is evaluated with each client's own network, in unseen"
        f" worlds with all of them, on average. **Rounds to {REACHED:.0%}**: rounds until mean validation success in"
        " the clients' own worlds reaches it; one more than there are if it never does. **Megabytes**: of all messages,"
        f" both ways; for the central learner, of the clients' experience ({BYTES_OF_A_STEP} bytes a step)."
        " **Spectrum settled**: the first round from which on the eigenvalues of the first hidden layer stay within"
        f" {SETTLED:.0%} of the final ones (Wasserstein distance over the mean eigenvalue)."
    ),
    variants=VARIANTS,
    ours=(GPF,),
    variant_of=lambda config: config.method,
    measures={
        "own": Measure("success, own worlds", 1, ".2%", of_result("success")),
        "unseen": Measure("success, unseen worlds", 1, ".2%", of_result("unseen_success")),
        "rounds": Measure(f"rounds to {REACHED:.0%}", -1, ".1f", _rounds),
        "megabytes": Measure("megabytes sent", -1, ",.2f", of_result("megabytes")),
        "settled": Measure("spectrum settled, round", -1, ".1f", of_result("spectrum_settled")),
        "depth": Measure("final hidden layers", 0, ".1f", of_result("depth")),
        "density": Measure("density", 0, ".3f", of_result("density")),
        "parameters": Measure("parameters that are not zero", -1, ",.0f", of_result("parameters")),
    },
    curves={
        "validation success, own worlds": lambda line: float(line["success"]),
        "hidden layers": lambda line: float(line["depth"]),
        "mean eigenvalue, first layer": _distance,
    },
    claims=claims,
    unit="round",
)

FAULTS = dataclasses.replace(
    TASK,
    name="federated-faults",
    reference=f"{__name__}:FAULTS",
    title="A faulty client",
    summary=(
        f"Federated GPF with {CLIENTS} clients, one of which sends all of its weights with the sign reversed in every"
        " round. The values are finite and the shapes are right, so no check refuses them. The variants differ in how"
        " the server averages."
    ),
    variants={
        "mean": {"faulty": 1},
        "trimmed mean": {"faulty": 1, "average": "trimmed"},
        "median": {"faulty": 1, "average": "median"},
    },
    ours=("trimmed mean", "median"),
    variant_of=lambda config: config.average,
    measures={name: TASK.measures[name] for name in ("own", "unseen", "rounds")},
    claims=lambda outcomes: [],
)

"""Growing, pruning and freezing in a stream of worlds: stored versions of a network are tried and recalled.

A network that keeps learning in another world unlearns the previous one. While it does well, a copy of it is therefore
pruned, frozen and stored. When the success rate drops, all stored versions are tried next to the current network, which
keeps learning. A version that reaches its old success rate replaces it; if none does well, a new path grows from new
weights. Stored and used weights together stay within a parameter budget.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gpf.continual.decisions import Continued, Decision, FalseAlarm, NewPath, Recalled, TrialBegun
from gpf.network import GrowPruneFreeze
from gpf.network.checkpoints.state import capture, restore
from gpf.network.growth import Plateau, dropped
from gpf.network.pruning import cheapest, saliency
from gpf.network.surgery import block_path

Snapshot = tuple[dict[str, Tensor], dict[str, Any]]
HARDLY_ANY = 0.05
"""Share of its weights below which a unit that is carried into another world is reinitialised."""


@dataclass
class Version:
    """A network as it once was."""

    snapshot: Snapshot
    rate: float
    """The success rate that it reached."""
    parameters: int
    """Weights and biases that are not pruned."""
    used: int
    """Epoch in which it was last in use."""


@dataclass
class Trial:
    """The candidates of a trial, and their results so far."""

    candidates: list[int]
    """Numbers of the versions on trial, in addition to the current network."""
    before: float
    """The rate from which it dropped."""
    successes: list[float]
    """Of the current network, then of each candidate, like `tried`."""
    tried: list[float]
    """Steps of each, over all its lanes."""
    epochs: int = 0

    def rates(self) -> list[float]:
        """Success rates of the current network and of each candidate."""
        return [s / t if t else 0.0 for s, t in zip(self.successes, self.tried, strict=True)]

    def drop_the_worse(self) -> bool:
        """Drop candidates whose rates lie far below the best; returns whether the trial is decided.

        Far is 2.5 standard deviations of the difference. The current network stays to the end.
        """
        rates = self.rates()
        best = max(range(len(rates)), key=lambda n: rates[n])

        def lags(n: int) -> bool:
            pooled = (self.successes[n] + self.successes[best]) / (self.tried[n] + self.tried[best])
            deviation = (pooled / self.tried[n] + pooled / self.tried[best]) ** 0.5
            return rates[best] - rates[n] >= 2.5 * deviation > 0.0

        ahead = [n for n in range(len(rates)) if not lags(n)]
        stay = [n for n in range(1, len(rates)) if n in ahead]
        self.candidates = [self.candidates[n - 1] for n in stay]
        self.successes, self.tried = ([part[n] for n in (0, *stay)] for part in (self.successes, self.tried))
        return len(ahead) == 1


@dataclass(frozen=True)
class Settings:
    """When to try what was kept, and what to do then. The unit of time is the epoch."""

    drop: float = 0.35
    """Share of the best rate; below it, unless chance explains it, the world is assumed to have changed."""
    window: int = 8
    """Maximum number of latest epochs in which a drop is detected."""
    interval: int = 4
    """Epochs between two copies of a network that does well. After twice as many, an installed version must have
    regained its success rate."""
    settled: int = 15
    """Epochs over which a version's rate is averaged; its best rate is that over four times as many."""
    trial: int = 6
    """Maximum number of epochs of a trial; it ends earlier when one candidate is left."""
    head_start: int = 2
    """First epochs of a trial, which do not count: all candidates start where the previous policy left the lanes."""
    useful: float = 0.03
    """Share of its old rate below which a version is useless and a new path grows."""
    recognised: float = 0.5
    """Share of its old rate at which a version is recognised in a trial."""
    same: float = 0.7
    """Share of its old rate that it must regain soon after; otherwise it is treated as a new version."""
    keep: float = 0.25
    """Share of the weights that a stored version keeps."""
    carry: float = 1.0
    """Share of the weights that is carried into another world, by saliency in the previous one. The others become zero
    and may grow again; a unit that keeps hardly any weights is reinitialised. Without clearing, a network learns less
    and less well."""
    budget: int = 14_000
    """Maximum number of parameters, in use and stored together."""
    grow: bool = True
    """Whether a new path may grow; otherwise the best candidate keeps learning."""
    freeze: bool = True
    """Whether versions are stored."""
    renew: bool = False
    """Whether to reset the network at every detected drop and store nothing, which shows what detection alone is
    worth."""


@dataclass
class Recall:
    """Monitors a network in a stream; call `after_epoch`, and `after_trial` during a trial.

    Args:
        net: The attached network; its rules need no drop of their own.
        fresh: Creates an untrained model with a given number of layers.
        soften: Called with the model at a drop to make a confident policy explore again; None for learners that
            explore anyway.
    """

    net: GrowPruneFreeze
    fresh: Callable[[int], nn.Module]
    settings: Settings = field(default_factory=Settings)
    soften: Callable[[nn.Module], None] | None = None

    def __post_init__(self) -> None:
        self.versions: dict[int, Version] = {}
        self.current: int = 0
        self.made: int = 1
        self.epoch: int = 0
        self.since: int = 0  # epoch in which the current version was installed
        self.expected: float | None = None  # the rate that it has to reach again to be what it was
        self.counts: list[tuple[float, float]] = []  # successes and steps of the latest epochs
        self.trial: Trial | None = None

    @property
    def parameters(self) -> int:
        """Weights and biases in use and kept that are not pruned."""
        return self.net.count_parameters() + sum(version.parameters for version in self.versions.values())

    def best(self) -> float:
        """The highest recent rate over `settled` epochs; 0 while there are fewer."""
        span = self._best_span()
        return _rate(span) if span else 0.0

    def _best_span(self) -> list[tuple[float, float]]:
        count = self.settings.settled
        spans = [self.counts[n : n + count] for n in range(len(self.counts) - count + 1)]
        return max(spans, key=_rate, default=[])

    def _fallen(self) -> float | None:
        """The rate over the fewest latest epochs that lie too far below the best for chance; None if none do.

        Chance is four standard deviations of the number of successes: Poisson's, or that of the best epochs if larger.
        """
        s, span = self.settings, self._best_span()
        best = _rate(span) if span else 0.0
        if not best:
            return None
        scatter = max(1.0, sum((n - best * steps) ** 2 / (best * steps) for n, steps in span) / len(span))
        for epochs in range(1, s.window + 1):
            latest = self.counts[-epochs:]
            expected = best * sum(steps for _, steps in latest)
            by_chance = expected - 4.0 * (scatter * expected) ** 0.5
            if dropped(_rate(latest), best, s.drop, "max") and sum(n for n, _ in latest) <= by_chance:
                return _rate(latest)
        return None

    def after_epoch(self, successes: float, tried: float) -> list[Decision]:
        """Record an epoch's successes and its steps in all lanes; returns the decisions."""
        s = self.settings
        self.epoch += 1
        self.counts = [*self.counts, (successes, tried)][-4 * s.settled :]
        self._make_room(self.net.count_parameters())  # it may have grown
        best, fallen = self.best(), self._fallen()
        if fallen is not None and s.renew:
            return [self._decided(self._new_path(fallen, best))]
        if fallen is not None:
            if s.carry < 1.0:
                self._put_in_place(self._carried())
            if self.soften:
                self.soften(self.net.model)
            self.trial = self._begun_trial(best)
            return [TrialBegun(candidates=len(self.trial.candidates), rate=fallen, before=best)]
        self._recognise()
        if (
            best
            and s.freeze
            and not s.renew
            and self.expected is None
            and self.epoch % s.interval == 0
            and self._does_well(best)
        ):
            self._put_away(best)
        return []

    def _does_well(self, best: float) -> bool:
        """Whether the network is at its best, also in the last epoch, during which the world may have changed."""
        return _rate(self.counts[-self.settings.settled :]) >= 0.9 * best and _rate(self.counts[-1:]) >= 0.8 * best

    def _recognise(self) -> None:
        """See whether what was put into place does again what it did, or learns another world under a new number."""
        s = self.settings
        if self.expected is None or self.epoch - self.since < 2 * s.interval:
            return
        if _rate(self.counts[-s.interval :]) < s.same * self.expected:
            self.current, self.made = self.made, self.made + 1
        self.expected = None

    def _put_away(self, best: float) -> None:
        """Store a pruned copy of the current network under its number."""
        snapshot = copied(capture(self.net))
        if self.settings.keep < 1.0:
            snapshot = prune_snapshot(self.net, snapshot, self.settings.keep)
        self.versions[self.current] = Version(snapshot, best, snapshot_parameters(snapshot), self.epoch)
        self._make_room(self.net.count_parameters())

    def _make_room(self, size: int) -> None:
        """Delete the least recently used versions until `size` parameters fit into the budget."""
        while self.versions and size + sum(v.parameters for v in self.versions.values()) > self.settings.budget:
            del self.versions[min(self.versions, key=lambda number: self.versions[number].used)]

    def _begun_trial(self, best: float) -> Trial:
        if self.current in self.versions:
            self.versions[self.current].used = self.epoch
        candidates = [number for number in self.versions if number != self.current]
        return Trial(candidates, best, [0.0] * (1 + len(candidates)), [0.0] * (1 + len(candidates)))

    def others(self) -> list[nn.Module]:
        """Models of the versions on trial next to the current network, in order."""
        trial, now = self._checked_trial(), copied(capture(self.net))
        models = []
        for number in trial.candidates:
            restore(self.net, *self.versions[number].snapshot)
            models.append(copy.deepcopy(self.net.model))
        restore(self.net, *now)
        return models

    def after_trial(self, successes: Sequence[float], tried: Sequence[float]) -> list[Decision]:
        """Record an epoch of the trial: successes and steps of the current network and of each candidate.

        Returns the decisions.
        """
        s, trial = self.settings, self._checked_trial()
        self.epoch += 1
        trial.epochs += 1
        if trial.epochs <= s.head_start:
            return []
        trial.successes = [a + b for a, b in zip(trial.successes, successes, strict=True)]
        trial.tried = [a + b for a, b in zip(trial.tried, tried, strict=True)]
        over = trial.drop_the_worse() if trial.candidates else trial.epochs >= 2 * s.head_start
        return [self._decide(trial)] if over or trial.epochs >= s.trial else []

    def _decide(self, trial: Trial) -> Decision:
        """Install a recognised version; otherwise continue, or start from the best candidate or from scratch."""
        s, (now, *rates) = self.settings, trial.rates()
        found, best = max(zip(rates, trial.candidates, strict=True), default=(0.0, None))
        once = trial.before if best is None else self.versions[best].rate
        decision: Decision
        if best is not None and found >= s.recognised * once and found >= 1.2 * now:
            decision = self._recalled(best, found)
        elif now >= s.useful * trial.before or not (s.grow or found > now):
            kind = FalseAlarm if now >= s.recognised * trial.before else Continued
            decision = kind(rate=now, before=trial.before)
            self.expected = trial.before
        elif best is not None and (found >= s.useful * once or not s.grow):
            decision = self._recalled(best, found)
        else:
            decision = self._new_path(max(now, found), once)
        return self._decided(decision)

    def _decided(self, decision: Decision) -> Decision:
        """Start counting again, unless nothing had changed; returns the decision."""
        self.counts = self.counts[: -self.settings.window] if isinstance(decision, FalseAlarm) else []
        self.trial, self.since = None, self.epoch
        self.net.plateau = Plateau()
        self._make_room(self.net.count_parameters())
        return decision

    def _new_path(self, rate: float, before: float) -> NewPath:
        """Reset the network, as a new version."""
        decision = NewPath(version=self.made, rate=rate, before=before)
        self._renew()
        self.current, self.made, self.expected = self.made, self.made + 1, None
        return decision

    def _recalled(self, number: int, rate: float) -> Recalled:
        version = self.versions[number]
        self._put_in_place(version.snapshot)
        self.current, self.expected, version.used = number, version.rate, self.epoch
        return Recalled(version=number, rate=rate, before=version.rate)

    def _put_in_place(self, snapshot: Snapshot) -> None:
        """Load the network of a snapshot; pruned weights are zero, and may grow again."""
        tensors, manifest = snapshot
        restore(self.net, {name: t for name, t in tensors.items() if "/pruned/" not in name}, manifest)

    def _carried(self) -> Snapshot:
        """Keep the most salient weights of the current network; a unit that keeps hardly any is reinitialised."""
        tensors, manifest = prune_snapshot(self.net, copied(capture(self.net)), self.settings.carry)
        fresh = self.fresh(self.net.depth).state_dict()
        for name in [name for name in tensors if name.startswith("layer/") and "/pruned/" in name]:
            anew = (~tensors[name]).flatten(1).double().mean(1) < HARDLY_ANY
            weight = _weight_of(self.net, name)
            for parameter in (weight, weight.removesuffix("weight") + "bias"):
                if f"model/{parameter}" in tensors:
                    values = fresh[parameter] if parameter == weight else torch.zeros_like(fresh[parameter])
                    tensors[f"model/{parameter}"][anew] = values[anew]
                for moment in ("exp_avg", "exp_avg_sq"):
                    if f"optimizer/{parameter}/{moment}" in tensors:
                        tensors[f"optimizer/{parameter}/{moment}"][anew] = 0.0
        return tensors, manifest

    def _renew(self) -> None:
        """Restart the network at the depth of its rules: new weights, no masks, no optimizer state."""
        for layer in self.net.frozen:
            self.net.thaw(layer, "a new path")
        while self.net.depth < (self.net.rules.max_depth or 0):
            self.net.grow("a new path")
        tensors, manifest = copied(capture(self.net))
        weights = self.fresh(self.net.depth).state_dict()
        kept = {
            name: torch.zeros_like(tensor) if "/belief/" in name else tensor
            for name, tensor in tensors.items()
            if name.startswith("layer/") and "/pruned/" not in name and "/previous/" not in name
        }
        manifest = {**manifest, "optimizer": {**manifest["optimizer"], "scalars": {}}}
        restore(self.net, kept | {f"model/{name}": tensor for name, tensor in weights.items()}, manifest)

    def _checked_trial(self) -> Trial:
        if self.trial is None:
            raise ValueError("there is no trial; call this only while `trial` is not None")
        return self.trial

    _PLAIN = ("current", "made", "epoch", "since", "expected", "counts")

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Everything that it remembers: tensors, and plain data."""
        tensors: dict[str, Tensor] = {}
        plain: dict[str, Any] = {name: getattr(self, name) for name in self._PLAIN}
        plain["trial"] = None if self.trial is None else vars(self.trial)
        plain["versions"] = {}
        snapshots = {}
        for number, version in self.versions.items():
            snapshots[str(number)] = version.snapshot
            plain["versions"][str(number)] = [version.rate, version.parameters, version.used]
        plain["manifests"] = {name: snapshot[1] for name, snapshot in snapshots.items()}
        for name, snapshot in snapshots.items():
            tensors |= {f"{name}/{key}": tensor for key, tensor in snapshot[0].items()}
        return tensors, plain

    def restore(self, tensors: dict[str, Tensor], plain: dict[str, Any]) -> None:
        """Resume from a state."""
        for name in self._PLAIN:
            setattr(self, name, plain[name])
        snapshots: dict[str, Snapshot] = {}
        for name, manifest in plain["manifests"].items():
            mine = {key.removeprefix(f"{name}/"): t for key, t in tensors.items() if key.startswith(f"{name}/")}
            snapshots[name] = mine, manifest
        self.trial = None if plain["trial"] is None else Trial(**plain["trial"])
        self.versions = {
            int(number): Version(snapshots[number], *values) for number, values in plain["versions"].items()
        }


def _rate(counts: Sequence[tuple[float, float]]) -> float:
    return sum(n for n, _ in counts) / sum(steps for _, steps in counts)


def copied(snapshot: Snapshot) -> Snapshot:
    """A snapshot that does not change with the network."""
    return {name: tensor.detach().clone() for name, tensor in snapshot[0].items()}, copy.deepcopy(snapshot[1])


def prune_snapshot(net: GrowPruneFreeze, snapshot: Snapshot, keep: float) -> Snapshot:
    """Prune the stack's weights in a network's snapshot by OBD saliency to this share, in place; returns it.

    The mean squared gradients are Adam's; without them, weights are pruned by magnitude.
    """
    tensors = snapshot[0]
    beliefs = [name for name in tensors if name.startswith("layer/") and "/belief/" in name]
    weights = [_weight_of(net, name) for name in beliefs]
    costs = []
    for weight in weights:
        moment = tensors.get(f"optimizer/{weight}/exp_avg_sq")
        square = torch.ones_like(tensors[f"model/{weight}"]) if moment is None else moment
        costs.append(saliency(tensors[f"model/{weight}"], "obd", square))
    total = sum(cost.numel() for cost in costs)
    for belief, weight, mask in zip(beliefs, weights, cheapest(costs, total - round(keep * total)), strict=True):
        gone = belief.replace("/belief/", "/pruned/")
        tensors[gone] = mask | tensors[gone] if gone in tensors else mask
        for name in (f"model/{weight}", f"optimizer/{weight}/exp_avg", f"optimizer/{weight}/exp_avg_sq"):
            if name in tensors:
                tensors[name].masked_fill_(tensors[gone], 0.0)
    return snapshot


def _weight_of(net: GrowPruneFreeze, name: str) -> str:
    """The weight that a snapshot's tensor belongs to: `layer/2/belief/linear.weight`, of the third block's."""
    _, layer, _, weight = name.split("/")
    return f"{block_path(net.model, net.stack, int(layer))}{weight}"


def snapshot_parameters(snapshot: Snapshot) -> int:
    """Weights and biases of a snapshot that are not pruned."""
    tensors = snapshot[0]
    pruned = sum(int(mask.sum()) for name, mask in tensors.items() if "/pruned/" in name)
    return sum(tensor.numel() for name, tensor in tensors.items() if name.startswith("model/")) - pruned

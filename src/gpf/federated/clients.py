"""A client: a navigator that learns in its own world by the policy gradient, from the network that a server sends."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpf.federated.admission import Limits, Refused, number
from gpf.federated.adoption import adopt, extract
from gpf.federated.merging import Network
from gpf.federated.proposals import RANGES, Thresholds, propose
from gpf.federated.wire import Message, pack, unpack
from gpf.federated.worlds import client_world
from gpf.navigation.acting import NetworkPolicy
from gpf.navigation.agents import as_bytes, from_bytes
from gpf.navigation.evaluate import evaluate
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.policy_gradient import Settings
from gpf.navigation.seeds import BLOCK, VALIDATION
from gpf.network import MLP, GrowPruneFreeze, Rules, attach, load
from gpf.plume.regimes import roomiest
from gpf.plume.scenario import Scenario
from gpf.settings import Settings as Base
from gpf.settings import number as field

RECENT = 100
"""Episodes over which a client averages what its rules look at."""
FIRST_SEED = 100_000
"""Seeds of clients start here; other runs have lower ones."""
MOST_CLIENTS = 1000


@dataclass(frozen=True, kw_only=True)
class Plan(Base):
    """Settings that all clients of a federation share."""

    seed: int = field(0, 0, 10_000)
    """Seed of the first weights, and of everything that clients draw."""
    rounds: int = field(30, 1)
    """Rounds of the whole training."""
    rollouts: int = field(3, 1)
    """Rollouts that a client learns from in a round."""
    lanes: int = field(64, 1, 1 << 12)
    """Worlds that a client steps in parallel."""
    horizon: int = field(64, 1)
    """Steps of a rollout, in each lane."""
    minibatch: int = field(256, 1)
    """Environment steps in a gradient step."""
    width: int = field(64, 1)
    """Units of a hidden layer."""
    depth: int = field(1, 1)
    """Hidden layers at the start."""
    gpf: bool = True
    """Whether networks grow, prune and freeze."""
    propose: bool = True
    """Whether clients propose thresholds of growing and pruning."""
    max_depth: int = field(3, 1)
    """Hidden layers that a network may grow to."""
    grow_threshold: float = field(0.05, 0.0)
    """Improvement of SPL below which a client grows, at the start."""
    saliency_threshold: float = field(0.02, 0.0)
    """Absolute weight below which a client may prune, at the start."""
    validation_episodes: int = field(25, 1, BLOCK)
    """Episodes of a validation in a client's own world."""

    @property
    def examples(self) -> int:
        """Environment steps of a client in a round."""
        return self.rollouts * self.lanes * self.horizon

    @property
    def learner(self) -> Settings:
        """How clients learn."""
        return Settings(
            lanes=self.lanes, horizon=self.horizon, minibatch=self.minibatch, steps=self.rounds * self.examples
        )

    def rules(self) -> Rules:
        """When networks grow, prune and freeze; an epoch is a rollout, the metric SPL."""
        if not self.gpf:
            return Rules.fixed()
        return Rules(
            warmup=3, grow_patience=3, grow_threshold=self.grow_threshold, max_depth=self.max_depth, mode="max",
            weight_threshold=0.1, belief_increment=0.01, prune_patience=20, belief_threshold=0.5,
            saliency_threshold=self.saliency_threshold, freeze_patience=10, freeze_delta=0.01,
        )  # fmt: skip

    def thresholds(self) -> Thresholds:
        """The thresholds that clients propose others for, as they are at the start; none without GPF."""
        return {name: getattr(self, name) for name in RANGES} if self.gpf and self.propose else {}

    def make_model(self) -> MLP:
        """A network that has learned nothing."""
        return self.learner.make_model(self.width, self.depth)

    def first_network(self) -> Network:
        """The untrained network that the server starts with."""
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            model = self.make_model()
        arrays = {name: p.detach().numpy().copy() for name, p in model.named_parameters()}
        return Network(arrays, self.depth)


class Client:
    """A navigator in its own world.

    Attributes:
        net: Its network, with optimizer moments that never leave it.
        round: The last round that it has answered.
        merged: The network that the server sent last.
    """

    def __init__(self, plan: Plan, index: int, worlds: Sequence[Scenario] = (), threads: int = 1) -> None:
        self.plan = plan
        self.index = index
        self.worlds: Sequence[Scenario] = worlds or [client_world(index)]
        self.threads = threads
        self.seed: int = FIRST_SEED + plan.seed * MOST_CLIENTS + index
        with torch.random.fork_rng():
            torch.manual_seed(self.seed)
            model = plan.make_model()
            self.net: GrowPruneFreeze = attach(model, plan.learner.make_optimizer(model), rules=plan.rules())
            self._random: torch.Tensor = torch.get_rng_state()
        self.round: int = 0
        self.epochs: int = 0
        self.recent: list[float] = []
        self.merged: Network | None = None
        self._answer: bytes = b""
        self._make_learner()

    def _make_learner(self) -> None:
        settings = self.plan.learner
        paid = [world.rewarded(settings.reward, settings.discount, settings.loitering) for world in self.worlds]
        self.learner: Any = settings.make_learner(self.net, roomiest(paid), self.seed, threads=self.threads)
        for lanes, world in zip(np.array_split(np.arange(settings.lanes), len(paid)), paid, strict=True):
            self.learner.rollouts.world.set_scenario(world, lanes)

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"client-{self.index}"

    # Rounds

    def answer(self, data: bytes, limits: Limits | None = None) -> bytes:
        """Answer a server's message: take over its network, learn for a round, and return the result.

        A round that was answered before gets the same answer again: a server that was killed may ask twice.
        """
        message = unpack(data, limits)
        asked = int(number(message.about, "round", 1, 1 << 31, whole=True))
        if asked == self.round and self._answer:
            return self._answer
        if asked < self.round:
            raise Refused(f"round must be at least {self.round}, which {self.name} has answered, got {asked}")
        with torch.random.fork_rng():
            torch.set_rng_state(self._random)
            self._answer = self._learn(message, asked)
            self._random = torch.get_rng_state()
        self.round = asked
        return self._answer

    def _learn(self, message: Message, asked: int) -> bytes:
        merged = message.network
        current = {
            name: number(message.about.get("thresholds", {}), name, *RANGES[name]) for name in self.plan.thresholds()
        }
        tried: dict[str, Any] = propose(current, (self.seed, asked)) if current else {}
        if self.plan.gpf:
            deepest = min(self.plan.max_depth, merged.depth + 1)
            self.net.rules = dataclasses.replace(self.net.rules, max_depth=deepest, **tried)
        adopt(self.net, merged, self.merged)
        self.learner.rebind(self.net)
        self.merged = merged
        before = self.validate()
        self.train()
        about = {
            "client": self.name, "round": asked, "examples": self.plan.examples, "before": before,
            "after": self.validate(), "thresholds": tried, "events": len(self.net.events),
        }  # fmt: skip
        return pack(
            Message(extract(self.net), about), leave_out=frozenset(self.net.frozen) & frozenset(range(merged.depth))
        )

    def learn_alone(self) -> None:
        """A round without a server."""
        with torch.random.fork_rng():
            torch.set_rng_state(self._random)
            self.train()
            self._random = torch.get_rng_state()
        self.round += 1

    def train(self) -> None:
        """Learn from the rollouts of a round; each is an epoch of the rules."""
        total = self.plan.rounds * self.plan.rollouts
        for _ in range(self.plan.rollouts):
            episodes = self.learner.epoch(min(1.0, self.epochs / total))
            self.epochs += 1
            lived = self.epochs * self.plan.horizon
            if lived > max(
                world.max_steps for world in self.worlds
            ):  # before, only the fast ones of the first episodes have ended
                self.recent = [*self.recent, *episodes.spl.tolist()][-RECENT:]
            if len(self.recent) == RECENT and self.net.end_epoch(float(np.mean(self.recent))):
                self.learner.rebind(self.net)

    def validate(self, network: Network | None = None) -> float:
        """Success in its world, or worlds, on episodes that it does not learn from; of its network, or of another."""
        flat = self.learner.network if network is None else flat_network(self.plan, network)
        first, episodes = VALIDATION + self.seed * BLOCK, self.plan.validation_episodes
        found = [success(self.plan, flat, world, episodes, first, self.threads) for world in self.worlds]
        return float(np.mean(found))

    # Resuming

    def save(self, folder: Path) -> None:
        """Write all state: network, moments, world, random state, and the last answer."""
        state = {f"learner/{name}": tensor for name, tensor in as_bytes(self.learner.state()).items()}
        counts = {
            "round": self.round,
            "epochs": self.epochs,
            "recent": self.recent,
            "rules": dataclasses.asdict(self.net.rules),
        }
        merged = b"" if self.merged is None else pack(Message(self.merged))
        packed = as_bytes({"answer": _bytes(self._answer), "merged": _bytes(merged)})
        self.net.save(folder, extra={**state, **packed, "client": counts, "random": self._random})

    def restore(self, folder: Path) -> None:
        """Resume from a saved state."""
        self.net = load(folder, build=self.plan.make_model, restore_random=False)
        extra = self.net.extra
        self._make_learner()
        state = self.learner.state()
        self.learner.restore(from_bytes({name: extra[f"learner/{name}"] for name in state}, state))
        counts = extra["client"]
        self.round, self.epochs, self.recent = counts["round"], counts["epochs"], list(counts["recent"])
        self._random = extra["random"]
        self._answer, merged = extra["answer"].numpy().tobytes(), extra["merged"].numpy().tobytes()
        self.merged = unpack(merged).network if merged else None


def _bytes(data: bytes) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.frombuffer(data, np.uint8)


def success(
    plan: Plan, network: FlatNetwork, world: Scenario, episodes: int, first_seed: int, threads: int | None = None
) -> float:
    """The share of some episodes in which a network finds the source of a world."""
    policy = NetworkPolicy(network, plan.learner.observation, plan.learner.acting, world)
    return float(evaluate(policy, world, episodes, first_seed, threads=threads).success.mean())


def flat_network(plan: Plan, network: Network) -> FlatNetwork:
    """A merged network, ready to act."""
    with torch.random.fork_rng():
        model: Any = MLP(
            network.arrays[f"{network.stack}.0.linear.weight"].shape[1],
            plan.width,
            len(network.arrays["head.bias"]),
            network.depth,
        )
    model.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in network.arrays.items()})
    return FlatNetwork(model)

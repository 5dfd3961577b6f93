"""Agents made from a configuration, and read back from a run folder."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

import gpf
from gpf.navigation import online, parallel, policy_gradient
from gpf.navigation.acting import INPUTS, NetworkPolicy
from gpf.navigation.averaging import WeightAverage
from gpf.navigation.config import Acting, Config, network_rules
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.rollouts import Episodes, Rollouts
from gpf.network import MLP, CheckpointError, GrowPruneFreeze
from gpf.plume.scenario import ACTIONS, Scenario
from gpf.runs.folder import RunError, read_config

CheckpointName = Literal["best", "last"]


class Learner(Protocol):
    """What the loop needs of a learner."""

    network: FlatNetwork
    average: WeightAverage | None
    """Of the weights, which acts when learning is over; None where the network itself does."""

    def epoch(self, progress: float) -> Episodes:
        """Learn for one epoch; `progress` is the share of the training that is over."""

    def rebind(self, net: GrowPruneFreeze | None = None) -> None:
        """Take over the network as it is now; needed after every event."""

    def state(self) -> dict[str, NDArray]:
        """Everything but the network on which the next epoch depends."""

    def restore(self, state: dict[str, NDArray]) -> None:
        """Go on from a state."""


def make_model(config: Config) -> MLP:
    """The network as it is before it learns: an output for each action and, where it is shared, one for the value."""
    values = vars(config)
    outputs = len(ACTIONS) + (config.critic == "shared")
    return MLP(INPUTS[values["observation"]], config.width, outputs, config.depth, bool(config.layer_norm))


def make_network(config: Config) -> GrowPruneFreeze:
    """The network and its optimizer, in GPF's care."""
    torch.manual_seed(config.seed)
    model = make_model(config)
    rate = vars(config)["learning_rate"]
    if config.learner == "policy-gradient":
        policy_gradient.PolicyGradientLearner.prepare(model)
    if config.learner == "online":
        optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=rate, eps=1e-5, fused=True)
    return gpf.attach(model, optimizer, rules=network_rules(config))


def make_learner(config: Config, world: Scenario, net: GrowPruneFreeze, threads: int | None = None) -> Learner:
    """The learner of a resolved configuration, in a world that is given the configuration's reward."""
    values: dict[str, Any] = vars(config)
    scenario = world.rewarded(values["reward"], values["discount"], values["loitering"])
    model: Any = net.model
    optimizer: Any = net.optimizer
    if config.learner == "online":
        learner = online.OnlineLearner(
            model, optimizer, scenario, _settings(online.Settings, config), config.seed, values["observation"],
            config.without,
        )  # fmt: skip
        learner.rebind(net)
        return learner
    rollouts = Rollouts(
        values["lanes"], values["horizon"], scenario, values["observation"], model.head.out_features, config.seed,
        threads, config.without, remember_beside=config.critic == "memory",
    )  # fmt: skip
    if config.learner == "parallel":
        return parallel.ParallelLearner(model, optimizer, rollouts, _settings(parallel.Settings, config))
    critic = None
    if config.critic == "memory":
        critic = policy_gradient.Critic(rollouts.beside.shape[2], config.width, values["learning_rate"], config.seed)
    return policy_gradient.PolicyGradientLearner(
        model, optimizer, rollouts, _settings(policy_gradient.Settings, config), critic
    )


def _settings(kind: Any, config: Config) -> Any:
    """What a learner takes of the configuration."""
    names = {spec.name for spec in dataclasses.fields(kind)} & {spec.name for spec in dataclasses.fields(Config)}
    return kind(**{name: getattr(config, name) for name in names})


@dataclass(frozen=True)
class Navigator:
    """A trained network and how to use it."""

    net: GrowPruneFreeze
    policy: NetworkPolicy
    config: Config
    scenario: Scenario
    """The world that it was trained in, before its reward was chosen."""


def read_run_config(folder: Path) -> tuple[Config, Scenario]:
    """The configuration of a plume run, and its world."""
    written = read_config(folder)
    try:
        known = {spec.name for spec in dataclasses.fields(Config)}
        values = {name: value for name, value in written["config"].items() if name in known}
        return Config.of(values).resolved(), Scenario.of(written["world"])
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"run: {folder / 'config.json'} is damaged ({type(error).__name__}: {error});"
            " accepted: that of a plume run, as gpf train wrote it"
        ) from None


def load_network(folder: Path, config: Config, restore_random: bool = False) -> GrowPruneFreeze:
    """The network of a checkpoint, which must be of this configuration."""
    net = gpf.load(folder, build=lambda: make_model(config), restore_random=restore_random)
    for name in ("observation", "learner"):
        if net.extra.get(name) != getattr(config, name):
            raise CheckpointError(
                f"checkpoint: {folder} is of {name} {net.extra.get(name)!r} and its run of {getattr(config, name)!r};"
                f" accepted: one of {getattr(config, name)!r}"
            )
    return net


def load_navigator(folder: Path, checkpoint: CheckpointName = "last", acting: Acting | None = None) -> Navigator:
    """The navigator of a run, ready to act."""
    config, scenario = read_run_config(folder)
    with torch.random.fork_rng():  # the network that is built draws random weights, which are then replaced
        net = load_network(folder / "checkpoints" / checkpoint, config)
    model: Any = net.model
    network = FlatNetwork(model)
    if "average" in net.extra:
        network.values[...] = net.extra["average"].numpy()
    if acting == "sampled" and config.learner != "policy-gradient":
        raise ValueError(f"acting: 'sampled'; accepted by a navigator of --learner {config.learner}: greedy")
    policy = NetworkPolicy(
        network, vars(config)["observation"], acting or vars(config)["acting"], scenario, config.without
    )
    return Navigator(net, policy, config, scenario)


def as_bytes(arrays: dict[str, NDArray]) -> dict[str, torch.Tensor]:
    """Arrays of any type, structured ones too, as tensors that a checkpoint can hold."""
    return {name: torch.from_numpy(np.frombuffer(a.tobytes(), np.uint8).copy()) for name, a in arrays.items()}


def from_bytes(tensors: dict[str, torch.Tensor], like: dict[str, NDArray]) -> dict[str, NDArray]:
    """The arrays back, of the types and shapes of others."""
    return {name: np.frombuffer(tensors[name].numpy().tobytes(), a.dtype).reshape(a.shape) for name, a in like.items()}

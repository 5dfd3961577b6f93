"""Agents made from a configuration, and read back from a run folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from gpf.navigation.acting import Acting, NetworkPolicy
from gpf.navigation.averaging import WeightAverage
from gpf.navigation.config import LEARNERS, Config, check_acting, flat_settings
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.rollouts import Episodes
from gpf.network import MLP, CheckpointError, GrowPruneFreeze, attach, load
from gpf.plume.scenario import Scenario
from gpf.runs.folder import CheckpointName, RunError, read_config
from gpf.settings import choose


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
    """The network before it learns."""
    return config.learner.make_model(config.width, config.depth)


def make_network(config: Config) -> GrowPruneFreeze:
    """The network before it learns and its optimizer, in GPF's care."""
    torch.manual_seed(config.seed)
    model = make_model(config)
    return attach(model, config.learner.make_optimizer(model), rules=config.network_rules())


def make_learner(config: Config, world: Scenario, net: GrowPruneFreeze, threads: int | None = None) -> Learner:
    """The learner of a configuration, in a world that is given the configuration's reward."""
    return config.learner.make_learner(net, config.rewarded(world), config.seed, config.without, threads)


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
        values = written["config"]
        known = flat_settings(choose("learner", values["learner"], LEARNERS))
        # Runs of earlier versions also name the settings that their learner does not take.
        config = Config.of({name: value for name, value in values.items() if name in known})
        return config, Scenario.of(written["world"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise RunError(
            f"{folder / 'config.json'} is not the configuration of a plume run ({type(error).__name__}: {error})"
        ) from None


def load_network(folder: Path, config: Config, restore_random: bool = False) -> GrowPruneFreeze:
    """The network of a checkpoint, which must be of this configuration."""
    net = load(folder, build=lambda: make_model(config), restore_random=restore_random)
    for name, wanted in (("observation", config.learner.observation), ("learner", config.learner.NAME)):
        if net.extra.get(name) != wanted:
            raise CheckpointError(f"checkpoint {folder} must have {name} {wanted!r}, got {net.extra.get(name)!r}")
    return net


def load_navigator(folder: Path, checkpoint: CheckpointName = "last", acting: Acting | None = None) -> Navigator:
    """The navigator of a run, ready to act; in the way that its run was made for, unless told otherwise."""
    config, scenario = read_run_config(folder)
    acting = acting or config.learner.acting
    check_acting(config.learner, acting)
    with torch.random.fork_rng():  # the network that is built draws random weights, which are then replaced
        net = load_network(folder / "checkpoints" / checkpoint, config)
    model: Any = net.model
    network = FlatNetwork(model)
    if "average" in net.extra:
        network.values[...] = net.extra["average"].numpy()
    policy = NetworkPolicy(network, config.learner.observation, acting, scenario, config.without)
    return Navigator(net, policy, config, scenario)


def as_bytes(arrays: dict[str, NDArray]) -> dict[str, torch.Tensor]:
    """Arrays of any type, structured ones too, as tensors that a checkpoint can hold."""
    return {name: torch.from_numpy(np.frombuffer(a.tobytes(), np.uint8).copy()) for name, a in arrays.items()}


def from_bytes(tensors: dict[str, torch.Tensor], like: dict[str, NDArray]) -> dict[str, NDArray]:
    """The arrays back, of the types and shapes of others."""
    return {name: np.frombuffer(tensors[name].numpy().tobytes(), a.dtype).reshape(a.shape) for name, a in like.items()}

"""Creates agents from a configuration, and loads them from a run folder."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, get_args

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from gpf.navigation.acting import Acting, NetworkPolicy
from gpf.navigation.averaging import WeightAverage
from gpf.navigation.config import LEARNERS, Config, check_acting, flat_settings
from gpf.navigation.evaluate import Evaluation, Progress, evaluate
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.odometry import Grade, Odometry, with_odometry
from gpf.navigation.recurrent_network import RecurrentNetwork
from gpf.navigation.rollouts import Episodes
from gpf.navigation.seeds import BLOCK, HELD_OUT
from gpf.network import MLP, CheckpointError, GrowPruneFreeze, attach, load
from gpf.plume.scenario import Scenario
from gpf.plume.world import RAW
from gpf.runs.folder import CheckpointName, RunError, read_config
from gpf.settings import choose
from gpf.zoo import run_folder

NEEDED = 5
"""Columns of a raw observation that every robot has: two readings, wind and heading."""


class Learner(Protocol):
    """The interface of a learner to the loop."""

    network: FlatNetwork
    average: WeightAverage | None
    """Of the weights, which acts when learning is over; None where the network itself does."""

    def epoch(self, progress: float) -> Episodes:
        """Learn for one epoch; `progress` is the share of the training that is over."""

    def rebind(self, net: GrowPruneFreeze | None = None) -> None:
        """Take over the current network; needed after every event."""

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything but the network on which the next epoch depends."""

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore a state."""


def make_model(config: Config) -> MLP | RecurrentNetwork:
    """The network before it learns."""
    return config.learner.make_model(config.width, config.depth)


def make_network(config: Config) -> GrowPruneFreeze:
    """The network before it learns and its optimizer, in GPF's care."""
    torch.manual_seed(config.seed)
    model = make_model(config)
    return attach(model, config.learner.make_optimizer(model), rules=config.network_rules(), steps=config.epochs)


def make_learner(config: Config, world: Scenario, net: GrowPruneFreeze, threads: int | None = None) -> Learner:
    """The learner of a configuration, in a world that is given the configuration's reward."""
    return config.learner.make_learner(net, config.rewarded(world), config.seed, config.without, threads)


@dataclass(frozen=True)
class Navigator:
    """A trained network and how to use it.

    It takes raw observations, as environments give with `observation="raw"`, and computes the inputs of its network
    (levels, octants, memory features) itself.

    >>> navigator = gpf.load_navigator("runs/plume-1")  # doctest: +SKIP
    >>> env = gymnasium.make("gpf/Plume-v0", observation="raw")  # doctest: +SKIP
    >>> observation, info = env.reset(seed=1)  # doctest: +SKIP
    >>> navigator.reset()  # doctest: +SKIP
    >>> action = navigator.act(observation)  # doctest: +SKIP
    """

    net: GrowPruneFreeze
    policy: NetworkPolicy
    config: Config
    scenario: Scenario
    """The world that it was trained in, before its reward was chosen."""

    def reset(self, lanes: int = 1, *, mask: ArrayLike | None = None, seed: int = 0) -> None:
        """Begin new episodes.

        Args:
            lanes: How many episodes run side by side.
            mask: Resets only these lanes: those whose next observation is the first of an episode.
                With autoreset mode `SameStep` that is `terminations | truncations`; with `NextStep`, one step later.
            seed: Of the actions, if they are sampled.
        """
        if mask is None:
            if lanes < 1:
                raise ValueError(f"lanes must be at least 1, got {lanes}")
            self.policy.begin(range(seed, seed + lanes), self.scenario)
            return
        chosen = np.asarray(mask)
        if chosen.dtype != np.bool_ or chosen.shape != (self.policy.lanes,):
            raise ValueError(
                f"mask must be booleans, one for each of {self.policy.lanes} lanes, got {chosen.dtype} of shape"
                f" {chosen.shape}"
            )
        self.policy.forget(chosen)

    def act(self, observation: ArrayLike) -> int | NDArray[np.int64]:
        """The action for a raw observation, shape (8,), or the actions of many lanes, shape (lanes, 8).

        The last three columns, bumps and a second gas channel, may be left out; they are then 0.

        Earlier observations of the episode count, so call it once a step and `reset` between episodes. The
        first call begins the episodes if `reset` has not.
        """
        seen = np.asarray(observation, np.float32)
        if seen.ndim not in (1, 2) or seen.shape[-1] not in (NEEDED, len(RAW)) or not seen.size:
            raise ValueError(
                f"observation must be a raw one, shape ({len(RAW)},) or (lanes, {len(RAW)}), or its first {NEEDED}"
                f" columns, got shape {seen.shape}; environments give it with observation='raw'"
            )
        if not np.isfinite(seen).all():
            raise ValueError("observation must be finite, got NaN or infinity")
        raw = np.zeros((len(seen) if seen.ndim == 2 else 1, len(RAW)), np.float32)
        raw[:, : seen.shape[-1]] = seen
        if self.policy.lanes == 0:
            self.reset(len(raw))
        if len(raw) != self.policy.lanes:
            raise ValueError(f"observation must have {self.policy.lanes} lanes, got {len(raw)}; reset begins others")
        actions = np.zeros(len(raw), np.int64)
        self.policy.act(raw, np.arange(len(raw)), actions)
        return actions if seen.ndim == 2 else int(actions[0])

    def evaluate(
        self,
        episodes: int = 100,
        scenario: Scenario | str | Path | dict[str, Any] | None = None,
        *,
        seed: int | None = None,
        threads: int | None = None,
        paths: int = 0,
        progress: Progress | None = None,
        odometry: Odometry = "perfect",
        imu: Grade = "drone",
    ) -> Evaluation:
        """How well it finds the source, over held-out episodes; episodes that it is acting in are left alone.

        Args:
            episodes: How many.
            scenario: Where; None for the world that it was trained in.
            seed: Which block of held-out episodes; None for that of its own seed.
            threads: To step with; None for one per core. The result is the same.
            paths: Of how many successful, and of how many failed, episodes to keep the trajectories.
            progress: Called with the number of finished episodes, and of those that found the source.
            odometry: `perfect`, or `filter` for what a filter makes of an IMU, the vane and contacts with the plume.
            imu: Of the filter: `industrial`, `drone` or `consumer`.
        """
        block = self.config.seed if seed is None else seed
        if not 0 <= block < BLOCK:
            raise ValueError(f"seed must be 0 to {BLOCK - 1}, got {block}")
        world = self.scenario if scenario is None else Scenario.of(scenario)
        policy = with_odometry(copy.copy(self.policy), odometry, imu)
        return evaluate(
            policy, world, episodes, HELD_OUT + block * BLOCK, threads=threads, paths=paths, progress=progress
        )


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


def load_navigator(folder: str | Path, checkpoint: CheckpointName = "last", acting: Acting | None = None) -> Navigator:
    """The navigator of a run, ready to act; in the way that its run was made for by default.

    Args:
        folder: The run's folder, or a navigator that comes with gpf, such as `zoo:reference`.
        checkpoint: `last`, the network at the end, or `best`, the one that did best in validation.
        acting: `greedy` for the best action, `sampled` to draw it from the policy.
    """
    folder = run_folder(folder)
    config, scenario = read_run_config(folder)
    choose("checkpoint", checkpoint, get_args(CheckpointName))
    acting = acting or config.learner.acting
    check_acting(config.learner, acting)
    with torch.random.fork_rng():  # the network that is built draws random weights, which are then replaced
        net = load_network(folder / "checkpoints" / checkpoint, config)
    model: Any = net.model
    network = config.learner.FLAT(model)
    if "average" in net.extra:
        network.values[...] = net.extra["average"].numpy()
    policy = NetworkPolicy(network, config.learner.observation, acting, scenario, config.without)
    return Navigator(net, policy, config, scenario)


def as_bytes(arrays: dict[str, NDArray[Any]]) -> dict[str, torch.Tensor]:
    """Arrays of any type, structured ones too, as tensors that a checkpoint can hold."""
    return {name: torch.from_numpy(np.frombuffer(a.tobytes(), np.uint8).copy()) for name, a in arrays.items()}


def from_bytes(tensors: dict[str, torch.Tensor], like: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays back, of the types and shapes of others."""
    for name, array in like.items():
        if (found := tensors[name].numel()) != array.nbytes:
            raise ValueError(f"{name} has {found} bytes, not {array.nbytes}, as of another version of gpf")
    return {name: np.frombuffer(tensors[name].numpy().tobytes(), a.dtype).reshape(a.shape) for name, a in like.items()}

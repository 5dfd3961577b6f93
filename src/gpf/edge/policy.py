"""An exported policy: a trained navigator as plain numbers, from sensor readings to an action."""

import dataclasses
import hashlib
import importlib.metadata
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from gpf.navigation.acting import Acting
from gpf.navigation.agents import NEEDED, Navigator, load_navigator
from gpf.navigation.inputs import kept_inputs
from gpf.network import MLP
from gpf.plume.memory import whiff_threshold
from gpf.plume.row import row_of
from gpf.plume.scenario import ACTIONS, Scenario
from gpf.plume.world import RAW
from gpf.runs.folder import CheckpointName, RunError, read_config

SENSORS = RAW[:NEEDED]
"""Inputs."""
UNITS = ("reading", "reading", "m/s", "rad", "rad")
"""Of the sensors; directions counter-clockwise from +x, the wind's being where it blows to."""


@dataclass(frozen=True)
class Layer:
    """A linear map, perhaps with layer normalisation; all except the last are followed by a ReLU."""

    weight: NDArray[np.float32]
    """Shape (outputs, inputs); pruned weights are 0."""
    bias: NDArray[np.float32]
    scale: NDArray[np.float32] | None = None
    """Of the normalisation; None without it."""
    shift: NDArray[np.float32] | None = None

    @property
    def inputs(self) -> int:
        """Number of inputs."""
        return int(self.weight.shape[1])

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return int(self.weight.shape[0])


@dataclass(frozen=True)
class Policy:
    """A trained network and what it takes to feed it; see `gpf.plume.tokens` and `gpf.plume.memory`."""

    layers: tuple[Layer, ...]
    remembers: bool
    """Whether its inputs are features of memory, and not one-hot tokens."""
    samples: bool
    """Whether it may draw its actions from the softmax of its outputs."""
    stride: float
    """Way of one step, m."""
    max_steps: float
    """Length of an episode, steps: the unit of the clock."""
    whiff: float
    """Reading above which there is a whiff."""
    level_edges: NDArray[np.float64]
    """Readings that part the levels of concentration."""
    calm_speed: float
    """Wind speed below which there is no direction, m/s."""
    octant_sign: float
    octant_offset: float
    """Of the first octant, rad."""
    about: dict[str, Any]
    """Where it comes from: the artefact's metadata."""

    @property
    def width(self) -> int:
        """Numbers in the widest layer, inputs and outputs included."""
        return max(max(layer.inputs, layer.outputs) for layer in self.layers)


def read_policy(
    folder: str | Path, checkpoint: CheckpointName = "last", acting: Acting | None = None
) -> tuple[Policy, Navigator]:
    """The policy of a run's checkpoint, without the units that pruning has cut off, and its navigator."""
    folder = Path(folder)
    task = read_config(folder).get("task")
    if task != "plume":
        raise ValueError(f"run must be a navigator's, of task plume, to be exported, got task {task!r}")
    place = folder / "checkpoints" / checkpoint
    if not place.is_dir():
        raise RunError(f"run {folder} has no checkpoint {checkpoint!r}; train it first")
    navigator = load_navigator(folder, checkpoint, acting)
    return policy_of(navigator, digest(place), str(checkpoint)), navigator


def policy_of(navigator: Navigator, checkpoint_digest: str = "", checkpoint: str = "") -> Policy:
    """The policy of a navigator that acts in the world in which it was trained."""
    config = navigator.config
    metadata = {
        "name": "gpf navigator",
        "version": importlib.metadata.version("gpf-networks"),
        "checkpoint": checkpoint,
        "checkpoint_digest": checkpoint_digest,
        "learner": config.learner.NAME,
        "acting": navigator.policy.acting,
        "scenario": config.scenario,
        **description(navigator.scenario),
    }
    keep = kept_inputs(config.learner.observation, config.without)
    return from_network(
        navigator.net.compact(), navigator.scenario, config.learner.observation, metadata,
        samples="sampled" in config.learner.ACTING, keep=keep,
    )  # fmt: skip


def from_network(
    model: nn.Module,
    scenario: Scenario,
    observation: str,
    metadata: dict[str, Any],
    *,
    samples: bool = True,
    keep: NDArray[np.float32] | None = None,
) -> Policy:
    """The policy of a network that was trained in a world.

    Args:
        model: An MLP; outputs beyond the actions, such as a critic's, are left out.
        scenario: Its world.
        observation: `memory` or `onehot`.
        metadata: The artefact's description of itself.
        samples: Whether its actions may be sampled.
        keep: 1 for inputs that the network sees, 0 for the others; None for all.
    """
    layers = read_layers(model)
    first, last = layers[0], layers[-1]
    if keep is not None:
        layers[0] = dataclasses.replace(first, weight=first.weight * keep)
    layers[-1] = dataclasses.replace(
        layers[-1], weight=layers[-1].weight[: len(ACTIONS)], bias=last.bias[: len(ACTIONS)]
    )
    row = row_of(scenario)
    return Policy(
        tuple(layers), observation == "memory", samples, float(row["stride"]), float(row["max_steps"]),
        float(whiff_threshold(row["sensor_noise"])), np.array(row["level_edges"]), float(row["calm_speed"]),
        float(row["octant_sign"]), float(row["octant_offset"]), {**metadata, "observation": observation},
    )  # fmt: skip


def description(scenario: Scenario) -> dict[str, Any]:
    """Facts about a world for a robot's builder: units, control rate, and the fields that are not the defaults."""
    default, fields = Scenario(), dataclasses.asdict(scenario)
    return {
        "world": {name: value for name, value in fields.items() if value != getattr(default, name)},
        "control_rate_hz": 1.0 / scenario.time_step,
        "sensors": dict(zip(SENSORS, UNITS, strict=True)),
        "actions": list(ACTIONS),
    }


def read_layers(model: nn.Module) -> list[Layer]:
    """The layers of an MLP as arrays."""
    if not isinstance(model, MLP):
        raise ValueError(f"model must be a gpf.MLP to be exported, got {type(model).__name__}")
    layers = []
    for n, block in enumerate([*model.layers, nn.Sequential(model.head, nn.ReLU())]):
        match list(block.children()):
            case [nn.Linear() as linear, nn.ReLU()]:
                norm = None
            case [nn.Linear() as linear, nn.LayerNorm() as norm, nn.ReLU()]:
                pass
            case parts:
                kinds = ", ".join(type(part).__name__ for part in parts) or type(block).__name__
                raise ValueError(f"layer {n} must be Linear, perhaps LayerNorm, and ReLU to be exported, got {kinds}")
        arrays = [linear.weight, linear.bias] + ([] if norm is None else [norm.weight, norm.bias])
        values = [array.detach().numpy().astype(np.float32) for array in arrays]
        if not all(np.isfinite(array).all() for array in values):
            raise ValueError(f"layer {n} must have finite weights to be exported")
        layers.append(Layer(*values))
    return layers


def digest(folder: Path) -> str:
    """SHA-256 of the files of a checkpoint."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        total.update(f"{path.relative_to(folder)} {path.stat().st_size}\n".encode())
        total.update(path.read_bytes())
    return total.hexdigest()

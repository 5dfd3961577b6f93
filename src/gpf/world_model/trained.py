"""A trained world model: the network of a run, and statistics of its data."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from gpf.navigation.tokenized import wind_angles
from gpf.network import CheckpointError, GrowPruneFreeze, load
from gpf.plume.scenario import OCTANTS, Scenario
from gpf.plume.tokens import STATES, VOCABULARY_VERSION
from gpf.runs.folder import RunError, read_config
from gpf.world_model.config import Config
from gpf.world_model.model import WorldModel
from gpf.world_model.sequences import EOS_CODE, FIRST_ACTION, FIRST_SPECIAL, Dataset


@dataclass(frozen=True)
class TrainedWorld:
    """A world model with everything needed to use it."""

    model: WorldModel
    scenario: Scenario
    """The world of its data."""
    found: NDArray[np.float32]
    """Of every observation, how often it was the last one of an episode that found the source."""
    coupling: float
    """How much both antennae's readings go together beyond what the model predicts; see `Imagination`."""

    @property
    def headway(self) -> NDArray[np.float64]:
        """Of every observation, how far a step brings upwind, m."""
        stride = self.scenario.speed * self.scenario.time_step
        ahead: NDArray[np.float64] = stride * np.cos(wind_angles(self.scenario))[np.arange(STATES) % OCTANTS]
        return ahead


def found_chances(dataset: Dataset) -> NDArray[np.float32]:
    """Of every observation, the share that were the last one of an episode that found the source."""
    codes = np.asarray(dataset.codes)
    moved = np.flatnonzero((codes[:-1] >= FIRST_ACTION) & (codes[:-1] < FIRST_SPECIAL)) + 1  # not an episode's first
    all_seen = np.bincount(codes[moved], minlength=STATES)
    last = dataset.starts[1:] - 2
    at_source = np.bincount(codes[last[np.asarray(dataset.found)]], minlength=STATES)
    assert (codes[last + 1] == EOS_CODE).all()
    shares: NDArray[np.float32] = (at_source / np.maximum(all_seen, 1)).astype(np.float32)
    return shares


def load_world(folder: str | Path, checkpoint: Literal["best", "last"] = "best") -> TrainedWorld:
    """The world model of a run that gpf train world made."""
    folder = Path(folder)
    config, written = read_run_config(folder), read_config(folder)
    net = load_network(folder / "checkpoints" / checkpoint, config)
    model: Any = net.model
    model.eval()
    extra = net.extra
    try:
        found, coupling = extra["found"].numpy(), float(extra["coupling"])
    except KeyError as error:
        raise CheckpointError(f"{folder} must be a checkpoint of gpf train world, but lacks {error}") from None
    return TrainedWorld(model, Scenario.of(written["world"]), found, coupling)


def read_run_config(folder: Path) -> Config:
    """The settings of a run of task world."""
    written = read_config(folder)
    if written.get("task") != "world":
        raise RunError(f"run {folder} must be one of task 'world', got one of {written.get('task')!r}")
    if written.get("vocabulary") != VOCABULARY_VERSION:
        raise RunError(f"run {folder} must have vocabulary {VOCABULARY_VERSION}, got {written.get('vocabulary')!r}")
    try:
        Scenario.of(written.get("world", {}))
        return Config.of(written.get("config", {}))
    except ValueError as error:
        raise RunError(f"{folder / 'config.json'} is damaged ({error})") from None


def make_model(config: Config) -> WorldModel:
    """The network as it is before it learns."""
    return WorldModel(config.width, config.heads, config.depth, config.context)


def load_network(folder: Path, config: Config) -> GrowPruneFreeze:
    """The network of a checkpoint."""
    with torch.random.fork_rng():  # the constructor draws random weights, which are then replaced
        return load(folder, build=lambda: make_model(config), restore_random=False)

"""A world model of the plume: tokens in, tokens out; and a planner that imagines before it acts."""

from gpf.world_model.collection import collect
from gpf.world_model.config import Config
from gpf.world_model.env import ImaginedPlumeEnv, ImaginedPlumeVectorEnv
from gpf.world_model.model import WorldModel
from gpf.world_model.planner import Planner, Scoring
from gpf.world_model.sequences import Dataset, read_dataset, write_dataset
from gpf.world_model.trained import TrainedWorld, load_world

__all__ = [
    "Config", "Dataset", "ImaginedPlumeEnv", "ImaginedPlumeVectorEnv", "Planner", "Scoring", "TrainedWorld",
    "WorldModel", "collect", "load_world", "read_dataset", "write_dataset",
]  # fmt: skip

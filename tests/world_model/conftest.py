import pytest
import torch

from gpf.navigation.policies import make_policy
from gpf.plume.scenario import Scenario
from gpf.world_model.collection import Wandering, collect
from gpf.world_model.model import WorldModel


@pytest.fixture(autouse=True)
def _one_torch_thread(one_torch_thread):
    """So small a model waits for its threads most of the time."""


@pytest.fixture(scope="session")
def short_world():
    return Scenario.of({"preset": "reference", "max_steps": 60, "start_distance_min": 1.0, "start_distance_max": 2.0})


@pytest.fixture(scope="session")
def dataset(short_world):
    """Some thousand steps of three behaviours."""
    behaviours = {
        "random": (make_policy("random"), 0.2),
        "reactive": (Wandering(make_policy("reactive"), 0), 0.3),
        "cast-and-surge": (Wandering(make_policy("cast-and-surge"), 0), 0.5),
    }
    return collect(behaviours, short_world, 6000)


@pytest.fixture
def model():
    """A small world model of random weights, that predicts something definite."""
    torch.manual_seed(0)
    model = WorldModel(width=16, heads=2, depth=2, context=8)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model.eval()

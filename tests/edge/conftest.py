import dataclasses

import pytest
from edge_networks import WORLDS

from gpf.edge.flights import fly
from gpf.navigation.policies import make_policy


@pytest.fixture(scope="session")
def flights():
    """Flown episodes of both worlds: by a baseline that finds the source, so that there are whiffs."""
    short = {name: dataclasses.replace(world, max_steps=150) for name, world in WORLDS.items()}
    return {name: fly(make_policy("cast-and-surge"), world, 20) for name, world in short.items()}


@pytest.fixture(autouse=True)
def one_thread(one_torch_thread):
    pass

import numpy as np
import pytest

from gpf.edge.robot import Limits
from gpf.edge.robot.simulated import Single, fly
from gpf.navigation import CastAndSurge
from gpf.plume.env import PlumeEnv


def flown_directly(navigator, scenario, seed):
    """The actions of a navigator in the environment itself, and whether it found the source."""
    env = PlumeEnv(scenario, observation="raw")
    raw, _ = env.reset(seed=seed)
    navigator.reset()
    actions, over = [], False
    while not over:
        actions.append(int(navigator.act(raw)))
        raw, _, terminated, truncated, info = env.step(actions[-1])
        over = terminated or truncated
    return actions, info["success"]


@pytest.fixture(scope="module")
def untrained():
    """A network that has learned nothing, with memory features as inputs."""
    from gpf.navigation.acting import Acting, NetworkPolicy
    from gpf.navigation.agents import Navigator, make_network
    from gpf.navigation.config import Config
    from gpf.navigation.flat import FlatNetwork
    from gpf.plume import Scenario

    config = Config.of({"width": 16, "depth": 2, "seed": 900})
    net = make_network(config)
    acting: Acting = config.learner.acting
    scenario = Scenario.of({"preset": "paper", "max_steps": 200})
    policy = NetworkPolicy(FlatNetwork(net.model), config.learner.observation, acting, scenario, config.without)
    return Navigator(net, policy, config, scenario)


@pytest.mark.parametrize("scenario", ["paper", "decoy", "office", "fast-sensor"])
def test_a_policy_takes_the_same_actions_through_messages_as_in_the_environment(scenario):
    short = {"preset": scenario, "max_steps": 400}
    for seed in (900, 901):
        navigator = Single(CastAndSurge(), short, seed)
        flight = fly(navigator, short, seed)
        assert (flight.actions, flight.found) == flown_directly(navigator, short, seed)
        assert flight.status.reason == "the episode is over"


def test_a_network_takes_the_same_actions_through_messages_as_in_the_environment(untrained):
    for seed in (900, 901, 902):
        flight = fly(untrained, untrained.scenario, seed)
        assert (flight.actions, flight.found) == flown_directly(untrained, untrained.scenario, seed)
        assert len(set(flight.actions)) > 1


def test_velocity_commands_lead_where_actions_lead():
    flight = fly(Single(CastAndSurge(), "paper", 900), "paper", 900)
    assert flight.found
    assert flight.worst_position < 1e-9
    assert flight.worst_heading < 1e-9


def test_a_slower_turn_takes_longer_and_changes_no_action():
    quick, slow = (
        fly(Single(CastAndSurge(), "paper", 900), "paper", 900, limits=Limits(angular_max=rate)) for rate in (3.0, 0.3)
    )
    assert quick.actions == slow.actions
    turned = np.radians([(0, 15, 15, 180, 30, 30)[action] for action in slow.actions]).sum()
    assert slow.seconds - quick.seconds == pytest.approx(turned * (1 / 0.3 - 1 / 3.0), rel=0.1)

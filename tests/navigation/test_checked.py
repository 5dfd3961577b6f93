"""Whatever somebody else's agent does wrong is one sentence that names it, its world and what is wrong."""

import numpy as np
import pytest

from gpf.navigation.checked import Checked, check_needs
from gpf.navigation.policies import CastAndSurge
from gpf.navigation.suite import held_out, world_of
from gpf.plume.scenario import Scenario

WORLD = world_of("reference")
SCENARIO = WORLD.scenario()


def agent(choose, begin=lambda self, seeds, scenario: None, **attributes):
    """A function that makes an agent of a way to choose actions."""

    def act(self, raw, lanes, actions):
        return choose(raw, lanes, actions)

    return lambda scenario: type("Mine", (), {"begin": begin, "act": act, **attributes})()


def write(values):
    def choose(raw, lanes, actions):
        actions[lanes] = values

    return choose


def fail(raw, lanes, actions):
    raise KeyError("there is no plume")


MISTAKES = {
    "NaN": (agent(write(np.nan)), "act must write whole numbers from 0 to 5, got NaN"),
    "NaN in an array": (agent(lambda raw, lanes, actions: actions.__setitem__(lanes, np.nan * raw[lanes, 2])), "NaN"),
    "a wrong shape": (agent(write([1, 2, 3, 4, 5, 0, 1])), r"act failed \(ValueError: .*shape"),
    "an action that there is not": (agent(write(6)), "from 0 to 5 for all lanes, got action 6 in lane 0"),
    "a negative action": (agent(write(-2)), "got action -2 in lane 0"),
    "no action": (agent(lambda raw, lanes, actions: None), "got no action in lane 0"),
    "only some lanes": (agent(lambda raw, lanes, actions: actions.__setitem__(lanes[:1], 0)), "no action in lane 1"),
    "a returned array": (agent(lambda raw, lanes, actions: np.zeros((2, 3))), r"third argument, .*shape \(2, 3\)"),
    "a returned list": (agent(lambda raw, lanes, actions: [0]), "third argument, and returned list"),
    "an exception": (agent(fail), r"act failed \(KeyError: 'there is no plume'\)"),
    "an exception at the start": (agent(write(0), begin=lambda self, seeds, scenario: seeds[99]), "begin failed"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_of_an_agent_is_one_sentence(name):
    make, message = MISTAKES[name]
    with pytest.raises(ValueError, match=message) as caught:
        held_out(Checked(make, "mine:make", "reference", SCENARIO), WORLD, SCENARIO, 900, 2)
    assert str(caught.value).startswith("agent 'mine:make' in world 'reference': ")
    assert "\n" not in str(caught.value)


def broken(scenario):
    raise FileNotFoundError("weights.npz")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda scenario: None, "make_agent must return a policy with begin and act, got no begin"),
        (lambda scenario: CastAndSurge, "begin failed|act failed|needs"),
        (lambda: None, r"make_agent failed \(TypeError"),
        (broken, r"make_agent failed \(FileNotFoundError: weights.npz\)"),
    ],
)
def test_what_makes_no_policy_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        held_out(Checked(make, "mine", "reference", SCENARIO), WORLD, SCENARIO, 900, 2)


def test_a_checked_agent_does_what_it_does_unchecked():
    own = held_out(CastAndSurge(), WORLD, SCENARIO, 900, 5)
    checked = held_out(Checked(lambda scenario: CastAndSurge(), "mine", "reference", SCENARIO), WORLD, SCENARIO, 900, 5)
    assert (own.steps == checked.steps).all()


def test_an_agent_cannot_change_what_it_is_shown():
    def meddle(raw, lanes, actions):
        raw[:] = lanes[:] = 0
        actions[:] = 0

    found = held_out(Checked(agent(meddle), "mine", "reference", SCENARIO), WORLD, SCENARIO, 900, 3)
    straight = held_out(
        Checked(agent(lambda raw, lanes, actions: actions.fill(0)), "mine", "reference", SCENARIO), WORLD, SCENARIO,
        900, 3,
    )  # fmt: skip
    assert (found.steps == straight.steps).all()


def test_a_world_that_lacks_what_an_agent_needs_is_refused():
    still = Scenario(wind_speed=0.0, wind_speed_sigma=0.0)
    message = "agent 'mine' needs a vane, which world 'still' lacks: its wind of 0 m/s is below calm_speed, 0.05 m/s"
    with pytest.raises(ValueError, match=message):
        Checked(agent(write(0), NEEDS=("vane",)), "mine", "still", still)
    check_needs((), still, "mine", "still")
    check_needs(("vane",), SCENARIO, "mine", "reference")
    with pytest.raises(ValueError, match="needs a second channel, which world 'reference' lacks: it has no decoys"):
        check_needs(("second channel",), SCENARIO, "mine", "reference")
    with pytest.raises(ValueError, match="NEEDS must be of vane, second channel, got 'nose'"):
        check_needs(("nose",), SCENARIO, "mine", "reference")
    assert Checked(agent(write(0), parameters=12), "mine", "reference", SCENARIO).parameters == 12

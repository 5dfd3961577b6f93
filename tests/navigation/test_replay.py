"""Episodes played again: the same as evaluated, with what explains them."""

import dataclasses

import numpy as np
import pytest
import torch

from gpf.navigation.acting import NetworkPolicy
from gpf.navigation.agents import make_model
from gpf.navigation.config import Config
from gpf.navigation.episode_figures import COLOURS, choices_figure, map_figure
from gpf.navigation.evaluate import evaluate
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.replay import Episode, habits, replay
from gpf.navigation.seeds import HELD_OUT
from gpf.plume.memory import NAMES, Memory
from gpf.plume.row import row_of
from gpf.plume.scenario import ACTIONS, Scenario

WORLD = dataclasses.replace(Scenario.preset("reference"), max_steps=60, start_distance_max=3.0)
SEEDS = range(HELD_OUT, HELD_OUT + 12)


@pytest.fixture(scope="module")
def policy():
    """A network that has learned nothing but has preferences, whose actions are drawn."""
    torch.manual_seed(0)
    model = make_model(Config.of({"width": 8}))
    torch.nn.init.normal_(model.head.weight)
    return NetworkPolicy(FlatNetwork(model), "memory", "sampled", WORLD)


@pytest.fixture(scope="module")
def episodes(policy):
    """Of that network."""
    return replay(policy, WORLD, SEEDS)


def made_up(whiffs, headings=None, wind=0.0, actions=None):
    steps = len(whiffs)
    observations = np.zeros((steps, 5), np.float32)
    observations[:, 3] = wind
    return Episode(
        positions=np.zeros((steps + 1, 2)), source=(3.0, 4.0), observations=observations,
        headings=np.array(headings if headings is not None else np.zeros(steps)),
        actions=np.array(actions if actions is not None else np.zeros(steps, int)),
        outputs=np.zeros((steps, 6), np.float32), whiffs=np.array(whiffs, bool), success=True,
        field=np.zeros((2, 2)), scenario=WORLD,
    )  # fmt: skip


def test_a_replay_is_the_episode_that_was_evaluated(policy, episodes):
    found = evaluate(policy, WORLD, len(SEEDS), HELD_OUT, paths=len(SEEDS))
    assert [episode.steps for episode in episodes] == found.steps.tolist()
    assert [episode.success for episode in episodes] == found.success.tolist()
    for n, episode in enumerate(episodes):
        np.testing.assert_allclose(episode.positions - episode.source, found.paths[n], atol=1e-5)  # the wind is along x
        np.testing.assert_allclose(episode.distances, np.hypot(*found.paths[n][:-1].T), atol=1e-5)


def test_an_episode_goes_where_its_actions_turn_it(episodes):
    turns = np.radians([0, 15, -15, 180, 30, -30])
    for episode in episodes:
        before = episode.observations[:, 4]
        turned = np.angle(np.exp(1j * (episode.headings - before - turns[episode.actions])))
        assert np.abs(turned).max() < 1e-5
        strides = np.diff(episode.positions, axis=0)
        np.testing.assert_allclose(np.hypot(*strides.T), 0.05, atol=1e-6)
        np.testing.assert_allclose(
            np.arctan2(strides[:, 1], strides[:, 0]), np.angle(np.exp(1j * episode.headings)), atol=1e-4
        )


def test_probabilities_are_those_by_which_actions_are_drawn(policy):
    many = replay(policy, WORLD, range(HELD_OUT, HELD_OUT + 200))
    chances = np.concatenate([episode.probabilities for episode in many])
    taken = np.eye(len(ACTIONS))[np.concatenate([episode.actions for episode in many])]
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert np.abs(chances.mean(axis=0) - taken.mean(axis=0)).max() < 0.02
    expected = (chances**2).sum(axis=1).mean()  # of the probability of the action that is taken
    assert expected > 0.25  # far from even
    assert (chances * taken).sum(axis=1).mean() == pytest.approx(expected, abs=0.02)


NOISY = dataclasses.replace(WORLD, sensor_noise=0.004)
COARSE = dataclasses.replace(WORLD, level_edges=(0.02, 0.03, 0.04, 0.05, 0.06, 0.6))


@pytest.mark.parametrize(
    ("observation", "trained", "acts", "threshold"),
    [
        ("memory", WORLD, WORLD, 0.004),
        ("memory", NOISY, NOISY, 0.016),
        ("memory", NOISY, WORLD, 0.016),
        ("memory", WORLD, NOISY, 0.004),
        ("onehot", WORLD, COARSE, 0.003),
        ("onehot", COARSE, NOISY, 0.02),
    ],
)
def test_whiffs_are_those_that_the_navigator_notices_as_it_was_trained(observation, trained, acts, threshold):
    torch.manual_seed(0)
    network = FlatNetwork(make_model(Config.of({"width": 4, "observation": observation})))
    policy = NetworkPolicy(network, observation, "sampled", trained)
    found = replay(policy, acts, SEEDS)
    readings = np.concatenate([episode.observations[:, :2].max(axis=1) for episode in found])
    whiffs = np.concatenate([episode.whiffs for episode in found])
    np.testing.assert_array_equal(whiffs, readings > threshold)
    assert policy.whiff == pytest.approx(threshold)
    for other in {0.003, 0.004, 0.016, 0.02} - {threshold}:
        assert (whiffs != (readings > other)).any()


def test_whiffs_of_a_replay_are_those_that_memory_has(policy):
    noisy = NetworkPolicy(policy.network, "memory", "sampled", NOISY)
    for episode in replay(noisy, NOISY, SEEDS):
        memory = Memory(np.array([row_of(NOISY)]))
        whiffs = [memory.update(raw[None])[0, NAMES.index("whiff")] == 1.0 for raw in episode.observations]
        assert episode.whiffs.tolist() == whiffs


def test_steps_since_a_whiff_are_counted_from_the_last_one():
    assert made_up([0, 1, 0, 0, 1, 1, 0]).since_whiff.tolist() == [np.inf, 0, 1, 2, 0, 0, 1]


def test_upwind_is_against_the_wind():
    episode = made_up([0] * 4, headings=[np.pi, np.pi / 2, 0.0, -np.pi], wind=0.0)
    np.testing.assert_allclose(episode.from_upwind, [0, 90, 180, 0], atol=1e-4)
    np.testing.assert_allclose(made_up([0], headings=[-np.pi / 2], wind=np.pi / 2).from_upwind, [0], atol=1e-4)


def test_habits_group_steps_by_the_time_since_the_last_whiff():
    whiffs = [0] * 5 + [1, 1] + [0] * 100
    episode = made_up(whiffs, headings=[0.0] * 5 + [np.pi] * 102, actions=[3] * 5 + [0, 1] + [2] * 100)
    found = {habit.when: habit for habit in habits([episode, episode])}
    assert list(found) == [
        "during a whiff", "1 to 10 steps after one", "11 to 50 steps after one", "later", "before the first whiff",
    ]  # fmt: skip
    assert [round(habit.share * 107) for habit in found.values()] == [2, 10, 40, 50, 5]
    assert found["during a whiff"].actions == (0.5, 0.5, 0, 0, 0, 0)
    assert found["before the first whiff"].actions == (0, 0, 0, 1, 0, 0)
    assert [round(habit.from_upwind) for habit in found.values()] == [0, 0, 0, 0, 180]
    assert [habit.when for habit in habits([made_up([1, 1])])] == ["during a whiff"]


def test_the_map_has_the_path_in_the_colours_of_its_actions(episodes):
    from matplotlib.colors import to_hex

    episode = max(episodes, key=lambda one: one.steps)
    whiffs, path = map_figure(episode).axes[0].collections[:2]
    assert [to_hex(colour) for colour in path.get_colors()] == [COLOURS[ACTIONS[action]] for action in episode.actions]
    np.testing.assert_allclose([part[0] for part in path.get_segments()], episode.positions[:-1])
    assert len(whiffs.get_segments()) == episode.whiffs.sum()


@pytest.mark.parametrize("values", [False, True])
def test_the_choices_are_probabilities_or_values_and_the_place_is_judged_where_it_can_be(episodes, values):
    episode = dataclasses.replace(episodes[0], outputs=episodes[0].outputs[:, :6]) if values else episodes[0]
    figure = choices_figure(episode, values)
    smelled, chosen, place, *judged = figure.axes
    np.testing.assert_allclose(place.lines[0].get_ydata(), episode.distances)
    if values:
        drawn = np.array([line.get_ydata() for line in chosen.lines[:6]]).T
        np.testing.assert_allclose(drawn.sum(axis=1), 0.0, atol=1e-5)
        np.testing.assert_allclose(np.diff(drawn), np.diff(episode.outputs), atol=1e-5)
        np.testing.assert_allclose(judged[0].lines[0].get_ydata(), episode.outputs.max(axis=1))
    else:
        assert len(chosen.collections) == len(ACTIONS)
        np.testing.assert_allclose(judged[0].lines[0].get_ydata(), episode.outputs[:, 6])
    assert smelled.get_ylabel() == "reading"
    critic_elsewhere = dataclasses.replace(episode, outputs=episode.outputs[:, :6])
    assert len(choices_figure(critic_elsewhere, values).axes) == (4 if values else 3)

"""A trained navigator as its users have it: act, reset, evaluate."""

import dataclasses

import gymnasium
import numpy as np
import pytest

import gpf
from gpf.navigation.evaluate import Evaluation, evaluate
from gpf.navigation.seeds import BLOCK, HELD_OUT
from gpf.plume import Scenario
from gpf.plume.world import World

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture
def navigator(plume_run):
    return gpf.load_navigator(str(plume_run), acting="greedy")


def walked(navigator, scenario, seed):
    """Steps of one episode in a single environment, and whether the source was found."""
    env = gymnasium.make("gpf/Plume-v0", scenario=scenario, observation="raw")
    observation, info = env.reset(seed=seed)
    navigator.reset()
    steps, over = 0, False
    while not over:
        observation, _, terminated, truncated, info = env.step(navigator.act(observation))
        steps, over = steps + 1, terminated or truncated
    return steps, info["success"]


def test_a_navigator_in_an_environment_does_what_its_evaluation_does(navigator):
    result = navigator.evaluate(8)
    first = HELD_OUT + navigator.config.seed * BLOCK
    for n in range(8):
        assert walked(navigator, navigator.scenario, first + n) == (result.steps[n], result.success[n])


def test_lanes_remember_each_for_itself_and_restart_by_a_mask(navigator):
    """Many lanes, whose episodes end at different times, act as each would alone."""
    world = World(6, [dataclasses.replace(navigator.scenario, max_steps=10 + 3 * lane) for lane in range(6)])
    world.seed(range(100, 106))
    world.begin()
    navigator.reset(6)
    steps = []
    for _ in range(80):
        begun = world.lanes["step"] == 0
        navigator.reset(mask=begun)
        seen = world.raw.copy()
        actions = navigator.act(seen)
        steps.append((begun.copy(), seen, actions))
        world.step(actions, restart=True)
    assert len({tuple(np.flatnonzero([begun[lane] for begun, _, _ in steps])) for lane in range(6)}) > 1
    for lane in range(6):
        for begun, seen, actions in steps:
            if begun[lane]:
                navigator.reset()
            assert navigator.act(seen[lane]) == actions[lane]


def test_memory_counts(navigator):
    """The same observation after another past is answered otherwise, for some past."""
    rng = np.random.default_rng(0)
    outputs = []
    for _ in range(20):
        navigator.reset()
        for _ in range(5):
            navigator.act([*rng.uniform(0, 0.5, 2), 1.0, *rng.uniform(-3, 3, 2)])
        navigator.act([0.0, 0.0, 1.0, 0.0, 0.0])
        outputs.append(navigator.policy.outputs[0].copy())
    assert np.ptp(outputs, axis=0).max() > 1e-3


def test_an_evaluation_leaves_a_running_episode_alone(navigator):
    observations = np.random.default_rng(1).uniform(0, 1, (6, 5)).astype(np.float32)
    navigator.reset()
    alone = [(navigator.act(one), navigator.policy.outputs.copy())[1] for one in observations]
    navigator.reset()
    for n, one in enumerate(observations):
        navigator.act(one)
        np.testing.assert_array_equal(navigator.policy.outputs, alone[n])
        navigator.evaluate(3)


def test_sampled_actions_are_those_of_the_seed(plume_run):
    navigator = gpf.load_navigator(plume_run, acting="sampled")
    observation = np.tile([0.01, 0.02, 1.0, 0.0, 3.0], (64, 1))

    def actions(seed):
        navigator.reset(64, seed=seed)
        return navigator.act(observation).tolist()

    assert actions(0) == actions(0)
    assert actions(0) != actions(1)
    assert len(set(actions(0))) > 1


def test_an_evaluation_is_in_the_world_and_the_block_that_is_asked_for(navigator):
    own = navigator.evaluate(5)
    other = navigator.evaluate(5, {"preset": "paper", "max_steps": 7}, seed=3)
    assert own.steps.tolist() == evaluate(
        navigator.policy, navigator.scenario, 5, HELD_OUT + navigator.config.seed * BLOCK
    ).steps.tolist()  # fmt: skip
    assert other.scenario.max_steps == 7
    assert other.start_distance.tolist() != own.start_distance.tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda n: n.act(np.zeros(3)),
            r"shape \(8,\) or \(lanes, 8\), or its first 5 columns, got shape \(3,\)",
        ),
        (lambda n: n.act(np.zeros((0, 5))), "got shape"),
        (lambda n: n.act(np.full(5, np.nan)), "observation must be finite"),
        (lambda n: (n.reset(2), n.act(np.zeros((3, 5)))), "must have 2 lanes, got 3"),
        (lambda n: n.reset(0), "lanes must be at least 1, got 0"),
        (lambda n: (n.reset(2), n.reset(mask=[True])), "one for each of 2 lanes"),
        (lambda n: (n.reset(2), n.reset(mask=[1, 0])), "mask must be booleans"),
        (lambda n: n.evaluate(5, seed=-1), "seed must be 0 to"),
        (lambda n: n.evaluate(0), "episodes must be at least 1, got 0"),
    ],
)
def test_mistakes_are_named(call, message, navigator):
    with pytest.raises(ValueError, match=message):
        call(navigator)


def test_a_misspelled_checkpoint_is_refused(plume_run):
    with pytest.raises(ValueError, match="did you mean 'last'"):
        gpf.load_navigator(plume_run, "lst")


def test_evaluations_are_read_back_as_they_were(navigator, tmp_path):
    result = navigator.evaluate(30, paths=4)
    result.save(tmp_path / "held_out.npz")
    again = Evaluation.load(str(tmp_path / "held_out.npz"), navigator.scenario)
    assert again.summary() == result.summary()
    assert list(again.paths) == list(result.paths)
    for episode, path in result.paths.items():
        np.testing.assert_array_equal(again.paths[episode], path)
    (tmp_path / "held_out.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match="must be episodes that an evaluation saved"):
        Evaluation.load(tmp_path / "held_out.npz", Scenario())


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
def test_lanes_of_a_vector_environment_are_walked_as_single_ones(navigator, mode):
    """With `SameStep` the mask is of the episodes that have just ended; with `NextStep` it comes one step later."""
    scenario = dataclasses.replace(navigator.scenario, max_steps=12)
    lanes = gymnasium.make_vec(
        "gpf/Plume-v0", num_envs=4, scenario=scenario, observation="raw", autoreset_mode=mode
    )  # fmt: skip
    observations, _ = lanes.reset(seed=5)
    navigator.reset(4)
    chosen, late = [[] for _ in range(4)], np.zeros(4, bool)
    for _ in range(40):
        actions = navigator.act(observations)
        for lane in np.flatnonzero(~late):
            chosen[lane].append(int(actions[lane]))
        observations, _, terminations, truncations, _ = lanes.step(actions)
        over = terminations | truncations
        navigator.reset(mask=over if mode == "SameStep" else late)
        late = over if mode == "NextStep" else late
    for lane in range(4):
        env = gymnasium.make("gpf/Plume-v0", scenario=scenario, observation="raw")
        observation, _ = env.reset(seed=5 + lane)
        navigator.reset()
        alone = []
        while len(alone) < len(chosen[lane]):
            alone.append(navigator.act(observation))
            observation, _, terminated, truncated, _ = env.step(alone[-1])
            if terminated or truncated:
                observation, _ = env.reset()
                navigator.reset()
        assert alone == chosen[lane]

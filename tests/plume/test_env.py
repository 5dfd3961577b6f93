import copy
import json
import pickle

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import gpf  # noqa: F401 - registers the environments
from gpf.plume import Scenario
from gpf.plume.env import PlumeEnv
from gpf.plume.observations import OBSERVATIONS
from gpf.plume.rewards import TERMS


def make(**kwargs):
    return gymnasium.make("gpf/Plume-v0", **kwargs)


@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("scenario", ["paper", "reference"])
def test_gymnasiums_checker_finds_nothing_to_warn_of(scenario, observation):
    env = make(scenario=scenario, observation=observation, render_mode="rgb_array")
    check_env(env.unwrapped)


def test_the_three_observations_describe_the_same_world():
    envs = {kind: make(scenario="reference", observation=kind) for kind in OBSERVATIONS}
    now = {kind: env.reset(seed=11)[0] for kind, env in envs.items()}
    for step in range(300):
        tokens, vector, raw = (now[kind] for kind in ("tokens", "onehot", "raw"))
        assert tokens[0] == np.searchsorted(Scenario().level_edges, raw[0])
        assert list(np.flatnonzero(vector)) == [tokens[0], 7 + tokens[1], 14 + tokens[2]]
        assert -np.pi <= raw[3] <= np.pi
        now = {kind: env.step(step % 6)[0] for kind, env in envs.items()}


def test_a_seed_determines_all_episodes_that_follow():
    def play(env, seed):
        seen = [env.reset(seed=seed)[0].tolist()]
        for _ in range(3):
            done = False
            while not done:
                observation, reward, terminated, truncated, _ = env.step(len(seen) % 6)
                seen.append((observation.tolist(), reward))
                done = terminated or truncated
            seen.append(env.reset()[0].tolist())
        return seen

    short = {"max_steps": 100}
    first, again, other = (play(make(scenario=short, observation="raw"), seed) for seed in (4, 4, 5))
    assert first == again
    assert first != other


def test_without_a_seed_episodes_differ():
    starts = {tuple(make(observation="raw").reset()[0].tolist()) for _ in range(3)}
    assert len(starts) == 3


def test_found_source_terminates_and_time_truncates():
    env = make(
        scenario={"start_distance_min": 0.6, "start_distance_max": 0.6, "start_bearing": 0, "start_heading_sigma": 0}
    )
    env.reset(seed=0)
    for _ in range(3):
        _, reward, terminated, truncated, info = env.step(0)
    assert (terminated, truncated, info["success"]) == (True, False, True)
    assert info["distance"] < 0.5
    assert reward == pytest.approx(sum(info["reward_terms"].values()))
    assert set(info["reward_terms"]) == set(TERMS)
    assert info["reward_terms"]["success"] == 100.0


@pytest.mark.parametrize(("preset", "terminates"), [("paper", False), ("reference", True)])
def test_running_out_of_time_is_terminal_only_in_the_reference(preset, terminates):
    env = make(scenario={"preset": preset, "max_steps": 30})
    env.reset(seed=0)
    for step in range(30):
        _, _, terminated, truncated, info = env.step(3)
        assert truncated == (step == 29)
    assert terminated is terminates
    assert not info["success"]


def test_observations_and_infos_of_the_single_environment_are_the_callers_to_keep():
    env = make(observation="raw")
    first, info = env.reset(seed=0)
    kept, kept_info = first.copy(), copy.deepcopy(info)
    for _ in range(20):
        env.step(0)
    assert (first == kept).all()
    assert info == kept_info


def test_a_copy_goes_on_like_the_original():
    env = make(observation="raw").unwrapped
    env.reset(seed=3)
    for _ in range(50):
        env.step(1)
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        fork = copy.deepcopy(env)
        for action in range(6):
            (mine, *_), (theirs, *_) = fork.step(action), twin.step(action)
            assert (mine == theirs).all()


def test_an_environment_with_a_window_can_be_copied(capsys):
    env = PlumeEnv(render_mode="human")
    env.reset(seed=0)
    copy.deepcopy(env).step(0)
    assert "no display" in capsys.readouterr().err


def test_arguments_survive_json():
    kwargs = {"scenario": {"preset": "reference", "max_steps": 7}, "observation": "onehot"}
    env = make(**json.loads(json.dumps(kwargs)))
    restored = gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json())
    assert gymnasium.make(restored).unwrapped.world.rows[0] == env.unwrapped.world.rows[0]


@pytest.mark.parametrize("action", [-1, 6, 1.5, "left", None, [0], np.array([0, 1])])
def test_an_action_outside_the_space_is_refused_and_changes_nothing(action):
    env = PlumeEnv()
    env.reset(seed=0)
    env.step(0)
    before = env.world.lanes.copy()
    with pytest.raises(ValueError, match="^action must be a whole number from 0 to 5, got "):
        env.step(action)
    assert (env.world.lanes == before).all()
    assert env.step(np.int32(1))[1] is not None


def test_a_step_without_a_running_episode_is_refused():
    env = PlumeEnv({"max_steps": 1})
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"^no episode is running; call reset\(\) first$"):
        env.step(0)
    env.reset(seed=0)
    env.step(0)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"scenario": "nowhere"}, "unknown scenario 'nowhere'; accepted: paper, reference"),
        ({"scenario": {"emission_rate": -5}}, "emission_rate must be at least 0, got -5"),
        ({"scenario": {"smell": 1}}, "unknown scenario field 'smell'"),
        ({"observation": "pixels"}, "observation must be one of tokens, onehot, raw, memory, got 'pixels'"),
        ({"render_mode": "ascii"}, "render_mode must be None or one of human, rgb_array, got 'ascii'"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(kwargs, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared
        PlumeEnv(**kwargs)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)

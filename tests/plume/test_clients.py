"""Clients that nobody here wrote."""

import gymnasium
import numpy as np
import pytest

import gpf  # noqa: F401 - registers the environments

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.mark.parametrize("observation", ["tokens", "onehot", "raw"])
def test_stable_baselines3_dqn_trains_without_a_warning(observation):
    from stable_baselines3 import DQN
    from stable_baselines3.common.env_checker import check_env

    env = gymnasium.make("gpf/Plume-v0", scenario="reference", observation=observation)
    check_env(env.unwrapped)
    model = DQN("MlpPolicy", env, learning_starts=200, train_freq=8, seed=0, device="cpu")
    model.learn(1000)
    action, _ = model.predict(env.reset(seed=0)[0], deterministic=True)
    assert env.action_space.contains(int(action))
    assert model.num_timesteps == 1000


def test_gymnasiums_wrappers_work_around_the_vector_environment():
    env = gymnasium.make_vec("gpf/Plume-v0", num_envs=3, scenario={"max_steps": 40}, observation="raw")
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(env)
    env.reset(seed=0)
    lengths = []
    for _ in range(100):
        *_, infos = env.step(env.action_space.sample())
        if "episode" in infos:
            lengths += infos["episode"]["l"][infos["_episode"]].tolist()
    assert lengths == [40] * 6


def test_gymnasiums_wrappers_work_around_the_single_environment(tmp_path):
    env = gymnasium.make("gpf/Plume-v0", observation="raw", scenario={"max_steps": 20})
    env = gymnasium.wrappers.FrameStackObservation(gymnasium.wrappers.RecordEpisodeStatistics(env), 4)
    observation, _ = env.reset(seed=0)
    assert observation.shape == (4, 5)
    done = False
    while not done:
        observation, _, terminated, truncated, info = env.step(0)
        done = terminated or truncated
    assert info["episode"]["l"] == 20
    assert np.isfinite(observation).all()

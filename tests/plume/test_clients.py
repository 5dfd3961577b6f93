"""Clients that nobody here wrote."""

import subprocess

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
    assert observation.shape == (4, 8)
    done = False
    while not done:
        observation, _, terminated, truncated, info = env.step(0)
        done = terminated or truncated
    assert info["episode"]["l"] == 20
    assert np.isfinite(observation).all()


@pytest.mark.parametrize("native", [True, False], ids=["native", "sync"])
def test_statistics_of_lanes_are_those_of_their_rewards(native):
    mode = None if native else "sync"
    env = gymnasium.make_vec("gpf/Plume-v0", num_envs=3, vectorization_mode=mode, scenario={"max_steps": 40})
    env = gymnasium.wrappers.vector.RecordEpisodeStatistics(env)
    env.reset(seed=0)
    returns = np.zeros(3)
    for _ in range(40):
        _, rewards, _, _, infos = env.step(np.array([0, 1, 3]))
        returns += rewards
    assert infos["_episode"].all()
    np.testing.assert_allclose(infos["episode"]["r"], returns)


def test_gymnasium_records_a_video_of_every_episode(tmp_path):
    """Each file has the first frame and one for every step, ten a second, and shows what `render` returns."""
    folder = tmp_path / "videos"
    env = gymnasium.make("gpf/Plume-v0", scenario={"max_steps": 8}, render_mode="rgb_array")
    env = gymnasium.wrappers.RecordEpisodeStatistics(env)
    env = gymnasium.wrappers.RecordVideo(env, str(folder), episode_trigger=lambda episode: episode != 1)
    last = []
    for episode in range(3):
        env.reset(seed=episode, options={"position": [4.0 + 4.0 * episode, 3.0], "source": [10.0, 10.0]})
        done = False
        while not done:
            *_, terminated, truncated, info = env.step(episode)
            done = terminated or truncated
        assert info["episode"]["l"] == 8
        last.append(env.unwrapped.render().astype(float))
    env.close()
    assert sorted(path.name for path in folder.iterdir()) == ["rl-video-episode-0.mp4", "rl-video-episode-2.mp4"]
    for episode in (0, 2):
        seen = read_video(folder / f"rl-video-episode-{episode}.mp4", seconds=0.9)
        assert len(seen) == 9
        own, other = (np.abs(seen[-1] - last[n]).mean() for n in (episode, 2 - episode))
        assert own < 3.0  # of 255: the codec rounds colours
        assert own < other - 0.2  # where the agent is


def read_video(path, seconds):
    """All frames of a video of this duration."""
    import imageio_ffmpeg

    assert imageio_ffmpeg.count_frames_and_secs(str(path))[1] == pytest.approx(seconds, abs=0.01)
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    return np.frombuffer(done.stdout, np.uint8).reshape(-1, 480, 480, 3).astype(float)

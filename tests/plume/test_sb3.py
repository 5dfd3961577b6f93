"""Our lanes as stable-baselines3's vector environment, against its own over single environments."""

import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecCheckNan, VecFrameStack, VecMonitor, VecNormalize

from gpf.plume import Scenario
from gpf.plume.env import PlumeEnv
from gpf.plume.observations import OBSERVATIONS
from gpf.plume.sb3 import PlumeVecEnv
from gpf.plume.vector_env import PlumeVectorEnv

pytestmark = pytest.mark.usefixtures("one_torch_thread")

EASY = {"preset": "reference", "start_distance_min": 0.8, "start_distance_max": 2.0, "max_steps": 60}
"""Episodes that end both ways: many in success, the others soon by time."""
SHORT = {"max_steps": 25}


def both(count=4, scenario=EASY, observation="raw"):
    """Ours, and what it must equal."""
    return PlumeVecEnv(count, scenario, observation), DummyVecEnv([lambda: PlumeEnv(scenario, observation)] * count)


def assert_same_infos(ours, theirs):
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.pop("is_success", other["success"]) == other["success"]
        np.testing.assert_array_equal(mine.pop("terminal_observation", None), other.pop("terminal_observation", None))
        assert mine == other
        assert {name: type(value) for name, value in mine.items()} == {name: type(other[name]) for name in other}


@pytest.mark.parametrize("preset", ["paper", "reference"])
@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_it_returns_what_stable_baselines3s_own_returns(observation, preset):
    ours, theirs = both(scenario={**EASY, "preset": preset}, observation=observation)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.seed(3) == theirs.seed(3)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    assert_same_infos(ours.reset_infos, theirs.reset_infos)
    rng = np.random.default_rng(0)
    ends = successes = timeouts = 0
    while ends < 40:
        actions = np.where(rng.random(4) < 0.8, 0, rng.integers(0, 6, 4))
        mine, other = ours.step(actions), theirs.step(actions)
        for part in range(3):
            assert mine[part].dtype == other[part].dtype
            np.testing.assert_array_equal(mine[part], other[part])
        for info, done in zip(mine[3], mine[2], strict=True):
            assert ("terminal_observation" in info) == ("is_success" in info) == done
            ends += done
            successes += info.get("is_success", False)
            timeouts += info["TimeLimit.truncated"]
        assert_same_infos(mine[3], other[3])
        assert_same_infos(ours.reset_infos, theirs.reset_infos)
    assert 5 < successes < ends - 5
    assert timeouts == (
        ends - successes if preset == "paper" else 0
    )  # in the reference, time that runs out is terminal


def test_what_it_returns_is_the_callers_to_keep():
    env = PlumeVecEnv(3, SHORT, "memory")
    env.seed(0)
    kept = [env.reset()]
    infos = []
    for _ in range(30):
        observations, rewards, dones, info = env.step(np.zeros(3, int))
        kept += [observations, rewards, dones]
        kept += [one["terminal_observation"] for one in info if "terminal_observation" in one]
        infos += info
    copies, before = [array.copy() for array in kept], str(infos)
    for _ in range(60):
        env.step(np.ones(3, int))
    for array, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    assert str(infos) == before
    assert len(kept) == 1 + 3 * 30 + 3


def test_seeds_and_options_are_used_once():
    ours, theirs = both()
    for env in (ours, theirs):
        env.seed(5)
        env.set_options({"position": [15.0, 3.0], "heading": 1.0})
    for _ in range(3):
        np.testing.assert_array_equal(ours.reset(), theirs.reset())
    assert [state.position.tolist() for state in ours.env_method("state")] != [[15.0, 3.0]] * 4


def test_every_lane_may_have_options_of_its_own():
    ours, theirs = both()
    options = [{"position": [1.0, 2.0]}, {}, {"heading": 0.5, "source": [9, 9]}, {"position": (3, 4)}]
    for env in (ours, theirs):
        env.seed(1)
        env.set_options(options)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    assert_same_infos(ours.reset_infos, theirs.reset_infos)
    states = ours.env_method("state")
    for i in (0, 3):
        assert states[i].position.tolist() == list(options[i]["position"])
    assert states[2].source.tolist() == [9.0, 9.0]
    for _ in range(70):
        np.testing.assert_array_equal(ours.step(np.zeros(4, int))[0], theirs.step(np.zeros(4, int))[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([{}], r"^options must be one dictionary or one per lane \(2\), got 1$"),
        ({"postion": [1, 1]}, r"^unknown option 'postion'; did you mean 'position'\?$"),
        ({"position": [1, 99]}, r"^position must be in the domain.* got \[1\.0, 99\.0\] in lane 0$"),
        ([{"heading": 1}, {"heading": "east"}], "^heading must be one number"),
        ([{"heading": None}, {}], "^heading must be one number"),
        ([{}, {"position": [1, 99]}], r"^position must be in the domain.* got \[1\.0, 99\.0\] in lane 1$"),
        ([{"heading": 1.0}, {"postion": [1, 1]}], r"^unknown option 'postion'; did you mean 'position'\?$"),
        (
            [{"position": [1, 2]}, {"position": [1, 2, 3]}],
            r"^position must have the same shape in every lane, got \[\[1, 2\], \[1, 2, 3\]\]$",
        ),
        ([{}, {"position": [1, [2]]}], r"^position must have the same shape in every lane, got \[\[1, \[2\]\]\]$"),
    ],
)
def test_bad_options_are_refused_and_change_nothing(options, message):
    env, untouched = (PlumeVecEnv(2, observation="raw") for _ in range(2))
    for each in (env, untouched):
        each.seed(0)
        each.reset()
        each.step(np.zeros(2, int))
    env.set_options(options)
    with pytest.raises(ValueError, match=message):
        env.reset()
    for _ in range(2):
        np.testing.assert_array_equal(env.step(np.zeros(2, int))[0], untouched.step(np.zeros(2, int))[0])


def test_episodes_without_a_seed_differ():
    assert (PlumeVecEnv(2, observation="raw").reset() != PlumeVecEnv(2, observation="raw").reset()).any()


def test_attributes_and_methods_of_lanes():
    env = PlumeVecEnv(3, observation="raw")
    env.reset()
    assert env.get_attr("observation") == ["raw"] * 3
    assert env.get_attr("action_space", indices=1) == [gymnasium.spaces.Discrete(6)]
    assert env.get_attr("observation_space", [0, 2]) == [env.observation_space] * 2
    env.set_attr("stage", 2, indices=[0, 2])
    assert env.get_attr("stage", [0, 2]) == [2, 2]
    with pytest.raises(AttributeError):
        env.get_attr("stage")
    assert not env.has_attr("stage")
    assert env.has_attr("render_mode")
    with pytest.raises(AttributeError):  # nothing that would do nothing
        env.set_attr("render_mode", "rgb_array")
    distances = [state.distance for state in env.env_method("state")]
    assert distances == [info["distance"] for info in env.reset_infos]
    env.env_method("set_scenario", {"speed": 0.0}, indices=[1])
    *_, infos = env.step(np.zeros(3, int))
    assert [info["distance"] == distance for info, distance in zip(infos, distances, strict=True)] == [
        False, True, False,
    ]  # fmt: skip
    assert env.env_is_wrapped(Monitor) == [False] * 3
    assert env.env_is_wrapped(Monitor, indices=[1]) == [False]
    env.close()


def test_monitor_records_the_episodes(tmp_path):
    env = VecMonitor(PlumeVecEnv(3, SHORT), str(tmp_path / "log"), info_keywords=("is_success",))
    env.seed(0)
    env.reset()
    returns, episodes = np.zeros(3), []
    for _ in range(50):
        _, rewards, dones, infos = env.step(np.full(3, 3))
        returns += rewards
        for i in np.flatnonzero(dones):
            episodes.append((infos[i]["episode"]["l"], infos[i]["episode"]["r"] == pytest.approx(returns[i], rel=1e-5)))
            returns[i] = 0.0
    env.close()
    assert episodes == [(25, True)] * 6
    rows = (tmp_path / "log.monitor.csv").read_text().splitlines()
    assert rows[1] == "r,l,t,is_success"
    assert len(rows) == 2 + 6


def test_ppo_learns_and_logs_the_success_rate():
    env = VecMonitor(PlumeVecEnv(8, EASY, "memory"))
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=128, n_epochs=1, seed=0, device="cpu")
    model.learn(1024)
    assert model.num_timesteps == 1024
    assert len(model.ep_success_buffer) == len(model.ep_info_buffer) > 8
    assert 0.0 <= model.logger.name_to_value["rollout/success_rate"] <= 1.0
    mean, deviation = evaluate_policy(model, env, n_eval_episodes=10, warn=False)
    assert np.isfinite([mean, deviation]).all()


def test_the_same_seed_learns_the_same():
    def weights(env):
        model = PPO("MlpPolicy", env, n_steps=32, batch_size=64, n_epochs=1, seed=7, device="cpu")
        model.learn(256)
        return [parameter.detach().numpy() for parameter in model.policy.parameters()]

    ours, theirs = both(observation="memory")
    for mine, again, other in zip(weights(ours), weights(PlumeVecEnv(4, EASY, "memory")), weights(theirs), strict=True):
        np.testing.assert_array_equal(mine, again)
        np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize(("preset", "bootstraps"), [("paper", True), ("reference", False)])
def test_dqn_bootstraps_from_timeouts_but_not_in_the_reference(preset, bootstraps):
    """DQN's replay keeps a timeout as not done, unless the scenario says that it is terminal."""
    env = PlumeVecEnv(2, {"preset": preset, "max_steps": 10}, "memory")
    model = DQN("MlpPolicy", env, learning_starts=20, buffer_size=1000, seed=0, device="cpu")
    model.learn(100)
    buffer = model.replay_buffer
    last = buffer.dones[:50] == 1
    assert last.sum() == 10
    assert (buffer.timeouts[:50][last] == bootstraps).all()
    # The next observation of an episode's last step is its own last one, and not the first of the next episode.
    clock = buffer.next_observations[:50][last][:, 13]
    np.testing.assert_allclose(clock, 1.0)


def test_evaluation_counts_every_episode_once():
    model = PPO("MlpPolicy", PlumeVecEnv(2, SHORT, "memory"), n_steps=16, batch_size=16, device="cpu")
    env = VecMonitor(PlumeVecEnv(3, SHORT, "memory"))
    returns, lengths = evaluate_policy(model, env, n_eval_episodes=7, return_episode_rewards=True)
    assert lengths == [25] * 7
    assert len(set(returns)) == 7


def test_stable_baselines3s_wrappers_work_around_it():
    env = VecNormalize(VecCheckNan(VecFrameStack(PlumeVecEnv(3, SHORT, "raw"), 2), raise_exception=True))
    env.seed(0)
    assert env.reset().shape == (3, 16)
    for _ in range(60):
        observations, rewards, dones, infos = env.step(np.zeros(3, int))
        assert (np.abs(observations) <= 10).all()
        for info, done in zip(infos, dones, strict=True):
            assert not done or info["terminal_observation"].shape == (16,)
    assert env.obs_rms.count > 100


def test_frames_of_all_lanes_are_tiled(tmp_path):
    from stable_baselines3.common.vec_env import VecVideoRecorder

    env = PlumeVecEnv(2, SHORT, render_mode="rgb_array")
    env.seed(0)
    env.reset()
    single = PlumeVectorEnv(2, SHORT, render_mode="rgb_array")
    single.reset(seed=0)
    np.testing.assert_array_equal(env.render(), np.concatenate(single.render(), axis=0))
    assert PlumeVecEnv(2).get_images() == [None, None]
    video = VecVideoRecorder(env, str(tmp_path), lambda step: step == 0, video_length=5)
    video.reset()
    for _ in range(6):
        video.step(np.zeros(2, int))
    video.close()
    assert video.frames_per_sec == 10
    assert [path.suffix for path in tmp_path.iterdir()] == [".mp4"]


def test_lanes_may_live_in_different_scenarios():
    env = PlumeVecEnv(2, [Scenario(max_steps=5), Scenario(max_steps=9)])
    env.reset()
    dones = np.array([env.step(np.zeros(2, int))[2] for _ in range(45)])
    assert dones.sum(axis=0).tolist() == [9, 5]


def test_make_vec_env_works_too():
    env = make_vec_env("gpf/Plume-v0", n_envs=2, seed=0, env_kwargs={"scenario": SHORT, "observation": "raw"})
    env.set_options({"heading": 1.0})
    assert env.reset()[:, 4].tolist() == [1.0, 1.0]
    ours = PlumeVecEnv(2, SHORT, "raw")
    ours.seed(0)
    ours.set_options({"heading": 1.0})
    np.testing.assert_array_equal(ours.reset()[:, 4], [1.0, 1.0])


def test_without_the_library_one_sentence_says_what_to_install():
    code = "import sys; sys.modules['stable_baselines3'] = None\nimport gpf.plume.sb3"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert last == "ImportError: gpf.plume.sb3 needs stable-baselines3; pip install stable-baselines3"
    assert done.stderr.count("Traceback") == 1


def test_nothing_else_of_ours_imports_the_library():
    code = (
        "import sys, gpf, gpf.plume.vector_env, gpf.plume.env, gpf.navigation, gpf.cli\n"
        "[getattr(gpf.plume, name) for name in gpf.plume.__all__]\n"
        "print('stable_baselines3' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"

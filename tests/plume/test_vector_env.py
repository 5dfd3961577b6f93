import os
import re

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import gpf  # noqa: F401 - registers the environments
from gpf.plume import Scenario
from gpf.plume.env import PlumeEnv
from gpf.plume.observations import OBSERVATIONS
from gpf.plume.vector_env import PlumeVectorEnv
from gpf.plume.world import World, cores, machine_memory

EASY = {"preset": "reference", "start_distance_min": 0.8, "start_distance_max": 2.0, "max_steps": 80}
"""Episodes that end both ways: many in success, the others soon by time."""
MODES = list(AutoresetMode)


def assert_same(ours, theirs, where=""):
    """Equal arrays, dictionaries and all, bit for bit."""
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys(), where
        for key in theirs:
            assert_same(ours[key], theirs[key], f"{where}/{key}")
    elif theirs.dtype.kind == "O":
        for mine, other in zip(ours, theirs, strict=True):
            assert (mine is None) == (other is None), where
            assert mine is None or (mine == other).all(), where
    else:
        assert ours.dtype == theirs.dtype, where
        np.testing.assert_array_equal(ours, theirs, err_msg=where)


def test_make_vec_returns_the_native_environment():
    env = gymnasium.make_vec("gpf/Plume-v0", num_envs=5, scenario="reference", observation="onehot")
    assert type(env.unwrapped) is PlumeVectorEnv
    assert env.observation_space.shape == (5, 22)
    assert env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    observations, _ = env.reset(seed=0)
    assert env.observation_space.contains(observations)


@pytest.mark.parametrize("observation", OBSERVATIONS)
@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_it_returns_what_gymnasiums_own_vectorisation_returns(mode, observation):
    """Against SyncVectorEnv over single environments: observations, rewards, ends, infos, final observations."""
    count = 6
    ours = PlumeVectorEnv(count, EASY, observation, mode)
    theirs = SyncVectorEnv([lambda: PlumeEnv(EASY, observation)] * count, autoreset_mode=mode)
    assert_same(ours.reset(seed=42)[0], theirs.reset(seed=42)[0])
    rng = np.random.default_rng(0)
    ends = successes = 0
    while ends < 20 * count:
        actions = np.where(rng.random(count) < 0.8, 0, rng.integers(0, 6, count))
        mine, other = ours.step(actions), theirs.step(actions)
        for part in range(5):
            assert_same(mine[part], other[part])
        done = other[2] | other[3]
        ends += done.sum()
        successes += (other[2] & ~other[3]).sum()
        if mode is AutoresetMode.DISABLED and done.any():
            assert_same(
                ours.reset(options={"reset_mask": done.copy()})[0], theirs.reset(options={"reset_mask": done.copy()})[0]
            )
    assert 10 < successes < ends - 10


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
@pytest.mark.parametrize("preset", ["paper", "reference"])
def test_each_lane_is_the_single_environment_over_many_full_episodes(preset, mode):
    """Twenty episodes and more in each lane, to their ends, against single environments seeded alike."""
    count, seed = 3, 1000
    scenario = {"preset": preset, "max_steps": 200}
    lanes = PlumeVectorEnv(count, scenario, "raw", mode, threads=2)
    singles = [PlumeEnv(scenario, "raw") for _ in range(count)]
    lanes.reset(seed=seed)
    for i, env in enumerate(singles):
        env.reset(seed=seed + i)
    rng = np.random.default_rng(1)
    episodes = np.zeros(count, int)
    over = np.zeros(count, bool)
    while episodes.min() < 20:
        if mode is AutoresetMode.DISABLED and over.any():
            observations, _ = lanes.reset(options={"reset_mask": over})
            for i in np.flatnonzero(over):
                np.testing.assert_array_equal(observations[i], singles[i].reset()[0])
            over = np.zeros(count, bool)
        actions = rng.integers(0, 6, count)
        observations, rewards, terminations, truncations, infos = lanes.step(actions)
        for i, env in enumerate(singles):
            if over[i]:  # NextStep: this call was the reset
                np.testing.assert_array_equal(observations[i], env.reset()[0])
                assert rewards[i] == 0.0
                over[i] = False
                continue
            single, reward, terminated, truncated, info = env.step(int(actions[i]))
            assert (rewards[i], terminations[i], truncations[i]) == (reward, terminated, truncated)
            done = terminated or truncated
            episodes[i] += done
            if done and mode is AutoresetMode.SAME_STEP:
                np.testing.assert_array_equal(infos["final_obs"][i], single)
                assert infos["final_info"]["success"][i] == info["success"]
                single = env.reset()[0]
            else:
                assert infos["distance"][i] == info["distance"]
                over[i] = done
            np.testing.assert_array_equal(observations[i], single)


def play(count, seeds, threads, steps=700, scenario="reference"):
    """Everything that every lane shows, with one random action stream per seed: shape (seeds, ...) by seed."""
    env = PlumeVectorEnv(count, scenario, "raw", threads=threads)
    env.reset(seed=seeds)
    actions = [np.random.default_rng(seed).integers(0, 6, steps) for seed in seeds]
    seen = {seed: [] for seed in seeds}
    for step in range(steps):
        observations, rewards, *_ = env.step(np.array([a[step] for a in actions]))
        for i, seed in enumerate(seeds):
            seen[seed].append((observations[i].tobytes(), rewards[i]))
    return seen


def test_episodes_do_not_depend_on_number_order_or_threads(monkeypatch):
    monkeypatch.setattr("gpf.plume.world._LANES_AT_A_TIME", 2)  # so that several threads do find work
    seeds = [3, 1, 4, 15, 9, 2, 6, 5]
    whole = play(8, seeds, threads=1)
    for other in (play(8, seeds, threads=3), play(8, seeds[::-1], threads=1), play(3, seeds[2:5], threads=2)):
        for seed, history in other.items():
            assert history == whole[seed]


def test_all_threads_work(monkeypatch):
    import threading

    from gpf.plume import world as module

    plain, seen = module._step_lanes, set()

    def spy(*arguments):
        seen.add(threading.get_ident())
        plain(*arguments)

    world = World(2048, threads=3)
    world.seed(range(2048))
    world.begin()
    monkeypatch.setattr(module, "_step_lanes", spy)
    monkeypatch.setattr(module, "_LANES_AT_A_TIME", 8)
    steps = 0
    while len(seen) < 3 and steps < 300:  # on a busy machine a thread may sleep through some steps
        world.step(np.zeros(2048, np.int64))
        steps += 1
    assert len(seen) == 3
    assert (world.lanes["step"] == steps).all()


def test_few_lanes_wake_no_other_thread():
    assert [World(count).threads for count in (1, 511, 512)] == [1, 1, min(cores(), 2)]


def test_lanes_may_live_in_different_scenarios_and_change_them_without_recompiling():
    from gpf.plume.world import _step_lanes

    scenarios = [Scenario.preset("paper"), Scenario.preset("reference"), Scenario(wind_speed=2.0, speed=0.2)]
    mixed = PlumeVectorEnv(3, scenarios, "raw")
    mixed.reset(seed=0)
    alone = [PlumeEnv(scenario, "raw") for scenario in scenarios]
    for i, env in enumerate(alone):
        env.reset(seed=i)
    compiled = len(_step_lanes.signatures)
    for step in range(200):
        if step == 100:
            mixed.set_scenario({"sensor_noise": 0.05}, np.array([1]))
            alone[1].world.set_scenario(Scenario(sensor_noise=0.05))
        observations, *_ = mixed.step(np.full(3, step % 6))
        for i, env in enumerate(alone):
            np.testing.assert_array_equal(observations[i], env.step(step % 6)[0])
    assert len(_step_lanes.signatures) == compiled
    with pytest.raises(
        ValueError, match=r"^scenario must need at most \d+ filaments a lane, for which there is room, got"
    ):
        mixed.set_scenario({"emission_rate": 100.0})


def test_returned_arrays_are_reused():
    env = PlumeVectorEnv(4, observation="onehot")
    first, _ = env.reset(seed=0)
    second, rewards, terminations, truncations, _ = env.step(np.zeros(4, int))
    third, *others, _ = env.step(np.zeros(4, int))
    assert first is second is third
    assert all(a is b for a, b in zip(others, (rewards, terminations, truncations), strict=True))


def test_callers_buffers_are_written_to():
    buffers = {
        "observations": np.zeros((4, 8), np.float32),
        "rewards": np.zeros(4),
        "terminations": np.zeros(4, bool),
        "truncations": np.zeros(4, bool),
    }
    env = PlumeVectorEnv(4, observation="raw", buffers=buffers)
    plain = PlumeVectorEnv(4, observation="raw")
    for e in (env, plain):
        e.reset(seed=0)
    for _ in range(10):
        mine, other = env.step(np.zeros(4, int)), plain.step(np.zeros(4, int))
        for part, name in enumerate(buffers):
            assert mine[part] is buffers[name]
            np.testing.assert_array_equal(buffers[name], other[part])


@pytest.mark.parametrize(
    ("buffers", "message"),
    [
        (
            {"rewards": np.zeros(3)},
            "buffer 'rewards' must be a contiguous, writable array of shape (4,) and type float64, got shape (3,)",
        ),
        ({"rewards": np.zeros(4, np.float32)}, "buffer 'rewards' must be a contiguous"),
        ({"observations": np.zeros((5, 4), np.float32).T}, "buffer 'observations' must be a contiguous"),
        ({"rewards": [0.0] * 4}, "buffer 'rewards' must be a contiguous, writable array of shape (4,) and type"),
        ({"reward": np.zeros(4)}, "unknown buffer 'reward'; did you mean 'rewards'?"),
    ],
)
def test_buffers_that_do_not_fit_are_refused(buffers, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared
        PlumeVectorEnv(4, observation="raw", buffers=buffers)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.zeros(3, int), r"actions must have shape \(4,\), got \(3,\)"),
        (np.zeros((4, 1), int), r"actions must have shape \(4,\), got \(4, 1\)"),
        (0, r"actions must have shape \(4,\), got \(\)"),
        (np.zeros(4), "actions must be whole numbers, got type float64"),
        ([0, 0, 6, 0], "actions must be whole numbers from 0 to 5, got 6 in lane 2"),
        ([0, -1, 0, 0], "actions must be whole numbers from 0 to 5, got -1 in lane 1"),
    ],
)
def test_bad_actions_are_refused_and_change_nothing(actions, message):
    env = PlumeVectorEnv(4)
    env.reset(seed=0)
    before, streams = env.world.lanes.copy(), env.world.streams.copy()
    with pytest.raises(ValueError, match=f"^{message}$"):
        env.step(actions)
    assert (env.world.lanes == before).all()
    assert (env.world.streams == streams).all()


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.value)
def test_a_step_before_reset_is_refused(mode):
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"^no episode is running; call reset\(\) first$"):
        PlumeVectorEnv(2, autoreset_mode=mode).step(np.zeros(2, int))


def test_without_autoreset_a_finished_lane_must_be_reset():
    env = PlumeVectorEnv(2, [Scenario(max_steps=1), Scenario()], autoreset_mode="Disabled")
    env.reset(seed=0)
    env.step([0, 0])
    with pytest.raises(gymnasium.error.ResetNeeded, match="^the episode of lane 0 is over; reset it by reset_mask"):
        env.step([0, 0])
    env.reset(options={"reset_mask": np.array([True, False])})
    assert env.world.lanes["step"].tolist() == [0, 1]


def test_lanes_outside_the_first_reset_mask_are_alive_and_differ():
    env = PlumeVectorEnv(3, "reference", "raw")
    env.reset(seed=0, options={"reset_mask": np.array([True, False, False])})
    for _ in range(30):
        observations, *_ = env.step(np.zeros(3, int))
    assert len({observation.tobytes() for observation in observations}) == 3
    single = PlumeEnv("reference", "raw")
    single.reset(seed=0)
    for _ in range(30):
        observation, *_ = single.step(0)
    np.testing.assert_array_equal(observations[0], observation)


def test_read_only_actions_need_no_other_compilation():
    from gpf.plume.world import _step_lanes

    env = PlumeVectorEnv(4)
    env.reset(seed=0)
    env.step(np.zeros(4, int))
    compiled = len(_step_lanes.signatures)
    env.step(np.broadcast_to(np.int32(1), 4))
    assert len(_step_lanes.signatures) == compiled


def test_infos_cannot_change_the_environment():
    env = PlumeVectorEnv(2)
    _, infos = env.reset(seed=0)
    infos["_success"][:] = False
    *_, infos = env.step(np.zeros(2, int))
    with pytest.raises(ValueError, match="read-only"):
        infos["_success"][0] = False
    env.reset()
    assert env.world.lanes["step"].tolist() == [0, 0]


@pytest.mark.parametrize("seed", [-1, 1.5, "1", [1, None], [1, -2], [0.5, 1]])
def test_a_bad_seed_is_refused_and_changes_nothing(seed):
    env = PlumeVectorEnv(2)
    env.reset(seed=5)
    before = env.world.streams.copy(), env.np_random.bit_generator.state
    with pytest.raises(ValueError, match="^seed must be a whole number of at least 0, got "):
        env.reset(seed=seed)
    assert (env.world.streams == before[0]).all()
    assert env.np_random.bit_generator.state == before[1]


@pytest.mark.parametrize("seed", [np.uint8(255), np.int64(2**63 - 1), 2**70])
def test_any_kind_of_whole_number_is_a_seed(seed):
    env = PlumeVectorEnv(2, observation="raw")
    observations, _ = env.reset(seed=seed)
    for i in range(2):
        np.testing.assert_array_equal(observations[i], PlumeEnv(observation="raw").reset(seed=int(seed) + i)[0])


def test_an_unknown_option_is_refused():
    with pytest.raises(ValueError, match="^unknown option 'mask'; accepted: reset_mask, position, source, heading$"):
        PlumeVectorEnv(2).reset(options={"mask": np.ones(2, bool)})


def test_a_scenario_outside_the_observation_space_is_refused():
    env = PlumeVectorEnv(2, observation="raw")
    with pytest.raises(ValueError, match=r"^sensor_saturation must be at most 1, on .*, got 100$"):
        env.set_scenario({"sensor_saturation": 100.0})
    mixed = PlumeVectorEnv(2, [Scenario(), Scenario(sensor_saturation=5.0)], "raw")
    assert mixed.single_observation_space.high[:2].tolist() == [5.0, 5.0]
    mixed.set_scenario({"sensor_saturation": 5.0})


@pytest.mark.parametrize("mask", [np.zeros(2, bool), np.ones(3, bool), np.ones(2), [True, True]])
def test_a_bad_reset_mask_is_refused(mask):
    env = PlumeVectorEnv(2)
    with pytest.raises(
        ValueError, match=r"^reset_mask must be a boolean array of shape \(2,\) with at least one True, got "
    ):
        env.reset(options={"reset_mask": mask})


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        *(
            ({"num_envs": wrong}, f"num_envs must be a whole number of at least 1, got {wrong!r}")
            for wrong in (0, -1, 1.5, True, "x", None)
        ),
        ({"threads": 0}, "threads must be a whole number from 1 to"),
        ({"threads": 1000}, "threads must be a whole number from 1 to"),
        ({"autoreset_mode": "Never"}, "autoreset_mode must be one of NextStep, SameStep, Disabled, got 'Never'"),
        ({"scenario": [Scenario()]}, "scenario must be one, or one per lane (2), got 1"),
        ({"render_mode": "human"}, "render_mode must be None or one of rgb_array, got 'human'"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(kwargs, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared
        PlumeVectorEnv(**{"num_envs": 2, **kwargs})
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_a_wrong_number_of_seeds_is_refused():
    with pytest.raises(ValueError, match=r"^seed must be one seed or one per lane \(2\), got 3$"):
        PlumeVectorEnv(2).reset(seed=[1, 2, 3])


def test_four_thousand_lanes_take_less_than_a_hundred_megabytes():
    world = World(4096, "paper")
    held = sum(value.nbytes for value in vars(world).values() if isinstance(value, np.ndarray))
    assert held < 100e6


def test_more_lanes_than_fit_are_refused_before_memory_is_asked_for(monkeypatch):
    monkeypatch.setattr("gpf.plume.world.machine_memory", lambda: 10**9)
    one, many = (
        sum(value.nbytes for value in vars(World(count, threads=1)).values() if isinstance(value, np.ndarray))
        for count in (1, 101)
    )
    lane = (many - one) / 100
    for make in (World, PlumeVectorEnv, lambda count: gymnasium.make_vec("gpf/Plume-v0", num_envs=count)):
        with pytest.raises(
            ValueError, match=r"^num_envs must be at most [\d,]+ here, got 1000000000: that wo"
        ) as error:
            make(10**9)
        most, needed = (
            int(re.search(pattern, str(error.value)).group(1).replace(",", ""))
            for pattern in (r"at most ([\d,]+) here", r"would take ([\d,]+) GB")
        )
        assert needed == pytest.approx(lane, rel=0.05)  # GB for a billion lanes
        assert most * lane == pytest.approx(0.5e9, rel=0.05)
    assert World(most).count == most
    with pytest.raises(ValueError, match="^num_envs must be at most"):
        World(most + 1)


def test_a_scenario_of_many_filaments_allows_fewer_lanes(monkeypatch):
    monkeypatch.setattr("gpf.plume.world.machine_memory", lambda: 10**8)
    dense = Scenario(emission_rate=200.0)
    World(1000)
    with pytest.raises(ValueError, match="^num_envs must be at most"):
        World(1000, dense)


def test_the_memory_of_this_machine_is_known():
    assert 1e8 < machine_memory() < 1e15


def test_a_forked_process_can_step_with_threads():
    env = PlumeVectorEnv(8, threads=2)
    env.reset(seed=0)
    env.step(np.zeros(8, int))
    expected = PlumeVectorEnv(8, threads=2)
    expected.reset(seed=0)
    expected.step(np.zeros(8, int))
    expected.step(np.ones(8, int))
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of fork with threads
        child = os.fork()
    if child == 0:
        env.step(np.ones(8, int))
        os._exit(0 if (env.world.lanes == expected.world.lanes).all() else 1)
    assert os.waitpid(child, 0)[1] == 0

import math

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

import gpf  # noqa: F401 - registers the environments
from gpf.plume import Scenario
from gpf.plume.env import PlumeEnv
from gpf.plume.observations import OBSERVATIONS
from gpf.plume.vector_env import PlumeVectorEnv

PLACED = {"position": [12.0, 7.5], "source": [4.0, 11.0], "heading": 2.0}
SUBSETS = [{name: PLACED[name] for name in names} for names in (
    ["position"], ["source"], ["heading"], ["position", "source"], ["position", "heading"], ["source", "heading"],
    ["position", "source", "heading"],
)]  # fmt: skip


def places(env, lane=0):
    """Source, position and heading of a lane."""
    state = env.world.lanes[lane]
    return (
        [float(state["source_x"]), float(state["source_y"])],
        [float(state["x"]), float(state["y"])],
        float(state["heading"]),
    )


def everything(env):
    """All memory of an environment that decides what happens next."""
    world = env.world
    arrays = (world.lanes, world.streams, world.filaments, world.raw, world.tokens, world.rewards, world.successes)
    return [array.tobytes() for array in arrays] + [env._memory.memories.tobytes()]


@pytest.mark.parametrize("options", SUBSETS, ids=lambda options: "+".join(options))
def test_what_is_placed_is_there_and_the_rest_is_drawn(options):
    drawn, placed = PlumeEnv("reference", "raw"), PlumeEnv("reference", "raw")
    drawn.reset(seed=9)
    observation, info = placed.reset(seed=9, options=options)
    source, position, heading = places(placed)
    was_source, was_position, was_heading = places(drawn)
    assert source == options.get("source", was_source)
    assert heading == options.get("heading", was_heading)
    if "position" in options:
        assert position == options["position"]
    else:  # as far from the source, and on the same side of it
        offset = np.subtract(was_position, was_source)
        np.testing.assert_allclose(position, source + offset, rtol=1e-12)
    assert observation[4] == np.float32(heading)
    assert info["distance"] == pytest.approx(math.dist(source, position), rel=1e-12)


def test_an_agent_downwind_of_a_placed_source_stays_in_the_domain():
    env = PlumeEnv("reference")
    env.reset(seed=0, options={"source": [19.5, 10.0]})
    assert places(env)[1][0] == 20.0


def test_first_tokens_and_memory_are_of_the_placed_heading():
    """The wind blows to +x at the start: the octant that it comes from follows from the heading alone."""
    scenario = Scenario.preset("reference")  # octants of 45 degrees, counted counter-clockwise from straight ahead
    for heading in np.linspace(-3.0, 3.0, 13):
        tokens, _ = PlumeEnv(scenario, "tokens").reset(seed=1, options={"heading": heading})
        assert tokens[2] == math.floor((math.pi - heading) % (2 * math.pi) / (math.pi / 4))
        memory, _ = PlumeEnv(scenario, "memory").reset(seed=1, options={"heading": heading})
        assert memory[8] == pytest.approx(-math.cos(heading), abs=1e-6)  # wind from ahead
        assert memory[9] == pytest.approx(math.sin(heading), abs=1e-6)  # wind from the left
        vector, _ = PlumeEnv(scenario, "onehot").reset(seed=1, options={"heading": heading})
        assert vector[14 + tokens[2]] == 1.0


def test_headings_are_wrapped():
    turns = {0.5 + 2 * math.pi: 0.5, -4.0: 2 * math.pi - 4.0, math.pi: -math.pi, 7: 7 - 2 * math.pi}
    for given, kept in turns.items():
        env = PlumeEnv(observation="raw")
        observation, _ = env.reset(seed=0, options={"heading": given})
        assert places(env)[2] == pytest.approx(kept, abs=1e-12)
        assert env.observation_space.contains(observation)
    env.reset(seed=0, options={"heading": 1e300})
    assert -math.pi <= places(env)[2] < math.pi


def test_a_seed_has_the_same_wind_emission_and_noise_wherever_things_are_placed():
    """The random stream is the same after every step, so are the wind and the filaments about the source."""
    here, there = PlumeEnv("reference"), PlumeEnv("reference")
    here.reset(seed=3, options={"source": [5.0, 10.0], "position": [15.0, 18.0]})
    there.reset(seed=3, options={"source": [6.0, 9.0], "position": [18.0, 1.0], "heading": 0.0})
    drawn = PlumeEnv("reference")
    drawn.reset(seed=3)
    for _ in range(40):  # no filament has come to a wall yet
        for env in (here, there, drawn):
            env.step(0)
        for other in (there, drawn):
            np.testing.assert_array_equal(here.world.streams, other.world.streams)
            for name in ("wind_speed", "wind_direction", "last"):
                assert here.world.lanes[name] == other.world.lanes[name]
        count = here.world.lanes["last"][0]
        offset = here.world.filaments[0][:2, :count] - np.array([[5.0], [10.0]])
        np.testing.assert_allclose(there.world.filaments[0][:2, :count] - np.array([[6.0], [9.0]]), offset, atol=1e-12)
    assert count > 10


def test_options_hold_for_one_episode():
    plain, placed = PlumeEnv("reference", "raw"), PlumeEnv("reference", "raw")
    plain.reset(seed=5)
    placed.reset(seed=5, options=PLACED)
    for env in (plain, placed):
        env.step(0)
    np.testing.assert_array_equal(plain.reset()[0], placed.reset()[0])
    assert places(plain) == places(placed)


@pytest.mark.parametrize("options", [None, {}])
def test_without_options_nothing_is_placed(options):
    env, other = PlumeEnv(), PlumeEnv()
    env.reset(seed=5)
    other.reset(seed=5, options=options)
    assert everything(env) == everything(other)


def test_a_placed_agent_finds_the_source_by_walking_to_it():
    env = gymnasium.make("gpf/Plume-v0")
    env.reset(seed=0, options={"source": [10.0, 10.0], "position": [10.0, 12.02], "heading": -math.pi / 2})
    for step in range(1, 100):
        *_, terminated, _, info = env.step(0)
        assert info["distance"] == pytest.approx(2.02 - 0.05 * step)
        if terminated:
            break
    assert info["success"]
    assert step == 31  # 0.47 m away; a step before, 0.52 m


@pytest.mark.parametrize("observation", OBSERVATIONS)
def test_each_lane_is_the_single_environment_placed_alike(observation):
    """Through the placed episode and those that follow, over every value for one lane or for all."""
    count, scenario = 3, {"preset": "reference", "max_steps": 60}
    positions = np.array([[3.0, 4.0], [9.0, 17.0], [20.0, 0.0]])
    headings = np.array([0.3, -2.0, 3.0])
    lanes = PlumeVectorEnv(count, scenario, observation, "SameStep", threads=2)
    options = {"position": positions, "heading": headings, "source": [8.0, 8.0]}
    observations, infos = lanes.reset(seed=20, options=options)
    singles = [PlumeEnv(scenario, observation) for _ in range(count)]
    for i, env in enumerate(singles):
        single, info = env.reset(
            seed=20 + i, options={"position": positions[i].tolist(), "heading": headings[i], "source": (8, 8)}
        )
        np.testing.assert_array_equal(observations[i], single)
        assert infos["distance"][i] == info["distance"]
    rng = np.random.default_rng(0)
    for _ in range(150):
        actions = rng.integers(0, 6, count)
        observations, rewards, *_ = lanes.step(actions)
        for i, env in enumerate(singles):
            single, reward, terminated, truncated, _ = env.step(int(actions[i]))
            if terminated or truncated:
                single = env.reset()[0]
            np.testing.assert_array_equal(observations[i], single)
            assert rewards[i] == reward
            np.testing.assert_array_equal(lanes.world.streams[i], env.world.streams[0])


def test_only_lanes_of_the_mask_are_placed_and_values_of_the_others_do_not_matter():
    lanes = PlumeVectorEnv(3, observation="raw", autoreset_mode="Disabled")
    lanes.reset(seed=0)
    lanes.step([0, 0, 0])
    before = lanes.world.lanes.copy()
    mask = np.array([False, True, False])
    positions = np.array([[math.nan, -1.0], [2.0, 3.0], [99.0, 0.0]])
    lanes.reset(options={"reset_mask": mask, "position": positions, "heading": 1.0})
    assert places(lanes, 1)[1:] == ([2.0, 3.0], 1.0)
    assert (lanes.world.lanes == before).tolist() == [True, False, True]
    assert mask.tolist() == [False, True, False]


def test_two_lanes_take_one_place_for_both_or_two_places():
    lanes = PlumeVectorEnv(2)
    lanes.reset(seed=0, options={"position": [1.0, 2.0]})
    assert [places(lanes, i)[1] for i in range(2)] == [[1.0, 2.0], [1.0, 2.0]]
    lanes.reset(seed=0, options={"position": [[1.0, 2.0], [3.0, 4.0]], "heading": [0.1, 0.2]})
    assert [places(lanes, i)[1:] for i in range(2)] == [([1.0, 2.0], 0.1), ([3.0, 4.0], 0.2)]


def test_a_place_must_be_in_the_domain_of_its_own_lane():
    lanes = PlumeVectorEnv(2, [Scenario(), Scenario(width=40.0)])
    lanes.reset(seed=0, options={"position": [[20.0, 20.0], [40.0, 0.0]]})
    with pytest.raises(ValueError, match=r"x from 0 to 20 m and y from 0 to 20 m, got \[30\.0, 5\.0\] in lane 0$"):
        lanes.reset(options={"source": [30.0, 5.0]})


@pytest.mark.parametrize("native", [True, False])
def test_gymnasium_passes_options_on(native):
    if native:
        env = gymnasium.make_vec("gpf/Plume-v0", num_envs=2, observation="raw")
    else:
        env = SyncVectorEnv([lambda: gymnasium.make("gpf/Plume-v0", observation="raw")] * 2)
    observations, infos = env.reset(seed=0, options={**PLACED, "source": [12.0, 9.5]})
    assert observations[:, 4].tolist() == [2.0, 2.0]
    assert infos["distance"].tolist() == [2.0, 2.0]
    wrapped = gymnasium.wrappers.vector.RecordEpisodeStatistics(env)
    assert wrapped.reset(options={"heading": -1.0})[0][:, 4].tolist() == [-1.0, -1.0]


BAD = [
    ({"postion": [1, 1]}, "unknown option 'postion'; did you mean 'position'?"),
    ({"goal": [1, 1]}, "unknown option 'goal'; accepted: "),
    ({3: 1}, "unknown option 3; accepted: "),
    ([], "options must be a dictionary, got []"),
    ({"position": [1, 2, 3]}, "position must have shape (2,)"),
    ({"position": 1.0}, "position must have shape (2,)"),
    ({"position": [[[1, 2]]]}, "position must have shape (2,)"),
    ({"heading": [[1.0]]}, "heading must have shape ()"),
    ({"position": None}, "position must be two numbers, x and y in m, got None"),
    ({"position": "middle"}, "position must be two numbers, x and y in m, got 'middle'"),
    ({"position": ["1", "2"]}, "position must be two numbers, x and y in m, got ['1', '2']"),
    ({"position": [[1], [1, 2]]}, "position must be two numbers, x and y in m, got [[1], [1, 2]]"),
    ({"source": [True, False]}, "source must be two numbers, x and y in m, got [True, False]"),
    ({"heading": "north"}, "heading must be one number, in rad, got 'north'"),
    ({"heading": math.nan}, "heading must be finite, got nan"),
    ({"heading": -math.inf}, "heading must be finite, got -inf"),
    ({"position": [math.nan, 1]}, "position must be in the domain, x from 0 to 20 m and y from 0 to 10 m, got [nan, 1"),
    ({"position": [1, 10.1]}, "position must be in the domain, x from 0 to 20 m and y from 0 to 10 m, got [1.0, 10.1]"),
    ({"source": [-1e-9, 1]}, "source must be in the domain, x from 0 to 20 m and y from 0 to 10 m, got [-1e-09, 1.0]"),
    ({"heading": 1.0, "source": [1, math.inf]}, "source must be in the domain"),
    ({**PLACED, "position": [21, 1], "source": [1, 1]}, "position must be in the domain"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), BAD, ids=[str(options) for options, _ in BAD])
@pytest.mark.parametrize("count", [0, 1, 4], ids=["single", "one lane", "four lanes"])
def test_bad_options_are_refused_in_one_sentence_and_change_nothing(count, options, message):
    scenario = {"height": 10.0}
    env = PlumeVectorEnv(count, scenario, "memory") if count else PlumeEnv(scenario, "memory")
    env.reset(seed=1)
    before, random = everything(env), env.np_random.bit_generator.state
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is compared
        env.reset(seed=2, options=options)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
    assert everything(env) == before
    assert env.np_random.bit_generator.state == random


@pytest.mark.parametrize("shape", [(1, 2), (4, 2)])
def test_a_single_environment_takes_no_rows(shape):
    with pytest.raises(ValueError, match=r"^position must have shape \(2,\), got \("):
        PlumeEnv().reset(options={"position": np.ones(shape)})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"position": np.ones((3, 2))}, r"^position must have shape \(2,\) or \(4, 2\), got \(3, 2\)$"),
        ({"heading": np.ones(3)}, r"^heading must have shape \(\) or \(4,\), got \(3,\)$"),
        ({"heading": [0, 0, math.nan, 0]}, r"^heading must be finite, got nan in lane 2$"),
        ({"rest_mask": np.ones(4, bool)}, r"^unknown option 'rest_mask'; did you mean 'reset_mask'\?$"),
    ],
)
def test_rows_that_do_not_fit_the_lanes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PlumeVectorEnv(4).reset(options=options)


def test_placing_needs_no_other_compilation():
    from gpf.plume.world import _begin_lanes

    env = PlumeVectorEnv(2)
    env.reset(seed=0)
    compiled = len(_begin_lanes.signatures)
    env.reset(options={"position": np.asfortranarray(np.ones((2, 2), np.float32)), "heading": 1})
    PlumeEnv().reset(options=PLACED)
    assert len(_begin_lanes.signatures) == compiled


def test_placing_allocates_nothing_in_the_kernel():
    """Handing the arrays over allocates a little; placing lanes adds nothing to that."""
    from numba.core.runtime import _nrt_python, rtsys

    from gpf.plume.world import World, _begin_lanes

    world = World(4, threads=1)
    world.seed(range(4))
    starts = np.full((4, 5), 2.0)

    def allocations(lanes):
        before = rtsys.get_allocation_stats()
        _begin_lanes(world.arrays(), lanes, starts)
        after = rtsys.get_allocation_stats()
        return after.alloc - before.alloc, after.mi_alloc - before.mi_alloc

    _nrt_python.memsys_enable_stats()
    try:
        assert allocations(np.arange(4)) == allocations(np.arange(0))
    finally:
        _nrt_python.memsys_disable_stats()
    assert (world.lanes["x"] == 2.0).all()

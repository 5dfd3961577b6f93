import dataclasses

import numpy as np
import pytest

from gpf.navigation.evaluate import FRAMES, Evaluation, _relative, evaluate, film
from gpf.navigation.figures import evaluation_figure
from gpf.navigation.policies import CastAndSurge, Random, make_policy
from gpf.navigation.seeds import BLOCK, HELD_OUT, LANES_OF_A_SEED, TUNING, VALIDATION, training_seeds
from gpf.plume import Scenario
from gpf.plume.env import PlumeEnv
from gpf.plume.presets import fly_starts
from gpf.plume.render import PIXELS, draw
from gpf.plume.world import START, World
from gpf.reports.figures import save_figure

REFERENCE = Scenario.preset("reference")


def test_cast_and_surge_finds_nearly_every_source_and_random_walks_hardly_any():
    assert evaluate(CastAndSurge(), REFERENCE, 500).summary()["low"] > 0.98
    assert evaluate(Random(), REFERENCE, 500).summary()["high"] < 0.10


@pytest.mark.slow
@pytest.mark.parametrize(("preset", "least"), [("paper", 0.995), ("reference", 0.998)])
def test_cast_and_surge_over_many_more_episodes(preset, least):
    assert evaluate(CastAndSurge(), Scenario.preset(preset), 10_000, HELD_OUT + BLOCK).summary()["low"] > least


def test_the_reactive_policy_steers_upwind_and_beats_chance():
    assert evaluate(make_policy("reactive"), REFERENCE, 600).summary()["low"] > 0.08


def test_results_do_not_depend_on_lanes_or_threads(monkeypatch):
    short = dataclasses.replace(REFERENCE, max_steps=300)
    whole = evaluate(CastAndSurge(), short, 100, threads=2)
    monkeypatch.setitem(evaluate.__globals__, "LANES", 7)
    pieces = evaluate(CastAndSurge(), short, 100, threads=1)
    np.testing.assert_array_equal(whole.success, pieces.success)
    np.testing.assert_array_equal(whole.steps, pieces.steps)


def test_an_episode_is_that_of_the_single_environment_with_its_seed():
    policy = CastAndSurge()
    result = evaluate(policy, REFERENCE, 5, HELD_OUT + 10 * BLOCK)
    env = PlumeEnv(REFERENCE, "raw")
    for k in range(5):
        seed = HELD_OUT + 10 * BLOCK + k
        observation, info = env.reset(seed=seed)
        assert info["distance"] == result.start_distance[k]
        policy.begin([seed], REFERENCE)
        action = np.zeros(1, np.int64)
        steps, over = 0, False
        while not over:
            policy.act(observation[None], np.arange(1), action)
            observation, _, terminated, truncated, info = env.step(int(action[0]))
            steps, over = steps + 1, terminated or truncated
        assert (steps, info["success"]) == (result.steps[k], result.success[k])


def test_summary_of_a_worked_example():
    """Five episodes, 5 cm a step: straight in 50 steps (2.5 m), twice as long as needed, and three without arrival."""
    result = Evaluation(
        success=np.array([True, True, False, False, False]),
        steps=np.array([50, 100, 1200, 1200, 1200]),
        start_distance=np.array([3.0, 3.0, 3.0, 5.0, 5.0]),
        scenario=REFERENCE,
        seconds=2.0,
        paths={},
    )
    summary = result.summary()
    assert (summary["episodes"], summary["success"], summary["never"]) == (5, 0.4, 0.6)
    assert summary["mean_steps"] == 75.0
    assert [summary[f"arrival_q{q}"] for q in (5, 25, 50, 75, 95)] == [52.5, 62.5, 75.0, 87.5, 97.5]
    assert summary["spl"] == pytest.approx((1.0 + 0.5) / 5)
    assert summary["steps_per_second"] == 3750 / 2
    assert summary["low"] < 0.4 < summary["high"]


def test_summary_without_a_single_success_has_no_arrival_times():
    blind = dataclasses.replace(REFERENCE, max_steps=5)
    summary = evaluate(Random(), blind, 10).summary()
    assert summary["success"] == 0.0
    assert summary["mean_steps"] is summary["arrival_q50"] is None


def test_paths_lead_from_the_start_to_the_source():
    result = evaluate(CastAndSurge(), dataclasses.replace(REFERENCE, max_steps=150), 60, paths=20)
    found = [result.success[episode] for episode in result.paths]
    assert (sum(found), len(found)) == (20, 40)
    assert min(e for e in result.paths if not result.success[e]) == np.flatnonzero(~result.success)[0]
    for episode, path in result.paths.items():
        assert len(path) == result.steps[episode] + 1
        assert np.hypot(*path[0]) == pytest.approx(result.start_distance[episode])
        assert (np.hypot(*path[-1]) < 0.5) == result.success[episode]


def test_progress_counts_up_to_all_episodes(monkeypatch):
    seen = []
    monkeypatch.setitem(evaluate.__globals__, "LANES", 16)
    result = evaluate(CastAndSurge(), REFERENCE, 40, progress=lambda done, found: seen.append((done, found)))
    assert seen == sorted(seen)
    assert seen[-1] == (40, result.success.sum())


def test_no_two_kinds_of_episodes_ever_meet():
    """The last block of each kind that a seed can ask for ends before the next kind begins."""
    assert training_seeds(BLOCK - 1, LANES_OF_A_SEED)[-1] < HELD_OUT
    assert HELD_OUT + BLOCK * BLOCK <= VALIDATION
    assert VALIDATION + BLOCK * BLOCK <= TUNING


def test_spl_of_a_straight_walk_is_one_even_from_inside_the_radius():
    near = dataclasses.replace(REFERENCE, start_distance_min=0.0, start_distance_max=0.3)
    result = evaluate(Random(), near, 20)
    assert result.success.all()
    assert result.spl == 1.0


def test_paths_are_shown_relative_to_the_wind():
    turned = dataclasses.replace(REFERENCE, wind_direction=90.0, start_bearing=0.0)
    for path in evaluate(Random(), dataclasses.replace(turned, max_steps=1), 5, paths=5).paths.values():
        assert path[0, 0] > 2.9  # downwind, though that is +y
        assert abs(path[0, 1]) < 1e-5
    world = World(1, turned)
    world.lanes["x"], world.lanes["y"] = world.lanes["source_x"] + 1.0, world.lanes["source_y"] + 2.0
    np.testing.assert_allclose(_relative(world), [[2.0, -1.0]], atol=1e-6)  # +x is to the right of +y


def test_no_episodes_is_refused():
    with pytest.raises(ValueError, match="^episodes must be at least 1, got 0$"):
        evaluate(Random(), REFERENCE, 0)


def test_a_film_shows_the_episode_to_its_end():
    seed = HELD_OUT
    steps = evaluate(CastAndSurge(), REFERENCE, 1, seed).steps[0]
    frames = list(film(CastAndSurge(), REFERENCE, seed, every=10))
    assert len(frames) == (steps + 9) // 10 + 1
    world = World(1, REFERENCE)
    world.seed([seed])
    world.begin()
    np.testing.assert_array_equal(frames[0], draw(world, 0, [(world.lanes["x"][0], world.lanes["y"][0])], PIXELS))
    assert (frames[0] != frames[-1]).any()
    small = next(film(CastAndSurge(), REFERENCE, seed, pixels=200))
    assert max(small.shape) == 200 < max(frames[0].shape)


def test_a_film_has_as_many_frames_as_can_be_watched_however_long_the_episode():
    for steps in (3, FRAMES - 1, FRAMES, 1000):
        world = dataclasses.replace(REFERENCE, max_steps=steps, start_distance_min=5.0, speed=0.0)
        count = len(list(film(Random(), world, HELD_OUT, pixels=16)))
        assert FRAMES / 2 <= count <= FRAMES or count == steps + 1


def test_an_outcome_that_never_was_has_no_panel():
    result = evaluate(CastAndSurge(), dataclasses.replace(REFERENCE, max_steps=200), 60, paths=40)
    for outcome, words in ((True, "found the source"), (False, "did not find it")):
        same = [n for n in range(60) if result.success[n] == outcome]
        paths = {n: path for n, path in result.paths.items() if n in same}
        figure = evaluation_figure(dataclasses.replace(result, paths=paths), "title")
        shown, arrival = figure.axes
        assert shown.get_title() == f"{len(paths)} of {len(same)} that {words}"
        assert arrival.get_ylabel() == "share of 60 episodes"


def test_the_figure_shows_paths_and_arrival_times(tmp_path):
    result = evaluate(CastAndSurge(), dataclasses.replace(REFERENCE, max_steps=200), 60, paths=40)
    figure = evaluation_figure(result, "title")
    found, lost, arrival = figure.axes
    shown = [len(axes.lines) // 2 for axes in (found, lost)]  # a line and a start each, and the source
    assert shown == [min(40, int(outcome.sum())) for outcome in (result.success, ~result.success)]
    assert min(shown) > 3
    assert arrival.lines[0].get_ydata()[-1] == pytest.approx(result.success.mean())
    save_figure(figure, tmp_path / "figures" / "evaluation.png")
    assert (tmp_path / "figures" / "evaluation.png").read_bytes().startswith(b"\x89PNG")


def test_episodes_begin_where_the_starts_say(monkeypatch):
    """Whatever the number of lanes; and what is NaN is drawn as without starts."""
    scenario = Scenario(start_heading_sigma=0.0)
    starts = np.full((5, len(START)), np.nan)
    starts[:, :2] = [5.0, 10.0]
    starts[:4, 2:4] = [[6.0, 10.0], [7.0, 10.0], [8.0, 10.0], [5.0, 13.5]]
    monkeypatch.setitem(evaluate.__globals__, "LANES", 2)
    result = evaluate(CastAndSurge(), scenario, 5, 7, starts=starts)
    assert result.start_distance[:4].tolist() == [1.0, 2.0, 3.0, 3.5]
    assert 3.0 <= result.start_distance[4] <= 10.0
    drawn = evaluate(CastAndSurge(), scenario, 5, 7)
    nothing = evaluate(CastAndSurge(), scenario, 5, 7, starts=np.full((5, len(START)), np.nan))
    assert nothing.start_distance.tolist() == drawn.start_distance.tolist()
    assert nothing.steps.tolist() == drawn.steps.tolist()


@pytest.mark.parametrize("shape", [(3, 5), (4, 4), (20,)])
def test_starts_that_do_not_fit_the_episodes_are_refused(shape):
    message = (
        r"^starts must have the shape \(4, 5\), a row of source_x, source_y, x, y, heading for each episode, got \("
    )
    with pytest.raises(ValueError, match=message):
        evaluate(CastAndSurge(), Scenario(), 4, starts=np.zeros(shape))


def test_the_starts_of_the_flies_are_run_as_they_are():
    scenario = dataclasses.replace(Scenario.preset("fly-constant"), max_steps=1)
    result = evaluate(CastAndSurge(), scenario, 240, starts=fly_starts())
    assert sorted(set(result.start_distance.round(9).tolist())) == [4.0, 6.0, 8.0]

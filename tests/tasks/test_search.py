"""Runs of the suite: trained if the agent learns, then evaluated; killed and resumed without repeating work."""

import importlib.util
import json

import numpy as np
import pytest
from support import edit

from gpf.navigation.evaluate import evaluate
from gpf.navigation.policies import POLICIES, CastAndSurge
from gpf.navigation.seeds import BLOCK, SUITE
from gpf.navigation.suite import SLOW_EPISODES, VARIED, names_of, version
from gpf.plume.scenario import Scenario
from gpf.runs.executors import train_all
from gpf.runs.folder import Run, RunError, read_config, read_result
from gpf.tasks import find_task, task_of
from gpf.tasks.agents import AGENTS, check_installed, find_agent
from gpf.tasks.search import TASK

SHORT = {"quick": True, "episodes": 3, "seed": 901}
needs_outsiders = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("stable_baselines3", "sb3_contrib")), reason="not installed"
)


def searched(folder, **values):
    """The result of a run."""
    run = TASK.create(folder, TASK.of({**SHORT, **values}))
    try:
        return TASK.train(run, 1)
    finally:
        run.close()


def test_a_rule_is_evaluated_on_the_suites_own_episodes(tmp_path):
    found = searched(tmp_path / "run", agent="cast-and-surge", worlds=["reference"])["evaluations"]["reference"]
    world = Scenario.preset("reference")
    oracle = evaluate(CastAndSurge(), world, 3, SUITE + 901 * BLOCK)
    assert (found["episodes"], found["found"]) == (3, int(oracle.success.sum()))
    assert found["spl"] == oracle.spl
    np.testing.assert_allclose(found["arrival"], 0.1 * np.quantile(oracle.arrival, [0.05, 0.25, 0.5, 0.75, 0.95]))
    assert 0 < found["decision_ms"] < 5
    config = read_config(tmp_path / "run")
    assert config["suite"] == version()
    assert task_of(tmp_path / "run") is TASK
    assert find_task(TASK.reference) is TASK


def test_who_never_arrives_has_no_arrival_times(tmp_path):
    found = searched(tmp_path / "run", agent="random", worlds=["fly-many"])["evaluations"]["fly-many"]
    assert (found["success"], found["arrival"]) == (0.0, None)


@pytest.mark.parametrize("agent", ["gpf", "generalist"])
def test_a_navigator_is_trained_and_then_evaluated(agent, tmp_path):
    worlds = ["reference", "fly-many"] if agent == "generalist" else ["reference"]
    result = searched(tmp_path / "run", agent=agent, worlds=worlds)
    assert list(result["evaluations"]) == worlds
    assert result["parameters"] > 200
    assert result["step"] == 2048
    written = read_config(tmp_path / "run")
    trained_in = Scenario.of(written["world"])
    assert trained_in == (Scenario.of(VARIED) if agent == "generalist" else Scenario.preset("reference"))
    assert written["settings"]["steps"] == 2048


def test_a_run_that_is_killed_repeats_neither_training_nor_evaluations(tmp_path, monkeypatch):
    whole = searched(tmp_path / "whole", agent="generalist", worlds=["reference", "fly-many"])
    config = TASK.of({**SHORT, "agent": "generalist", "worlds": ["reference", "fly-many"]})
    folder = tmp_path / "run"
    from gpf.tasks import searching

    real = searching.evaluated

    def killed(config, name, make, threads):
        if name == "fly-many":
            raise RuntimeError("killed")
        return real(config, name, make, threads)

    monkeypatch.setattr(searching, "evaluated", killed)
    run = TASK.create(folder, config)
    with pytest.raises(RuntimeError, match="killed"):
        TASK.train(run, 1)
    run.close()
    assert read_result(folder) is None
    lines = (folder / "metrics.jsonl").read_text()
    asked = []
    monkeypatch.setattr(searching, "evaluated", lambda *given: asked.append(given[1]) or real(*given))
    run = Run.open(folder)
    resumed = TASK.train(run, 1)
    run.close()
    assert asked == ["fly-many"]
    assert (folder / "metrics.jsonl").read_text() == lines
    for name, one in whole["evaluations"].items():  # the same bits, but for the clock
        assert {**one, "decision_ms": 0} == {**resumed["evaluations"][name], "decision_ms": 0}


def test_a_run_of_another_version_is_refused(tmp_path):
    config = TASK.of({**SHORT, "agent": "random", "worlds": ["reference"]})
    train_all(TASK, {tmp_path / "run": config}, executor=_Here())
    edit(tmp_path / "run" / "config.json", lambda held: held.update(suite="0.00000000"))
    with pytest.raises(RunError, match="has other settings"):
        train_all(TASK, {tmp_path / "run": config})


class _Here:
    def train(self, task, wanted, tell, keep_going=False):
        for folder, config in wanted.items():
            run = task.create(folder, config)
            task.train(run, 1)
            run.close()


def test_a_planner_searches_in_a_world_model_of_its_world(tmp_path):
    result = searched(tmp_path / "run", agent="planner", worlds=["reference"], episodes=1)
    assert result["evaluations"]["reference"]["episodes"] == 1
    assert result["loss"] > 0
    assert result["parameters"] > 2000
    assert AGENTS["planner"].episodes(1000) == SLOW_EPISODES


@needs_outsiders
@pytest.mark.parametrize("agent", ["sb3-ppo", "sb3-recurrent-ppo"])
def test_an_outsider_is_trained_and_resumed(agent, tmp_path, monkeypatch):
    from gpf.tasks import outsiders

    monkeypatch.setattr(outsiders, "SAVE_EVERY", 0.0)
    config = TASK.of({**SHORT, "agent": agent, "worlds": ["fly-many"]})
    run = TASK.create(tmp_path / "run", config)
    first = outsiders.OutsiderSearch(run, config, 1)
    first.round()
    assert first.progress["step"] == 256
    second = outsiders.OutsiderSearch(run, config, 1)
    assert second.progress == first.progress
    for mine, theirs in zip(first.model.policy.parameters(), second.model.policy.parameters(), strict=True):
        assert (mine == theirs).all()
    result = TASK.train(run, 1)
    run.close()
    assert (result["step"], result["round"]) == (512, 2)
    assert result["evaluations"]["fly-many"]["episodes"] == 3


@needs_outsiders
@pytest.mark.parametrize("observation", ["memory", "onehot"])
def test_an_outsider_sees_what_our_environments_show(observation):
    """In its own lanes and as a policy: the same observations, bit for bit."""
    from gpf.plume.sb3 import PlumeVecEnv
    from gpf.plume.world import World
    from gpf.tasks.outsiders import OutsiderPolicy

    seen = []

    class Model:
        def predict(self, inputs, state, episode_start, deterministic):
            seen.append(inputs.copy())
            return np.arange(len(inputs)) % 6, state

    lanes, world = PlumeVecEnv(3, "turbulent", observation), World(3, "turbulent")
    lanes.seed(5)
    shown = [lanes.reset()]
    world.seed(range(5, 8))
    world.begin()
    policy, actions = OutsiderPolicy(Model(), observation), np.zeros(3, np.int64)
    policy.begin(range(5, 8), Scenario.preset("turbulent"))
    for _ in range(40):
        policy.act(world.raw, np.arange(3), actions)
        world.step(actions)
        shown.append(lanes.step(actions)[0])
    np.testing.assert_array_equal(np.array(seen), np.array(shown[:-1]))


def test_all_rules_of_navigation_are_agents():
    rules = {agent.settings["policy"] for agent in AGENTS.values() if agent.kind == "classical"}
    assert rules <= set(POLICIES)


@pytest.mark.parametrize("agent", AGENTS)
def test_every_agent_has_settings_that_can_be(agent):
    for quick in (False, True):
        config = TASK.of({"agent": agent, "worlds": [*names_of()], "quick": quick})
        config.check()
        json.dumps(TASK.about(config))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"agent": "gfp"}, "unknown agent 'gfp'; did you mean 'gpf'"),
        ({"worlds": ["moon"]}, "unknown world 'moon'"),
        ({"worlds": []}, "worlds must name at least one"),
        ({"worlds": ["hall-001"]}, "world 'hall-001' needs recordings"),
        ({"episodes": 0}, "episodes must be at least 1"),
        ({"seed": -1}, "seed must be at least 0"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(values, message):
    with pytest.raises(ValueError, match=message):
        TASK.of({"agent": "random", **values}).check()


def test_a_rule_needs_a_vane(monkeypatch):
    from gpf.navigation.suite import WORLDS, World

    monkeypatch.setitem(WORLDS, "still", World("still", "Sensors", {"wind_speed": 0.0, "wind_speed_sigma": 0.0}))
    TASK.of({"agent": "random", "worlds": ["still"]}).check()
    with pytest.raises(ValueError, match="agent 'gpf' needs a vane, which world 'still' lacks: its wind of 0 m/s"):
        TASK.of({"agent": "gpf", "worlds": ["still"]}).check()


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="agent 'sb3-recurrent-ppo' needs stable_baselines3; pip install stable-b"):
        check_installed("sb3-recurrent-ppo")
    check_installed("gpf")
    assert find_agent("mine:make").kind == "own"

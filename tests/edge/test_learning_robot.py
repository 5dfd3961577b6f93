"""A learning navigator on a robot: sensors and rewards in, actions out."""

import numpy as np
import pytest
import torch
from learning_networks import learning_in

import gpf as package
from gpf.edge.builds import Library
from gpf.edge.c import replay, write_c
from gpf.edge.learners import ENDED, FIRST, OUT_OF_TIME, RUNNING, Learners
from gpf.edge.learning import SOURCE, learning_of, with_rules, write_learner
from gpf.plume.rng import next_bits, seed_streams, uniform


def step(learners, sensors, reward, kind):
    """One step of one lane; returns its action."""
    learners.step(sensors[None].astype(np.float32), np.array([reward], np.float32), np.array([kind], np.uint8))
    return int(learners.actions[0])


@pytest.mark.parametrize("observation", ["memory", "onehot"])
@pytest.mark.parametrize("last", [ENDED, OUT_OF_TIME])
def test_an_episode_is_a_sequence_of_updates(tmp_path, flights, observation, last):
    learning = learning_in(observation, exploration=0.0)
    learners, plain = Learners(tmp_path, learning, [0]), Learners(tmp_path, learning, [0])
    for flight in flights[observation][:2]:
        inputs, rewards = replay(learning.policy, flight.sensors)[0], np.random.default_rng(0).normal(size=500)
        action = step(learners, flight.sensors[0], 0.0, FIRST)
        for n in range(1, len(inputs)):
            kind = RUNNING if n < len(inputs) - 1 else last
            plain.update(inputs[n - 1], action, rewards[n], None if kind == ENDED else inputs[n])
            action = step(learners, flight.sensors[n], rewards[n], kind)
            if kind != ENDED:
                values = plain.respond(inputs[n])
                assert values[action] > values.max() - 1e-4
    np.testing.assert_allclose(learners.memory[0]["values"], plain.memory[0]["values"], atol=1e-4)
    start = Learners(tmp_path, learning, [0]).memory[0]["values"]
    assert np.abs(start - plain.memory[0]["values"]).max() > 0.01


def test_before_it_learns_it_acts_as_the_exported_policy(tmp_path, flights):
    learning = learning_in("memory", exploration=0.0, learning_rate=0.0)
    write_c(tmp_path, learning.policy, flights["memory"])
    learners, library = Learners(tmp_path, learning, [0]), Library(tmp_path)
    before = learners.memory.copy()
    for flight in flights["memory"][:3]:
        kinds = [FIRST] + [RUNNING] * (len(flight.sensors) - 1)
        chosen = [step(learners, row, 1.0, kind) for row, kind in zip(flight.sensors, kinds, strict=True)]
        np.testing.assert_array_equal(chosen, library.replay(flight.sensors))
    assert (learners.memory["stream"] != before["stream"]).any()
    for name in set(before.dtype.names) - {"stream"}:
        np.testing.assert_array_equal(learners.memory[name], before[name], err_msg=name)


def test_random_actions_are_those_of_its_stream(tmp_path, flights):
    learners = Learners(tmp_path, learning_in("memory", exploration=1.0), [7])
    stream = seed_streams([(7, 1)])[0]
    for row in flights["memory"][0].sensors[:50]:
        action = step(learners, row, 0.0, FIRST)
        assert uniform(stream) < 1.0
        assert action == int(next_bits(stream) >> np.uint64(33)) % 6


def test_bad_sensors_and_rewards_are_not_learned_from(tmp_path, flights):
    learners, sensors = Learners(tmp_path, learning_in("memory"), [0]), flights["memory"][0].sensors
    assert step(learners, np.full(5, np.nan), 0.0, FIRST) == -1
    assert step(learners, sensors[0], 0.0, RUNNING) >= 0  # which begins the episode
    step(learners, sensors[1], 0.5, RUNNING)
    before = learners.memory.tobytes()
    for column, value, reward in ((0, np.nan, 0.0), (3, np.inf, 0.0), (1, 0.0, np.nan), (1, 0.0, 1e9)):
        bad = sensors[2].copy()
        bad[column] = value
        assert step(learners, bad, reward, RUNNING) == -1
    assert learners.memory.tobytes() == before
    assert step(learners, sensors[2], 0.5, RUNNING) >= 0
    assert learners.memory.tobytes() != before


def test_lanes_do_not_disturb_each_other(tmp_path, flights):
    learning, rows = learning_in("memory"), [flight.sensors for flight in flights["memory"][:3]]
    together = Learners(tmp_path, learning, [0, 1, 2])
    length = min(map(len, rows))
    for n in range(length):
        kinds = np.full(3, RUNNING if n else FIRST, np.uint8)
        together.step(np.stack([one[n] for one in rows]), np.full(3, 0.1, np.float32), kinds)
    for lane, one in enumerate(rows):
        alone = Learners(tmp_path, learning, [lane])
        for n in range(length):
            step(alone, one[n], 0.1, RUNNING if n else FIRST)
        assert alone.memory[0].tobytes() == together.memory[lane].tobytes()


@pytest.fixture(scope="module")
def value_run(tmp_path_factory, short_world):
    """A navigator whose outputs are values, for a moment."""
    folder = tmp_path_factory.mktemp("values") / "run"
    package.train(
        folder, threads=1, learner="parallel", observation="memory", layer_norm=False, scenario=str(short_world),
        steps=4000, lanes=16, width=12, evaluate=0, without=["side"],
    )  # fmt: skip
    return folder


def test_a_run_is_exported_to_learn(value_run, tmp_path, gpf):
    printed = gpf("export", value_run, "--learn", "--max-depth", "3", "--out", tmp_path)
    assert "with room for 3 hidden layers" in printed
    learning = with_rules(learning_of(package.load_navigator(value_run)), max_depth=3)
    assert "malloc" not in (tmp_path / SOURCE).read_text()
    ram = write_learner(tmp_path, learning)
    assert f"RAM {ram:,} bytes" in printed
    learners = Learners(tmp_path, learning, [0])
    assert learners.code.gpf_learner_ram() == ram
    inputs = np.random.default_rng(0).normal(size=16).astype(np.float32)
    inputs[5] = 0.0  # the feature `side` is left out, and stays so
    before, changed = learners.respond(inputs), inputs.copy()
    changed[5] = 1.0
    np.testing.assert_array_equal(learners.respond(changed), before)
    for _ in range(10):
        learners.update(changed, 1, 1.0, inputs)
    np.testing.assert_array_equal(learners.respond(changed), learners.respond(inputs))
    assert (learners.respond(inputs) != before).any()
    navigator = package.load_navigator(value_run)
    found = navigator.net.model(torch.from_numpy(inputs)).detach().numpy()
    np.testing.assert_allclose(before, found, rtol=1e-4, atol=1e-4)


def test_mistakes_are_one_line(value_run, plume_run, tmp_path, mistake):
    assert "learner must be online or parallel, whose outputs are values" in mistake("export", plume_run, "--learn")
    assert "learn needs to c, numbers float32 and no sequential, got to c, numbers int8" in mistake(
        "export", value_run, "--learn", "--numbers", "int8"
    )
    assert "max_depth needs learn, got 3 without it" in mistake("export", value_run, "--max-depth", "3")
    assert "max_depth must be at least the depth now, 1, got 0" in mistake(
        "export", value_run, "--learn", "--max-depth", "0"
    )
    learning = learning_of(package.load_navigator(value_run))
    with pytest.raises(ValueError, match="grow_init must be 'identity' to learn on the device, got 'copy'"):
        with_rules(learning, grow_init="copy")
    with pytest.raises(ValueError, match="prune_patience must be at least 1, or None, to learn on the device, got 0"):
        with_rules(learning, prune_patience=0)
    assert not (value_run / "export").exists()

"""Trained navigators: torch, the kernels, ONNX, C, the board and the table choose the same actions and fly alike.

Where float32's two best outputs are equal up to rounding, either will do: sums are added up in different orders.
"""

import numpy as np
import pytest

import gpf as package
from gpf.edge.builds import Library
from gpf.edge.c import replay_together, write_c
from gpf.edge.flights import fly
from gpf.edge.graph import FILE, run, write_onnx
from gpf.edge.m4 import replay_on_m4
from gpf.edge.policy import read_policy
from gpf.edge.table import table_of
from gpf.navigation.evaluate import evaluate
from gpf.zoo import run_folder

TIE = 1e-5
"""Distance of two outputs that rounding may exchange, relative to the greatest."""


@pytest.fixture(scope="module")
def onehot_run(tmp_path_factory, short_world):
    """A navigator that saw tokens, for a moment."""
    folder = tmp_path_factory.mktemp("onehot") / "run"
    package.train(
        folder, threads=1, learner="parallel", observation="onehot", scenario=str(short_world), steps=4000, lanes=16,
        width=16, evaluate=0,
    )  # fmt: skip
    return folder


def enough_flights(navigator, observations, shortest=8):
    """Episodes with so many observations, if they have so many each at least."""
    flights = []
    episodes = fly(navigator.policy, navigator.scenario, max(4, observations // shortest))
    for flight in episodes:
        flights.append(flight)
        if sum(len(one.sensors) for one in flights) >= observations:
            return flights
    raise AssertionError(f"only {sum(len(one.sensors) for one in flights)} observations")


def assert_same(chosen, outputs):
    """Actions are the best ones, or as good up to rounding."""
    behind = outputs.max(1) - outputs[np.arange(len(outputs)), chosen]
    assert (behind <= TIE * np.abs(outputs).max(1)).all()
    assert (behind > 0).mean() <= 1e-4


@pytest.mark.parametrize("observations", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("observation", ["memory", "onehot"])
def test_all_artefacts_choose_the_same_actions(request, tmp_path, observation, observations):
    folder = request.getfixturevalue("plume_run" if observation == "memory" else "onehot_run")
    policy, navigator = read_policy(folder, acting="greedy")
    flights = enough_flights(navigator, observations)
    sensors = np.concatenate([flight.sensors for flight in flights])
    starts = np.cumsum([0, *(len(flight.sensors) for flight in flights[:-1])])
    replayed = replay_together(policy, [flight.sensors for flight in flights])
    inputs, outputs = (np.concatenate(one) for one in zip(*replayed, strict=True))
    assert_same(np.concatenate([flight.actions for flight in flights]), outputs)
    write_c(tmp_path, policy, flights[:10])
    assert_same(Library(tmp_path).replay(sensors, starts), outputs)
    board = replay_on_m4(tmp_path, sensors, starts)
    assert len(board.actions) >= observations
    assert_same(board.actions, outputs)
    write_onnx(tmp_path, policy, flights[:2])
    assert_same(np.concatenate(run(tmp_path / FILE, flights)[0]), outputs)
    if observation == "onehot":
        left, right, octant = inputs[:, :7].argmax(1), inputs[:, 7:14].argmax(1), inputs[:, 14:].argmax(1)
        assert_same(table_of(policy)[(left * 7 + right) * 8 + octant], outputs)


@pytest.mark.parametrize("observations", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_int8_of_a_trained_navigator_nearly_always_chooses_what_float32_does(tmp_path, observations):
    policy, navigator = read_policy(run_folder("zoo:reference"), acting="greedy")
    calibration = fly(navigator.policy, navigator.scenario, 20)
    flights = enough_flights(navigator, observations + sum(len(flight.sensors) for flight in calibration), 80)[20:]
    write_c(tmp_path, policy, calibration, quantised=True)
    sensors = np.concatenate([flight.sensors for flight in flights])
    starts = np.cumsum([0, *(len(flight.sensors) for flight in flights[:-1])])
    chosen = Library(tmp_path).replay(sensors, starts)
    wanted = np.concatenate([outputs for _, outputs in replay_together(policy, [one.sensors for one in flights])])
    assert len(chosen) >= observations
    assert (chosen == wanted.argmax(1)).mean() >= 0.99
    np.testing.assert_array_equal(replay_on_m4(tmp_path, sensors, starts).actions, chosen)


@pytest.mark.parametrize("episodes", [30, pytest.param(200, marks=pytest.mark.slow)])
def test_c_flies_the_same_episodes(plume_run, tmp_path, episodes):
    policy, navigator = read_policy(plume_run, acting="greedy")
    write_c(tmp_path, policy, fly(navigator.policy, navigator.scenario, 4))
    found, wanted = (
        evaluate(one, navigator.scenario, episodes, threads=1) for one in (Library(tmp_path), navigator.policy)
    )
    np.testing.assert_array_equal(found.steps, wanted.steps)
    np.testing.assert_array_equal(found.success, wanted.success)

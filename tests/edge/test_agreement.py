"""Trained navigators: torch, the kernels, ONNX, C and the table choose the same actions and fly the same episodes.

Where float32's two best outputs are equal up to rounding, either will do: sums are added up in different orders.
"""

import numpy as np
import pytest

import gpf as package
from gpf.edge.builds import Library
from gpf.edge.c import replay, write_c
from gpf.edge.flights import fly
from gpf.edge.graph import FILE, run, write_onnx
from gpf.edge.policy import read_policy
from gpf.edge.table import table_of
from gpf.navigation.evaluate import evaluate

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


def enough_flights(navigator, observations):
    """Episodes with so many observations."""
    flights = []
    episodes = fly(navigator.policy, navigator.scenario, max(4, observations // 8))
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
    write_c(tmp_path, policy, flights[:10])
    library = Library(tmp_path)
    write_onnx(tmp_path, policy, flights[:2])
    by_onnx, _ = run(tmp_path / FILE, flights)
    for flight, chosen in zip(flights, by_onnx, strict=True):
        inputs, outputs = replay(policy, flight.sensors)
        for actions in (flight.actions, chosen, library.replay(flight.sensors)):
            assert_same(actions, outputs)
        if observation == "onehot":
            left, right, octant = inputs[:, :7].argmax(1), inputs[:, 7:14].argmax(1), inputs[:, 14:].argmax(1)
            assert_same(table_of(policy)[(left * 7 + right) * 8 + octant], outputs)


@pytest.mark.parametrize("episodes", [30, pytest.param(200, marks=pytest.mark.slow)])
def test_c_flies_the_same_episodes(plume_run, tmp_path, episodes):
    policy, navigator = read_policy(plume_run, acting="greedy")
    write_c(tmp_path, policy, fly(navigator.policy, navigator.scenario, 4))
    found, wanted = (
        evaluate(one, navigator.scenario, episodes, threads=1) for one in (Library(tmp_path), navigator.policy)
    )
    np.testing.assert_array_equal(found.steps, wanted.steps)
    np.testing.assert_array_equal(found.success, wanted.success)

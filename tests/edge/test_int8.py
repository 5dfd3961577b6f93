"""C in int8 computes what NumPy does with the same whole numbers, and chooses nearly always what float32 does."""

import numpy as np
import pytest
from edge_networks import make_exported

from gpf.edge import int8
from gpf.edge.builds import Library
from gpf.edge.c import replay, seen_inputs, write_c
from gpf.plume.memory import MEMORY_SIZE


@pytest.mark.parametrize(
    ("observation", "depth", "kind"), [("memory", 1, "dense"), ("memory", 3, "pruned"), ("onehot", 2, "normalised")]
)
def test_int8_in_c_is_int8_in_numpy_and_agrees_with_float32(tmp_path, flights, observation, depth, kind):
    policy, _ = make_exported(observation, depth, kind, width=64)
    calibration, others = flights[observation][:8], flights[observation][8:]
    sizes = write_c(tmp_path, policy, calibration, quantised=True)
    assert sizes.weights < 0.45 * sizes.dense
    library, layers = Library(tmp_path), int8.quantise(policy, seen_inputs(policy, calibration))
    assert library.self_test == 0
    same, behind = [], []
    for flight in others:
        inputs, exact = replay(policy, flight.sensors)
        chosen = library.replay(flight.sensors)
        same.append(chosen == int8.outputs(layers, inputs).argmax(1))
        behind.append((exact.max(1) - exact[np.arange(len(exact)), chosen]) / np.ptp(exact, axis=1))
    assert np.concatenate(same).mean() > 0.998  # cosf and torch's cosine may round a level differently
    assert np.concatenate(behind).max() < 0.04  # its action is float32's best, or nearly as good


def test_the_first_layer_reaches_the_ends_of_the_calibrated_ranges():
    policy, _ = make_exported("memory", 1, "dense")
    inputs = np.random.default_rng(0).uniform(-3.0, 5.0, (500, MEMORY_SIZE)).astype(np.float32)
    first = int8.quantise(policy, inputs)[0]
    levels = first.quantised(inputs)
    assert levels.min() == 0
    assert levels.max() == int8.INPUT_LEVELS
    restored = (levels - first.zeros) / first.per_unit
    assert np.abs(restored - inputs).max() < 8.0 / int8.INPUT_LEVELS
    assert (first.quantised(np.zeros((1, MEMORY_SIZE), np.float32)) == first.zeros).all()


def test_int8_without_calibration_is_refused(tmp_path):
    policy, _ = make_exported("memory", 1, "dense")
    with pytest.raises(ValueError, match="int8 needs at least one episode, for calibration, got 0"):
        write_c(tmp_path, policy, [], quantised=True)


def test_weights_are_rounded_so_that_outputs_are_close(flights):
    policy, _ = make_exported("memory", 1, "pruned", width=64)
    inputs = seen_inputs(policy, flights["memory"])
    first, exact = policy.layers[0], inputs @ policy.layers[0].weight.T + policy.layers[0].bias
    low, high = int8._input_ranges(policy, inputs)
    nearest = int8._quantised(first, low, high, int8.INPUT_LEVELS)
    fitted = int8._fitted(first, nearest, inputs)
    before, after = (((layer(inputs) - exact) ** 2).mean() for layer in (nearest, fitted))
    assert after < 0.8 * before
    assert not fitted.weight[first.weight == 0.0].any()

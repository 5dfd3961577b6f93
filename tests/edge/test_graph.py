"""ONNX in onnxruntime chooses what torch and the kernels choose; memory goes in and out."""

import json

import numpy as np
import onnx
import pytest
import torch
from edge_networks import greedy_actions, kernel_policy, make_exported

from gpf.edge.c import replay
from gpf.edge.graph import FILE, make_session, run, verify, write_onnx
from gpf.edge.module import Navigating, blank_state
from gpf.plume.memory import MEMORY_SIZE, blank_memories, remember


def operators(path):
    return [node.op_type for node in onnx.load(path).graph.node]


@pytest.mark.parametrize(("observation", "depth", "kind"), [("memory", 1, "dense"), ("onehot", 2, "pruned")])
def test_onnx_torch_and_the_kernels_choose_the_same_actions(tmp_path, flights, observation, depth, kind):
    policy, model = make_exported(observation, depth, kind)
    written = write_onnx(tmp_path, policy, flights[observation][:2])
    assert written < 60_000
    actions, outputs = run(tmp_path / FILE, flights[observation])
    kernels = kernel_policy(model, observation)
    for flight, chosen, found in zip(flights[observation], actions, outputs, strict=True):
        np.testing.assert_array_equal(chosen, greedy_actions(kernels, flight))
        np.testing.assert_allclose(found, replay(policy, flight.sensors)[1], atol=2e-5)
    assert sum(map(len, actions)) > 1000
    about = {entry.key: entry.value for entry in onnx.load(tmp_path / FILE).metadata_props}
    assert json.loads(about["gpf"])["scenario"] == policy.about["scenario"]
    assert "Scan" not in operators(tmp_path / FILE)


def test_a_scan_over_stacked_weights_gives_the_same_outputs_as_layers_in_sequence(tmp_path, flights):
    policy, _ = make_exported("memory", 4, "normalised")
    results = []
    for sequential in (False, True):
        folder = tmp_path / str(sequential)
        folder.mkdir()
        write_onnx(folder, policy, flights["memory"][:2], sequential=sequential)
        assert ("Scan" in operators(folder / FILE)) == (not sequential)
        results.append(run(folder / FILE, flights["memory"][:5]))
    for one, other in zip(*(result[1] for result in results), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    for one, other in zip(*(result[0] for result in results), strict=True):
        np.testing.assert_array_equal(one, other)


def test_memory_in_torch_is_the_kernels(flights):
    policy, _ = make_exported("memory", 1, "dense")
    module = Navigating(policy).observing
    for flight in flights["memory"][:3]:
        memories, state, wanted = blank_memories(1, 0.0), blank_state(1), np.zeros(MEMORY_SIZE, np.float32)
        memories["whiff"] = policy.whiff
        for row in flight.sensors:
            remember(memories[0], policy.stride, policy.max_steps, row, wanted)
            features, state = module(torch.from_numpy(row[None]), state)
            np.testing.assert_allclose(features[0].numpy(), wanted, atol=2e-5)


def test_a_model_that_does_something_else_is_refused(tmp_path, flights):
    one, _ = make_exported("onehot", 1, "dense")
    other, _ = make_exported("onehot", 1, "dense", seed=1)
    write_onnx(tmp_path, one, flights["onehot"][:1])
    with pytest.raises(RuntimeError, match="must give torch's outputs to within 0.0001 in onnxruntime, got"):
        verify(tmp_path / FILE, other, flights["onehot"][:1])
    with pytest.raises(ValueError, match="onnx needs at least one episode, on which it is verified, got 0"):
        write_onnx(tmp_path, one, [])
    names = [(one.name, one.shape[0]) for one in make_session(tmp_path / FILE).get_inputs()]
    assert names == [("sensors", "robots")]

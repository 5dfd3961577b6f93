"""`gpf export`: what it writes of a run, and what it refuses."""

import json
import shutil

import numpy as np
import pytest
from torch import nn

import gpf as package
from gpf.edge.builds import Library
from gpf.edge.c import replay
from gpf.edge.flights import fly
from gpf.edge.policy import digest, from_network, read_policy
from gpf.navigation.evaluate import evaluate
from gpf.network import MLP
from gpf.plume.memory import MEMORY_SIZE
from gpf.plume.scenario import Scenario


def test_an_exported_run_flies_as_its_navigator_does(plume_run, tmp_path, gpf):
    printed = gpf("export", plume_run, "--out", tmp_path / "robot", "--episodes", "2")
    assert "gpf_policy.c" in printed
    assert "weights" in printed
    navigator = package.load_navigator(plume_run)
    library = Library(tmp_path / "robot", sampled=navigator.policy.acting == "sampled")
    assert library.self_test == 0
    found, wanted = (evaluate(one, navigator.scenario, 40, threads=1) for one in (library, navigator.policy))
    np.testing.assert_array_equal(found.steps, wanted.steps)
    about = json.loads(library.code.gpf_metadata())
    assert about["version"] == package.__version__
    assert about["checkpoint_digest"] == digest(plume_run / "checkpoints" / "last")
    assert about["sensors"]["wind_speed"] == "m/s"
    assert about["control_rate_hz"] == pytest.approx(1.0 / navigator.scenario.time_step)
    assert about["actions"][0] == "forward"
    assert about["world"]["max_steps"] == navigator.scenario.max_steps


def test_int8_of_a_trained_run_chooses_what_float32_chooses(plume_run, tmp_path, gpf):
    gpf("export", plume_run, "--out", tmp_path / "robot", "--numbers", "int8")
    library, (policy, navigator) = Library(tmp_path / "robot"), read_policy(plume_run)
    flights = fly(navigator.policy, navigator.scenario, 60)[20:]
    agree = [library.replay(flight.sensors) == replay(policy, flight.sensors)[1].argmax(1) for flight in flights]
    assert np.concatenate(agree).mean() >= 0.99
    assert len(np.concatenate(agree)) > 300


def test_onnx_is_exported_without_the_warnings_of_its_exporter(plume_run, tmp_path, gpf, recwarn):
    printed = gpf("export", plume_run, "--to", "onnx", "--out", tmp_path / "robot", "--episodes", "2", "--json")
    assert json.loads(printed)["files"] == [str(tmp_path / "robot" / "gpf_policy.onnx")]
    assert not recwarn.list


def test_mistakes_are_one_line(plume_run, tmp_path, mistake):
    copy = tmp_path / "copy"
    shutil.copytree(plume_run, copy)
    shutil.rmtree(copy / "checkpoints")
    assert "has no checkpoint 'last'" in mistake("export", copy)
    assert "is not a run of gpf train" in mistake("export", tmp_path)
    assert "table needs a navigator of observation onehot, got memory" in mistake("export", plume_run, "--to", "table")
    assert "because int8 is calibrated on them, got 0" in mistake(
        "export", plume_run, "--numbers", "int8", "--episodes", "0"
    )
    assert "numbers must be float32 with --to table" in mistake(
        "export", plume_run, "--to", "table", "--numbers", "int8"
    )
    assert "sequential needs float32, got int8" in mistake(
        "export", plume_run, "--sequential", "--numbers", "int8", "--episodes", "1"
    )
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "task": "cifar10"}))
    assert "of task plume, to be exported, got task 'cifar10'" in mistake("export", copy)
    assert not (copy / "export").exists()


def test_layers_that_c_does_not_know_are_refused():
    model = MLP(MEMORY_SIZE, 4, 6)
    model.layers[0] = nn.Sequential(nn.Linear(MEMORY_SIZE, 4), nn.Tanh())
    with pytest.raises(ValueError, match="layer 0 must be Linear, perhaps LayerNorm, and ReLU .* got Linear, Tanh"):
        from_network(model, Scenario.of("reference"), "memory", {})
    with pytest.raises(ValueError, match=r"model must be a gpf\.MLP to be exported, got Linear"):
        from_network(nn.Linear(MEMORY_SIZE, 6), Scenario.of("reference"), "memory", {})
    model = MLP(MEMORY_SIZE, 4, 6)
    model.head.bias.data[0] = float("nan")
    with pytest.raises(ValueError, match="layer 1 must have finite weights"):
        from_network(model, Scenario.of("reference"), "memory", {})

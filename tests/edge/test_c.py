"""C in float32 chooses what torch and the project's own kernels choose."""

import dataclasses
import json
import re
import subprocess

import numpy as np
import pytest
from edge_networks import WORLDS, greedy_actions, kernel_policy, make_exported

from gpf.edge.builds import FLAGS, Library
from gpf.edge.c import SOURCE, TESTS, replay, write_c
from gpf.navigation.acting import NetworkPolicy
from gpf.navigation.evaluate import evaluate
from gpf.navigation.flat import FlatNetwork

KINDS = ("dense", "normalised", "pruned")


def built(folder, policy, flights, sampled=False, **options):
    write_c(folder, policy, flights, **options)
    return Library(folder, sampled)


def outputs_of(library):
    """The whole state of its first lane, with the outputs."""
    return library._states[0].tobytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("observation", ["memory", "onehot"])
def test_c_torch_and_the_kernels_choose_the_same_actions(tmp_path, flights, observation, kind):
    depth = 1 + KINDS.index(kind)
    policy, model = make_exported(observation, depth, kind)
    library, kernels = built(tmp_path, policy, flights[observation]), kernel_policy(model, observation)
    counted = 0
    for flight in flights[observation]:
        chosen = library.replay(flight.sensors)
        outputs = replay(policy, flight.sensors)[1]
        np.testing.assert_array_equal(chosen, outputs.argmax(1))
        np.testing.assert_array_equal(chosen, greedy_actions(kernels, flight))
        counted += len(chosen)
    assert counted > 1000
    assert library.self_test == 0


def test_sampled_actions_are_those_of_the_kernels(tmp_path, flights):
    policy, model = make_exported("memory", 2, "dense")
    library, kernels = built(tmp_path, policy, flights["memory"], True), kernel_policy(model, "memory", "sampled")
    chosen = []
    for flight in flights["memory"][:5]:
        chosen.append(library.replay(flight.sensors))
        np.testing.assert_array_equal(chosen[-1], greedy_actions(kernels, flight))
    assert len(np.unique(np.concatenate(chosen))) == 6


@pytest.mark.parametrize("observation", ["memory", "onehot"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_function_for_each_layer_gives_identical_outputs(tmp_path, flights, observation, kind):
    policy, _ = make_exported(observation, 3, kind)
    states = []
    for sequential in (False, True):
        folder = tmp_path / str(sequential)
        folder.mkdir()
        library, outputs = built(folder, policy, flights[observation], sequential=sequential), []
        for flight in flights[observation][:5]:
            library.replay(flight.sensors)
            outputs.append(outputs_of(library))
        states.append(outputs)
    assert states[0] == states[1]
    assert len(set(states[0])) > 1


def test_a_program_prints_its_sizes_and_tests_itself(tmp_path, flights):
    policy, _ = make_exported("memory", 2, "dense")
    sizes = write_c(tmp_path, policy, flights["memory"])
    program = tmp_path / "program"
    subprocess.run(["gcc", *FLAGS, "-DGPF_MAIN", tmp_path / SOURCE, "-o", program, "-lm"], check=True)
    said = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert int(re.search(r"RAM: (\d+) bytes", said)[1]) == sizes.ram
    assert int(re.search(r"flash: (\d+) bytes", said)[1]) > sizes.weights
    assert f"self-test: 0 of {TESTS} observations wrong" in said
    source = (tmp_path / SOURCE).read_text()
    assert "malloc" not in source
    (tmp_path / SOURCE).write_text(re.sub(r"(bias_1\[24\] = \{\n    )-?", r"\g<1>7", source))  # a damaged weight
    subprocess.run(["gcc", *FLAGS, "-DGPF_MAIN", tmp_path / SOURCE, "-o", program, "-lm"], check=True)
    assert subprocess.run([program], check=False, capture_output=True).returncode == 1


def test_pruned_weights_and_units_take_no_memory(tmp_path, flights):
    dense, _ = make_exported("memory", 2, "dense")
    pruned, _ = make_exported("memory", 2, "pruned")
    assert pruned.layers[0].outputs < dense.layers[0].outputs
    before = write_c(tmp_path, dense, flights["memory"])
    after = write_c(tmp_path, pruned, flights["memory"])
    assert after.weights < 0.5 * before.weights
    assert before.weights == before.dense


def test_bad_sensors_give_no_action_and_are_not_remembered(tmp_path, flights):
    policy, _ = make_exported("memory", 1, "dense")
    library, sensors = built(tmp_path, policy, flights["memory"]), flights["memory"][0].sensors
    wanted = library.replay(sensors)
    bad = np.repeat(sensors, 4, axis=0)  # three bad observations before each good one
    for n, (column, value) in enumerate(((0, np.nan), (3, np.inf), (4, -1e9))):
        bad[n::4, column] = value
    chosen = library.replay(bad).reshape(-1, 4)
    assert (chosen[:, :3] == -1).all()
    np.testing.assert_array_equal(chosen[:, 3], wanted)


def test_metadata_survive_quotes_and_trigraphs(tmp_path, flights):
    policy, _ = make_exported("onehot", 1, "dense")
    library = built(tmp_path, policy, flights["onehot"])
    assert json.loads(library.code.gpf_metadata()) == {**policy.about, "numbers": "float32"}


def test_a_c_navigator_flies_the_same_episodes(tmp_path, flights):
    policy, model = make_exported("memory", 2, "pruned")
    world = dataclasses.replace(WORLDS["memory"], max_steps=100)
    model_policy = NetworkPolicy(FlatNetwork(model), "memory", "greedy", world)
    policy = dataclasses.replace(policy, max_steps=100.0)
    library = built(tmp_path, policy, flights["memory"])
    found, wanted = (evaluate(one, world, 20, threads=1) for one in (library, model_policy))
    np.testing.assert_array_equal(found.steps, wanted.steps)
    np.testing.assert_array_equal(found.success, wanted.success)

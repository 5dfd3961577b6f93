"""Clients in one process: a run that was killed goes on, and every method does what it says."""

import numpy as np
import pytest
from support import logs, without

from gpf.federated.adoption import extract
from gpf.federated.merging import merge
from gpf.federated.worlds import UNSEEN, WORLDS
from gpf.runs.folder import read_log
from gpf.tasks.federated import ALONE, CLIENTS, TASK, settled

pytestmark = pytest.mark.usefixtures("one_torch_thread", "short_episodes")

TINY = {
    "rounds": 3, "rollouts": 2, "lanes": 2, "horizon": 8, "minibatch": 16, "width": 8, "validation_episodes": 1,
    "evaluate": 2, "save_every": 2,
}  # fmt: skip


def trained(folder, **changes):
    run = TASK.create(folder, TASK.of({**TINY, **changes}))
    result = TASK.train(run)
    run.close()
    return result, read_log(folder, "metrics")


@pytest.fixture(scope="module")
def whole(tmp_path_factory, short_episodes):
    folder = tmp_path_factory.mktemp("federated") / "whole"
    return folder, *trained(folder)


def test_a_run_that_was_killed_between_checkpoints_ends_as_if_it_had_not_been(tmp_path, whole):
    folder, result, _ = whole
    run = TASK.create(tmp_path / "killed", TASK.of(TINY))
    for rounds in (1, 3):  # before the first checkpoint, and after it
        training = TASK.training(run, TASK.of(TINY), None)
        while training.progress["round"] < rounds:
            training.round()
    resumed = TASK.train(run)
    assert logs(tmp_path / "killed") == logs(folder)
    one, other = ((place / "federation/round-00003/server/round-00003.gpf") for place in (tmp_path / "killed", folder))
    assert one.read_bytes() == other.read_bytes()
    assert without(resumed, "seconds") == without(result, "seconds")


def test_the_result_has_every_world_and_all_bytes(whole):
    _, result, lines = whole
    assert list(result["own"]) == list(WORLDS)
    assert list(result["unseen"]) == list(UNSEEN)
    assert not set(WORLDS) & set(UNSEEN)
    assert result["success"] == pytest.approx(np.mean(list(result["own"].values())))
    assert result["megabytes"] == pytest.approx(sum(line["bytes"] for line in lines) / 1e6)
    assert result["step"] == 3 * 2 * 2 * 8 * CLIENTS


@pytest.mark.parametrize("method", ["local", "fixed", "one-layer", "central"])
def test_every_method_takes_the_same_steps_and_has_the_network_that_it_says(method, tmp_path, whole):
    result, lines = trained(tmp_path / method, method=method, rounds=1)
    assert result["step"] == whole[1]["step"] / 3
    assert result["depth"] == {"fixed": 3}.get(method, 1)
    assert len(lines[0]["spectra"]) == (CLIENTS if method == "local" else 1)
    assert (result["megabytes"] == 0) == (method == "local")
    config = TASK.of({**TINY, "method": method})
    training = TASK.training(TASK.create(tmp_path / "other", config), config, None)
    assert training.clients[0].net.rules.grows == (method in ALONE)


def test_a_central_learner_has_lanes_in_every_world(tmp_path):
    config = TASK.of({**TINY, "method": "central"})
    training = TASK.training(TASK.create(tmp_path / "run", config), config, None)
    rows = training.clients[0].learner.rollouts.world.rows
    assert len(rows) == CLIENTS * TINY["lanes"]
    assert len({row.tobytes() for row in rows}) == CLIENTS


def test_a_faulty_client_reverses_its_weights_and_the_median_is_that_of_all(tmp_path):
    config = TASK.of({**TINY, "faulty": 1, "average": "median"})
    training = TASK.training(TASK.create(tmp_path / "run", config), config, None)
    training.round()
    networks = [extract(client.net) for client in training.clients]
    assert not training.server.reports[-1].refused
    for name, found in training.server.network.arrays.items():
        values = [network.arrays[name] for network in networks]
        np.testing.assert_allclose(found, np.median([*values[:-1], -values[-1]], axis=0), rtol=1e-6)


def test_clients_differ_in_their_worlds_only_and_merging_is_that_of_the_rule(tmp_path):
    config = TASK.of(TINY)
    training = TASK.training(TASK.create(tmp_path / "run", config), config, None)
    before = training.server.network
    training.round()
    networks = [extract(client.net) for client in training.clients]
    expected = merge(before, networks, [1.0] * CLIENTS)
    found = training.server.network
    assert all(np.allclose(found.arrays[name], array, atol=1e-7) for name, array in expected.arrays.items())
    assert len({client.worlds[0].to_json() for client in training.clients}) == CLIENTS


def test_a_spectrum_has_settled_when_it_stays_close_to_its_last():
    last = [1.0, 2.0, 3.0]
    far = [2.0, 4.0, 6.0]
    assert settled([[last], [last], [last]]) == 1
    assert settled([[far], [last], [far], [last], [last]]) == 4
    assert settled([[far], [far], [last]]) == 3
    assert settled([[last, far], [last, last]]) == pytest.approx((1 + 2) / 2)
    assert settled([[[3.0, 1.0, 2.0]], [last]]) == 1  # order is no matter


def test_a_depth_above_the_greatest_is_refused():
    with pytest.raises(ValueError, match="depth must be at most max_depth, 3, got 4"):
        TASK.of({**TINY, "depth": 4}).check()

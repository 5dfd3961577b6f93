"""The Flower app and the study without Flower are the same experiment: same seed, same numbers."""

import dataclasses
import tomllib

import numpy as np
import pytest

import gpf.tasks.federated as study
from gpf.federated.clients import Plan
from gpf.federated.rounds import Server
from loopback import HERE, Loopback

CLIENTS = 2
TINY = {
    "rounds": 2, "rollouts": 2, "lanes": 4, "horizon": 16, "minibatch": 32, "width": 8, "validation_episodes": 1,
    "seed": 3,
}  # fmt: skip


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The server of the study without Flower, after the same rounds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(study, "CLIENTS", CLIENTS)
        config = study.TASK.of(TINY)
        run = study.TASK.create(tmp_path_factory.mktemp("study") / "run", config)
        training = study.FederatedTraining(run, config)
        while not training.over:
            training.round()
        return training.server


@pytest.mark.parametrize("simulation", [False, True], ids=["supernodes", "simulation"])
def test_flower_and_the_study_without_it_give_the_same_numbers(simulation, tmp_path, expected):
    with Loopback(tmp_path, simulation=simulation) as federation:
        for index in range(0 if simulation else CLIENTS):
            federation.start_node(index)
        federation.run(500, CLIENTS, clients=CLIENTS, **TINY)
    found = Server(Plan.of(TINY).first_network())
    assert found.restore(tmp_path / "federation" / "server")
    assert found.reports == expected.reports
    assert found.thresholds == expected.thresholds
    assert found.network.arrays.keys() == expected.network.arrays.keys()
    for name, array in expected.network.arrays.items():
        np.testing.assert_allclose(found.network.arrays[name], array, rtol=1e-6, atol=1e-7)


def test_the_app_has_the_defaults_of_the_plan():
    config = tomllib.loads((HERE / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    plan = dataclasses.asdict(Plan())
    assert {name: config[name] for name in plan} == plan

"""Faults of real processes on loopback: the round ends, the log says what happened, the network stays sound."""

import numpy as np

from faulty import FAULTS, honest
from gpf.federated.clients import Plan
from gpf.federated.rounds import Server
from loopback import Loopback, wait

TINY = {"width": 8, "rounds": 2, "propose": False}
WORDS = {
    "NaN": "head.bias must be finite",
    "wrong shape": "head.bias must be float32 of shape",
    "huge tensor": "tensors must be at most 67,108,864 bytes",
    "lying manifest": "manifest must have the SHA-256 that the message says",
    "an older round": "the answer is late",
    "nothing": "a message must be at least",
    "no record": "must hold bytes as gpf.message",
    "crash": "out of battery",
}


def merged(rounds):
    """The server after rounds of honest clients only: by round, who answers it."""
    plan = Plan.of(TINY)
    server = Server(plan.first_network(), thresholds=plan.thresholds())
    for clients in rounds:
        request = server.request()
        server.finish_round([(str(n), honest(request, n)) for n in clients])
    return server.network


def saved(folder):
    """What the Flower server has saved."""
    server = Server(Plan.of(TINY).first_network())
    assert server.restore(folder / "federation" / "server")
    return server


def assert_same(found, expected):
    assert found.arrays.keys() == expected.arrays.keys()
    assert all(np.array_equal(found.arrays[name], array) for name, array in expected.arrays.items())


def test_faulty_answers_are_refused_and_the_others_are_merged_as_if_they_were_not_there(tmp_path, faulty_app):
    assert set(FAULTS) <= set(WORDS)
    with Loopback(tmp_path, faulty_app) as federation:
        for index, fault in enumerate(["", "", *WORDS]):
            federation.start_node(index, fault=fault)
        federation.run(500, clients=2 + len(WORDS), timeout=400.0, **TINY)
        log = federation.log("run")
    server = saved(tmp_path)
    assert len(server.reports) == 2
    for report in server.reports:
        assert report.accepted == ("client-0", "client-1")
        why = [reason for _, reason in report.refused]
        assert len(why) == len(WORDS)
        for words in WORDS.values():
            assert sum(words in reason for reason in why) == 1, (words, why)
    assert all(words in log for words in WORDS.values())
    assert_same(server.network, merged([(0, 1), (0, 1)]))


def test_clients_that_are_late_or_leave_and_a_server_that_is_killed_do_not_stop_a_federation(tmp_path, faulty_app):
    config = {**TINY, "rounds": 4, "timeout": 60.0}
    rounds = tmp_path / "federation" / "server"
    with Loopback(tmp_path, faulty_app) as federation:
        for index, fault in enumerate(["", "late", "late"]):  # so that the third is killed before it answers
            federation.start_node(index, fault=fault)
        federation.start_run(clients=3, **config)
        wait("the first round", lambda: (rounds / "round-00001.gpf").exists(), 200)
        federation.kill("node-2")
        wait("the second round", lambda: saved(tmp_path).round == 2, 200)
        for name in ("superlink", "run", "node-0", "node-1"):
            federation.kill(name)
        federation.start_superlink()
        for index in range(2):
            federation.start_node(index)
        federation.run(300, clients=2, **config)
        log = federation.log("run")
    server = saved(tmp_path)
    assert [report.accepted for report in server.reports] == [
        ("client-0", "client-1", "client-2"), ("client-0",), ("client-0", "client-1"), ("client-0", "client-1"),
    ]  # fmt: skip
    assert [len(report.refused) for report in server.reports] == [0, 2, 0, 0]
    assert all("no answer" in why for _, why in server.reports[1].refused)
    assert "from round 3 on" in log
    assert_same(server.network, merged([(0, 1, 2), (0,), (0, 1), (0, 1)]))

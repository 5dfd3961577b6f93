"""The server's side of a round, with clients that are a few lines of NumPy."""

import numpy as np
import pytest
from federations import make_network, same
from hypothesis import given
from hypothesis import strategies as st

from gpf.federated.merging import Network, merge
from gpf.federated.proposals import RANGES, STEP, elect, propose
from gpf.federated.rounds import Server
from gpf.federated.wire import Message, pack, unpack

THRESHOLDS = {"grow_threshold": 0.02, "saliency_threshold": 0.05}


def answer(request, client, change=lambda arrays: None, /, **about):
    """What a client makes of a request: random steps."""
    message = unpack(request)
    random = np.random.default_rng([len(client), message.about["round"]])
    arrays = {n: a + random.normal(size=a.shape, scale=0.1).astype(a.dtype) for n, a in message.network.arrays.items()}
    change(arrays)
    network = Network(arrays, message.network.depth)
    said = {"client": client, "round": message.about["round"], "examples": 10, "before": 0.5, "after": 0.6,
            "thresholds": message.about["thresholds"]}  # fmt: skip
    return pack(Message(network, {**said, **about}))


def nan(arrays):
    arrays["head.bias"][0] = np.nan


def reshape(arrays):
    arrays["head.bias"] = np.zeros(9, np.float32)


def faults(request):
    """By name, what goes wrong, and what the server says of it."""
    good = answer(request, "x")
    return {
        "NaN": (answer(request, "x", nan), "finite"),
        "wrong shape": (answer(request, "x", reshape), "shape"),
        "huge tensor": (answer(request, "x", lambda a: a.update(huge=np.zeros(2**20, np.float32))), "'huge' too"),
        "late": (answer(request, "x", round=unpack(request).about["round"] - 1), "late"),
        "nothing": (b"", "at least"),
        "no answer": ("no answer in time", "in time"),
        "cut off": (good[:-1], "as it says itself"),
        "a lie": (good[:200] + b"!" + good[201:], "SHA-256"),
        "no name": (answer(request, "x", client=None), "client must be a name"),
        "too many examples": (answer(request, "x", examples=10**12), "examples"),
        "examples in words": (answer(request, "x", examples="many"), "examples"),
        "success of two": (answer(request, "x", after=2.0), "after"),
        "other thresholds": (answer(request, "x", thresholds={"a": 1}), "thresholds"),
    }


@pytest.mark.parametrize("fault", faults(Server(make_network(0), thresholds=THRESHOLDS).request()))
def test_a_faulty_client_is_refused_and_the_others_are_merged_as_if_it_were_not_there(fault):
    server, alone = (Server(make_network(0), thresholds=dict(THRESHOLDS)) for _ in range(2))
    request = server.request()
    good = [(name, answer(request, name)) for name in ("a", "bb")]
    wrong, words = faults(request)[fault]
    report = server.finish_round([good[0], ("node 7", wrong), good[1]])
    alone.finish_round(good)
    assert report.accepted == ("a", "bb")
    ((who, why),) = report.refused
    assert who == "node 7"
    assert words in why
    assert "node 7 refused" in str(report)
    assert same(server.network, alone.network)


def test_a_round_in_which_nobody_answers_ends_and_changes_nothing():
    server = Server(make_network(0))
    report = server.finish_round([("a", "no answer in time")])
    assert (server.round, report.accepted, report.success) == (1, (), None)
    assert same(server.network, make_network(0))


def test_a_client_counts_once():
    server = Server(make_network(0))
    request = server.request()
    report = server.finish_round([("one", answer(request, "a")), ("two", answer(request, "a", lambda a: a.update()))])
    assert report.accepted == ("a",)
    assert "answer once" in report.refused[0][1]


def test_clients_weigh_by_their_examples():
    server = Server(make_network(0))
    request = server.request()
    replies = {name: answer(request, name, examples=count) for name, count in (("a", 30), ("bb", 10))}
    server.finish_round(replies.items())
    expected = merge(make_network(0), [unpack(data).network for data in replies.values()], [30, 10])
    assert same(server.network, expected)


def deeper(request, client, depth):
    message = unpack(answer(request, client))
    return pack(Message(make_network(len(client), depth), message.about))


@pytest.mark.parametrize("preferred", [2, 3])
def test_depth_can_be_decided_by_validation(preferred):
    server = Server(make_network(0, 2))
    request = server.request()
    replies = [("a", deeper(request, "a", 3)), ("bb", deeper(request, "bb", 2)), ("ccc", deeper(request, "ccc", 2))]
    server.finish_round(replies, score=lambda network: float(network.depth == preferred))
    assert server.network.depth == preferred


def test_a_killed_server_goes_on_with_its_last_round_and_ends_the_same(tmp_path):
    whole, killed = (Server(make_network(0), thresholds=dict(THRESHOLDS)) for _ in range(2))
    for turn in range(4):
        if turn == 2:
            killed.save(tmp_path)
            killed = Server(make_network(77), thresholds=dict(THRESHOLDS))
            assert killed.restore(tmp_path)
        for server in (whole, killed):
            request = server.request()
            server.finish_round([(name, answer(request, name)) for name in ("a", "bb")])
    assert same(killed.network, whole.network)
    assert killed.reports == whole.reports
    assert killed.thresholds == whole.thresholds


def test_a_save_that_was_cut_off_leaves_the_one_before(tmp_path):
    server = Server(make_network(0))
    server.save(tmp_path)
    (tmp_path / ".round-00001.gpf.new").write_bytes(b"half of it")
    other = Server(make_network(1))
    assert other.restore(tmp_path)
    assert same(other.network, server.network)
    assert not Server(make_network(1)).restore(tmp_path / "elsewhere")


# Thresholds


@given(seed=st.integers(0, 1000), turn=st.integers(1, 100))
def test_proposals_are_a_step_away_at_most_and_the_same_for_the_same_seed(seed, turn):
    tried = propose(THRESHOLDS, (seed, turn))
    assert tried == propose(THRESHOLDS, (seed, turn))
    for name, value in tried.items():
        assert value / THRESHOLDS[name] == pytest.approx(STEP ** round(np.log(value / THRESHOLDS[name]) / np.log(STEP)))
        assert 1 / STEP <= value / THRESHOLDS[name] * (1 + 1e-9) <= STEP * (1 + 1e-6)


def test_validation_picks_the_threshold_under_which_clients_improved_most():
    low, now, high = ({"grow_threshold": value} for value in (0.01, 0.02, 0.04))
    tried = [low, low, now, now, now, high, high]
    assert elect(now, tried, [0.3, 0.31, 0.1, 0.11, 0.1, 0.2, 0.21]) == low
    assert elect(now, tried, [0.2, 0.21, 0.1, 0.11, 0.1, 0.3, 0.31]) == high
    assert elect(now, tried, [0.0, 0.01, 0.1, 0.11, 0.1, 0.0, 0.01]) == now


def test_thresholds_stay_where_the_difference_may_be_noise_or_nobody_tried_both():
    low, now = ({"grow_threshold": value} for value in (0.01, 0.02))
    gains = [0.1, 0.4, 0.0, 0.2]
    pooled = np.sqrt((np.var(gains[:2]) * 2 + np.var(gains[2:]) * 2) / 2)
    assert 0 < np.mean(gains[:2]) - np.mean(gains[2:]) < 2 * pooled  # two standard errors, of two clients each
    assert elect(now, [low, low, now, now], gains) == now
    assert elect(now, [low, low], [1.0, 1.0]) == now
    assert elect(now, [], []) == now
    assert elect(now, [low, now, now], [float("nan"), 0.1, 0.1]) == now


def test_thresholds_stay_in_their_range():
    for name, (low, high) in RANGES.items():
        for bound, beyond in ((high, high * STEP), (low, low / STEP)):
            tried = [{name: beyond}, {name: beyond}, {name: bound}, {name: bound}]
            assert elect({name: bound}, tried, [1.0, 1.0, 0.0, 0.0]) == {name: bound}

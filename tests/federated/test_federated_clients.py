"""Live networks that take over merged ones, and clients that answer, stop and go on."""

import numpy as np
import pytest
import torch
from federations import same

from gpf.federated.admission import Refused
from gpf.federated.adoption import adopt, extract
from gpf.federated.clients import Client, Plan, flat_network
from gpf.federated.merging import Network, identity_array, merge
from gpf.federated.rounds import Server
from gpf.federated.wire import unpack
from gpf.network import MLP, Rules, attach

pytestmark = pytest.mark.usefixtures("short_episodes")

TINY = {"rounds": 3, "rollouts": 2, "lanes": 4, "horizon": 16, "minibatch": 32, "width": 8, "validation_episodes": 2}
X = torch.from_numpy(np.random.default_rng(0).normal(size=(33, 5)).astype(np.float32))


def live(seed=0, depth=2, steps=3):
    """A network that has learned a little, so that its optimizer has moments."""
    torch.manual_seed(seed)
    model = MLP(5, 8, 3, depth)
    net = attach(model, torch.optim.Adam(model.parameters(), lr=1e-2), rules=Rules.fixed(prune_patience=None))
    for _ in range(steps):
        net.optimizer.zero_grad()
        model(X).square().mean().backward()
        net.optimizer.step()
    return net


def learn(net):
    net.optimizer.zero_grad()
    net.model(X).square().mean().backward()
    net.optimizer.step()


def of(net):
    with torch.no_grad():
        return net.model(X).numpy()


def moments(net):
    return {
        name: net.optimizer.state[p]["exp_avg"].clone()
        for name, p in net.model.named_parameters()
        if p in net.optimizer.state
    }


def test_a_network_that_takes_over_its_own_copy_does_not_change():
    net = live()
    before, kept = extract(net), moments(net)
    adopt(net, before)
    assert same(extract(net), before)
    assert all(torch.equal(kept[name], moment) for name, moment in moments(net).items())


def test_values_come_from_the_merged_network_and_moments_stay():
    net, other = live(0), extract(live(1))
    kept = moments(net)
    adopt(net, other)
    assert same(extract(net), other)
    assert all(torch.equal(kept[name], moment) for name, moment in moments(net).items())


def test_a_layer_that_is_new_to_it_joins_and_learns_and_old_moments_stay():
    net, deeper = live(0, depth=1), extract(live(1, depth=3))
    kept = moments(net)
    adopt(net, deeper)
    assert same(extract(net), deeper)
    assert all(torch.equal(moments(net)[name], moment) for name, moment in kept.items())
    before = net.model.layers[2].linear.weight.clone()
    learn(net)
    assert not torch.equal(before, net.model.layers[2].linear.weight)


def test_a_layer_that_it_alone_has_becomes_the_identity_and_stays_its_vote():
    net, merged = live(0, depth=3), extract(live(1, depth=2))
    adopt(net, merged)
    assert net.depth == 3
    np.testing.assert_allclose(of(net), of(live_of(merged)), rtol=1e-5, atol=1e-6)
    own = extract(net).arrays["layers.2.linear.weight"]
    assert np.array_equal(own, identity_array(own))
    assert not moments(net)["layers.2.linear.weight"].any()  # they belonged to other weights
    assert moments(net)["layers.1.linear.weight"].any()


def live_of(network):
    net = live(5, depth=network.depth, steps=0)
    adopt(net, network)
    return net


def test_what_it_pruned_stays_pruned_and_what_was_pruned_elsewhere_is_pruned():
    net = live(0, depth=2)
    net.prune(keep=0.6)
    own = extract(net).masks["layers.0.linear.weight"]
    other = extract(live(1))
    theirs = np.ones((8, 5), bool)
    theirs[:, 2] = False
    merged = Network(
        {**other.arrays, "layers.0.linear.weight": other.arrays["layers.0.linear.weight"] * theirs}, 2,
        {"layers.0.linear.weight": theirs},
    )  # fmt: skip
    adopt(net, merged)
    found = extract(net)
    assert np.array_equal(found.masks["layers.0.linear.weight"], own & theirs)
    for _ in range(3):
        learn(net)
    assert (extract(net).arrays["layers.0.linear.weight"][~(own & theirs)] == 0).all()


def test_freezing_follows_the_merged_network_and_its_own_vote():
    net, other = live(0), extract(live(1))
    net.freeze(1)  # its own vote
    adopt(net, Network(other.arrays, 2, frozen=frozenset({0})))
    assert net.frozen == (0, 1)
    assert same(Network(extract(net).arrays, 2), other)  # frozen layers have the merged values too
    adopt(net, other, before=Network(other.arrays, 2, frozen=frozenset({0})))
    assert net.frozen == (1,)
    before = net.model.layers[0].linear.weight.clone()
    learn(net)
    assert not torch.equal(before, net.model.layers[0].linear.weight)


def test_a_network_without_a_layer_of_the_model_is_refused():
    net = live()
    arrays = {name: a for name, a in extract(net).arrays.items() if name != "head.bias"}
    with pytest.raises(ValueError, match="'head.bias'"):
        adopt(net, Network(arrays, 2))


def test_eight_live_networks_agree_after_a_round():
    nets = [live(n) for n in range(3)]
    merged = merge(extract(nets[0]), [extract(net) for net in nets])
    for net in nets:
        adopt(net, merged)
    assert len({of(net).tobytes() for net in nets}) == 1


# Clients


def federation(plan, clients):
    server = Server(plan.first_network(), thresholds=plan.thresholds())
    return server, [Client(plan, n) for n in range(clients)]


def test_a_round_moves_the_network_and_reports_what_it_took():
    plan = Plan(**TINY)
    server, clients = federation(plan, 2)
    request = server.request()
    replies = [(client.name, client.answer(request)) for client in clients]
    report = server.finish_round(replies)
    assert report.accepted == ("client-0", "client-1")
    assert not report.refused
    assert report.bytes_down == len(request)
    assert report.bytes_up == sum(len(data) for _, data in replies)
    assert not same(server.network, plan.first_network())
    about = unpack(replies[0][1]).about
    assert about["examples"] == 2 * 4 * 16


def test_the_same_round_gets_the_same_answer_and_an_older_one_none():
    plan = Plan(**TINY)
    server, (client,) = federation(plan, 1)
    first = server.request()
    answer = client.answer(first)
    assert client.answer(first) == answer
    server.finish_round([(client.name, answer)])
    client.answer(server.request())
    with pytest.raises(Refused, match="round must be at least 2"):
        client.answer(first)


def test_a_client_that_was_stopped_goes_on_as_if_it_had_not_been(tmp_path):
    plan = Plan(**TINY)
    server, (client,) = federation(plan, 1)
    for turn in range(2):
        request = server.request()
        answer = client.answer(request)
        if turn == 0:
            client.save(tmp_path)
            client = Client(plan, 0)
            client.restore(tmp_path)
            assert client.answer(request) == answer
        server.finish_round([(client.name, answer)])
    whole = Client(plan, 0)
    other = Server(plan.first_network(), thresholds=plan.thresholds())
    for _ in range(2):
        other.finish_round([(whole.name, whole.answer(other.request()))])
    assert same(server.network, other.network)
    assert server.thresholds == other.thresholds


def test_clients_use_up_no_random_numbers_of_others():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    plan = Plan(**TINY)
    server, (client,) = federation(plan, 1)
    client.answer(server.request())
    client.validate(server.network)
    assert torch.equal(torch.rand(4), expected)


def test_a_merged_network_acts_as_the_live_one():
    plan = Plan(**TINY, depth=2)
    client = Client(plan, 0)
    assert np.array_equal(flat_network(plan, extract(client.net)).values, client.learner.network.values)


def test_without_gpf_nothing_grows_and_no_thresholds_are_proposed():
    plan = Plan(**TINY, gpf=False, depth=2)
    server, (client,) = federation(plan, 1)
    about = unpack(client.answer(server.request())).about
    assert (plan.thresholds(), about["thresholds"], client.net.rules.grows) == ({}, {}, False)

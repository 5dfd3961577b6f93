"""The merge rule, by its properties: independent of any training."""

import numpy as np
import pytest
from federations import make_network, networks, outputs, rules, same
from hypothesis import given
from hypothesis import strategies as st

from gpf.federated.merging import Network, Rule, coefficients, identity_array, merge, ownership

seeds = st.integers(0, 10_000)
weights = st.lists(st.floats(0.1, 1e6), min_size=5, max_size=5)


@given(network=networks(), count=st.integers(1, 5), average=rules, some=weights)
def test_merging_identical_models_changes_nothing(network, count, average, some):
    merged = merge(network, [network] * count, some[:count], Rule(average=average))
    assert same(merged, network)


@given(before=networks(depth=2, frozen=False), network=networks(depth=2, frozen=False), average=rules, some=weights)
def test_clients_that_agree_are_followed_exactly(before, network, average, some):
    assert same(merge(before, [network] * 5, some, Rule(average=average)), network)


@given(
    before=networks(depth=2), clients=st.lists(networks(), min_size=2, max_size=5), average=rules, some=weights,
    order=st.randoms(use_true_random=False),
)  # fmt: skip
def test_the_order_of_clients_does_not_matter(before, clients, average, some, order):
    clients = [client for client in clients if client.depth >= 2] or [before]
    pairs = list(zip(clients, some, strict=False))
    shuffled = order.sample(pairs, len(pairs))
    one, other = (
        merge(before, [client for client, _ in some_order], [weight for _, weight in some_order], Rule(average=average))
        for some_order in (pairs, shuffled)
    )
    assert same(one, other)


def with_depth(network, depth, seed):
    """The same network with layers taken off its end, or random ones put there."""
    deeper = make_network(seed, max(depth, network.depth))
    arrays = {
        name: network.arrays.get(name, array) for name, array in deeper.arrays.items()
        if (deeper.layer_of(name) or 0) < depth
    }  # fmt: skip
    return Network(arrays, depth)


@given(seed=seeds, depth=st.sampled_from([1, 3, 4]), average=rules, count=st.integers(3, 5))
def test_a_client_of_another_depth_does_not_change_the_merged_function_of_the_others(seed, depth, average, count):
    """It shares what it has with the others; its further layers are outvoted, its missing ones are not missed."""
    before = make_network(seed, 2)
    others = [make_network(seed + n + 1, 2) for n in range(count)]
    agreed = merge(before, others, rule=Rule(average=average))
    client = with_depth(agreed, depth, seed + 99)
    x = np.random.default_rng(seed).normal(size=(7, 3))
    merged = merge(before, [agreed] * count + [client], rule=Rule(average=average))
    assert merged.depth == 2
    assert np.array_equal(outputs(merged, x), outputs(agreed, x))


@given(seed=seeds)
def test_a_layer_that_only_a_minority_has_is_left_out_and_one_that_most_have_comes_from_its_owners(seed):
    before = make_network(seed, 1)
    shallow, deep = make_network(seed + 1, 1), [make_network(seed + n, 2) for n in (2, 3, 4)]
    assert merge(before, [shallow, shallow, deep[0]]).depth == 1
    merged = merge(before, [shallow, *deep])
    assert merged.depth == 2
    name = "layers.1.linear.weight"
    mean = np.mean([one.arrays[name].astype(np.float64) for one in deep], axis=0)
    np.testing.assert_allclose(merged.arrays[name], mean, rtol=1e-6)


def test_a_layer_that_nobody_has_is_the_identity():
    before = make_network(0, 1)
    deeper = merge(before, [before, before], depth=2)
    x = np.random.default_rng(0).normal(size=(9, 3))
    np.testing.assert_allclose(outputs(deeper, x), outputs(before, x))
    with pytest.raises(ValueError, match=r"square matrix.*\(4, 3\)"):
        identity_array(before.arrays["layers.0.linear.weight"])


@given(before=networks(depth=2), clients=st.lists(networks(), min_size=1, max_size=5), some=weights)
def test_weights_sum_to_one_wherever_anyone_owns_the_entry(before, clients, some):
    for name in before.arrays:
        owned = ownership(before, clients, name)
        shares = coefficients(before, clients, some[: len(clients)], name)
        np.testing.assert_allclose(shares.sum(axis=0), owned.any(axis=0), atol=1e-12)
        assert (shares[~owned] == 0).all()
        assert (shares >= 0).all()


@given(before=networks(depth=2), clients=st.lists(networks(depth=2), min_size=1, max_size=6), average=rules)
def test_merged_masks_follow_the_vote(before, clients, average):
    merged = merge(before, clients, rule=Rule(average=average))
    for name in before.arrays:
        if "layers" not in name:
            assert name not in merged.masks
            continue
        pruned = sum(~client.masks.get(name, np.ones(client.arrays[name].shape, bool)) for client in clients)
        expected = pruned > len(clients) / 2
        assert np.array_equal(~merged.masks.get(name, np.ones_like(expected)), expected)
        assert (merged.arrays[name][expected] == 0).all()


@given(before=networks(depth=2), clients=st.lists(networks(depth=2), min_size=1, max_size=6), some=weights)
def test_merged_values_are_the_weighted_mean_of_their_owners_or_stay(before, clients, some):
    """Entry by entry, with plain loops."""
    shares = (some * 2)[: len(clients)]
    merged = merge(before, clients, shares)
    for name, array in merged.arrays.items():
        layer = before.layer_of(name)
        for place in np.ndindex(array.shape):
            votes = [name in c.masks and not c.masks[name][place] for c in clients]
            owners = [
                (c.arrays[name][place], w) for c, w, gone in zip(clients, shares, votes, strict=True)
                if not gone and layer not in c.frozen
            ]  # fmt: skip
            if sum(votes) > len(clients) / 2:
                expected = 0.0
            elif layer in merged.frozen or not owners:
                expected = before.arrays[name][place]
            else:
                expected = sum(float(v) * w for v, w in owners) / sum(w for _, w in owners)
            assert array[place] == pytest.approx(expected, rel=1e-5, abs=1e-7)


@given(before=networks(depth=2), clients=st.lists(networks(depth=2), min_size=1, max_size=6))
def test_frozen_layers_are_kept_and_freezing_is_voted(before, clients):
    merged = merge(before, clients)
    for layer in range(2):
        votes = sum(layer in client.frozen for client in clients)
        assert (layer in merged.frozen) == (votes > len(clients) / 2)
        for name, array in merged.arrays.items():
            if before.layer_of(name) == layer and layer in merged.frozen:
                kept = merged.masks.get(name, np.ones(array.shape, bool))
                assert np.array_equal(array[kept], before.arrays[name][kept])


@given(seed=seeds, average=st.sampled_from(["trimmed", "median"]), bad=st.floats(-1e4, 1e4), claimed=st.floats(1, 1e9))
def test_robust_averages_stay_within_the_honest_values_whatever_two_of_eight_send(seed, average, bad, claimed):
    before = make_network(seed, 2)
    honest = [make_network(seed + n + 1, 2) for n in range(6)]
    faulty = Network({name: np.full_like(a, bad) for name, a in before.arrays.items()}, 2)
    merged = merge(before, [*honest, faulty, faulty], [1.0] * 6 + [claimed] * 2, Rule(average=average))
    for name, array in merged.arrays.items():
        values = [one.arrays[name] for one in honest]
        assert (array >= np.min(values, axis=0)).all()
        assert (array <= np.max(values, axis=0)).all()


@given(seed=seeds, count=st.integers(1, 8))
def test_the_median_is_numpys(seed, count):
    before, clients = make_network(seed, 2), [make_network(seed + n + 1, 2) for n in range(count)]
    merged = merge(before, clients, rule=Rule(average="median"))
    for name, array in merged.arrays.items():
        np.testing.assert_allclose(array, np.median([c.arrays[name] for c in clients], axis=0), rtol=1e-6)


def test_a_frozen_layer_that_was_not_sent_counts_as_it_was():
    before = make_network(0, 2, kept=0.5)
    sent = {name: array for name, array in before.arrays.items() if before.layer_of(name) != 0}
    masks = {name: mask for name, mask in before.masks.items() if before.layer_of(name) != 0}
    client = Network(sent, 2, masks, frozenset({0}))
    merged = merge(before, [client, client])
    assert same(merged, Network(before.arrays, 2, before.masks, frozenset({0})))


def test_without_clients_nothing_changes():
    before = make_network(0)
    assert merge(before, []) is before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"average": "mode"}, "average .*'mode'"),
        ({"trim": 0.5}, "trim .*0.5"),
        ({"depth_share": 1.0}, "depth_share .*1"),
    ],
)
def test_rules_that_cannot_be_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        Rule(**change)


@pytest.mark.parametrize("wrong", [[1.0], [1.0, 0.0], [1.0, float("nan")], [1.0, -1.0]])
def test_weights_that_cannot_be_are_refused(wrong):
    with pytest.raises(ValueError, match="positive number for each of 2 clients"):
        merge(make_network(0), [make_network(1)] * 2, wrong)

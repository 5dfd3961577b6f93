"""Planned pruning with regrowth: the smallest weights go, and pruned ones with large gradients come back."""

import math

import pytest
import torch
from helpers import assert_same, data, snapshot, train
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import gpf
from gpf.network.pruning import returning, scheduled_keep, scheduled_regrowth

PLAN = {"prune_to": 0.2, "prune_steps": 1000, "prune_from": 0.1, "prune_until": 0.9, "regrow": 0.3}


def attached(optimizer=torch.optim.Adam, steps=20, **rules):
    torch.manual_seed(0)
    model = gpf.MLP(6, 16, 3, depth=3)
    return gpf.attach(model, optimizer(model.parameters(), lr=0.01), rules=gpf.Rules.fixed(**PLAN | rules), steps=steps)


def weights(net):
    return [weight for layer in net.layers for weight in layer.weights]


def pruned(net):
    masks = [torch.zeros_like(w.parameter, dtype=torch.bool) if w.pruned is None else w.pruned for w in weights(net)]
    return torch.cat([mask.flatten() for mask in masks])


def test_the_share_by_hand():
    shares = [scheduled_regrowth(progress, 0.2, 0.6, 0.3) for progress in (0.1, 0.2, 0.4, 0.5, 0.6, 0.9)]
    assert shares == pytest.approx([0.0, 0.3, 0.15, 0.15 * (1 - math.sqrt(0.5)), 0.0, 0.0])


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 30))
def test_those_come_back_whose_gradients_are_largest(seed, count):
    """Against sorting."""
    generator = torch.Generator().manual_seed(seed)
    gradients = [torch.randn(size, generator=generator) for size in (7, 12)]
    masks = [torch.rand(size, generator=generator) < 0.6 for size in (7, 12)]
    gradients[0][0] = math.inf
    flat = torch.cat(gradients).abs()
    flat[~torch.cat(masks) | flat.isinf()] = 0.0
    expected = {int(i) for i in flat.argsort(descending=True)[:count] if flat[i] > 0}
    back = torch.cat(returning(gradients, masks, count))
    assert set(back.nonzero().flatten().tolist()) == expected


def test_density_follows_the_schedule_and_new_weights_are_those_with_the_largest_dense_gradients():
    net = attached()
    x, y = data()
    plain = gpf.MLP(6, 16, 3, depth=3)  # has the same weights, and no masks: its gradients are dense
    total = sum(w.parameter.numel() for w in weights(net))
    regrown = 0
    for step in range(1, 21):
        plain.load_state_dict(net.model.state_dict())
        nn.functional.mse_loss(plain(x), y).backward()
        dense = torch.cat([block.linear.weight.grad.flatten() for block in plain.layers]).abs()
        plain.zero_grad()
        train(net.model, net.optimizer, x, y, 1)
        before = pruned(net)
        net.end_epoch(1.0)
        after, progress = pruned(net), step / 20
        assert int((~after).sum()) == round(scheduled_keep(progress, 0.1, 0.9, 0.2) * total)
        back = before & ~after
        share = scheduled_regrowth(progress, 0.1, 0.9, 0.3)
        candidates = before & (dense > 0)  # units that ReLU has switched off have no gradients
        assert int(back.sum()) == min(int(candidates.sum()), round(share * int((~after).sum())))
        if back.any() and (candidates & after).any():  # nothing that came back was dropped in the same epoch
            assert dense[back].min() >= dense[candidates & after].max() * (1 - 1e-5)
        values = torch.cat([w.parameter.detach().flatten() for w in weights(net)])
        assert not values[back].any()
        regrown += int(back.sum())
    assert regrown > 0
    assert {event.kind for event in net.events} == {"pruned", "regrown"}
    last = [event for event in net.events if event.kind == "regrown"][-1]
    assert last.reason.endswith("pruned weights with the largest gradients, planned, at 80.0% of the training")


def test_weights_that_came_back_have_no_moments_and_learn():
    net = attached()
    x, y = data()
    for _ in range(6):
        train(net.model, net.optimizer, x, y, 1)
        before = [None if w.pruned is None else w.pruned.clone() for w in weights(net)]
        events = net.end_epoch(1.0)
    assert [event.kind for event in events] == ["pruned", "regrown"]
    found = 0
    for weight, mask in zip(weights(net), before, strict=True):
        back = mask & ~weight.pruned
        state = net.optimizer.state[weight.parameter]
        assert not state["exp_avg"][back].any()
        assert not state["exp_avg_sq"][back].any()
        assert not weight.belief[back].any()
        found += int(back.sum())
    assert found > 0
    train(net.model, net.optimizer, x, y, 1)
    values = torch.cat([w.parameter[mask & ~w.pruned] for w, mask in zip(weights(net), before, strict=True)])
    assert torch.count_nonzero(values) > 0.8 * found  # ReLU may have switched off some units


def test_neither_clipping_nor_the_optimizer_sees_gradients_of_pruned_weights():
    net = attached()
    x, y = data()
    for _ in range(6):
        train(net.model, net.optimizer, x, y, 1)
        net.end_epoch(1.0)
    net.optimizer.zero_grad()
    nn.functional.mse_loss(net.model(x), y).backward()
    for weight in weights(net):
        assert not weight.parameter.grad[weight.pruned].any()
        assert weight.dense[weight.pruned].any()


def test_without_the_rule_nothing_is_gathered_and_nothing_comes_back():
    net = attached(regrow=0.0)
    x, y = data()
    gone = pruned(net)
    for _ in range(20):
        train(net.model, net.optimizer, x, y, 1)
        net.end_epoch(1.0)
        assert bool(pruned(net)[gone].all())
        gone = pruned(net)
    assert all(weight.dense is None for weight in weights(net))


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD, torch.optim.Adagrad])
def test_a_plan_with_regrowth_goes_on_after_a_load_bit_for_bit(optimizer, tmp_path):
    net = attached(optimizer)
    x, y = data()
    for _ in range(8):
        train(net.model, net.optimizer, x, y, 1)
        net.end_epoch(1.0)
    train(net.model, net.optimizer, x, y, 1)  # gradients have been gathered
    net.save(tmp_path)
    again = gpf.load(tmp_path, lambda: gpf.MLP(6, 16, 3, depth=3))
    assert_same(snapshot(again), snapshot(net))
    for one in (net, again):
        for _ in range(6):
            one.end_epoch(1.0)
            train(one.model, one.optimizer, x, y, 1)
    assert_same(snapshot(again), snapshot(net))
    assert again.events == net.events


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({**PLAN, "regrow": 1.0}, "^regrow must be from 0 to below 1, got 1.0$"),
        ({"regrow": 0.3}, "^prune_to must be given with regrow=0.3, which goes by the same plan$"),
        ({**PLAN, "granularity": "unit"}, "^granularity must be 'weight' with regrow=0.3, got 'unit'$"),
        ({**PLAN, "regrow": -0.1}, "^regrow must be a finite number of at least 0, got -0.1$"),
    ],
)
def test_rules_that_cannot_be_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        gpf.Rules(**values)

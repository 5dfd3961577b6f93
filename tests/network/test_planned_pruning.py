"""Pruning by a plan: down to a share of the weights or units, fast at first and slowly later."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import gpf
from gpf.network.pruning import round_survivors, scheduled_keep

X = torch.randn(64, 6, generator=torch.Generator().manual_seed(0))


def attached(steps=20, depth=3, **rules):
    torch.manual_seed(0)
    model = gpf.MLP(6, 16, 3, depth=depth)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    values = {"grow_patience": None, "prune_patience": None, "freeze_patience": None, **rules}
    return gpf.attach(model, optimizer, rules=gpf.Rules(**values), steps=steps)


def train(net, steps=1):
    for _ in range(steps):
        net.optimizer.zero_grad()
        nn.functional.mse_loss(net.model(X), X[:, :3]).backward()
        net.optimizer.step()


def test_the_schedule_by_hand():
    """Halfway between 0.2 and 0.6, 0.1 + 0.9 / 8 is left."""
    shares = [scheduled_keep(progress, 0.2, 0.6, 0.1) for progress in (0.0, 0.2, 0.4, 0.6, 1.0)]
    assert shares == pytest.approx([1.0, 1.0, 0.2125, 0.1, 0.1])


def test_density_follows_the_schedule_in_all_layers_and_pruned_weights_stay_zero():
    net = attached(prune_to=0.1, prune_from=0.2, prune_until=0.6, prune_steps=1000)
    weights = [weight for layer in net.layers for weight in layer.weights]
    total = sum(weight.parameter.numel() for weight in weights)
    densities = []
    for _ in range(20):
        train(net)
        net.end_epoch(1.0)
        densities.append(net.density)
        assert not any(w.parameter[w.pruned].any() for w in weights if w.pruned is not None)
    expected = [round(scheduled_keep(step / 20, 0.2, 0.6, 0.1) * total) / total for step in range(1, 21)]
    assert densities == pytest.approx(expected)
    assert all(weight.pruned is not None for weight in weights)  # the newest layer, too
    assert len(net.events) == 8  # from 25 to 60 %
    assert net.events[-1].reason.endswith("to keep 10.0%, planned, at 60.0% of the training")


def test_prunings_are_as_few_as_the_rules_say_and_end_at_the_share():
    net = attached(steps=200, prune_to=0.2, prune_from=0.0, prune_until=1.0, prune_steps=4)
    for _ in range(200):
        train(net)
        net.end_epoch(1.0)
    densities = [1.0, *(event.after.density for event in net.events)]
    assert 2 <= len(net.events) <= 5
    assert densities[-1] == pytest.approx(0.2, abs=1e-2)
    assert all(a - b >= 0.8 / 4 - 0.01 for a, b in itertools.pairwise(densities[:-1]))


def test_the_smallest_weights_go():
    net = attached(prune_to=0.5, prune_from=0.0, prune_until=0.1)
    train(net, 4)
    sizes = torch.cat([w.parameter.detach().abs().flatten() for layer in net.layers for w in layer.weights])
    net.end_epoch(1.0)
    left = torch.cat([w.parameter.detach().abs().flatten() for layer in net.layers for w in layer.weights])
    assert torch.equal(left > 0, sizes > sizes.median())


def test_units_go_by_the_same_schedule():
    net = attached(prune_to=0.25, prune_from=0.0, prune_until=0.5, granularity="unit")
    for _ in range(10):
        train(net)
        net.end_epoch(1.0)
    assert sum(block.linear.out_features for block in net.compact().layers) == 12  # of 48
    torch.testing.assert_close(net.compact()(X), net.model(X), rtol=1e-4, atol=1e-5)


def test_a_plan_goes_on_after_a_load(tmp_path):
    net = attached(prune_to=0.1, prune_from=0.2, prune_until=0.6)
    train(net, 8)
    net.end_epoch(1.0)
    net.save(tmp_path)
    again = gpf.load(tmp_path, lambda: gpf.MLP(6, 16, 3))
    assert again.end_epoch(1.0) == []
    for one in (net, again):
        train(one, 4)
        one.end_epoch(1.0)
    assert again.density == net.density == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"prune_to": 1.5}, "^prune_to must be from 0 to 1, or None, got 1.5$"),
        ({"prune_to": -0.1}, "^prune_to must be a finite number of at least 0, got -0.1$"),
        ({"prune_from": 0.8, "prune_until": 0.5}, "^prune_until must be above prune_from, 0.8, and at most 1, got 0.5"),
        ({"prune_until": 1.2}, "^prune_until must be above prune_from, 0.3, and at most 1, got 1.2$"),
    ],
)
def test_plans_that_cannot_be_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        gpf.Rules(**values)


@given(
    costs=st.lists(st.floats(0.1, 10.0), min_size=1, max_size=40, unique=True),
    multiple=st.integers(1, 16),
    data=st.data(),
)
def test_survivors_are_the_nearest_multiple_and_the_most_salient(costs, multiple, data):
    marks = st.lists(st.booleans(), min_size=len(costs), max_size=len(costs)).map(torch.tensor)
    gone = data.draw(marks)
    dead = gone | data.draw(marks)
    values = torch.tensor(costs)
    if bool(gone.all()):
        return
    rounded = round_survivors(dead, gone, values, multiple)
    before, after, left = (int((~mask).sum()) for mask in (dead, rounded, gone))
    assert bool(rounded[gone].all())  # what is gone stays gone
    if multiple == 1:
        assert torch.equal(rounded, dead)
    elif left >= multiple:
        assert after % multiple == 0
        assert after > 0
        if before + multiple / 2 <= left:
            assert abs(after - before) <= multiple / 2 or after == multiple
    else:
        assert after == left
    if multiple > 1:
        kept, lost = values[~rounded], values[rounded & ~gone]
        assert not len(lost) or kept.min() > lost.max()


@pytest.mark.parametrize("remove_units", [False, True])
def test_layers_keep_multiples_of_units(remove_units):
    net = attached(
        prune_to=0.4, prune_from=0.0, prune_until=0.5, granularity="unit", unit_multiple=4, remove_units=remove_units
    )
    for _ in range(20):
        train(net)
        net.end_epoch(1.0)
    widths = [block.linear.out_features for block in net.compact().layers]
    assert all(width % 4 == 0 for width in widths)
    assert sum(widths) == 20  # of 48, 19 without rounding
    torch.testing.assert_close(net.compact()(X), net.model(X), rtol=1e-4, atol=1e-5)


def test_multiples_of_units_need_pruning_by_unit():
    with pytest.raises(ValueError, match="granularity must be 'unit' with unit_multiple=8, got 'weight'"):
        gpf.Rules(unit_multiple=8)

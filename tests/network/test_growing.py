"""Ways to grow: by how many layers, where they go, what they start as, and when."""

import copy

import pytest
import torch
from helpers import assert_same, snapshot
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import gpf
from gpf.network import growth
from gpf.network.events import Grown, Shape, Undone, newest_layers
from gpf.network.schedule import Schedule

X = torch.randn(32, 8, generator=torch.Generator().manual_seed(0))
Y = torch.tanh(X.flip(1))


class Residual(nn.Module):
    """x + f(x), the same shape at every place."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        return x + self.down(self.up(x).relu())


gpf.network.register_identity(Residual, gpf.network.zero_outputs("down"))


def build(depth=3):
    return nn.Sequential(nn.Sequential(*(Residual() for _ in range(depth))), nn.Linear(8, 8))


def attached(depth=3, steps=None, **rules):
    torch.manual_seed(depth)
    model = build(depth)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    values = {"grow_patience": None, "prune_patience": None, "freeze_patience": None, **rules}
    return gpf.attach(
        model, optimizer, stack="0", block=lambda place: Residual(), rules=gpf.Rules(**values), steps=steps
    )


def train(net, steps=3):
    for _ in range(steps):
        net.optimizer.zero_grad()
        loss = nn.functional.mse_loss(net.model(X), Y)
        loss.backward()
        net.optimizer.step()
    return loss.item()


def states(net):
    """Of each block: its tensors, and the optimizer state of its parameters."""
    found = []
    for layer in net.layers:
        moments = {
            f"{name}/{key}": value.clone()
            for name, parameter in layer.block.named_parameters()
            for key, value in net.optimizer.state.get(parameter, {}).items()
        }
        found.append({name: tensor.clone() for name, tensor in layer.block.state_dict().items()} | moments)
    return found


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    ("by", "init", "sources"),
    [
        ("double", "stack", [0, 1, 2, 0, 1, 2]),
        (2, "stack", [0, 1, 2, 1, 2]),
        (5, "stack", [0, 1, 2, 1, 2, 0, 1, 2]),
        ("double", "interleave", [0, 0, 1, 1, 2, 2]),
        (2, "interleave", [0, 1, 1, 2, 2]),
        (4, "interleave", [0, 0, 1, 1, 2, 2, 2]),
    ],
)
def test_copies_have_weights_buffers_and_moments_of_their_sources_and_learn_on_their_own(by, init, sources):
    net = attached(grow_by=by, grow_init=init)
    train(net)
    net.layers[1].block.calls.fill_(7.0)
    old = states(net)
    event = net.grow()
    assert [next(i for i, of in enumerate(old) if same(of, new)) for new in states(net)] == sources
    assert event.layers == growth.new_places(sources, 3)
    assert (event.before.depth, event.after.depth) == (3, len(sources))
    parameters = list(net.model.parameters())
    assert len({p.data_ptr() for p in parameters}) == len(parameters)
    assert {id(p) for group in net.optimizer.param_groups for p in group["params"]} == {id(p) for p in parameters}
    train(net, 1)
    after = states(net)
    assert not any(same(a, b) for i, a in enumerate(after) for b in after[:i])


def test_a_copied_stack_computes_the_stack_twice():
    net = attached(depth=2, grow_by="double", grow_init="stack")
    train(net)
    stack, head = net.model[0], net.model[1]
    expected = head(stack(stack(X)))
    net.grow()
    torch.testing.assert_close(net.model(X), expected)


@pytest.mark.parametrize("place", ["end", "middle", "start"])
@pytest.mark.parametrize("by", [1, 2, "double"])
@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD])
def test_new_blocks_at_any_place_keep_the_function_and_the_others_states(place, by, optimizer):
    net = attached(depth=4, grow_by=by, grow_place=place)
    train(net)
    old, before = states(net), net.model(X).detach()
    event = net.grow()
    torch.testing.assert_close(net.model(X), before)
    first = {"end": 4, "middle": 2, "start": 0}[place]
    count = 4 if by == "double" else by
    assert event.layers == tuple(range(first, first + count))
    kept = [state for i, state in enumerate(states(net)) if i not in event.layers]
    assert all(same(a, b) for a, b in zip(kept, old, strict=True))
    assert all(not net.layers[i].block.down.weight.any() for i in event.layers)


def test_masks_beliefs_and_frozen_layers_move_with_their_layers_and_copies_have_none():
    net = attached(grow_by="double", grow_init="interleave", freeze_patience=9, belief_increment=0.1)
    train(net)
    net.end_epoch(1.0)
    net.prune(keep=0.5)
    net.freeze(1)
    train(net)
    masks = [[None if w.pruned is None else w.pruned.clone() for w in layer.weights] for layer in net.layers]
    beliefs = [[w.belief.clone() for w in layer.weights] for layer in net.layers]
    frozen = copy.deepcopy(net.layers[1].block.state_dict())
    net.grow()
    assert net.frozen == (2,)
    for place, source in enumerate([0, 0, 1, 1, 2, 2]):
        for weight, mask, belief in zip(net.layers[place].weights, masks[source], beliefs[source], strict=True):
            if place % 2:
                assert weight.pruned is None
                assert not weight.belief.any()
            else:
                assert (weight.pruned is None) == (mask is None)
                assert mask is None or torch.equal(weight.pruned, mask)
                assert torch.equal(weight.belief, belief)
    copied = net.layers[3].block
    assert all(torch.equal(frozen[name], tensor) for name, tensor in copied.state_dict().items())
    train(net)
    assert same(frozen, net.layers[2].block.state_dict())
    assert not same(frozen, copied.state_dict())
    net.thaw(2)
    train(net)
    assert not same(frozen, net.layers[2].block.state_dict())


@pytest.mark.parametrize(
    "rules",
    [
        {"grow_by": "double", "grow_init": "stack"},
        {"grow_by": 2, "grow_init": "interleave"},
        {"grow_by": 2, "grow_place": "middle"},
    ],
)
def test_a_growth_by_several_layers_is_undone_saved_and_loaded(rules, tmp_path):
    net = attached(grow_undoable=True, **rules)
    train(net)
    before = states(net)
    net.grow()
    train(net)
    net.save(tmp_path)
    again = gpf.load(tmp_path, build, block=lambda place: Residual())
    assert_same(snapshot(again), snapshot(net))
    train(net)
    train(again)
    assert_same(snapshot(again), snapshot(net))
    for one in (net, again):
        one.undo()
        assert all(same(a, b) for a, b in zip(states(one), before, strict=True))


@pytest.mark.parametrize("init", ["stack", "interleave"])
def test_an_average_of_the_weights_is_arranged_as_its_model(init):
    net = attached(grow_by="double", grow_init=init)
    average = torch.optim.swa_utils.AveragedModel(net.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn())
    net.follow(average)
    for _ in range(3):
        train(net, 1)
        average.update_parameters(net.model)
    old = [copy.deepcopy(block.state_dict()) for block in average.module[0]]
    net.grow()
    sources = growth.arrangement(3, 3, init, "end")
    for block, source in zip(average.module[0], sources, strict=True):
        assert same(block.state_dict(), old[source])


def test_depth_grows_no_further_than_its_bound():
    net = attached(grow_by="double", grow_init="stack", max_depth=5, grow_at=(0.1, 0.2, 0.3), steps=100)
    for progress, depth in ((0.05, 3), (0.1, 5), (0.2, 5), (0.9, 5)):
        net.end_epoch(1.0, progress=progress)
        assert net.depth == depth


# When


def test_planned_growths_come_after_their_share_of_the_steps_whatever_the_metric():
    net = attached(depth=1, steps=20, grow_at=(0.25, 0.5))
    grown = []
    for epoch in range(10):
        loss = train(net, 2)
        events = net.end_epoch(loss - epoch)  # it always improves
        grown += [(net.schedule.step, event.reason) for event in events]
    assert grown == [(6, "planned, at 30.0% of the training"), (10, "planned, at 50.0% of the training")]


def test_planned_growths_survive_a_load(tmp_path):
    net = attached(depth=1, steps=20, grow_at=(0.25, 0.5))
    train(net, 8)
    net.end_epoch(1.0)
    net.save(tmp_path)
    again = gpf.load(tmp_path, lambda: build(1), block=lambda place: Residual())
    assert again.schedule == Schedule(steps=20, step=8, passed=1, kept=1.0)
    assert again.end_epoch(1.0) == []
    train(again, 2)
    assert [event.kind for event in again.end_epoch(1.0)] == ["grown"]


def test_two_shares_that_pass_in_one_epoch_are_one_growth_by_as_many_layers():
    net = attached(depth=1, grow_at=(0.1, 0.2), steps=10)
    depths = []
    for progress in (0.05, 0.5, 0.6):
        net.end_epoch(1.0, progress=progress)
        depths.append(net.depth)
    assert depths == [1, 3, 3]


def test_slopes_by_hand():
    """From 5.0 down by 1 an epoch at first, by 0.4 later: less than half of it."""
    assert growth.slope([5.0, 4.0, 3.0]) == pytest.approx(-1.0)
    assert growth.slope([2.0, 2.3, 1.5, 1.4]) == pytest.approx(-0.26)
    assert growth.slowed([5.0, 4.0, 3.0], [2.0, 1.6, 1.2], cost_ratio=0.5, mode="min")
    assert not growth.slowed([5.0, 4.0, 3.0], [2.0, 1.6, 1.2], cost_ratio=0.3, mode="min")
    assert growth.slowed([0.1, 0.3], [0.8, 0.85], cost_ratio=0.5, mode="max")
    assert not growth.slowed([0.1, 0.3], [0.8, 0.95], cost_ratio=0.5, mode="max")


def test_a_network_grows_when_it_learns_more_slowly_than_a_deeper_one_would():
    net = attached(depth=1, grow_slope=3, max_depth=2)
    ratio = (8 * 16 + 16 + 16 * 8 + 8 + 72) / (2 * (8 * 16 + 16 + 16 * 8 + 8) + 72)
    losses = [9.0, 8.0, 7.0, 6.2, 5.4, 4.6, 4.0, 3.5, 3.1]  # slopes: 1 at first; then 0.8, 0.7, 0.55 over three
    events = []
    for epoch, loss in enumerate(losses):
        events += [(epoch, event) for event in net.end_epoch(loss)]
    assert ratio == pytest.approx(0.5567, abs=1e-3)
    assert [epoch for epoch, _ in events] == [7]  # 4.6, 4.0, 3.5: 0.55
    assert events[0][1].reason == (
        "the metric improves by 0.55 an epoch, less than 0.56 of the 1 after the last growth"
    )


@given(
    depth=st.integers(1, 12),
    by=st.one_of(st.integers(1, 20), st.just("double")),
    limit=st.one_of(st.none(), st.integers(1, 30)),
    init=st.sampled_from(["stack", "interleave", "identity", "kaiming"]),
    place=st.sampled_from(["end", "middle", "start"]),
)
def test_an_arrangement_has_every_old_layer_in_order_and_as_many_new_ones_as_asked_for(depth, by, limit, init, place):
    count = growth.count_new(depth, by, limit)
    assert 0 <= count <= (depth if by == "double" else by)
    assert limit is None or depth + count <= max(limit, depth)
    arranged = growth.arrangement(depth, count, init, place)
    new = growth.new_places(arranged, depth)
    assert len(arranged) == depth + count
    assert len(new) == count
    assert [source for i, source in enumerate(arranged) if i not in new] == list(range(depth))
    if init in ("stack", "interleave"):
        assert max(arranged, default=0) < depth
        uses = [arranged.count(i) for i in range(depth)]
        assert max(uses) - min(uses) <= 1


def test_the_newest_layers_are_those_of_the_last_growth_that_was_not_undone():
    shape = Shape(1, 1, 1, 0, 0, ())
    first, second, undone = (
        Grown(1, (1, 3), "", shape, shape),
        Grown(2, (4,), "", shape, shape),
        Undone(3, (4,), "", shape, shape),
    )
    assert newest_layers([], 3) == (2,)
    assert newest_layers([first, second], 5) == (4,)
    assert newest_layers([first, second, undone], 4) == (1, 3)


def test_no_newest_layer_is_pruned_when_several_are_new():
    net = attached(grow_by="double", grow_init="interleave")
    train(net)
    net.grow()
    train(net)
    event = net.prune(keep=0.0)
    assert event.layers == (0, 2, 4)
    assert all(net.layers[i].weights[0].pruned is None for i in (1, 3, 5))


# Presets


def test_faster_begins_with_a_quarter_of_the_layers_and_ends_with_all(tmp_path):
    model = build(8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    net = gpf.attach(model, optimizer, stack="0", rules="faster", steps=100)
    depths = []
    for _ in range(20):
        loss = train(net, 5)
        net.end_epoch(loss)
        depths.append(net.depth)
    assert depths == [2] * 7 + [4] * 7 + [8] * 6  # from 37.5 and 75 % on
    assert {id(p) for group in optimizer.param_groups for p in group["params"]} == {id(p) for p in model.parameters()}
    net.save(tmp_path)
    assert_same(snapshot(gpf.load(tmp_path, lambda: build(8))), snapshot(net))


def test_a_shortened_network_is_loaded_though_it_is_built_at_its_final_depth(tmp_path):
    model = build(8)
    net = gpf.attach(model, torch.optim.AdamW(model.parameters()), stack="0", rules="faster", steps=100)
    train(net)
    net.save(tmp_path)
    again = gpf.load(tmp_path, lambda: build(8))
    assert again.depth == 2
    assert_same(snapshot(again), snapshot(net))


@pytest.mark.parametrize(("depth", "start"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (12, 3)])
def test_faster_fits_any_depth(depth, start):
    model = build(depth)
    net = gpf.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), stack="0", rules="faster", steps=10)
    assert net.depth == start
    for _ in range(10):
        net.end_epoch(train(net, 1))
    assert net.depth == depth


def test_faster_grows_by_identity_where_blocks_differ_in_shape():
    model = gpf.MLP(8, 16, 8, depth=4)
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), rules="faster", steps=10)
    assert (net.depth, net.rules.grow_init) == (2, "identity")
    for _ in range(10):
        net.end_epoch(train(net, 1))
    assert net.depth == 4


# What cannot be


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"grow_at": (0.3, 0.1)}, r"^grow_at must be rising shares from 0 to 1, got \(0.3, 0.1\)$"),
        ({"grow_at": (0.3, 1.1)}, "^grow_at must be rising shares from 0 to 1"),
        ({"grow_at": 3}, "^grow_at must be a list of shares from 0 to 1, got 3$"),
        ({"grow_by": 0}, "^grow_by must be a whole number of at least 1, got 0$"),
        ({"grow_by": "triple"}, "^grow_by must be a whole number of at least 1, got 'triple'$"),
        ({"grow_place": "top"}, "^grow_place must be one of end, middle, start, got 'top'$"),
        ({"grow_slope": 1}, "^grow_slope must be a whole number of at least 2, got 1$"),
        ({"grow_init": "stack", "grow_place": "middle"}, "^grow_place must be 'end' with grow_init='stack'"),
        ({"start_depth": 0}, "^start_depth must be a whole number of at least 1, got 0$"),
    ],
)
def test_rules_that_cannot_be_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        gpf.Rules(**values)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rules": gpf.Rules(grow_at=(0.5,))}, "^steps must be given, because the rules go by them"),
        ({"rules": "quicker"}, "^rules must be gpf.Rules or one of faster, smaller, got 'quicker'$"),
        ({"rules": "faster", "steps": 0}, "^steps must be a whole number of at least 1, got 0$"),
        (
            {"rules": gpf.Rules(grow_init="stack")},
            "^grow_init='stack' needs blocks of the same shape, and they differ; use identity, copy, kaiming or built$",
        ),
        ({"rules": gpf.Rules(grow_place="start")}, "^grow_place='start' needs blocks of the same shape"),
    ],
)
def test_what_cannot_be_attached_leaves_the_model_as_it_was(options, message):
    model = gpf.MLP(6, 16, 3, depth=4)
    optimizer = torch.optim.Adam(model.parameters())
    with pytest.raises(ValueError, match=message):
        gpf.attach(model, optimizer, **options)
    assert len(model.layers) == 4
    assert len(optimizer.param_groups[0]["params"]) == len(list(model.parameters()))


def test_a_progress_that_is_no_share_is_refused():
    net = attached(grow_at=(0.5,), steps=10)
    with pytest.raises(ValueError, match="^progress must be a number from 0 to 1, got 1.5$"):
        net.end_epoch(1.0, progress=1.5)
    assert net.epoch == 0

"""What must hold for any depth, width, optimizer and order of events."""

import copy
import tempfile

import torch
from helpers import OPTIMIZERS, assert_consistent, assert_same, data, snapshot, train
from hypothesis import given, settings
from hypothesis import strategies as st

import gpf

ACTIONS = ("train", "grow", "prune", "freeze", "thaw", "undo", "epoch", "reload")


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 3),
    st.integers(2, 9),
    st.sampled_from(sorted(OPTIMIZERS)),
    st.sampled_from(["magnitude", "obd"]),
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 5)), max_size=14),
)
def test_any_course_of_events(depth, width, optimizer, saliency, actions):
    torch.manual_seed(0)
    x, y = data()
    model = gpf.MLP(6, width, 3, depth)
    rules = gpf.Rules(
        grow_patience=2, max_depth=5, grow_undoable=True, prune_patience=2, saliency=saliency, freeze_patience=3,
        saliency_threshold=0.2 if saliency == "magnitude" else 1e-4, freeze_delta=0.05, belief_increment=0.1,
    )  # fmt: skip
    net = gpf.attach(model, OPTIMIZERS[optimizer](model.parameters()), rules=rules)
    for action, number in actions:
        step(net, action, number, x, y, width)
        if action == "reload":
            net = reloaded(net, width)
        assert_consistent(net)


def step(net, action, number, x, y, width):
    """Do one thing, and check what must be true of it."""
    layer = number % net.depth
    if action == "train":
        frozen = {i: copy.deepcopy(net.layers[i].block.state_dict()) for i in net.frozen}
        fresh = net.depth - 1
        newest = net.layers[fresh].weights[0].parameter.detach().clone()
        train(net.model, net.optimizer, x, y, steps=3)
        for i, state in frozen.items():
            assert_same(state, net.layers[i].block.state_dict())
        flowing = net.model(x).std() > 0 and net.layers[fresh].weights[0].parameter.grad is not None
        if not net.layers[fresh].frozen and flowing and net.layers[fresh].weights[0].parameter.grad.any():
            assert not torch.equal(net.layers[fresh].weights[0].parameter, newest)
    elif action == "grow" and net.depth < 6:
        before = net.model(x).detach()
        net.grow()
        torch.testing.assert_close(net.model(x).detach(), before, rtol=1e-6, atol=1e-6)
    elif action == "prune":
        masks = [None if w.pruned is None else w.pruned.clone() for ly in net.layers for w in ly.weights]
        net.prune()
        for old, weight in zip(masks, (w for ly in net.layers for w in ly.weights), strict=True):
            assert old is None or bool((weight.pruned | ~old).all())
    elif action == "freeze" and not net.layers[layer].frozen:
        net.freeze(layer)
    elif action == "thaw" and net.layers[layer].frozen:
        net.thaw(layer)
    elif action == "undo" and net.before_growth is not None:
        net.undo()
    elif action == "epoch":
        net.end_epoch(1.0)


def reloaded(net, width):
    """The network after a save and a load, which must be invisible."""
    with tempfile.TemporaryDirectory() as folder:
        net.save(folder)
        again = gpf.load(folder, lambda: gpf.MLP(6, width, 3))
    assert_same(snapshot(again), snapshot(net))
    assert again.events == net.events
    x, y = data()
    twin = copy.deepcopy(again.model)
    assert torch.equal(twin(x), net.model(x))
    return again

"""What all integrations need to resume: depth before loading, and the rest after it."""

import copy

import pytest
import torch
from helpers import assert_consistent, assert_same, small, snapshot, train
from torch import nn

import gpf
from gpf.network import CheckpointError
from gpf.network.integrations.restoring import (
    attached_again,
    checkpoint_state,
    depth_of,
    extend_to,
    hold_frozen,
    release_frozen,
    restore_into,
    restore_state,
)


def busy():
    """A network of three layers, one pruned and one frozen, with moments, and its data."""
    net, x, y = small(rules=gpf.Rules(grow_undoable=True, max_depth=4))
    train(net.model, net.optimizer, x, y)
    net.grow()
    net.grow()
    train(net.model, net.optimizer, x, y)
    net.prune(keep=0.5)
    net.freeze(1)
    net.end_epoch(1.0)
    return net, x, y


class Outer(nn.Module):
    """A model that makes blocks of a stack that lies deeper."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))

    def make_block(self, depth):
        return nn.Sequential(nn.Linear(4, 4), nn.ReLU())


def test_the_depth_is_read_from_a_state_dict():
    state = gpf.MLP(6, 8, 3, depth=12).state_dict()
    assert depth_of(state, "layers") == 12
    assert depth_of(state, "layer") == 0


@pytest.mark.parametrize("block", [None, lambda depth: nn.Sequential(nn.Linear(4, 4), nn.ReLU())])
def test_a_model_is_extended_before_anything_is_attached(block):
    model = Outer().double().eval()
    extend_to(model, "inner", 3, block)
    assert len(model.inner) == 3
    assert all(p.dtype is torch.float64 for p in model.parameters())
    assert not any(module.training for module in model.modules())
    gpf.attach(model, torch.optim.Adam(model.parameters()), "inner", Outer().make_block)  # nothing is attached yet
    with pytest.raises(CheckpointError, match="at most 2 blocks, as many as were saved, got 3"):
        extend_to(model, "inner", 2, block)


def test_a_whole_checkpoint_is_restored_in_place(tmp_path):
    net, x, y = busy()
    net.save(tmp_path)
    saved = snapshot(net)
    again, *_ = small(rules=net.rules)
    restore_into(again, tmp_path)
    assert_same(snapshot(again), saved)
    assert (again.epoch, again.events) == (net.epoch, net.events)
    net.thaw(1)
    net.grow()
    train(net.model, net.optimizer, x, y)
    restore_into(net, tmp_path)  # back, from a deeper network
    assert_same(snapshot(net), saved)


def test_the_rest_of_a_checkpoint_is_restored_around_weights_and_moments(tmp_path):
    """A framework has loaded weights and moments, of which those of frozen layers are in our part."""
    net, x, y = busy()
    state = checkpoint_state(net)
    assert not any(name.startswith("model/") for name in state["tensors"])
    again = gpf.MLP(6, 8, 3, depth=3)
    again.load_state_dict(net.model.state_dict())
    attached = gpf.attach(again, torch.optim.Adam(again.parameters(), lr=0.01), rules=net.rules)
    restore_state(attached, state)
    attached.optimizer.load_state_dict(copy.deepcopy(net.optimizer.state_dict()))  # as Lightning does next
    assert_same(snapshot(attached), snapshot(net))
    assert (attached.epoch, attached.events) == (net.epoch, net.events)
    for one in (net, attached):
        train(one.model, one.optimizer, x, y)
    assert_same(snapshot(attached), snapshot(net))


def test_frozen_layers_are_kept_from_an_optimizer_and_put_into_it_later(tmp_path):
    net, *_ = busy()
    net.save(tmp_path)
    model = gpf.MLP(6, 8, 3)
    model.head.bias.requires_grad_(False)  # the user's own
    held = hold_frozen(model, tmp_path, None)
    assert [id(p) for p in held] == [id(p) for p in model.layers[1].parameters()]
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad])
    release_frozen(held, optimizer)
    assert all(p.requires_grad for p in held)
    assert not model.head.bias.requires_grad
    again = gpf.attach(model, optimizer, rules=net.rules)
    restore_into(again, tmp_path)
    assert_same(snapshot(again), snapshot(net))


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_a_network_is_attached_again_at_another_depth(depth):
    net, x, y = busy()
    again = attached_again(net, [net.optimizer], depth)
    assert again.depth == len(net.model.layers) == depth
    assert again.frozen == ()
    train(again.model, again.optimizer, x, y)
    assert_consistent(again)


def test_what_does_not_fit_is_refused(tmp_path):
    net, *_ = busy()
    net.save(tmp_path / "whole")
    net.save(tmp_path / "alone", optimizer=False)
    with pytest.raises(CheckpointError, match="it was saved without its optimizer"):
        restore_into(net, tmp_path / "alone")
    wide, *_ = small(width=9)
    with pytest.raises(CheckpointError, match=r"layers.0.linear.weight is 8x6 there and 9x6 here"):
        restore_into(wide, tmp_path / "whole")
    outer = Outer()
    other = gpf.attach(outer, torch.optim.Adam(outer.parameters()), "inner")
    with pytest.raises(CheckpointError, match="its stack is 'layers', not 'inner'"):
        restore_into(other, tmp_path / "whole")
    with pytest.raises(CheckpointError, match="stack must be 'layers', as in the checkpoint, got 'inner'"):
        restore_state(other, checkpoint_state(net))
    with pytest.raises(CheckpointError, match="must have 3 blocks, as many as saved, got 1"):
        restore_state(small()[0], checkpoint_state(net))

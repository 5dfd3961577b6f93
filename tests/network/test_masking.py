"""Pruned weights never come back, whatever the optimizer does."""

import dataclasses

import pytest
import torch
from helpers import OPTIMIZERS, assert_consistent, small, train

import gpf
from gpf.network import pruning
from gpf.network.checkpoints.state import capture, restore
from gpf.network.selection import mean_square_gradient

FORMS = {"default": {}, "foreach": {"foreach": True}, "single": {"foreach": False}, "fused": {"fused": True}}
CASES = [(name, form) for name in OPTIMIZERS for form in FORMS if not (form == "fused" and name == "rmsprop")]


@pytest.mark.parametrize(("name", "form"), CASES)
@pytest.mark.parametrize("saliency", ["magnitude", "obd"])
def test_pruned_weights_gradients_and_moments_stay_zero(name, form, saliency):
    net, x, y = small(name, depth=1, rules=gpf.Rules(saliency=saliency, belief_threshold=2.0), **FORMS[form])
    train(net.model, net.optimizer, x, y)
    net.grow()
    train(net.model, net.optimizer, x, y)
    layer, weight = net.layers[0], net.layers[0].weights[0]
    squares = mean_square_gradient(layer, weight, net.optimizers) if saliency == "obd" else None
    half = pruning.saliency(weight.parameter.detach(), saliency, squares).median().item()
    net.rules = dataclasses.replace(net.rules, saliency_threshold=half)
    event = net.prune()
    assert event.after.pruned == 23  # of 48, those below the median
    masks = [weight.pruned.clone() for weight in net.layers[0].weights]
    first = net.layers[0].weights[0].parameter.detach().clone()
    for _ in range(10):
        train(net.model, net.optimizer, x, y, steps=2)
        assert_consistent(net)
    assert all(torch.equal(w.pruned, m) for w, m in zip(net.layers[0].weights, masks, strict=True))
    kept = ~masks[0]
    assert (net.layers[0].weights[0].parameter.detach()[kept] != first[kept]).any()  # the others go on learning


def test_an_optimizer_that_moves_zeros_is_put_right_after_each_step():
    class Restless(torch.optim.SGD):
        """Adds noise to every weight, gradient or not."""

        def step(self, closure=None):
            super().step(closure)
            with torch.no_grad():
                for group in self.param_groups:
                    for p in group["params"]:
                        p.add_(0.01 * torch.randn_like(p))

    model = gpf.MLP(6, 8, 3)
    optimizer = Restless(model.parameters(), lr=0.01)
    net = gpf.attach(model, optimizer, rules=gpf.Rules(saliency_threshold=0.3, belief_threshold=2.0))
    net.grow()
    net.prune()
    _, x, y = small()
    train(model, optimizer, x, y)
    assert_consistent(net)


def test_clipping_by_norm_does_not_count_pruned_weights():
    net, x, y = small(rules=gpf.Rules(saliency_threshold=0.5, belief_threshold=2.0))
    net.grow()
    net.prune()
    torch.nn.functional.mse_loss(net.model(x), y).backward()
    weight = net.layers[0].weights[0]
    assert not weight.parameter.grad[weight.pruned].any()


@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "rmsprop"])
@pytest.mark.parametrize("way", ["noise on gradients", "gradients by hand", "old values loaded"])
def test_pruned_weights_stay_pruned_whatever_training_code_does(name, way):
    net, x, y = small(name, rules=gpf.Rules(saliency_threshold=0.5, belief_threshold=2.0))
    best = {key: tensor.clone() for key, tensor in net.model.state_dict().items()}
    net.grow()
    best |= {key: tensor.clone() for key, tensor in net.model.state_dict().items() if key.startswith("layers.1")}
    net.prune()
    if way == "old values loaded":
        net.model.load_state_dict(best)
        assert_consistent(net)
    for _ in range(3):
        loss = torch.nn.functional.mse_loss(net.model(x), y)
        net.optimizer.zero_grad()
        if way == "gradients by hand":
            parameters = list(net.model.parameters())
            for p, g in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                p.grad = g + 1.0
        else:
            loss.backward()
        if way == "noise on gradients":
            for p in net.model.parameters():
                p.grad += 1.0
        net.optimizer.step()
        assert_consistent(net)


def test_squares_are_those_of_whole_gradients_since_the_growth():
    """Accumulated over micro-batches, and forgotten when the network grows."""
    net, x, y = small("sgd", rules=gpf.Rules(saliency="obd"))
    train(net.model, net.optimizer, x, y)
    net.grow()
    assert net.layers[0].gradients == 0
    net.optimizer.zero_grad()
    for part in range(4):
        torch.nn.functional.mse_loss(net.model(x[part::4]), y[part::4]).backward()
    weight = net.layers[0].weights[0]
    whole = weight.parameter.grad.clone()
    net.optimizer.step()
    torch.testing.assert_close(mean_square_gradient(net.layers[0], weight, net.optimizers), whole**2)


def test_accumulated_gradients_are_masked():
    net, x, y = small(rules=gpf.Rules(saliency_threshold=0.5, belief_threshold=2.0))
    net.grow()
    net.prune()
    for _ in range(3):
        torch.nn.functional.mse_loss(net.model(x), y).backward()
    weight = net.layers[0].weights[0]
    assert not weight.parameter.grad[weight.pruned].any()
    assert weight.parameter.grad[~weight.pruned].any()


def test_optimal_brain_damage_uses_the_optimizers_own_average():
    """Adam's second moment is E[g^2]; a second copy is not kept. SGD has none, so squares are gathered."""
    for name in ("adam", "adamw", "rmsprop"):
        net, *_ = small(name, rules=gpf.Rules(saliency="obd"))
        assert all(weight.squares is None for layer in net.layers for weight in layer.weights)
    net, x, y = small("sgd", rules=gpf.Rules(saliency="obd"))
    weight = net.layers[0].weights[0]
    expected = torch.zeros_like(weight.parameter)
    for _ in range(4):
        train(net.model, net.optimizer, x, y, steps=1)
        expected += weight.parameter.grad**2
    torch.testing.assert_close(mean_square_gradient(net.layers[0], weight, net.optimizers), expected / 4)


def test_adams_average_is_that_of_the_gradients():
    net, x, y = small("amsgrad", rules=gpf.Rules(saliency="obd"))
    weight = net.layers[0].weights[0]
    gradients = []
    for _ in range(3):
        train(net.model, net.optimizer, x, y, steps=1)
        gradients.append(weight.parameter.grad**2)
    weights = [0.001 * 0.999 ** (2 - k) for k in range(3)]
    expected = sum(w * g for w, g in zip(weights, gradients, strict=True)) / (1 - 0.999**3)
    torch.testing.assert_close(
        mean_square_gradient(net.layers[0], weight, net.optimizers), expected, rtol=1e-4, atol=1e-12
    )


def test_a_mask_that_is_restored_into_a_frozen_layer_holds_when_it_thaws():
    net, x, y = small("momentum", rules=gpf.Rules(saliency_threshold=0.5, belief_threshold=2.0))
    net.grow()
    unpruned = copied(capture(net))
    net.prune()
    pruned = copied(capture(net))
    restore(net, *unpruned)
    net.freeze(0)
    restore(net, *pruned)
    assert net.frozen == ()
    net.freeze(0)
    net.thaw(0)
    train(net.model, net.optimizer, x, y)
    assert 0 < net.layers[0].weights[0].count_pruned() < 48
    assert not net.layers[0].weights[0].parameter[net.layers[0].weights[0].pruned].any()
    assert not net.layers[0].weights[0].parameter.grad[net.layers[0].weights[0].pruned].any()


def copied(state):
    return {name: tensor.detach().clone() for name, tensor in state[0].items()}, state[1]


def test_only_steps_with_a_gradient_count_for_its_mean_square():
    net, x, y = small("sgd", rules=gpf.Rules(saliency="obd"))
    train(net.model, net.optimizer, x, y, steps=1)
    weight = net.layers[0].weights[0]
    square = weight.parameter.grad**2
    net.optimizer.zero_grad()
    net.optimizer.step()  # of nothing
    torch.testing.assert_close(mean_square_gradient(net.layers[0], weight, net.optimizers), square)


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "NAdam", "RAdam", "RMSprop"])
def test_the_average_of_each_optimizer_is_that_of_squared_gradients(kind):
    """After one step of RMSprop 0.01 g^2, with its bias corrected g^2; of the others 0.001 g^2, corrected likewise."""
    model = gpf.MLP(6, 8, 3)
    net = gpf.attach(model, getattr(torch.optim, kind)(model.parameters()), rules=gpf.Rules(saliency="obd"))
    weight = net.layers[0].weights[0]
    assert weight.squares is None
    _, x, y = small()
    train(model, net.optimizer, x, y, steps=1)
    found = mean_square_gradient(net.layers[0], weight, net.optimizers)
    torch.testing.assert_close(found, weight.parameter.grad**2, rtol=1e-3, atol=1e-12)

import pytest
import torch
from helpers import small, train
from torch import nn

import gpf
from gpf.network import surgery


def prune_units(net, layer, units, incoming=True):
    """Prune all weights into (or out of) some units."""
    target = net.layers[layer if incoming else layer + 1]
    weight = target.weights[0]
    mask = torch.zeros_like(weight.parameter, dtype=torch.bool)
    rows = weight.by_unit(mask)
    if incoming:
        rows[units] = True
    else:
        rows[:, units] = True
    surgery.prune(target, weight, mask, net.optimizer.state.get(weight.parameter, {}))


def trained(depth=3, width=16):
    net, x, y = small(depth=depth, width=width)
    train(net.model, net.optimizer, x, y, steps=20)
    return net, x


def widths(model):
    return [module.out_features for module in model.modules() if isinstance(module, nn.Linear)]


@pytest.mark.parametrize("incoming", [True, False])
def test_units_without_inputs_or_outputs_are_gone_and_nothing_else_changes(incoming):
    net, x = trained()
    prune_units(net, 0, [1, 5, 7], incoming)
    prune_units(net, 1, [0, 2], incoming)
    smaller = net.compact()
    assert widths(smaller) == [13, 14, 16, 3]
    torch.testing.assert_close(smaller(x), net.model(x), rtol=1e-5, atol=1e-6)
    assert net.events == []
    assert net.shape().pruned_units == 5
    assert widths(net.model) == [16, 16, 16, 3]  # the network itself is as it was


def test_constants_of_removed_units_are_folded_into_the_next_biases():
    net, x = trained()
    with torch.no_grad():
        net.layers[0].block.linear.bias[3] = 2.5  # a unit without inputs still says 2.5
    prune_units(net, 0, [3])
    torch.testing.assert_close(net.compact()(x), net.model(x), rtol=1e-5, atol=1e-6)


def test_units_that_removal_cuts_off_go_too():
    """Unit 0 of layer 1 hears only unit 0 of layer 0; when nobody hears the former, the latter can go as well."""
    net, x = trained()
    prune_units(net, 1, [0], incoming=False)
    weight = net.layers[1].weights[0]
    mask = torch.zeros_like(weight.parameter, dtype=torch.bool)
    mask[1:, 0] = True  # only unit 0 of layer 1 listens to unit 0 of layer 0
    surgery.prune(net.layers[1], weight, mask, {})
    smaller = net.compact()
    assert widths(smaller) == [15, 15, 16, 3]
    torch.testing.assert_close(smaller(x), net.model(x), rtol=1e-5, atol=1e-6)


def test_units_of_the_last_layer_go_with_the_heads_inputs():
    net, x = trained(depth=1)
    prune_units(net, 0, list(range(4, 16)))
    smaller = net.compact()
    assert smaller.head.in_features == 4
    torch.testing.assert_close(smaller(x), net.model(x), rtol=1e-5, atol=1e-6)


def test_a_layer_keeps_one_unit():
    net, x = trained(depth=2)
    prune_units(net, 0, list(range(16)))
    smaller = net.compact()
    assert widths(smaller)[0] == 1
    torch.testing.assert_close(smaller(x), net.model(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("padding", [0, "valid", 1, "same", (0, 1)])
def test_channels_of_convolutions_go_where_that_is_exact(padding):
    def block(depth):
        return nn.Sequential(nn.Conv2d(2 if depth == 0 else 6, 6, 3, padding=padding), nn.ReLU())

    model = nn.Sequential(nn.Sequential(block(0), block(1), block(2)), nn.Flatten())
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), stack="0", block=block)
    prune_units(net, 0, [0, 1])
    with torch.no_grad():
        net.layers[0].block[0].bias[0] = 1.0  # a constant that padding would cut off at the border
        net.layers[0].block[0].bias[1] = -1.0  # ReLU makes it zero
    x = torch.randn(3, 2, 9, 9)
    smaller = net.compact()
    torch.testing.assert_close(smaller(x), model(x), rtol=1e-5, atol=1e-5)
    assert smaller[0][0][0].out_channels == (4 if padding in (0, "valid") else 5)


def test_feed_forward_parts_of_transformers_shrink():
    from test_models import gpt2, transformer_encoder

    for make, path in ((transformer_encoder, "linear1.weight"), (gpt2, "mlp.c_fc.weight")):
        model, stack, block, loss_of = make()
        net = gpf.attach(model, torch.optim.Adam(model.parameters()), stack=stack, block=block)
        layer = net.layers[0]
        weight = next(w for w in layer.weights if w.name == path)
        mask = torch.zeros_like(weight.parameter, dtype=torch.bool)
        weight.by_unit(mask)[:10] = True
        surgery.prune(layer, weight, mask, {})
        smaller = net.compact()
        before = sum(p.numel() for p in model.parameters())
        assert sum(p.numel() for p in smaller.parameters()) == before - 10 * (16 + 1) - 10 * 16
        tokens = torch.randint(0, 17, (2, 12))
        with torch.no_grad():
            old, new = model(tokens), smaller(tokens)
        if path.startswith("mlp"):
            old, new = old.logits, new.logits
        torch.testing.assert_close(new, old, rtol=1e-4, atol=1e-5)


def test_functions_in_place_and_dropout_do_not_disturb_it():
    def block(depth=0):
        return nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Dropout(0.5))

    model = nn.Sequential(nn.Sequential(block(), block(), block()), nn.Linear(8, 3))
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), stack="0", block=block)
    with torch.no_grad():
        net.layers[0].block[0].bias += 1.0
    prune_units(net, 0, [0, 1])
    prune_units(net, 1, [2], incoming=False)
    smaller = net.compact().eval()
    model.eval()
    x = torch.randn(16, 8)
    torch.testing.assert_close(smaller(x), model(x), rtol=1e-5, atol=1e-6)
    assert [m.out_features for m in smaller.modules() if isinstance(m, nn.Linear)] == [6, 7, 8, 3]


def test_stacks_that_are_not_known_to_be_chains_are_left_alone():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3))

        def make_block(self, depth):
            return nn.Sequential(nn.Linear(8, 8), nn.ReLU())

        def forward(self, x):
            for layer in self.layers:
                x = x + layer(x)
            return x

    model = Residual()
    net = gpf.attach(model, torch.optim.Adam(model.parameters()))
    prune_units(net, 0, [0, 3])
    x = torch.randn(5, 8)
    assert torch.equal(net.compact()(x), model(x))
    assert net.shape().pruned_units == 2


def test_maps_that_are_used_twice_are_left_alone():
    shared = nn.Linear(8, 8)

    def block(depth=0):
        return nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    model = nn.Sequential(nn.Sequential(nn.Sequential(shared, nn.ReLU()), block(), nn.Sequential(shared, nn.ReLU())))
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), stack="0", block=block)
    prune_units(net, 0, [0])
    x = torch.randn(5, 8)
    torch.testing.assert_close(net.compact()(x), model(x))


def test_weights_that_two_maps_share_are_left_alone():
    def block(depth=0):
        return nn.Sequential(nn.Linear(8, 8), nn.ReLU())

    model = nn.Sequential(nn.Sequential(block(), block(), block()))
    model[0][2][0].weight = model[0][0][0].weight
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), stack="0", block=block)
    prune_units(net, 0, [0])
    x = torch.randn(5, 8)
    smaller = net.compact()
    torch.testing.assert_close(smaller(x), model(x))
    assert smaller[0][2][0].weight is smaller[0][0][0].weight


def test_a_normalised_seed_layer_is_left_as_it_is():
    model = gpf.MLP(6, 8, 3, depth=3, layer_norm=True)
    net = gpf.attach(model, torch.optim.Adam(model.parameters()))
    prune_units(net, 0, [0])
    prune_units(net, 1, [1, 2])
    x = torch.randn(5, 6)
    smaller = net.compact()
    torch.testing.assert_close(smaller(x), model(x))
    assert widths(smaller) == [8, 6, 8, 3]


def test_unknown_blocks_are_copied_as_they_are():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.a(x) * self.b(x)

    model = nn.Sequential(nn.Sequential(Odd(), Odd()))
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), stack="0", block=lambda depth: Odd())
    prune_units(net, 0, [0])
    x = torch.randn(5, 4)
    assert torch.equal(net.compact()(x), model(x))


def test_the_compact_model_is_plain_torch():
    net, x = trained()
    prune_units(net, 0, [1])
    smaller = net.compact()
    for module in smaller.modules():
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._load_state_dict_post_hooks)
        assert not any(hooks)
    smaller(x).sum().backward()
    assert all(type(module).__module__.split(".")[0] in ("torch", "gpf") for module in smaller.modules())

import compact_zoo as zoo
import pytest
import torch
from compact_zoo import HEADS, INNER, WIDTH, compacted, size, zero
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
    surgery.prune(target, weight, mask, net.optimizers)


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
    surgery.prune(net.layers[1], weight, mask)
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
        surgery.prune(layer, weight, mask)
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


def test_channels_with_constants_are_merged_into_one_where_padding_would_cut_them_off():
    model, stack, inputs = zoo.made(zoo.cnn)
    first = model[0][0][0]
    zero(first.weight, slice(0, 6))
    with torch.no_grad():
        first.bias[:6] = torch.tensor([0.5, 2.0, -1.0, 0.1, -2.0, 1.0])
    smaller = compacted(model, stack, inputs)[0][0][0]
    assert smaller.out_channels == INNER - 5
    assert smaller.bias[0] == 2.0  # the loudest speaks for all


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_constants_are_folded_where_padding_repeats_them(mode):
    model = nn.Sequential(nn.Conv2d(2, 6, 3), nn.ReLU(), nn.Conv2d(6, 6, 3, padding=1, padding_mode=mode))
    model = nn.Sequential(model)
    zero(model[0][0].weight, slice(0, 5))
    with torch.no_grad():
        model[0][0].bias.fill_(1.0)
    assert compacted(model, "0", torch.randn(2, 2, 9, 9))[0][0].out_channels == 1


def test_statistics_of_batch_norm_go_with_their_channels():
    model, stack, inputs = zoo.made(zoo.cnn_with_batch_norm)
    convolution, norm, _ = model[0][0]
    with torch.no_grad():
        norm.running_var[:3] = 1e-4  # so little that its epsilon matters
        norm.running_mean[:3] = convolution.bias[:3] - 0.01
    zero(model[0][0][0].weight, slice(0, 3))
    zero(model[0][1][0].weight, slice(None), 3)
    norm = compacted(model, stack, inputs)[0][0][1]
    old = model[0][0][1]
    assert norm.num_features == INNER - 4
    for name in ("weight", "bias", "running_mean", "running_var"):
        assert torch.equal(getattr(norm, name), getattr(old, name)[4:])


@pytest.mark.parametrize(
    "part",
    [
        nn.BatchNorm2d(6, track_running_stats=False), nn.LayerNorm([6, 7, 7]), nn.Softmax(1), nn.PReLU(6),
        nn.AvgPool2d(3, padding=1), nn.AvgPool2d(2, divisor_override=3), nn.Flatten(2), nn.ChannelShuffle(2),
    ],
    ids=str,
)  # fmt: skip
def test_functions_that_mix_units_or_keep_no_constants_stop_it(part):
    after = nn.Conv1d(6, 3, 1) if type(part) is nn.Flatten else nn.Conv2d(6, 3, 1)
    model = nn.Sequential(nn.Sequential(nn.Conv2d(2, 6, 3), part, after)).eval()
    zero(model[0][0].weight, slice(0, 3))
    assert size(compacted(model, "0", torch.randn(2, 2, 9, 9))) == size(model)


@pytest.mark.parametrize(
    "part",
    [
        nn.MaxPool2d(3, padding=1),
        nn.AvgPool2d(2),
        nn.AdaptiveAvgPool2d(2),
        nn.Dropout2d(),
        nn.BatchNorm2d(6),
        nn.Mish(),
    ],
    ids=str,
)
def test_functions_that_keep_units_apart_do_not_stop_it(part):
    model = nn.Sequential(nn.Sequential(nn.Conv2d(2, 6, 3), part, nn.Conv2d(6, 3, 1))).eval()
    zero(model[0][0].weight, slice(0, 3))
    assert compacted(model, "0", torch.randn(2, 2, 9, 9))[0][0].out_channels == 3


def test_an_activation_that_mixes_units_is_left_alone():
    for function, units in ((lambda x: x.softmax(-1), INNER), (lambda x: x.abs() + 1.0, INNER - 3)):
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, INNER, 0.0, function, batch_first=True).eval()
        zero(layer.linear1.weight, slice(0, 3))
        smaller = compacted(nn.Sequential(layer), "", torch.randn(2, 5, WIDTH))
        assert smaller[0].linear1.out_features == units


def test_transformer_layers_that_run_in_their_own_way_are_left_alone():
    class Gated(nn.TransformerEncoderLayer):
        def _ff_block(self, x):
            return self.linear2(torch.relu(self.linear1(x)) / (1.0 + self.linear1(x).square().mean()))

    model = nn.Sequential(Gated(WIDTH, HEADS, INNER, 0.0, batch_first=True))
    zero(model[0].linear1.weight, slice(0, 3))
    assert size(compacted(model, "", torch.randn(2, 5, WIDTH))) == size(model)


def test_blocks_that_run_twice_are_left_alone():
    block = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    model = nn.Sequential(block, nn.Sequential(nn.Linear(8, 8), nn.ReLU()), block)
    zero(model[0][0].weight, slice(0, 3))
    zero(model[1][0].weight, slice(0, 3))
    assert size(compacted(model, "", torch.randn(5, 8))) == size(model)


def test_units_inside_a_block_go_however_the_blocks_are_run():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            block = [nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Sequential(nn.Linear(12, 8))) for _ in range(2)]
            self.layers = nn.ModuleList(block)

        def forward(self, x):
            for layer in self.layers:
                x = x + layer(x)
            return x

    model = Residual()
    zero(model.layers[0][0].weight, slice(0, 7))
    zero(model.layers[1][2][0].weight, slice(0, 7))  # its outputs are added to its inputs
    smaller = compacted(model, "layers", torch.randn(5, 8))
    assert widths(smaller) == [5, 8, 12, 8]


@pytest.mark.parametrize(
    "parts",
    [
        (nn.Conv2d(2, 6, 3, groups=2), nn.Conv2d(6, 3, 1)),
        (nn.Conv2d(2, 6, 4), nn.Flatten(2), nn.Linear(36, 3)),  # features are places here, not channels
        (nn.Conv2d(2, 6, 4), nn.ReLU(), nn.Linear(6, 3)),
        (nn.Conv2d(2, 6, 4), nn.Flatten(2), nn.BatchNorm1d(6), nn.Conv1d(6, 3, 1)),
    ],
)
def test_maps_whose_units_are_not_the_next_ones_inputs_are_left_alone(parts):
    model = nn.Sequential(nn.Sequential(*parts)).eval()
    zero(model[0][0].weight, slice(0, 3))
    assert size(compacted(model, "0", torch.randn(2, 2, 9, 9))) == size(model)


def test_a_normalisation_of_flattened_places_is_left_alone():
    model = nn.Sequential(nn.Sequential(nn.Conv1d(2, 6, 3), nn.Flatten(), nn.BatchNorm1d(42), nn.Linear(42, 3))).eval()
    zero(model[0][0].weight, slice(0, 3))
    assert size(compacted(model, "0", torch.randn(2, 2, 9))) == size(model)


def test_a_normalisation_that_is_used_twice_is_left_alone():
    norm = nn.BatchNorm1d(8, affine=False)
    parts = [nn.Linear(8, 8), norm, nn.Linear(8, 8), norm, nn.Linear(8, 8)]
    model = nn.Sequential(nn.Sequential(*parts)).eval()
    zero(model[0][0].weight, slice(0, 3))
    assert size(compacted(model, "0", torch.randn(5, 8))) == size(model)

"""Pruned units leave the model while it learns: its function stays, and everything that belongs to them goes along."""

import copy

import compact_zoo as zoo
import pytest
import torch
from compact_zoo import INNER, outputs, size
from helpers import OPTIMIZERS, assert_consistent, assert_same, data, snapshot, train
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.optim.swa_utils import AveragedModel

import gpf
from gpf.network import Removed, surgery

UNITS = gpf.Rules.fixed(granularity="unit")
MAKERS = [
    zoo.mlp, zoo.cnn, zoo.unpadded_cnn, zoo.cnn_with_batch_norm, zoo.torch_encoder, zoo.gpt2, zoo.llama,
    zoo.llama_with_grouped_queries, zoo.bert, zoo.resnet, zoo.gated_t5,
]  # fmt: skip
EVERY = pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
TORCH = {
    **OPTIMIZERS,
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "adadelta": lambda p: torch.optim.Adadelta(p),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.001),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.01),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.01),
}


def attached(make, rules=UNITS, optimizer=torch.optim.Adam):
    model, stack, inputs = zoo.made(make)
    net = gpf.attach(model, optimizer(model.parameters(), lr=1e-3), stack=stack, rules=rules)
    return net, inputs


def learn(net, inputs, steps=2):
    for _ in range(steps):
        loss = outputs(net.model.train(), inputs).square().mean()
        net.optimizer.zero_grad()
        loss.backward()
        net.optimizer.step()
    net.model.eval()
    return loss


def assert_close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5 * float(other.detach().abs().max()))


def mask_units(net, layer, units):
    """Prune all weights into some units of an MLP."""
    weight = net.layers[layer].weights[0]
    mask = torch.zeros_like(weight.parameter, dtype=torch.bool)
    mask[units] = True
    surgery.prune(net.layers[layer], weight, mask, net.optimizers)


def widths(model):
    return [module.out_features for module in model.modules() if isinstance(module, nn.Linear)]


@EVERY
def test_the_function_stays_the_model_is_as_small_as_a_compacted_one_and_it_learns_on(make):
    net, inputs = attached(make)
    learn(net, inputs)
    net.prune(keep=0.4)
    expected, small = outputs(net.model, inputs), net.compact()
    before = size(net.model)
    event = net.remove_units()
    assert isinstance(event, Removed)
    assert event.structural
    assert_close(outputs(net.model, inputs), expected)
    assert size(small) <= size(net.model) < before
    assert size(net.model) < 1.1 * size(small)  # a unit may stay where compact would add a bias
    assert event.before.parameters - event.after.parameters == before - size(net.model) or make is not zoo.gpt2
    assert_consistent(net)
    assert learn(net, inputs, 20) < learn(net, inputs, 1) * 2.0
    assert all(parameter.grad is not None for layer in net.layers for parameter in layer.parameters())
    assert_close(outputs(net.compact(), inputs), outputs(net.model, inputs))


@pytest.mark.parametrize("optimizer", TORCH)
def test_weights_and_optimizer_state_of_the_survivors_are_untouched(optimizer):
    """Against plain indexing, and against a plain torch model of the small size that learns on."""
    model = gpf.MLP(6, 8, 3, depth=3)
    made = TORCH[optimizer](model.parameters())
    net = gpf.attach(model, made, rules=gpf.Rules(saliency="obd", activation_threshold=0.1, granularity="unit"))
    x, y = data()
    train(model, made, x, y)
    net.end_epoch(1.0)
    train(model, made, x, y, steps=2)
    gone = [[1, 5], [0], [2, 3, 7]]
    for layer, units in enumerate(gone):
        mask_units(net, layer, units)
        with torch.no_grad():
            net.layers[layer].block.linear.bias[units] = -1.0  # they say nothing: no bias changes
    kept = [torch.tensor([i for i in range(8) if i not in units]) for units in gone]
    every = torch.arange(6), torch.arange(3)
    rows, columns = [*kept, every[1]], [every[0], *kept]
    maps = [*(layer.block.linear for layer in net.layers), model.head]

    def left(values, i):
        """What is to be left of a tensor that belongs to map i: a weight, a bias, or a factor of Adafactor's."""
        if values.dim() == 2:
            row, column = rows[i] if len(values) > 1 else [0], columns[i] if values.shape[1] > 1 else [0]
            return values[row][:, column].clone()
        return values[rows[i]].clone() if values.dim() == 1 else values.clone()

    expected = [
        {
            name: (left(p.detach(), i), {key: left(v, i) for key, v in made.state[p].items() if torch.is_tensor(v)})
            for name, p in one.named_parameters()
        }
        for i, one in enumerate(maps)
    ]
    kinds = ("belief", "previous", "squares")
    beliefs = [
        {kind: None if (v := getattr(layer.weights[0], kind)) is None else left(v, i) for kind in kinds}
        for i, layer in enumerate(net.layers)
    ]
    activations = [layer.activation[kept[i]].clone() for i, layer in enumerate(net.layers)]
    order = [name for p in made.param_groups[0]["params"] for name, q in model.named_parameters() if p is q]

    net.remove_units()
    assert [len(row) for row in rows] == widths(model)
    for i, one in enumerate(maps):
        for name, parameter in one.named_parameters():
            values, state = expected[i][name]
            assert torch.equal(parameter, values)
            now = {key: value for key, value in made.state[parameter].items() if torch.is_tensor(value)}
            assert now.keys() == state.keys()
            assert all(torch.equal(now[key], state[key]) for key in state), state
    for i, layer in enumerate(net.layers):
        assert layer.weights[0].pruned is None
        assert torch.equal(layer.activation, activations[i])
        for kind, values in beliefs[i].items():
            assert values is None or torch.equal(getattr(layer.weights[0], kind), values)
    assert [name for p in made.param_groups[0]["params"] for name, q in model.named_parameters() if p is q] == order

    plain = copy.deepcopy(net.model)
    alone = TORCH[optimizer](plain.parameters())
    alone.load_state_dict(copy.deepcopy(made.state_dict()))
    assert train(plain, alone, x, y) == train(model, made, x, y)
    assert all(torch.equal(p, q) for p, q in zip(plain.parameters(), model.parameters(), strict=True))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sets(st.integers(0, 9), max_size=9), min_size=3, max_size=3), st.integers(0, 10**6))
def test_any_units_of_a_chain_can_go(gone, seed):
    torch.manual_seed(seed)
    model = gpf.MLP(6, 10, 3, depth=3)
    net = gpf.attach(model, torch.optim.Adam(model.parameters(), lr=0.01))
    x, y = data()
    train(model, net.optimizer, x, y, 2)
    for layer, units in enumerate(gone):
        mask_units(net, layer, sorted(units))
    expected = model(x)
    event = net.remove_units()
    assert_close(model(x), expected)
    assert widths(model) == [*(10 - len(units) for units in gone), 3]
    assert event.reason == f"{sum(map(len, gone))} units that pruning has cut off, asked for"
    assert event.layers == tuple(i for i, units in enumerate(gone) if units)
    assert net.shape().pruned == 0
    assert_consistent(net)


def test_zeros_that_are_not_pruned_are_weights():
    """A new residual block puts out zero: nobody hears its units yet."""
    net, inputs = attached(zoo.gpt2, gpf.Rules(granularity="unit"))
    net.grow()
    before = size(net.model)
    assert net.remove_units().reason.startswith("0 units")
    assert size(net.model) == before


def test_single_pruned_weights_of_what_is_left_stay_pruned():
    net, inputs = attached(zoo.mlp, gpf.Rules.fixed())
    learn(net, inputs)
    net.prune(keep=0.6)
    mask_units(net, 1, [0, 4])
    mask_units(net, 0, [2])
    pruned = net.layers[1].weights[0].pruned.clone()
    net.remove_units()
    rows, columns = [i for i in range(INNER) if i not in (0, 4)], [i for i in range(INNER) if i != 2]
    assert torch.equal(net.layers[1].weights[0].pruned, pruned[rows][:, columns])
    learn(net, inputs)
    assert_consistent(net)


def test_a_channel_that_speaks_for_others_does_so_through_pruned_weights_too():
    """In padded convolutions one channel says what all removed ones said."""
    net, inputs = attached(zoo.cnn, gpf.Rules.fixed())
    with torch.no_grad():
        net.layers[0].block[0].bias.fill_(1.0)
    net.prune(keep=0.5)
    mask_units(net, 0, [0, 1, 2])
    expected = outputs(net.model, inputs)
    net.remove_units()
    assert net.layers[0].block[0].out_channels == INNER - 2
    assert_close(outputs(net.model, inputs), expected)
    outputs(net.model, inputs).sum().backward()
    net.optimizer.step()
    assert_consistent(net)


def test_no_parameter_is_added():
    """`compact` would add a bias to the second map; while the network learns, one unit stays instead."""
    blocks = [nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4, bias=False), nn.LayerNorm(4))]
    model = nn.Sequential(nn.Sequential(*blocks), nn.Linear(4, 2))
    with torch.no_grad():
        model[0][0][0].bias.fill_(0.5)
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), stack="0")
    mask_units(net, 0, [0, 2, 5])
    x = torch.randn(5, 4)
    expected = model(x)
    net.remove_units()
    assert_close(model(x), expected)
    assert widths(model)[:2] == [4, 4]
    assert model[0][0][2].bias is None
    assert widths(net.compact())[:2] == [3, 4]


def test_by_the_rules_units_go_after_each_pruning_down_to_the_share_of_all():
    model = gpf.MLP(6, 16, 3, depth=3)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rules = gpf.Rules.fixed(
        prune_to=0.25, prune_from=0.0, prune_until=0.5, prune_steps=1000, granularity="unit", remove_units=True
    )
    net = gpf.attach(model, optimizer, rules=rules, steps=20)
    x, y = data()
    for step in range(1, 21):
        train(model, optimizer, x, y, 1)
        net.end_epoch(1.0)
        keep = 0.25 + 0.75 * (1 - min(1.0, step / 10)) ** 3
        assert sum(widths(model)[:-1]) == round(keep * 48)
        assert net.density == 1.0
    assert {event.kind for event in net.events} == {"pruned", "removed"}
    assert net.events[1].reason.endswith("units that pruning has cut off, planned, at 5.0% of the training")


def test_thresholds_remove_units_too():
    rules = gpf.Rules.fixed(saliency_threshold=10.0, belief_threshold=0.3, granularity="unit", remove_units=True)
    net, inputs = attached(zoo.mlp, rules)
    assert net.prune().kind == "pruned"
    assert [event.kind for event in net.events] == ["pruned", "removed"]
    assert widths(net.model) == [1, 1, INNER, 3]  # the newest layer is spared


@pytest.mark.parametrize("make", [zoo.mlp, zoo.cnn_with_batch_norm, zoo.torch_encoder, zoo.gpt2,
                                  zoo.llama_with_grouped_queries], ids=lambda make: make.__name__)  # fmt: skip
def test_a_shrunk_network_is_resumed_bit_for_bit(make, tmp_path):
    net, inputs = attached(make)
    learn(net, inputs)
    net.prune(keep=0.5)
    net.remove_units()
    learn(net, inputs)
    net.prune(keep=0.4)
    net.save(tmp_path)
    again = gpf.load(tmp_path, lambda: zoo.made(make)[0])
    assert_same(snapshot(again), snapshot(net))
    assert again.events == net.events
    again.model.eval()
    for one in (net, again):
        torch.manual_seed(1)  # for dropout
        learn(one, inputs)
        one.prune(keep=0.3)
        one.remove_units()
        learn(one, inputs)
    assert torch.equal(outputs(again.model, inputs), outputs(net.model, inputs))
    assert_same(snapshot(again), snapshot(net))


def test_queries_that_go_by_themselves_are_gone_after_a_load(tmp_path):
    net, inputs = attached(zoo.llama_with_grouped_queries)
    layer = net.layers[0]
    weight = next(w for w in layer.weights if w.name == "self_attn.o_proj.weight")
    mask = torch.zeros_like(weight.parameter, dtype=torch.bool)
    mask.view(len(mask), -1, 2, 4)[:, :, 0] = True  # the first query of each group
    surgery.prune(layer, weight, mask, net.optimizers)
    expected = outputs(net.model, inputs)
    net.remove_units()
    assert_close(outputs(net.model, inputs), expected)
    net.save(tmp_path)
    again = gpf.load(tmp_path, lambda: zoo.made(zoo.llama_with_grouped_queries)[0])
    assert torch.equal(outputs(again.model.eval(), inputs), outputs(net.model, inputs))


def test_a_build_of_another_size_is_refused_if_no_unit_was_removed(tmp_path):
    net, _ = attached(zoo.mlp)
    net.save(tmp_path)
    with pytest.raises(gpf.network.CheckpointError, match=r"layers.0.linear.weight is 20x6 .* there and 24x6"):
        gpf.load(tmp_path, lambda: gpf.MLP(6, 24, 3, depth=3))


def test_frozen_layers_shrink_and_thaw_with_what_is_left_of_their_moments():
    net, inputs = attached(zoo.mlp)
    learn(net, inputs)
    net.freeze(1)
    mask_units(net, 0, [1, 2])
    kept = [i for i in range(INNER) if i not in (1, 2)]
    moments = net.stored[1]["linear.weight"][1]["exp_avg"][:, kept].clone()
    net.remove_units()
    net.thaw(1)
    linear = net.layers[1].block.linear
    assert torch.equal(net.optimizer.state[linear.weight]["exp_avg"], moments)
    learn(net, inputs)
    assert_consistent(net)
    order = [
        next(name for name, q in net.model.named_parameters() if p is q)
        for p in net.optimizer.param_groups[0]["params"]
    ]
    assert order == [name for name, _ in net.model.named_parameters()]


@pytest.mark.parametrize("make", [zoo.mlp, zoo.cnn, zoo.cnn_with_batch_norm])
def test_an_average_loses_the_same_units_and_keeps_its_function(make):
    net, inputs = attached(make)
    average = AveragedModel(net.model)
    net.follow(average)
    for _ in range(3):
        learn(net, inputs, 1)
        average.update_parameters(net.model)
    net.prune(keep=0.5)
    expected = outputs(average.module.eval(), inputs)
    net.remove_units()
    assert {n: p.shape for n, p in average.module.named_parameters()} == {
        n: p.shape for n, p in net.model.named_parameters()
    }
    assert_close(outputs(average.module, inputs), expected)
    learn(net, inputs, 1)
    average.update_parameters(net.model)
    net.follow(copy.deepcopy(net.model))


def test_hooks_of_the_user_move_to_the_new_parameter_and_gradients_are_kept():
    net, inputs = attached(zoo.mlp)
    seen = []
    parameter = net.layers[0].block.linear.weight
    parameter.register_hook(lambda gradient: seen.append(gradient.shape))
    parameter.mark = "mine"
    learn(net, inputs)
    seen.clear()
    gradient = parameter.grad.clone()
    mask_units(net, 0, [3])
    net.remove_units()
    new = net.layers[0].block.linear.weight
    assert torch.equal(new.grad, torch.cat([gradient[:3], gradient[4:]]))
    assert new.mark == "mine"
    learn(net, inputs, 1)
    assert seen == [new.shape]


@pytest.mark.parametrize("init", ["identity", "built", "kaiming", "copy"])
def test_an_mlp_grows_after_a_removal(init, tmp_path):
    rules = gpf.Rules(granularity="unit", grow_init=init, grow_undoable=True)
    model = gpf.MLP(6, 16, 3, depth=2)
    net = gpf.attach(model, torch.optim.Adam(model.parameters(), lr=0.01), rules=rules)
    x, y = data()
    mask_units(net, 0, [0, 1, 2, 3, 4])
    mask_units(net, 1, [0, 1, 2, 3, 5])
    net.remove_units()
    expected = model(x)
    net.grow()
    assert widths(model) == [11, 11, 11, 3]
    if init == "identity":
        assert_close(model(x), expected)
    train(model, net.optimizer, x, y)
    assert_consistent(net)
    net.save(tmp_path)
    again = gpf.load(tmp_path, lambda: gpf.MLP(6, 16, 3, depth=2))
    assert_same(snapshot(again), snapshot(net))
    again.undo()
    assert widths(again.model) == [11, 11, 3]


def test_residual_blocks_grow_after_a_removal(tmp_path):
    net, inputs = attached(zoo.gpt2, gpf.Rules(granularity="unit", grow_place="end"))
    net.prune(keep=0.5)
    net.remove_units()
    expected = outputs(net.model, inputs)
    net.grow()
    net.model.eval()
    assert_close(outputs(net.model, inputs), expected)
    learn(net, inputs)
    net.save(tmp_path)
    again = gpf.load(tmp_path, lambda: zoo.made(zoo.gpt2)[0])
    assert torch.equal(outputs(again.model.eval(), inputs), outputs(net.model, inputs))


@pytest.mark.parametrize("rules", [{"grow_init": "stack"}, {"grow_init": "interleave"}, {"grow_place": "start"}])
def test_blocks_of_different_sizes_do_not_take_each_others_places(rules):
    net, inputs = attached(zoo.gpt2, gpf.Rules(granularity="unit", **rules))
    mask = torch.zeros_like(net.layers[1].weights[2].parameter, dtype=torch.bool)
    mask[:, :5] = True
    surgery.prune(net.layers[1], net.layers[1].weights[2], mask, net.optimizers)
    net.remove_units()
    before = snapshot(net)
    with pytest.raises(ValueError, match="needs blocks of the same shape, and they differ; use "):
        net.grow()
    assert_same(snapshot(net), before)
    assert net.depth == 2


def test_a_factory_of_wider_blocks_is_refused_before_anything_changes():
    model = gpf.MLP(6, 16, 3, depth=2)
    factory = gpf.MLP(6, 16, 3).make_block
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), block=factory)
    mask_units(net, 1, [0, 1])
    net.remove_units()
    before = snapshot(net)
    with pytest.raises(ValueError, match="^block must make blocks of 14 inputs and outputs, .* got 16 and 16$"):
        net.grow()
    assert_same(snapshot(net), before)


def test_a_growth_from_before_a_removal_cannot_be_undone():
    net, inputs = attached(zoo.mlp, gpf.Rules(granularity="unit", grow_undoable=True))
    net.grow()
    net.remove_units()
    assert net.before_growth is not None  # nothing was removed
    mask_units(net, 0, [0])
    net.remove_units()
    with pytest.raises(ValueError, match="there is no growth to undo"):
        net.undo()


def test_states_from_before_a_removal_are_refused_whole():
    from gpf.network.checkpoints.state import capture, restore

    net, _ = attached(zoo.mlp)
    then = capture(net)
    mask_units(net, 0, [0])
    net.remove_units()
    before = snapshot(net)
    with pytest.raises(ValueError, match=r"^units were removed since this state was captured: layers.0.linear.weight"):
        restore(net, *then)
    assert_same(snapshot(net), before)


def test_sharded_models_and_rules_without_units_are_refused():
    net, _ = attached(zoo.mlp)
    net.sharded = True
    with pytest.raises(ValueError, match="^units cannot be removed from a sharded model"):
        net.remove_units()
    rules = gpf.Rules.fixed(granularity="unit", remove_units=True)
    with pytest.raises(ValueError, match="^remove_units must be False for a sharded model, got True$"):
        net.restart(rules)
    with pytest.raises(ValueError, match=r"^regrow must be 0 for a sharded model, got 0.3$"):
        net.restart(gpf.Rules.fixed(prune_to=0.5, regrow=0.3), steps=10)
    with pytest.raises(ValueError, match="^granularity must be 'unit' with remove_units=True, got 'weight'$"):
        gpf.Rules(remove_units=True)
    with pytest.raises(ValueError, match="^remove_units must be True or False, got 1$"):
        gpf.Rules(remove_units=1)


class ResidualConvolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Conv2d(6, 6, 3, padding=1, bias=False) for _ in range(2))
        self.norm, self.last = nn.BatchNorm2d(6), nn.BatchNorm2d(6)

    def forward(self, x):
        return torch.relu(x + self.last(self.second(torch.relu(self.norm(self.first(x))))))


class Renamed(ResidualConvolutions):
    """Runs as its parent does."""


class Rewired(ResidualConvolutions):
    def forward(self, x):
        hidden = torch.relu(self.norm(self.first(x)))
        return hidden + self.second(hidden)


gpf.network.register_units(ResidualConvolutions, lambda block: [(block.first, [block.norm, torch.relu], block.second)])


@pytest.mark.parametrize("kind", [ResidualConvolutions, Renamed])
def test_a_block_type_of_the_users_own_says_where_its_channels_can_go(kind):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 6, 1), nn.Sequential(kind(), kind()), nn.Flatten(), nn.Linear(6 * 25, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    net = gpf.attach(model, optimizer, stack="1", rules=UNITS)
    x = torch.randn(8, 3, 5, 5)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    net.prune(keep=0.5)
    model.eval()
    expected = model(x)
    statistics = model[1][0].norm.running_mean.clone()
    dead = net.layers[0].weights[0].pruned.flatten(1).all(1)
    net.remove_units()
    assert_close(model(x), expected)
    channels = [block.first.out_channels for block in model[1]]
    assert channels in ([3, 6], [4, 6])  # in padded convolutions one may stay to speak for the others
    assert channels == [block.second.in_channels for block in model[1]]
    assert channels == [block.norm.num_features for block in model[1]]
    assert all(block.last.num_features == 6 for block in model[1])
    left = model[1][0].norm.running_mean
    assert set(statistics[~dead].tolist()) <= set(left.tolist()) <= set(statistics.tolist())
    model.train()
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
    assert_consistent(net)


def test_a_subclass_with_its_own_forward_is_not_known():
    model = nn.Sequential(nn.Sequential(Rewired()))
    net = gpf.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), stack="0", rules=UNITS)
    assert net.prune(keep=0.5).reason.startswith("0 of 0 units")


@pytest.mark.parametrize(
    ("chain", "message"),
    [
        (lambda block: (block.up, [nn.LayerNorm(8)], block.down), "must take each unit by itself, got LayerNorm$"),
        (lambda block: (block.up, [torch.relu, torch.sort], block.down), "must take each unit by itself, got sort$"),
        (
            lambda block: (nn.Bilinear(2, 2, 2), [], block.down),
            "must lie between Linear, Conv1d or Conv2d, got Bilinear",
        ),
        (lambda block: (block.up, [], block.up), "must take the 8 units of the first, got 4 inputs$"),
    ],
)
def test_declarations_that_cannot_be_are_refused(chain, message):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

        def forward(self, x):
            return x + self.down(self.up(x))

    gpf.network.register_units(Block, lambda block: [chain(block)])
    model = nn.Sequential(nn.Sequential(Block()))
    net = gpf.attach(model, torch.optim.SGD(model.parameters(), lr=0.1), stack="0", rules=UNITS)
    with pytest.raises(ValueError, match=message):
        net.compact()


class Multiplied(nn.Module):
    """Units that two maps make together, in a way that only the block knows."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.down = nn.Linear(4, 8), nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return x + self.down(self.left(x).sin() * self.right(x).cumsum(0))


gpf.network.register_units(Multiplied, lambda block: [([block.left, block.right], [], block.down)])


def test_units_that_several_maps_make_together_go_from_all_of_them():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Sequential(Multiplied(), Multiplied()))
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), stack="0", rules=UNITS)
    net.prune(keep=0.5)
    x = torch.randn(6, 4)
    expected = model(x)
    net.remove_units()
    for block, left in zip(model[0], (4, 8), strict=True):  # the newest layer is spared
        assert (block.left.out_features, block.right.out_features, block.down.in_features) == (left, left, left)
    assert_close(model(x), expected)
    assert_consistent(net)


def test_the_blocks_of_our_world_model_lose_units_of_their_perceptrons():
    from gpf.world_model.model import Block

    model = nn.Sequential(nn.Sequential(Block(8, 2), Block(8, 2)))
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), stack="0", rules=UNITS)
    net.prune(keep=0.25)
    x = torch.randn(2, 5, 8)
    expected = model(x)
    net.remove_units()
    assert [block.up.out_features for block in model[0]] == [8, 32]  # the newest layer is spared
    assert_close(model(x), expected)


def test_a_growth_in_the_epoch_of_a_removal_fits_what_is_left():
    """Planned pruning comes first in an epoch; the new layer must fit the units that it leaves."""
    torch.manual_seed(0)
    model = gpf.MLP(6, 16, 3, depth=2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    rules = gpf.Rules.fixed(
        prune_to=0.5, prune_from=0.0, prune_until=0.5, granularity="unit", remove_units=True, grow_at=(0.5,)
    )
    net = gpf.attach(model, optimizer, rules=rules, steps=2)
    x, y = data()
    train(model, optimizer, x, y, 1)
    assert [event.kind for event in net.end_epoch(1.0)] == ["pruned", "removed", "grown"]
    before = widths(model)
    train(model, optimizer, x, y, 1)
    assert sum(before[:2]) == 16
    assert len(before) == 4

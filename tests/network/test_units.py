"""Whole units are pruned by the masks of `units`, and `compact` then removes just them, in every architecture."""

import copy

import compact_zoo as zoo
import pytest
import torch
from compact_zoo import HEADS, INNER, WIDTH, outputs, size
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import gpf
from gpf.network.compaction.compact import compact
from gpf.network.compaction.units import unit_groups, unit_mask, unit_means

FEED_FORWARD = 2 * WIDTH + 1  # parameters of a unit: weights in and out, and a bias
GATED = 3 * WIDTH
HEAD = 4 * 4 * WIDTH  # four maps, four outputs (or inputs) of a head

# Parameters of a feed-forward unit and of a head; blocks have both.
TRANSFORMERS = {
    zoo.gpt2: (FEED_FORWARD, HEAD + 12),
    zoo.gpt_neox: (FEED_FORWARD, HEAD + 12),
    zoo.bert: (FEED_FORWARD, HEAD + 12),
    zoo.roberta: (FEED_FORWARD, HEAD + 12),
    zoo.electra: (FEED_FORWARD, HEAD + 12),
    zoo.vit: (FEED_FORWARD, HEAD + 12),
    zoo.siglip: (FEED_FORWARD, HEAD + 12),
    zoo.bart: (FEED_FORWARD, HEAD + 12),
    zoo.whisper_encoder: (FEED_FORWARD, HEAD + 8),  # no bias in the keys
    zoo.whisper_decoder: (FEED_FORWARD, HEAD + 8),
    zoo.llama: (GATED, HEAD),
    zoo.llama_with_biases: (GATED + 2, HEAD + 12),
    zoo.llama_with_grouped_queries: (GATED, HEAD + HEAD // 2),  # two heads of queries and outputs
    zoo.grouped_queries_with_biases: (GATED, HEAD + HEAD // 2 + 16),
    zoo.mistral: (GATED, HEAD + HEAD // 2),
    zoo.qwen2: (GATED, HEAD + 12),
    zoo.qwen3: (GATED, HEAD + HEAD // 2),
    zoo.gemma: (GATED, HEAD),
    zoo.gemma2: (GATED, HEAD),
    zoo.gemma3: (GATED, HEAD + HEAD // 2),
    zoo.torch_encoder: (FEED_FORWARD, None),
    zoo.torch_decoder: (FEED_FORWARD, None),
    zoo.t5: (2 * WIDTH, None),  # its heads share a table of positions
    zoo.gated_t5: (GATED, None),
}
OTHERS = [
    zoo.mlp, zoo.cnn, zoo.unpadded_cnn, zoo.cnn_with_batch_norm, zoo.convnext, zoo.resnet, zoo.resnet_with_bottlenecks,
]  # fmt: skip
EVERY = pytest.mark.parametrize("make", [*TRANSFORMERS, *OTHERS], ids=lambda make: make.__name__)


@torch.no_grad()
def prune(model, stack, choose):
    """Set the chosen units to zero by their masks; returns the groups and how many went of each."""
    groups = unit_groups(model, stack)
    counts = []
    for group in groups:
        dead = choose(group)
        parameters = dict(model.get_submodule(stack)[group.layer].named_parameters())
        for name, mask in unit_mask(group, dead, parameters).items():
            parameters[name][mask] = 0.0
        counts.append(int(dead.sum()))
    return groups, counts


def most(group):
    """90 % of feed-forward units and channels, half of the heads."""
    share = 0.5 if group.count <= HEADS else 0.9
    dead = torch.zeros(group.count, dtype=torch.bool)
    dead[torch.randperm(group.count)[: int(share * group.count)]] = True
    return dead


def assert_same_function(one, other, inputs):
    with torch.no_grad():
        expected = outputs(one, inputs)
        torch.testing.assert_close(outputs(other, inputs), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


@EVERY
def test_pruned_units_are_removed_and_the_function_stays(make):
    model, stack, inputs = zoo.made(make)
    whole = copy.deepcopy(model)
    groups, counts = prune(model, stack, most)
    assert {group.layer for group in groups} == set(range(len(model.get_submodule(stack))))
    with torch.no_grad():
        assert not torch.allclose(outputs(model, inputs), outputs(whole, inputs), rtol=1e-2, atol=1e-2)
    smaller = compact(model, stack)
    assert_same_function(model, smaller, inputs)
    left = [group.count for group in unit_groups(smaller, stack)]
    # One channel of a padded convolution may have to stay, to say what the removed ones said.
    padded = make in (zoo.cnn, zoo.resnet, zoo.resnet_with_bottlenecks)
    expected = [group.count - count for group, count in zip(groups, counts, strict=True)]
    assert left == expected or (padded and all(b <= a <= b + 1 for a, b in zip(left, expected, strict=True)))
    assert outputs(smaller, inputs).shape == outputs(model, inputs).shape


@pytest.mark.parametrize("make", TRANSFORMERS, ids=lambda make: make.__name__)
def test_transformers_lose_exactly_the_parameters_of_the_pruned_units(make):
    model, stack, _ = zoo.made(make)
    groups, counts = prune(model, stack, most)
    feed_forward, head = TRANSFORMERS[make]
    attentions = 0 if head is None else 2 if make in (zoo.whisper_decoder, zoo.bart) else 1
    assert sorted(group.count for group in groups) == sorted(2 * ([INNER] + [HEADS] * attentions))
    cost = sum(
        count * (feed_forward if group.count == INNER else head) for group, count in zip(groups, counts, strict=True)
    )
    assert size(compact(model, stack)) == size(model) - cost


@EVERY
def test_the_smaller_model_trains(make):
    model, stack, inputs = zoo.made(make)
    prune(model, stack, most)
    smaller = compact(model, stack)
    optimizer = torch.optim.SGD(smaller.parameters(), lr=1e-4)
    losses = []
    for _ in range(2):
        loss = outputs(smaller, inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[1] < losses[0]
    assert all(parameter.grad is not None for parameter in smaller.get_submodule(stack).parameters())


@pytest.mark.parametrize("make", [zoo.gpt2, zoo.llama, zoo.llama_with_grouped_queries, zoo.gemma3, zoo.gpt_neox])
def test_smaller_language_models_generate_the_same_with_a_cache_and_without(make):
    model, stack, tokens = zoo.made(make)
    prune(model, stack, most)
    smaller = compact(model, stack)
    start = tokens[:, :4]
    options = {"max_new_tokens": 8, "do_sample": False, "attention_mask": torch.ones_like(start), "pad_token_id": 0}
    expected = model.generate(start, use_cache=True, **options)
    assert torch.equal(smaller.generate(start, use_cache=True, **options), expected)
    assert torch.equal(smaller.generate(start, use_cache=False, **options), expected)


@EVERY
def test_views_share_memory_and_masks_cover_each_entry_of_a_unit_once(make):
    model, stack, _ = zoo.made(make)
    for group in unit_groups(model, stack):
        parameters = dict(model.get_submodule(stack)[group.layer].named_parameters())
        for name, view in group.members.items():
            marked = torch.zeros_like(parameters[name])
            rows = view(marked)
            assert len(rows) == group.count
            rows += torch.arange(1.0, group.count + 1).view(-1, *[1] * (rows.dim() - 1))
            for unit in (0, group.count - 1):
                dead = torch.zeros(group.count, dtype=torch.bool)
                dead[unit] = True
                mask = unit_mask(group, dead, parameters)[name]
                assert torch.equal(mask, marked == unit + 1)
                assert mask.sum() == rows[0].numel()


def test_the_mean_of_a_unit_is_that_of_its_entries():
    model, stack, _ = zoo.made(zoo.gpt2)
    heads, neurons = unit_groups(model, stack)[:2]
    fused = torch.rand(WIDTH, 3 * WIDTH)
    values = {"attn.c_attn.weight": fused, "mlp.c_fc.weight": torch.rand(WIDTH, INNER)}
    expected = [fused[:, 2 * WIDTH + 4 * head : 2 * WIDTH + 4 * head + 4].mean() for head in range(HEADS)]
    torch.testing.assert_close(unit_means(heads, values), torch.stack(expected))
    torch.testing.assert_close(unit_means(neurons, values), values["mlp.c_fc.weight"].mean(0))


def test_heads_whose_constants_could_not_be_folded_are_pruned_at_their_outputs():
    """Qwen2 has biases in its values and none in its output; Llama's `up` may have one behind the gate."""
    for make, path in ((zoo.qwen2, "self_attn.o_proj.weight"), (zoo.llama_with_biases, "mlp.down_proj.weight")):
        model, stack, _ = zoo.made(make)
        assert path in {name for group in unit_groups(model, stack) for name in group.members}
    model, stack, _ = zoo.made(zoo.llama)  # it has no biases
    names = {name for group in unit_groups(model, stack) for name in group.members}
    assert names == {"self_attn.v_proj.weight", "mlp.up_proj.weight"}


def test_units_that_nobody_is_known_to_hear_are_not_listed():
    model = nn.Sequential(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4), nn.LayerNorm(4)))
    (group,) = unit_groups(model, "0")
    assert (group.layer, group.count, list(group.members)) == (0, 8, ["weight"])


def test_the_last_unit_of_a_layer_is_counted_and_never_pruned():
    model = gpf.MLP(4, 1, 2, depth=2)
    assert [group.count for group in unit_groups(model, "layers")] == [1, 1]
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), rules=gpf.Rules(granularity="unit"))
    assert net.prune(keep=0.0).reason.startswith("0 of 1 units")
    assert net.density == 1.0


@st.composite
def choices(draw, *sizes):
    """Which units die in each of several groups: any but all."""
    chosen = [draw(st.sets(st.integers(0, size - 1), max_size=size - 1)) for size in sizes]
    return [torch.tensor([unit in dead for unit in range(size)]) for dead, size in zip(chosen, sizes, strict=True)]


@settings(max_examples=25, deadline=None)
@given(choices(INNER, INNER, INNER), st.booleans())
def test_any_units_of_a_chain_can_be_pruned(dead, convolutions):
    model, stack, inputs = zoo.made(zoo.unpadded_cnn if convolutions else zoo.mlp)
    remaining = iter(dead)
    prune(model, stack, lambda group: next(remaining))
    smaller = compact(model, stack)
    a, b, c = (INNER - int(units.sum()) for units in dead)
    if convolutions:  # the last picture has 4 x 4 places
        assert size(smaller) == (2 * 9 + 1) * a + (9 * a + 1) * b + (9 * b + 1) * c + (16 * c + 1) * 4
    else:
        assert size(smaller) == (6 + 1) * a + (a + 1) * b + (b + 1) * c + (c + 1) * 3
    assert_same_function(model, smaller, inputs)


@settings(max_examples=20, deadline=None)
@given(choices(HEADS, INNER, HEADS, INNER), st.sampled_from([zoo.gpt2, zoo.llama_with_grouped_queries]))
def test_any_units_of_a_transformer_can_be_pruned(dead, make):
    model, stack, inputs = zoo.made(make)
    remaining = iter(dead)
    prune(model, stack, lambda group: next(remaining))
    smaller = compact(model, stack)
    feed_forward, head = TRANSFORMERS[make]
    lost = [int(units.sum()) for units in dead]
    assert size(model) - size(smaller) == head * (lost[0] + lost[2]) + feed_forward * (lost[1] + lost[3])
    assert_same_function(model, smaller, inputs)


@settings(max_examples=15, deadline=None)
@given(choices(INNER, INNER, INNER))
def test_of_padded_channels_that_say_something_one_stays_to_say_it(dead):
    model, stack, inputs = zoo.made(zoo.cnn)
    biases = [block[0].bias.detach() for block in model[0]]
    remaining = iter(dead)
    prune(model, stack, lambda group: next(remaining))
    smaller = compact(model, stack)
    assert_same_function(model, smaller, inputs)
    speaking = [bool((bias[units] > 0).any()) for bias, units in zip(biases, dead, strict=True)]
    speaking[2] = False  # the linear map after the last convolution is not padded
    widths = [INNER - int(units.sum()) + extra for units, extra in zip(dead, speaking, strict=True)]
    assert [block[0].out_channels for block in smaller[0]] == widths


def test_layers_with_few_inputs_are_not_favoured_and_none_becomes_a_bottleneck():
    """Kaiming's weights are larger where there are fewer inputs; every layer keeps half of the share at least."""
    torch.manual_seed(0)
    model = gpf.MLP(4, 64, 3, depth=3)
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), rules=gpf.Rules.fixed(granularity="unit"))
    net.grow()
    net.prune(keep=0.25)
    left = [int((layer.linear.weight != 0).any(1).sum()) for layer in model.layers[:3]]
    assert sum(left) == 48
    assert min(left) >= 8
    assert max(left) < 40  # by mean magnitudes alone, nearly all would be of the first layer

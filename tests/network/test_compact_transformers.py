"""Gated units and attention heads of Hugging Face's models go when they are dead, and only then."""

import compact_zoo as zoo
import pytest
import torch
from compact_zoo import HEADS, INNER, WIDTH, compacted, size, zero
from torch import nn
from torch.nn.utils import parametrizations


@pytest.mark.parametrize(
    ("path", "index"),
    [("up_proj", (slice(3, 7),)), ("gate_proj", (slice(3, 7),)), ("down_proj", (slice(None), slice(3, 7)))],
)
def test_gated_units_go_when_any_factor_is_zero(path, index):
    model, stack, tokens = zoo.made(zoo.llama)
    zero(model.model.layers[0].mlp.get_submodule(path).weight, *index)
    smaller = compacted(model, stack, tokens).model.layers[0].mlp
    sizes = [(m.in_features, m.out_features) for m in (smaller.gate_proj, smaller.up_proj, smaller.down_proj)]
    assert sizes == [(WIDTH, INNER - 4), (WIDTH, INNER - 4), (INNER - 4, WIDTH)]
    assert smaller.down_proj.bias is None


def test_gated_units_stay_when_a_bias_keeps_them_alive():
    model, stack, tokens = zoo.made(zoo.llama_with_biases)
    mlp = model.model.layers[0].mlp
    zero(mlp.up_proj.weight, 0)  # its bias still goes through the gate
    zero(mlp.gate_proj.weight, 1)  # its bias leaves the gate open
    for unit in (2, 3):
        zero(mlp.up_proj.weight, unit)
        zero(mlp.up_proj.bias, unit)  # nothing left
    zero(mlp.gate_proj.weight, 4)
    zero(mlp.gate_proj.bias, 4)  # SiLU(0) is 0
    for projection in (mlp.gate_proj, mlp.up_proj):
        zero(projection.weight, 5)  # a constant times a constant
    smaller = compacted(model, stack, tokens).model.layers[0].mlp
    assert smaller.up_proj.out_features == INNER - 4
    assert torch.equal(smaller.up_proj.weight[:2], mlp.up_proj.weight[:2])


def test_heads_go_when_the_output_ignores_them():
    for make, path in (
        (zoo.gpt2, "attn.c_proj"),
        (zoo.bert, "attention.output.dense"),
        (zoo.gpt_neox, "attention.dense"),
    ):
        model, stack, tokens = zoo.made(make)
        block = model.get_submodule(stack)[1]
        weight = block.get_submodule(path).weight
        zero(weight if make is zoo.gpt2 else weight.T, slice(4, 12))  # the second and third head's inputs
        smaller = compacted(model, stack, tokens)
        assert size(model) - size(smaller) == 2 * (4 * 4 * WIDTH + 12)


def test_sizes_that_attention_modules_have_written_down_follow():
    model, stack, tokens = zoo.made(zoo.gpt2)
    zero(model.transformer.h[0].attn.c_attn.weight, slice(None), slice(2 * WIDTH, 2 * WIDTH + 4))
    attention = compacted(model, stack, tokens).transformer.h[0].attn
    assert (attention.num_heads, attention.split_size, attention.head_dim) == (HEADS - 1, 4 * (HEADS - 1), 4)
    assert (attention.c_attn.nf, attention.c_proj.nx) == (12 * (HEADS - 1), 4 * (HEADS - 1))
    model, stack, tokens = zoo.made(zoo.bert)
    zero(model.encoder.layer[0].attention.self.value.weight, slice(0, 8))
    attention = compacted(model, stack, tokens).encoder.layer[0].attention.self
    assert (attention.num_attention_heads, attention.all_head_size) == (HEADS - 2, 4 * (HEADS - 2))


def test_a_head_is_not_dead_because_its_queries_are():
    """Without queries it attends to everything alike, which is not nothing."""
    model, stack, tokens = zoo.made(zoo.llama)
    zero(model.model.layers[0].self_attn.q_proj.weight)
    zero(model.model.layers[1].self_attn.k_proj.weight)
    assert size(compacted(model, stack, tokens)) == size(model)


def test_heads_stay_when_their_constant_has_nowhere_to_go():
    model, stack, tokens = zoo.made(zoo.qwen2)
    attention = model.model.layers[0].self_attn
    zero(attention.v_proj.weight, slice(0, 8))
    assert size(compacted(model, stack, tokens)) == size(model)
    zero(attention.v_proj.bias, slice(0, 4))
    smaller = compacted(model, stack, tokens).model.layers[0].self_attn
    assert smaller.v_proj.out_features == 4 * (HEADS - 1)
    assert smaller.o_proj.bias is None
    zero(attention.o_proj.weight, slice(None), slice(4, 8))  # nobody hears the constant
    assert compacted(model, stack, tokens).model.layers[0].self_attn.v_proj.out_features == 4 * (HEADS - 2)


def test_a_head_of_keys_and_values_goes_only_with_all_its_queries():
    model, stack, tokens = zoo.made(zoo.llama_with_grouped_queries)
    output = model.model.layers[0].self_attn.o_proj.weight
    zero(output, slice(None), slice(0, 4))  # one of the two heads of queries of the first group
    assert size(compacted(model, stack, tokens)) == size(model)
    zero(output, slice(None), slice(4, 8))
    smaller = compacted(model, stack, tokens).model.layers[0].self_attn
    assert (smaller.k_proj.out_features, smaller.q_proj.out_features) == (4 * (HEADS - 1), 8 * (HEADS - 1))
    assert smaller.num_key_value_groups == 2


def test_queries_go_when_every_group_can_spare_one():
    model, stack, tokens = zoo.made(zoo.llama_with_grouped_queries)
    output = model.model.layers[0].self_attn.o_proj.weight
    for group, query in enumerate((0, 1, 1, 0)):
        head = 2 * group + query
        zero(output, slice(None), slice(4 * head, 4 * head + 4))
    smaller = compacted(model, stack, tokens).model.layers[0].self_attn
    assert (smaller.k_proj.out_features, smaller.q_proj.out_features) == (4 * HEADS, 4 * HEADS)
    assert smaller.num_key_value_groups == 1


@pytest.mark.parametrize(
    ("make", "widths"),
    [
        (zoo.gpt2, {"attn.c_attn": (12, WIDTH), "attn.c_proj": (WIDTH, 4), "mlp.c_fc": (1, WIDTH)}),
        (zoo.llama, {"self_attn.q_proj": (4, WIDTH), "self_attn.o_proj": (WIDTH, 4), "mlp.gate_proj": (1, WIDTH)}),
        (zoo.llama_with_grouped_queries, {"self_attn.q_proj": (4, WIDTH), "self_attn.v_proj": (4, WIDTH)}),
        (zoo.whisper_decoder, {"self_attn.k_proj": (4, WIDTH), "encoder_attn.v_proj": (4, WIDTH), "fc2": (WIDTH, 1)}),
    ],
)
def test_layers_keep_one_unit_and_one_head(make, widths):
    model, stack, inputs = zoo.made(make)
    for parameter in model.get_submodule(stack)[0].parameters():
        if parameter.dim() == 2:
            zero(parameter)
    block = compacted(model, stack, inputs).get_submodule(stack)[0]
    for path, shape in widths.items():
        weight = block.get_submodule(path).weight
        assert tuple((weight.T if make is zoo.gpt2 else weight).shape) == shape


def test_wrapped_and_parametrised_maps_are_left_alone():
    class Wrapped(nn.Module):
        """What LoRA does to a map."""

        def __init__(self, base):
            super().__init__()
            self.base, self.more = base, nn.Parameter(0.1 * torch.randn(base.out_features, base.in_features))
            self.weight, self.bias = base.weight, base.bias

        def forward(self, x):
            return self.base(x) + x @ self.more.T

    for name in ("gate_proj", "up_proj", "down_proj"):
        model, stack, tokens = zoo.made(zoo.llama)
        first, second = (layer.mlp for layer in model.model.layers)
        for mlp in (first, second):
            zero(mlp.up_proj.weight, slice(0, 5))
        setattr(first, name, Wrapped(getattr(first, name)))
        parametrizations.orthogonal(getattr(second, name))
        assert size(compacted(model, stack, tokens)) == size(model)


def test_what_normalises_over_units_is_left_alone():
    """ConvNeXt's second version divides by a mean over units; T5's heads share their table of positions."""
    from transformers import ConvNextV2Config, ConvNextV2Model

    config = ConvNextV2Config(hidden_sizes=[8], depths=[2], num_stages=1, patch_size=2)
    model = ConvNextV2Model(config).eval()
    zero(model.encoder.stages[0].layers[0].pwconv1.weight, slice(0, 5))
    assert size(compacted(model, "encoder.stages", torch.randn(2, 3, 16, 16))) == size(model)
    model, stack, tokens = zoo.made(zoo.t5)
    zero(model.encoder.block[1].layer[0].SelfAttention.v.weight, slice(0, 4))
    assert size(compacted(model, stack, tokens)) == size(model)


def test_no_bias_is_added_for_units_that_said_nothing():
    model, stack, tokens = zoo.made(zoo.t5)
    zero(model.encoder.block[0].layer[1].DenseReluDense.wi.weight, slice(0, 5))
    smaller = compacted(model, stack, tokens).encoder.block[0].layer[1].DenseReluDense
    assert smaller.wo.in_features == INNER - 5
    assert smaller.wo.bias is None


def test_what_does_not_learn_still_does_not():
    model, stack, tokens = zoo.made(zoo.gpt2)
    block = model.transformer.h[0]
    block.requires_grad_(False)
    zero(block.mlp.c_fc.weight, slice(None), slice(0, 5))
    zero(block.attn.c_attn.weight, slice(None), slice(2 * WIDTH, 2 * WIDTH + 4))
    smaller = compacted(model, stack, tokens).transformer
    assert not any(parameter.requires_grad for parameter in smaller.h[0].parameters())
    assert all(parameter.requires_grad for parameter in smaller.h[1].parameters())

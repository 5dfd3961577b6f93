"""Blocks that are made by copying, and the depth that models write down."""

import copy
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from zoo import ZOO

import gpf
from gpf.network.blocks.depth import deeper, record_depth
from gpf.network.blocks.factory import default_block, match
from gpf.network.hooks import Hook

# Copies


def test_a_new_block_has_new_values_of_the_frameworks_own_spread():
    model, path, _ = ZOO["Llama"]()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7.0)
    block = default_block(model, path)(2)
    weights = block.mlp.up_proj.weight
    assert weights.std().item() == pytest.approx(model.config.initializer_range, rel=0.2)
    assert (block.input_layernorm.weight == 1.0).all()
    assert (model.model.layers[1].mlp.up_proj.weight == 7.0).all()


def test_what_transformers_has_read_from_a_file_is_initialised_too(tmp_path):
    model, path, _ = ZOO["ResNet, basic"]()
    last = model.get_submodule(path)[-1]
    norm = last.layer[0].normalization
    nn.init.constant_(norm.running_mean, 5.0)
    nn.init.constant_(norm.weight, 5.0)
    model.save_pretrained(tmp_path)
    read = type(model).from_pretrained(tmp_path)
    assert (read.get_submodule(path)[-1].layer[0].normalization.running_mean == 5.0).all()
    new = default_block(read, path)(2).layer[0]
    assert not new.normalization.running_mean.any()
    assert (new.normalization.weight == 1.0).all()
    assert not torch.equal(new.convolution.weight, read.get_submodule(path)[-1].layer[0].convolution.weight)


def test_initial_values_know_the_depth_that_is_to_come():
    """GPT-2 divides the spread of its output projections by the square root of twice the depth."""
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(vocab_size=5, n_positions=4, n_embd=64, n_layer=1, n_head=2))
    block = default_block(model, "transformer.h")(1)
    assert block.mlp.c_proj.weight.std().item() == pytest.approx(0.02 / 4**0.5, rel=0.03)
    assert model.config.n_layer == 1


def test_blocks_share_their_configuration_and_know_their_place():
    model, path, _ = ZOO["GPT-2"]()
    make = default_block(model, path)
    for place in (1, 2):
        block = make(place)
        assert block.attn.layer_idx == place
        assert block.attn.config is model.config
        gpf.network.surgery.append_block(model, path, block)
    assert model.transformer.h[0].attn.layer_idx == 0


def test_the_block_that_is_copied_is_of_the_kind_that_comes_next():
    model, path, _ = ZOO["Gemma 3"]()  # sliding, sliding, full, sliding, sliding, full
    make = default_block(model, path)
    kinds = []
    for place in range(3, 9):
        block = make(place)
        kinds.append((block.self_attn.is_sliding, block.self_attn.sliding_window, block.self_attn.layer_idx))
        gpf.network.surgery.append_block(model, path, block)
    assert [sliding for sliding, *_ in kinds] == [True, True, False] * 2
    assert [window for _, window, _ in kinds] == [4, 4, None] * 2
    assert [place for *_, place in kinds] == list(range(3, 9))


def test_only_the_first_block_of_t5_has_a_position_bias():
    model, path, _ = ZOO["T5 decoder"]()
    block = default_block(model, path)(1)
    assert not [name for name, _ in block.named_parameters() if "relative" in name]
    assert not block.layer[0].SelfAttention.has_relative_attention_bias
    assert model.decoder.block[0].layer[0].SelfAttention.has_relative_attention_bias


def test_all_blocks_of_umt5_have_one():
    from transformers import UMT5Config, UMT5EncoderModel

    model = UMT5EncoderModel(UMT5Config(vocab_size=5, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2))
    assert [name for name, _ in default_block(model, "encoder.block")(1).named_parameters() if "relative" in name]


@pytest.mark.parametrize("kind", ["basic", "bottleneck"])
def test_a_stage_of_a_resnet_grows_from_its_first_layer_without_the_stride(kind):
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type=kind, num_labels=3)
    model = ResNetForImageClassification(config).eval()
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), stack="resnet.encoder.stages.1.layers")
    images = torch.randn(2, 3, 16, 16)
    before = model(images).logits
    net.grow()
    assert torch.equal(model(images).logits, before)
    assert config.depths == [1, 2]
    kinds = [[type(module) for module in layer.block.layer.modules()] for layer in net.layers]
    assert kinds[0] == kinds[1]


def test_hooks_of_ours_are_not_copied_and_those_of_others_are():
    model, path, _ = ZOO["Llama"]()
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), stack=path)
    model.model.layers[1].mlp.register_forward_hook(lambda *_: None)
    block = default_block(model, path)(2)
    assert not [hook for m in block.modules() for hook in m._forward_pre_hooks.values() if isinstance(hook, Hook)]
    assert len(block.mlp._forward_hooks) == 1
    net.detach()


def test_what_the_user_froze_stays_frozen_with_its_values_and_what_gpf_froze_learns():
    model, path, _ = ZOO["Llama"]()
    for layer in model.model.layers:
        layer.mlp.up_proj.requires_grad_(False)
    learning = [p for p in model.parameters() if p.requires_grad]
    net = gpf.attach(model, torch.optim.Adam(learning), stack=path)
    net.freeze(1)
    net.grow()
    net.freeze(2)
    net.grow()
    frozen = [name for name, p in net.layers[3].block.named_parameters() if not p.requires_grad]
    assert frozen == ["mlp.up_proj.weight"]
    assert torch.equal(net.layers[3].block.mlp.up_proj.weight, model.model.layers[1].mlp.up_proj.weight)


def test_a_block_behind_a_gate_is_copied_without_it():
    model, path, _ = ZOO["Linear, GELU"]()
    make = default_block(model, path)
    model[0].append(gpf.network.Gated(make(2)))
    assert type(make(3)) is nn.Sequential


def test_plain_blocks_are_initialised_as_torch_does():
    model = nn.Sequential(nn.Sequential(nn.Sequential(nn.Linear(400, 400), nn.ReLU())))
    nn.init.zeros_(model[0][0][0].weight)
    weight = default_block(model, "0")(1)[0].weight
    assert weight.abs().max().item() == pytest.approx(1 / 400**0.5, rel=0.01)  # torch: uniform, 1 / sqrt(inputs)
    attention = nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16))
    nn.init.ones_(attention[0].self_attn.in_proj_weight)
    made = default_block(nn.Sequential(attention), "0")(1)
    assert made.self_attn.in_proj_weight.std() > 0.1
    assert not made.self_attn.out_proj.bias.any()


class Scaled(nn.Module):
    """A block with a parameter of which nobody knows how it starts."""

    def __init__(self):
        super().__init__()
        self.linear, self.scale = nn.Linear(4, 4), nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x + self.scale * self.linear(x)


def test_a_parameter_that_nothing_initialises_is_an_error_that_says_so():
    model = nn.Sequential(nn.Sequential(Scaled()))
    with pytest.raises(ValueError, match="^block must be given, because nothing says how scale of Scaled is init"):
        default_block(model, "0")(1)
    assert torch.isfinite(model[0][0].scale).all()


def test_a_models_own_initialisation_is_used():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Scaled()])

        def _init_weights(self, module):
            if isinstance(module, Scaled):
                nn.init.constant_(module.scale, 0.5)

    block = default_block(Model(), "blocks")(1)
    assert (block.scale == 0.5).all()
    assert torch.isfinite(block.linear.weight).all()  # by torch's


def test_a_network_without_a_factory_is_saved_and_read_back(tmp_path):
    model, path, loss = ZOO["Gemma 3"]()
    start = copy.deepcopy(model)
    net = gpf.attach(model, torch.optim.Adam(model.parameters(), lr=0.01), stack=path)
    for _ in range(2):
        net.grow()
        net.optimizer.zero_grad()
        loss().backward()
        net.optimizer.step()
    net.save(tmp_path / "saved")
    read = gpf.load(tmp_path / "saved", build=lambda: start)
    assert torch.equal(loss.outputs(read.model), loss.outputs(model))
    assert read.model.config.layer_types == model.config.layer_types
    read.grow()
    torch.testing.assert_close(loss.outputs(read.model), loss.outputs(model), rtol=0, atol=1e-6)


# Matching


def test_parameters_and_buffers_follow_their_namesakes_and_the_rest_the_first_parameter():
    def block():
        return nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))

    last, new = block().to(torch.bfloat16).eval(), block()
    last[1].float()
    new.register_buffer("more", torch.zeros(2))
    new.register_buffer("places", torch.zeros(2, dtype=torch.long))
    weight = new[0].weight
    match(new, last)
    assert new[0].weight is weight
    assert new[0].weight.dtype == torch.bfloat16
    assert new[1].weight.dtype == new[1].running_mean.dtype == torch.float32
    assert new.more.dtype == torch.bfloat16
    assert new.places.dtype == new[1].num_batches_tracked.dtype == torch.long
    assert not any(module.training for module in new.modules())


def test_gates_are_looked_through():
    last, new = nn.Linear(4, 4).double(), gpf.network.Gated(nn.Linear(4, 4))
    match(new, last)
    assert new.block.weight.dtype == torch.float64
    plain = nn.Linear(4, 4)
    match(plain, gpf.network.Gated(last))
    assert plain.weight.dtype == torch.float64


# Depth


def stacked(config, blocks=2, name="blocks"):
    model = nn.Module()
    model.config = config
    model.add_module(name, nn.ModuleList(nn.Linear(2, 2) for _ in range(blocks)))
    return model


@pytest.mark.parametrize(
    ("kinds", "after"),
    [("a", "aaa"), ("ab", "abab"), ("aba", "ababa"), ("aab", "aabaa"), ("aaaab", "aaaabaa"), ("abcab", "abcabca")],
)
def test_layer_types_go_on_by_their_shortest_pattern(kinds, after):
    model = stacked(SimpleNamespace(num_hidden_layers=len(kinds), layer_types=list(kinds)), len(kinds))
    original = model.config.layer_types
    record_depth(model, "blocks", len(kinds), len(kinds) + 2)
    assert model.config.layer_types == list(after)
    assert original == list(kinds)  # which others may hold
    record_depth(model, "blocks", len(kinds) + 2, len(kinds))
    assert model.config.layer_types == list(kinds)


@pytest.mark.parametrize("value", [3, "2", 2.0, None])
def test_numbers_that_are_not_the_depth_are_left_alone(value):
    model = stacked(SimpleNamespace(n_layer=value, layer_types=["a", "b"]))
    record_depth(model, "blocks", 2, 3)
    assert model.config == SimpleNamespace(n_layer=value, layer_types=["a", "b"])


def test_a_frozen_configuration_is_left_alone():
    @dataclass(frozen=True)
    class Config:
        n_layer: int = 2

    model = stacked(Config())
    record_depth(model, "blocks", 2, 3)
    assert model.config.n_layer == 2


def test_a_count_that_may_be_of_another_stack_is_left_alone():
    model = stacked(SimpleNamespace())
    model.num_layers = 2
    record_depth(model, "blocks", 2, 3)
    assert model.num_layers == 3
    model.others = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    record_depth(model, "blocks", 3, 4)
    assert model.num_layers == 3


def test_stages_are_counted_one_by_one():
    model = nn.Module()
    model.config = SimpleNamespace(depths=(2, 2, 2), num_layers=2)
    model.stages = nn.ModuleList(stacked(None, 2, "layers") for _ in range(3))
    record_depth(model, "stages.1.layers", 2, 3)
    assert model.config == SimpleNamespace(depths=(2, 3, 2), num_layers=2)
    record_depth(model, "stages.0.layers", 5, 6)
    assert model.config.depths == (2, 3, 2)


def test_the_configuration_of_a_whole_does_not_count_a_part_with_its_own():
    class Part(SimpleNamespace):
        pass

    whole = nn.Module()
    whole.config = SimpleNamespace(encoder_layers=2)
    whole.encoder = stacked(Part(num_hidden_layers=2))
    record_depth(whole, "encoder.blocks", 2, 3)
    assert whole.config.encoder_layers == 2
    assert whole.encoder.config.num_hidden_layers == 3


def test_a_copy_inside_a_composite_configuration_is_kept_up_to_date():
    class Text(SimpleNamespace):
        model_type = "text"

    class Whole(SimpleNamespace):
        model_type = "whole"

    text = Text(num_hidden_layers=2)
    whole = nn.Module()
    whole.config = Whole(inner=Whole(text_config=copy.copy(text)))
    whole.language = stacked(text)
    record_depth(whole, "language.blocks", 2, 3)
    assert whole.config.inner.text_config.num_hidden_layers == text.num_hidden_layers == 3


@pytest.mark.parametrize("name", ["Qwen2", "T5 encoder", "T5 decoder", "Whisper decoder", "ConvNeXt"])
@pytest.mark.parametrize("fails", [True, False])
def test_deeper_is_over_when_it_is_over(name, fails):
    model, path, _ = ZOO[name]()
    holders = [m.config for m in model.modules() if hasattr(m, "config")]
    before = [copy.deepcopy(vars(holder)) for holder in holders]

    def work():
        with deeper(model, path):
            assert [vars(holder) for holder in holders] != before
            if fails:
                raise RuntimeError("no")

    if fails:
        with pytest.raises(RuntimeError, match="^no$"):
            work()
    else:
        work()
    assert [vars(holder) for holder in holders] == before


def test_deeper_within_deeper_is_no_deeper():
    model, path, _ = ZOO["Qwen2"]()
    with deeper(model, path), deeper(model, path):
        assert model.config.num_hidden_layers == 3
        assert model.config.layer_types == ["full_attention", "sliding_attention", "full_attention"]
    assert model.config.num_hidden_layers == 2

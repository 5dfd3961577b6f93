"""How new blocks start: the identity, zeroed outputs, gates."""

import copy
import re

import pytest
import torch
from torch import nn

import gpf
from gpf.network.blocks.initialisers import initialise
from gpf.network.blocks.zeroing import fill_outputs

WAYS_OUT = ("grow_init='gated'", "'copy'", "'kaiming'", "'built'", "register_identity")


def identity(block, last=None):
    initialise(block, nn.Identity() if last is None else last, "identity")
    return block


def conv_block(inputs=6, outputs=6, **options):
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs, **options), nn.ReLU())


def scrambled(block):
    """The same block with random BatchNorm, as after training."""
    for module in block.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.uniform_(module.weight, -1.5, 1.5)
            nn.init.uniform_(module.bias, -1.5, 1.5)
    return block


# Zeroed outputs


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.act = nn.Linear(8, 16), nn.Linear(16, 8), nn.ReLU()

    def forward(self, x):
        return x + self.down(self.act(self.up(x)))


def test_zeroed_outputs_leave_the_rest_alone():
    block = Residual()
    up = block.up.weight.clone()
    gpf.network.zero_outputs("down")(block)
    assert not block.down.weight.any()
    assert not block.down.bias.any()
    assert torch.equal(block.up.weight, up)


@pytest.mark.parametrize(
    ("path", "why"),
    [("act", r"act \(ReLU\) has no weight of its own"), ("gone", "it has no gone"), ("down.x", "it has no down.x")],
)
def test_zeroing_nothing_is_an_error(path, why):
    block = Residual()
    down = block.down.weight.clone()
    with pytest.raises(ValueError, match=why):
        gpf.network.zero_outputs("down", path)(block)
    assert torch.equal(block.down.weight, down)  # and nothing was changed


def test_a_weight_that_is_computed_from_others_is_not_zeroed():
    block = Residual()
    nn.utils.parametrizations.weight_norm(block.down)
    with pytest.raises(ValueError, match="down .* has no weight of its own to set to zero"):
        gpf.network.zero_outputs("down")(block)


def test_zeroing_what_cannot_learn_is_an_error_while_anything_else_learns():
    block = Residual()
    block.down.requires_grad_(False)
    with pytest.raises(ValueError, match="down would be zero and cannot learn"):
        gpf.network.zero_outputs("down")(block)
    block.requires_grad_(False)  # it is not meant to learn at all
    gpf.network.zero_outputs("down")(block)
    assert not block.down.weight.any()


def lora(model, targets, **options):
    import peft

    return peft.inject_adapter_in_model(peft.LoraConfig(r=2, target_modules=targets, **options), model)


def test_a_projection_with_lora_adapters_is_zeroed_together_with_them():
    block = lora(Residual(), ["down"])
    nn.init.normal_(block.down.lora_B["default"].weight)
    nn.init.ones_(block.down.base_layer.bias)
    kept = block.down.lora_A["default"].weight.clone()
    x = torch.randn(4, 8)
    assert not torch.allclose(block(x), x)
    gpf.network.zero_outputs("down")(block)
    assert torch.equal(block(x), x)
    assert torch.equal(block.down.lora_A["default"].weight, kept)
    block(x).square().sum().backward()
    assert block.down.lora_B["default"].weight.grad.any()  # it can leave zero


def test_a_projection_with_dora_adapters_cannot_be_zero():
    block = lora(Residual(), ["down"], use_dora=True)
    with pytest.raises(ValueError, match="down has DoRA adapters"):
        gpf.network.zero_outputs("down")(block)


def test_a_parameter_can_be_filled_by_its_path():
    block = nn.Sequential(nn.LayerNorm(3))
    fill_outputs(block, ["0.weight"], -1.0)
    assert (block[0].weight == -1.0).all()
    assert not block[0].bias.any()


# Which type is which


@pytest.mark.parametrize("name", ["LlamaDecoderLayer", "BertLayer", "GPT2Block", "ResNetBasicLayer"])
def test_a_users_class_of_a_known_name_is_not_taken_for_the_known_one(name):
    block = type(name, (Residual,), {})()
    with pytest.raises(ValueError, match=f"type {name}, because its type is not known"):
        identity(block)


def test_types_are_registered_by_class_or_by_name(monkeypatch):
    monkeypatch.setattr("gpf.network.blocks.initialisers._REGISTERED", {})
    one, other = type("One", (Residual,), {}), type("Other", (Residual,), {})
    gpf.network.register_identity(one, gpf.network.zero_outputs("down"))
    gpf.network.register_identity("Other", gpf.network.zero_outputs("down"))
    x = torch.randn(4, 8)
    for kind in (one, other):
        assert torch.equal(identity(kind())(x), x)


def test_a_users_registration_comes_before_ours(monkeypatch):
    monkeypatch.setattr("gpf.network.blocks.initialisers._REGISTERED", {})
    gpf.network.register_identity(nn.Linear, lambda layer: nn.init.constant_(layer.weight, 3.0))
    assert (identity(nn.Linear(2, 2)).weight == 3.0).all()


@pytest.mark.parametrize("name", ["Bert", "Roberta", "Bart"])
def test_blocks_that_normalise_their_output_get_an_error_that_names_the_ways_out(name):
    import importlib

    import transformers

    module = importlib.import_module(f"transformers.models.{name.lower()}.modeling_{name.lower()}")
    kind = "BartEncoderLayer" if name == "Bart" else f"{name}Layer"
    block = getattr(module, kind)(getattr(transformers, f"{name}Config")())
    with pytest.raises(ValueError, match="because it normalises its output") as error:
        identity(block)
    assert all(way in str(error.value) for way in WAYS_OUT)
    assert not re.search(r"\.\s|\n", str(error.value))  # one sentence


@pytest.mark.parametrize("activation", [nn.GELU, nn.SiLU])
def test_linear_maps_before_smooth_activations_get_the_same_error(activation):
    with pytest.raises(ValueError, match="only ReLU and dropout may follow") as error:
        identity(nn.Sequential(nn.Linear(8, 8), activation()))
    assert all(way in str(error.value) for way in WAYS_OUT)


def test_an_empty_sequential_is_refused():
    with pytest.raises(ValueError, match="neither Linear nor Conv2d"):
        identity(nn.Sequential())


@pytest.mark.parametrize("kind", [nn.TransformerEncoderLayer, nn.TransformerDecoderLayer])
def test_torch_transformers_with_the_norm_behind_are_refused(kind):
    with pytest.raises(ValueError, match="norm_first=False"):
        identity(kind(8, 2, 16))


def test_opt_with_the_norm_behind_is_refused():
    from transformers import OPTConfig
    from transformers.models.opt.modeling_opt import OPTDecoderLayer

    config = OPTConfig(hidden_size=8, ffn_dim=16, num_attention_heads=2, do_layer_norm_before=False)
    with pytest.raises(ValueError, match="do_layer_norm_before=False"):
        identity(OPTDecoderLayer(config, 0))


def test_cross_attention_of_gpt2_is_silent_too():
    from transformers import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block

    config = GPT2Config(n_embd=8, n_head=2, add_cross_attention=True, _attn_implementation="eager")
    block = identity(GPT2Block(config, 0).eval())
    x, other = torch.randn(2, 5, 8), torch.randn(2, 3, 8)
    out = block(x, encoder_hidden_states=other)
    assert torch.equal(out if torch.is_tensor(out) else out[0], x)


def test_a_gemma_block_takes_small_first_steps():
    """A zeroed projection would be blown up by the norm behind it as soon as it is not zero."""
    from zoo import ZOO

    model, path, loss = ZOO["Gemma 2"]()

    def change(start):
        deeper = copy.deepcopy(model)
        net = gpf.attach(deeper, torch.optim.Adam(deeper.parameters(), lr=0.0), stack=path)
        net.grow()
        block = net.layers[-1].block
        start(block)
        before = loss.outputs(deeper)
        optimizer = torch.optim.Adam(block.parameters(), lr=1e-3)
        nn.functional.cross_entropy(before.flatten(0, 1), loss.target.flatten()).backward()
        optimizer.step()
        return (loss.outputs(deeper) - before).abs().max().item()

    def zero_projections(block):
        for norm in (block.post_attention_layernorm, block.post_feedforward_layernorm):
            nn.init.zeros_(norm.weight)
        gpf.network.zero_outputs("self_attn.o_proj", "mlp.down_proj")(block)

    assert change(lambda block: None) < 0.1 * change(zero_projections)


@pytest.mark.parametrize(("scale", "zeroed"), [(1e-6, "layer_scale_parameter"), (0.0, "pwconv2.weight")])
def test_a_convnext_layer_is_silenced_where_it_learns_fastest(scale, zeroed):
    """Behind the usual layer scale of 1e-6, a zeroed projection would hardly get a gradient."""
    from transformers import ConvNextConfig
    from transformers.models.convnext.modeling_convnext import ConvNextLayer

    block = identity(ConvNextLayer(ConvNextConfig(layer_scale_init_value=scale), 8))
    assert [name for name, p in block.named_parameters() if p.dim() > 1 or "scale" in name if not p.any()] == [zeroed]
    x = torch.randn(2, 8, 9, 9)
    assert torch.equal(block(x), x)
    block(x).square().mean().backward()
    assert block.get_parameter(zeroed).grad.abs().max() > 1e-6


# Residual networks


def resnet_layer(inputs=4, outputs=4, stride=1, activation="relu"):
    from transformers.models.resnet.modeling_resnet import ResNetBasicLayer

    return ResNetBasicLayer(inputs, outputs, stride, activation)


@pytest.mark.parametrize("training", [True, False])
def test_a_resnet_layer_is_the_identity_after_another(training):
    last, block = resnet_layer().train(training), resnet_layer().train(training)
    x = last(torch.randn(2, 4, 5, 5))
    assert torch.equal(identity(block, last)(x), x)


@pytest.mark.parametrize(
    ("block", "last", "why"),
    [
        (lambda: resnet_layer(4, 8), resnet_layer, "changes the number of channels"),
        (lambda: resnet_layer(stride=2), resnet_layer, "changes the number of channels"),
        (lambda: resnet_layer(activation="gelu"), resnet_layer, "needs a ReLU"),
        (resnet_layer, lambda: resnet_layer(activation="gelu"), "needs a ReLU"),
        (resnet_layer, lambda: nn.Conv2d(4, 4, 1), "needs a ReLU"),
    ],
)
def test_a_resnet_layer_that_cannot_be_the_identity_is_refused(block, last, why):
    with pytest.raises(ValueError, match=why):
        identity(block(), last())


# Convolution, BatchNorm, ReLU


def test_a_batchnorm_block_is_exactly_the_identity_in_eval_mode():
    last, block = scrambled(conv_block(3)).eval(), conv_block().eval()
    x = last(torch.randn(4, 3, 9, 9))
    torch.testing.assert_close(identity(block, last)(x), x, rtol=0, atol=1e-6)
    odd = torch.rand(4, 6, 9, 9) * 100  # whatever its statistics
    torch.testing.assert_close(block(odd), odd, rtol=0, atol=1e-4)


def test_its_statistics_are_those_of_a_rectified_gaussian():
    last, block = scrambled(conv_block(3)), conv_block()
    initialise(block, last, "identity")
    z = torch.randn(400_000, 6, generator=torch.Generator().manual_seed(5))
    sampled = (last[1].bias + last[1].weight * z).relu()
    torch.testing.assert_close(block[1].running_mean, sampled.mean(0), rtol=0, atol=0.01)
    torch.testing.assert_close(block[1].running_var, sampled.var(0), rtol=0, atol=0.01)


@torch.no_grad()
def test_in_training_mode_it_is_the_identity_up_to_batch_statistics():
    last, block = scrambled(conv_block(3)), conv_block()
    x = last(torch.randn(64, 3, 16, 16))
    identity(block, last)
    error = (block(x) - x).square().mean().sqrt() / x.square().mean().sqrt()
    assert error < 0.03
    assert (conv_block()(x) - x).square().mean().sqrt() > 0.3  # what it would be
    after = identity(conv_block(), block)  # one more, after one that is still the identity
    assert (after(x) - x).square().mean().sqrt() / x.square().mean().sqrt() < 0.05


def test_a_channel_that_is_always_off_stays_off():
    last = conv_block(3)
    nn.init.zeros_(last[1].weight)
    nn.init.constant_(last[1].bias, -1.0)
    block = identity(conv_block(), last)
    x = last(torch.randn(4, 3, 9, 9))
    assert torch.isfinite(block[1].weight).all()
    for training in (True, False):
        assert torch.equal(block.train(training)(x), x)


@torch.no_grad()
def test_linear_maps_with_batchnorm_are_the_identity_too():
    last = scrambled(nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6)))
    block = identity(nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)), last)
    x = last(torch.randn(2000, 3))
    torch.testing.assert_close(block.eval()(x), x, rtol=0, atol=1e-5)
    assert (block.train()(x) - x).square().mean().sqrt() < 0.03


@pytest.mark.parametrize(
    ("block", "last", "why"),
    [
        (conv_block, lambda: nn.Sequential(nn.Conv2d(6, 6, 1), nn.ReLU()), "its BatchNorm needs a block before it"),
        (lambda: conv_block(affine=False), conv_block, "no running statistics, or no weight and bias"),
        (lambda: conv_block(track_running_stats=False), conv_block, "no running statistics, or no weight and bias"),
        (conv_block, lambda: conv_block(affine=False), "its BatchNorm needs a block before it"),
        (conv_block, lambda: nn.Sequential(nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6)), "the block before it does not"),
    ],
)
def test_batchnorm_blocks_that_cannot_be_the_identity_are_refused(block, last, why):
    with pytest.raises(ValueError, match=why):
        identity(block(), last())


# Gates


def test_a_gate_is_the_identity_when_shut_and_the_block_when_open():
    gated = gpf.network.Gated(nn.Sequential(nn.Linear(8, 8), nn.GELU()))
    x = torch.randn(4, 8)
    assert torch.equal(gated(x), x)
    with torch.no_grad():
        gated.gate.fill_(1.0)
        torch.testing.assert_close(gated(x), gated.block(x))
        gated.gate.fill_(0.25)
        torch.testing.assert_close(gated(x), 0.75 * x + 0.25 * gated.block(x))
    identity(gated)
    assert torch.equal(gated(x), x)


def test_a_gate_opens_by_itself_and_lets_the_block_learn():
    gated = gpf.network.Gated(nn.Sequential(nn.Linear(8, 8), nn.GELU()))
    x, before = torch.randn(4, 8), gated.block[0].weight.clone()
    optimizer = torch.optim.Adam(gated.parameters(), lr=0.01)
    for _ in range(3):
        optimizer.zero_grad()
        gated(x).square().mean().backward()
        optimizer.step()
    assert gated.gate.abs() > 0.01
    assert not torch.equal(gated.block[0].weight, before)


class Telling(nn.Module):
    """A block that also puts out what it was given."""

    kind = "full"

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, hidden_states, mask=None, *, scale=1.0):
        return self.linear(hidden_states) * scale, mask, scale


def test_everything_else_passes_through_a_gate():
    gated = gpf.network.Gated(Telling())
    x, mask = torch.randn(4, 8), torch.ones(4)
    for out in (gated(x, mask, scale=2.0), gated(mask=mask, scale=2.0, hidden_states=x)):
        assert isinstance(out, tuple)
        assert torch.equal(out[0], x)
        assert out[1] is mask
        assert out[2] == 2.0
    assert gated.kind == "full"
    assert not hasattr(gated, "unheard_of")
    twin = copy.deepcopy(gated)
    assert twin.state_dict().keys() == gated.state_dict().keys()
    assert twin.block is not gated.block


def test_a_gate_is_of_the_type_and_in_the_mode_of_its_block():
    gated = gpf.network.Gated(nn.Linear(4, 4).to(torch.bfloat16).eval())
    assert gated.gate.dtype == torch.bfloat16
    assert not gated.training
    assert gated(torch.randn(2, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16
    assert gpf.network.Gated(nn.ReLU()).gate.dtype == torch.float32


def test_a_gate_before_a_block_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="must turn a tensor into one of the same shape, got 2x4 and 2x5 from Linear"):
        gpf.network.Gated(nn.Linear(4, 5))(torch.randn(2, 4))


# Copies


def test_a_copy_may_leave_out_what_only_the_last_block_has():
    from transformers import T5Config
    from transformers.models.t5.modeling_t5 import T5Block

    config = T5Config(d_model=8, d_kv=4, d_ff=16, num_heads=2)
    first, block = T5Block(config, has_relative_attention_bias=True), T5Block(config)
    initialise(block, first, "copy")
    theirs = first.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in block.state_dict().items())
    with pytest.raises(ValueError, match="'copy' needs a new block of the same shape"):
        initialise(first, block, "copy")

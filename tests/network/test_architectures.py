"""Architectures that gpf works with as they are: `gpf.attach(model, optimizer, stack=...)`, and nothing else."""

import copy

import pytest
import torch
from torch import nn
from zoo import GATED, ZOO, Loss

import gpf
from gpf.network.blocks.factory import default_block

IDENTITIES = [name for name in ZOO if name not in GATED]
GENERATES = [
    "GPT-2", "GPT-NeoX", "Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Gemma 2", "Gemma 3", "GLM",
    "OLMo", "SmolLM3", "Phi-3", "StarCoder2", "OPT", "Mamba", "T5 encoder", "T5 decoder", "Whisper encoder",
    "Whisper decoder",
]  # fmt: skip
CHECKPOINTS = [name for name in GENERATES if name not in ("GLM", "OLMo", "SmolLM3", "Phi-3", "StarCoder2", "OPT")]
CHECKPOINTS += ["ViT", "BERT", "RoBERTa"]
STILL = gpf.Rules(grow_patience=None, prune_patience=None, freeze_patience=None)


def attached(name, **options):
    """A model of the zoo with gpf attached, with no code of the user's but for the gate: network, loss."""
    model, path, loss = ZOO[name]()
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=3e-3)
    block = None
    if name in GATED:
        make = default_block(model, path)
        block = lambda depth: gpf.network.Gated(make(depth))  # noqa: E731
    return gpf.attach(model, optimizer, stack=path, block=block, rules=STILL, **options), loss


def train(net, loss, steps=4):
    net.model.train()
    for _ in range(steps):
        value = loss()
        net.optimizer.zero_grad()
        value.backward()
        net.optimizer.step()
    net.model.eval()
    return value.item()


def outputs(loss, model=None):
    with torch.no_grad():
        return loss.outputs(model)


@pytest.mark.parametrize("name", ZOO)
def test_growth_keeps_the_outputs_and_new_blocks_learn(name):
    net, loss = attached(name)
    train(net, loss, steps=2)  # away from where initial values make things simple
    before, depth = outputs(loss), net.depth
    first = loss().item()
    net.grow()
    net.grow()
    assert len(net.model.get_submodule(net.stack)) == depth + 2
    torch.testing.assert_close(outputs(loss), before, rtol=0, atol=1e-5)
    grown = [layer.block for layer in net.layers[depth:]]
    fresh = [{key: p.detach().clone() for key, p in block.named_parameters()} for block in grown]
    train(net, loss, steps=6)
    for block, values in zip(grown, fresh, strict=True):
        still = [key for key, p in block.named_parameters() if torch.equal(p, values[key])]
        assert not [key for key in still if not key.endswith(("k_proj.bias", "key.bias"))], still  # softmax cancels it
    assert (outputs(loss) - before).abs().max() > 1e-4
    assert loss().item() < first


@pytest.mark.parametrize("name", ZOO)
def test_what_has_grown_is_pruned_and_frozen(name):
    net, loss = attached(name)
    net.grow()
    train(net, loss, steps=2)
    net.grow()
    net.prune(keep=0.5)
    older = [weight for layer in net.layers[:-1] for weight in layer.weights]
    share = sum(weight.count_pruned() for weight in older) / sum(weight.parameter.numel() for weight in older)
    assert share == pytest.approx(0.5, abs=0.01)
    net.freeze(net.depth - 2)
    still = {key: p.clone() for key, p in net.layers[-2].block.named_parameters()}
    train(net, loss, steps=2)
    assert all(torch.equal(p, still[key]) for key, p in net.layers[-2].block.named_parameters())
    assert not any(weight.parameter[weight.pruned].any() for weight in older if weight.pruned is not None)
    net.grow()  # a copy of a frozen block, which is to learn
    assert all(p.requires_grad for p in net.layers[-1].parameters())


DEPTHS = {  # after two growths, by where it is written
    "GPT-2": {"config": {"n_layer": 3, "num_hidden_layers": 3}},
    "GPT-NeoX": {"config": {"num_hidden_layers": 3}},
    "Llama": {"config": {"num_hidden_layers": 4}},
    "Qwen2": {"config": {"num_hidden_layers": 4, "layer_types": ["full_attention", "sliding_attention"] * 2}},
    "Gemma 2": {"config": {"num_hidden_layers": 4, "layer_types": ["sliding_attention", "full_attention"] * 2}},
    "Gemma 3": {
        "config": {
            "num_hidden_layers": 5,
            "layer_types": ["sliding_attention"] * 2 + ["full_attention"] + ["sliding_attention"] * 2,
        }
    },
    "SmolLM3": {"config": {"num_hidden_layers": 4, "no_rope_layers": [1, 0, 1, 0]}},
    "Mamba": {"config": {"num_hidden_layers": 3, "layer_types": ["linear_attention"] * 3}},
    "T5 encoder": {
        "config": {"num_layers": 3, "num_decoder_layers": 2},
        "encoder.config": {"num_layers": 3},
        "decoder.config": {"num_layers": 2, "num_decoder_layers": 2},
    },
    "T5 decoder": {
        "config": {"num_layers": 1, "num_decoder_layers": 3},
        "encoder.config": {"num_layers": 1},
        "decoder.config": {"num_layers": 3, "num_decoder_layers": 3},
    },
    "Whisper encoder": {"config": {"encoder_layers": 3, "decoder_layers": 1, "num_hidden_layers": 3}},
    "Whisper decoder": {"config": {"encoder_layers": 1, "decoder_layers": 3, "num_hidden_layers": 1}},
    "ViT": {"config": {"num_hidden_layers": 3}},
    "CLIP": {"config.vision_config": {"num_hidden_layers": 4}, "config.text_config": {"num_hidden_layers": 2}},
    "ConvNeXt": {"config": {"depths": [1, 4], "num_stages": 2}},
    "ResNet, basic": {"config": {"depths": [2, 4]}},
    "BERT": {"config": {"num_hidden_layers": 3}},
    "nn.TransformerEncoderLayer": {"stack": {"num_layers": 3}},
    "nn.TransformerDecoderLayer": {"stack": {"num_layers": 3}},
}


@pytest.mark.parametrize("name", DEPTHS)
def test_the_depth_that_a_model_writes_down_is_that_of_its_stack(name):
    net, _ = attached(name)
    before = {where: copy.deepcopy(vars(_at(net.model, where))) for where in DEPTHS[name]}
    net.grow()
    net.grow()
    for where, fields in DEPTHS[name].items():
        holder = _at(net.model, where)
        assert {field: _listed(getattr(holder, field)) for field in fields} == fields
    for _ in range(2):  # and back, as when a growth is undone
        gpf.network.surgery.remove_last_block(net.model, net.stack)
    for where, values in before.items():
        now = vars(_at(net.model, where))
        assert {key: now[key] for key in values if _plain(now[key])} == {k: v for k, v in values.items() if _plain(v)}


def _at(model, where):
    for part in where.split("."):
        model = getattr(model, part)
    return model


def _listed(value):
    return list(value) if isinstance(value, tuple) else value


def _plain(value):
    return isinstance(value, int | float | str | list | tuple)


@pytest.mark.parametrize("name", [n for n in IDENTITIES if not n.startswith(("nn.", "Conv2d"))])
def test_a_grown_model_is_read_back_by_transformers(name, tmp_path):
    net, loss = attached(name)
    net.grow()
    net.grow()
    train(net, loss, steps=2)
    net.model.save_pretrained(tmp_path)
    read, report = type(net.model).from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    torch.testing.assert_close(outputs(loss, read.eval()), outputs(loss), rtol=0, atol=1e-5)
    again = gpf.attach(read, torch.optim.Adam(read.parameters()), stack=net.stack, rules=STILL)
    again.grow()  # what transformers marks as loaded is initialised all the same
    torch.testing.assert_close(outputs(loss, read), outputs(loss), rtol=0, atol=1e-5)
    assert net.depth + 1 == again.depth


@pytest.mark.parametrize("name", GENERATES)
def test_a_grown_model_generates_the_same_with_its_cache_as_without(name):
    net, loss = attached(name)
    net.grow()
    net.grow()
    train(net, loss, steps=8)
    first = "input_features" if "input_features" in loss.inputs else "input_ids"
    prompt = loss.inputs[first][:2, :5] if first == "input_ids" else loss.inputs[first][:2]
    options = {"max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    made = [net.model.generate(prompt, use_cache=cached, **options) for cached in (True, False)]
    assert made[0].shape[1] >= 8
    assert torch.equal(*made)


@pytest.mark.parametrize(
    ("name", "reentrant"), [*((name, False) for name in CHECKPOINTS), ("Llama", True), ("BERT", True)]
)
def test_gradient_checkpointing_goes_on_in_grown_blocks(name, reentrant):
    net, loss = attached(name)
    net.model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    net.grow()
    block = net.layers[-1].block
    block = block.block if name in GATED else block
    assert block.gradient_checkpointing
    assert block.training is net.layers[0].block.training
    calls = []
    block.register_forward_pre_hook(lambda *_: calls.append(1))
    train(net, loss, steps=1)
    assert len(calls) == 2  # once more in the backward pass


def test_a_factory_of_the_users_gets_gradient_checkpointing_types_and_what_it_reads_from_the_configuration():
    from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

    model, path, loss = ZOO["Qwen2"]()
    model.to(torch.bfloat16)
    model.model.layers[1].self_attn.q_proj.float()
    model.gradient_checkpointing_enable()
    net = gpf.attach(
        model, torch.optim.Adam(model.parameters()), path, lambda d: Qwen2DecoderLayer(model.config, d), STILL
    )
    net.grow()
    block = net.layers[2].block
    assert block.self_attn.layer_idx == 2
    assert block.self_attn.sliding_window is None  # full attention, every other layer
    assert block.gradient_checkpointing
    assert block.self_attn.q_proj.weight.dtype == torch.float32
    assert block.mlp.up_proj.weight.dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["GPT-2", "Llama"])
def test_blocks_with_lora_adapters_grow_with_them(name):
    import peft

    model, path, loss = ZOO[name]()
    targets = ["c_attn", "c_proj", "c_fc"] if name == "GPT-2" else "all-linear"
    options = {"fan_in_fan_out": True} if name == "GPT-2" else {}
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=targets, lora_dropout=0.0, **options))
    optimizer = torch.optim.Adam([p for p in adapted.parameters() if p.requires_grad], lr=1e-2)
    loss = Loss(adapted, loss.target, **loss.inputs)
    net = gpf.attach(adapted, optimizer, stack=f"base_model.model.{path}", rules=STILL)
    train(net, loss, steps=3)
    before, depth = outputs(loss), net.depth
    net.grow()
    net.grow()
    torch.testing.assert_close(outputs(loss), before, rtol=0, atol=1e-5)
    assert adapted.config.num_hidden_layers == depth + 2
    for layer in net.layers[depth:]:
        learns = {key for key, p in layer.block.named_parameters() if p.requires_grad}
        assert learns == {key for key, p in net.layers[0].block.named_parameters() if p.requires_grad}
        assert all("lora" in key for key in learns)
    fresh = {key: p.detach().clone() for key, p in net.layers[-1].block.named_parameters()}
    assert not any(value.any() for key, value in fresh.items() if "lora_B" in key)  # PEFT's own start: no effect
    value = loss().item()
    train(net, loss, steps=5)
    for key, parameter in net.layers[-1].block.named_parameters():
        assert torch.equal(parameter, fresh[key]) is not parameter.requires_grad, key
    assert loss().item() < value
    assert net.layers[-1].block.get_submodule("attn" if name == "GPT-2" else "self_attn").layer_idx == depth + 1


def test_a_factory_without_the_adapters_of_the_last_block_is_refused():
    import peft
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    model, path, _ = ZOO["Llama"]()
    peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules="all-linear"))
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad])
    net = gpf.attach(model, optimizer, stack=path, block=lambda depth: LlamaDecoderLayer(model.config, depth))
    with pytest.raises(ValueError, match=r"block must make blocks with the adapters that .* has.*leave block out"):
        net.grow()
    assert model.config.num_hidden_layers == 2


def test_a_block_whose_outputs_could_never_leave_zero_is_refused():
    import peft

    model, path, _ = ZOO["Llama"]()
    peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"]))
    net = gpf.attach(model, torch.optim.Adam([p for p in model.parameters() if p.requires_grad]), stack=path)
    with pytest.raises(ValueError, match=r"o_proj, mlp.down_proj would be zero and cannot learn.*grow_init='gated'"):
        net.grow()


def test_hidden_states_are_those_of_all_blocks_after_growth():
    net, loss = attached("Llama")
    net.model(**loss.inputs, output_hidden_states=True)  # transformers installs its hooks once
    net.grow()
    assert len(net.model(**loss.inputs, output_hidden_states=True).hidden_states) == 4


def test_a_composite_model_records_the_depth_of_the_part_that_grew():
    from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPVisionConfig

    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = CLIPTextConfig(vocab_size=13, max_position_embeddings=16, **sizes)
    vision = CLIPVisionConfig(image_size=16, patch_size=8, **sizes)
    model = CLIPModel(CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=8))
    rules = gpf.Rules(grow_init="built")
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), stack="vision_model.encoder.layers", rules=rules)
    net.grow()
    assert model.config.vision_config.num_hidden_layers == 3
    assert model.config.text_config.num_hidden_layers == 2


def test_an_encoder_and_a_decoder_of_the_same_type_are_counted_separately():
    from transformers import BertConfig, EncoderDecoderConfig, EncoderDecoderModel

    sizes = {"vocab_size": 13, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
    part = BertConfig(num_attention_heads=2, **sizes)
    model = EncoderDecoderModel(config=EncoderDecoderConfig.from_encoder_decoder_configs(part, copy.deepcopy(part)))
    net = gpf.attach(
        model, torch.optim.Adam(model.parameters()), stack="encoder.encoder.layer", rules=gpf.Rules(grow_init="copy")
    )
    net.grow()
    assert (model.config.encoder.num_hidden_layers, model.config.decoder.num_hidden_layers) == (2, 1)


def test_a_stack_beside_the_model_that_a_configuration_describes_is_none_of_its_layers():
    model, _, _ = ZOO["GPT-2"]()
    model.extra = nn.ModuleList([nn.Linear(4, 4)])
    net = gpf.attach(model, torch.optim.Adam(model.parameters()), stack="extra")
    net.grow()
    assert model.config.n_layer == 1

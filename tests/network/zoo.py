"""Small models of the architectures that gpf knows, with random weights: by name, a function that builds one.

Each returns the model, the path to its stack, and its loss, a function without arguments that also has `outputs`.
"""

import torch
from torch import nn

VOCABULARY, LENGTH, WIDTH = 13, 10, 16


class Loss:
    """The loss of a model on a fixed small batch; `outputs(model)` are what the model makes of it."""

    def __init__(self, model, target, **inputs):
        self.model, self.target, self.inputs = model, target, inputs

    def outputs(self, model=None):
        out = (model or self.model)(**self.inputs)
        return out if torch.is_tensor(out) else out.logits if hasattr(out, "logits") else out[0]

    def __call__(self):
        out = self.outputs()  # (..., classes)
        return nn.functional.cross_entropy(out.flatten(0, -2), self.target.flatten())


def _tokens(count=8, length=LENGTH):
    return torch.randint(3, VOCABULARY, (count, length), generator=torch.Generator().manual_seed(1))


def _images(size=16, count=8):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, 3, size, size, generator=generator), torch.randint(0, 4, (count,), generator=generator)


def _language_model(model, path):
    tokens = _tokens()
    return model.eval(), path, Loss(model, tokens.roll(1, 1), input_ids=tokens, use_cache=False)


def _vision_model(model, path):
    images, classes = _images()
    return model.eval(), path, Loss(model, classes, pixel_values=images)


def _decoder(name, path="model.layers", layers=2, **options):
    def build():
        import transformers

        sizes = {
            "vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": layers,
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8, "max_position_embeddings": 32,
            "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
        }  # fmt: skip
        config = getattr(transformers, f"{name}Config")(**(sizes | options))
        kind = name.removesuffix("Text")
        return _language_model(getattr(transformers, f"{kind}ForCausalLM")(config), path)

    return build


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=WIDTH, n_layer=1, n_head=2, resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return _language_model(GPT2LMHeadModel(config), "transformer.h")


def mamba():
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, state_size=4, num_hidden_layers=1, time_step_rank=2,
        pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return _language_model(MambaForCausalLM(config), "backbone.layers")


def _t5(path, encoder=1, decoder=2):
    def build():
        from transformers import T5Config, T5ForConditionalGeneration

        config = T5Config(
            vocab_size=VOCABULARY, d_model=WIDTH, d_kv=8, d_ff=32, num_layers=encoder, num_decoder_layers=decoder,
            num_heads=2, dropout_rate=0.0, decoder_start_token_id=0, eos_token_id=2,
        )  # fmt: skip
        model = T5ForConditionalGeneration(config).eval()
        tokens = _tokens()
        return model, path, Loss(model, tokens.flip(1), input_ids=tokens, decoder_input_ids=tokens.roll(1, 1))

    return build


def _whisper(path, encoder=1, decoder=1):
    def build():
        from transformers import WhisperConfig, WhisperForConditionalGeneration

        config = WhisperConfig(
            vocab_size=VOCABULARY, num_mel_bins=4, d_model=WIDTH, encoder_layers=encoder, decoder_layers=decoder,
            encoder_attention_heads=2, decoder_attention_heads=2, encoder_ffn_dim=32, decoder_ffn_dim=32, dropout=0.0,
            max_source_positions=8, max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
            decoder_start_token_id=1, suppress_tokens=None, begin_suppress_tokens=None,
        )  # fmt: skip
        model = WhisperForConditionalGeneration(config).eval()
        tokens = _tokens()
        sound = torch.randn(8, 4, 16, generator=torch.Generator().manual_seed(1))
        return model, path, Loss(model, tokens.flip(1), input_features=sound, decoder_input_ids=tokens.roll(1, 1))

    return build


def vit():
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=16,
        patch_size=4, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=4,
    )  # fmt: skip
    return _vision_model(ViTForImageClassification(config), "vit.layers")


def _vision_tower(name, path):
    def build():
        import transformers

        config = getattr(transformers, f"{name}Config")(
            vision_config={
                "hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
                "image_size": 16, "patch_size": 4,
            },
            text_config={"num_hidden_layers": 2, "hidden_size": WIDTH, "num_attention_heads": 2},
            num_labels=4,
        )  # fmt: skip
        return _vision_model(getattr(transformers, f"{name}ForImageClassification")(config), path)

    return build


def dinov2():
    from transformers import Dinov2Config, Dinov2ForImageClassification

    config = Dinov2Config(
        hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=2, mlp_ratio=2, image_size=16, patch_size=4,
        num_labels=4,
    )  # fmt: skip
    return _vision_model(Dinov2ForImageClassification(config), "dinov2.encoder.layer")


def convnext():
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(patch_size=2, num_stages=2, hidden_sizes=[8, WIDTH], depths=[1, 2], num_labels=4)
    return _vision_model(ConvNextForImageClassification(config), "convnext.encoder.stages.1.layers")


def _resnet(kind):
    def build():
        from transformers import ResNetConfig, ResNetForImageClassification

        config = ResNetConfig(
            embedding_size=8, hidden_sizes=[8, WIDTH], depths=[2, 2], layer_type=kind, num_labels=4,
            downsample_in_first_stage=False,
        )  # fmt: skip
        return _vision_model(ResNetForImageClassification(config), "resnet.encoder.stages.1.layers")

    return build


def _bert(name):
    def build():
        import transformers

        config = getattr(transformers, f"{name}Config")(
            vocab_size=VOCABULARY, hidden_size=WIDTH, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, max_position_embeddings=32, pad_token_id=0,
        )  # fmt: skip
        model = getattr(transformers, f"{name}ForMaskedLM")(config).eval()
        tokens = _tokens()
        return model, f"{name.lower()}.encoder.layer", Loss(model, tokens.roll(1, 1), input_ids=tokens)

    return build


class Transformer(nn.Module):
    """torch's own layers between an embedding and a head."""

    def __init__(self, stack, decodes=False):
        super().__init__()
        self.embedding, self.stack, self.head = nn.Embedding(VOCABULARY, WIDTH), stack, nn.Linear(WIDTH, VOCABULARY)
        self.decodes = decodes

    def forward(self, tokens):
        x = self.embedding(tokens)
        return self.head(self.stack(x, x.flip(1)) if self.decodes else self.stack(x))


def _torch_transformer(layer, stack, **options):
    def build():
        made = layer(WIDTH, 2, 32, dropout=0.0, batch_first=True, norm_first=True)
        model = Transformer(stack(made, 1, **options), decodes=layer is nn.TransformerDecoderLayer).eval()
        tokens = _tokens()
        return model, "stack.layers", Loss(model, tokens.roll(1, 1), tokens=tokens)

    return build


def conv_batchnorm_relu():
    def block(inputs):
        return nn.Sequential(nn.Conv2d(inputs, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())

    head = [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4)]
    model = nn.Sequential(nn.Sequential(block(3), block(8)), *head)
    images, classes = _images()
    for _ in range(50):
        model(images)  # running statistics
    return model.eval(), "0", Loss(model, classes, input=images)


def linear_gelu():
    def block(inputs):
        return nn.Sequential(nn.Linear(inputs, WIDTH), nn.GELU())

    model = nn.Sequential(nn.Sequential(block(6), block(WIDTH)), nn.Linear(WIDTH, 4)).eval()
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(32, 6, generator=generator), torch.randint(0, 4, (32,), generator=generator)
    return model, "0", Loss(model, y, input=x)


_GEMMA3 = {"sliding_window": 4, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}

ZOO = {
    "GPT-2": gpt2,
    "GPT-NeoX": _decoder("GPTNeoX", "gpt_neox.layers", layers=1),
    "Llama": _decoder("Llama"),
    "Mistral": _decoder("Mistral", layers=1),
    "Qwen2": _decoder(
        "Qwen2", use_sliding_window=True, sliding_window=4, layer_types=["full_attention", "sliding_attention"]
    ),
    "Qwen3": _decoder("Qwen3", layers=1),
    "Gemma": _decoder("Gemma", layers=1),
    "Gemma 2": _decoder("Gemma2", sliding_window=4),
    "Gemma 3": _decoder("Gemma3Text", layers=3, **_GEMMA3),
    "GLM": _decoder("Glm", layers=1),
    "OLMo": _decoder("Olmo", layers=1),
    "SmolLM3": _decoder("SmolLM3", no_rope_layers=[1, 0], layer_types=["full_attention"] * 2),
    "Phi-3": _decoder("Phi3", layers=1, resid_pdrop=0.0),
    "StarCoder2": _decoder("Starcoder2", layers=1),
    "OPT": _decoder("OPT", "model.decoder.layers", layers=1, ffn_dim=32, word_embed_proj_dim=WIDTH, dropout=0.0),
    "Mamba": mamba,
    "T5 encoder": _t5("encoder.block"),
    "T5 decoder": _t5("decoder.block", decoder=1),
    "Whisper encoder": _whisper("model.encoder.layers"),
    "Whisper decoder": _whisper("model.decoder.layers"),
    "ViT": vit,
    "CLIP": _vision_tower("CLIP", "vision_model.encoder.layers"),
    "SigLIP": _vision_tower("Siglip", "vision_model.encoder.layers"),
    "DINOv2": dinov2,
    "ConvNeXt": convnext,
    "ResNet, basic": _resnet("basic"),
    "ResNet, bottleneck": _resnet("bottleneck"),
    "BERT": _bert("Bert"),
    "RoBERTa": _bert("Roberta"),
    "nn.TransformerEncoderLayer": _torch_transformer(
        nn.TransformerEncoderLayer, nn.TransformerEncoder, enable_nested_tensor=False
    ),
    "nn.TransformerDecoderLayer": _torch_transformer(nn.TransformerDecoderLayer, nn.TransformerDecoder),
    "Conv2d, BatchNorm2d, ReLU": conv_batchnorm_relu,
    "Linear, GELU": linear_gelu,
}
"""All of them, by the name that readers know."""

GATED = {"BERT", "RoBERTa", "Linear, GELU"}
"""Those whose blocks cannot be the identity by themselves, and grow behind a gate."""

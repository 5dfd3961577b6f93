"""Small models of every kind that units can be removed from, with random weights and biases."""

import copy
import functools

import torch
from torch import nn

import gpf
from gpf.network.compaction.compact import compact

VOCABULARY, LENGTH, WIDTH, HEADS, INNER = 17, 10, 16, 4, 20


def mlp():
    return gpf.MLP(6, INNER, 3, depth=3), "layers", lambda: torch.randn(5, 6)


def cnn(padding=1, norm=False):
    def block(depth):
        convolution = nn.Conv2d(2 if depth == 0 else INNER, INNER, 3, padding=padding)
        return nn.Sequential(convolution, *[nn.BatchNorm2d(INNER)] * norm, nn.ReLU(), *[nn.MaxPool2d(2)] * (depth == 1))

    model = nn.Sequential(nn.Sequential(block(0), block(1), block(2)), nn.Flatten(), nn.LazyLinear(4))
    model(torch.zeros(1, 2, 16, 16))
    return model, "0", lambda: torch.randn(3, 2, 16, 16)


def unpadded_cnn():
    return cnn(padding=0)


def cnn_with_batch_norm():
    return cnn(padding=0, norm=True)


class Encoder(nn.Module):
    def __init__(self, decoder=False):
        super().__init__()
        self.decoder = decoder
        layer = nn.TransformerDecoderLayer if decoder else nn.TransformerEncoderLayer
        self.layers = nn.ModuleList(layer(WIDTH, HEADS, INNER, dropout=0.0, batch_first=True) for _ in range(2))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x, x) if self.decoder else layer(x)
        return x


def torch_encoder():
    return Encoder(), "layers", lambda: torch.randn(2, LENGTH, WIDTH)


def torch_decoder():
    return Encoder(decoder=True), "layers", lambda: torch.randn(2, LENGTH, WIDTH)


def tokens():
    return torch.randint(1, VOCABULARY, (2, LENGTH))


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=WIDTH, n_layer=2, n_head=HEADS, n_inner=INNER, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(config), "transformer.h", tokens


def llama_like(name, **options):
    import transformers

    config = getattr(transformers, f"{name}Config")(
        vocab_size=VOCABULARY, max_position_embeddings=32, hidden_size=WIDTH, num_hidden_layers=2, head_dim=4,
        intermediate_size=INNER, num_key_value_heads=HEADS, bos_token_id=0, eos_token_id=0, pad_token_id=0,
        **{"num_attention_heads": HEADS} | options,
    )  # fmt: skip
    return getattr(transformers, f"{name.removesuffix('Text')}ForCausalLM")(config), "model.layers", tokens


def llama():
    return llama_like("Llama")


def llama_with_biases():
    return llama_like("Llama", attention_bias=True, mlp_bias=True)


def llama_with_grouped_queries():
    return llama_like("Llama", num_attention_heads=8)


def grouped_queries_with_biases():
    return llama_like("Llama", num_attention_heads=8, attention_bias=True)


def mistral():
    return llama_like("Mistral", num_attention_heads=8)


def qwen2():
    return llama_like("Qwen2")


def qwen3():
    return llama_like("Qwen3", num_attention_heads=8)


def gemma():
    return llama_like("Gemma")


def gemma2():
    return llama_like("Gemma2", attn_implementation="eager")


def gemma3():
    return llama_like("Gemma3Text", num_attention_heads=8)


def gpt_neox():
    from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

    config = GPTNeoXConfig(
        vocab_size=VOCABULARY, max_position_embeddings=32, hidden_size=WIDTH, num_hidden_layers=2,
        num_attention_heads=HEADS, intermediate_size=INNER, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return GPTNeoXForCausalLM(config), "gpt_neox.layers", tokens


def bert_like(name, stack):
    import transformers

    config = getattr(transformers, f"{name}Config")(
        vocab_size=VOCABULARY, max_position_embeddings=32, hidden_size=WIDTH, num_hidden_layers=2, embedding_size=WIDTH,
        num_attention_heads=HEADS, intermediate_size=INNER, pad_token_id=0,
    )  # fmt: skip
    return getattr(transformers, f"{name}Model")(config), stack, tokens


def bert():
    return bert_like("Bert", "encoder.layer")


def roberta():
    return bert_like("Roberta", "encoder.layer")


def electra():
    return bert_like("Electra", "encoder.layer")


def vit():
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        image_size=16, patch_size=8, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=HEADS,
        intermediate_size=INNER,
    )  # fmt: skip
    return ViTModel(config), "layers", lambda: torch.randn(2, 3, 16, 16)


def siglip():
    from transformers import SiglipVisionConfig, SiglipVisionModel

    config = SiglipVisionConfig(
        image_size=16, patch_size=8, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=HEADS,
        intermediate_size=INNER,
    )  # fmt: skip
    return SiglipVisionModel(config), "encoder.layers", lambda: torch.randn(2, 3, 16, 16)


def bart():
    from transformers import BartConfig, BartModel

    config = BartConfig(
        vocab_size=VOCABULARY, max_position_embeddings=32, d_model=WIDTH, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=INNER, decoder_ffn_dim=INNER,
        pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    return BartModel(config), "decoder.layers", lambda: (tokens(), tokens())


def whisper(stack):
    from transformers import WhisperConfig, WhisperModel

    config = WhisperConfig(
        vocab_size=VOCABULARY, d_model=WIDTH, encoder_layers=2, decoder_layers=2, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=INNER, decoder_ffn_dim=INNER, num_mel_bins=8,
        max_source_positions=LENGTH, max_target_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=1,
    )  # fmt: skip
    return WhisperModel(config), stack, lambda: (torch.randn(2, 8, 2 * LENGTH), tokens())


def whisper_encoder():
    return whisper("encoder.layers")


def whisper_decoder():
    return whisper("decoder.layers")


def t5(form="relu"):
    from transformers import T5Config, T5EncoderModel

    config = T5Config(
        vocab_size=VOCABULARY, d_model=WIDTH, d_kv=4, d_ff=INNER, num_layers=2, num_heads=HEADS, feed_forward_proj=form,
        pad_token_id=0,
    )  # fmt: skip
    return T5EncoderModel(config), "encoder.block", tokens


def gated_t5():
    return t5("gated-gelu")


def convnext():
    from transformers import ConvNextConfig, ConvNextModel

    config = ConvNextConfig(hidden_sizes=[8, 12], depths=[2, 2], num_stages=2, patch_size=2, layer_scale_init_value=0.5)
    return ConvNextModel(config), "encoder.stages", lambda: torch.randn(2, 3, 16, 16)


def resnet(kind="basic"):
    from transformers import ResNetConfig, ResNetModel

    config = ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16] if kind == "basic" else [64, 128], depths=[2, 2], layer_type=kind
    )
    return ResNetModel(config), "encoder.stages", lambda: torch.randn(2, 3, 32, 32)


def resnet_with_bottlenecks():
    return resnet("bottleneck")


def made(make):
    """A model in evaluation, its stack and its inputs."""
    return copy.deepcopy(_made(make))


@functools.cache
def _made(make):
    """The model in evaluation, its stack and its inputs; weights, biases and statistics are all of order one.

    As new models come, biases are zero and blocks hardly add to their input, so that errors would not show.
    """
    torch.manual_seed(0)
    model, stack, draw = make()
    with torch.no_grad():
        for name, values in [*model.named_parameters(), *model.named_buffers()]:
            if not values.is_floating_point() or "inv_freq" in name or "embed_scale" in name:
                continue
            noise = 0.3 * torch.randn_like(values)
            values.copy_(torch.rand_like(values) + 0.5 if "var" in name else noise + values * (values.dim() < 2))
    return model.eval(), stack, draw()


def outputs(model, inputs):
    """The first output of a model."""
    out = model(inputs[0], decoder_input_ids=inputs[1]) if isinstance(inputs, tuple) else model(inputs)
    return out if torch.is_tensor(out) else out[0]


def size(model):
    return sum(parameter.numel() for parameter in model.parameters())


def zero(tensor, *index):
    """Set some entries of a parameter to zero."""
    with torch.no_grad():
        tensor[index] = 0.0


def compacted(model, stack, inputs):
    """The smaller model, which must compute the same."""
    smaller = compact(model, stack)
    with torch.no_grad():
        torch.testing.assert_close(outputs(smaller, inputs), outputs(model, inputs), rtol=1e-5, atol=1e-5)
    return smaller

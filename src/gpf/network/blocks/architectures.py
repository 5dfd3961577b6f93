"""How to make the blocks of known architectures the identity: torch's and Hugging Face's, by class name.

transformers is never imported: a class counts if its module is one of transformers and its name is in the table.
"""

from collections.abc import Callable

from torch import nn

from gpf.network.blocks.zeroing import fill_outputs, no_identity, zero_outputs
from gpf.network.sharding import class_of

Identity = Callable[[nn.Module, nn.Module], None]
"""Makes its first argument the identity, given the block before it."""


def _zero(*paths: str) -> Identity:
    initialiser = zero_outputs(*paths)
    return lambda block, last: initialiser(block)


def _zero_present(*paths: str) -> Identity:
    """Of alternatives separated by `|`, the first that the block has; of `name?`, nothing where it has none."""

    def initialise(block: nn.Module, last: nn.Module) -> None:
        chosen = []
        for path in paths:
            choices = path.rstrip("?").split("|")
            present = [choice for choice in choices if _has(block, choice)]
            if present or not path.endswith("?"):
                chosen.append((present or choices)[0])
        zero_outputs(*chosen)(block)

    return initialise


def _has(block: nn.Module, path: str) -> bool:
    found: object = block
    for name in path.split("."):
        found = getattr(found, name, None)
    return found is not None


def _cannot(why: str) -> Identity:
    def refuse(block: nn.Module, last: nn.Module) -> None:
        raise no_identity(block, why)

    return refuse


def _sandwich(*norms: str) -> Identity:
    """Blocks that normalise each branch before they add it, by a norm that multiplies with 1 + weight.

    A projection of zero would not do: the norm would blow its first small steps up to full size.
    """
    return lambda block, last: fill_outputs(block, [f"{norm}.weight" for norm in norms], -1.0)


def _t5(block: nn.Module, last: nn.Module) -> None:
    """Self-attention, cross-attention in a decoder, and a feed-forward part, whose names differ between the two."""
    parts = [path for path, module in block.named_modules() if path.count(".") == 2]
    ends = [("SelfAttention", "o"), ("EncDecAttention", "o"), ("DenseReluDense", "wo")]
    zero_outputs(*(f"{path}.{end}" for path in parts for name, end in ends if path.endswith(f".{name}")))(block)


def _convnext(block: nn.Module, last: nn.Module) -> None:
    """The layer scale, through which alone the usual 1e-6 would let it learn; without one, the last projection."""
    scaled = getattr(block, "layer_scale_parameter", None) is not None
    zero_outputs("layer_scale_parameter" if scaled else "pwconv2")(block)


def _opt(block: nn.Module, last: nn.Module) -> None:
    if not block.do_layer_norm_before:
        raise no_identity(block, "it normalises its output (do_layer_norm_before=False)")
    zero_outputs("self_attn.out_proj", "fc2")(block)


def _resnet(block: nn.Module, last: nn.Module) -> None:
    """relu(x + f(x)), which is x where x is not negative and f ends in a BatchNorm of zero."""
    layers = block.get_submodule("layer")
    assert isinstance(layers, nn.Sequential)
    if not isinstance(block.shortcut, nn.Identity):
        raise no_identity(block, "it changes the number of channels or the size of the image")
    if not is_nonnegative(block) or not is_nonnegative(last):
        raise no_identity(block, "it needs a ReLU at its end and at that of the block before it")
    zero_outputs(f"layer.{len(layers) - 1}.normalization")(block)


def is_nonnegative(block: nn.Module) -> bool:
    """Whether a block's output is surely not negative."""
    if isinstance(block, nn.Sequential) and class_of(block) is nn.Sequential:
        ends = [module for module in block if not isinstance(module, nn.Dropout | nn.Identity)]
        return bool(ends) and is_nonnegative(ends[-1])
    if is_of_transformers(type(block)) and type(block).__name__ in ("ResNetBasicLayer", "ResNetBottleNeckLayer"):
        return isinstance(block.activation, nn.ReLU)
    return isinstance(block, nn.ReLU)


def _pre_norm(*paths: str) -> Identity:
    def initialise(layer: nn.Module, last: nn.Module) -> None:
        if not layer.norm_first:
            raise no_identity(layer, "it normalises its output (norm_first=False)")
        zero_outputs(*paths)(layer)

    return initialise


def is_of_transformers(kind: type) -> bool:
    """Whether a class is one of Hugging Face's transformers, and not another one of the same name."""
    return kind.__module__.startswith("transformers.")


_POST_NORM = _cannot("it normalises its output")
_GATED_MLP = _zero("self_attn.o_proj", "mlp.down_proj")

TORCH: dict[type, Identity] = {
    nn.TransformerEncoderLayer: _pre_norm("self_attn.out_proj", "linear2"),
    nn.TransformerDecoderLayer: _pre_norm("self_attn.out_proj", "multihead_attn.out_proj", "linear2"),
}

TRANSFORMERS: dict[str, Identity] = {
    "GPT2Block": _zero_present("attn.c_proj", "crossattention.c_proj?", "mlp.c_proj"),
    "GPTNeoXLayer": _zero("attention.dense", "mlp.dense_4h_to_h"),
    "LlamaDecoderLayer": _GATED_MLP,
    "MistralDecoderLayer": _GATED_MLP,
    "Qwen2DecoderLayer": _GATED_MLP,
    "Qwen3DecoderLayer": _GATED_MLP,
    "GemmaDecoderLayer": _GATED_MLP,
    "GlmDecoderLayer": _GATED_MLP,
    "OlmoDecoderLayer": _GATED_MLP,
    "SmolLM3DecoderLayer": _GATED_MLP,
    "Phi3DecoderLayer": _GATED_MLP,
    "Starcoder2DecoderLayer": _zero("self_attn.o_proj", "mlp.c_proj"),
    "OPTDecoderLayer": _opt,
    "Gemma2DecoderLayer": _sandwich("post_attention_layernorm", "post_feedforward_layernorm"),
    "Gemma3DecoderLayer": _sandwich("post_attention_layernorm", "post_feedforward_layernorm"),
    "T5Block": _t5,
    "WhisperEncoderLayer": _zero("self_attn.out_proj", "fc2"),
    "WhisperDecoderLayer": _zero("self_attn.out_proj", "encoder_attn.out_proj", "fc2"),
    "MambaBlock": _zero("mixer.out_proj"),
    "ViTLayer": _zero_present("attention.o_proj|attention.output.dense", "mlp.fc2|output.dense"),
    "CLIPEncoderLayer": _zero("self_attn.out_proj", "mlp.fc2"),
    "SiglipEncoderLayer": _zero("self_attn.out_proj", "mlp.fc2"),
    "Dinov2Layer": _zero("layer_scale1.lambda1", "layer_scale2.lambda1"),
    "ConvNextLayer": _convnext,
    "ResNetBasicLayer": _resnet,
    "ResNetBottleNeckLayer": _resnet,
    "BertLayer": _POST_NORM,
    "RobertaLayer": _POST_NORM,
    "BartEncoderLayer": _POST_NORM,
    "BartDecoderLayer": _POST_NORM,
}

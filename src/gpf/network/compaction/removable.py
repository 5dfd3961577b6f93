"""The inner structure of blocks of torch and Hugging Face, as far as units can be removed from them.

A class is named here only if its `forward` does just what the link says; unknown structures are left alone.
"""

from collections.abc import Iterator
from typing import Any, TypeGuard

from torch import nn

from gpf.network.compaction.between import acts_elementwise
from gpf.network.compaction.feed_forward import Gated, Link, Plain
from gpf.network.compaction.heads import Heads, split_by_head, split_by_kind
from gpf.network.compaction.maps import Part, count, evenly, is_map

_Table = list[tuple[set[str], tuple[str, ...]]]
"""Names of classes, and the paths of what belongs to a link inside them."""


def _named(prefixes: str, *endings: str) -> set[str]:
    return {prefix + ending for prefix in prefixes.split() for ending in endings}


_LLAMA = (
    "Llama Mistral Ministral Qwen2 Qwen2Moe Qwen3 Qwen3Moe Gemma Gemma2 Gemma3 Granite Helium Ernie4_5 EuroBert Cwm"
    " SolarOpen Evolla HyperCLOVAX Csm Emu3"
)
_VISION = "ViT ViTMAE ViTMSN DeiT Dinov2 Dinov2WithRegisters AST IJepa Vivit"
_CLIP = "CLIP AltCLIP MetaClip2 Siglip Siglip2"
_BERT = "Bert BertGeneration Camembert Data2VecText Electra Ernie Roberta RoCBert XLMRoberta"
_BART = "Whisper Bart MBart Marian Pegasus M2M100 Blenderbot BlenderbotSmall PLBart"

# Class names; the first map, the function between and the second map.
_PLAIN: _Table = [
    (_named("GPT2 DecisionTransformerGPT2 ImageGPT GPTNeo Starcoder2", "MLP"), ("c_fc", "act", "c_proj")),
    (_named(f"{_VISION} {_CLIP} Phi", "MLP"), ("fc1", "activation_fn", "fc2")),
    (_named(_BART, "EncoderLayer", "DecoderLayer") | {"OPTDecoderLayer"}, ("fc1", "activation_fn", "fc2")),
    (_named(_BERT, "Layer"), ("intermediate.dense", "intermediate.intermediate_act_fn", "output.dense")),
    (_named("GPTNeoX", "MLP"), ("dense_h_to_4h", "act", "dense_4h_to_h")),
    (_named("T5 MT5 UMT5 LongT5", "DenseActDense"), ("wi", "act", "wo")),
    ({"ConvNextLayer"}, ("pwconv1", "act", "pwconv2")),
]
# Class names; gate, up, the gate's function, down.
_GATED: _Table = [
    (
        _named(f"{_LLAMA} SmolLM3 Olmo Olmo2 Olmo3 StableLm Cohere", "MLP"),
        ("gate_proj", "up_proj", "act_fn", "down_proj"),
    ),
    (_named("T5 MT5 UMT5", "DenseGatedActDense"), ("wi_0", "wi_1", "act", "wo")),
]
# Class names; the size of a head, queries, keys, values, output.
_SEPARATE: _Table = [
    (_named(f"{_LLAMA} Mixtral {_VISION}", "Attention"), ("head_dim", "q_proj", "k_proj", "v_proj", "o_proj")),
    (_named(f"{_BART} {_CLIP}", "Attention"), ("head_dim", "q_proj", "k_proj", "v_proj", "out_proj")),
    (_named(_BERT, "Attention"), ("self.attention_head_size", "self.query", "self.key", "self.value", "output.dense")),
]
# Class names; the size of a head, queries and keys and values in one, output.
_FUSED: _Table = [
    ({"GPT2Attention"}, ("head_dim", "c_attn", "c_proj")),
    ({"GPTNeoXAttention"}, ("head_size", "query_key_value", "dense")),
]
_CHAINS = {"ResNetConvLayer": ("convolution", "normalization", "activation")}
"""Modules of transformers that work like a Sequential."""


def links_of(module: nn.Module) -> Iterator[Link]:
    """The places in a known module, not counting its children's, from which units can be removed."""
    if _is_of_torch(module):
        yield from _plain(module.linear1, module.activation, module.linear2)
    if not _is_of_transformers(module):
        return
    for table, make in ((_PLAIN, _plain), (_GATED, _gated)):
        for paths in _paths(table, module):
            yield from make(*(_at(module, path) for path in paths))
    for size, *projections in _paths(_SEPARATE, module):
        owner = module.get_submodule(size.rpartition(".")[0])
        yield from _separate(owner, _at(module, size), *(_at(module, path) for path in projections))
    for fused in _paths(_FUSED, module):
        yield from _fused(module, *(_at(module, path) for path in fused))


def parts_of(module: nn.Module) -> list[nn.Module] | None:
    """The modules that a known module runs one after the other; None if it is not known to."""
    if type(module) is nn.Sequential:
        return list(module)
    if _is_of_transformers(module) and type(module).__name__ in _CHAINS:
        return [module.get_submodule(name) for name in _CHAINS[type(module).__name__]]
    return None


def _is_of_torch(module: nn.Module) -> TypeGuard[nn.TransformerEncoderLayer | nn.TransformerDecoderLayer]:
    """Whether it is one of torch's transformer layers, or of a class that runs as they do."""
    return any(
        isinstance(module, known) and (type(module).forward, type(module)._ff_block) == (known.forward, known._ff_block)
        for known in (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    )


def _is_of_transformers(module: nn.Module) -> bool:
    return type(module).__module__.startswith("transformers.models.")


def _paths(table: _Table, module: nn.Module) -> Iterator[tuple[str, ...]]:
    return (paths for names, paths in table if type(module).__name__ in names)


def _at(module: nn.Module, path: str) -> Any:
    """The value at a path in a module; None if the path does not exist."""
    found: Any = module
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def _plain(producer: Any, function: Any, consumer: Any) -> Iterator[Link]:
    if not (is_map(producer) and is_map(consumer) and callable(function) and acts_elementwise(function)):
        return
    if count(producer, "outputs") == count(consumer, "inputs"):
        yield Plain(producer, [function], consumer)


def _gated(gate: Any, up: Any, function: Any, down: Any) -> Iterator[Link]:
    if not (is_map(gate) and is_map(up) and is_map(down) and callable(function) and acts_elementwise(function)):
        return
    if count(gate, "outputs") == count(up, "outputs") == count(down, "inputs"):
        yield Gated(gate, up, function, down)


def _separate(owner: nn.Module, size: Any, query: Any, key: Any, value: Any, output: Any) -> Iterator[Link]:
    if not (isinstance(size, int) and all(map(is_map, (query, key, value, output)))):
        return
    units, rest = divmod(count(value, "outputs"), size)
    queries = count(query, "outputs")
    fitting = rest == 0 and queries % (units * size) == 0 and count(key, "outputs") == units * size
    if fitting and count(output, "inputs") == queries:
        yield Heads(owner, [evenly(projection, "outputs", units) for projection in (query, key, value)], output, size)


def _fused(owner: nn.Module, size: Any, fused: Any, output: Any) -> Iterator[Link]:
    if not (isinstance(size, int) and is_map(fused) and is_map(output)):
        return
    units, rest = divmod(count(fused, "outputs"), 3 * size)  # GPT-2's cross-attention, of two kinds, does not fit
    if rest == 0 and count(output, "inputs") == units * size:
        by_head = type(owner).__name__ == "GPTNeoXAttention"
        splits = [split_by_head(units, size, i) if by_head else split_by_kind(units, size, i) for i in range(3)]
        yield Heads(owner, [Part(fused, "outputs", split) for split in splits], output, size)

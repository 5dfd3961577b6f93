"""Default block factory: copies an existing block and initialises it as the framework does."""

import copy
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from gpf.network import sharding, surgery
from gpf.network.blocks.depth import block_kinds, deeper
from gpf.network.blocks.gated import Gated, ungated
from gpf.network.blocks.initialisers import initialise
from gpf.network.hooks import remove_hooks
from gpf.network.rules import Init

_PLACES = ("layer_idx", "layer_id", "layer_index", "layer_number", "layer_num", "block_idx")
"""Attributes by which a module knows its place in the stack."""
_FIRST_HAS_BIAS = (
    "T5Attention",
    "MT5Attention",
    "LongT5Attention",
    "SwitchTransformersAttention",
    "Pop2PianoAttention",
)
"""Attention in which only the first block has a position bias, which it passes on to the others."""
_FIRST_HAS_STRIDE = ("ResNetBasicLayer", "ResNetBottleNeckLayer")
"""Layers in which only the first one of a stage changes the size of the image and the number of channels."""
_CHECKPOINTING = ("gradient_checkpointing", "_gradient_checkpointing_func")


def default_block(model: nn.Module, path: str) -> Callable[[int], nn.Module]:
    """A factory of blocks like those of the stack at a path.

    A new block is a copy of the last block of the kind that comes next, with new initial values. Parameters that were
    not trained when the factory was made are not trained in new blocks either, and keep the values that were copied.
    """
    flags = {place: _flags(block) for place, block in enumerate(_blocks(model, path))}

    def make(place: int) -> nn.Module:
        if sharding.is_sharded(model):
            raise ValueError("block must be given for a sharded model, because a sharded block cannot be copied")
        blocks = _blocks(model, path)
        kinds = block_kinds(model, path, place + 1)
        source = next((i for i in reversed(range(len(blocks))) if kinds[i] == kinds[place]), len(blocks) - 1)
        flags[place] = flags.get(source) or _flags(blocks[source])
        with deeper(model, path, place + 1 - len(blocks)):  # how values are initialised may depend on depth
            block = _copy(blocks[source], place - source)
            _reinitialise(block, _initialisation(model, path), flags[place])
        return block

    return make


def extend(
    model: nn.Module, path: str, depth: int, make_block: Callable[[int], nn.Module], gated: Container[int] = ()
) -> None:
    """Bring a stack to a depth by blocks of whatever weights, those at some places behind a gate."""
    stack = surgery.find_stack(model, path)
    while (place := len(stack)) < depth:
        with deeper(model, path):
            block = make_block(place)
        if place in gated and not isinstance(block, Gated):
            block = Gated(block)
        match(block, stack[-1])
        sharding.shard_like(block, stack[-1], model)
        surgery.append_block(model, path, block)


def gated_places(names: Iterable[str], path: str) -> set[int]:
    """The places in a stack whose blocks are behind a gate, given the names of a model's tensors."""
    pattern = re.compile(rf"{re.escape(path + '.' if path else '')}(\d+)\.gate")
    return {int(found[1]) for name in names if (found := pattern.fullmatch(name))}


def new_blocks(
    model: nn.Module,
    path: str,
    make_block: Callable[[int], nn.Module],
    init: Init,
    distributed: bool,
    count: int = 1,
    after: int | None = None,
) -> list[nn.Module]:
    """Blocks to grow by, initialised and on the right device; nothing that is in use changes.

    Args:
        model: The model.
        path: Path to its stack.
        make_block: Makes a block, given its place.
        init: How the blocks start.
        distributed: Whether all processes take the values of the first one.
        count: How many.
        after: How many old blocks will come before them; all, if not given.
    """
    stack = list(surgery.find_stack(model, path).children())
    known = {id(p) for p in model.parameters()}
    before: nn.Module = stack[-1 if after is None else max(0, after - 1)]
    if after == 0 and init == "identity":
        before = nn.Identity()  # nothing is known of what comes in
    made: list[nn.Module] = []
    for place in range(len(stack), len(stack) + count):
        with deeper(model, path, place + 1 - len(stack)):
            block = make_block(place)
        if not isinstance(block, nn.Module):
            raise ValueError(f"block must make a torch module, got {type(block).__name__}")
        if any(block is other for other in [*stack, *made]) or any(id(p) in known for p in block.parameters()):
            raise ValueError("block must make a new module each time, got one whose parameters are in the model")
        known |= {id(p) for p in block.parameters()}
        if init == "gated" and not isinstance(block, Gated):
            block = Gated(block)
        match(block, stack[-1])
        initialise(block, before, init)
        before = block
        made.append(block)
    for block in made:
        if distributed:
            for tensor in [*block.parameters(), *block.buffers()]:
                torch.distributed.broadcast(tensor.detach(), src=0)
        sharding.shard_like(block, stack[-1], model)
    return made


def match(block: nn.Module, last: nn.Module) -> None:
    """Let a new block be on the device, of the types and in the modes of the last one.

    Each parameter and buffer follows its namesake in the last block; one that has none follows the first parameter.
    """
    block.train(last.training)
    block, last = ungated(block), ungated(last)
    missing = sorted(_adapted(last) - _adapted(block))
    if missing:
        raise ValueError(
            f"block must make blocks with the adapters that {missing[0]} has, got a {type(block).__name__} without;"
            " leave block out, and the last block is copied with its adapters"
        )
    example = next(last.parameters(), None)
    namesakes: dict[str, Tensor] = {**dict(last.named_parameters()), **dict(last.named_buffers())}
    for prefix, module in block.named_modules(remove_duplicate=False):
        for tensors in (module._parameters, module._buffers):
            for name, tensor in tensors.items():
                like = namesakes.get(f"{prefix}.{name}" if prefix else name, example)
                if tensor is not None and like is not None:
                    tensors[name] = _like(tensor, like)
    modules = dict(last.named_modules())
    for name, module in block.named_modules():
        values = vars(modules[name]) if name in modules else {}
        for flag in _CHECKPOINTING:
            if flag in values:
                setattr(module, flag, values[flag])


def _like(tensor: Tensor, like: Tensor) -> Any:
    """The tensor on another's device and, where both are of floating point, of its type; a parameter stays itself."""
    dtype = like.dtype if tensor.is_floating_point() and like.is_floating_point() else tensor.dtype
    if isinstance(tensor, nn.Parameter):
        tensor.data = tensor.data.to(like.device, dtype)
        return tensor
    return tensor.to(like.device, dtype)


def _adapted(block: nn.Module) -> set[str]:
    """The names of the modules that PEFT has wrapped."""
    return {name for name, module in block.named_modules() if hasattr(module, "adapter_layer_names")}


def _blocks(model: nn.Module, path: str) -> list[nn.Module]:
    return [ungated(block) for block in model.get_submodule(path).children()]


def _flags(block: nn.Module) -> dict[str, bool]:
    return {name: parameter.requires_grad for name, parameter in block.named_parameters()}


def _copy(source: nn.Module, shift: int) -> nn.Module:
    """A copy that is this many places behind, with the configuration that all blocks share."""
    shared = [value for module in source.modules() for value in vars(module).values() if hasattr(value, "model_type")]
    shared += [config for module in source.modules() if (config := vars(module).get("config")) is not None]
    block = copy.deepcopy(source, {id(value): value for value in shared})
    remove_hooks(block)
    if type(block).__name__ in _FIRST_HAS_STRIDE and not isinstance(block.shortcut, nn.Identity):
        block = _without_stride(block)
    for module in block.modules():
        for name in _PLACES:
            if type(place := vars(module).get(name)) is int:
                setattr(module, name, place + shift)
                if getattr(module, "scale_attn_by_inverse_layer_idx", False):  # GPT-2 divides by its place
                    module.scaling *= (place + 1) / (place + shift + 1)  # type: ignore[operator, assignment]
        if type(module).__name__ in _FIRST_HAS_BIAS and module.has_relative_attention_bias:
            module.has_relative_attention_bias = False  # type: ignore[assignment]
            del module.relative_attention_bias
    return block


def _without_stride(first: Any) -> nn.Module:
    """A layer for the place behind the first of a stage of a ResNet, with the same activations."""
    channels = first.layer[-1].normalization.num_features
    block = type(first)(channels, channels)
    block.activation = first.activation
    for new, old in zip(block.layer, first.layer, strict=True):
        new.activation = old.activation
    return block


def _initialisation(model: nn.Module, path: str) -> Callable[[nn.Module], Any] | None:
    """The `_init_weights` of the innermost module on the path that has one."""
    parts = path.split(".")
    for end in reversed(range(len(parts))):
        found = getattr(model.get_submodule(".".join(parts[:end])), "_init_weights", None)
        if callable(found):
            return found
    return None


@torch.no_grad()
def _reinitialise(block: nn.Module, initialise: Callable[[nn.Module], Any] | None, learns: Mapping[str, bool]) -> None:
    """Give all parameters that learn new initial values; NaN marks those that are still to be reached."""
    kept = {name: p.clone() for name, p in block.named_parameters() if not learns.get(name, True)}
    for name, parameter in block.named_parameters():
        if name not in kept:
            parameter.fill_(torch.nan)
    for module in block.modules():
        for tensor in [*module._parameters.values(), *module._buffers.values()]:
            if hasattr(tensor, "_is_hf_initialized"):  # transformers would leave it alone
                delattr(tensor, "_is_hf_initialized")
    if initialise is not None:
        block.apply(initialise)
    for module in reversed(list(block.modules())):  # parts before wholes
        if initialise is None or any(p.isnan().any() for p in module.parameters(recurse=False)):
            for reset in ("reset_parameters", "_reset_parameters"):
                getattr(module, reset, _nothing)()
    _reset_adapters(block)
    for name, parameter in block.named_parameters():
        if name in kept:
            parameter.copy_(kept[name])
        parameter.requires_grad_(learns.get(name, True))
    if (unreached := next(_unreached(block), None)) is not None:
        raise ValueError(
            f"block must be given, because nothing says how {unreached} of {type(block).__name__} is initialised:"
            " its module has no reset_parameters"
        )


def _nothing() -> None:
    """Initialises a module without `reset_parameters`."""


def _reset_adapters(block: nn.Module) -> None:
    """Start LoRA adapters as PEFT does, without an effect at first."""
    adapted: list[Any] = [module for module in block.modules() if hasattr(module, "reset_lora_parameters")]
    for module in adapted:
        for adapter in [*module.lora_A, *module.lora_embedding_A]:
            module.reset_lora_parameters(adapter, True)


def _unreached(block: nn.Module) -> Iterator[str]:
    for name, parameter in block.named_parameters():
        if parameter.is_floating_point() and parameter.isnan().any():
            yield name

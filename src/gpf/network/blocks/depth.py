"""Keeps a model's own records of its depth up to date.

torch's TransformerEncoder has `num_layers`; Hugging Face's models have configurations, which several modules along the
path to a stack may share or hold copies of. Which field belongs to a stack follows from its path: `decoder.block` of T5
is counted by `num_decoder_layers`, and `encoder.stages.2.layers` of a ResNet by `depths[2]`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

_PLAIN = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "depth")
"""Depth of the only stack, or, where a decoder is counted separately, of the encoder."""
_OF_SIDE = {
    "encoder": ("encoder_layers", "num_encoder_layers"),
    "decoder": ("decoder_layers", "num_decoder_layers"),
}
_PER_LAYER = ("layer_types", "mlp_layer_types", "layers_block_type", "no_rope_layers")
"""Lists with an entry for each layer."""
_MISSING = object()
Change = tuple[object, str, Any]
"""An object, the name of its attribute, and the attribute's new value."""


def record_depth(model: nn.Module, path: str, old: int, new: int) -> None:
    """Write the new depth of the stack at a path wherever the model has written down the old one."""
    for holder, name, value in _changes(model, path, old, new):
        setattr(holder, name, value)


@contextmanager
def deeper(model: nn.Module, path: str, by: int = 1) -> Iterator[None]:
    """For a while, the model says that its stack is deeper, to build blocks for those places.

    Layers read what they are from their configuration, by their place: `config.layer_types[layer_idx]`.
    """
    depth = _length(model, path)
    changes = _changes(model, path, depth, depth + by)
    before = [(holder, name, getattr(holder, name, _MISSING)) for holder, name, _ in changes]
    try:
        for holder, name, value in changes:
            setattr(holder, name, value)
        yield
    finally:
        for holder, name, value in before:
            if value is _MISSING:
                delattr(holder, name)
            else:
                setattr(holder, name, value)


def block_kinds(model: nn.Module, path: str, count: int) -> list[tuple[Any, ...]]:
    """The kind of each of this many blocks, as the configuration lists it or as its pattern continues."""
    configs = _configs(model, path)
    lists = [vars(configs[0]).get(name) for name in _PER_LAYER] if configs else []
    known = [_resized(values, count) for values in lists if isinstance(values, list | tuple) and values]
    return list(zip(*known, strict=True)) if known else [()] * count


def _changes(model: nn.Module, path: str, old: int, new: int) -> list[Change]:
    """All that must change for a depth to be recorded."""
    changes: list[Change] = [(owner, name, new) for owner, name in _attributes(model, path, old)]
    for config in _configs(model, path):
        values = vars(config)
        if isinstance(values.get("depths"), list | tuple):
            changes += _stage_change(model, path, config, old, new)
            continue
        names = [name for name in _fields(config, path) if _is_depth(values.get(name), old)]
        changes += [(config, name, new) for name in names]
        if names == ["num_decoder_layers"] and values.get("is_encoder_decoder"):
            # T5. generate() looks for this name, and finding none makes its cache as deep as the encoder.
            changes.append((config, "decoder_layers", new))
        changes += [
            (config, name, _resized(values[name], new))
            for name in _PER_LAYER
            if names and isinstance(values.get(name), list | tuple) and len(values[name]) == old
        ]
    return [change for change in changes if _can_set(change)]


def _is_depth(value: Any, depth: int) -> bool:
    return type(value) is int and value == depth


def _can_set(change: Change) -> bool:
    """Frozen dataclasses are left unchanged."""
    holder, name, _ = change
    if not hasattr(holder, name):
        return True
    try:
        setattr(holder, name, getattr(holder, name))
    except AttributeError:
        return False
    return True


def _attributes(model: nn.Module, path: str, old: int) -> Iterator[tuple[nn.Module, str]]:
    """The `num_layers` of the module that holds the stack, unless it holds another that the number may be of."""
    above, _, name = path.rpartition(".")
    owner = model.get_submodule(above)
    others = [child for key, child in owner.named_children() if key != name]
    if any(isinstance(child, nn.ModuleList | nn.Sequential) and len(child) == old for child in others):
        return
    for attribute in _PLAIN:
        if _is_depth(vars(owner).get(attribute), old):
            yield owner, attribute


def _fields(config: object, path: str) -> list[str]:
    """The fields of a configuration that count the blocks of the stack at this path."""
    values = vars(config)
    sides = [part for part in path.split(".") if part in _OF_SIDE]
    special = [name for name in _OF_SIDE[sides[-1]] if name in values] if sides else []
    plain = [name for name in _PLAIN if name in values]
    if sides and sides[-1] == "decoder" and special and not values.get("is_decoder"):
        return special  # there, `num_layers` counts the encoder
    return special + plain


def _stage_change(model: nn.Module, path: str, config: object, old: int, new: int) -> Iterator[Change]:
    """The entry of `depths` for the stage that the path leads through."""
    depths = vars(config)["depths"]
    parts = path.split(".")
    for i, part in enumerate(parts):
        if part.isdecimal() and _length(model, ".".join(parts[:i])) == len(depths) and depths[int(part)] == old:
            changed = [new if stage == int(part) else depth for stage, depth in enumerate(depths)]
            yield config, "depths", type(depths)(changed)
            return


def _configs(model: nn.Module, path: str) -> list[Any]:
    """The configuration of the stack: that of the innermost module that has one, and all copies of it along the path.

    A configuration of another type describes something else, such as the whole of which this model is a part.
    """
    parts = path.split(".")
    found = []
    for i in range(len(parts)):
        module, rest = model.get_submodule(".".join(parts[:i])), parts[i:]
        config = getattr(module, "config", None)
        base = getattr(module, "base_model_prefix", "")
        if base and isinstance(getattr(module, base, None), nn.Module) and rest[0] != base:
            continue  # the stack is part of a head, which the configuration does not count
        if config is not None and hasattr(config, "__dict__") and not isinstance(config, dict | nn.Module):
            found.append(config)
    if not found:
        return []
    own = found.pop()
    same: dict[int, Any] = {id(own): own}
    for config in found:
        for copy in [config, *_parts_like(config, own)]:
            if type(copy) is type(own):
                same[id(copy)] = copy
    return list(same.values())


def _parts_like(config: object, own: object) -> list[Any]:
    """The part of a composite configuration, such as its `text_config`, that is of a type, if there is just one."""
    parts = [value for value in vars(config).values() if hasattr(value, "__dict__") and hasattr(value, "model_type")]
    like = [part for part in parts if type(part) is type(own)]
    return (like if len(like) == 1 else []) + [deep for part in parts for deep in _parts_like(part, own)]


def _resized(values: Any, length: int) -> Any:
    """A list cut off, or continued by its shortest repeating pattern, to a length."""
    period = next(p for p in range(1, len(values) + 1) if values[p:] == values[: len(values) - p])
    return type(values)(values[i] if i < len(values) else values[i % period] for i in range(length))


def _length(model: nn.Module, path: str) -> int:
    return len(list(model.get_submodule(path).children()))

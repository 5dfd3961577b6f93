"""Networks as bytes: a fixed head with sizes and digests, a JSON manifest, and safetensors. Never pickle.

    8 bytes   "GPFFED1" and a zero
    4 bytes   size of the manifest, little-endian
    8 bytes   size of the tensors, little-endian
    32 bytes  SHA-256 of the manifest
    32 bytes  SHA-256 of the tensors
    manifest  JSON: structure, and shape and type of each array
    tensors   safetensors; of a weight with a mask only the entries that are left, and the mask in bits

Sizes are compared with limits, and both digests with the bytes, before anything is parsed. Then what the manifest says
of each array is compared with the tensors.
"""

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from gpf.federated.admission import FLOATS, Limits, Refused
from gpf.federated.merging import Array, Network

MAGIC = b"GPFFED1\0"
HEAD = struct.Struct("<8sIQ32s32s")


@dataclass(frozen=True, eq=False)
class Message:
    """A network, and plain data about it."""

    network: Network
    about: dict[str, Any] = field(default_factory=dict)
    """Who sends it and why, as JSON can hold it."""


def pack(message: Message, leave_out: frozenset[int] = frozenset()) -> bytes:
    """A message as bytes; the arrays of some layers can be left out."""
    network = message.network
    sent = {name: a for name, a in network.arrays.items() if network.layer_of(name) not in leave_out}
    tensors: dict[str, Array] = {}
    for name, array in sent.items():
        mask = network.masks.get(name)
        tensors[f"value/{name}"] = np.ascontiguousarray(array if mask is None else array[mask])
        if mask is not None:
            tensors[f"mask/{name}"] = np.packbits(mask.ravel())
    manifest = {
        "stack": network.stack,
        "depth": network.depth,
        "frozen": sorted(network.frozen),
        "arrays": {
            name: {"dtype": str(a.dtype), "shape": list(a.shape), "masked": name in network.masks}
            for name, a in sent.items()
        },
        "about": message.about,
    }
    return seal(json.dumps(manifest, allow_nan=False).encode(), save(tensors))


def seal(manifest: bytes, tensors: bytes) -> bytes:
    """A manifest and tensors behind a head that fits them."""
    digests = [hashlib.sha256(part).digest() for part in (manifest, tensors)]
    return HEAD.pack(MAGIC, len(manifest), len(tensors), *digests) + manifest + tensors


def unpack(data: bytes, limits: Limits | None = None) -> Message:
    """The message that bytes hold; `Refused` if anything about them is not as it should be."""
    manifest, tensors = _opened(data, limits or Limits())
    described = _manifest(manifest, limits or Limits())
    try:
        found = load(tensors)
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise Refused(f"tensors must be in the safetensors format ({str(error)[:80]})") from None
    arrays: dict[str, Array] = {}
    masks: dict[str, Any] = {}
    for name, one in described["arrays"].items():
        arrays[name], mask = _array(name, one, found)
        if mask is not None:
            masks[name] = mask
    if found:
        raise Refused(f"tensors must be those of the manifest, got {next(iter(found))[:80]!r} too")
    network = Network(arrays, described["depth"], masks, frozenset(described["frozen"]), described["stack"])
    return Message(network, described["about"])


def _opened(data: bytes, limits: Limits) -> tuple[bytes, bytes]:
    """Manifest and tensors, checked by sizes and digests only."""
    if not isinstance(data, bytes) or len(data) < HEAD.size:
        raise Refused(
            f"a message must be at least {HEAD.size} bytes, got {len(data) if isinstance(data, bytes) else 'none'}"
        )
    magic, first, second, *digests = HEAD.unpack_from(data)
    if magic != MAGIC:
        raise Refused(f"a message must begin with {MAGIC!r}, got {magic!r}")
    for name, size, most in (("manifest", first, limits.manifest), ("tensors", second, limits.tensors)):
        if size > most:
            raise Refused(f"{name} must be at most {most:,} bytes, got {size:,}")
    if len(data) != HEAD.size + first + second:
        raise Refused(f"a message must be {HEAD.size + first + second:,} bytes as it says itself, got {len(data):,}")
    parts = data[HEAD.size : HEAD.size + first], data[HEAD.size + first :]
    for name, part, digest in zip(("manifest", "tensors"), parts, digests, strict=True):
        if hashlib.sha256(part).digest() != digest:
            raise Refused(f"{name} must have the SHA-256 that the message says, got another")
    return parts


def _manifest(text: bytes, limits: Limits) -> dict[str, Any]:
    """A manifest whose parts all have the right types."""
    try:
        manifest = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the manifest must be JSON ({str(error)[:80]})") from None
    kinds: dict[str, type] = {"stack": str, "depth": int, "frozen": list, "arrays": dict, "about": dict}
    if not isinstance(manifest, dict) or set(manifest) != set(kinds):
        raise Refused(f"the manifest must have {', '.join(kinds)} and nothing else")
    for name, kind in kinds.items():
        if type(manifest[name]) is not kind:
            raise Refused(f"{name} in the manifest must be a JSON {kind.__name__}, got {str(manifest[name])[:40]}")
    if not 1 <= manifest["depth"] <= limits.arrays:
        raise Refused(f"depth must be from 1 to {limits.arrays}, got {str(manifest['depth'])[:40]}")
    if any(type(layer) is not int for layer in manifest["frozen"]):
        raise Refused(f"frozen must be whole numbers, got {str(manifest['frozen'])[:40]}")
    if len(manifest["arrays"]) > limits.arrays:
        raise Refused(f"arrays must be at most {limits.arrays}, got {len(manifest['arrays'])}")
    for name, one in manifest["arrays"].items():
        _check_described(name, one, limits)
    return manifest


def _check_described(name: str, one: Any, limits: Limits) -> None:
    """Refuse what a manifest says of an array where it could not be."""
    if not isinstance(one, dict) or set(one) != {"dtype", "shape", "masked"} or type(one["masked"]) is not bool:
        raise Refused(f"{name[:80]!r} in the manifest must have dtype, shape and masked")
    if one["dtype"] not in FLOATS:
        raise Refused(f"{name[:80]!r} must be of type {', '.join(FLOATS)}, got {str(one['dtype'])[:40]!r}")
    shape = one["shape"]
    if not isinstance(shape, list) or len(shape) > 8 or any(type(n) is not int or n < 0 for n in shape):
        raise Refused(f"{name[:80]!r} must have a shape of at most 8 whole numbers, got {str(shape)[:40]}")
    if math.prod(shape) > limits.tensors:  # of a masked one few entries may have been sent
        raise Refused(f"{name[:80]!r} must have at most {limits.tensors:,} entries, got shape {str(shape)[:40]}")


def _array(name: str, described: Mapping[str, Any], found: dict[str, Array]) -> tuple[Array, Any]:
    """An array as the manifest describes it, and its mask; both are taken out of what was found."""
    shape, size = tuple(described["shape"]), math.prod(described["shape"])
    values = found.pop(f"value/{name}", None)
    if values is None or str(values.dtype) != described["dtype"]:
        raise Refused(
            f"{name} must be {described['dtype']} as the manifest says, got {getattr(values, 'dtype', 'nothing')}"
        )
    if not described["masked"]:
        if values.shape != shape:
            raise Refused(f"{name} must have shape {shape} as the manifest says, got {values.shape}")
        return values, None
    bits = found.pop(f"mask/{name}", None)
    if bits is None or bits.dtype != np.uint8 or bits.shape != (-(-size // 8),):
        raise Refused(f"the mask of {name} must be {-(-size // 8)} bytes, got {getattr(bits, 'shape', 'nothing')}")
    mask = np.unpackbits(bits, count=size).astype(np.bool_).reshape(shape)
    if values.shape != (int(mask.sum()),):
        raise Refused(f"{name} must have the {int(mask.sum())} entries of its mask, got shape {values.shape}")
    array = np.zeros(shape, values.dtype)
    array[mask] = values
    return array, mask


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")

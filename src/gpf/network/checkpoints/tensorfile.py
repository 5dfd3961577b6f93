"""Writes tensors in the safetensors format directly from memory, with a checksum."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def write(path: Path, tensors: Mapping[str, Tensor]) -> tuple[int, str]:
    """Write tensors to a file and wait until the disk has them; returns the number of bytes and their SHA-256."""
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as file, ThreadPoolExecutor(1) as beside:
        for part in _parts(tensors):
            beside.submit(digest.update, part)  # takes as long as writing, and neither needs the other
            size += file.write(part)
        file.flush()
        os.fsync(file.fileno())
    return size, digest.hexdigest()


def _parts(tensors: Mapping[str, Tensor]) -> Iterator[Any]:
    """The header and then each tensor's bytes; wide types come first, which aligns each tensor."""
    for name, tensor in tensors.items():
        if tensor.dtype not in _NAMES:
            raise ValueError(f"{name} must be of a type that safetensors can hold, got {tensor.dtype}")
    order = sorted(tensors, key=lambda name: -tensors[name].element_size())
    header, end = {}, 0
    for name in order:
        start, end = end, end + tensors[name].numel() * tensors[name].element_size()
        kind, shape = _NAMES[tensors[name].dtype], list(tensors[name].shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        yield tensors[name].detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data

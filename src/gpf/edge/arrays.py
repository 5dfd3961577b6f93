"""Numbers as C: arrays, literals and texts, and which way of storing a layer's weights is smaller."""

import json
import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BYTES = {"float": 4, "int8_t": 1, "uint8_t": 1, "uint16_t": 2, "uint32_t": 4}
"""Of the types that are used."""


@dataclass(frozen=True)
class Array:
    """A constant array."""

    kind: str
    name: str
    values: NDArray[Any]

    @property
    def size(self) -> int:
        """Bytes."""
        return BYTES[self.kind] * max(1, self.values.size)

    def __str__(self) -> str:
        flat = self.values.ravel().tolist() or [0]  # C has no empty arrays
        numbers = ", ".join(literal(value) if self.kind == "float" else str(value) for value in flat)
        body = textwrap.fill(numbers, 118, initial_indent="    ", subsequent_indent="    ")
        dimensions = "".join(f"[{n}]" for n in self.values.shape[:-1]) + f"[{max(1, self.values.shape[-1])}]"
        if self.values.ndim > 1:
            rows = (", ".join(literal(value) for value in row) for row in self.values.tolist())
            body = "\n".join(f"    {{{row}}}," for row in rows)
        return f"static const {self.kind} {self.name}{dimensions} = {{\n{body}\n}};"


@dataclass(frozen=True)
class Stored:
    """A layer's weights as they are stored: all of them by input, or those that are not 0."""

    arrays: tuple[Array, ...]
    sparse: bool


def store(n: int, weight: NDArray[Any], kind: str, unit: str, offset: str) -> Stored:
    """The weights of layer `n`, shape (outputs, inputs), in the smaller of two ways."""
    by_input = np.ascontiguousarray(weight.T)
    rows, columns = np.nonzero(by_input)
    starts = np.searchsorted(rows, np.arange(len(by_input) + 1))
    sparse = (
        Array(kind, f"weight_{n}", by_input[rows, columns]),
        Array(offset, f"starts_{n}", starts),
        Array(unit, f"units_{n}", columns),
    )
    dense = (Array(kind, f"weight_{n}", by_input.ravel()),)
    is_sparse = sum(array.size for array in sparse) < dense[0].size
    return Stored(sparse if is_sparse else dense, is_sparse)


def literal(value: float) -> str:
    """A float32 as C, exactly."""
    text = f"{value:.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def below(limit: float) -> str:
    """The greatest float32 that is not above a limit: a float32 exceeds both or neither."""
    near = np.float32(limit)
    return literal(float(np.nextafter(near, np.float32(-math.inf)) if float(near) > limit else near))


def at_least(limit: float) -> str:
    """The smallest float32 that is not below a limit: a float32 is below both or neither."""
    near = np.float32(limit)
    return literal(float(np.nextafter(near, np.float32(math.inf)) if float(near) < limit else near))


def text(value: str) -> str:
    """A C string; without trigraphs."""
    escaped = value.encode("ascii", "backslashreplace").decode().replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("?", "\\?").replace("\n", "\\n") + '"'


def texts(values: Iterable[str]) -> str:
    """Several C strings."""
    return ", ".join(map(text, values))


def characters(value: Any) -> str:
    """JSON as the characters of a C array, as compilers need not take strings of more than 4,095."""
    plain = json.dumps(value, sort_keys=True)
    if len(plain) < 4095:
        return text(plain)
    return "{" + ", ".join(str(code) for code in plain.encode()) + ", 0}"

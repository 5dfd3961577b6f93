"""Compilation of entry kernels: once per machine, cached, and never from stale sources."""

import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numba
from numba import types
from numba.core import event
from numba.core.typing import Signature
from numba.extending import intrinsic
from numpy.typing import NDArray


class Record(Protocol):
    """A record of a structured array, as kernels see it: its fields are attributes. Their types are its dtype's."""

    def __getattr__(self, name: str, /) -> Any: ...

    def __setattr__(self, name: str, value: Any, /) -> None: ...


def kernel(function: Callable[..., Any]) -> Any:
    """Compile a function that Python calls: without the interpreter lock, and cached on disk for later processes.

    Numba's cache looks only at the file of the function itself. Ours call functions of other files, so the cache
    compares a digest of all sources of the plume world and of the function's own package, with its subpackages,
    instead. Where nothing can be cached (no folder is writable), every process compiles.
    """
    return _compiled(function, nogil=True)


def lean_kernel(function: Callable[..., Any]) -> Any:
    """The same for a function that allocates nothing: references to arrays are not counted, which costs much time."""
    return _compiled(function, nogil=True, _nrt=False)


def _compiled(function: Callable[..., Any], **options: bool) -> Any:
    try:
        dispatcher = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(**options)(function)
    dispatcher._cache._cache_file._source_stamp = _digest(Path(function.__code__.co_filename).parent)
    return dispatcher


device: Any = numba.njit(error_model="numpy", _nrt=False)
"""Compile a function that kernels call. It counts no references to arrays, for it allocates none."""
inlined: Any = numba.njit(error_model="numpy", _nrt=False, inline="always")
"""The same for a function that becomes part of its caller: passing all arrays of a world costs time."""


@device
def copy(source: NDArray[Any], target: NDArray[Any]) -> None:
    """Copy the elements of a one-dimensional array to another one; an assignment of slices would allocate."""
    for k in range(len(source)):
        target[k] = source[k]


@intrinsic
def fma(typing_context: Any, a: types.Type, b: types.Type, c: types.Type) -> tuple[Signature, Callable[..., Any]]:
    """A * b + c with one rounding, in one instruction. Requested by name, so it never depends on the compiler."""

    def codegen(context: Any, builder: Any, signature: Signature, arguments: Sequence[Any]) -> Any:
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), codegen


def _digest(folder: Path) -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted({*Path(__file__).parent.glob("*.py"), *folder.rglob("*.py")}):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class _Announcer(event.Listener):
    """Says on stderr, once, that compilation has begun."""

    said = False

    def on_start(self, event: Any) -> None:
        if not _Announcer.said:
            _Announcer.said = True
            print(
                "gpf: compiling the plume kernels, once on this machine; takes some seconds",
                file=sys.stderr,
                flush=True,
            )

    def on_end(self, event: Any) -> None:
        pass


@contextmanager
def announcing_compilation() -> Iterator[None]:
    """While it lasts, a kernel that is not in the cache yet announces its compilation."""
    with event.install_listener("numba:compile", _Announcer()):
        yield

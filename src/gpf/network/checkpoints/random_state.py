"""The random state of torch, NumPy and Python as plain data."""

import base64
import random
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class RandomState:
    """A state that all three have accepted."""

    of_torch: Tensor
    of_cuda: list[Tensor]
    of_numpy: tuple[Any, ...]
    of_python: tuple[Any, ...]

    def restore(self) -> None:
        """Let torch, NumPy and Python draw on from here; CUDA too where there are as many devices."""
        torch.set_rng_state(self.of_torch)
        if torch.cuda.is_available() and len(self.of_cuda) == torch.cuda.device_count():
            torch.cuda.set_rng_state_all(self.of_cuda)
        np.random.set_state(self.of_numpy)  # noqa: NPY002 - the state that users' code draws from
        random.setstate(self.of_python)


def capture() -> dict[str, Any]:
    """The current state, as plain data."""
    kind, keys, position, has_gauss, gauss = np.random.get_state()  # noqa: NPY002
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {
        "torch": _encoded(torch.get_rng_state()),
        "cuda": [_encoded(state) for state in cuda],
        "numpy": [kind, np.asarray(keys).tolist(), position, has_gauss, gauss],
        "python": random.getstate(),
    }


def decode(plain: dict[str, Any]) -> RandomState:
    """The state that `capture` described, tried on generators of its own; a ValueError if it is none."""
    try:
        kind, keys, position, has_gauss, gauss = plain["numpy"]
        version, numbers, next_gauss = plain["python"]
        state = RandomState(
            of_torch=_decoded(plain["torch"]),
            of_cuda=[_decoded(one) for one in plain["cuda"]],
            of_numpy=(kind, np.array(keys, np.uint32), position, has_gauss, gauss),
            of_python=(version, tuple(numbers), next_gauss),
        )
        torch.Generator().set_state(state.of_torch)
        if torch.cuda.is_available():
            for one in state.of_cuda:
                torch.Generator("cuda").set_state(one)
        np.random.RandomState().set_state(state.of_numpy)
        random.Random().setstate(state.of_python)
    except (ValueError, TypeError, RuntimeError, IndexError, OverflowError) as error:
        raise ValueError(str(error).splitlines()[0]) from None
    return state


def _encoded(state: Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode()


def _decoded(text: str) -> Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text, validate=True)), dtype=torch.uint8)

"""The world: physics, sensors, rewards and Gymnasium environments. NumPy and numba, no torch, no learning."""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from gpf.plume.scenario import ACTIONS, Scenario

if _TYPE_CHECKING:
    from gpf.plume.env import PlumeEnv
    from gpf.plume.regimes import Stream
    from gpf.plume.vector_env import PlumeVectorEnv
    from gpf.plume.world import World

__all__ = ["ACTIONS", "PlumeEnv", "PlumeVectorEnv", "Scenario", "Stream", "World"]

_COMPILED = {"PlumeEnv": "env", "PlumeVectorEnv": "vector_env", "Stream": "regimes", "World": "world"}


def __getattr__(name: str) -> _Any:
    """Load what needs numba when it is first asked for."""
    if name not in _COMPILED:
        raise AttributeError(f"module 'gpf.plume' has no attribute {name!r}")
    return getattr(_importlib.import_module(f"gpf.plume.{_COMPILED[name]}"), name)


def __dir__() -> list[str]:
    return __all__

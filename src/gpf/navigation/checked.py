"""Checks the policies of others while they run: each fault is one sentence that names the policy and its world."""

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gpf.navigation.policies import Policy
from gpf.navigation.suite import NEEDS, lacking
from gpf.plume.scenario import ACTIONS, Scenario

_CAST = "invalid value encountered in cast"
"""NumPy's warning where NaN becomes a whole number."""
UNCHOSEN = -1
"""Placeholder of an action before it is chosen."""


class Checked:
    """A policy whose actions are checked at every step; it cannot change what the world hands it.

    Args:
        make: Makes the policy for a scenario.
        agent: Its name in errors.
        world: Where it searches.
        scenario: The world's.
    """

    PER_LANE: ClassVar[tuple[str, ...]] = ("policy",)

    def __init__(self, make: Callable[[Scenario], Any], agent: str, world: str, scenario: Scenario) -> None:
        self._where = f"agent {agent!r} in world {world!r}"
        with self._named("make_agent"):
            self.policy: Policy = make(scenario)
        for method in ("begin", "act"):
            if not callable(getattr(self.policy, method, None)):
                raise ValueError(f"{self._where}: make_agent must return a policy with begin and act, got no {method}")
        check_needs(getattr(self.policy, "NEEDS", ()), scenario, agent, world)

    @property
    def parameters(self) -> int:
        """How many it says that it has; 0 where it does not say."""
        return int(getattr(self.policy, "parameters", 0))

    def begin(self, seeds: Sequence[int], scenario: Scenario) -> None:
        """Forget everything and begin one episode per seed."""
        with self._named("begin"):
            self.policy.begin(seeds, scenario)

    def act(self, raw: NDArray[np.float32], lanes: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        """Choose actions in the lanes given by their indices."""
        chosen = np.full(len(actions), UNCHOSEN, np.int64)
        with self._named("act"), warnings.catch_warnings():
            warnings.filterwarnings("error", _CAST, RuntimeWarning)
            returned: Any = self.policy.act(raw.copy(), lanes.copy(), chosen)  # type: ignore[func-returns-value]
        if returned is not None:
            what = f"shape {np.shape(returned)}" if isinstance(returned, np.ndarray) else type(returned).__name__
            raise ValueError(f"{self._where}: act must write its actions into its third argument, and returned {what}")
        wrong = lanes[(chosen[lanes] < 0) | (chosen[lanes] >= len(ACTIONS))]
        if len(wrong):
            value = chosen[wrong[0]]
            got = "no action" if value == UNCHOSEN else f"action {value}"
            accepted = f"whole numbers from 0 to {len(ACTIONS) - 1}"
            raise ValueError(f"{self._where}: act must write {accepted} for all lanes, got {got} in lane {wrong[0]}")
        actions[lanes] = chosen[lanes]

    @contextlib.contextmanager
    def _named(self, method: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            said = " ".join(str(error).split())[:200]
            if _CAST in said or "float NaN to integer" in said:
                accepted = f"whole numbers from 0 to {len(ACTIONS) - 1}"
                raise ValueError(f"{self._where}: {method} must write {accepted}, got NaN") from None
            raise ValueError(f"{self._where}: {method} failed ({type(error).__name__}: {said})") from error


def check_needs(needs: Sequence[str], scenario: Scenario, agent: str, world: str) -> None:
    """Refuse a world that lacks what an agent needs."""
    missing = lacking(scenario) if needs else {}
    for need in needs:
        if need not in NEEDS:
            raise ValueError(f"agent {agent!r}: NEEDS must be of {', '.join(NEEDS)}, got {need!r}")
        if need in missing:
            raise ValueError(f"agent {agent!r} needs a {need}, which world {world!r} lacks: {missing[need]}")

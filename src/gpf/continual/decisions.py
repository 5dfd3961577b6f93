"""Decisions of `Recall`, as events with their numbers. Rates are success rates per step."""

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class Decision:
    """Something that `Recall` decided."""

    kind: ClassVar[str]
    """A short name of what was decided, for logs."""
    rate: float
    """The current rate."""
    before: float
    """The earlier rate."""

    def to_json(self) -> dict[str, Any]:
        """The decision as plain data: its kind, its numbers, and its reason as a sentence."""
        return {"kind": self.kind, **dataclasses.asdict(self), "reason": str(self)}


@dataclass(frozen=True, kw_only=True)
class TrialBegun(Decision):
    """The rate fell, and all kept versions are tried next to the network."""

    kind: ClassVar[str] = "trial"
    candidates: int
    """How many versions are tried."""

    def __str__(self) -> str:
        versions = f"{self.candidates} kept version{'s' * (self.candidates != 1)}"
        return f"tries {versions}, because the rate fell from {self.before:.3g} to {self.rate:.3g}"


@dataclass(frozen=True, kw_only=True)
class Recalled(Decision):
    """A kept version does best, and replaces the network."""

    kind: ClassVar[str] = "recalled"
    version: int
    """Its number."""

    def __str__(self) -> str:
        return f"recalls version {self.version}, at a rate of {self.rate:.3g} after {self.before:.3g} once"


@dataclass(frozen=True, kw_only=True)
class Continued(Decision):
    """The network learns on."""

    kind: ClassVar[str] = "continued"

    def __str__(self) -> str:
        return f"continues with the network, at a rate of {self.rate:.3g} after {self.before:.3g}"


@dataclass(frozen=True, kw_only=True)
class FalseAlarm(Continued):
    """The network learns on, because it does about as well as before: the world had not changed."""

    kind: ClassVar[str] = "false-alarm"

    def __str__(self) -> str:
        return f"continues after a false alarm, at a rate of {self.rate:.3g} after {self.before:.3g}"


@dataclass(frozen=True, kw_only=True)
class NewPath(Decision):
    """Nothing that there is does well, and the network starts again as a new version."""

    kind: ClassVar[str] = "new-path"
    version: int
    """Its number."""

    def __str__(self) -> str:
        return f"starts version {self.version}, because the best reaches {self.rate:.3g} of {self.before:.3g}"

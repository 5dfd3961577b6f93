"""What several commands share: where runs are trained, and how a command was typed."""

import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpf.runs.executors import Executor


@dataclass(frozen=True)
class Where:
    """Where many runs are trained."""

    jobs: int = 2
    """Runs at the same time, each on one core of this machine."""
    cluster: str | None = None
    """Train on a Ray cluster instead: auto, or its HOST:PORT. Needs the extra fleet."""

    def executor(self) -> "Executor":
        """Who trains them."""
        if self.cluster is not None:
            from gpf.runs.fleet import Fleet

            return Fleet(self.cluster)
        from gpf.runs.executors import Local

        return Local(self.jobs)


def typed_command() -> str:
    """The command as it was typed."""
    return shlex.join(["gpf", *sys.argv[1:]])


def changed(command: Any, *names: str) -> list[str]:
    """Those of some options that were given another value than their default."""
    return [name for name in names if getattr(command, name) != getattr(type(command), name)]

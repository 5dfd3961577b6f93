"""What world model to train, and how.

The command line reads this module before it knows what it will do, so heavy imports stand inside the functions.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpf.settings import rule_changes

if TYPE_CHECKING:
    from gpf.network import Rules

RULES: dict[str, Any] = {
    "warmup": 2, "grow_patience": 2, "grow_threshold": 0.05, "max_depth": 4,
    "weight_threshold": 0.02, "belief_increment": 0.1, "prune_patience": 4, "belief_threshold": 0.35,
    "saliency_threshold": 0.01, "freeze_patience": 8, "freeze_delta": 0.002,
}  # fmt: skip
"""Where the rules differ from `Rules()`; an epoch is a round, and the metric the validation's loss."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """What to train, and how."""

    data: str = "runs/world-data"
    """Folder of sequences that gpf world data made."""
    width: int = 64
    """Size of the embeddings."""
    heads: int = 4
    """Of the attention."""
    depth: int = 1
    """Blocks at the start."""
    context: int = 64
    """Steps to look back on."""
    gpf: bool = True
    """Whether the stack of blocks grows, prunes and freezes."""
    rules: dict[str, str] = dataclasses.field(default_factory=dict)
    """Changes to the `gpf.Rules`, as FIELD VALUE pairs."""
    seed: int = 0
    """Of the first weights and of the windows."""
    steps: int = 3000
    """Gradient steps, at most."""
    batch: int = 32
    """Windows in a gradient step."""
    learning_rate: float = 2e-3
    """At its highest; it rises over the first steps and then falls to a twentieth, as a cosine."""
    weight_decay: float = 0.01
    gradient_clip: float = 1.0
    """Greatest norm of the gradient."""
    patience: int = 10
    """Rounds without a better validation after which training stops early."""

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Config":
        """A configuration from plain data."""
        return cls(**values)

    def check(self) -> None:
        """Refuse what cannot be."""
        for name in ("width", "heads", "depth", "context", "steps", "batch", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)}; accepted: at least 1")
        for name in ("learning_rate", "weight_decay", "gradient_clip"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name}: {getattr(self, name)}; accepted: a number of at least 0")
        if self.context < 2:
            raise ValueError(f"context: {self.context}; accepted: at least 2")
        if self.seed < 0:
            raise ValueError(f"seed: {self.seed}; accepted: at least 0")
        if self.rules and not self.gpf:
            raise ValueError(f"rules: {self.rules}; accepted: only with --gpf")
        if self.width % self.heads:
            raise ValueError(f"heads: {self.heads}; accepted: a divisor of the width, {self.width}")
        self.network_rules()

    def network_rules(self) -> "Rules":
        """When the stack grows, prunes and freezes."""
        from gpf.network import Rules

        if not self.gpf:
            return Rules.fixed()
        return Rules(**{**RULES, **rule_changes(self.rules)})

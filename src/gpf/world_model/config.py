"""Configuration of a world model and its training.

The command line reads this module before it knows what it will do, so heavy imports stand inside the functions.
"""

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpf.settings import Settings, number, rule_changes

if TYPE_CHECKING:
    from gpf.network import Rules

RULES: dict[str, Any] = {
    "warmup": 2, "grow_patience": 2, "grow_threshold": 0.05, "max_depth": 4,
    "weight_threshold": 0.02, "belief_increment": 0.1, "prune_patience": 4, "belief_threshold": 0.35,
    "saliency_threshold": 0.01, "freeze_patience": 8, "freeze_delta": 0.002,
}  # fmt: skip
"""Where the rules differ from `Rules()`; an epoch is a round, and the metric the validation's loss."""


@dataclass(frozen=True, kw_only=True)
class Config(Settings):
    """Settings of a world model and its training."""

    data: str = "runs/world-data"
    """Folder of sequences that gpf world data made."""
    width: int = 64
    """Size of the embeddings."""
    heads: int = 4
    """Attention heads."""
    depth: int = 1
    """Transformer blocks at the start."""
    context: int = number(64, 2)
    """Context length, environment steps."""
    gpf: bool = True
    """Whether the stack of blocks grows, prunes and freezes."""
    rules: dict[str, str] = dataclasses.field(default_factory=dict)
    """Changes to the rules of growing, pruning and freezing; docs/command-line.md lists them."""
    seed: int = number(0, 0)
    """Seed of the initial weights and of the order of the data."""
    steps: int = 3000
    """Maximum number of gradient steps."""
    batch: int = 32
    """Windows of sequences in a gradient step."""
    learning_rate: float = 2e-3
    """Peak learning rate; linear warm-up, then cosine decay to a twentieth."""
    weight_decay: float = 0.01
    """Weight decay of AdamW."""
    gradient_clip: float = 1.0
    """Maximum norm of the gradient."""
    patience: int = 10
    """Rounds without a better validation after which training stops early."""
    round_steps: int = 100
    """Gradient steps of a round, which is an epoch of the rules; then there are a validation and a checkpoint."""
    validation_windows: int = 512
    """Windows of held-out sequences to validate on."""

    def check(self) -> None:
        """Refuse what cannot be."""
        super().check()
        if self.rules and not self.gpf:
            raise ValueError(f"rules are only for --gpf, got {self.rules}")
        if self.width % self.heads:
            raise ValueError(f"heads must divide the width, {self.width}, got {self.heads}")
        self.network_rules()

    def network_rules(self) -> "Rules":
        """When the stack grows, prunes and freezes."""
        from gpf.network import Rules

        if not self.gpf:
            return Rules.fixed()
        return Rules(**{**RULES, **rule_changes(Rules, self.rules)})

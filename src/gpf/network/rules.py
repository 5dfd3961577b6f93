"""Every hyperparameter of growing, pruning and freezing."""

import dataclasses
import itertools
import math
import sys
from dataclasses import dataclass
from typing import Any, Literal, get_args

Init = Literal["identity", "gated", "kaiming", "copy", "built", "stack", "interleave"]
Place = Literal["end", "middle", "start"]
Granularity = Literal["weight", "unit"]
Mode = Literal["min", "max"]
Saliency = Literal["magnitude", "obd"]
Preset = Literal["faster", "smaller"]
LAST_GROWTH = 0.75
"""Share of the planned steps after which `Rules.faster` grows for the last time; later, new layers learn too little."""
COPIES = ("stack", "interleave")
"""Ways to grow in which new layers are copies of old ones, with their optimizer state."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """When a network grows, which weights it prunes, and which layers it freezes.

    The unit of all patience is the epoch: whatever passes between two calls of `end_epoch` (a pass over the data, an
    episode, a number of steps). Symbols in brackets are the paper's.
    """

    warmup: int = 0
    """Epochs before anything happens (rho_e). Default 0."""
    grow_patience: int | None = 10
    """Epochs without improvement before a layer is added (rho_k); None never grows. Default 10 epochs."""
    grow_threshold: float = 1e-3
    """Improvement of the metric that counts as one (omega_v), in the metric's unit. Default 0.001."""
    grow_at: tuple[float, ...] = ()
    """Shares of the planned steps, such as (0.1, 0.3), after which the network grows regardless of the metric; `attach`
    needs the number of planned `steps`. With `grow_patience=None` it grows at no other time."""
    grow_slope: int | None = None
    """Epochs over which slopes of the metric are compared: a network grows when it learns more slowly, for the compute
    that it takes, than a deeper one would; see `growth.slowed`. None for no such rule."""
    start_depth: int | None = None
    """Layers to which the stack is cut when gpf is attached, to grow back; None leaves it as built."""
    grow_by: int | Literal["double"] = 1
    """Layers that a growth adds, or `double` for as many as there are; at most up to `max_depth`. Default 1."""
    grow_place: Place = "end"
    """Where new layers go: at the `end` of the stack, in its `middle`, or at its `start`. Default `end`."""
    grow_cooldown: int = 0
    """Epochs after a growth before patience is counted again, in which a new layer settles. Default 0 epochs."""
    grow_init: Init = "identity"
    """How a new layer starts: `identity` (the function survives), `gated` (the function survives in any block: the new
    one is wrapped in `gpf.network.Gated`), `kaiming`, `copy` of the last one, or as `built`. `stack` copies the last
    `grow_by` layers on top of the stack, `interleave` copies each of them in place; both copy optimizer state, too."""
    grow_trial: int | None = None
    """Epochs within which a new layer must have improved the metric by `grow_threshold`, or it is taken out again and
    the network goes back to where it was before it; None keeps every layer. Each failure doubles the time until the
    next trial."""
    grow_undoable: bool = False
    """Whether `undo` can take back the last growth; keeps a copy of model and optimizer from before it."""
    max_depth: int | None = None
    """Greatest number of layers in the stack; None for no limit."""
    mode: Mode = "min"
    """Whether the metric is better when it is lower (`min`, a loss) or higher (`max`, a success rate)."""

    weight_threshold: float = 0.02
    """Absolute weight above which belief in it rises (m). Default 0.02."""
    activation_threshold: float | None = None
    """Mean absolute activation above which belief in all weights into a unit rises (beta_act); None to ignore it."""
    belief_increment: float = 0.01
    """By how much belief rises in an epoch (eta_h = 1 / k_max). Default 0.01, for 100 epochs."""
    belief_fall: float = 0.0
    """By how much belief in a weight falls in an epoch in which it does not rise. Default 0: it only rises."""

    prune_patience: int | None = 5
    """Epochs between a growth and the pruning of the layers before it (rho_p); 0 prunes in the same epoch, None never.
    Default 5 epochs."""
    prune_to: float | None = None
    """Share of the weights, or units, that is left at the end: the smallest go, a few at a time, regardless of belief,
    fast at first and slowly later (Zhu & Gupta 2017). It goes by the planned `steps`, as `grow_at` does; None
    for no such plan."""
    prune_from: float = 0.3
    """Share of the planned steps after which that begins. Default 0.3."""
    prune_until: float = 0.8
    """Share of the planned steps after which it is done. Default 0.8."""
    prune_steps: int = 20
    """Prunings that it takes at most: one is due when that share of what is to go has to go. Default 20."""
    regrow: float = 0.0
    """Share of the weights left that planned pruning exchanges each time: the smallest go, and as many pruned ones
    come back, at zero, where the gradient is largest (RigL, Evci et al. 2020). It falls to 0 by a cosine until
    `prune_until`. For `granularity="weight"`. Default 0: pruned weights never come back."""
    granularity: Granularity = "weight"
    """Unit of pruning: single weights, or whole units (hidden units, channels, attention heads) by the means of belief
    and saliency over their weights. `compact` can remove every pruned unit."""
    remove_units: bool = False
    """Whether pruned units are removed from the model at once, to save time; for `granularity="unit"`."""
    unit_multiple: int = 1
    """Planned pruning leaves a multiple of this many units in each group, the nearest one and at least one multiple.
    Processors work on 8 or 16 numbers at a time, so 17 channels can take as long as 32. Default 1."""
    belief_threshold: float = 0.3
    """Belief below which a weight may be pruned (omega_p). Default 0.3."""
    saliency: Saliency = "magnitude"
    """Estimated cost of removing a weight: `magnitude`, abs(w), or `obd`, w^2 E[g^2] / 2 (LeCun et al. 1989)."""
    saliency_threshold: float = 0.02
    """Saliency below which a weight may be pruned (d_i), in the unit of the saliency. Default 0.02."""

    freeze_patience: int | None = 20
    """Epochs for which a layer must be still to be frozen (rho_f); None never freezes. Default 20 epochs."""
    freeze_delta: float = 0.01
    """Change of a weight over an epoch below which it is still (omega_f). Default 0.01."""
    freeze_fraction: float = 0.9
    """Share of a layer's weights that must be still. Default 0.9."""

    drop: float | None = None
    """Share of its best below which the metric says that the world has changed (of a loss: its best is below this share
    of it): frozen layers learn again, a layer is added at once if there is room, and what was best before is forgotten.
    None to take no notice."""
    drop_window: int = 5
    """Epochs over which the metric is averaged to see a drop. Default 5 epochs."""

    batch_decay: float = 0.0
    """Decay of the batch size with the loss (eta_bs); see `batch_size`. Default 0: constant."""

    def __post_init__(self) -> None:
        choices = {
            "grow_init": Init, "grow_place": Place, "mode": Mode, "saliency": Saliency, "granularity": Granularity,
        }  # fmt: skip
        least = {
            "max_depth": 1, "start_depth": 1, "grow_patience": 1, "grow_trial": 1, "grow_by": 1, "grow_slope": 2,
            "freeze_patience": 1, "drop_window": 1, "prune_steps": 1, "unit_multiple": 1,
        }  # fmt: skip
        object.__setattr__(self, "grow_at", _checked_shares("grow_at", self.grow_at))
        for spec in dataclasses.fields(self):
            value = getattr(self, spec.name)
            if spec.name == "grow_at" or (spec.name == "grow_by" and value == "double"):
                continue
            if spec.name in choices:
                accepted = get_args(choices[spec.name])
                if value not in accepted:
                    raise ValueError(f"{spec.name} must be one of {', '.join(accepted)}, got {value!r}")
            elif spec.name in ("grow_undoable", "remove_units"):
                if not isinstance(value, bool):
                    raise ValueError(f"{spec.name} must be True or False, got {value!r}")
            elif value is not None or "None" not in str(spec.type):
                _check_number(spec.name, value, "int" in str(spec.type), least.get(spec.name, 0))
        if not 0.0 < self.freeze_fraction <= 1.0:
            raise ValueError(f"freeze_fraction must be above 0 and at most 1, got {self.freeze_fraction}")
        if self.drop is not None and not 0.0 < self.drop < 1.0:
            raise ValueError(f"drop must be above 0 and below 1, or None, got {self.drop}")

        if self.prune_to is not None and not self.prune_to <= 1.0:
            raise ValueError(f"prune_to must be from 0 to 1, or None, got {self.prune_to}")
        if not self.prune_from < self.prune_until <= 1.0:
            raise ValueError(
                f"prune_until must be above prune_from, {self.prune_from}, and at most 1, got {self.prune_until}"
            )
        if not self.regrow < 1.0:
            raise ValueError(f"regrow must be from 0 to below 1, got {self.regrow}")
        if self.regrow and self.prune_to is None:
            raise ValueError(f"prune_to must be given with regrow={self.regrow}, which goes by the same plan")
        if self.regrow and self.granularity != "weight":
            raise ValueError(f"granularity must be 'weight' with regrow={self.regrow}, got {self.granularity!r}")
        if self.unit_multiple > 1 and self.granularity != "unit":
            given = f"unit_multiple={self.unit_multiple}"
            raise ValueError(f"granularity must be 'unit' with {given}, got {self.granularity!r}")
        if self.remove_units and self.granularity != "unit":
            raise ValueError(f"granularity must be 'unit' with remove_units=True, got {self.granularity!r}")
        if self.start_depth is not None and self.max_depth is not None and self.start_depth > self.max_depth:
            raise ValueError(f"start_depth must be at most max_depth, {self.max_depth}, got {self.start_depth}")
        if self.grow_init == "gated" and self.grow_place != "end":
            raise ValueError(f"grow_place must be 'end' with grow_init='gated', got {self.grow_place!r}")
        if self.grow_init in COPIES and self.grow_place != "end":
            raise ValueError(f"grow_place must be 'end' with grow_init={self.grow_init!r}, got {self.grow_place!r}")

    @property
    def grows(self) -> bool:
        """Whether any rule may add a layer."""
        return self.grow_patience is not None or self.grow_slope is not None or bool(self.grow_at)

    @property
    def planned(self) -> bool:
        """Whether any rule goes by the planned steps."""
        return bool(self.grow_at) or self.prune_to is not None

    @classmethod
    def fixed(cls, **changes: Any) -> "Rules":
        """Rules under which nothing ever happens, unless changed: an ordinary network, with our checkpoints."""
        return cls(**{"grow_patience": None, "prune_patience": None, "freeze_patience": None, **changes})

    @classmethod
    def faster(cls, depth: int, **changes: Any) -> "Rules":
        """Rules for less training time at the same quality, for a stack of a final depth.

        A quarter of the layers learns first, and at least two. The stack is copied on top of itself, with its optimizer
        state, as often as it takes to reach the final depth, at equal distances; the last time after 75 % of the
        planned steps.
        """
        start = max(1, min(max(2, -(-depth // 4)), depth - 1))
        growths = math.ceil(math.log2(depth / start))
        values: dict[str, Any] = {
            "grow_patience": None,
            "grow_at": tuple(LAST_GROWTH * (n + 1) / growths for n in range(growths)),
            "grow_by": "double",
            "grow_init": "stack",
            "start_depth": start,
            "max_depth": depth,
            "prune_patience": None,
            "freeze_patience": None,
        }
        return cls(**{**values, **changes})

    @classmethod
    def smaller(cls, granularity: Granularity = "unit", **changes: Any) -> "Rules":
        """Rules for fewer parameters and lower latency at the same quality, for a model of fixed depth.

        Between 10 % and 50 % of the planned steps the smallest units, or weights, go until 40 % are left. Units are
        removed from the model at once, which makes the rest of the training faster, too.
        """
        values: dict[str, Any] = {
            "grow_patience": None,
            "prune_patience": None,
            "prune_to": 0.4,
            "prune_from": 0.1,
            "prune_until": 0.5,
            "granularity": granularity,
            "remove_units": granularity == "unit",
            "freeze_patience": None,
        }
        return cls(**{**values, **changes})

    @classmethod
    def plume(cls, **changes: Any) -> "Rules":
        """The paper's values for the plume task: an epoch is an episode, the metric a success rate."""
        values: dict[str, Any] = {
            "warmup": 0,
            "grow_patience": 1000,
            "grow_threshold": 1e-3,
            "max_depth": 4,
            "mode": "max",
            "belief_increment": 1 / 4500,
            "prune_patience": 500,
            "belief_threshold": 1e-6,
            "saliency": "obd",
            "saliency_threshold": 1e-6,
            "freeze_patience": 3000,
            "freeze_delta": 0.01,
        }
        return cls(**{**values, **changes})

    @classmethod
    def classifier(cls, **changes: Any) -> "Rules":
        """The paper's values for the image classifier: an epoch is a pass over the data, 30 in all."""
        values: dict[str, Any] = {
            "warmup": 7,
            "grow_patience": 5,
            "grow_threshold": 1e-2,
            "max_depth": 4,
            "weight_threshold": 0.1,
            "activation_threshold": 0.1,
            "belief_increment": 0.1,
            "prune_patience": 2,
            "belief_threshold": 0.5,
            "saliency_threshold": 1e-2,
            "freeze_patience": 7,
            "freeze_delta": 0.1,
            "batch_decay": 0.5,
        }
        return cls(**{**values, **changes})

    @classmethod
    def continual(cls, **changes: Any) -> "Rules":
        """For streams that never end, in which the metric is a rate of success: what was learned may become useless.

        Beliefs fall as well as rise, a drop thaws and grows, and depth is bounded, so that cost is.
        """
        values: dict[str, Any] = {
            "grow_patience": 20,
            "grow_threshold": 0.0,
            "max_depth": 4,
            "mode": "max",
            "belief_fall": 0.01,
            "prune_patience": 20,
            "saliency": "obd",
            "saliency_threshold": 1e-9,
            "freeze_patience": 40,
            "drop": 0.5,
        }
        return cls(**{**values, **changes})


def _checked_shares(name: str, shares: Any) -> tuple[float, ...]:
    """Shares of the training in rising order, as a tuple."""
    try:
        values = tuple(float(share) for share in shares)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a list of shares from 0 to 1, got {shares!r}") from None
    rising = all(a < b for a, b in itertools.pairwise(values))
    if not rising or not all(0.0 <= share <= 1.0 for share in values):
        raise ValueError(f"{name} must be rising shares from 0 to 1, got {shares!r}")
    return values


def _check_number(name: str, value: Any, whole: bool, least: int) -> None:
    is_number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not is_number or not least <= value <= sys.float_info.max:
        raise ValueError(f"{name} must be a {'whole' if whole else 'finite'} number of at least {least}, got {value!r}")


def batch_size(initial: int, loss: float, decay: float) -> int:
    """The paper's batch size, b_0 exp(-eta_bs L), rounded, and at least 1."""
    try:
        return max(1, round(initial * math.exp(-decay * loss)))
    except (OverflowError, ValueError):  # too large for a number, or none at all
        raise ValueError(f"loss must give a finite batch size {initial} exp(-{decay:g} loss), got {loss}") from None

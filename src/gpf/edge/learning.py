"""A navigator that keeps learning on the robot, as C99: one header and one source file, static memory.

The rule is that of `gpf.navigation.online`: Expected SARSA (or Q-learning) with Adam, one update for each step. The
network grows, is pruned and freezes as in `gpf.network`, up to a depth for which there is room.
"""

import dataclasses
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.edge.arrays import Array, characters
from gpf.edge.c import numbers, shared_parts, template
from gpf.edge.policy import Layer, Policy, policy_of, read_layers
from gpf.navigation import online, parallel
from gpf.navigation.agents import Navigator
from gpf.navigation.inputs import kept_inputs
from gpf.navigation.online import pruned_weights
from gpf.network import Rules
from gpf.plume.scenario import ACTIONS
from gpf.runs.folder import replace_text

HEADER, SOURCE = "gpf_learner.h", "gpf_learner.c"
ROUNDING = 3e-4
"""Of the threshold of belief, as in `gpf.network.pruning`."""
ON_DEVICE: dict[str, Any] = {
    "grow_by": 1, "grow_at": (), "grow_slope": None, "grow_place": "end", "grow_init": "identity", "grow_trial": None,
    "activation_threshold": None, "prune_to": None, "granularity": "weight", "remove_units": False,
}  # fmt: skip
"""Rules that have only one value on the device."""


@dataclass(frozen=True)
class Learning:
    """A network, and all that its learning goes by."""

    policy: Policy
    """How it senses, and where it comes from."""
    layers: tuple[Layer, ...]
    """All of them, with the units that pruning has cut off."""
    pruned: dict[int, NDArray[np.bool_]]
    """Which weights are pruned, by layer, shape (outputs, inputs)."""
    frozen: tuple[int, ...]
    rules: Rules
    learning_rate: float
    discount: float
    gradient_clip: float
    """Maximum norm of the gradient; 0 for no clipping."""
    exploration: float
    """Share of random actions."""
    q_learning: bool = False
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        hidden = self.layers[:-1]
        for name, accepted in ON_DEVICE.items():
            if (value := getattr(self.rules, name)) != accepted:
                raise ValueError(f"{name} must be {accepted!r} to learn on the device, got {value!r}")
        if self.rules.prune_patience == 0:
            raise ValueError("prune_patience must be at least 1, or None, to learn on the device, got 0")
        if any(layer.scale is not None for layer in self.layers):
            raise ValueError("layer_norm must be off to learn on the device, got on; train with --no-layer-norm")
        if len({layer.outputs for layer in hidden}) > 1:
            raise ValueError(
                "hidden layers must be of one width to learn on the device, got"
                f" {', '.join(str(layer.outputs) for layer in hidden)}"
            )

    @property
    def width(self) -> int:
        """Units of a hidden layer."""
        return self.layers[0].outputs

    @property
    def inputs(self) -> int:
        """Inputs of the network."""
        return self.layers[0].inputs

    @property
    def max_depth(self) -> int:
        """Hidden layers for which there is room."""
        depth = len(self.layers) - 1
        return max(depth, self.rules.max_depth or depth) if self.rules.grow_patience is not None else depth

    @property
    def parameters(self) -> int:
        """Parameters for which there is room."""
        return (
            (self.inputs + 1) * self.width
            + (self.max_depth - 1) * (self.width + 1) * self.width
            + (self.width + 1) * len(ACTIONS)
        )


def learning_of(navigator: Navigator, policy: Policy | None = None) -> Learning:
    """The network of a value learner's navigator, and its rules and settings."""
    config = navigator.config
    learner = config.learner
    if not isinstance(learner, parallel.Settings | online.Settings):
        raise ValueError(
            f"learner must be online or parallel, whose outputs are values, to learn on the device, got {learner.NAME}"
        )
    net: Any = navigator.net
    group = learner.make_optimizer(net.model).param_groups[0]
    pruned = pruned_weights(net)
    seen = kept_inputs(learner.observation, config.without)
    if not seen.all():
        first = pruned.get(0, np.zeros((net.model.width, len(seen)), np.bool_))
        pruned[0] = first | (seen == 0.0)
    return Learning(
        policy_of(navigator) if policy is None else policy, tuple(read_layers(net.model)), pruned, net.frozen,
        config.network_rules(), learner.learning_rate, learner.discount, learner.gradient_clip,
        learner.exploration_end, learner.q_learning, group["betas"], group["eps"],
    )  # fmt: skip


def write_learner(folder: Path, learning: Learning) -> int:
    """Write the header and the source to a folder, which must exist; returns bytes of RAM in float32."""
    policy = learning.policy
    settings = _settings(learning)
    values: dict[str, Any] = {
        **numbers(policy),
        "libm": "sqrt, sqrtf" + (", cosf, sinf and expf" if policy.remembers else ""),
        "widest": max(learning.inputs, learning.width, len(ACTIONS)),
        "data": "\n\n".join(map(str, start_arrays(learning))),
        "metadata": characters({**policy.about, "numbers": "float32", "learns": _rule(learning)}),
    }
    values |= shared_parts(values)
    values |= {part: template(f"learner_{part}.c").template.rstrip() for part in ("update", "rules", "saving")}
    better = "greater" if learning.rules.mode == "max" else "smaller"
    header = template(HEADER).substitute(
        settings=settings, memory=values["memory"], metric_is=f"a {better} one is better"
    )
    replace_text(folder / HEADER, header)
    replace_text(folder / SOURCE, template(SOURCE).substitute(values))
    state = 40 * policy.remembers + 4 * learning.inputs + 4
    work = 4 * (2 * (learning.max_depth + 2) * values["widest"] + 3 * learning.inputs)
    return learner_type(learning, np.float32).itemsize + state + state % 4 + work


def _settings(learning: Learning) -> str:
    """The header's definitions: sizes, rules and the settings of the update."""
    policy, rules = learning.policy, learning.rules
    defined = {
        "GPF_ACTIONS": len(ACTIONS), "GPF_INPUTS": learning.inputs, "GPF_WIDTH": learning.width,
        "GPF_MAX_DEPTH": learning.max_depth, "GPF_START_DEPTH": len(learning.layers) - 1,
        "GPF_START_FROZEN": f"{sum(1 << n for n in learning.frozen)}u", "GPF_START_PRUNED": int(bool(learning.pruned)),
        "GPF_REMEMBERS": int(policy.remembers), "GPF_SAMPLES": 1,
        "GPF_RATE": repr(learning.learning_rate), "GPF_EXPLORATION": repr(learning.exploration),
        "GPF_DISCOUNT": repr(learning.discount), "GPF_CLIPS": int(learning.gradient_clip > 0.0),
        "GPF_CLIP": repr(learning.gradient_clip), "GPF_Q_LEARNING": int(learning.q_learning),
        "GPF_BETA_1": repr(learning.betas[0]), "GPF_BETA_2": repr(learning.betas[1]),
        "GPF_EPSILON": repr(learning.epsilon),
        "GPF_WARMUP": rules.warmup, "GPF_GREATER_IS_BETTER": int(rules.mode == "max"),
        "GPF_GROW_PATIENCE": rules.grow_patience or 0, "GPF_GROW_THRESHOLD": repr(float(rules.grow_threshold)),
        "GPF_GROW_COOLDOWN": rules.grow_cooldown,
        "GPF_WEIGHT_THRESHOLD": repr(float(rules.weight_threshold)),
        "GPF_BELIEF_INCREMENT": repr(float(rules.belief_increment)), "GPF_BELIEF_FALL": repr(float(rules.belief_fall)),
        "GPF_PRUNE_PATIENCE": rules.prune_patience or 0,
        "GPF_BELIEF_LIMIT": repr(rules.belief_threshold * (1.0 - ROUNDING)),
        "GPF_SALIENCY_OBD": int(rules.saliency == "obd"),
        "GPF_SALIENCY_THRESHOLD": repr(float(rules.saliency_threshold)),
        "GPF_FREEZE_PATIENCE": rules.freeze_patience or 0, "GPF_FREEZE_DELTA": repr(float(rules.freeze_delta)),
        "GPF_FREEZE_FRACTION": repr(float(rules.freeze_fraction)),
        "GPF_DROP_WINDOW": 0 if rules.drop is None else rules.drop_window, "GPF_DROP": repr(float(rules.drop or 0.0)),
    }  # fmt: skip
    text = "\n".join(f"#define {name} {value}" for name, value in defined.items())
    return f"{text}\n#define GPF_SETTINGS {zlib.crc32(text.encode())}u /* CRC-32 of the above: blocks carry it */"


def _rule(learning: Learning) -> str:
    return "Q-learning" if learning.q_learning else "expected SARSA"


def start_arrays(learning: Learning) -> list[Array]:
    """The exported parameters, and a bit for each that is pruned, in the learner's order."""
    by_layer = []
    for n, layer in enumerate(learning.layers):
        weight = np.where(learning.pruned[n], np.float32(0.0), layer.weight) if n in learning.pruned else layer.weight
        by_layer.append(np.concatenate([weight.T.ravel(), layer.bias]))
    arrays = [Array("float", "start_values", np.concatenate(by_layer))]
    if learning.pruned:
        masks = []
        for n, layer in enumerate(learning.layers):
            weights = learning.pruned.get(n, np.zeros(layer.weight.shape, np.bool_))
            masks += [weights.T.ravel(), np.zeros(layer.outputs, np.bool_)]
        bits = np.packbits(np.concatenate(masks), bitorder="little")
        arrays.append(Array("uint8_t", "start_pruned", bits))
    return arrays


def learner_type(learning: Learning, real: type[np.floating[Any]]) -> np.dtype[np.void]:
    """The memory of `gpf_learner`, field by field, as the compiler lays it out."""
    layer = np.dtype(
        [("power_1", "f8"), ("power_2", "f8")] + [(name, "i4") for name in ("still", "frozen", "masked", "observed")],
        align=True,
    )
    rules, count, depth = learning.rules, (learning.parameters,), learning.max_depth
    fields: list[Any] = [
        ("rate", "f8"), ("exploration", "f8"), ("stream", "u8", (4,)), ("sequence", "u4"), ("epoch", "i4"),
        ("depth", "i4"), ("layers", layer, (depth + 1,)), ("values", real, count), ("first", real, count),
        ("second", real, count), ("belief", "f4", count),
    ]  # fmt: skip
    if rules.freeze_patience:
        fields.append(("previous", real, count))
    fields += [("prunes_due", "i4", (depth,)), ("before", real), ("peak", real)]
    fields += [(name, "i4") for name in ("has_before", "has_peak", "cooldown", "window_length", "recent_length")]
    fields += [("window", real, ((rules.grow_patience or 0) + 1,))]
    fields += [("recent", real, ((0 if rules.drop is None else rules.drop_window) + 1,))]
    return np.dtype(fields, align=True)


def with_rules(learning: Learning, **changes: Any) -> Learning:
    """The same with other rules."""
    return dataclasses.replace(learning, rules=dataclasses.replace(learning.rules, **changes))

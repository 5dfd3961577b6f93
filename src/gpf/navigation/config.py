"""What to train, and how: the settings of all learners in one place.

The command line reads this module before it knows what it will do, so heavy imports stand inside the functions.
"""

import dataclasses
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from gpf.network import Rules

Acting = Literal["greedy", "sampled"]
"""`greedy` takes the action of greatest output, `sampled` draws one from the softmax of the outputs."""
Observation = Literal["memory", "onehot"]
Reward = Literal["search", "paper", "reference"]
CriticName = Literal["shared", "memory"]
"""`shared` is an output of the policy's network; `memory` a network that sees the features of memory."""
LearnerName = Literal["policy-gradient", "parallel", "online"]

DEFAULTS: dict[str, dict[str, Any]] = {
    "policy-gradient": {
        "observation": "memory", "reward": "search", "loitering": 0.0, "acting": "sampled", "steps": 3_000_000,
        "learning_rate": 2e-3, "discount": 0.998, "trace": 0.95, "lanes": 128, "horizon": 64, "passes": 4,
        "minibatch": 2048, "gradient_clip": 0.5, "clip": 0.2, "entropy": 0.005, "value_weight": 0.05,
        "critic": "shared", "averaging": 0.0,
    },
    "parallel": {
        "observation": "onehot", "reward": "search", "loitering": 0.4, "acting": "greedy", "steps": 6_000_000,
        "learning_rate": 1e-3, "discount": 0.995, "trace": 0.95, "lanes": 128, "horizon": 64, "passes": 2,
        "minibatch": 1024, "gradient_clip": 10.0, "layer_norm": True, "averaging": 0.99,
        "exploration_end": 0.05,
    },
    "online": {
        "observation": "onehot", "reward": "reference", "loitering": 0.0, "acting": "greedy", "episodes": 4500,
        "learning_rate": 1e-3, "discount": 0.99, "gradient_clip": 1.0, "exploration_end": 0.05,
        "exploration_decay": 0.9995,
    },
}  # fmt: skip
"""Settings of each learner where the user gives none; a learner takes no others."""

OTHER_OBSERVATION: dict[tuple[str, str], dict[str, Any]] = {
    ("policy-gradient", "onehot"): {
        "critic": "memory",
        "discount": 0.999,
        "steps": 6_000_000,
        "averaging": 0.98,
    },
    ("parallel", "memory"): {"discount": 0.998, "steps": 4_000_000},
}
"""Defaults that differ where the observation is not the learner's own."""

RULES: dict[str, dict[str, Any]] = {
    "policy-gradient": {
        "warmup": 10, "grow_patience": 10, "grow_threshold": 0.01, "grow_trial": 60, "max_depth": 3,
        "weight_threshold": 0.1, "belief_increment": 0.01, "prune_patience": 60, "belief_threshold": 0.5,
        "saliency": "magnitude", "saliency_threshold": 0.1, "freeze_patience": 30, "freeze_delta": 0.0015,
    },
    "parallel": {
        "grow_patience": 60, "grow_threshold": 0.005, "max_depth": 2,
        "weight_threshold": 0.1, "belief_increment": 0.01, "prune_patience": 60, "belief_threshold": 0.5,
        "saliency": "magnitude", "saliency_threshold": 0.1, "freeze_patience": 30, "freeze_delta": 0.0015,
    },
    "online": {},
}  # fmt: skip
"""Where each learner's `gpf.Rules` differ from `Rules.plume()`; an epoch is a rollout, or an episode online,
once there is a metric."""

OTHER_RULES: dict[tuple[str, str], dict[str, Any]] = {
    ("policy-gradient", "onehot"): {"grow_patience": 60, "grow_threshold": 0.005, "max_depth": 2},
}
"""Rules that differ where the observation is not the learner's own."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """What to train, and how. A setting that is not given takes the learner's default."""

    learner: LearnerName = "policy-gradient"
    """`policy-gradient` (PPO), `parallel` (Expected SARSA in many lanes) or `online` (the paper's protocol)."""
    observation: Observation | None = None
    """What the network sees: 14 features of the recent past, or the paper's 22 zeros and ones."""
    scenario: str = "reference"
    """Where: a preset (paper, reference) or a path to a scenario's .json file."""
    reward: Reward | None = None
    """What is paid while learning; evaluations count only whether, and how fast, the source was found."""
    loitering: float | None = None
    """With reward `search`: what staying in the plume for ever is worth, as a share of the source."""
    seed: int = 0
    """Of the network's first weights, of the training episodes and of exploration."""
    steps: int | None = None
    """Steps to learn from, over all lanes."""
    episodes: int | None = None
    """Episodes to learn from (online)."""
    gpf: bool = True
    """Whether the network grows, prunes and freezes."""
    rules: dict[str, str] = dataclasses.field(default_factory=dict)
    """Changes to the learner's `gpf.Rules`, as FIELD VALUE pairs, for example `--rules max_depth 4 grow_trial none`."""
    plan: tuple[str, ...] = ()
    """Growth and pruning at epochs of your choice in place of the rules', as EPOCH:grow and EPOCH:keep=SHARE, for
    example `--plan 2000:grow 2010:keep=0.479`; a share is of the weights of all layers but the newest."""
    depth: int = 1
    """Hidden layers at the start."""
    width: int = 64
    """Units of a hidden layer."""
    layer_norm: bool | None = None
    """Whether the first hidden layer is normalised (parallel)."""
    q_learning: bool = False
    """Whether targets take the best next action, Q-learning, and not the policy's mean, Expected SARSA."""
    without: tuple[str, ...] = ()
    """Groups of memory features to do without, to see what they are worth."""
    acting: Acting | None = None
    """How the trained navigator acts: `greedy`, or `sampled` from the softmax of the outputs."""
    learning_rate: float | None = None
    discount: float | None = None
    trace: float | None = None
    """Lambda of the returns or advantages."""
    lanes: int | None = None
    """Worlds side by side."""
    horizon: int | None = None
    """Steps of a rollout, in each lane."""
    passes: int | None = None
    """How often each rollout is learnt from."""
    minibatch: int | None = None
    gradient_clip: float | None = None
    """Greatest norm of the gradient."""
    clip: float | None = None
    """How far PPO lets the probability of an action move in one rollout."""
    entropy: float | None = None
    """Weight of PPO's entropy bonus."""
    value_weight: float | None = None
    """Weight of the value's error in PPO's loss."""
    critic: CriticName | None = None
    """What judges the states of PPO's policy: `shared`, a further output of its network, or `memory`, a network of its
    own that sees the features of memory, where the policy does not."""
    averaging: float | None = None
    """Share of the old average in the running average of the weights, per rollout, which acts when learning is over; 0
    for none (policy-gradient, parallel)."""
    exploration_end: float | None = None
    """Share of random actions in the end."""
    exploration_decay: float | None = None
    """By what the share of random actions is multiplied after each episode (online)."""

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Config":
        """A configuration from plain data, in which tuples are lists."""
        plain: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
        return cls(**plain)

    def resolved(self) -> "Config":
        """The same with all defaults filled in; refuses what the learner does not take."""
        if self.learner not in DEFAULTS:
            raise ValueError(f"learner: {self.learner!r}; accepted: {', '.join(DEFAULTS)}")
        defaults = DEFAULTS[self.learner]
        observation = self.observation or defaults["observation"]
        defaults = {**defaults, **OTHER_OBSERVATION.get((self.learner, observation), {})}
        filled: dict[str, Any] = {}
        for name in {key for settings in DEFAULTS.values() for key in settings}:
            value = getattr(self, name)
            if name not in defaults and value is not None:
                takers = ", ".join(other for other, settings in DEFAULTS.items() if name in settings)
                raise ValueError(f"{name}: {value}; accepted: only with --learner {takers}, not {self.learner}")
            filled[name] = defaults.get(name) if value is None else value
        if filled["reward"] != "search" and self.loitering is None:
            filled["loitering"] = 0.0
        config = dataclasses.replace(self, **filled)
        config._check()
        return config

    def _check(self) -> None:
        from gpf.navigation.acting import kept_inputs
        from gpf.navigation.evaluate import BLOCK
        from gpf.navigation.rollouts import LANES_OF_A_SEED

        for name, kind in (("observation", Observation), ("reward", Reward), ("acting", Acting)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name}: {getattr(self, name)!r}; accepted: {', '.join(get_args(kind))}")
        for name in ("steps", "episodes", "depth", "width", "lanes", "horizon", "passes", "minibatch"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}: {value}; accepted: at least 1")
        if self.lanes is not None and self.lanes > LANES_OF_A_SEED:
            raise ValueError(f"lanes: {self.lanes}; accepted: at most {LANES_OF_A_SEED}")
        if not 0 <= self.seed < BLOCK:
            raise ValueError(f"seed: {self.seed}; accepted: 0 to {BLOCK - 1}")
        for name in ("discount", "trace", "averaging", "exploration_end", "exploration_decay"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value <= 1.0:
                raise ValueError(f"{name}: {value}; accepted: 0 to 1")
        for name in ("learning_rate", "gradient_clip", "clip", "entropy", "value_weight"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value < float("inf"):
                raise ValueError(f"{name}: {value}; accepted: a number of at least 0")
        if self.averaging == 1.0:
            raise ValueError("averaging: 1.0; accepted: below 1, or the first weights would act for ever")
        if self.q_learning and self.learner == "policy-gradient":
            raise ValueError("q_learning: True; accepted: only with --learner parallel, online, not policy-gradient")
        if self.loitering and self.reward != "search":
            raise ValueError(f"loitering: {self.loitering}; accepted: only with --reward search, not {self.reward}")
        if self.acting == "sampled" and self.learner != "policy-gradient":
            raise ValueError(
                f"acting: 'sampled'; accepted by --learner {self.learner}: greedy, for values are no logits"
            )
        if self.critic not in (None, *get_args(CriticName)):
            raise ValueError(f"critic: {self.critic!r}; accepted: {', '.join(get_args(CriticName))}")
        if self.critic == "memory" and self.observation == "memory":
            raise ValueError(
                "critic: 'memory'; accepted with --observation memory: shared, for the policy sees the same"
            )
        for name in ("rules", "plan"):
            if getattr(self, name) and not self.gpf:
                raise ValueError(f"{name}: {getattr(self, name)}; accepted: only with --gpf")
        planned_events(self.plan)
        kept_inputs(vars(self)["observation"], self.without)
        deepest = network_rules(self).max_depth
        if self.gpf and not self.plan and deepest is not None and self.depth >= deepest:
            raise ValueError(
                f"depth: {self.depth}; accepted: less than the rules' max_depth, {deepest}, or --no-gpf,"
                " for nothing could grow and nothing be pruned"
            )

    @property
    def epochs(self) -> int:
        """Epochs of the whole training: rollouts, or episodes online."""
        values = vars(self)
        if self.learner == "online":
            return int(values["episodes"])
        return max(1, round(values["steps"] / (values["lanes"] * values["horizon"])))


def rule_changes(typed: dict[str, str]) -> dict[str, Any]:
    """Values of fields of `gpf.Rules`, as they were typed."""
    from gpf.network import Rules

    changes: dict[str, Any] = {}
    for name, text in typed.items():
        if name not in {spec.name for spec in dataclasses.fields(Rules)}:
            raise ValueError(f"rules: unknown field {name!r}; accepted: those of gpf.Rules")
        if text.lower() == "none":
            changes[name] = None
            continue
        try:
            changes[name] = json.loads(f"0{text}" if text.startswith(".") else text)
        except json.JSONDecodeError:
            changes[name] = text  # a word
    return changes


def network_rules(config: Config) -> "Rules":
    """The rules of a resolved configuration."""
    from gpf.network import Rules

    if not config.gpf:
        return Rules.fixed()
    changes = rule_changes(config.rules)
    defaults = {**RULES[config.learner], **OTHER_RULES.get((config.learner, vars(config)["observation"]), {})}
    if config.plan:
        defaults |= {"grow_patience": None, "prune_patience": None, "max_depth": None}
    return Rules.plume(**{**defaults, **changes})


def planned_events(plan: tuple[str, ...]) -> dict[int, list[float | None]]:
    """What is planned after each epoch: None for a growth, or the share of weights that a pruning keeps."""
    events: dict[int, list[float | None]] = {}
    for text in plan:
        match = re.fullmatch(r"([1-9]\d*):(?:grow|keep=(0?\.\d+|[01](?:\.0*)?))", text)
        if match is None:
            raise ValueError(f"plan: {text!r}; accepted: EPOCH:grow, or EPOCH:keep=SHARE with a share of 0 to 1")
        events.setdefault(int(match[1]), []).append(None if match[2] is None else float(match[2]))
    return events

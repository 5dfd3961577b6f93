"""Configuration of a training run: learner settings, network, and rules for growing, pruning and freezing."""

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gpf import settings
from gpf.navigation import online, parallel, policy_gradient, recurrent
from gpf.navigation.inputs import kept_inputs
from gpf.navigation.seeds import BLOCK
from gpf.network import Rules
from gpf.plume.scenario import Scenario

LearnerSettings = policy_gradient.Settings | recurrent.Settings | parallel.Settings | online.Settings
LEARNERS: dict[str, type[LearnerSettings]] = {
    kind.NAME: kind for kind in (policy_gradient.Settings, recurrent.Settings, parallel.Settings, online.Settings)
}
"""The settings of each learner, by its name."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """A navigator and its training. `Config.of` makes one from flat settings."""

    learner: LearnerSettings = dataclasses.field(default_factory=policy_gradient.Settings)
    """`policy-gradient` (PPO), `recurrent` (PPO with a memory that it learns), `parallel` (Expected SARSA in many
    lanes) or `online` (the paper's protocol)."""
    scenario: str = "reference"
    """Where: a preset ({presets}) or a path to a scenario's .json file."""
    seed: int = settings.number(0, 0, BLOCK - 1)
    """Seed of the initial weights, of the training episodes and of exploration."""
    gpf: bool = True
    """Whether the network grows, prunes and freezes."""
    rules: dict[str, str] = dataclasses.field(default_factory=dict)
    """Changes to the rules of growing, pruning and freezing, for example `--rules max_depth 4 grow_trial none`;
    docs/command-line.md lists them."""
    plan: tuple[str, ...] = ()
    """Fixed schedule of growth and pruning in place of the rules, as EPOCH:grow and EPOCH:keep=SHARE, for example
    `--plan 2000:grow 2010:keep=0.479`; the share is of the weights of all layers but the newest."""
    depth: int = settings.number(1, 1)
    """Hidden layers at the start."""
    width: int = settings.number(64, 1)
    """Units of a hidden layer."""
    without: tuple[str, ...] = ()
    """Groups of memory features to leave out: difference, whiff, "time since whiff", side, "place of whiff", wind,
    "smoothed wind", "ever met", clock, searched."""
    evaluate: int = settings.number(2000, 0, BLOCK)
    """Held-out episodes on which the trained navigator is evaluated; 0 for no evaluation."""

    @classmethod
    def of(cls, values: Mapping[str, Any] = MappingProxyType({}), /, **more: Any) -> "Config":
        """A checked configuration from flat settings: the learner's name, its settings, and those of this class.

        Missing settings take the learner's default for the observation. Values of `rules` may be of any type.
        """
        given = {**values, **more}
        name = settings.choose("learner", given.pop("learner", policy_gradient.Settings.NAME), LEARNERS)
        for key in given:
            if key not in flat_settings(name):
                raise ValueError(_refusal(key, name))
        own = {key: given.pop(key) for key in _own_settings(name) if key in given}
        if isinstance(given.get("rules"), Mapping):
            given["rules"] = {key: _text(value) for key, value in given["rules"].items()}
        config = settings.read(cls, {**given, "learner": _learner(LEARNERS[name], own)})
        config.check()
        return config

    def plain(self) -> dict[str, Any]:
        """Flat settings as plain data, from which `of` makes the same configuration."""
        return {**settings.plain(self), "learner": self.learner.NAME, **settings.plain(self.learner)}

    @property
    def epochs(self) -> int:
        """Epochs of the whole training: rollouts, or episodes online."""
        return self.learner.epochs

    @property
    def learning_rate(self) -> float:
        """Of the learner."""
        return self.learner.learning_rate

    def check(self) -> None:
        """Refuse settings that are out of range, or that contradict each other."""
        settings.check(self)
        settings.check(self.learner)
        learner = self.learner
        if learner.loitering and learner.reward != "search":
            raise ValueError(f"loitering needs reward search, got {learner.loitering} with {learner.reward}")
        check_acting(learner, learner.acting)
        privileged = isinstance(learner, policy_gradient.Settings) and learner.critic == "privileged"
        if privileged and learner.observation == "memory":
            raise ValueError(
                "critic must be shared with observation memory, where the policy sees the same features; got privileged"
            )
        if isinstance(learner, recurrent.Settings) and learner.burn_in > learner.horizon:
            raise ValueError(f"burn_in must be at most horizon, {learner.horizon}, got {learner.burn_in}")
        if not self.gpf and (self.rules or self.plan):
            raise ValueError(f"{'rules need' if self.rules else 'plan needs'} gpf, which is off")
        self.planned_events()
        kept_inputs(learner.observation, self.without)
        rules = self.network_rules()
        deepest = rules.max_depth
        if not self.gpf or self.plan or deepest is None:
            return
        if self.depth > deepest:
            raise ValueError(f"depth must be at most max_depth, {deepest}, got {self.depth}")
        if self.depth == deepest and rules.prune_to is None:
            raise ValueError(
                f"depth must be below max_depth, {deepest}, or nothing could grow or be pruned; got {self.depth}"
                " (turn gpf off for a network of fixed depth)"
            )

    def network_rules(self) -> Rules:
        """When the network grows, prunes and freezes."""
        if not self.gpf:
            return Rules.fixed()
        rules = {**self.learner.RULES, **self.learner.RULES_BY_OBSERVATION.get(self.learner.observation, {})}
        if self.plan:
            rules |= {"grow_patience": None, "grow_at": (), "max_depth": None, "prune_patience": None, "prune_to": None}
        return Rules.plume(**{**rules, **settings.rule_changes(Rules, self.rules)})

    def planned_events(self) -> dict[int, list[float | None]]:
        """Planned events after each epoch: None for a growth, or the share of weights that a pruning keeps."""
        events: dict[int, list[float | None]] = {}
        for text in self.plan:
            match = re.fullmatch(r"([1-9]\d*):(?:grow|keep=(0?\.\d+|[01](?:\.0*)?))", text)
            if match is None:
                raise ValueError(f"plan must be EPOCH:grow, or EPOCH:keep=SHARE with a share of 0 to 1; got {text!r}")
            events.setdefault(int(match[1]), []).append(None if match[2] is None else float(match[2]))
        return events

    def rewarded(self, world: Scenario) -> Scenario:
        """A world with the reward that the learner is paid."""
        return world.rewarded(self.learner.reward, self.learner.discount, self.learner.loitering)


def flat_settings(learner: str) -> dict[str, Any]:
    """Every setting that `Config.of` takes with a learner, and its type."""
    return {**settings.field_types(Config), "learner": str, **_own_settings(learner)}


def _own_settings(learner: str) -> dict[str, Any]:
    kind: Any = LEARNERS[learner]
    return settings.field_types(kind)


def check_acting(learner: LearnerSettings, acting: str) -> None:
    """Refuse a way of acting that a learner's navigators do not know."""
    if acting not in learner.ACTING:
        raise ValueError(f"acting must be {' or '.join(learner.ACTING)} with learner {learner.NAME}, got {acting!r}")


def _learner(kind: type[LearnerSettings], own: dict[str, Any]) -> LearnerSettings:
    """A learner's settings, with those defaults that depend on the observation and the reward."""
    given = settings.read(kind, own)
    defaults = dict(kind.BY_OBSERVATION.get(given.observation, {}))
    if given.reward != "search":
        defaults["loitering"] = 0.0
    return dataclasses.replace(given, **{name: value for name, value in defaults.items() if name not in own})


def _refusal(name: str, learner: str) -> str:
    takers = [other for other in LEARNERS if name in flat_settings(other)]
    if takers:
        return f"{name} is a setting of {' and '.join(takers)}, not of {learner}"
    return settings.unknown("setting", name, flat_settings(learner))


def _text(value: Any) -> str:
    """The value of a rule as it would be typed."""
    return value if isinstance(value, str) else json.dumps(value)

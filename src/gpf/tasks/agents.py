"""The agents of the suite: a line for each."""

import importlib.util
from dataclasses import dataclass, field
from typing import Any, Literal

from gpf.navigation.suite import EPISODES, SLOW_EPISODES
from gpf.settings import choose

Kind = Literal["classical", "learned", "planner", "outsider", "own"]
"""`classical`: a rule, only evaluated; `learned`: one of our navigators; `planner`: searches in a world model;
`outsider`: trained with another library; `own`: a user's, only evaluated."""

QUICK: dict[Kind, dict[str, Any]] = {
    "classical": {},
    "learned": {
        "steps": 2048, "lanes": 16, "horizon": 32, "minibatch": 256, "width": 16, "round_epochs": 2,
        "validation_episodes": 4,
    },
    "planner": {
        "collect": 20_000, "horizon": 2, "rollouts": 1, "width": 16, "heads": 2, "context": 8, "steps": 4, "batch": 8,
        "round_steps": 4, "validation_windows": 16,
    },
    "outsider": {"steps": 512, "lanes": 8, "n_steps": 32, "batch_size": 128, "hidden": 16},
    "own": {},
}  # fmt: skip
"""Settings of `gpf suite --quick`, which are too short to learn anything."""


@dataclass(frozen=True)
class Agent:
    """A searcher."""

    kind: Kind
    about: str
    """A description in a few words."""
    settings: dict[str, Any] = field(default_factory=dict)
    """`policy` of a classical agent; otherwise the settings of its training."""
    everywhere: bool = False
    """Whether it is trained once, in varied worlds, and evaluated in all; otherwise it is trained in each world."""
    slow: bool = False
    """Whether a decision takes more than 5 ms; it has fewer episodes."""
    seeds: int | None = None
    """How many seeds it has at most; None for all."""
    needs: tuple[str, ...] = ("vane",)
    """Requirements for a world; see `gpf.navigation.suite.lacking`."""
    packages: tuple[str, ...] = ()
    """Packages that must be installed."""

    def episodes(self, wanted: int) -> int:
        """How many of the episodes that are wanted it has."""
        return min(wanted, SLOW_EPISODES) if self.slow else wanted

    def trained(self, quick: bool) -> dict[str, Any]:
        """The settings of its training."""
        return {**self.settings, **(QUICK[self.kind] if quick else {})}


def _rule(about: str, policy: str, needs: tuple[str, ...] = ("vane",)) -> Agent:
    return Agent("classical", about, {"policy": policy}, needs=needs)


def _learned(about: str, everywhere: bool = False, **settings: Any) -> Agent:
    return Agent("learned", about, settings, everywhere)


def _outsider(about: str, algorithm: str, seeds: int | None = None, **settings: Any) -> Agent:
    packages = ("stable_baselines3", *(("sb3_contrib",) if algorithm == "RecurrentPPO" else ()))
    return Agent("outsider", about, {"algorithm": algorithm, **settings}, packages=packages, seeds=seeds)


AGENTS: dict[str, Agent] = {
    "random": _rule("uniformly random actions", "random", needs=()),
    "reactive": _rule("turns upwind on a whiff", "reactive"),
    "cast-and-surge": _rule("surges upwind after a whiff, then casts in growing sweeps", "cast-and-surge"),
    "cast-and-surge-tuned": _rule("cast-and-surge with parameters tuned for the world", "cast-and-surge-tuned"),
    "bilateral": _rule("goes upwind and towards the stronger antenna", "bilateral"),
    "infotaxis": _rule("goes where it expects to learn most about the source", "infotaxis"),
    "space-aware-infotaxis": _rule("infotaxis that also counts the distance left to go", "space-aware-infotaxis"),
    "thompson": _rule("goes to a place drawn from its belief", "thompson"),
    "particle-filter": _rule("surges upwind after a whiff, otherwise goes to a particle", "particle-filter"),
    "planner": Agent("planner", "plans in a world model; follows cast-and-surge", slow=True, seeds=3),
    "gpf": _learned("PPO with features of memory; grows, prunes and freezes", learner="policy-gradient"),
    "depth-1": _learned("PPO with features of memory; one layer", learner="policy-gradient", gpf=False, depth=1),
    "depth-4": _learned("PPO with features of memory; four layers", learner="policy-gradient", gpf=False, depth=4),
    "22-inputs": _learned("PPO with the paper's 22 inputs, no memory; GPF", observation="onehot"),
    "recurrent": _learned("PPO with the paper's 22 inputs and learned memory; GPF", learner="recurrent"),
    "generalist": _learned("PPO with features of memory; one for all worlds; GPF", everywhere=True, steps=9_000_000),
    "sb3-ppo": _outsider("stable-baselines3's PPO with features of memory", "PPO", observation="memory"),
    "sb3-recurrent-ppo": _outsider(
        "sb3-contrib's RecurrentPPO (LSTM) with the paper's 22 inputs", "RecurrentPPO", observation="onehot", seeds=3
    ),
}  # fmt: skip
"""By name."""


def find_agent(name: str) -> Agent:
    """An agent by its name, or a user's by its reference, `module:function`."""
    if ":" in name:
        return Agent("own", f"own agent, {name}", {"reference": name}, needs=())  # it says itself what it needs
    return AGENTS[choose("agent", name, AGENTS)]


def check_installed(name: str) -> None:
    """Refuse an agent whose packages are missing."""
    for package in find_agent(name).packages:
        if importlib.util.find_spec(package) is None:
            raise ValueError(
                f"agent {name!r} needs {package}; pip install {package.replace('_', '-')}, or leave it out"
            )


def episodes_of(name: str, wanted: int = EPISODES) -> int:
    """How many of the episodes that are wanted an agent has."""
    return find_agent(name).episodes(wanted)

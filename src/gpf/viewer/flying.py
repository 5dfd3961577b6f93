"""The conversation of a flight: what the page asks over its socket, and the frames that it gets.

Every message is an object with `do` and an `id`; every answer has the same id. The page asks for frames when it needs
them, so a server never computes ahead of a page that nobody looks at.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocket

from gpf.navigation.agents import load_navigator
from gpf.navigation.evaluate import evaluate
from gpf.navigation.policies import POLICIES, Policy, make_policy
from gpf.navigation.policy_gradient import Settings as PolicyGradient
from gpf.navigation.seeds import BLOCK, HELD_OUT
from gpf.plume.presets import PRESETS
from gpf.plume.scenario import ACTIONS, Scenario
from gpf.runs.folder import RunError, read_config
from gpf.settings import choose, shown
from gpf.viewer.episodes import Flight, path_of
from gpf.viewer.folders import Folders
from gpf.zoo import NAMES, PREFIX

MOST_FRAMES = 100
"""Frames of one answer, at most."""
SEARCHED, AT_A_TIME = 256, 32
"""Episodes that are tried for the next failure, and how many of them side by side."""
OWN_WORLD = "own"
"""The world that a navigator was trained in."""
FIRST_CHOICE: dict[str, Any] = {"world": "turbulent", "policy": {"kind": "zoo", "name": "zoo:turbulent"}, "seed": 0}


def choices(folders: Folders) -> dict[str, Any]:
    """Worlds and policies to choose from."""
    policies = [{"kind": "zoo", "name": PREFIX + name} for name in NAMES]
    policies += [{"kind": "classical", "name": name} for name in POLICIES]
    for name, folder in sorted(folders.names()):
        try:
            is_navigator = read_config(folder).get("task") == "plume"
        except RunError:
            continue
        for checkpoint in ("last", "best"):
            if is_navigator and (folder / "checkpoints" / checkpoint / "manifest.json").is_file():
                policies.append({"kind": "run", "name": name, "checkpoint": checkpoint})
    return {"worlds": list(PRESETS), "policies": policies, "first": FIRST_CHOICE, "seeds": BLOCK}


@dataclass
class Pilot:
    """A policy that was chosen, with what the page shows of it."""

    policy: Policy
    name: str
    scenario: Scenario | None = None
    """In which it was trained."""
    values: bool = False
    """Whether its outputs are values of actions."""

    @classmethod
    def classical(cls, name: str) -> "Pilot":
        """An opponent that needs no training."""
        return cls(make_policy(name), name)

    @classmethod
    def trained(cls, name: str, folder: str | Path, checkpoint: Any = "last") -> "Pilot":
        """A trained navigator; `folder` may also name one of the zoo."""
        navigator = load_navigator(folder, checkpoint)
        return cls(navigator.policy, name, navigator.scenario, not isinstance(navigator.config.learner, PolicyGradient))

    @classmethod
    def of(cls, choice: Any, folders: Folders) -> "Pilot":
        """From a choice such as `{"kind": "run", "name": "runs/plume-1", "checkpoint": "last"}`."""
        kind, name = (choice.get(key) if isinstance(choice, Mapping) else None for key in ("kind", "name"))
        if not isinstance(name, str) or kind not in ("zoo", "classical", "run"):
            raise ValueError(f"policy must be one that this page lists, got {shown(choice)}")
        if kind == "classical":
            return cls.classical(choose("policy", name, POLICIES))
        if kind == "zoo":
            return cls.trained(name, choose("navigator of the zoo", name, [PREFIX + one for one in NAMES]))
        return cls.trained(name, folders.find(name), choice.get("checkpoint", "last"))


def world_of(name: Any, pilot: Pilot) -> Scenario:
    """A world by its name: a preset, or the one that the pilot was trained in."""
    if name == OWN_WORLD and pilot.scenario is not None:
        return pilot.scenario
    return Scenario.preset(choose("world", name, PRESETS))


@dataclass
class Session:
    """One page's flight, and what it may ask."""

    folders: Folders
    flight: Flight | None = None
    _pilots: dict[str, Pilot] = field(default_factory=dict)

    def answer(self, asked: Any) -> dict[str, Any]:
        """The answer to a message; an error is a sentence in it."""
        if not isinstance(asked, dict):
            return {"error": f"a message must be an object, got {shown(asked)}"}
        try:
            act = self._acts[choose("do", asked.get("do"), self._acts)]
            return {"id": asked.get("id"), **act(self, asked)}
        except (ValueError, OSError, RuntimeError, ArithmeticError) as error:
            return {"id": asked.get("id"), "error": str(error)}

    def _start(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Begin an episode."""
        self.flight = self._new_flight(asked, _whole(asked, "seed", 0, BLOCK - 1))
        return {"header": self.flight.header(), "frames": [self.flight.frame()]}

    def _failure(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Begin the next episode, after `seed`, that the policy does not solve."""
        seed = _whole(asked, "seed", 0, BLOCK - 1)
        pilot, scenario = self._chosen(asked)
        last = min(seed + SEARCHED, BLOCK - 1)
        for first in range(seed + 1, last + 1, AT_A_TIME):
            count = min(AT_A_TIME, last + 1 - first)
            found = evaluate(copy.copy(pilot.policy), scenario, count, HELD_OUT + first, threads=1)
            if not found.success.all():
                seed = first + int(np.argmin(found.success))
                return self._start({**asked, "seed": seed})
        raise ValueError(f"none of the {last - seed} episodes after this one failed")

    def _fly(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Frames of the next steps after `step`."""
        flight = self._at(asked)
        frames = []
        for _ in range(_whole(asked, "count", 1, MOST_FRAMES)):
            if flight.end is not None:
                break
            flight.fly()
            frames.append(flight.frame())
        return {"frames": frames}

    def _act(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The frame after an action that the user chose."""
        flight = self._at(asked)
        flight.fly(_whole(asked, "action", 0, len(ACTIONS) - 1))
        return {"frames": [flight.frame()]}

    def _move(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The frame of the same step with the agent or the source elsewhere."""
        flight = self._at(asked)
        flight.move({name: asked[name] for name in ("position", "source", "heading") if name in asked})
        return {"frames": [flight.frame()]}

    def _rival(self, asked: dict[str, Any]) -> dict[str, Any]:
        """The policy's own path in the episode that is flown, for comparison."""
        flight = self._flight()
        pilot = self._chosen(asked)[0]
        return {"rival": path_of(flight.scenario, copy.copy(pilot.policy), flight.seed)}

    _acts = {"start": _start, "failure": _failure, "fly": _fly, "act": _act, "move": _move, "rival": _rival}

    def _new_flight(self, asked: dict[str, Any], seed: int) -> Flight:
        pilot, scenario = self._chosen(asked, again=True)
        return Flight(scenario, copy.copy(pilot.policy), seed, pilot.values)

    def _chosen(self, asked: dict[str, Any], again: bool = False) -> tuple[Pilot, Scenario]:
        """The policy and the world that a message names; `again` loads the policy anew, for a run may have learned."""
        key = repr(asked.get("policy"))
        if again or key not in self._pilots:
            self._pilots = {key: Pilot.of(asked.get("policy"), self.folders)}
        pilot = self._pilots[key]
        return pilot, world_of(asked.get("world"), pilot)

    def _flight(self) -> Flight:
        if self.flight is None:
            raise ValueError("there is no episode yet; start one first")
        return self.flight

    def _at(self, asked: dict[str, Any]) -> Flight:
        """The flight, at the step that a message names."""
        flight = self._flight()
        flight.seek(_whole(asked, "step", 0, flight.reached))
        return flight


async def converse(socket: WebSocket, folders: Folders) -> None:
    """Answer what the page asks, until it is closed."""
    session = Session(folders)
    while True:
        asked = await _received(socket)
        await socket.send_json(await run_in_threadpool(session.answer, asked))


async def _received(socket: WebSocket) -> Any:
    try:
        return await socket.receive_json()
    except (ValueError, KeyError, RecursionError):  # no JSON, or bytes, or too deep
        return None


def _whole(asked: Mapping[str, Any], name: str, low: int, high: int) -> int:
    """A whole number in a message."""
    value = asked.get(name)
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"{name} must be a whole number from {low} to {high}, got {shown(value)}")
    return value

"""Episodes for the page: one lane of the simulator, step by step, with all that there is to see of each step."""

import base64
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.navigation.acting import NetworkPolicy
from gpf.navigation.policies import Policy, forked
from gpf.navigation.seeds import BLOCK, HELD_OUT
from gpf.plume.memory import NAMES
from gpf.plume.pixels import antennae, concentration_field, obstacle_map, wind_field
from gpf.plume.placement import move_to
from gpf.plume.scenario import ACTIONS, Scenario
from gpf.plume.state import state_of
from gpf.plume.tokens import LEVEL_TOKENS, OCTANT_TOKENS
from gpf.plume.world import RAW, World

CELLS = 128
"""Pixels of the concentration field's longer side."""
ARROWS = 12
"""Arrows along the longer side, where the wind differs from place to place."""
FAINTEST, STRONGEST = 1e-3, 1.0
"""Concentrations at the ends of the field's logarithmic scale."""
EVERY = 25
"""Steps between two copies of the state, from which a flight can go on again."""
PLUME = ("field", "second_field", "wind", "filaments")
"""What a frame has of the plume."""
_ONE = np.zeros(1, np.int64)


@dataclass
class Moment:
    """A flight at one step, as copies."""

    step: int
    world: dict[str, NDArray[Any]]
    policy: Policy
    proposed: int
    end: str | None


@dataclass
class Flight:
    """An episode of a policy in a world. It can go back to any step, and another way from there.

    The episode of a seed is that of `gpf evaluate` with the same number.
    """

    scenario: Scenario
    policy: Policy
    seed: int
    values: bool = False
    """Whether the outputs of the policy's network are values of actions rather than logits."""
    step: int = 0
    reached: int = 0
    """The last step that was flown."""
    end: str | None = None
    """How the episode ended: found, lost or timeout; None while it runs."""

    def __post_init__(self) -> None:
        """Begin the episode."""
        if not 0 <= self.seed < BLOCK:
            raise ValueError(f"seed must be from 0 to {BLOCK - 1}, got {self.seed}")
        self.world: World = World(1, self.scenario, 1)
        self.world.seed([HELD_OUT + self.seed])
        self.world.begin()
        self.policy.begin([HELD_OUT + self.seed], self.scenario)
        self._actions = np.zeros(1, np.int64)
        self._done: list[int] = []
        self._moments: list[Moment] = []
        self._decide()
        self._keep()

    def header(self) -> dict[str, Any]:
        """What does not change while the episode runs."""
        row = self.world.rows[0]
        solid = obstacle_map(self.world, 0)
        return {
            "seed": self.seed,
            "width": float(row["width"]),
            "height": float(row["height"]),
            "seconds": float(row["time_step"] * row["substeps"]),
            "max_steps": int(row["max_steps"]),
            "success_radius": float(row["success_radius"]),
            "whiff": self._whiff(),
            "actions": list(ACTIONS),
            "turns": [float(turn) for turn in row["turns"]],
            "tokens": [list(LEVEL_TOKENS), list(OCTANT_TOKENS)],
            "obstacles": ["".join("#" if cell else "." for cell in line) for line in solid],
            "field": list(self._shape(CELLS)),
            "wind": list(self._wind_shape()),
            "decoys": self._decoys(),
            "substances": int(row["substances"]),
            "inputs": self._input_names(),
            "recorded": bool(row["recording"] >= 0.0),
            "values": self.values,
        }

    def frame(self) -> dict[str, Any]:
        """What there is to see now."""
        world, lane = self.world, self.world.lanes[0]
        places, air = antennae(world, 0)
        raw = world.raw[0]
        seen = {
            "step": self.step,
            "agent": _rounded([lane["x"], lane["y"], lane["heading"]]),
            "tips": _rounded(places.ravel()),
            "sources": [_rounded(place) for place in self._sources()],
            "readings": _rounded(raw[:2]),
            "second": _rounded(raw[6:8]),
            "air": _rounded(air),
            "vane": _rounded([lane["vane_speed"], lane["vane_direction"]]),
            "tokens": world.tokens[0].tolist(),
            "whiff": bool(max(raw[:2]) > self._whiff()),
            "bump": bool(raw[RAW.index("bump")]),
            "did": self._done[self.step - 1] if self.step else None,
            "proposed": None if self.end else self._proposed,
            "reward": _rounded(world.rewards)[0],
            "distance": _rounded([lane["distance"]])[0],
            "end": self.end,
            **self._thoughts(),
        }
        return {**seen, **self._plume()}

    def fly(self, action: int | None = None) -> None:
        """One step, by an action or by what the policy does."""
        if self.end is not None:
            return
        chosen = self._proposed if action is None else action
        del self._done[self.step :]
        self._moments = [moment for moment in self._moments if moment.step <= self.step]
        self._advance(chosen)
        self.reached = self.step

    def seek(self, step: int) -> None:
        """Go to a step that was flown before."""
        if not 0 <= step <= self.reached:
            raise ValueError(f"step must be from 0 to {self.reached}, got {step}")
        if step == self.step:
            return
        moment = max((one for one in self._moments if one.step <= step), key=lambda one: one.step)
        for name, array in self._state().items():
            held = moment.world[name]
            if name == "filaments":
                array[:, :, : held.shape[2]] = held
            else:
                array[...] = held
        self.policy, self._proposed, self.end = forked(moment.policy, _ONE), moment.proposed, moment.end
        self.step = moment.step
        while self.step < step:
            self._advance(self._done[self.step])

    def move(self, options: Mapping[str, Any]) -> None:
        """Put the agent or the source elsewhere, and go on from there; see `gpf.plume.placement.move_to`."""
        if self.end is not None:
            raise ValueError("the episode is over; go back to an earlier step to move something")
        move_to(self.world, 0, options)
        del self._done[self.step :]
        self._moments = [moment for moment in self._moments if moment.step < self.step]
        self.reached = self.step
        self._keep()

    def _advance(self, action: int) -> None:
        self._actions[0] = action
        self.world.step(self._actions)
        if self.step == len(self._done):
            self._done.append(action)
        self.step += 1
        lane = self.world.lanes[0]
        if not lane["running"]:
            self.end = "found" if self.world.successes[0] else "lost" if lane["lost"] else "timeout"
        else:
            self._decide()
        if self.step % EVERY == 0 and all(moment.step != self.step for moment in self._moments):
            self._keep()

    def _decide(self) -> None:
        self.policy.act(self.world.raw, _ONE, self._actions)
        self._proposed = int(self._actions[0])

    def _keep(self) -> None:
        """Keep the state, to come back to it."""
        used = int(self.world.lanes["last"][0])
        state = {name: array.copy() for name, array in self._state().items() if name != "filaments"}
        state["filaments"] = self.world.filaments[:, :, :used].copy()
        self._moments.append(Moment(self.step, state, forked(self.policy, _ONE), self._proposed, self.end))

    def _state(self) -> dict[str, NDArray[Any]]:
        """All arrays of the world that a frame, or the next step, depends on."""
        return {**self.world.state(), "rewards": self.world.rewards}

    def _whiff(self) -> float:
        """The reading above which there is a whiff: as the policy has it, or else as the tokens have."""
        return float(getattr(self.policy, "whiff", 0.0) or self.world.rows[0]["level_edges"][0])

    def _sources(self) -> list[list[float]]:
        lane = self.world.lanes[0]
        others = np.stack([lane["others_x"], lane["others_y"]], axis=1)[: int(self.world.rows[0]["sources"]) - 1]
        return [[lane["source_x"], lane["source_y"]], *others.tolist()]

    def _decoys(self) -> list[list[float]]:
        lane, row = self.world.lanes[0], self.world.rows[0]
        others = np.stack([lane["others_x"], lane["others_y"]], axis=1)
        return [_rounded(place) for place in others[int(row["sources"]) - 1 : int(row["places"]) - 1]]

    def _input_names(self) -> list[str]:
        """Of the inputs that are shown; those of the paper are the tokens."""
        known = isinstance(self.policy, NetworkPolicy) and self.policy.observation == "memory"
        return [name.replace("_", " ") for name in NAMES] if known else []

    def _thoughts(self) -> dict[str, Any]:
        """What the policy's network makes of the observation; nothing of a policy without a network."""
        if not isinstance(self.policy, NetworkPolicy):
            return {}
        outputs = self.policy.outputs[0].astype(np.float64)
        logits = outputs[: len(ACTIONS)]
        thoughts: dict[str, Any] = {"inputs": _rounded(self.policy.inputs[0]) if self._input_names() else []}
        thoughts["state"] = _rounded(self.policy.states[0])
        if self.values:
            return {**thoughts, "scores": _rounded(logits), "value": _rounded([logits.max()])[0]}
        shares = np.exp(logits - logits.max())
        value = _rounded(outputs[len(ACTIONS) :])
        return {**thoughts, "scores": _rounded(shares / shares.sum()), "value": value[0] if value else None}

    def _plume(self) -> dict[str, Any]:
        """Filaments, concentrations and wind, as numbers in base64."""
        world, row = self.world, self.world.rows[0]
        shape = self._shape(CELLS)
        found: dict[str, Any] = {"field": _packed(_levels(concentration_field(world, 0, *shape)))}
        if row["substances"] > 1.0:
            found["second_field"] = _packed(_levels(concentration_field(world, 0, *shape, substance=1)))
        wind = 1000.0 * wind_field(world, 0, *self._wind_shape())  # mm/s
        found["wind"] = _packed(np.clip(wind, -32767, 32767).astype("<i2"))
        state = state_of(world, 0)
        places = state.filament_positions / (float(row["width"]), float(row["height"])) * 65535.0
        radii = np.minimum(1000.0 * state.filament_radii, 65535.0)  # mm
        packed = np.stack([*places.T, radii]).clip(0.0, 65535.0).astype("<u2")
        return {**found, "filaments": _packed(packed)}

    def _wind_shape(self) -> tuple[int, int]:
        """Rows and columns of the arrows; one, where the wind is the same everywhere."""
        row = self.world.rows[0]
        same = row["grid_nodes"] == 0.0 and row["terrain"] < 0.0 and row["recording"] < 0.0
        return (1, 1) if same else self._shape(ARROWS)

    def _shape(self, longest: int) -> tuple[int, int]:
        """Rows and columns of a grid over the domain."""
        width, height = float(self.world.rows["width"][0]), float(self.world.rows["height"][0])
        scale = longest / max(width, height)
        return max(1, round(height * scale)), max(1, round(width * scale))


def path_of(scenario: Scenario, policy: Policy, seed: int) -> dict[str, Any]:
    """The path of a policy in the episode of a seed, and how it ended."""
    flight = Flight(scenario, policy, seed)
    places = [[float(flight.world.lanes["x"][0]), float(flight.world.lanes["y"][0])]]
    while flight.end is None:
        flight.fly()
        places.append([float(flight.world.lanes["x"][0]), float(flight.world.lanes["y"][0])])
    return {"path": [_rounded(place) for place in places], "end": flight.end, "steps": flight.step}


def _levels(concentration: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Concentrations on the logarithmic scale, 0 to 255."""
    level = np.log(np.clip(concentration, FAINTEST, STRONGEST) / FAINTEST) / math.log(STRONGEST / FAINTEST)
    return np.round(255.0 * level).astype(np.uint8)


def _packed(numbers: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers).tobytes()).decode()


def _rounded(numbers: Any) -> list[float]:
    """Numbers with four significant digits: less to send."""
    return [float(f"{float(number):.4g}") for number in numbers]

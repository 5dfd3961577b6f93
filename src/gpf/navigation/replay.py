"""Replays episodes step by step: position, readings, and the outputs of the network."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpf.navigation.acting import NetworkPolicy
from gpf.plume.pixels import concentration_field
from gpf.plume.scenario import ACTIONS, Scenario
from gpf.plume.world import RAW, World

SINCE_WHIFF = {"during a whiff": 0, "1 to 10 steps after one": 10, "11 to 50 steps after one": 50}
"""Groups of steps by how long ago the last whiff was: their greatest number of steps."""
LATER, NEVER = "later", "before the first whiff"


@dataclass(frozen=True, eq=False)
class Episode:
    """What happened in one episode, step by step; positions are in the domain, m, and angles in rad."""

    positions: NDArray[np.float64]
    """Of the agent, shape (steps + 1, 2)."""
    source: tuple[float, float]
    observations: NDArray[np.float32]
    """Observations before each action: two readings, wind speed and direction, heading; shape (steps, 5)."""
    headings: NDArray[np.float64]
    """In which it went, shape (steps,)."""
    actions: NDArray[np.int64]
    """Actions, shape (steps,)."""
    outputs: NDArray[np.float32]
    """Of its network, shape (steps, outputs)."""
    whiffs: NDArray[np.bool_]
    """Whether a reading was above its whiff threshold, shape (steps,)."""
    success: bool
    field: NDArray[np.float64]
    """The plume's concentration at the end, on a grid over the domain, top row first."""
    scenario: Scenario

    @property
    def steps(self) -> int:
        """Length of the episode."""
        return len(self.actions)

    @property
    def distances(self) -> NDArray[np.float64]:
        """From the source, before each action, m."""
        out: NDArray[np.float64] = np.hypot(*(self.positions[:-1] - self.source).T)
        return out

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Of each action, by the softmax of the first outputs, shape (steps, actions)."""
        logits = self.outputs[:, : len(ACTIONS)].astype(np.float64)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        out: NDArray[np.float64] = weights / weights.sum(axis=1, keepdims=True)
        return out

    @property
    def value(self) -> NDArray[np.float32] | None:
        """Values of the states, shape (steps,); None for a policy that does not estimate them."""
        return self.outputs[:, -1] if self.outputs.shape[1] > len(ACTIONS) else None

    @property
    def best_value(self) -> NDArray[np.float32]:
        """The value of the best action, where outputs are values of actions, shape (steps,)."""
        out: NDArray[np.float32] = self.outputs.max(axis=1)
        return out

    @property
    def from_upwind(self) -> NDArray[np.float64]:
        """Angle between where it went and where the wind came from, 0 to 180 degrees, shape (steps,)."""
        wind = self.observations[:, RAW.index("wind_direction")]
        turned = np.cos(self.headings - wind - np.pi)
        return np.degrees(np.arccos(np.clip(turned, -1.0, 1.0)))

    @property
    def since_whiff(self) -> NDArray[np.float64]:
        """Steps since the last whiff, infinite before the first, shape (steps,)."""
        steps = np.arange(self.steps, dtype=np.float64)
        out: NDArray[np.float64] = steps - np.maximum.accumulate(np.where(self.whiffs, steps, -np.inf))
        return out


@dataclass(frozen=True)
class Habit:
    """Actions of a navigator at a certain time since its last whiff."""

    when: str
    share: float
    """Of all steps."""
    from_upwind: float
    """Mean angle between where it goes and where the wind comes from, degrees."""
    actions: tuple[float, ...]
    """How often it takes each action, as shares."""


def replay(policy: NetworkPolicy, scenario: Scenario, seeds: Sequence[int], cells: int = 160) -> list[Episode]:
    """Play the episodes of some seeds, as an evaluation would; `cells` is the length of the field's longer side."""
    world = World(len(seeds), scenario, 1)
    world.seed(seeds)
    world.begin()
    policy.begin(seeds, scenario)
    lanes, actions = world.lanes, np.zeros(len(seeds), np.int64)
    places, seen, headings, done, outputs = [_positions(world)], [], [], [], []
    successes = np.zeros(len(seeds), np.bool_)
    running = np.arange(len(seeds))
    while len(running):
        seen.append(world.raw.copy())
        policy.act(world.raw, running, actions)
        done.append(actions.copy())
        outputs.append(policy.outputs.copy())
        world.step(actions)
        places.append(_positions(world))
        headings.append(lanes["heading"].copy())
        successes |= world.successes
        running = np.flatnonzero(lanes["running"])
    scale = cells / max(scenario.width, scenario.height)
    rows, columns = (max(1, round(extent * scale)) for extent in (scenario.height, scenario.width))
    found = []
    for lane, steps in enumerate(lanes["step"].tolist()):
        observed = np.stack(seen[:steps])[:, lane]
        found.append(
            Episode(
                positions=np.stack(places[: steps + 1])[:, lane],
                source=(float(lanes["source_x"][lane]), float(lanes["source_y"][lane])),
                observations=observed,
                headings=np.stack(headings[:steps])[:, lane],
                actions=np.stack(done[:steps])[:, lane],
                outputs=np.stack(outputs[:steps])[:, lane],
                whiffs=observed[:, :2].max(axis=1) > policy.whiff,
                success=bool(successes[lane]),
                field=concentration_field(world, lane, rows, columns),
                scenario=scenario,
            )
        )
    return found


def habits(episodes: Sequence[Episode]) -> list[Habit]:
    """Actions of a navigator by the time since its last whiff; groups in which it never was are left out."""
    since = np.concatenate([episode.since_whiff for episode in episodes])
    angles = np.concatenate([episode.from_upwind for episode in episodes])
    actions = np.concatenate([episode.actions for episode in episodes])
    found, below = [], -1.0
    for when, longest in {**SINCE_WHIFF, LATER: np.finfo(float).max, NEVER: np.inf}.items():
        group = (since > below) & (since <= longest)
        below = longest
        if group.any():
            counts = np.bincount(actions[group], minlength=len(ACTIONS))
            shares = tuple((counts / counts.sum()).tolist())
            found.append(Habit(when, float(group.mean()), float(angles[group].mean()), shares))
    return found


def _positions(world: World) -> NDArray[np.float64]:
    return np.stack([world.lanes["x"], world.lanes["y"]], axis=1)

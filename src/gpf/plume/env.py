"""The plume world as a Gymnasium environment."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from gpf.plume.inputs import shown, whole_number
from gpf.plume.memory import Memory
from gpf.plume.observations import observation_space
from gpf.plume.placement import PLACES, checked_options, starts_of
from gpf.plume.rewards import TERMS
from gpf.plume.scenario import ACTIONS, Scenario
from gpf.plume.state import State, state_of
from gpf.plume.tokens import OBSERVATION_SIZES, ONEHOT_SIZE
from gpf.plume.world import World

_FIRST_OF_STREAM = np.cumsum((0, *OBSERVATION_SIZES[:-1]))


class PlumeEnv(gymnasium.Env[NDArray[Any], np.int64]):
    """Find the source of a smell in a turbulent plume.

    ## World
    A source in a 20 x 20 m domain releases filaments of odour that drift with a gusting wind and spread. The agent
    walks in it with two antennae and a wind vane. Every number of it is a field of `Scenario`.

    ## Actions
    `Discrete(6)`: forward, left 15, right 15, around, cast left (30), cast right (30); each turns by that many degrees
    and then moves 5 cm forward.

    ## Observations
    - `tokens` (default): `MultiDiscrete([7, 7, 8])`: levels of the left and right reading, and the octant that the wind
      comes from as the agent sees it.
    - `onehot`: the same three as 22 zeros and ones.
    - `raw`: left and right reading, wind speed (m/s), direction that the wind blows to, heading (rad, in [-pi, pi),
      counter-clockwise from +x), whether a wall stopped the agent, left and right reading of the second gas channel.
    - `memory`: 16 numbers made of the raw observations so far, see `gpf.plume.memory`.

    ## Reward
    The sum of five terms: time, success, whiff, blank and shaping; `info["reward_terms"]` has each.

    ## Start
    The source is placed in the upwind half, the agent 3 to 10 m downwind of it, facing roughly upwind. The source
    starts to emit when the episode starts. `reset(options=...)` places any of these instead:

    - `position`: where the agent starts, [x, y] in m, within the domain.
    - `source`: where the source is, [x, y] in m, within the domain. The agent starts downwind of it all the same,
      unless it is placed too.
    - `heading`: where the agent faces, in rad, counter-clockwise from +x, as in the raw observation.

    Options hold for one episode. They change no random draw: with the same seed, wind, emission and noise are the same
    wherever source and agent are placed.

    ## End
    Terminated when the source is found, within 0.5 m. Truncated after 1,200 steps; in the preset `reference` running
    out of time also counts as terminated, as in the authors' code. `info["success"]` says whether the source was found.

    Args:
        scenario: A preset (`paper`, `turbulent` and others), a path to a JSON file, a dictionary of fields, or a
            `Scenario`.
        observation: `tokens`, `onehot`, `raw` or `memory`.
        render_mode: None, `rgb_array`, or `human` for a window.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "rgb_array"], "render_fps": 10}

    def __init__(
        self,
        scenario: str | dict[str, Any] | Scenario = "paper",
        observation: str = "tokens",
        render_mode: str | None = None,
    ) -> None:
        check_render_mode(render_mode, self.metadata["render_modes"])
        self.world: World = World(1, Scenario.of(scenario), threads=1)
        self.observation = observation
        self.render_mode = render_mode
        self.observation_space: spaces.Space[NDArray[Any]] = observation_space(observation, self.world)
        self.action_space: spaces.Discrete = spaces.Discrete(len(ACTIONS))
        self._actions = np.zeros(1, np.int64)
        self._memory = Memory(self.world.rows)
        self._running = False
        self._path: list[tuple[float, float]] = []
        self._window: Any = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin an episode. With a seed, it and all that follow without one are determined by it.

        Args:
            seed: A whole number of at least 0; None to continue the current random stream.
            options: Any of `position` ([x, y], m), `source` ([x, y], m) and `heading` (rad, counter-clockwise from +x).
        """
        starts = starts_of(checked_options(options, tuple(PLACES)), self.world)
        seed = None if seed is None else checked_seed(seed)
        super().reset(seed=seed)
        if seed is not None:
            self.world.seed([seed])
        elif not self.world.streams.any():
            self.world.seed([int(self.np_random.integers(2**63))])
        self.world.begin(starts=starts)
        self._memory.forget()
        self._running = True
        self._path.clear()
        self._show()
        return self._observation(), self._info()

    def step(self, action: int | np.integer) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Turn, move, and read the antennae."""
        plain = isinstance(action, int | np.integer) and 0 <= action < len(ACTIONS)  # `contains` is slow
        if not plain and not self.action_space.contains(action):
            raise ValueError(f"action must be a whole number from 0 to {len(ACTIONS) - 1}, got {shown(action)}")
        if not self._running:
            raise gymnasium.error.ResetNeeded("no episode is running; call reset() first")
        self._actions[0] = action
        self.world.step(self._actions)
        self._show()
        terminated, truncated = bool(self.world.terminations[0]), bool(self.world.truncations[0])
        self._running = not (terminated or truncated)
        return self._observation(), float(self.world.rewards[0]), terminated, truncated, self._info()

    def state(self) -> State:
        """Where everything is: source, wind, filaments. **Privileged**, not for the agent; see `State`."""
        if not self.world.streams.any():
            raise gymnasium.error.ResetNeeded("there is no state before the first episode; call reset() first")
        return state_of(self.world, 0)

    def render(self) -> NDArray[np.uint8] | None:
        """The world as an image of shape (height, width, 3), in mode `rgb_array`."""
        if self.render_mode != "rgb_array":
            return None
        from gpf.plume.render import draw

        return draw(self.world, 0, self._path)

    def close(self) -> None:
        """Close the window, if it is open."""
        if self._window is not None:
            self._window.close()
            self._window = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_window": None}  # a copy opens a window of its own

    def _observation(self) -> NDArray[Any]:
        if self.observation == "tokens":
            return self.world.tokens[0].copy()
        if self.observation == "raw":
            return self.world.raw[0].copy()
        if self.observation == "memory":
            return self._memory.update(self.world.raw)[0].copy()
        vector = np.zeros(ONEHOT_SIZE, np.float32)
        vector[self.world.tokens[0] + _FIRST_OF_STREAM] = 1.0
        return vector

    def _info(self) -> dict[str, Any]:
        return {
            "success": bool(self.world.successes[0]),
            "distance": float(self.world.lanes["distance"][0]),
            "reward_terms": dict(zip(TERMS, self.world.terms[0].tolist(), strict=True)),
        }

    def _show(self) -> None:
        """Keep the path for rendering, and bring the window up to date."""
        if self.render_mode is None:
            return
        self._path.append((float(self.world.lanes[0]["x"]), float(self.world.lanes[0]["y"])))
        if self.render_mode == "human":
            from gpf.plume.render import Window, draw

            if self._window is None:
                self._window = Window(self.metadata["render_fps"])
            if self._window.visible:
                self._window.show(draw(self.world, 0, self._path))


def checked_seed(seed: Any) -> int:
    """A seed as a plain number, or an error that says what is accepted."""
    return whole_number("seed", seed, 0)


def check_render_mode(mode: str | None, modes: list[str]) -> None:
    """Refuse a render mode that is not offered."""
    if mode is not None and mode not in modes:
        raise ValueError(f"render_mode must be None or one of {', '.join(modes)}, got {shown(mode)}")

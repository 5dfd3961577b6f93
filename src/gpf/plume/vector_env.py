"""Many plume worlds as one Gymnasium vector environment, stepped by one kernel call on all cores."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from gpf.plume.catalogue import draws
from gpf.plume.env import PlumeEnv, check_render_mode, checked_seed
from gpf.plume.inputs import shown, unknown, whole_number
from gpf.plume.memory import Memory
from gpf.plume.observations import observation_space
from gpf.plume.placement import PLACES, checked_options, starts_of
from gpf.plume.rewards import TERMS
from gpf.plume.scenario import ACTIONS, Scenario
from gpf.plume.state import State, state_of
from gpf.plume.tokens import ONEHOT_SIZE, onehot
from gpf.plume.world import World

Infos = dict[str, Any]


class PlumeVectorEnv(VectorEnv[NDArray[Any], NDArray[np.int64], NDArray[Any]]):
    """`PlumeEnv` many times over; see there for observations, actions, rewards and ends.

    Lane i of an environment that is reset with seed s is, bit for bit, the single environment reset with seed s + i,
    through all following episodes, for any number of lanes or threads. `reset` takes the same options, for all
    lanes or for each.

    **The arrays that `reset` and `step` return are reused by the next call.** Copy what you keep.

    Args:
        num_envs: Number of lanes.
        scenario: As for `PlumeEnv`, or a sequence with one for each lane.
        observation: `tokens`, `onehot`, `raw` or `memory`.
        autoreset_mode: `NextStep` (default), `SameStep` or `Disabled`, as Gymnasium defines them. With `Disabled`,
            finished lanes restart by `reset(options={"reset_mask": mask})`.
        render_mode: None or `rgb_array`.
        threads: Threads to step with; None for one per core where there are lanes enough.
        buffers: Arrays of yours to write to, in place of the environment's own: any of `observations`, `rewards`,
            `terminations`, `truncations`.
    """

    metadata: dict[str, Any] = {
        "render_modes": ["rgb_array"],
        "render_fps": PlumeEnv.metadata["render_fps"],
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        num_envs: int = 1,
        scenario: str | dict[str, Any] | Scenario | Sequence[Scenario] = "paper",
        observation: str = "tokens",
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        threads: int | None = None,
        buffers: dict[str, NDArray[Any]] | None = None,
    ) -> None:
        check_render_mode(render_mode, self.metadata["render_modes"])
        try:
            self._mode = AutoresetMode(autoreset_mode)
        except ValueError:
            accepted = ", ".join(mode.value for mode in AutoresetMode)
            raise ValueError(f"autoreset_mode must be one of {accepted}, got {shown(autoreset_mode)}") from None
        self.metadata = {**self.metadata, "autoreset_mode": self._mode}
        self.world: World = World(num_envs, scenario, threads)
        self.num_envs: int = self.world.count
        self.observation = observation
        self.render_mode = render_mode
        self.single_observation_space: spaces.Space[Any] = observation_space(observation, self.world)
        self.observation_space: spaces.Space[Any] = batch_space(self.single_observation_space, self.num_envs)
        self.single_action_space: spaces.Discrete = spaces.Discrete(len(ACTIONS))
        self.action_space: spaces.Space[Any] = batch_space(self.single_action_space, self.num_envs)
        self._onehot = np.zeros((self.num_envs, ONEHOT_SIZE), np.float32)
        self._memory = Memory(self.world.rows)
        self._begun = False
        self._everywhere = np.ones(self.num_envs, np.bool_)
        self._everywhere.setflags(write=False)  # it is handed out in infos
        self._actions = np.zeros(self.num_envs, np.int64)
        self._paths: list[list[tuple[float, float]]] = [[] for _ in range(self.num_envs)]
        self._adopt(buffers or {})

    def _adopt(self, buffers: dict[str, NDArray[Any]]) -> None:
        """Write to the caller's arrays from now on; refuse those that do not fit."""
        names = {
            "observations": {"tokens": "tokens", "raw": "raw", "onehot": "_onehot", "memory": "features"}[
                self.observation
            ],
            "rewards": "rewards",
            "terminations": "terminations",
            "truncations": "truncations",
        }
        for name, array in buffers.items():
            if name not in names:
                raise ValueError(unknown("buffer", name, names))
            owner: Any = {"_onehot": self, "features": self._memory}.get(names[name], self.world)
            own = getattr(owner, names[name])
            fits = isinstance(array, np.ndarray) and array.shape == own.shape and array.dtype == own.dtype
            if not fits or not (array.flags.c_contiguous and array.flags.writeable):
                raise ValueError(
                    f"buffer {name!r} must be a contiguous, writable array of shape {own.shape} and type {own.dtype},"
                    f" got {_described(array)}"
                )
            setattr(owner, names[name], array)

    def reset(
        self, *, seed: int | Sequence[int] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], Infos]:
        """Begin an episode in every lane, or in those of `options["reset_mask"]`.

        Args:
            seed: Lane i is seeded with `seed + i`, or with the i-th of several seeds; without a seed, streams continue.
            options: `reset_mask`, a boolean array of shape (n,); and as for `PlumeEnv` `position`, `source` (m) and
                `heading` (rad), each one for all lanes or one per lane, of shape (n, 2), (n, 2) and (n,). What these
                say of lanes outside the mask does not matter. Episodes started by autoreset ignore these options.
        """
        given = checked_options(options, ("reset_mask", *PLACES))
        mask = self._checked_mask(given.get("reset_mask", self._everywhere))
        indices = np.flatnonzero(mask)
        starts = starts_of(given, self.world, indices)
        seeds = None if seed is None else self._checked_seeds(seed)
        super().reset(seed=None if seeds is None else seeds[0])
        if not self._begun:
            self.world.seed(self.np_random.integers(2**63, size=self.num_envs).tolist())
        if seeds is not None:
            self.world.seed([seeds[i] for i in indices], indices)
        self.world.begin(indices, starts)
        self._memory.forget(indices)
        self._begun = True
        if self.render_mode is not None:
            self._keep_paths(indices)
        return self._observe(indices), self._infos(mask)

    def step(self, actions: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], Infos]:
        """Step every lane; what happens to finished ones is up to the autoreset mode."""
        actions = self._checked_actions(actions)
        world = self.world
        if not self._begun:
            raise gymnasium.error.ResetNeeded("no episode is running; call reset() first")
        if self._mode is AutoresetMode.DISABLED and not world.lanes["running"].all():
            lane = int(np.argmin(world.lanes["running"]))
            raise gymnasium.error.ResetNeeded(f"the episode of lane {lane} is over; reset it by reset_mask first")
        world.step(actions, restart=True)
        if self.observation == "memory":
            self._memory.forget(np.flatnonzero(world.lanes["step"] == 0))
        observations = self._observe()
        ends = self._restart(observations) if self._mode is AutoresetMode.SAME_STEP else {}
        if self.render_mode is not None:
            self._keep_paths(np.flatnonzero(world.lanes["step"] == 0))
        infos = {**ends, **self._infos(self._everywhere)}
        return observations, world.rewards, world.terminations, world.truncations, infos

    def set_scenario(self, scenario: str | dict[str, Any] | Scenario, lanes: NDArray[np.int64] | None = None) -> None:
        """Let lanes (all, or those of these indices) live in another scenario from now on."""
        new = Scenario.of(scenario)
        rows = self.world.all_rows()
        strongest = float(max(rows["sensor_saturation"]))
        farthest = float(max(rows["stride"] * rows["max_steps"]))
        for one in draws(new):
            if one.sensor_saturation > strongest:
                raise ValueError(
                    f"sensor_saturation must be at most {strongest:g}, on which the observation space was built,"
                    f" got {one.sensor_saturation:g}"
                )
            walk = one.speed * one.time_step * one.max_steps
            if self.observation == "memory" and walk > farthest * (1 + 1e-9):
                raise ValueError(
                    f"max_steps must allow a walk of at most {farthest:g} m, on which the observation space was built,"
                    f" got {one.max_steps}, which allows {walk:g} m"
                )
        self.world.set_scenario(new, lanes)

    def state(self, lane: int) -> State:
        """Where everything is in a lane: source, wind, filaments. **Privileged**, not for the agent; see `State`."""
        if not self._begun:
            raise gymnasium.error.ResetNeeded("there is no state before the first episode; call reset() first")
        return state_of(self.world, whole_number("lane", lane, 0, self.num_envs - 1))

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """An image of every lane, in mode `rgb_array`."""
        if self.render_mode is None:
            return None
        from gpf.plume.render import draw

        return tuple(draw(self.world, i, self._paths[i]) for i in range(self.num_envs))

    def _observe(self, begun: NDArray[np.int64] | None = None) -> NDArray[Any]:
        """The observations of all lanes; memory records those that have `begun`, or all."""
        if self.observation == "onehot":
            onehot(self.world.tokens, self._onehot)
            return self._onehot
        if self.observation == "memory":
            return self._memory.update(self.world.raw, begun)
        return self.world.tokens if self.observation == "tokens" else self.world.raw

    def _infos(self, mask: NDArray[np.bool_]) -> Infos:
        """Success, distance and reward terms of all lanes; the masks say in which lanes they are new."""
        terms = {name: self.world.terms[:, k] for k, name in enumerate(TERMS)}
        return {
            "success": self.world.successes,
            "_success": mask,
            "distance": self.world.lanes["distance"],
            "_distance": mask,
            "reward_terms": {**terms, **{f"_{name}": mask for name in TERMS}},
            "_reward_terms": mask,
        }

    def _restart(self, observations: NDArray[Any]) -> Infos:
        """Begin an episode in the lanes that have just finished one; returns how that one ended, as copies."""
        world = self.world
        mask = world.terminations | world.truncations
        if not mask.any():
            return {}
        finished = np.flatnonzero(mask)
        last = np.full(self.num_envs, None, dtype=object)
        for i in finished:
            last[i] = observations[i].copy()
        info = _where(mask, self._infos(mask))
        outcome = [array[finished] for array in (world.rewards, world.terminations, world.truncations)]
        world.begin(finished)
        self._memory.forget(finished)
        self._observe(finished)  # into the same array
        world.rewards[finished], world.terminations[finished], world.truncations[finished] = outcome
        return {"final_obs": last, "_final_obs": mask, "final_info": info, "_final_info": mask}

    def _keep_paths(self, begun: NDArray[np.int64]) -> None:
        """Keep every lane's path for rendering; those that have just begun restart theirs."""
        for i in begun:
            self._paths[i].clear()
        for path, lane in zip(self._paths, self.world.lanes, strict=True):
            path.append((float(lane["x"]), float(lane["y"])))

    def _checked_actions(self, actions: Any) -> NDArray[np.int64]:
        array = np.asarray(actions)
        if array.shape != (self.num_envs,):
            raise ValueError(f"actions must have shape ({self.num_envs},), got {array.shape}")
        if array.dtype.kind not in "iu":
            raise ValueError(f"actions must be whole numbers, got type {array.dtype}")
        if array.min() < 0 or array.max() >= len(ACTIONS):
            lane = int(np.argmax((array < 0) | (array >= len(ACTIONS))))
            raise ValueError(
                f"actions must be whole numbers from 0 to {len(ACTIONS) - 1}, got {array[lane]} in lane {lane}"
            )
        self._actions[:] = array
        return self._actions

    def _checked_mask(self, mask: Any) -> NDArray[np.bool_]:
        fits = isinstance(mask, np.ndarray) and mask.shape == (self.num_envs,) and mask.dtype == np.bool_
        if not fits or not mask.any():
            raise ValueError(
                f"reset_mask must be a boolean array of shape ({self.num_envs},) with at least one True,"
                f" got {shown(mask)}"
            )
        return mask.copy()

    def _checked_seeds(self, seed: Any) -> list[int]:
        """One seed per lane."""
        several = isinstance(seed, Sequence | np.ndarray) and not isinstance(seed, str)
        if several and len(seed) != self.num_envs:
            raise ValueError(f"seed must be one seed or one per lane ({self.num_envs}), got {len(seed)}")
        if several:
            return [checked_seed(one) for one in seed]
        first = checked_seed(seed)
        return [first + i for i in range(self.num_envs)]


def _described(array: Any) -> str:
    """The error about a value that should have been another array."""
    return f"shape {array.shape} and type {array.dtype}" if isinstance(array, np.ndarray) else shown(array)


def _where(mask: NDArray[np.bool_], infos: Infos) -> Infos:
    """Copies of the arrays in infos, with zeros outside the mask."""
    return {
        name: _where(mask, value) if isinstance(value, dict) else np.where(mask, value, np.zeros_like(value))
        for name, value in infos.items()
    }

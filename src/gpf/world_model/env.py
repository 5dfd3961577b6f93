"""The world model as a Gymnasium environment: an imagined plume."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from gpf.navigation.tokenized import SMELL, Reckoning
from gpf.plume.env import checked_seed
from gpf.plume.memory import Memory, memory_bounds
from gpf.plume.row import row_of
from gpf.plume.scenario import ACTIONS
from gpf.plume.tokens import OBSERVATION_SIZES, ONEHOT_SIZE, STATES, onehot
from gpf.world_model.imagination import Imagination, beginnings
from gpf.world_model.sequences import observation_tokens
from gpf.world_model.trained import TrainedWorld, load_world

OBSERVATIONS = ("tokens", "onehot", "memory")

TIME, SUCCESS = -0.02, 10.0
"""Cost of a step and reward of the source, as in the reward `search`."""


class ImaginedPlumeVectorEnv(VectorEnv[NDArray[Any], NDArray[np.int64], NDArray[Any]]):
    """Many imagined plumes with the observations, actions and ends of `gpf/Plume-v0`, but without the simulator.

    The model does not know where the source is. The data say how often each observation was the last one of a
    successful episode, and an imagined episode ends there with the same probability. The reward is -0.02 per step, 10
    for the source, and `upwind` for every metre upwind in steps with a smell. Without that condition, an agent that
    flies past the source, about which the model knows nothing, would be rewarded forever.

    A lane that has ended restarts in the next step, by a RESET token in the model's sequence.

    **The arrays that `reset` and `step` return are reused by the next call.** Copy what you keep.

    Args:
        num_envs: Number of lanes.
        world: The folder of a run of `gpf train world`, or a `TrainedWorld`.
        observation: `tokens`, `onehot`, or `memory`: the features of `gpf.plume.memory`, as far as tokens allow.
        max_steps: Steps after which an episode is truncated; None for the limit of the data's world.
        upwind: Reward per metre upwind, in a step with a smell.
        render_mode: Must be None; there is nothing to render.
    """

    metadata: dict[str, Any] = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self,
        num_envs: int = 1,
        world: "str | Path | TrainedWorld" = "runs/world",
        observation: str = "tokens",
        max_steps: int | None = None,
        upwind: float = 1.0,
        render_mode: str | None = None,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be a whole number of at least 1, got {num_envs!r}")
        if observation not in OBSERVATIONS:
            raise ValueError(f"observation must be one of {', '.join(OBSERVATIONS)}, got {observation!r}")
        self.world: TrainedWorld = world if isinstance(world, TrainedWorld) else load_world(Path(world))
        scenario = self.world.scenario
        self.num_envs: int = num_envs
        self.observation = observation
        self.render_mode: str | None = render_mode
        if max_steps is not None and max_steps < 1:
            raise ValueError(f"max_steps must be at least 1 or None, got {max_steps}")
        self.max_steps: int = max_steps or scenario.max_steps
        rows = np.array([row_of(scenario)])
        if observation == "tokens":
            self.single_observation_space: spaces.Space[Any] = spaces.MultiDiscrete(list(OBSERVATION_SIZES))
        elif observation == "onehot":
            self.single_observation_space = spaces.Box(0.0, 1.0, (ONEHOT_SIZE,), np.float32)
        else:
            self.single_observation_space = spaces.Box(*memory_bounds(rows), dtype=np.float32)
        self.observation_space: spaces.Space[Any] = batch_space(self.single_observation_space, num_envs)
        self.single_action_space: spaces.Discrete = spaces.Discrete(len(ACTIONS))
        self.action_space: spaces.Space[Any] = batch_space(self.single_action_space, num_envs)
        smells = observation_tokens(np.arange(STATES))[:, :2].max(axis=1) >= SMELL
        self._headway = np.where(smells, upwind * self.world.headway, 0.0)
        self._seen = Reckoning(num_envs, scenario, SMELL)
        self._memory = Memory(np.repeat(rows, num_envs))
        self._onehot = np.zeros((num_envs, ONEHOT_SIZE), np.float32)
        self._everyone = np.arange(num_envs)
        self._imagination: Imagination | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin an episode in every lane; with a seed, everything that follows is determined by it."""
        if options:
            raise ValueError(f"options must be None or empty, got {options}")
        seed = None if seed is None else checked_seed(seed)
        super().reset(seed=seed)
        if seed is not None or self._imagination is None:
            self._generator = torch.Generator().manual_seed(int(self.np_random.integers(2**62)))
        self._imagination = Imagination(
            self.world.model, beginnings(self.num_envs), generator=self._generator, coupling=self.world.coupling
        )
        self._ages = np.zeros(self.num_envs, np.int64)
        self.ended: NDArray[np.bool_] = np.zeros(self.num_envs, np.bool_)
        codes = self._imagination.first().numpy()
        self._seen.tokens[:] = observation_tokens(codes)
        self._memory.forget()
        return self._observe(), {}

    def step(
        self, actions: NDArray[np.int64]
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Imagine a step in every lane; lanes that have ended restart instead, whatever their action."""
        if self._imagination is None:
            raise gymnasium.error.ResetNeeded("step: no episode is running; call reset() first")
        actions = np.asarray(actions, np.int64)
        if actions.shape != (self.num_envs,) or actions.min() < 0 or actions.max() >= len(ACTIONS):
            raise ValueError(
                f"actions must be {self.num_envs} whole numbers from 0 to {len(ACTIONS) - 1}, got {actions}"
            )
        begun = self.ended
        self._seen.turn(self._everyone, actions)
        codes = self._imagination.step(torch.from_numpy(actions), torch.from_numpy(begun)).numpy()
        self._seen.tokens[:] = observation_tokens(codes)
        self._memory.forget(np.flatnonzero(begun))
        self._ages = np.where(begun, 0, self._ages + 1)
        chance = torch.rand(self.num_envs, generator=self._generator).numpy()
        found = (chance < self.world.found[codes]) & ~begun
        late = (self._ages >= self.max_steps) & ~found & ~begun
        headway = self._headway[codes]
        rewards = np.where(begun, 0.0, TIME + headway + SUCCESS * found)
        self.ended = found | late
        return self._observe(), rewards, found, late, {"success": found, "_success": ~begun}

    def _observe(self) -> NDArray[Any]:
        if self.observation == "tokens":
            return self._seen.tokens
        if self.observation == "onehot":
            onehot(self._seen.tokens, self._onehot)
            return self._onehot
        self._seen.update(self._everyone)
        return self._memory.update(self._seen.raw)


class ImaginedPlumeEnv(gymnasium.Env[NDArray[Any], np.int64]):
    """One imagined plume; see `ImaginedPlumeVectorEnv` for what it is and what it takes."""

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, render_mode: str | None = None, **options: Any) -> None:
        self._lanes = ImaginedPlumeVectorEnv(1, **options)
        self.render_mode = render_mode
        self.observation_space: spaces.Space[NDArray[Any]] = self._lanes.single_observation_space
        self.action_space: spaces.Discrete = self._lanes.single_action_space
        self._running = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin an episode; with a seed, it and all that follow without one are determined by it."""
        super().reset(seed=seed)
        observations, _ = self._lanes.reset(seed=seed, options=options)
        self._running = True
        return observations[0].copy(), {"success": False}

    def step(self, action: int | np.integer) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Imagine a step."""
        if not self.action_space.contains(action):
            raise ValueError(f"action must be a whole number from 0 to {len(ACTIONS) - 1}, got {action!r}")
        if not self._running:
            raise gymnasium.error.ResetNeeded("step: no episode is running; call reset() first")
        seen, rewards, found, late, _ = self._lanes.step(np.array([action]))
        self._running = not (found[0] or late[0])
        return seen[0].copy(), float(rewards[0]), bool(found[0]), bool(late[0]), {"success": bool(found[0])}

"""Trains a navigator in imagination only: the same PPO, in lanes that the world model generates."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from gpf.navigation.flat import FlatNetwork
from gpf.navigation.policy_gradient import PolicyGradientLearner, Settings
from gpf.navigation.rollouts import Episodes
from gpf.network import MLP
from gpf.plume.memory import MEMORY_SIZE
from gpf.plume.scenario import ACTIONS
from gpf.world_model.env import ImaginedPlumeVectorEnv
from gpf.world_model.trained import TrainedWorld


class ImaginedRollouts:
    """Imagined lanes with the interface of `gpf.navigation.rollouts.Rollouts`; see there for the arrays."""

    def __init__(self, env: ImaginedPlumeVectorEnv, model: MLP, horizon: int, seed: int) -> None:
        self.env = env
        self.model = model
        self._generator = torch.Generator().manual_seed(seed)
        count, outputs = env.num_envs, len(ACTIONS) + 1
        self.inputs: NDArray[np.float32] = np.zeros((horizon + 1, count, MEMORY_SIZE), np.float32)
        self.outputs: NDArray[np.float32] = np.zeros((horizon + 1, count, outputs), np.float32)
        self.privileged: NDArray[np.float32] = np.zeros((horizon + 1, count, 0), np.float32)
        self.actions: NDArray[np.int64] = np.zeros((horizon, count), np.int64)
        self.rewards: NDArray[np.float32] = np.zeros((horizon, count), np.float32)
        self.ends: NDArray[np.bool_] = np.zeros((horizon, count), np.bool_)
        self.inputs[-1], _ = env.reset(seed=seed)
        self._ages = np.zeros(count, np.int64)
        self._returns = np.zeros(count)

    def own_lanes(self, others: int) -> int:
        """All lanes are the learner's own."""
        return self.env.num_envs

    @torch.inference_mode()
    def collect(self, network: FlatNetwork | Sequence[FlatNetwork]) -> Episodes:
        """Step all lanes through a rollout in imagination, and return the episodes that ended in it.

        The step in which a lane restarts teaches nothing: its reward is the value that is expected of it.
        """
        self.inputs[0] = self.inputs[-1]
        done: list[tuple[bool, int, float]] = []
        fresh = np.zeros(self.env.num_envs, np.bool_)
        for t in range(len(self.actions)):
            self.outputs[t] = self.model(torch.from_numpy(self.inputs[t])).numpy()
            policy = torch.from_numpy(self.outputs[t, :, : len(ACTIONS)]).softmax(1)
            self.actions[t] = torch.multinomial(policy, 1, generator=self._generator)[:, 0].numpy()
            fresh = self.env.ended.copy()
            self.inputs[t + 1], rewards, found, late, _ = self.env.step(self.actions[t])
            self.rewards[t] = np.where(fresh, self.outputs[t, :, -1], rewards)
            self.ends[t] = found | late | fresh
            self._ages = np.where(fresh, 0, self._ages + 1)
            self._returns = np.where(fresh, 0.0, self._returns + rewards)
            ended = np.flatnonzero(found | late)
            done += [(bool(found[i]), int(self._ages[i]), float(self._returns[i])) for i in ended]
        self.outputs[-1] = self.model(torch.from_numpy(self.inputs[-1])).numpy()
        success, steps, returns = zip(*done, strict=True) if done else ((), (), ())
        return Episodes(
            np.array(success, np.bool_), np.array(steps, np.int64), np.zeros(len(done)), np.array(returns, float)
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """A navigator that learns in imagination is made in one go."""
        return {}


def learn_in_imagination(
    world: TrainedWorld,
    epochs: int,
    seed: int = 0,
    lanes: int = 128,
    horizon: int = 64,
    max_steps: int | None = None,
    progress: Callable[[int], None] = lambda epochs: None,
) -> tuple[MLP, list[float | None]]:
    """A navigator with memory that never met the plume; and by epoch the share of episodes that found a source."""
    torch.manual_seed(seed)
    settings = Settings()
    model = settings.make_model(width=64, depth=2)
    optimizer = settings.make_optimizer(model)
    env = ImaginedPlumeVectorEnv(lanes, world, "memory", max_steps)
    rollouts = ImaginedRollouts(env, model, horizon, seed)
    learner = PolicyGradientLearner(model, optimizer, rollouts, settings)  # type: ignore[arg-type]
    curve: list[float | None] = []
    for epoch in range(epochs):
        episodes = learner.epoch(epoch / epochs)
        curve.append(float(episodes.success.mean()) if len(episodes.success) else None)
        progress(epoch + 1)
    return model, curve

"""Learners of stable-baselines3 and sb3-contrib in the suite, on our lanes, with our reward, discount and settings.

A round is a rollout in all lanes and the gradient steps on it. A run that is killed continues with the network, the
optimizer and the count of steps of its last checkpoint, in new episodes: it is not the same bit for bit.
"""

import time
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from gpf.navigation.policy_gradient import Settings
from gpf.navigation.seeds import training_seeds
from gpf.navigation.tokenized import Reckoning
from gpf.plume.memory import MEMORY_SIZE, Memory
from gpf.plume.row import row_of
from gpf.plume.scenario import Scenario
from gpf.plume.tokens import ONEHOT_SIZE, onehot
from gpf.runs.folder import Run
from gpf.runs.training import Phase
from gpf.tasks.searching import Config, evaluations, untrained

HIDDEN = 64
"""Units of each layer, and of the LSTM."""
SAVE_EVERY = 30.0
"""Seconds between two checkpoints."""


class OutsiderSearch:
    """A learner of another library: its training, and then its evaluations."""

    def __init__(self, run: Run, config: Config, threads: int | None = None) -> None:
        self.run: Run = run
        self.config: Config = config
        self.threads: int | None = threads
        self.progress: dict[str, Any] = untrained()
        self._settings = config.who.trained(config.quick)
        self.steps: int = int(self._settings.get("steps", Settings().steps))
        self.model: Any = self._made()
        self._saved = time.monotonic()
        self._file = run.folder / "checkpoints" / "last.pt"
        if self._file.exists():
            held = torch.load(self._file, weights_only=True)
            self.model.policy.load_state_dict(held["policy"])
            self.model.policy.optimizer.load_state_dict(held["optimizer"])
            self.progress = held["progress"]

    def _made(self) -> Any:
        """The algorithm, with the settings that our own default learner has."""
        from gpf.plume.sb3 import PlumeVecEnv

        given, ours = self._settings, Settings()
        algorithm: Any
        if given["algorithm"] == "PPO":
            from stable_baselines3 import PPO

            algorithm, policy, network = PPO, "MlpPolicy", {}
        else:
            from sb3_contrib import RecurrentPPO

            algorithm, policy = RecurrentPPO, "MlpLstmPolicy"
            network = {"lstm_hidden_size": given.get("hidden", HIDDEN)}
        world = self.config.training_world().rewarded(ours.reward, ours.discount)
        lanes = PlumeVecEnv(given.get("lanes", ours.lanes), world, given["observation"], threads=1)
        model = algorithm(
            policy, lanes, n_steps=given.get("n_steps", ours.horizon), seed=self.config.seed, device="cpu",
            batch_size=given.get("batch_size", ours.minibatch), n_epochs=ours.update_epochs, gamma=ours.discount,
            learning_rate=lambda _: ours.learning_rate * max(0.0, 1.0 - self.progress["step"] / self.steps),
            ent_coef=ours.entropy, gae_lambda=ours.gae_lambda, max_grad_norm=ours.gradient_clip,
            policy_kwargs={"net_arch": [given.get("hidden", HIDDEN)] * 2, **network},
        )  # fmt: skip
        lanes.seed(training_seeds(self.config.seed, 1)[0])  # in place of the seed that the algorithm gave them
        return model

    @property
    def over(self) -> bool:
        """Whether there is nothing left to learn."""
        return bool(self.progress["step"] >= self.steps)

    def round(self) -> dict[str, Any]:
        """One rollout and the gradient steps on it; now and then, and at the end, a checkpoint."""
        now, started = self.progress, time.perf_counter()
        rollout = self.model.n_steps * self.model.n_envs
        self.model.learn(rollout, reset_num_timesteps=False)
        now["round"] += 1
        now["step"] += rollout
        now["seconds"] += time.perf_counter() - started
        if self.over or time.monotonic() - self._saved > SAVE_EVERY:
            self._save()
        return {**now, **self.shape()}

    def _save(self) -> None:
        self._saved = time.monotonic()
        self._file.parent.mkdir(exist_ok=True)
        unfinished = self._file.with_name(".last.pt.new")
        policy = self.model.policy
        held = {"policy": policy.state_dict(), "optimizer": policy.optimizer.state_dict(), "progress": self.progress}
        torch.save(held, unfinished)
        unfinished.replace(self._file)

    def shape(self) -> dict[str, Any]:
        """All parameters of the policy; nothing grows or is pruned."""
        count = sum(parameter.numel() for parameter in self.model.policy.parameters())
        return {"depth": 2, "density": 1.0, "frozen": [], "parameters": count}

    def finish(self, phase: Phase) -> dict[str, Any]:
        """Its evaluations."""
        policy = OutsiderPolicy(self.model, self._settings["observation"])
        return evaluations(self.run, self.config, lambda name, scenario: policy, self.threads, phase)


class OutsiderPolicy:
    """A model of stable-baselines3 as a policy: it makes its observations from raw ones as our environments do.

    Actions are drawn from the policy, as those of our navigators are.
    """

    PER_LANE: ClassVar[tuple[str, ...]] = ()

    def __init__(self, model: Any, observation: str) -> None:
        self.model: Any = model
        self.observation: str = observation

    def begin(self, seeds: Sequence[int], scenario: Scenario) -> None:
        """Forget everything and begin one episode per seed."""
        count = len(seeds)
        torch.manual_seed(seeds[0] % 2**63)
        self._memory = Memory(np.repeat(np.array([row_of(scenario)]), count))
        self._seen = Reckoning(count, scenario)
        self._inputs = np.zeros((count, {"memory": MEMORY_SIZE, "onehot": ONEHOT_SIZE}[self.observation]), np.float32)
        self._states: Any = None
        self._first = np.ones(count, np.bool_)

    def act(self, raw: NDArray[np.float32], lanes: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        """Choose actions in the lanes given by their indices."""
        if self.observation == "memory":
            self._inputs = self._memory.update(raw, lanes)
        else:
            self._seen.tokenize(raw, lanes)
            onehot(self._seen.tokens, self._inputs)
        chosen, self._states = self.model.predict(
            self._inputs, state=self._states, episode_start=self._first, deterministic=False
        )
        self._first[:] = False
        actions[lanes] = chosen[lanes]

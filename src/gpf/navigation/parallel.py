"""Expected SARSA and Q-learning over many lanes, with lambda-returns and minibatches.

One environment and one update a step let the greedy policy of an aliased state flip back and forth. Returns that look
ahead over many lanes, a rate that decays and, if wanted, layer normalisation steady it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gpf.navigation.acting import expected, greedy
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.inputs import INPUTS
from gpf.navigation.learner import LaneLearner, LaneSettings
from gpf.navigation.rollouts import Episodes, Rollouts
from gpf.network import MLP, GrowPruneFreeze
from gpf.plume.kernels import kernel
from gpf.plume.scenario import ACTIONS, Scenario
from gpf.settings import number


@dataclass(frozen=True, kw_only=True)
class Settings(LaneSettings):
    """How the values learn, and what they see, are paid and do."""

    NAME: ClassVar[str] = "parallel"
    BY_OBSERVATION: ClassVar[dict[str, dict[str, Any]]] = {"memory": {"discount": 0.998, "steps": 4_000_000}}
    RULES: ClassVar[dict[str, Any]] = {
        "grow_patience": 60, "grow_threshold": 0.005, "max_depth": 2,
        "weight_threshold": 0.1, "belief_increment": 0.01, "prune_patience": 60, "belief_threshold": 0.5,
        "saliency": "magnitude", "saliency_threshold": 0.1, "freeze_patience": 30, "freeze_delta": 0.0015,
    }  # fmt: skip

    loitering: float = number(0.4, 0.0, 1.0, below=True)
    steps: int = number(6_000_000, 1)
    discount: float = number(0.995, 0.0, 1.0)
    update_epochs: int = number(2, 1)
    minibatch: int = number(1024, 1)
    gradient_clip: float = number(10.0, 0.0)
    ema: float = number(0.99, 0.0, 1.0, below=True)
    validate_every: int = number(15, 1)
    layer_norm: bool = True
    """Whether the first hidden layer is normalised."""
    q_learning: bool = False
    """Whether returns take the best next action (Q-learning) or the policy's mean (Expected SARSA)."""
    exploration_start: float = number(1.0, 0.0, 1.0)
    """Share of random actions at first."""
    exploration_end: float = number(0.05, 0.0, 1.0)
    """Final share of random actions."""
    exploration_share: float = number(0.5, 0.001, 1.0)
    """Share of the training over which random actions become fewer."""

    def make_model(self, width: int, depth: int) -> MLP:
        """The network before it learns: an output for each action."""
        return MLP(INPUTS[self.observation], width, len(ACTIONS), depth, self.layer_norm)

    def make_learner(
        self,
        net: GrowPruneFreeze,
        scenario: Scenario,
        seed: int,
        without: tuple[str, ...] = (),
        threads: int | None = None,
    ) -> "ParallelLearner":
        """The learner of a network, in a world that has this learner's reward."""
        model: Any = net.model
        rollouts = Rollouts(
            self.lanes, self.horizon, scenario, self.observation, model.head.out_features, seed, threads, without
        )
        return ParallelLearner(model, net.optimizer, rollouts, self)


class ParallelLearner(LaneLearner[Settings]):
    """Expected SARSA or Q-learning in many lanes; an epoch is a rollout. The learning rate falls linearly to zero."""

    def __init__(self, model: MLP, optimizer: torch.optim.Optimizer, rollouts: Rollouts, settings: Settings) -> None:
        super().__init__(model, optimizer, rollouts, settings)
        self.returns: NDArray[np.float32] = np.zeros(rollouts.rewards.shape, np.float32)

    def epoch(self, progress: float, others: Sequence[FlatNetwork] = ()) -> Episodes:
        """Collect a rollout and learn from it; `progress` is the share of the training that is over.

        Others, where there are some, walk in half of the lanes, and are not learned from.
        """
        s = self.settings
        for group in self.optimizer.param_groups:
            group["lr"] = s.learning_rate * (1.0 - progress)
        fewer = (s.exploration_start - s.exploration_end) * min(1.0, progress / s.exploration_share)
        exploration = s.exploration_start - fewer
        episodes = self.rollouts.collect([self.network] * max(1, len(others)) + list(others), exploration)
        self.learn(exploration, self.rollouts.own_lanes(len(others)))
        if self.average:
            self.average.add(self.network.values)
        return episodes

    def learn(self, exploration: float, lanes: int | None = None) -> None:
        """Take several epochs of gradient steps over the last rollout, or over that of its first lanes."""
        r, s = self.rollouts, self.settings
        lambda_returns(
            r.rewards, r.actions, r.outputs, r.final, r.ends, r.bootstraps, s.discount, s.gae_lambda,
            0.0 if s.q_learning else exploration, s.q_learning, self.returns,
        )  # fmt: skip
        inputs = torch.from_numpy(r.inputs[:-1, :lanes].reshape(-1, r.inputs.shape[-1]))
        flat = len(inputs)
        actions = torch.from_numpy(r.actions[:, :lanes].reshape(flat, 1))
        returns = torch.from_numpy(self.returns[:, :lanes].reshape(flat))
        for _ in range(s.update_epochs):
            for batch in torch.randperm(flat).split(s.minibatch):
                loss = nn.functional.mse_loss(self.model(inputs[batch]).gather(1, actions[batch])[:, 0], returns[batch])
                self.optimizer.zero_grad()
                loss.backward()
                if s.gradient_clip:
                    nn.utils.clip_grad_norm_(self.model.parameters(), s.gradient_clip)
                self.optimizer.step()


@kernel
def lambda_returns(rewards, actions, values, final, ends, bootstraps, discount, lam, exploration, q_learning, out):
    """Write the lambda-returns of an epsilon-greedy policy, for action values of shape (T + 1, n, actions).

    An episode that only ran out of time bootstraps from the values of its last state; one that truly ended does not.
    The returns of Q-learning do not look beyond an action that was not the best one (Watkins 1989).
    """
    for i in range(rewards.shape[1]):
        following = 0.0
        for t in range(len(rewards) - 1, -1, -1):
            if ends[t, i]:
                ahead = expected(final[t, i], exploration) if bootstraps[t, i] else 0.0
            else:
                ahead = expected(values[t + 1, i], exploration)
                if t + 1 < len(rewards) and not (q_learning and actions[t + 1, i] != greedy(values[t + 1, i])):
                    ahead += lam * (following - ahead)
            following = rewards[t, i] + discount * ahead
            out[t, i] = following

"""Expected SARSA and Q-learning over many lanes: lambda-returns, learnt in minibatches.

One environment and one update a step let the greedy policy of an aliased state flip back and forth. Returns that look
ahead over many lanes, a rate that decays and, if wanted, layer normalisation steady it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from gpf.navigation.acting import expected, greedy
from gpf.navigation.averaging import WeightAverage
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.rollouts import Episodes, Rollouts
from gpf.network import MLP, GrowPruneFreeze
from gpf.plume.kernels import kernel


@dataclass(frozen=True)
class Settings:
    """How the values learn."""

    learning_rate: float = 1e-3
    """At first; it falls linearly to zero."""
    discount: float = 0.995
    trace: float = 0.95
    """Lambda: the share of the next step's return, and not of its value, in the return of a step."""
    passes: int = 2
    """How often each rollout is learnt from."""
    minibatch: int = 1024
    gradient_clip: float = 10.0
    """Greatest norm of the gradient; 0 for no clipping."""
    q_learning: bool = False
    """Whether returns take the best next action (Q-learning) or the policy's mean (Expected SARSA)."""
    averaging: float = 0.99
    """Share of the old average in the running average of the weights, per rollout, once it has gone on for long; the
    average is what acts when learning is over. 0 for no averaging."""
    exploration_start: float = 1.0
    """Share of random actions at first."""
    exploration_end: float = 0.05
    """Share of random actions in the end."""
    exploration_share: float = 0.5
    """Share of the training over which random actions become fewer."""


class ParallelLearner:
    """Expected SARSA or Q-learning in many lanes; an epoch is a rollout. The learning rate falls linearly to zero."""

    def __init__(self, model: MLP, optimizer: torch.optim.Optimizer, rollouts: Rollouts, settings: Settings) -> None:
        self.model, self.optimizer, self.rollouts, self.settings = model, optimizer, rollouts, settings
        self.returns = np.zeros(rollouts.rewards.shape, np.float32)
        self.network = FlatNetwork(model)
        self.average = WeightAverage(self.network.values, settings.averaging) if settings.averaging else None

    def rebind(self, net: GrowPruneFreeze | None = None) -> None:
        """Take over the network as it is now; needed after every event."""
        self.network = FlatNetwork(self.model)
        if self.average:
            self.average.renew(self.network.values)

    def epoch(self, progress: float, others: Sequence[FlatNetwork] = ()) -> Episodes:
        """Collect a rollout and learn from it; `progress` is the share of the training that is over.

        Others, where there are some, walk in half of the lanes, and are not learnt from.
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

    def state(self) -> dict[str, NDArray]:
        """Everything but the network on which the next epoch depends."""
        return {**self.rollouts.state(), **(self.average.state() if self.average else {})}

    def restore(self, state: dict[str, NDArray]) -> None:
        """Go on from a state."""
        self.rollouts.restore(state)
        if self.average:
            self.average.restore(state, self.network.values)

    def learn(self, exploration: float, lanes: int | None = None) -> None:
        """Several passes of gradient steps over the last rollout, or over that of its first lanes."""
        r, s = self.rollouts, self.settings
        lambda_returns(
            r.rewards, r.actions, r.outputs, r.final, r.ends, r.bootstraps, s.discount, s.trace,
            0.0 if s.q_learning else exploration, s.q_learning, self.returns,
        )  # fmt: skip
        inputs = torch.from_numpy(r.inputs[:-1, :lanes].reshape(-1, r.inputs.shape[-1]))
        flat = len(inputs)
        actions = torch.from_numpy(r.actions[:, :lanes].reshape(flat, 1))
        returns = torch.from_numpy(self.returns[:, :lanes].reshape(flat))
        for _ in range(s.passes):
            for batch in torch.randperm(flat).split(s.minibatch):
                loss = nn.functional.mse_loss(self.model(inputs[batch]).gather(1, actions[batch])[:, 0], returns[batch])
                self.optimizer.zero_grad()
                loss.backward()
                if s.gradient_clip:
                    nn.utils.clip_grad_norm_(self.model.parameters(), s.gradient_clip)
                self.optimizer.step()


@kernel
def lambda_returns(rewards, actions, values, final, ends, bootstraps, discount, trace, exploration, q_learning, out):
    """Write the lambda-returns of an epsilon-greedy policy, for action values of shape (T + 1, n, actions).

    An episode that only ran out of time goes on with the values of its last state; one that truly ended does not. The
    returns of Q-learning do not look beyond an action that was not the best one (Watkins 1989).
    """
    for i in range(rewards.shape[1]):
        following = 0.0
        for t in range(len(rewards) - 1, -1, -1):
            if ends[t, i]:
                ahead = expected(final[t, i], exploration) if bootstraps[t, i] else 0.0
            else:
                ahead = expected(values[t + 1, i], exploration)
                if t + 1 < len(rewards) and not (q_learning and actions[t + 1, i] != greedy(values[t + 1, i])):
                    ahead += trace * (following - ahead)
            following = rewards[t, i] + discount * ahead
            out[t, i] = following

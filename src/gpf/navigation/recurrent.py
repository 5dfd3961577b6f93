"""Learned memory: PPO on a recurrent network, with truncated backpropagation through time.

A rollout is a batch of sequences, one for each lane. Each begins in the state in which the network that acted left it
(stored states), and gradients end there. That state is of older weights than those that learn from it; a burn-in runs
the network over some steps before the rollout first, without a loss, which renews its state. Where an
episode begins, memory is empty.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gpf.navigation import policy_gradient
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.inputs import INPUTS, RecurrentObservation
from gpf.navigation.policy_gradient import Critic, CriticName, PolicyGradientLearner, generalized_advantages
from gpf.navigation.policy_loss import log_chances, policy_loss
from gpf.navigation.recurrent_flat import FlatRecurrent
from gpf.navigation.recurrent_network import CellName, RecurrentNetwork
from gpf.navigation.rollouts import Rollouts
from gpf.network import GrowPruneFreeze
from gpf.plume.scenario import ACTIONS, Scenario
from gpf.settings import number


@dataclass(frozen=True, kw_only=True)
class Settings(policy_gradient.Settings):
    """How the policy and its memory learn, and what they see, are paid and do."""

    NAME: ClassVar[str] = "recurrent"
    FLAT: ClassVar[type[FlatNetwork]] = FlatRecurrent
    BY_OBSERVATION: ClassVar[dict[str, dict[str, Any]]] = {"raw": {"critic": "shared"}}
    RULES: ClassVar[dict[str, Any]] = {
        **policy_gradient.Settings.RULES, "grow_patience": 60, "grow_threshold": 0.005, "max_depth": 2,
    }  # fmt: skip
    RULES_BY_OBSERVATION: ClassVar[dict[str, dict[str, Any]]] = {}

    observation: RecurrentObservation = "onehot"  # type: ignore[assignment]  # others see features of memory
    """Network inputs: the paper's 22 zeros and ones (`onehot`), or readings, wind and heading (`raw`)."""
    cell: CellName = "mingru"
    """What remembers: `mingru`, a minimal GRU, of which gates see the input alone, or `gru`."""
    burn_in: int = number(0, 0)
    """Steps before a rollout over which the network runs first, for a state of its own; at most `horizon`."""
    critic: CriticName = "privileged"
    steps: int = number(6_000_000, 1, 10**12)
    ema: float = number(0.95, 0.0, 1.0, below=True)
    minibatch: int = number(2048, 1)
    """Environment steps in a gradient step: whole sequences of `horizon` steps, one at least."""

    def make_model(self, width: int, depth: int) -> RecurrentNetwork:  # type: ignore[override]  # not an MLP
        """The network before it learns: an output for each action and, if the critic is shared, one for the value."""
        outputs = len(ACTIONS) + (self.critic == "shared")
        model = RecurrentNetwork(INPUTS[self.observation], width, outputs, depth, self.cell)
        RecurrentLearner.prepare(model)
        return model

    def make_learner(
        self,
        net: GrowPruneFreeze,
        scenario: Scenario,
        seed: int,
        without: tuple[str, ...] = (),
        threads: int | None = None,
    ) -> "RecurrentLearner":
        """The learner of a network, in a world that has this learner's reward."""
        model: Any = net.model
        rollouts = Rollouts(
            self.lanes, self.horizon, scenario, self.observation, model.head.out_features, seed, threads, without,
            privileged=self.critic == "privileged", state_size=sum(model.units),
        )  # fmt: skip
        critic = None
        if self.critic == "privileged":
            critic = Critic(rollouts.privileged.shape[2], model.head.in_features, self.learning_rate, seed)
        return RecurrentLearner(model, net.optimizer, rollouts, self, critic)


class RecurrentLearner(PolicyGradientLearner):
    """PPO in many lanes, on sequences; an epoch is a rollout. The learning rate falls linearly to zero."""

    settings: Settings

    def __init__(
        self,
        model: RecurrentNetwork,
        optimizer: torch.optim.Optimizer,
        rollouts: Rollouts,
        settings: Settings,
        critic: Critic | None = None,
    ) -> None:
        super().__init__(model, optimizer, rollouts, settings, critic)
        steps, lanes = settings.burn_in, settings.lanes
        self.earlier_inputs: NDArray[np.float32] = np.zeros((steps, lanes, rollouts.inputs.shape[2]), np.float32)
        """Those of the last steps of the rollout before, (burn_in, n, F)."""
        self.earlier_states: NDArray[np.float32] = np.zeros((lanes, rollouts.states.shape[2]), np.float32)
        """What was remembered before them."""
        self.starts: NDArray[np.bool_] = np.ones((steps + 1, lanes), np.bool_)
        """Before which of them, and whether before the first step of the next rollout, an episode begins."""

    def rebind(self, net: GrowPruneFreeze | None = None) -> None:
        """Take over the network as it is now, and let what lanes remember follow it."""
        before = self.network
        super().rebind(net)
        assert isinstance(self.network, FlatRecurrent)
        self.rollouts.states = self.network.carried(before, self.rollouts.states)
        self.earlier_states = self.network.carried(before, self.earlier_states)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything but the network on which the next epoch depends."""
        earlier = {"inputs": self.earlier_inputs, "states": self.earlier_states, "starts": self.starts}
        return {**super().state(), **{f"earlier_{name}": array for name, array in earlier.items()}}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Go on from a state."""
        super().restore(state)
        self.earlier_inputs[...] = state["earlier_inputs"]
        self.earlier_states[...] = state["earlier_states"]
        self.starts[...] = state["earlier_starts"]

    def learn(self, lanes: int | None = None) -> None:
        """Take several epochs of gradient steps over the sequences of the last rollout, or of its first lanes."""
        r, s = self.rollouts, self.settings
        values = self.critic.values(r.privileged) if self.critic else r.outputs[:, :, -1]
        generalized_advantages(r.rewards, values, r.ends, s.discount, s.gae_lambda, self.advantages)
        sequences = self._sequences()
        actions, outputs = torch.from_numpy(r.actions)[..., None], torch.from_numpy(r.outputs[:-1])
        advantages = torch.from_numpy(self.advantages)
        returns = advantages + torch.from_numpy(values[:-1])
        _, before = log_chances(outputs.flatten(0, 1), actions.flatten(0, 1))
        before = before.view_as(advantages)
        privileged = torch.from_numpy(r.privileged[:-1])
        count = s.lanes if lanes is None else lanes
        for _ in range(s.update_epochs):
            for batch in torch.randperm(count).split(max(1, s.minibatch // s.horizon)):
                made = sequences.outputs(self.model, batch)
                parts = (one[:, batch].flatten(0, 1) for one in (actions, before, advantages, returns))
                loss = policy_loss(made, *parts, clip=s.clip, entropy=s.entropy, value_weight=s.value_weight)
                self.optimizer.zero_grad()
                loss.backward()
                if s.gradient_clip:
                    nn.utils.clip_grad_norm_(self.model.parameters(), s.gradient_clip)
                self.optimizer.step()
                if self.critic:
                    self.critic.learn(privileged[:, batch].flatten(0, 1), returns[:, batch].flatten())
        self._keep_last_steps()

    def _sequences(self) -> "Sequences":
        """What the network saw in the last rollout, with the burn-in."""
        r = self.rollouts
        return Sequences(
            torch.from_numpy(np.concatenate([self.earlier_inputs, r.inputs[:-1]])),
            torch.from_numpy(np.concatenate([self.starts, r.ends[:-1]])),
            torch.from_numpy(self.earlier_states if self.settings.burn_in else r.states[0]),
            self.settings.burn_in,
        )

    def _keep_last_steps(self) -> None:
        """Keep what the next rollout's burn-in will need."""
        r, steps = self.rollouts, self.settings.burn_in
        first = self.settings.horizon - steps
        self.earlier_inputs[...] = r.inputs[first:-1]
        self.earlier_states[...] = r.states[first]
        self.starts[...] = r.ends[first - 1 :] if first else np.concatenate([self.starts[-1:], r.ends])


@dataclass(frozen=True)
class Sequences:
    """A rollout as sequences of b + T steps, of which the first b, the burn-in, have no loss."""

    inputs: Tensor
    """(b + T, n, F)."""
    starts: Tensor
    """Before which steps an episode begins, bool (b + T, n)."""
    state: Tensor
    """What was remembered before the first step, (n, S)."""
    burn_in: int

    def outputs(self, model: nn.Module, lanes: Tensor) -> Tensor:
        """The network's outputs for the T steps of some lanes, step by step, (T x lanes, K)."""
        made: Tensor = model(self.inputs[:, lanes], self.starts[:, lanes], self.state[lanes])
        return made[self.burn_in :].flatten(0, 1)

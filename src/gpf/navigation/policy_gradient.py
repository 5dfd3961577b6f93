"""Policy gradient: PPO on the same networks, observations and lanes. The default navigator.

The network's first outputs are the logits of the actions and its last one is the value: policy and value share one
stack, and grow, prune and freeze together. Schulman et al. 2017; advantages by Schulman et al. 2016.

A policy that does not see enough to tell how things stand gets a `Critic` in place of that last output.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from gpf.navigation.acting import Acting
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.fused import FusedSteps, Lesson
from gpf.navigation.inputs import INPUTS, Observation
from gpf.navigation.learner import LaneLearner, LaneSettings
from gpf.navigation.policy_loss import log_chances, policy_loss
from gpf.navigation.rollouts import Episodes, Rollouts
from gpf.network import MLP, GrowPruneFreeze
from gpf.network.compiled import HookReplacements, replace_hooks
from gpf.plume.kernels import kernel
from gpf.plume.scenario import ACTIONS, Scenario
from gpf.settings import number

CriticName = Literal["shared", "privileged"]
"""`shared` is an output of the policy's network; `privileged` a separate network that also sees the memory features."""

SHRINKING: dict[str, Any] = {
    "warmup": 0, "grow_patience": None, "grow_trial": None, "max_depth": 4, "prune_patience": None, "prune_to": 0.7,
    "prune_steps": 8, "granularity": "unit", "remove_units": True, "saliency": "magnitude", "freeze_patience": None,
}  # fmt: skip
"""Rules for a network that starts with four layers: the weakest units go, 30 % of all."""
GROWING: dict[str, Any] = {**SHRINKING, "grow_at": (0.25,), "grow_by": "double"}
"""The same for a network that starts with two layers and doubles them after a quarter of the steps."""


@dataclass(frozen=True, kw_only=True)
class Settings(LaneSettings):
    """How the policy learns, and what it sees, is paid and does."""

    NAME: ClassVar[str] = "policy-gradient"
    ACTING: ClassVar[tuple[Acting, ...]] = ("greedy", "sampled")
    BY_OBSERVATION: ClassVar[dict[str, dict[str, Any]]] = {
        "onehot": {"critic": "privileged", "discount": 0.999, "steps": 6_000_000, "ema": 0.98},
    }
    RULES: ClassVar[dict[str, Any]] = {
        "warmup": 10, "grow_patience": 10, "grow_threshold": 0.01, "grow_trial": 60, "max_depth": 3,
        "weight_threshold": 0.1, "belief_increment": 0.01, "prune_patience": 60, "belief_threshold": 0.5,
        "saliency": "magnitude", "saliency_threshold": 0.1, "freeze_patience": 30, "freeze_delta": 0.0015,
    }  # fmt: skip
    RULES_BY_OBSERVATION: ClassVar[dict[str, dict[str, Any]]] = {
        "onehot": {"grow_patience": 60, "grow_threshold": 0.005, "max_depth": 2},
    }

    observation: Observation = "memory"
    acting: Acting = "sampled"
    learning_rate: float = number(2e-3, 0.0)
    discount: float = number(0.998, 0.0, 1.0)
    gradient_clip: float = number(0.5, 0.0)
    clip: float = number(0.2, 0.0)
    """How far the probability of an action may move in one rollout, as a ratio."""
    entropy: float = number(0.005, 0.0)
    """Weight of the entropy bonus."""
    value_weight: float = number(0.05, 0.0)
    """Weight of the value's squared error."""
    critic: CriticName = "shared"
    """Estimator of the value: `shared`, one more output of the policy's network, or `privileged`, a separate network
    that also sees the memory features, which the policy does not see."""

    def make_model(self, width: int, depth: int) -> MLP:
        """The network before it learns: an output for each action and, if the critic is shared, one for the value."""
        model = MLP(INPUTS[self.observation], width, len(ACTIONS) + (self.critic == "shared"), depth)
        PolicyGradientLearner.prepare(model)
        return model

    def make_learner(
        self,
        net: GrowPruneFreeze,
        scenario: Scenario,
        seed: int,
        without: tuple[str, ...] = (),
        threads: int | None = None,
    ) -> "PolicyGradientLearner":
        """The learner of a network, in a world that has this learner's reward."""
        model: Any = net.model
        rollouts = Rollouts(
            self.lanes, self.horizon, scenario, self.observation, model.head.out_features, seed, threads, without,
            privileged=self.critic == "privileged",
        )  # fmt: skip
        critic = None
        if self.critic == "privileged":
            critic = Critic(rollouts.privileged.shape[2], model.head.in_features, self.learning_rate, seed)
        return PolicyGradientLearner(model, net.optimizer, rollouts, self, critic)


class PolicyGradientLearner(LaneLearner[Settings]):
    """PPO in many lanes; an epoch is a rollout. The learning rate falls linearly to zero."""

    def __init__(
        self,
        model: Any,
        optimizer: torch.optim.Optimizer,
        rollouts: Rollouts,
        settings: Settings,
        critic: "Critic | None" = None,
    ) -> None:
        super().__init__(model, optimizer, rollouts, settings)
        self.critic = critic
        self._fused: FusedSteps | None = None
        self.advantages: NDArray[np.float32] = np.zeros(rollouts.rewards.shape, np.float32)

    @staticmethod
    def prepare(model: Any) -> None:
        """Start from a nearly uniform policy and a value of zero, from which PPO learns best."""
        with torch.no_grad():
            model.head.weight[: len(ACTIONS)] *= 0.01
            model.head.bias.zero_()

    def epoch(self, progress: float, others: Sequence[FlatNetwork] = ()) -> Episodes:
        """Collect a rollout and learn from it; `progress` is the share of the training that is over.

        Others, where there are some, walk in half of the lanes, and are not learned from.
        """
        rate = self.settings.learning_rate * (1.0 - progress)
        for optimizer in (self.optimizer, *([self.critic.optimizer] if self.critic else [])):
            for group in optimizer.param_groups:
                group["lr"] = rate
        episodes = self.rollouts.collect([self.network] * max(1, len(others)) + list(others))
        self.learn(self.rollouts.own_lanes(len(others)))
        if self.average:
            self.average.add(self.network.values)
        return episodes

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything but the network on which the next epoch depends."""
        return {**super().state(), **(self.critic.state() if self.critic else {})}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore a state."""
        super().restore(state)
        if self.critic:
            self.critic.restore(state)

    def learn(self, lanes: int | None = None) -> None:
        """Take several epochs of gradient steps over the last rollout, or over that of its first lanes."""
        r, s = self.rollouts, self.settings
        values = self.critic.values(r.privileged) if self.critic else r.outputs[:, :, -1]
        generalized_advantages(r.rewards, values, r.ends, s.discount, s.gae_lambda, self.advantages)
        flat = self.advantages[:, :lanes].size
        advantages = np.ascontiguousarray(self.advantages[:, :lanes]).reshape(flat)
        lesson = Lesson(
            _rows(r.inputs[:-1, :lanes]), _rows(r.outputs[:-1, :lanes]), r.actions[:, :lanes].reshape(flat),
            advantages, advantages + values[:-1, :lanes].reshape(flat),
        )  # fmt: skip
        order = torch.stack([torch.randperm(flat) for _ in range(s.update_epochs)])
        replacements = self._replacements()
        if isinstance(replacements, str):
            self._learn_in_torch(lesson, order)
        else:
            self._learn_fused(lesson, order, replacements)
        if self.critic:
            privileged, returns = torch.from_numpy(_rows(r.privileged[:-1, :lanes])), torch.from_numpy(lesson.returns)
            for batch in _batches(order, s.minibatch):
                self.critic.learn(privileged[batch], returns[batch])

    def _learn_in_torch(self, lesson: Lesson, order: Tensor) -> None:
        """Take the gradient steps in torch, for hooks that compiled code does not support."""
        s = self.settings
        inputs, outputs, advantages, returns = map(
            torch.from_numpy, (lesson.inputs, lesson.outputs, lesson.advantages, lesson.returns)
        )
        actions = torch.from_numpy(lesson.actions)[:, None]
        _, before = log_chances(outputs, actions)
        for batch in _batches(order, s.minibatch):
            loss = self._loss(inputs[batch], actions[batch], before[batch], advantages[batch], returns[batch])
            self.optimizer.zero_grad()
            loss.backward()
            if s.gradient_clip:
                nn.utils.clip_grad_norm_(self.model.parameters(), s.gradient_clip)
            self.optimizer.step()

    def _replacements(self) -> HookReplacements | str:
        """The hooks that compiled gradient steps replace, or the reason why torch has to take the steps."""
        if self.network.layers["normalised"].any():
            return "a layer is normalised"
        return replace_hooks(self.model, self.optimizer)

    def _learn_fused(self, lesson: Lesson, order: Tensor, replacements: HookReplacements) -> None:
        """The same gradient steps as in torch, compiled; they need the optimizer's state in flat memory."""
        optimizer, s = cast(torch.optim.Adam, self.optimizer), self.settings
        if self._fused is None or not self._fused.network.is_shared(optimizer):
            self.network: FlatNetwork = FlatNetwork(self.model, optimizer)
            self._fused = FusedSteps(self.network)
        self._fused.take(
            lesson, order.numpy(), optimizer, replacements, minibatch=s.minibatch, clip=s.clip, entropy=s.entropy,
            value_weight=0.0 if self.critic else s.value_weight, gradient_clip=s.gradient_clip,
        )  # fmt: skip

    def _loss(self, inputs: Tensor, actions: Tensor, before: Tensor, advantages: Tensor, returns: Tensor) -> Tensor:
        s = self.settings
        return policy_loss(
            self.model(inputs), actions, before, advantages, returns, clip=s.clip, entropy=s.entropy,
            value_weight=0.0 if self.critic else s.value_weight,
        )  # fmt: skip


def _rows(part: NDArray[np.float32]) -> NDArray[np.float32]:
    """Steps of all lanes one below the other."""
    steps, lanes, width = part.shape
    return part.reshape(steps * lanes, width)


def _batches(order: Tensor, minibatch: int) -> Iterator[Tensor]:
    """The samples of each minibatch, epoch by epoch."""
    for one in order:
        yield from one.split(minibatch)


class Critic:
    """A privileged critic: a separate value network that also sees the memory features, which the policy does not see.

    It is used for learning only. The observation of a policy without memory does not say how an episode is going, so
    its own value estimates give misleading advantages (asymmetric actor-critic; Pinto et al. 2018).
    """

    GRADIENT_CLIP = 5.0

    def __init__(self, inputs: int, width: int, learning_rate: float, seed: int) -> None:
        with torch.random.fork_rng():  # a run that is resumed makes a critic too, and must draw no other numbers for it
            torch.manual_seed(seed)
            self.model: nn.Sequential = nn.Sequential(
                nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)
            )
        self.optimizer: torch.optim.Adam = torch.optim.Adam(
            self.model.parameters(), lr=learning_rate, eps=1e-5, fused=True
        )

    def values(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """The values of states, given their features in the last axis."""
        with torch.no_grad():
            values: NDArray[np.float32] = self.model(torch.from_numpy(features))[..., 0].numpy()
        return values

    def learn(self, features: Tensor, returns: Tensor) -> None:
        """One gradient step towards the returns."""
        error = (self.model(features)[:, 0] - returns).square().mean()
        self.optimizer.zero_grad()
        error.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.GRADIENT_CLIP)
        self.optimizer.step()

    def state(self) -> dict[str, NDArray[Any]]:
        """The weights, and the optimizer's moments and number of steps."""
        moments: dict[str, list[Tensor]] = {name: [] for name in ("exp_avg", "exp_avg_sq")}
        steps = 0.0
        for parameter in self.model.parameters():
            adam = self.optimizer.state.get(parameter)
            steps = float(adam["step"]) if adam else 0.0
            for name, tensors in moments.items():
                tensors.append(adam[name] if adam else torch.zeros_like(parameter))
        flat = {name: torch.cat([t.detach().flatten() for t in tensors]) for name, tensors in moments.items()}
        flat["weights"] = nn.utils.parameters_to_vector(self.model.parameters()).detach()
        return {f"critic_{name}": tensor.numpy() for name, tensor in flat.items()} | {"critic_steps": np.array(steps)}

    def restore(self, state: dict[str, NDArray[Any]]) -> None:
        """Restore a state."""
        sizes = [parameter.numel() for parameter in self.model.parameters()]
        parts = {
            name: torch.from_numpy(state[f"critic_{name}"].copy()).split(sizes)
            for name in ("weights", "exp_avg", "exp_avg_sq")
        }
        for n, parameter in enumerate(self.model.parameters()):
            with torch.no_grad():
                parameter.copy_(parts["weights"][n].view_as(parameter))
            self.optimizer.state[parameter] = {
                "step": torch.tensor(float(state["critic_steps"])),
                **{name: parts[name][n].view_as(parameter).clone() for name in ("exp_avg", "exp_avg_sq")},
            }


@kernel
def generalized_advantages(rewards, values, ends, discount, gae_lambda, out):
    """Write the generalized advantages; an episode that ran out of time is over, like one that found the source.

    The critic sees the clock, and thus the remaining time (Pardo et al. 2018). If the value of the last
    state stood for what would have followed, values of lost agents would depend only on
    themselves: in some seeds they rise far above what the source pays, and the agent learns to get lost.
    """
    for i in range(rewards.shape[1]):
        advantage = 0.0
        for t in range(len(rewards) - 1, -1, -1):
            following = values[t + 1, i]
            if ends[t, i]:
                following = advantage = 0.0
            error = rewards[t, i] + discount * following - values[t, i]
            advantage = error + discount * gae_lambda * advantage
            out[t, i] = advantage

"""The loss of PPO (Schulman et al. 2017): clipped surrogate, entropy bonus and, where it is shared, the value's error."""

from typing import Protocol

import torch
from torch import Tensor

from gpf.plume.scenario import ACTIONS


class Weights(Protocol):
    """Settings of the loss; those of the policy gradient have them."""

    @property
    def clip(self) -> float: ...

    @property
    def entropy(self) -> float: ...

    @property
    def value_weight(self) -> float: ...


def log_chances(outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities of all actions, (n, actions), and of those taken, (n,)."""
    log_policy = outputs[:, : len(ACTIONS)].log_softmax(1)
    return log_policy, log_policy.gather(1, actions)[:, 0]


def policy_loss(
    outputs: Tensor, actions: Tensor, before: Tensor, advantages: Tensor, returns: Tensor, weights: Weights
) -> Tensor:
    """The loss of a batch; the value's error counts if there is an output for the value.

    Args:
        outputs: Of the network, (n, actions) or (n, actions + 1).
        actions: Those taken, (n, 1).
        before: Their log-probabilities when they were taken, (n,).
        advantages: Of the actions, (n,); normalised here.
        returns: What the value should have been, (n,).
        weights: Of the terms, and the clip.
    """
    log_policy, taken = log_chances(outputs, actions)
    ratio = (taken - before).exp()
    advantages = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-8)
    gain = torch.min(ratio * advantages, ratio.clamp(1.0 - weights.clip, 1.0 + weights.clip) * advantages).mean()
    entropy = -(log_policy.exp() * log_policy).sum(1).mean()
    loss = -gain - weights.entropy * entropy
    if outputs.shape[1] > len(ACTIONS):
        loss = loss + weights.value_weight * (outputs[:, -1] - returns).square().mean()
    return loss

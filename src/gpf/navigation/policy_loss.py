"""The loss of PPO (Schulman et al. 2017): clipped surrogate, entropy bonus and, optionally, the value error."""

import torch
from torch import Tensor

from gpf.plume.scenario import ACTIONS


def log_chances(outputs: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities of all actions, (n, actions), and of those taken, (n,)."""
    log_policy = outputs[:, : len(ACTIONS)].log_softmax(1)
    return log_policy, log_policy.gather(1, actions)[:, 0]


def policy_loss(
    outputs: Tensor,
    actions: Tensor,
    before: Tensor,
    advantages: Tensor,
    returns: Tensor,
    *,
    clip: float,
    entropy: float,
    value_weight: float,
) -> Tensor:
    """The loss of a batch; the value's error counts if there is an output for the value.

    Args:
        outputs: Of the network, (n, actions) or (n, actions + 1).
        actions: Those taken, (n, 1).
        before: Their log-probabilities when they were taken, (n,).
        advantages: Of the actions, (n,); normalised here.
        returns: Targets of the value, (n,).
        clip: How far a probability may move, as a ratio.
        entropy: Weight of the entropy bonus.
        value_weight: Weight of the value's squared error.
    """
    log_policy, taken = log_chances(outputs, actions)
    ratio = (taken - before).exp()
    advantages = (advantages - advantages.mean()) / (advantages.std(correction=0) + 1e-8)
    gain = torch.min(ratio * advantages, ratio.clamp(1.0 - clip, 1.0 + clip) * advantages).mean()
    loss = -gain + entropy * (log_policy.exp() * log_policy).sum(1).mean()
    if outputs.shape[1] > len(ACTIONS):
        loss = loss + value_weight * (outputs[:, -1] - returns).square().mean()
    return loss

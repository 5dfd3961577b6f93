"""Experience replay: the network imitates its earlier outputs for a reservoir of past inputs.

Dark experience replay (Buzzega et al. 2020) and, for policies, the cloning loss of CLEAR (Rolnick et al. 2019).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim import Optimizer

from gpf.continual.methods import Hooked

Cloning = Callable[[Tensor, Tensor], Tensor]
"""A loss from the current outputs and the stored ones."""


def clone_values(outputs: Tensor, then: Tensor) -> Tensor:
    """The mean squared difference of all outputs."""
    return functional.mse_loss(outputs, then)


def clone_policy(outputs: Tensor, then: Tensor, value_weight: float = 1.0) -> Tensor:
    """KL divergence from the stored policy, plus the weighted squared difference of the value, the last output."""
    now, old = outputs[:, :-1].log_softmax(1), then[:, :-1].log_softmax(1)
    divergence = functional.kl_div(now, old, reduction="batchmean", log_target=True)
    return divergence + value_weight * functional.mse_loss(outputs[:, -1], then[:, -1])


class Replay(Hooked):
    """Adds the gradient of a cloning loss on `batch` stored samples to every step of the optimizer.

    Call `add` with new samples. Samples are kept by reservoir sampling (Vitter 1985): each sample so far is stored
    with the same probability.

    Args:
        cloning: The loss.
        strength: Factor of its gradient.
        clip: Maximum norm of its gradient before that factor, equal to the learner's own, so neither dominates.
        capacity: Maximum number of stored samples.
        batch: Stored samples in a gradient step.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        sizes: tuple[int, int],
        cloning: Cloning,
        strength: float = 1.0,
        clip: float = 1.0,
        capacity: int = 10_000,
        batch: int = 500,
        seed: int = 0,
    ) -> None:
        super().__init__(model, optimizer)
        self.cloning = cloning
        self.strength = strength
        self.clip = clip
        self.batch = batch
        self.random: torch.Generator = torch.Generator().manual_seed(seed)
        self.seen: Tensor = torch.zeros((), dtype=torch.int64)
        self.inputs: Tensor = torch.zeros(capacity, sizes[0])
        self.outputs: Tensor = torch.zeros(capacity, sizes[1])

    @property
    def stored(self) -> int:
        """Samples in the reservoir."""
        return min(int(self.seen), len(self.inputs))

    def add(self, inputs: Tensor, outputs: Tensor) -> None:
        """Offer samples to the reservoir: inputs and the network's outputs for them."""
        numbers = int(self.seen) + torch.arange(len(inputs))
        drawn = (torch.rand(len(inputs), generator=self.random, dtype=torch.float64) * (numbers + 1)).long()
        places = torch.where(numbers < len(self.inputs), numbers, drawn)
        for row in torch.nonzero(places < len(self.inputs))[:, 0].tolist():  # in order: a later one replaces an earlier
            self.inputs[places[row]], self.outputs[places[row]] = inputs[row], outputs[row]
        self.seen += len(inputs)

    def before_step(self) -> None:
        """Add the gradient of the cloning loss on stored samples."""
        if not self.stored:
            return
        rows = torch.randint(self.stored, (self.batch,), generator=self.random)
        with torch.enable_grad():
            loss = self.cloning(self.model(self.inputs[rows]), self.outputs[rows])
            gradients = torch.autograd.grad(loss, list(self.parameters.values()))
        norm = nn.utils.get_total_norm(gradients)
        scale = self.strength * (self.clip / norm.clamp(min=self.clip)).item()
        for parameter, gradient in zip(self.parameters.values(), gradients, strict=True):
            if parameter.grad is not None:
                parameter.grad.add_(gradient, alpha=scale)

    def state(self) -> dict[str, Tensor]:
        """The reservoir, how many samples were offered to it, and the random numbers to come."""
        return {
            "inputs": self.inputs,
            "outputs": self.outputs,
            "seen": self.seen,
            "random": self.random.get_state(),
        }

    def restore(self, state: dict[str, Tensor]) -> None:
        """Resume from a state."""
        super().restore(state)
        self.random.set_state(state["random"])

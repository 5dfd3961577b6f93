"""Baseline methods that keep a network plastic or prevent forgetting, to compare with GPF.

Each uses optimizer hooks, as GPF does, so training code is unchanged: create the method, then train. It adds to the
gradient after clipping. `state` and `restore` allow a killed run to resume.
"""

from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gpf.network.hooks import Hook


class Method(Protocol):
    """The interface of a method that a training loop uses."""

    def state(self) -> dict[str, Tensor]:
        """Everything that it remembers."""

    def restore(self, state: dict[str, Tensor]) -> None:
        """Resume from a state."""

    def close(self) -> None:
        """Let go of the model and the optimizer."""


class Hooked:
    """A method that does something before, or after, every step of an optimizer."""

    def __init__(self, model: nn.Module, optimizer: Optimizer) -> None:
        self.model = model
        self.optimizer = optimizer
        self.parameters: dict[str, nn.Parameter] = dict(model.named_parameters())
        self._handles = [
            optimizer.register_step_pre_hook(Hook(lambda *_: self.before_step())),
            optimizer.register_step_post_hook(Hook(lambda *_: self.after_step())),
        ]

    def before_step(self) -> None:
        """Gradients are complete, and about to be applied."""

    def after_step(self) -> None:
        """They have been applied."""

    def state(self) -> dict[str, Tensor]:
        """Everything that it remembers."""
        return {}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Resume from a state."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])

    def close(self) -> None:
        """Let go of the optimizer."""
        for handle in self._handles:
            handle.remove()


class L2Init(Hooked):
    """A pull towards the weights at the start: strength / 2 |w - w0|^2 is added to the loss (Kumar et al. 2023)."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, strength: float = 1e-3) -> None:
        super().__init__(model, optimizer)
        self.strength = strength
        self.start: dict[str, Tensor] = {name: p.detach().clone() for name, p in self.parameters.items()}

    @torch.no_grad()
    def before_step(self) -> None:
        """Add the pull to the gradients."""
        for name, p in self.parameters.items():
            if p.grad is not None:
                p.grad.add_(p - self.start[name], alpha=self.strength)

    def state(self) -> dict[str, Tensor]:
        """The weights at the start."""
        return {f"start/{name}": tensor for name, tensor in self.start.items()}


class ShrinkAndPerturb(Hooked):
    """After every step, weights shrink a little and get a little noise (Ash & Adams 2020, made gradual)."""

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, shrink: float = 1e-4, noise: float = 1e-4, seed: int = 0
    ) -> None:
        super().__init__(model, optimizer)
        self.shrink = shrink
        self.noise = noise
        self.random: torch.Generator = torch.Generator().manual_seed(seed)

    @torch.no_grad()
    def after_step(self) -> None:
        """W becomes (1 - shrink) w + noise N(0, 1)."""
        for p in self.parameters.values():
            p.mul_(1.0 - self.shrink).add_(torch.randn(p.shape, generator=self.random), alpha=self.noise)

    def state(self) -> dict[str, Tensor]:
        """The random numbers to come."""
        return {"random": self.random.get_state()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Resume from a state."""
        self.random.set_state(state["random"])


class OnlineEWC(Hooked):
    """A pull towards recent weights, stronger for weights on which the loss depended more (Schwarz et al. 2018).

    Changes are not announced, so the anchor moves every `every` steps: the importance of recent learning, the mean
    squared gradient, is added to the decayed importance of earlier learning.
    """

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, strength: float = 10.0, keep: float = 0.9, every: int = 2000
    ) -> None:
        super().__init__(model, optimizer)
        self.strength = strength
        self.keep = keep
        self.every = every
        self.anchor: dict[str, Tensor] = {name: p.detach().clone() for name, p in self.parameters.items()}
        self.importance: dict[str, Tensor] = {name: torch.zeros_like(p) for name, p in self.parameters.items()}
        self.gathered: dict[str, Tensor] = {name: torch.zeros_like(p) for name, p in self.parameters.items()}
        self.steps: Tensor = torch.zeros((), dtype=torch.int64)

    @torch.no_grad()
    def before_step(self) -> None:
        """Record the gradients of the loss itself, then add the pull."""
        self.steps += 1
        for name, p in self.parameters.items():
            if p.grad is not None:
                self.gathered[name].add_(p.grad.square())
                p.grad.add_(self.importance[name] * (p - self.anchor[name]), alpha=self.strength)

    @torch.no_grad()
    def after_step(self) -> None:
        """Move the anchor, if it is time."""
        if int(self.steps) % self.every:
            return
        for name, p in self.parameters.items():
            self.importance[name].mul_(self.keep).add_(self.gathered[name], alpha=1.0 / self.every)
            self.gathered[name].zero_()
            self.anchor[name].copy_(p)

    def state(self) -> dict[str, Tensor]:
        """Anchor, importance and what has been gathered since."""
        found = {"steps": self.steps}
        for kind in ("anchor", "importance", "gathered"):
            found |= {f"{kind}/{name}": tensor for name, tensor in getattr(self, kind).items()}
        return found


class ContinualBackprop(Hooked):
    """Continual backprop: regularly reinitialises the least useful units of each hidden layer (Dohare et al. 2024).

    A unit's utility is a running mean of its activation times the size of its outgoing weights. A reinitialised unit
    gets new incoming weights, outgoing weights of zero, and a fresh optimizer state. torch's Adam counts steps for a
    whole tensor; the steps of new units are corrected as if they had their own count.

    Args:
        layers: The linear layers in order, including the head.
        rate: Share of the mature units that is replaced in a step.
        maturity: Steps before a unit can be replaced.
    """

    DECAY = 0.99

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        layers: list[nn.Linear],
        rate: float = 1e-4,
        maturity: int = 100,
        seed: int = 0,
    ) -> None:
        super().__init__(model, optimizer)
        self.layers = layers
        self.rate = rate
        self.maturity = maturity
        self.random: torch.Generator = torch.Generator().manual_seed(seed)
        hidden = layers[:-1]
        self.utility: list[Tensor] = [torch.zeros(layer.out_features) for layer in hidden]
        self.age: list[Tensor] = [torch.zeros(layer.out_features) for layer in hidden]
        self.due: Tensor = torch.zeros(len(hidden), dtype=torch.float64)
        self.young: dict[str, Tensor] = {}
        """Steps since each weight was reinitialised; 0 for those that never were."""
        self._activity: list[Tensor | None] = [None] * len(hidden)
        self._before: dict[str, Tensor] = {}
        self._names = {id(p): name for name, p in self.parameters.items()}
        self._handles += [
            following.register_forward_pre_hook(Hook(partial(self._note, n))) for n, following in enumerate(layers[1:])
        ]

    def _note(self, n: int, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if torch.is_grad_enabled():
            self._activity[n] = inputs[0].detach().abs().flatten(0, -2).mean(0)

    @torch.no_grad()
    def before_step(self) -> None:
        """Remember the weights of tensors in which something is new."""
        self._before = {name: self.parameters[name].detach().clone() for name in self.young}

    @torch.no_grad()
    def after_step(self) -> None:
        """Correct the step of new weights, bring utilities up to date, and replace what is due."""
        self._correct()
        for n, layer in enumerate(self.layers[:-1]):
            activity = self._activity[n]
            if activity is None:
                continue
            worth = activity * self.layers[n + 1].weight.abs().sum(0)
            self.utility[n].mul_(self.DECAY).add_(worth, alpha=1.0 - self.DECAY)
            self.age[n] += 1.0
            mature = self.age[n] > self.maturity
            self.due[n] += self.rate * float(mature.sum())
            count = min(int(self.due[n]), int(mature.sum()))
            if count:
                self.due[n] -= count
                corrected = self.utility[n] / (1.0 - self.DECAY ** self.age[n])
                corrected[~mature] = torch.inf
                self._replace(n, layer, corrected.argsort()[:count])

    def _replace(self, n: int, layer: nn.Linear, units: Tensor) -> None:
        fresh = torch.empty(len(units), layer.in_features)
        nn.init.kaiming_normal_(fresh, nonlinearity="relu", generator=self.random)
        following = self.layers[n + 1]
        layer.weight[units] = fresh
        layer.bias[units] = 0.0
        following.weight[:, units] = 0.0
        self.utility[n][units] = 0.0
        self.age[n][units] = 0.0
        for parameter, place in (
            (layer.weight, (units,)), (layer.bias, (units,)), (following.weight, (slice(None), units)),
        ):  # fmt: skip
            for key, value in self.optimizer.state.get(parameter, {}).items():
                if torch.is_tensor(value) and value.shape == parameter.shape and key != "step":
                    value[place] = 0.0
            name = self._names[id(parameter)]
            self.young.setdefault(name, torch.zeros_like(parameter))[place] = 1.0

    def _correct(self) -> None:
        """Let the last change of new weights be what Adam would have made it with a count of their own."""
        group = self.optimizer.param_groups[0]
        if "betas" not in group:
            return
        beta1, beta2 = group["betas"]
        for name, steps in list(self.young.items()):
            parameter, before = self.parameters[name], self._before.get(name)
            if before is None:
                continue
            new, own, state = steps > 0, steps.clamp(min=1.0), self.optimizer.state[parameter]
            mean, square = state["exp_avg"] / (1.0 - beta1**own), state["exp_avg_sq"] / (1.0 - beta2**own)
            parameter.copy_(torch.where(new, before - group["lr"] * mean / (square.sqrt() + group["eps"]), parameter))
            steps += new
            steps[steps > 10.0 / (1.0 - beta2)] = 0.0  # the counts no longer make a difference
            if not steps.any():
                del self.young[name]

    def state(self) -> dict[str, Tensor]:
        """Utilities, ages, what is due, counts of new weights, and the random numbers to come."""
        found = {"due": self.due, "random": self.random.get_state()}
        for n in range(len(self.utility)):
            found |= {f"utility/{n}": self.utility[n], f"age/{n}": self.age[n]}
        return found | {f"young/{name}": steps for name, steps in self.young.items()}

    def restore(self, state: dict[str, Tensor]) -> None:
        """Resume from a state."""
        self.due.copy_(state["due"])
        self.random.set_state(state["random"])
        for n in range(len(self.utility)):
            self.utility[n].copy_(state[f"utility/{n}"])
            self.age[n].copy_(state[f"age/{n}"])
        self.young = {name[6:]: steps.clone() for name, steps in state.items() if name.startswith("young/")}


def linear_layers(model: Any) -> list[nn.Linear]:
    """The linear layers of a `gpf.MLP`, the head last."""
    return [*(block.linear for block in model.layers), model.head]

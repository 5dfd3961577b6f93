"""What the controller remembers of one layer of the stack, and the hooks by which it learns of it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gpf.network.hooks import Hook
from gpf.network.pruning import dead_units


@dataclass(eq=False)
class Weight:
    """A parameter of two dimensions or more, of which single entries can be pruned."""

    name: str
    """Its name within the layer's block."""
    parameter: nn.Parameter
    transposed: bool
    """Whether units are columns, as in Hugging Face's Conv1D, and not rows."""
    belief: Tensor
    pruned: Tensor | None = None
    """Which entries are pruned; None while none is."""
    previous: Tensor | None = None
    """Values at the end of the last epoch, to see how far they move in the next."""
    squares: Tensor | None = None
    """Sum of squared gradients, where the optimizer keeps no average of its own."""
    keep: Tensor | None = None
    """1 where an entry is not pruned and 0 where it is, as bytes: what gradients are multiplied with."""
    silenced: tuple[int, int] | None = None
    """Address and version of the gradient whose pruned entries were last taken away."""
    mask_handle: RemovableHandle | None = field(default=None, repr=False)

    def by_unit(self, values: Tensor) -> Tensor:
        """Values of the weight's shape with units first: (units, inputs, ...)."""
        return values.transpose(0, 1) if self.transposed else values

    @torch.no_grad()
    def silence_gradient(self, parameter: Tensor) -> None:
        """Take the gradient of pruned entries away as soon as it is there, before clipping sees it."""
        gradient = parameter.grad
        if gradient is None or self.keep is None or (gradient.data_ptr(), gradient._version) == self.silenced:
            return
        gradient.mul_(self.keep)  # far faster than masked_fill_
        self.silenced = gradient.data_ptr(), gradient._version

    def count_pruned(self) -> int:
        """Number of pruned entries."""
        return 0 if self.pruned is None else int(torch.count_nonzero(self.pruned))


class Layer:
    """One block of the stack, with the beliefs, masks and counters that belong to it."""

    def __init__(self, block: nn.Module) -> None:
        self.block = block
        owners = {id(p): module for module in block.modules() for p in module.parameters(recurse=False)}
        self.weights = [
            Weight(
                name,
                p,
                transposed=type(owners[id(p)]).__name__ == "Conv1D" and p.dim() == 2,
                belief=torch.zeros(p.shape, dtype=torch.float32, device=p.device),
            )
            for name, p in block.named_parameters()
            if p.dim() >= 2 and p.requires_grad  # what the user has frozen is not ours to prune
        ]
        self.frozen = False
        self.still = 0  # epochs in a row in which it held still
        self.gradients = 0  # number of gradients in `squares`
        self.activation: Tensor | None = None  # sum of mean absolute outputs, by unit
        self.activations = 0  # number of outputs in `activation`
        self._handles: list[RemovableHandle] = []

    def parameters(self) -> Iterator[nn.Parameter]:
        """All parameters of the block, biases included."""
        return self.block.parameters()

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(p.numel() for p in self.parameters())

    def mean_belief(self) -> float:
        """Mean belief in the layer's weights; 1 when it is frozen."""
        total = sum(w.belief.numel() for w in self.weights)
        return 1.0 if self.frozen else sum(float(w.belief.sum()) for w in self.weights) / max(1, total)

    def active(self, weight: Weight, threshold: float) -> Tensor | None:
        """Which units of the last weight were active since the last epoch ended; None for the others."""
        if weight is not self.weights[-1] or self.activation is None or not self.activations:
            return None  # a block's output is that of its last map
        rows = weight.by_unit(weight.parameter)
        if len(self.activation) != len(rows):
            return None
        active = (self.activation / self.activations > threshold).view(-1, *[1] * (rows.dim() - 1))
        return weight.by_unit(active)

    def dead_units(self, following: "Layer | None") -> int:
        """Number of units that have lost all weights into them or, in a plain chain of layers, all out of them."""
        count = 0
        for weight in self.weights:
            if weight.pruned is None and (following is None or all(w.pruned is None for w in following.weights)):
                continue
            incoming = weight.by_unit(_mask(weight))
            outgoing = None
            if following is not None and len(self.weights) == len(following.weights) == 1:
                consumer = following.weights[0]
                mask = consumer.by_unit(_mask(consumer))
                outgoing = mask if mask.shape[1] == len(incoming) else None
            count += int(dead_units(incoming, outgoing).sum())
        return count

    def watch(self, squares: bool, activations: bool) -> None:
        """Begin to gather squared gradients and activations, if asked for."""
        for weight in self.weights:
            weight.squares = torch.zeros_like(weight.belief) if squares else None
        if activations and self.weights:
            self._handles.append(self.block.register_forward_hook(Hook(self._gather_activation)))
        self._handles.append(self.block.register_forward_pre_hook(Hook(self._hold_statistics)))

    def unwatch(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        for weight in self.weights:
            if weight.mask_handle is not None:
                weight.mask_handle.remove()
                weight.mask_handle = None

    def mask_gradients(self) -> None:
        """See to it that pruned entries get no gradient."""
        for weight in self.weights:
            weight.keep = None if weight.pruned is None else (~weight.pruned).view(torch.int8)
            if weight.pruned is not None and weight.mask_handle is None:
                learns = weight.parameter.requires_grad
                weight.parameter.requires_grad_(True)  # a frozen one takes no hook, and may thaw
                weight.mask_handle = weight.parameter.register_post_accumulate_grad_hook(Hook(weight.silence_gradient))
                weight.parameter.requires_grad_(learns)
            elif weight.pruned is None and weight.mask_handle is not None:
                weight.mask_handle.remove()
                weight.mask_handle = None

    def forget_gradients(self) -> None:
        """Begin to gather squared gradients anew."""
        self.gradients = 0
        for weight in self.weights:
            if weight.squares is not None:
                weight.squares.zero_()

    @torch.no_grad()
    def before_step(self) -> None:
        """Look at the gradients that the optimizer is about to use: mask them, and gather their squares."""
        seen = False
        for weight in self.weights:
            gradient = weight.parameter.grad
            if gradient is None:
                continue
            weight.silence_gradient(weight.parameter)  # it may not have come from autograd, or have changed since
            weight.silenced = None  # the next gradient may lie at the same address
            if weight.squares is not None:
                weight.squares.addcmul_(gradient, gradient)
                seen = True
        self.gradients += seen

    def release_statistics(self) -> None:
        """Let running statistics move again after they were held."""
        for module in self.block.modules():
            if isinstance(module, nn.modules.batchnorm._NormBase):
                module.train(self.block.training)

    @torch.no_grad()
    def _gather_activation(self, block: nn.Module, inputs: object, output: object) -> None:
        if not block.training:
            return
        out = output[0] if isinstance(output, tuple) else output
        if not isinstance(out, Tensor) or not out.requires_grad:
            return  # it is not learning: it acts, or is looked at
        # Convolutions put units second, (batch, channels, ...); everything else puts them last.
        unit = 1 if self.weights[-1].parameter.dim() > 2 else out.dim() - 1
        mean = out.abs().mean(dim=[d for d in range(out.dim()) if d != unit])
        self.activation = mean if self.activation is None else self.activation.add_(mean)
        self.activations += 1

    def _hold_statistics(self, block: nn.Module, inputs: object) -> None:
        """A frozen layer is a fixed function: its running statistics stay what they are."""
        if self.frozen:
            for module in block.modules():
                if isinstance(module, nn.modules.batchnorm._NormBase):
                    module.eval()


def _mask(weight: Weight) -> Tensor:
    return torch.zeros_like(weight.parameter, dtype=torch.bool) if weight.pruned is None else weight.pruned

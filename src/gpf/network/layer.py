"""State of one layer of the stack, and the hooks that update it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from gpf.network import sharding
from gpf.network.blocks.architectures import is_nonnegative
from gpf.network.compaction.cuts import Cut
from gpf.network.hooks import Hook
from gpf.network.prunable import Prunable, named_weights

_PROBES = 32
_SMALL = 2**15
"""Number of entries up to which masking a weight is as cheap as looking whether it was written."""


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
    dense: Tensor | None = None
    """Sum of the gradients of the last epoch, of pruned entries too; only for rules that let weights regrow."""
    keep: Tensor | None = None
    """1 where an entry is not pruned and 0 where it is, in the parameter's dtype: torch multiplies fastest so."""
    probe: Tensor | None = field(default=None, repr=False)
    """Places of a few pruned entries in the flattened weight, in which writes from outside are looked for."""
    seen: tuple[int, int] | None = field(default=None, repr=False)
    """Address and version of the values when pruned entries were last known to be zero."""
    mask_handle: RemovableHandle | None = field(default=None, repr=False)
    counted: tuple[Tensor, sharding.Kept] | None = field(default=None, repr=False)
    """The mask that was last counted, and the counts."""

    @property
    def values(self) -> Tensor:
        """Its entries, of which belief and masks have the shape: those of this process's shard if it is sharded.

        By way of `data`, so that a graph which autograd keeps of them stays valid when pruned entries, which are zero,
        are set to zero.
        """
        return sharding.local(self.parameter.data)

    @torch.no_grad()
    def mask_values(self) -> None:
        """Set pruned entries to zero, in case something was written there."""
        if self.keep is not None:
            self.values.mul_(self.keep)
            self.accept_values()

    def accept_values(self) -> None:
        """Record that pruned entries are zero."""
        self.seen = self.values.data_ptr(), self.parameter._version

    def is_revived(self) -> bool:
        """Whether any of a few pruned entries is not zero; of small weights, and on accelerators, it is assumed."""
        if not self.parameter.is_cpu or self.parameter.numel() <= _SMALL:
            return True
        return self.probe is not None and bool(torch.count_nonzero(self.values.take(self.probe)))

    def is_written(self) -> bool:
        """Whether values were written since the last masking, as autograd counts: not through `data`."""
        return self.seen != (self.values.data_ptr(), self.parameter._version)

    def is_replaced(self, block: nn.Module) -> bool:
        """Whether the block has another parameter of this name now, or none."""
        try:
            return block.get_parameter(self.name) is not self.parameter
        except AttributeError:
            return True

    def kept(self) -> sharding.Kept | None:
        """How many entries are left; None while none is pruned. Under FSDP, all processes must count a new mask."""
        if self.pruned is None:
            return None
        if self.counted is None or self.counted[0] is not self.pruned:
            self.counted = self.pruned, sharding.kept(self.pruned, self.parameter)
        return self.counted[1]

    def follow(self, cut: Cut, pruned: Tensor | None) -> None:
        """Take over what a removal of units has left of the parameter and its mask; then call `Layer.update_mask`."""
        if self.mask_handle is not None:
            self.mask_handle.remove()
            self.mask_handle = None
        assert isinstance(cut.new, nn.Parameter)
        self.parameter, self.seen = cut.new, None
        self.belief = cut.of(self.belief)
        self.pruned = pruned if pruned is not None and bool(pruned.any()) else None
        self.previous = None if self.previous is None else cut.of(self.previous)
        self.squares = None if self.squares is None else cut.of(self.squares)
        self.dense = None if self.dense is None else cut.of(self.dense)

    def cut_off(self) -> tuple[Tensor, Tensor]:
        """Which units have no incoming weight left, and which inputs no outgoing one."""
        rows, columns = self.parameter.shape[:2]
        kept = self.kept()
        by_row, by_column = (torch.ones(rows), torch.ones(columns)) if kept is None else (kept.by_row, kept.by_column)
        return (by_column == 0, by_row == 0) if self.transposed else (by_row == 0, by_column == 0)

    def by_unit(self, values: Tensor) -> Tensor:
        """Values of the weight's shape with units first: (units, inputs, ...)."""
        return values.transpose(0, 1) if self.transposed else values

    @torch.no_grad()
    def mask_gradient(self, parameter: Tensor) -> None:
        """Take the gradient of pruned entries away as soon as it is there, before clipping sees it."""
        if parameter.grad is not None and self.keep is not None:
            gradient = sharding.local(parameter.grad)
            if self.dense is not None:
                self.dense.add_(gradient)
            gradient.mul_(self.keep)

    def count_pruned(self) -> int:
        """Number of pruned entries."""
        kept = self.kept()
        return 0 if kept is None else self.parameter.numel() - kept.total


class Layer:
    """One block of the stack, with the beliefs, masks and counters that belong to it."""

    def __init__(self, block: nn.Module, prunable: Prunable | None = None) -> None:
        self.block = block
        self.weights: list[Weight] = [
            Weight(
                name,
                parameter,
                transposed=type(owner).__name__ == "Conv1D" and parameter.dim() == 2,
                belief=torch.zeros_like(sharding.local(parameter), dtype=torch.float32, requires_grad=False),
            )
            for name, parameter, owner in named_weights(block, prunable)
        ]
        self.masked: list[Weight] = []  # those of which something is pruned
        self.frozen = False
        self.still = 0  # epochs in a row in which it held still
        self.gradients: int = 0  # number of gradients in `squares`
        self.removed_units: int = 0  # units that were removed for good, and weights with them
        self.removed_weights: int = 0
        self._nonnegative = is_nonnegative(block)
        self.activation: Tensor | None = None  # sum of mean absolute outputs, by unit
        self.activation_count: Tensor | None = None  # number of outputs in it; a tensor, for torch.compile
        self._handles: list[RemovableHandle] = []

    def parameters(self) -> Iterator[nn.Parameter]:
        """All parameters of the block, biases included."""
        return self.block.parameters()

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(p.numel() for p in self.parameters())

    @property
    def activations(self) -> int:
        """Number of outputs that have been gathered."""
        return 0 if self.activation_count is None else int(self.activation_count)

    def mean_belief(self) -> float:
        """Mean belief in the layer's weights, of this process's shard of them; 1 when it is frozen."""
        total = sum(w.belief.numel() for w in self.weights)
        return 1.0 if self.frozen else sum(float(w.belief.sum()) for w in self.weights) / max(1, total)

    def active(self, weight: Weight, threshold: float) -> Tensor | None:
        """Which units of the last weight were active since the last epoch ended; None for the others."""
        if weight is not self.weights[-1] or self.activation is None or not self.activations:
            return None  # a block's output is that of its last map
        rows = weight.by_unit(weight.parameter)
        active = (self.activation / self.activations > threshold).view(-1, *[1] * (rows.dim() - 1))
        return sharding.share_of(weight.by_unit(active).expand(weight.parameter.shape), weight.parameter)

    def dead_units(self, following: "Layer | None") -> int:
        """Number of units that have lost all weights into them or, in a plain chain of layers, all out of them."""
        count = 0
        for weight in self.weights:
            if weight.pruned is None and (following is None or all(w.pruned is None for w in following.weights)):
                continue
            dead, _ = weight.cut_off()
            if following is not None and len(self.weights) == len(following.weights) == 1:
                _, unheard = following.weights[0].cut_off()
                dead = dead | unheard if len(unheard) == len(dead) else dead
            count += int(dead.sum())
        return count

    def watch(self, squares: set[str], activations: bool, dense: bool = False) -> None:
        """Begin to gather squared gradients of the weights with these names and, if asked for, activations.

        With `dense`, gradients of pruned weights are gathered, too.
        """
        for weight in self.weights:
            weight.dense = torch.zeros_like(weight.belief) if dense else None
            weight.squares = torch.zeros_like(weight.belief) if weight.name in squares else None
        if activations and self.weights:
            units = len(self.weights[-1].by_unit(self.weights[-1].parameter))
            device = self.weights[-1].parameter.device
            self.activation = torch.zeros(units, device=device)
            self.activation_count = torch.zeros((), dtype=torch.int64, device=device)
            self._handles.append(self.block.register_forward_hook(Hook(self._gather_activation)))
        self._handles.append(self.block.register_forward_pre_hook(Hook(self._before_forward)))

    def unwatch(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self.activation = self.activation_count = None
        for weight in self.weights:
            if weight.mask_handle is not None:
                weight.mask_handle.remove()
                weight.mask_handle = None

    def update_masks(self) -> None:
        """Let what is multiplied follow what is pruned in every weight."""
        for weight in self.weights:
            self.update_mask(weight)

    def update_mask(self, weight: Weight) -> None:
        """Let what is multiplied follow what is pruned, and see to it that pruned entries get no gradient."""
        weight.keep = None if weight.pruned is None else (~weight.pruned).to(weight.parameter.dtype)
        weight.probe = None if weight.pruned is None else _spread(weight.pruned)
        if weight.pruned is not None and weight.mask_handle is None:
            learns = weight.parameter.requires_grad
            weight.parameter.requires_grad_(True)  # a frozen one takes no hook, and may thaw
            weight.mask_handle = weight.parameter.register_post_accumulate_grad_hook(Hook(weight.mask_gradient))
            weight.parameter.requires_grad_(learns)
        elif weight.pruned is None and weight.mask_handle is not None:
            weight.mask_handle.remove()
            weight.mask_handle = None
        self.masked = [weight for weight in self.weights if weight.keep is not None]

    def mask_values(self) -> None:
        """Set pruned entries to zero, in case something was written there."""
        for weight in self.masked:
            weight.mask_values()

    def mask_written_values(self, look: bool) -> None:
        """Set pruned entries to zero in the weights that were written since the last time.

        Autograd's counters reveal most writes. With `look`, writes through `data` are found, too: a few pruned entries
        are looked at, and small weights, and those on accelerators, are masked in any case.
        """
        for weight in self.masked:
            if weight.is_written() or (look and weight.is_revived()):
                weight.mask_values()

    def accept_values(self) -> None:
        """Record that a step has left pruned entries at zero; if it has not, set them to zero."""
        for weight in self.masked:
            if weight.is_revived():
                weight.mask_values()
            else:
                weight.accept_values()

    def forget_gradients(self) -> None:
        """Restart the sum of squared gradients."""
        self.gradients = 0
        for weight in self.weights:
            if weight.squares is not None:
                weight.squares.zero_()

    def forget_dense_gradients(self) -> None:
        """Restart the sum of gradients of pruned weights."""
        for weight in self.weights:
            if weight.dense is not None:
                weight.dense.zero_()

    def forget_activations(self) -> None:
        """Restart the sum of activations."""
        if self.activation is not None and self.activation_count is not None:
            self.activation.zero_()
            self.activation_count.zero_()

    def release_statistics(self) -> None:
        """Let running statistics move again after they were held."""
        for module in self.block.modules():
            if isinstance(module, nn.modules.batchnorm._NormBase):
                module.train(self.block.training)

    @torch.no_grad()
    def _gather_activation(self, block: nn.Module, inputs: object, output: object) -> None:
        if not block.training or self.activation is None or self.activation_count is None:
            return
        out = output[0] if isinstance(output, tuple) else output
        if not isinstance(out, Tensor) or not out.requires_grad:
            return  # it is not learning: it acts, or is inspected
        # Convolutions put units second, (batch, channels, ...); everything else puts them last.
        unit = 1 if self.weights[-1].parameter.dim() > 2 else out.dim() - 1
        if out.shape[unit] == len(self.activation):
            size = out if self._nonnegative else out.abs()  # of which ReLU need not take another copy
            self.activation.add_(size.mean(dim=[d for d in range(out.dim()) if d != unit]))
            self.activation_count.add_(1)

    def _before_forward(self, block: nn.Module, inputs: object) -> None:
        if self.frozen:  # a fixed function: its running statistics stay what they are
            for module in block.modules():
                if isinstance(module, nn.modules.batchnorm._NormBase):
                    module.eval()
        if not self.masked or torch.compiler.is_compiling():  # what is compiled is masked before it is called
            return
        if torch.is_grad_enabled():
            self.mask_written_values(look=True)
        else:
            self.mask_values()


def _spread(pruned: Tensor) -> Tensor | None:
    """The places of a few pruned entries, far apart, in the flattened mask; None if there is no such entry."""
    flat = pruned.reshape(-1)
    some = torch.arange(0, len(flat), max(1, len(flat) // 4096), device=flat.device)
    places = some[flat[some]]
    if len(places) == 0:
        places = torch.nonzero(flat).view(-1)
    return places[:: max(1, len(places) // _PROBES)].clone() if len(places) else None


def multiply(pairs: Iterable[tuple[Tensor | None, Tensor | None]]) -> None:
    """Multiply the first tensor of each pair, or its shard, by the second, in place, where both are there."""
    present = [(sharding.local(values), by) for values, by in pairs if values is not None and by is not None]
    if present:
        torch._foreach_mul_([values for values, _ in present], [by for _, by in present])

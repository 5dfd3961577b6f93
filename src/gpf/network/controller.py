"""GrowPruneFreeze: decides when; asks the rules, then calls the surgery, and keeps the log."""

import dataclasses
import math
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gpf.network import belief, freezing, growth, pruning, surgery
from gpf.network.checkpoint import save
from gpf.network.compact import compact, is_chain
from gpf.network.events import METRIC, Event, Frozen, Grown, Pruned, Shape, Thawed, Undone
from gpf.network.growth import Plateau
from gpf.network.hooks import Hook
from gpf.network.initialisers import initialise
from gpf.network.layer import Layer, Weight
from gpf.network.moments import keeps_second_moment, leaves_zeros_alone, second_moment
from gpf.network.rules import Rules, batch_size
from gpf.network.state import capture, restore
from gpf.network.wrappers import is_distributed, mean_over_processes, renew, share_activation, unwrap

BlockFactory = Callable[[int], nn.Module]


class Watcher(Protocol):
    """Somebody who wants to see the network just before and just after each event; see `GrowPruneFreeze.watchers`."""

    def before(self, net: "GrowPruneFreeze") -> None:
        """Something is about to happen."""

    def after(self, net: "GrowPruneFreeze", event: Event) -> None:
        """It has happened."""


_ATTACHED: weakref.WeakSet[nn.Module] = weakref.WeakSet()
"""The stacks that are in somebody's care."""


def attach(
    model: nn.Module,
    optimizer: Optimizer,
    stack: str = "layers",
    block: BlockFactory | None = None,
    rules: Rules | None = None,
) -> "GrowPruneFreeze":
    """Let a model's stack of blocks grow, prune and freeze while an optimizer trains it.

    Training code stays as it is: masks and statistics ride on hooks. Call `end_epoch` with a metric now and then.

    Args:
        model: Any module with a stack of like blocks, or DistributedDataParallel or torch.compile around one.
        optimizer: The optimizer that trains it.
        stack: Path to the `Sequential` or `ModuleList` that holds the blocks.
        block: Makes a new block, given its place in the stack; the model's own `make_block` if not given.
        rules: When to do what.

    >>> import torch, gpf
    >>> model = gpf.MLP(inputs=22, width=64, outputs=6)
    >>> optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    >>> net = gpf.attach(model, optimizer, rules=gpf.Rules(grow_patience=2, max_depth=3))
    >>> [str(event) for loss in (1.0, 1.0, 1.0) for event in net.end_epoch(loss)]  # doctest: +ELLIPSIS
    ['epoch 3: grown layer 1 (the metric improved by 0 in 2 epochs, less than 0.001); depth 1 -> 2, ...']
    """
    bare = unwrap(model)
    if block is None:
        block = getattr(bare, "make_block", None)
        if block is None:
            raise ValueError(f"block must be given, because {type(bare).__name__} has no make_block")
    return GrowPruneFreeze(bare, optimizer, stack, block, rules or Rules(), is_distributed(model))


class GrowPruneFreeze:
    """A model that grows, prunes and freezes itself; made by `attach` or `load`.

    Attributes:
        model: The model, without wrappers.
        optimizer: Its optimizer; None after loading a checkpoint that has none.
        events: All events so far, oldest first.
        epoch: Number of epochs that have ended. It only counts up: undoing a growth does not turn it back.
        extra: What was saved beside the network in the checkpoint that it was loaded from.
        watchers: Called before and after each event, in order; they are not part of a checkpoint.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        stack: str,
        block: BlockFactory,
        rules: Rules,
        distributed: bool = False,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.stack = stack
        self.make_block = block
        self.rules = rules
        self.distributed = distributed
        self.epoch = 0
        self.events: list[Event] = []
        self.extra: dict[str, Any] = {}
        self.watchers: list[Watcher] = []
        self.plateau = Plateau()
        self.prunes_due: list[int] = []  # epochs left until each
        self.layers: list[Layer] = []
        self.stored: dict[int, surgery.Stored] = {}  # optimizer state of frozen layers
        self.before_growth: tuple[dict[str, Tensor], dict[str, Any]] | None = None
        self._check_attachable()
        for module in surgery.find_stack(model, stack):
            self._adopt(module)
        self._handles = [
            optimizer.register_step_pre_hook(Hook(self._before_step)),
            model.register_load_state_dict_post_hook(Hook(self._silence_all)),
        ]
        if not leaves_zeros_alone(optimizer):
            self._handles.append(optimizer.register_step_post_hook(Hook(self._silence_all)))
        _ATTACHED.add(surgery.find_stack(model, stack))

    # What it is

    @property
    def depth(self) -> int:
        """Number of layers in the stack."""
        return len(self.layers)

    @property
    def density(self) -> float:
        """The share of the stack's weights that is not pruned."""
        return self.shape().density

    @property
    def frozen(self) -> tuple[int, ...]:
        """Which layers are frozen."""
        return tuple(i for i, layer in enumerate(self.layers) if layer.frozen)

    def shape(self) -> Shape:
        """Depth, sizes and frozen layers of the stack as it is now."""
        weights = [weight for layer in self.layers for weight in layer.weights]
        following = [*self.layers[1:], None] if is_chain(self.model, self.stack) else [None] * self.depth
        return Shape(
            depth=self.depth,
            parameters=sum(layer.size for layer in self.layers),
            weights=sum(weight.parameter.numel() for weight in weights),
            pruned=sum(weight.count_pruned() for weight in weights),
            pruned_units=sum(layer.dead_units(next_) for layer, next_ in zip(self.layers, following, strict=True)),
            frozen=self.frozen,
        )

    def count_parameters(self) -> int:
        """Weights and biases of the whole model, beside the stack too, that are not pruned."""
        pruned = sum(weight.count_pruned() for layer in self.layers for weight in layer.weights)
        return sum(parameter.numel() for parameter in self.model.parameters()) - pruned

    def batch_size(self, initial: int, loss: float) -> int:
        """The batch size that the rules advise at this loss."""
        return batch_size(initial, loss, self.rules.batch_decay)

    def __str__(self) -> str:
        shape = self.shape()
        lines = [
            f"{type(self.model).__name__}.{self.stack}: depth {shape.depth}, density {shape.density:.3f},"
            f" {shape.parameters - shape.pruned:,} of {shape.parameters:,} parameters, epoch {self.epoch}",
            f"{'layer':>5}  {'block':<24} {'weights':<28} {'density':>7} {'belief':>7}  state",
        ]
        for i, layer in enumerate(self.layers):
            shapes = " ".join("x".join(map(str, weight.parameter.shape)) for weight in layer.weights)
            total = sum(weight.parameter.numel() for weight in layer.weights)
            left = 1.0 - sum(weight.count_pruned() for weight in layer.weights) / max(1, total)
            state = "frozen" if layer.frozen else f"still for {layer.still}"
            name = type(layer.block).__name__
            lines.append(f"{i:>5}  {name:<24.24} {shapes:<28.28} {left:>7.3f} {layer.mean_belief():>7.3f}  {state}")
        return "\n".join(lines)

    # What it does

    @torch.no_grad()
    def end_epoch(self, metric: float) -> list[Event]:
        """Take note that an epoch has ended with this metric; grow, prune and freeze what is due.

        Under DistributedDataParallel the metric is averaged over all processes, and all of them do the same.
        """
        self._check_changeable()
        metric = self._agreed(metric)
        rules = self.rules
        warm = self.epoch >= rules.warmup
        plateau = self.plateau.after(metric, rules, warm)
        new = self._new_block() if warm and self._growth_is_due(plateau) else None
        # Everything that can fail has been tried: from here on the network changes.
        self.epoch += 1
        ending_trial, self.plateau = self.plateau.trial == 1, plateau
        if not warm:
            return []
        self._observe()
        if (fallen := plateau.fallen(rules)) is not None:
            return self._start_over(fallen)
        due = [left - 1 for left in self.prunes_due]
        self.prunes_due = [left for left in due if left > 0]
        events: list[Event] = []
        if self.before_growth is not None and ending_trial:
            if plateau.trial_failed(rules):
                failures = 1 + sum(isinstance(event, Undone) for event in self.events)
                return [self.undo(hold=(rules.grow_patience or 0) * 2**failures)]
            if not rules.grow_undoable:
                self.before_growth = None
        if new is not None and plateau.before is not None:
            gain = growth.improvement(plateau.before, plateau.window, rules.mode)
            reason = (
                f"{METRIC} improved by {gain:.2g} in {rules.grow_patience} epochs, less than {rules.grow_threshold:g}"
            )
            events.append(self._grow(new, reason))
        if any(left <= 0 for left in due):
            events.append(self._prune(f"{rules.prune_patience} epochs after a growth"))
        events += [self._freeze(i, reason) for i, reason in self._still_layers()]
        return events

    def _start_over(self, reason: str) -> list[Event]:
        """The world has changed: let everything learn, and add a layer if there is room; what was best is no more."""
        self.plateau, self.before_growth = Plateau(), None
        events = [self.thaw(layer, reason) for layer in self.frozen]
        if self.rules.grow_patience is not None and self.depth < (self.rules.max_depth or math.inf):
            events.append(self._grow(self._new_block(), reason))
        return events

    def restart(self, rules: Rules) -> None:
        """Restart with new rules at epoch 0, to fine-tune. Depth, masks and belief stay; frozen layers are thawed."""
        self._check_changeable()
        for frozen in self.frozen:
            self.thaw(frozen)
        self.rules, self.epoch, self.events = rules, 0, []
        self.plateau, self.before_growth, self.prunes_due = Plateau(), None, []
        for layer in self.layers:
            layer.unwatch()
            layer.forget_gradients()
            layer.still = 0
            self._watch(layer)
            layer.mask_gradients()

    def grow(self, reason: str = "asked for") -> Event:
        """Add a layer now, whatever the rules say of the metric."""
        self._check_changeable()
        return self._grow(self._new_block(), reason)

    def prune(self, reason: str = "asked for", keep: float | None = None) -> Event:
        """Prune now, in every layer before the newest, what the rules allow.

        With `keep`, weights go in the order of their saliency, whatever the belief in them, until this share of those
        layers' weights is left; frozen layers do not count.
        """
        self._check_changeable()
        if keep is not None and not 0.0 <= keep <= 1.0:
            raise ValueError(f"keep must be from 0 to 1, got {keep}")
        return self._prune(reason, keep)

    def freeze(self, layer: int, reason: str = "asked for") -> Event:
        """Freeze a layer now."""
        self._check_changeable()
        if self.layers[self._checked_layer(layer)].frozen:
            raise ValueError(f"layer {layer} is frozen already")
        return self._freeze(layer, reason)

    def thaw(self, layer: int, reason: str = "asked for") -> Event:
        """Let a frozen layer learn again, with the optimizer state that it had when it was frozen."""
        self._check_changeable()
        if not self.layers[self._checked_layer(layer)].frozen:
            frozen = ", ".join(map(str, self.frozen)) or "none"
            raise ValueError(f"layer must be a frozen one ({frozen} now), got {layer}")
        before = self._announced()
        prefix = surgery.block_path(self.model, self.stack, layer)
        surgery.thaw(self.layers[layer], self.optimizer, self.stored.pop(layer), prefix)
        return self._log(Thawed, (layer,), reason, before)

    def undo(self, hold: int | None = None) -> Event:
        """Go back to the state just before the last growth: weights, optimizer and counters, bit for bit.

        Learning rates and other settings stay what your schedule has made of them. The log is kept, and says so. No
        growth is tried again for `hold` epochs, by default as many as patience.
        """
        self._check_changeable()
        if self.before_growth is None:
            raise ValueError("there is no growth to undo; each can be undone once, with Rules(grow_undoable=True)")
        if hold is not None and not (isinstance(hold, int) and hold >= 0):
            raise ValueError(f"hold must be a whole number of at least 0, got {hold!r}")
        before, since = self._announced(), self.plateau.since
        tensors, manifest = self.before_growth
        restore(self, tensors, manifest)
        self.before_growth = None
        self.plateau = dataclasses.replace(self.plateau, hold=(self.rules.grow_patience or 0) if hold is None else hold)
        reason = _reason_to_undo(since, self.plateau.best_of_all(self.rules))
        return self._log(Undone, (self.depth,), reason, before)

    def renew(self, wrapper: nn.Module) -> Any:
        """DistributedDataParallel and torch.compile anew around the model, after an event that is `structural`."""
        return renew(wrapper)

    def compact(self) -> nn.Module:
        """A smaller dense model that computes the same, without the units that pruning has cut off."""
        return compact(self.model, self.stack)

    def save(self, folder: str | Path, optimizer: bool = True, extra: dict[str, Any] | None = None) -> None:
        """Write a checkpoint from which training goes on as if it had never stopped; see `load`.

        Without its optimizer it is smaller, and good for using the model. What else belongs to your training, tensors
        or plain data that JSON can hold, goes into `extra`, in the same unbroken step, and comes back as `net.extra`.
        Under DistributedDataParallel the first process writes, and the others wait for it.
        """
        save(self, Path(folder), optimizer, extra)

    def detach(self) -> nn.Module:
        """Remove all hooks and return the model; it keeps its shape, and pruned weights may come back in training."""
        for layer in self.layers:
            layer.unwatch()
        for handle in self._handles:
            handle.remove()
        _ATTACHED.discard(surgery.find_stack(self.model, self.stack))
        return self.model

    def __deepcopy__(self, memo: object) -> "GrowPruneFreeze":
        raise TypeError("hooks cannot be copied; use copy.deepcopy(net.model), or save() and gpf.load()")

    # How it does it

    def _adopt(self, block: nn.Module) -> Layer:
        layer = Layer(block)
        self._watch(layer)
        self.layers.append(layer)
        return layer

    def _watch(self, layer: Layer) -> None:
        layer.watch(
            squares=self.rules.saliency == "obd" and not keeps_second_moment(self.optimizer),
            activations=self.rules.activation_threshold is not None,
        )

    def extend(self) -> None:
        """Put a block of whatever weights at the end of the stack, for `state.restore` to fill; nothing is logged."""
        block = self._new_block()
        surgery.append_block(self.model, self.stack, block)
        self._adopt(block)

    def _growth_is_due(self, plateau: Plateau) -> bool:
        rules = self.rules
        if rules.grow_patience is None or plateau.hold > 0 or self.depth >= (rules.max_depth or math.inf):
            return False
        if self.plateau.trial > 0:  # one new layer at a time
            return False
        return growth.plateaued(plateau.before, plateau.window, rules.grow_patience, rules.grow_threshold, rules.mode)

    def _new_block(self) -> nn.Module:
        """A block to grow by, initialised and on the right device; nothing that is in use changes."""
        block = self.make_block(self.depth)
        if not isinstance(block, nn.Module):
            raise ValueError(f"block must make a torch module, got {type(block).__name__}")
        last = self.layers[-1].block
        known = {id(p) for p in self.model.parameters()}
        if any(block is layer.block for layer in self.layers) or any(id(p) in known for p in block.parameters()):
            raise ValueError("block must make a new module each time, got one whose parameters are in the model")
        example = next(last.parameters(), None)
        if example is not None:
            block.to(device=example.device, dtype=example.dtype)
        initialise(block, last, self.rules.grow_init)
        block.train(last.training)
        if self.distributed:
            for tensor in [*block.parameters(), *block.buffers()]:
                torch.distributed.broadcast(tensor.detach(), src=0)
        return block

    def _grow(self, block: nn.Module, reason: str) -> Event:
        before = self._announced()
        groups = self._groups_like_last(block)
        if self.rules.grow_undoable or self.rules.grow_trial is not None:
            tensors, manifest = capture(self)
            self.before_growth = {name: tensor.detach().clone() for name, tensor in tensors.items()}, manifest
        place = self.depth
        surgery.append_block(self.model, self.stack, block)
        prefix = surgery.block_path(self.model, self.stack, place)
        for name, parameter in block.named_parameters():
            if parameter.requires_grad:
                surgery.join(self.optimizer, parameter, groups[name], prefix + name)
        for layer in self.layers:
            layer.forget_gradients()
        self._adopt(block)
        self.plateau = self.plateau.restarted(self.rules)
        if self.rules.prune_patience is not None:
            self.prunes_due.append(self.rules.prune_patience)
        return self._log(Grown, (place,), reason, before)

    def _groups_like_last(self, block: nn.Module) -> dict[str, int]:
        """The parameter group that each parameter of a new block joins: that of its namesake in the last block."""
        place, last = self.depth - 1, self.layers[-1]
        groups = {
            name: surgery.group_index(self.optimizer, parameter) for name, parameter in last.block.named_parameters()
        }
        groups |= {name: group for name, (group, _) in self.stored.get(place, {}).items()}
        known = [group for group in groups.values() if group is not None]
        fallback = known[0] if known else 0
        found = {name: groups.get(name) for name, _ in block.named_parameters()}
        return {name: fallback if group is None else group for name, group in found.items()}

    @torch.no_grad()
    def _prune(self, why: str, keep: float | None = None) -> Event:
        before, rules = self._announced(), self.rules
        costs = [
            (i, weight, pruning.saliency(weight.parameter, rules.saliency, mean_square))
            for i, layer in enumerate(self.layers[:-1])
            if not layer.frozen
            for weight in layer.weights
            for mean_square in [self._mean_square_gradient(layer, weight) if rules.saliency == "obd" else None]
            if rules.saliency != "obd" or mean_square is not None  # it has had a gradient since the growth
        ]
        candidates = sum(cost.numel() for _, _, cost in costs)
        cost_of = "absolute value" if rules.saliency == "magnitude" else f"saliency ({rules.saliency})"
        if keep is None:
            masks = [
                pruning.prunable(weight.belief, cost, rules.belief_threshold, rules.saliency_threshold)
                for _, weight, cost in costs
            ]
            which = f"with belief below {rules.belief_threshold:g} and {cost_of} below {rules.saliency_threshold:g}"
        else:
            gone_first = [c if w.pruned is None else c.masked_fill(w.pruned, -1.0) for _, w, c in costs]
            masks = pruning.cheapest(gone_first, candidates - round(keep * candidates))
            which = f"with the lowest {cost_of}, to keep {keep:.1%}"
        counts = [0] * self.depth
        for (i, weight, _), mask in zip(costs, masks, strict=True):
            counts[i] += surgery.prune(self.layers[i], weight, mask, self.optimizer.state.get(weight.parameter, {}))
        touched = tuple(i for i, count in enumerate(counts) if count)
        return self._log(Pruned, touched, f"{sum(counts):,} of {candidates:,} weights {which}, {why}", before)

    def _mean_square_gradient(self, layer: Layer, weight: Weight) -> Tensor | None:
        if weight.squares is not None:
            return weight.squares / layer.gradients if layer.gradients else None
        return second_moment(self.optimizer, weight.parameter)

    def _observe(self) -> None:
        """Bring beliefs and stillness up to date with the epoch that has ended."""
        rules = self.rules
        for layer in self.layers:
            if layer.frozen:
                continue
            for weight in layer.weights:
                surgery.silence(weight, {})  # whatever training code has done to it
            if self.distributed and rules.activation_threshold is not None:
                share_activation(layer)
            for weight in layer.weights:
                threshold = rules.activation_threshold
                active = None if threshold is None else layer.active(weight, threshold)
                weight.belief = belief.raised(
                    weight.belief,
                    weight.parameter,
                    rules.weight_threshold,
                    rules.belief_increment,
                    active,
                    rules.belief_fall,
                )
            layer.activation, layer.activations = None, 0
            if rules.freeze_patience is not None:
                self._observe_stillness(layer)

    def _observe_stillness(self, layer: Layer) -> None:
        moves = [(w.previous, w.parameter, w.pruned) for w in layer.weights if w.previous is not None]
        if moves:
            calm = freezing.still_share(moves, self.rules.freeze_delta) >= self.rules.freeze_fraction
            layer.still = layer.still + 1 if calm else 0
        for weight in layer.weights:
            if weight.previous is None:
                weight.previous = weight.parameter.detach().clone()
            else:
                weight.previous.copy_(weight.parameter)

    def _still_layers(self) -> Iterator[tuple[int, str]]:
        rules = self.rules
        for i, layer in enumerate(self.layers):
            if rules.freeze_patience is not None and not layer.frozen and layer.still >= rules.freeze_patience:
                share = f"at least {rules.freeze_fraction:.0%} of its weights"
                yield i, f"{share} moved by less than {rules.freeze_delta:g} in each of {layer.still} epochs"

    def _freeze(self, layer: int, reason: str) -> Event:
        before = self._announced()
        self.stored[layer] = surgery.freeze(self.layers[layer], self.optimizer)
        return self._log(Frozen, (layer,), reason, before)

    def _announced(self) -> Shape:
        """The shape before an event, of which the watchers know now."""
        for watcher in self.watchers:
            watcher.before(self)
        return self.shape()

    def _log(self, kind: type[Event], layers: tuple[int, ...], reason: str, before: Shape) -> Event:
        event = kind(self.epoch, layers, reason, before, self.shape())
        self.events.append(event)
        for watcher in self.watchers:
            watcher.after(self, event)
        return event

    def _before_step(self, *_: Any) -> None:
        for layer in self.layers:
            if not layer.frozen:
                layer.before_step()

    def _silence_all(self, *_: Any) -> None:
        """Set pruned weights to zero again, wherever they may have come from."""
        if self.optimizer is None:
            return
        for layer in self.layers:
            for weight in layer.weights:
                surgery.silence(weight, self.optimizer.state.get(weight.parameter, {}))

    def _agreed(self, metric: Any) -> float:
        """The metric as a number; under DistributedDataParallel, its mean over all processes."""
        try:
            value = float(metric)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"metric must be a finite number, got {metric!r}") from None
        if self.distributed:
            value = mean_over_processes(value, next(self.model.parameters()).device)
        if not math.isfinite(value):  # on one process or on all: then all of them stop here
            raise ValueError(f"metric must be a finite number, got {value}")
        return value

    def _check_attachable(self) -> None:
        """Refuse what cannot be trained and changed at the same time."""
        if isinstance(self.optimizer, torch.optim.LBFGS):
            raise ValueError("optimizer must keep a state for each parameter, got LBFGS, which keeps one for all")
        blocks = surgery.find_stack(self.model, self.stack)
        if blocks in _ATTACHED:
            raise ValueError(f"gpf is attached to {self.stack!r} of this model already; call detach() first")
        if len({id(block) for block in blocks}) < len(blocks):
            raise ValueError(f"stack must hold each block once, got {self.stack!r} with a block twice")
        members = {id(p) for group in self.optimizer.param_groups for p in group["params"]}
        for name, parameter in blocks.named_parameters():
            if parameter.requires_grad and id(parameter) not in members:
                where = f"{self.stack}.{name}" if self.stack else name
                raise ValueError(f"optimizer must train the whole stack, got one without {where}")

    def _check_changeable(self) -> None:
        if self.optimizer is None:
            raise ValueError("this checkpoint was saved without its optimizer, so the network cannot change")
        if torch.is_inference_mode_enabled():
            raise ValueError("the network cannot change in torch.inference_mode; call this outside of it")

    def _checked_layer(self, layer: int) -> int:
        if not isinstance(layer, int) or not 0 <= layer < self.depth:
            raise ValueError(f"layer must be a whole number from 0 to {self.depth - 1}, got {layer!r}")
        return layer


def _reason_to_undo(since: float | None, before: float | None) -> str:
    """What the metric reached since the growth and before it, as far as it was measured."""
    if since is None:
        return f"{METRIC} was not measured since the growth"
    earlier = "not measured" if before is None else f"{before:.4g}"
    return f"{METRIC} was at best {since:.4g} since the growth, {earlier} before it"

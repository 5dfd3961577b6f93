"""GrowPruneFreeze decides when the network changes: it asks the rules, calls the surgery, and keeps the log."""

import dataclasses
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn, Protocol, SupportsFloat

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gpf.network import growth, pruning, sharding, surgery
from gpf.network.attaching import ATTACHED, check_attachable, check_shardable, shorten
from gpf.network.blocks.arrangeable import check_arrangeable
from gpf.network.blocks.factory import default_block, new_blocks
from gpf.network.caching import FrozenCache
from gpf.network.checkpoints.saving import save
from gpf.network.checkpoints.state import restore, unique_tensors
from gpf.network.compaction.compact import compact
from gpf.network.compaction.links import is_chain
from gpf.network.compaction.units import unit_groups
from gpf.network.drawing import drawing
from gpf.network.events import (
    METRIC,
    Event,
    Frozen,
    Grown,
    Pruned,
    Regrown,
    Removed,
    Shape,
    Thawed,
    Undone,
    newest_layers,
)
from gpf.network.followers import bring_in_line, check_follower, take_out
from gpf.network.growing import add_blocks, cost_ratio, has_room, next_blocks
from gpf.network.growth import Plateau
from gpf.network.hooks import Hook
from gpf.network.layer import Layer, Weight
from gpf.network.masking import Masking, replaced
from gpf.network.moments import keeps_second_moment
from gpf.network.observation import observe
from gpf.network.optimizers import Optimizers
from gpf.network.presets import chosen_rules
from gpf.network.prunable import Prunable
from gpf.network.removal import can_remove_units, remove_units
from gpf.network.rules import Preset, Rules, batch_size
from gpf.network.schedule import Schedule, check_planned
from gpf.network.selection import candidates, regrowing, select
from gpf.network.wrappers import is_distributed, mean_over_processes, renew, share_activation, unwrap

BlockFactory = Callable[[int], nn.Module]


class Watcher(Protocol):
    """A function that is called just before and just after each event; see `GrowPruneFreeze.watchers`."""

    def before(self, net: "GrowPruneFreeze") -> None:
        """Something is about to happen."""

    def after(self, net: "GrowPruneFreeze", event: Event) -> None:
        """It has happened."""


def attach(
    model: nn.Module,
    optimizer: Optimizer | Iterable[Optimizer],
    stack: str = "layers",
    block: BlockFactory | None = None,
    rules: Rules | Preset | None = None,
    prunable: Prunable | None = None,
    steps: int | None = None,
) -> "GrowPruneFreeze":
    """Let a model's stack of blocks grow, prune and freeze while an optimizer trains it.

    Training code does not change: masks and statistics use hooks. Call `end_epoch` with a metric now and then.

    Args:
        model: Any module with a stack of like blocks, or DistributedDataParallel or torch.compile around one.
        optimizer: The optimizer that trains it, or several, such as Muon for matrices and AdamW for the rest.
        stack: Path to the `Sequential` or `ModuleList` that holds the blocks.
        block: Makes a new block, given its place in the stack; if not given, the model's own `make_block` or, without
            one, a function that copies the last block and initialises the copy.
        rules: When to do what; or `faster`, rules for less training time that fit the model's depth, or `smaller`,
            rules for fewer parameters that prune units, or weights where no units of the model can be removed.
        prunable: Whether a parameter, given by its name within the block, is a weight that may lose entries; by default
            every matrix and kernel but embeddings, tables of positions, scales and the like.
        steps: Planned number of optimizer steps, for rules that go by it (`grow_at`).

    >>> import torch, gpf
    >>> model = gpf.MLP(inputs=22, width=64, outputs=6)
    >>> optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    >>> net = gpf.attach(model, optimizer, rules=gpf.Rules(grow_patience=2, max_depth=3))
    >>> [str(event) for loss in (1.0, 1.0, 1.0) for event in net.end_epoch(loss)]  # doctest: +ELLIPSIS
    ['epoch 3: grown layer 1 (the metric improved by 0 in 2 epochs, less than 0.001); depth 1 -> 2, ...']
    """
    bare = unwrap(model)
    surgery.find_stack(bare, stack)  # says what is wrong with the path
    chosen = chosen_rules(rules, bare, stack)
    check_planned(chosen, steps)
    if block is None:
        block = getattr(bare, "make_block", None) or default_block(bare, stack)
    if chosen.start_depth is not None:
        shorten(model, Optimizers(optimizer), stack, chosen, prunable)
    net = GrowPruneFreeze(bare, optimizer, stack, block, chosen, is_distributed(model), prunable, steps)
    net.masking.watch_wrapper(model)
    return net


class GrowPruneFreeze:
    """A model that grows, prunes and freezes itself; made by `attach` or `load`.

    Attributes:
        model: The model, without wrappers.
        optimizers: Its optimizers; None after loading a checkpoint that has none.
        schedulers: The learning-rate schedulers that `load` has made.
        events: All events so far, oldest first.
        epoch: Number of epochs that have ended. It only counts up: undoing a growth does not turn it back.
        extra: User data of the checkpoint that it was loaded from.
        watchers: Called before and after each event, in order; they are not part of a checkpoint.
        followers: Copies of the model that change as it does; see `follow`.
        schedule: Optimizer steps, done and planned.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | Iterable[Optimizer],
        stack: str,
        block: BlockFactory,
        rules: Rules,
        distributed: bool = False,
        prunable: Prunable | None = None,
        steps: int | None = None,
    ) -> None:
        optimizers = Optimizers(optimizer)
        check_attachable(model, stack, optimizers)
        check_arrangeable(model, stack, rules)
        self.schedule: Schedule = Schedule(steps)
        self.model = model
        self.optimizers: Optimizers | None = optimizers
        self.schedulers: list[Any] = []
        self.stack = stack
        self.make_block = block
        self.rules: Rules = rules
        self.sharded: bool = sharding.is_sharded(model)
        self.distributed: bool = distributed or self.sharded
        check_shardable(self.sharded, rules)
        self.prunable = prunable
        self.epoch: int = 0
        self.events: list[Event] = []
        self.extra: dict[str, Any] = {}
        self.watchers: list[Watcher] = []
        self.followers: list[nn.Module] = []
        self.plateau: Plateau = Plateau()
        self.prunes_due: list[int] = []  # epochs left until each
        self.layers: list[Layer] = [Layer(module, prunable) for module in surgery.find_stack(model, stack)]
        self.stored: dict[int, surgery.Stored] = {}  # optimizer state of frozen layers
        self.before_growth: tuple[dict[str, Tensor], dict[str, Any]] | None = None
        for layer in self.layers:
            self._watch(layer)
        self.masking: Masking = Masking(self.layers, model, optimizers)
        self._counting = optimizers.members[0].register_step_post_hook(Hook(self._count_step))
        ATTACHED.add(surgery.find_stack(model, stack))

    # What it is

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer, if there is exactly one."""
        if self.optimizers is None:
            return None  # type: ignore[return-value]
        if len(self.optimizers.members) > 1:
            raise ValueError(f"this network has {len(self.optimizers.members)} optimizers; see net.optimizers")
        return self.optimizers.members[0]

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
        """Current depth, sizes and frozen layers of the stack."""
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
        """Weights and biases of the whole model, inside and outside the stack, that are not pruned."""
        pruned = sum(weight.count_pruned() for layer in self.layers for weight in layer.weights)
        return sum(parameter.numel() for parameter in self.model.parameters()) - pruned

    def batch_size(self, initial: int, loss: float) -> int:
        """The batch size that the rules advise at this loss."""
        return batch_size(initial, loss, self.rules.batch_decay)

    def __str__(self) -> str:
        return drawing(self.model, self.stack, self.layers, self.shape(), self.epoch)

    # What it does

    @torch.no_grad()
    def end_epoch(self, metric: SupportsFloat, progress: float | None = None) -> list[Event]:
        """End an epoch with this metric, a number or a scalar tensor: grow, prune and freeze what is due.

        Under DistributedDataParallel the metric is averaged over all processes, and all of them do the same.
        `progress` is the share of the training that is done, for rules that go by it (`grow_at`, `prune_to`); by
        default that of the planned steps.
        """
        self._check_changeable()
        progress = self.schedule.progress(progress)
        metric = self._agreed(metric)
        rules = self.rules
        warm = self.epoch >= rules.warmup
        plateau = self.plateau.after(metric, rules, warm)
        fallen = plateau.fallen(rules) if warm else None
        planned = growth.count_due(rules.grow_at, self.schedule.passed, progress) if warm else 0
        planned = planned if progress < 1.0 else 0  # nothing would train them
        reason = fallen
        if reason is None and warm and has_room(self) and self.plateau.trial == 0:  # one growth on trial at a time
            reason = growth.reason_to_grow(plateau, rules, progress if planned else None, cost_ratio(self))
        new = next_blocks(self, max(1, planned)) if reason is not None and has_room(self) else None
        # Everything that can fail has been tried: from here on the network changes.
        self.epoch += 1
        ending_trial, self.plateau = self.plateau.trial == 1, plateau
        if not warm:
            return []
        self._observe()
        if fallen is not None:
            self.schedule.passed += planned
            return self._start_over(fallen, new)
        due = [left - 1 for left in self.prunes_due]
        self.prunes_due = [left for left in due if left > 0]
        if self.before_growth is not None and ending_trial:
            if plateau.trial_failed(rules):
                failures = 1 + sum(isinstance(event, Undone) for event in self.events)
                return [self.undo(hold=(rules.grow_patience or 0) * 2**failures)]
            if not rules.grow_undoable:
                self.before_growth = None
        events: list[Event] = []
        if any(left <= 0 for left in due):  # before a growth, which spares the newest layers
            events += self._prune(f"{rules.prune_patience} epochs after a growth")
        events += self._planned_pruning(progress)
        if new is not None and reason is not None:
            if any(event.kind == "removed" for event in events):
                new = next_blocks(self, max(1, planned))  # those from before do not fit any more
            events.append(self._grow(new, reason))
            self.schedule.passed += planned
            if 0 in self.prunes_due:
                self.prunes_due.remove(0)
                events += self._prune("in the epoch of a growth")
        for i, why in self._still_layers():
            events.append(self._freeze(i, why))
        if progress >= 1.0:
            self._warn_of_missed_growths()
        return events

    def _warn_of_missed_growths(self) -> None:
        """Say so where a training is over and planned growths are not."""
        missed = len(self.rules.grow_at) - self.schedule.passed
        if missed > 0 and has_room(self):
            self.schedule.passed += missed
            warnings.warn(
                f"training is over and {missed} planned growths are not, so the network has {self.depth} layers;"
                " call end_epoch more often",
                stacklevel=4,
            )

    def _start_over(self, reason: str, new: list[nn.Module] | None) -> list[Event]:
        """The world has changed: let everything learn, add a layer if there is room, and forget the best value."""
        self.plateau, self.before_growth = Plateau(), None
        events = [self.thaw(layer, reason) for layer in self.frozen]
        if new is not None:
            events.append(self._grow(new, reason))
        return events

    def restart(self, rules: Rules, steps: int | None = None) -> None:
        """Restart with new rules at epoch 0, to fine-tune. Depth, masks and belief stay; frozen layers are thawed.

        `steps` are the planned optimizer steps, as for `attach`; no layer is cut off, whatever `start_depth` says.
        """
        self._check_changeable()
        if not isinstance(rules, Rules):
            raise ValueError(f"rules must be gpf.Rules, got {rules!r}")
        check_planned(rules, steps)
        check_arrangeable(self.model, self.stack, rules)
        check_shardable(self.sharded, rules)
        self.schedule = Schedule(steps)
        for frozen in self.frozen:
            self.thaw(frozen)
        self.rules, self.epoch, self.events = rules, 0, []
        self.plateau, self.before_growth, self.prunes_due = Plateau(), None, []
        for layer in self.layers:
            layer.unwatch()
            layer.forget_gradients()
            layer.still = 0
            self._watch(layer)
            layer.update_masks()

    def grow(self, reason: str = "asked for") -> Event:
        """Grow now, without asking the rules: by `grow_by` layers, and at least by one."""
        self._check_changeable()
        return self._grow(next_blocks(self), reason)

    def prune(self, reason: str = "asked for", keep: float | None = None) -> Event:
        """Prune now, in every layer but the newest, what the rules allow.

        With `keep`, weights (or units, by the rules' granularity) go in the order of their saliency, regardless of
        belief, until this share of those layers' weights (or units) is left; frozen layers do not count.
        """
        self._check_changeable()
        if keep is not None and not (isinstance(keep, int | float) and 0.0 <= keep <= 1.0):
            raise ValueError(f"keep must be a number from 0 to 1, got {keep!r}")
        return self._prune(reason, keep)[0]

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
        surgery.thaw(self.layers[layer], self._trained_by(), self.stored.pop(layer), prefix)
        sharding.renew_root(self.model)
        return self._log(Thawed, (layer,), reason, before)

    def cache_frozen(self, limit: int = 2**30) -> FrozenCache:
        """A cache of what enters the first layer that learns, for a data set in memory, of at most this many bytes.

        While leading layers, and what precedes the stack, are frozen, `with cache.rows(indices): model(x)` runs them
        once for each row.
        """
        return FrozenCache(self, limit)

    def undo(self, hold: int | None = None) -> Event:
        """Go back to the state just before the last growth: weights, optimizer and counters, bit for bit.

        Learning rates and other settings keep the values that your schedule gave them. The log is kept, and says so. No
        growth is tried again for `hold` epochs, by default as many as patience.
        """
        self._check_changeable()
        if self.before_growth is None:
            raise ValueError("there is no growth to undo; each can be undone once, with Rules(grow_undoable=True)")
        if hold is not None and not (isinstance(hold, int) and hold >= 0):
            raise ValueError(f"hold must be a whole number of at least 0, got {hold!r}")
        tensors, manifest = self.before_growth
        self._check_undoable(tensors)
        before, since = self._announced(), self.plateau.since
        new = newest_layers(self.events, self.depth)
        for follower in self.followers:
            take_out(follower, self.stack, new)
        restore(self, tensors, manifest)
        self.before_growth = None
        self.plateau = dataclasses.replace(self.plateau, hold=(self.rules.grow_patience or 0) if hold is None else hold)
        reason = _reason_to_undo(since, self.plateau.best_of_all(self.rules))
        return self._log(Undone, (self.depth,), reason, before)

    def renew(self, wrapper: nn.Module) -> Any:
        """Recreate DistributedDataParallel and torch.compile around the model, after an event that is `structural`."""
        renewed = renew(wrapper)
        self.masking.watch_wrapper(renewed)
        return renewed

    def follow(self, copy: nn.Module) -> None:
        """Let a copy of the model, such as torch's AveragedModel, have the same depth and the same masks from now on.

        A new block joins the copy with the weights that it has in the model; pruned weights are zero there, too.
        """
        self.followers.append(check_follower(self.model, copy))

    def remove_units(self, reason: str = "asked for") -> Event:
        """Remove from the model, in place, every unit that pruning has cut off, so it costs no more time.

        What the model computes in evaluation stays the same. Parameters are replaced by smaller ones, in the optimizer
        too; wrappers have to be renewed. A growth from before cannot be undone any more.
        """
        self._check_changeable()
        if self.sharded:
            raise ValueError("units cannot be removed from a sharded model; save it, and load it in one process")
        return self._remove_units(reason)

    def compact(self, fuse: bool = False) -> nn.Module:
        """A smaller dense model that computes the same, without the units that pruning has cut off.

        With `fuse`, batch normalisation is folded into the maps before it, for inference only.
        """
        if sharding.is_sharded(self.model):
            raise ValueError("a sharded model cannot be compacted; save() it, and gpf.load() it in one process")
        self.masking.silence()  # what was written from outside is not kept
        return compact(self.model, self.stack, fuse)

    def save(
        self,
        folder: str | Path,
        optimizer: bool = True,
        extra: dict[str, Any] | None = None,
        scheduler: Any = None,
    ) -> None:
        """Write a checkpoint from which training continues as if it had never stopped; see `load`.

        Without its optimizer it is smaller, and good for using the model. What else belongs to your training, tensors
        or plain data that JSON can hold, goes into `extra`, in the same unbroken step, and comes back as `net.extra`.
        A learning-rate scheduler, or several in a list, goes into `scheduler`; `load` takes functions that make them.
        Under DistributedDataParallel the first process writes, and the others wait for it.
        """
        save(self, Path(folder), optimizer, extra, scheduler)

    def detach(self) -> nn.Module:
        """Remove all hooks and return the model; it keeps its shape, and pruned weights may come back in training."""
        for layer in self.layers:
            layer.unwatch()
        self.masking.remove()
        self._counting.remove()
        ATTACHED.discard(surgery.find_stack(self.model, self.stack))
        return self.model

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError("hooks cannot be copied; use copy.deepcopy(net.model), or save() and gpf.load()")

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("hooks cannot be pickled; use save() and gpf.load(), or pickle net.model")

    # How it does it

    def _check_undoable(self, tensors: Mapping[str, Tensor]) -> None:
        """Refuse to go back to a state of a model that has grown or shrunk elsewhere since."""
        prefix = f"model/{self.stack}." if self.stack else "model/"
        then = {name for name in tensors if name.startswith("model/") and not name.startswith(prefix)}
        now = {f"model/{name}" for name in unique_tensors(self.model)}
        if then != {name for name in now if not name.startswith(prefix)}:
            raise ValueError("the model has changed outside of this stack since the growth, which cannot be undone now")

    def _trained_by(self) -> Optimizers:
        assert self.optimizers is not None  # `_check_changeable` has said so
        return self.optimizers

    def adopt(self, block: nn.Module) -> None:
        """Watch a block that is now the last of the stack; nothing is logged."""
        layer = Layer(block, self.prunable)
        self._watch(layer)
        self.layers.append(layer)
        self.masking.structure_changed()

    def _watch(self, layer: Layer) -> None:
        squares: set[str] = set()
        if self.rules.saliency == "obd" and self.optimizers is not None:
            of = {weight.name: self.optimizers.find(weight.parameter)[1] for weight in layer.weights}
            squares = {name for name, optimizer in of.items() if not keeps_second_moment(optimizer)}
        layer.watch(squares, self.rules.activation_threshold is not None, dense=self.rules.regrow > 0)

    def extend(self) -> None:
        """Put a block of whatever weights at the end of the stack, for `state.restore` to fill; nothing is logged."""
        (block,) = new_blocks(self.model, self.stack, self.make_block, self.rules.grow_init, self.distributed)
        surgery.append_block(self.model, self.stack, block)
        self.adopt(block)

    def _count_step(self, *_: Any) -> None:
        self.schedule.step += 1

    def _grow(self, blocks: list[nn.Module], reason: str) -> Event:
        before = self._announced()
        places = add_blocks(self, self._trained_by(), blocks)
        self.plateau = self.plateau.restarted(self.rules)
        if self.rules.prune_patience is not None:
            self.prunes_due.append(self.rules.prune_patience)
        return self._log(Grown, places, reason, before)

    def _planned_pruning(self, progress: float) -> list[Event]:
        """Prune as far as the plan has it by now, if that is further than before; with `regrow`, exchange weights."""
        rules = self.rules
        if rules.prune_to is None:
            return []
        begin, end, why = rules.prune_from, rules.prune_until, f"planned, at {progress:.1%} of the training"
        keep = pruning.scheduled_keep(progress, begin, end, rules.prune_to)
        if not pruning.is_due(keep, self.schedule.kept, rules.prune_to, rules.prune_steps):
            return []
        self.schedule.kept = keep
        back: list[tuple[Layer, Weight, Tensor]] = []
        total = 1
        if share := pruning.scheduled_regrowth(progress, begin, end, rules.regrow):
            back, total = regrowing([layer for layer in self.layers if not layer.frozen], keep, share, self.distributed)
        count = sum(int(torch.count_nonzero(mask)) for _, _, mask in back)
        events = self._prune(why, keep - count / total, spare_newest=False)
        if count:
            events.append(self._regrow(back, count, why))
        for layer in self.layers:
            layer.forget_dense_gradients()
        return events

    def _regrow(self, back: list[tuple[Layer, Weight, Tensor]], count: int, why: str) -> Event:
        before, touched = self._announced(), []
        for layer, weight, mask in back:
            if bool(mask.any()):
                surgery.regrow(layer, weight, mask, self._trained_by())
                touched.append(self.layers.index(layer))
        reason = f"{count:,} pruned weights with the largest gradients, {why}"
        return self._log(Regrown, tuple(sorted({*touched})), reason, before)

    @torch.no_grad()
    def _prune(self, why: str, keep: float | None = None, spare_newest: bool = True) -> list[Event]:
        """Prune and, if the rules say so, remove the units that this has cut off."""
        before, rules = self._announced(), self.rules
        if rules.granularity == "unit" and self.sharded:
            raise ValueError("granularity must be 'weight' for a sharded model, got 'unit'")
        units = unit_groups(self.model, self.stack) if rules.granularity == "unit" else []
        spared = newest_layers(self.events, self.depth) if spare_newest else ()
        by_unit = rules.granularity == "unit"
        removed = [layer.removed_units if by_unit else layer.removed_weights for layer in self.layers]
        selection = select(candidates(self.layers, rules, self._trained_by(), spared), units, rules, keep, removed)
        counts = [0] * self.depth
        for place, weight, mask in selection.masks:
            counts[place] += surgery.prune(self.layers[place], weight, mask, self._trained_by())
        touched = tuple(i for i, count in enumerate(counts) if count)
        cost = "absolute value" if rules.saliency == "magnitude" else f"saliency ({rules.saliency})"
        if keep is None:
            which = f"with belief below {rules.belief_threshold:g} and {cost} below {rules.saliency_threshold:g}"
        else:
            which = f"with the lowest {cost}, to keep {keep:.1%}"
        reason = f"{selection.chosen:,} of {selection.total:,} {selection.what} {which}, {why}"
        events = [self._log(Pruned, touched, reason, before)]
        if rules.remove_units and can_remove_units(self.model, self.stack, self.layers):
            events.append(self._remove_units(why))
        return events

    def _remove_units(self, why: str) -> Event:
        before = self._announced()
        self.masking.silence()  # what was written from outside is not kept
        counts = remove_units(self.model, self.stack, self.layers, self._trained_by(), self.stored, self.followers)
        if any(counts):
            self.before_growth = None  # it has other sizes
        touched = tuple(i for i, count in enumerate(counts) if count)
        return self._log(Removed, touched, f"{sum(counts):,} units that pruning has cut off, {why}", before)

    def _observe(self) -> None:
        """Bring beliefs and stillness up to date with the epoch that has ended."""
        for layer in self.layers:
            if layer.frozen:
                continue
            for weight in layer.masked:
                surgery.silence(weight, self.optimizers)  # whatever training code has done to it
            if self.distributed and self.rules.activation_threshold is not None:
                share_activation(layer)
            observe(layer, self.rules)

    def _still_layers(self) -> Iterator[tuple[int, str]]:
        """The layers to freeze, with the reason; the last thing that learns is never frozen."""
        rules = self.rules
        for i, layer in enumerate(self.layers):
            if rules.freeze_patience is None or layer.frozen or layer.still < rules.freeze_patience:
                continue
            own = {id(p) for p in layer.parameters()}
            if all(id(p) in own for group in self._trained_by().groups for p in group["params"]):
                continue
            share = f"at least {rules.freeze_fraction:.0%} of its weights"
            yield i, f"{share} moved by less than {rules.freeze_delta:g} in each of {layer.still} epochs"

    def _freeze(self, layer: int, reason: str) -> Event:
        before = self._announced()
        self.stored[layer] = surgery.freeze(self.layers[layer], self._trained_by())
        return self._log(Frozen, (layer,), reason, before)

    def _announced(self) -> Shape:
        """The shape before an event, after its watchers were called."""
        for watcher in self.watchers:
            watcher.before(self)
        return self.shape()

    def _log(self, kind: type[Event], layers: tuple[int, ...], reason: str, before: Shape) -> Event:
        self.masking.structure_changed()
        for follower in self.followers:
            bring_in_line(follower, self.model, self.stack, self.layers)
        event = kind(self.epoch, layers, reason, before, self.shape())
        self.events.append(event)
        for watcher in self.watchers:
            watcher.after(self, event)
        return event

    def _agreed(self, metric: Any) -> float:
        """The metric as a number; under DistributedDataParallel, its mean over all processes."""
        try:
            value = float(metric.detach() if isinstance(metric, Tensor) else metric)
        except (TypeError, ValueError, OverflowError):
            raise ValueError(f"metric must be a finite number, got {metric!r}") from None
        if self.distributed:
            value = mean_over_processes(value, next(self.model.parameters()).device)
        if not math.isfinite(value):  # on one process or on all: then all of them stop here
            raise ValueError(f"metric must be a finite number, got {value}")
        return value

    def _check_changeable(self) -> None:
        if self.optimizers is None:
            raise ValueError("this checkpoint was saved without its optimizer, so the network cannot change")
        sharding.settle(self.model)
        if not self.sharded and sharding.is_sharded(self.model):
            raise ValueError("model must be sharded before gpf is attached to it, got one that was sharded after")
        for i, layer in enumerate(self.layers):
            for weight in layer.weights:
                if weight.is_replaced(layer.block):
                    raise ValueError(replaced(i, weight))
        if torch.is_inference_mode_enabled():
            raise ValueError("the network cannot change in torch.inference_mode; call this outside of it")

    def _checked_layer(self, layer: int) -> int:
        if not isinstance(layer, int) or isinstance(layer, bool) or not 0 <= layer < self.depth:
            raise ValueError(f"layer must be a whole number from 0 to {self.depth - 1}, got {layer!r}")
        return layer


def _reason_to_undo(since: float | None, before: float | None) -> str:
    """The best metrics since the growth and before it, as far as it was measured."""
    if since is None:
        return f"{METRIC} was not measured since the growth"
    earlier = "not measured" if before is None else f"{before:.4g}"
    return f"{METRIC} was at best {since:.4g} since the growth, {earlier} before it"

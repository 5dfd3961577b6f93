"""Lightning's Trainer: a callback that grows, prunes and freezes a module, and resumes from its checkpoints."""

import logging
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from gpf.network import surgery
from gpf.network.controller import BlockFactory, GrowPruneFreeze, attach
from gpf.network.integrations.restoring import (
    attached_again,
    checkpoint_state,
    depth_of,
    extend_to,
    factory_of,
    restore_state,
)
from gpf.network.presets import chosen_rules
from gpf.network.prunable import Prunable
from gpf.network.rules import Preset, Rules

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    try:
        from lightning.pytorch import Callback, LightningModule, Trainer
    except ImportError:
        try:  # the older name of the same library; a Trainer takes only callbacks of its own package
            from pytorch_lightning import Callback, LightningModule, Trainer
        except ImportError:
            raise ImportError("gpf.network.integrations.lightning needs lightning; pip install lightning") from None

logger: logging.Logger = logging.getLogger(__name__)


class GrowPruneFreezeCallback(Callback):
    """Lets a `LightningModule` grow, prune and freeze while a `Trainer` fits it.

    An epoch of the rules ends with every validation, or without validation with every epoch of training. Events go
    to the logger of this file, at level INFO; depth, density and the number of frozen layers to the Trainer's loggers.
    Lightning's checkpoints hold what is needed: `trainer.fit(model, ckpt_path=...)` on a module as it was first built
    restores depth, masks, frozen layers, beliefs and counters; `trainer.test(ckpt_path="best")` works, too. For
    `load_from_checkpoint` see `extend`.

    Args:
        stack: Path to the module's blocks, such as `model.layers`.
        rules: When to do what; `Rules()` if not given, or the name of a preset, as for `attach`. Rules that go by the
            planned steps (`grow_at`) take them from the Trainer.
        block: Makes a new block, given its place in the stack, as for `attach`.
        monitor: Name of the metric, as it is logged.
        prunable: Which parameters are weights that may lose entries, as for `attach`.

    Attributes:
        net: The network, from the beginning of fitting on.
    """

    net: GrowPruneFreeze

    def __init__(
        self,
        stack: str,
        rules: Rules | Preset | None = None,
        block: BlockFactory | None = None,
        monitor: str = "val_loss",
        prunable: Prunable | None = None,
    ) -> None:
        self.stack = stack
        self.rules: Rules | Preset = rules or Rules()
        self.block = block
        self.monitor = monitor
        self.prunable = prunable
        self._stage = ""
        self._known_depth = 0  # number of blocks whose mode is right
        self._optimizers: list[Optimizer] = []
        self._loaded: dict[str, Any] | None = None
        self._guard: RemovableHandle | None = None

    @property
    def state_key(self) -> str:
        """Where the state lies in a checkpoint; two callbacks, of two stacks, have two places."""
        return self._generate_state_key(stack=self.stack)

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Let the module get a checkpoint's depth when Lightning loads weights into it."""
        if trainer.world_size > 1:
            raise ValueError(f"world_size must be 1, got {trainer.world_size}: a wrapped module would not grow")
        surgery.find_stack(pl_module, self.stack)  # says what is wrong with the path, before training
        if isinstance(self.rules, str):
            self.rules = chosen_rules(self.rules, pl_module, self.stack)
        self._stage = stage
        self._guard = pl_module.register_load_state_dict_pre_hook(self._match_depth)

    def _match_depth(self, module: nn.Module, state: dict[str, Any], *_: Any) -> None:
        depth = depth_of(state, self.stack)
        if depth in (0, len(surgery.find_stack(module, self.stack))):
            return
        if self._is_attached(module):
            self.net = attached_again(self.net, self._optimizers, depth, state)
        else:
            shorten = isinstance(self.rules, Rules) and self.rules.start_depth is not None
            extend_to(module, self.stack, depth, self.block, state, shorten)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the state of a checkpoint; to fit, as soon as there are optimizers."""
        if self._stage == "fit" or not hasattr(self, "net"):
            self._loaded = state_dict
        else:
            restore_state(self.net, state_dict)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Attach; from a checkpoint, also bring the optimizer's groups to the order in which Lightning saved them."""
        self._optimizers = list(trainer.optimizers)
        if not self._optimizers:
            raise ValueError("configure_optimizers must return an optimizer, got none")
        state, self._loaded = self._loaded, None
        if self._is_attached(pl_module):  # it is fitted again, with new optimizers
            state = state or checkpoint_state(self.net)
            self.net = attached_again(self.net, self._optimizers)
        else:
            block = factory_of(pl_module, self.stack, self.block)
            rules = (
                self.rules if isinstance(self.rules, str) or state is None else replace(self.rules, start_depth=None)
            )
            steps = _planned_steps(trainer)
            self.net = attach(pl_module, self._optimizers, self.stack, block, rules, self.prunable, steps)
        if state is not None:
            restore_state(self.net, state)
        self._known_depth = self.net.depth

    def _is_attached(self, module: nn.Module) -> bool:
        return hasattr(self, "net") and self.net.model is module

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """An epoch has ended; Lightning's own callback that saves checkpoints comes after this one."""
        if trainer.state.fn == "fit" and not trainer.sanity_checking:
            self._end_epoch(trainer)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Let blocks that were added during a validation train."""
        self._set_mode()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """An epoch has ended, where nothing is validated."""
        self._set_mode()
        if not trainer.enable_validation:
            self._end_epoch(trainer)

    def _set_mode(self) -> None:
        """Lightning brings back the mode that modules had before a validation; it does not know the new ones."""
        blocks = surgery.find_stack(self.net.model, self.stack)
        for i in range(self._known_depth, len(blocks)):
            blocks[i].train(blocks[i - 1].training)
        self._known_depth = len(blocks)

    def state_dict(self) -> dict[str, Any]:
        """State that Lightning does not save itself: plain data and tensors."""
        return checkpoint_state(self.net) if hasattr(self, "net") else {}

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Take the hook of `setup` away."""
        if self._guard is not None:
            self._guard.remove()

    def _end_epoch(self, trainer: Trainer) -> None:
        metrics = trainer.callback_metrics
        if self.monitor not in metrics:
            logged = ", ".join(sorted(metrics)) or "nothing is logged"
            raise ValueError(f"monitor must be a logged metric ({logged}), got {self.monitor!r}")
        metric = float(metrics[self.monitor])
        with torch.inference_mode(False):  # in which Lightning validates, and which new parameters must not know
            events = self.net.end_epoch(metric)
        for event in events:
            logger.info("%s", event)
        shape = self.net.shape()
        values = {"depth": float(shape.depth), "density": shape.density, "frozen": float(len(shape.frozen))}
        for one in trainer.loggers:
            one.log_metrics(values, step=trainer.global_step)


def _planned_steps(trainer: Trainer) -> int | None:
    """The optimizer steps that a Trainer is going to take, if it knows."""
    steps = trainer.estimated_stepping_batches
    return int(steps) if math.isfinite(steps) and steps >= 1 else None


def extend(module: LightningModule, checkpoint: dict[str, Any], stack: str, block: BlockFactory | None = None) -> None:
    """Bring a module to the depth of a checkpoint; for its own `on_load_checkpoint`, to load it alone."""
    state = checkpoint["state_dict"]
    extend_to(module, stack, depth_of(state, stack), block, state)

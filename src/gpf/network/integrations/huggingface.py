"""Hugging Face's Trainer: a callback that grows, prunes and freezes its model, and `resume`."""

import logging
from pathlib import Path
from typing import Any

from torch import nn

from gpf.network import surgery
from gpf.network.checkpoints.saving import CheckpointError
from gpf.network.controller import BlockFactory, GrowPruneFreeze, attach
from gpf.network.integrations.restoring import depth_of, factory_of, hold_frozen, release_frozen, restore_into
from gpf.network.optimizers import Optimizers
from gpf.network.presets import chosen_rules
from gpf.network.prunable import Prunable
from gpf.network.rules import Preset, Rules

try:
    from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint
except ImportError:
    raise ImportError(
        "gpf.network.integrations.huggingface needs transformers and accelerate; pip install transformers accelerate"
    ) from None

logger: logging.Logger = logging.getLogger(__name__)
FOLDER = "gpf"
"""The folder of the network inside each checkpoint of the Trainer."""
HOW = "resume with gpf.network.integrations.huggingface.resume(trainer, checkpoint)"


class GrowPruneFreezeCallback(TrainerCallback):
    """Lets the model of a `Trainer` grow, prune and freeze while it is trained.

    An epoch of the rules ends whenever the metric is measured: with every evaluation for a metric of the evaluation
    (`eval_loss`), with every logging step for one of training (`loss`). Depth, density and the number of frozen layers
    join that entry of `state.log_history`; events go to the logger of this file, at level INFO. Each checkpoint of the
    Trainer gets a folder `gpf`; see `resume`. With `load_best_model_at_end` the network becomes that of the best
    checkpoint in depth, masks and counters, too.

    Args:
        stack: Path to the model's blocks, such as `transformer.h`.
        rules: When to do what; `Rules()` if not given, or the name of a preset, as for `attach`. Rules that go by the
            planned steps (`grow_at`) take them from the Trainer.
        block: Makes a new block, given its place in the stack, as for `attach`.
        metric: Name of the metric, as it stands in the logs.
        prunable: Which parameters are weights that may lose entries, as for `attach`.

    Attributes:
        net: The network, from the beginning of training on.
    """

    net: GrowPruneFreeze

    def __init__(
        self,
        stack: str,
        rules: Rules | Preset | None = None,
        block: BlockFactory | None = None,
        metric: str = "eval_loss",
        prunable: Prunable | None = None,
    ) -> None:
        self.stack = stack
        self.rules: Rules | Preset = rules or Rules()
        self.block = block
        self.metric = metric
        self.prunable = prunable
        self._training = False
        self._begun_at = 0
        self._found_at = -1  # step of the last evaluation with the metric
        self._lacking: list[str] = []  # other metrics, which were measured without it
        self._resumed: tuple[Path, list[nn.Parameter]] | None = None
        self._guard: Any = None

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Refuse what cannot work, including resuming without `resume`."""
        _check_arguments(args, self.metric)
        model = kwargs.get("model")
        if model is not None:
            if isinstance(self.rules, str):
                surgery.find_stack(model, self.stack)  # says what is wrong with the path
                self.rules = chosen_rules(self.rules, model, self.stack)
            self._guard = model.register_load_state_dict_pre_hook(self._check_depth)

    def _check_depth(self, model: nn.Module, state: dict[str, Any], *_: Any) -> None:
        saved, here = depth_of(state, self.stack), depth_of(model.state_dict(), self.stack)
        if saved > here > 0:
            raise CheckpointError(f"the checkpoint has {saved} blocks and the model {here}; {HOW}")

    def prepare(self, model: nn.Module, checkpoint: Path) -> None:
        """Bring a model to the depth of one of the Trainer's checkpoints, before the Trainer loads it."""
        if not (checkpoint / FOLDER).is_dir():
            raise CheckpointError(f"checkpoint {checkpoint}: the folder {FOLDER} is missing; this callback writes it")
        block = factory_of(model, self.stack, self.block)
        self._resumed = checkpoint / FOLDER, hold_frozen(model, checkpoint / FOLDER, block)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Attach, and restore the network of the checkpoint from which training resumes."""
        model, optimizer = kwargs["model"], Optimizers(kwargs["optimizer"]).members[0]
        if self._guard is not None:
            self._guard.remove()
        resumed, self._resumed = self._resumed, None
        if resumed is None and state.global_step > 0:
            raise CheckpointError(f"masks, beliefs and counters are not restored; {HOW}")
        net = getattr(self, "net", None)
        if resumed is not None:
            release_frozen(resumed[1], optimizer)
        if net is None or net.model is not model or net.optimizer is not optimizer:
            if net is not None:
                net.detach()
            block = factory_of(model, self.stack, self.block)
            self.net = attach(model, optimizer, self.stack, block, self.rules, self.prunable, steps=state.max_steps)
        if resumed is not None:
            restore_into(self.net, resumed[0])
        self._training, self._begun_at = True, state.global_step

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """With a metric of training: an epoch has ended."""
        logs: dict[str, Any] = kwargs.get("logs") or {}
        if not self._training or self.metric.startswith("eval_"):
            return
        if self.metric in logs:
            self._end_epoch(float(logs[self.metric]), state)
        elif "loss" in logs:  # which every entry of training has
            self._lacking += logs

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """With a metric of the evaluation: an epoch has ended."""
        if not self._training or not self.metric.startswith("eval_") or state.global_step == self._begun_at:
            return  # somebody wants to see the metric, before training or after it
        metrics: dict[str, Any] = kwargs.get("metrics") or {}
        if self.metric in metrics:
            self._found_at, self._lacking = state.global_step, []
            self._end_epoch(float(metrics[self.metric]), state)
        elif self._found_at != state.global_step:  # another evaluation data set may still bring it
            self._lacking += metrics

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Refuse to train on if the metric was not among those measured."""
        self._check_metric()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Write the network into the checkpoint that the Trainer has just written."""
        self._check_metric()
        checkpoint = Path(str(args.output_dir)) / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
        if checkpoint.is_dir():  # in a hyperparameter search it has another place, and nobody resumes
            self.net.save(checkpoint / FOLDER)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Become the best network, if that was asked for."""
        self._check_metric()
        self._training = False
        if args.load_best_model_at_end and state.best_model_checkpoint is not None:
            restore_into(self.net, Path(state.best_model_checkpoint) / FOLDER)

    def _end_epoch(self, metric: float, state: TrainerState) -> None:
        for event in self.net.end_epoch(metric):
            logger.info("%s", event)
        shape = self.net.shape()
        state.log_history[-1] |= {"depth": shape.depth, "density": shape.density, "frozen": len(shape.frozen)}

    def _check_metric(self) -> None:
        if self._lacking:
            raise ValueError(f"metric must be one of {', '.join(sorted(self._lacking))}, got {self.metric!r}")


def resume(trainer: Trainer, checkpoint: str | Path | None = None) -> Any:
    """Resume training from a checkpoint of the Trainer; takes the place of `trainer.train(resume_from_checkpoint=...)`.

    The Trainer is made as it was the first time, its model as deep as it was then. Resumed training equals unbroken
    training bit for bit.

    Args:
        trainer: A Trainer with one `GrowPruneFreezeCallback`.
        checkpoint: A folder `checkpoint-...`; the last one in `output_dir` if not given.

    Returns:
        The result of `trainer.train`.
    """
    callbacks = [one for one in trainer.callback_handler.callbacks if isinstance(one, GrowPruneFreezeCallback)]
    if len(callbacks) != 1:
        raise ValueError(f"trainer must have one GrowPruneFreezeCallback, got {len(callbacks)}")
    if trainer.model_init is not None:
        raise ValueError("trainer must be given a model to be resumed, got model_init")
    if trainer.optimizer is not None or hasattr(callbacks[0], "net"):
        raise ValueError("trainer must be a new one that makes its optimizer itself, got one that has an optimizer")
    folder = checkpoint or get_last_checkpoint(trainer.args.output_dir)
    if folder is None:
        raise CheckpointError(f"there is no checkpoint in {trainer.args.output_dir}")
    callbacks[0].prepare(trainer.model, Path(folder))
    return trainer.train(resume_from_checkpoint=str(folder))


def _check_arguments(args: TrainingArguments, metric: str) -> None:
    name = "eval_strategy" if metric.startswith("eval_") else "logging_strategy"
    if getattr(args, name) == "no":
        raise ValueError(f"{name} must be 'steps' or 'epoch', because the metric is {metric!r}, got 'no'")
    if args.world_size > 1:
        raise ValueError(f"world_size must be 1, got {args.world_size}: the Trainer keeps its wrapper around the model")
    if args.deepspeed or args.fsdp:
        raise ValueError("deepspeed and fsdp must be off: they hold the parameters of a fixed model")
    if args.torch_compile:
        raise ValueError("torch_compile must be False, got True: the compiled model would not grow")

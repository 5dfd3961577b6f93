"""Lightning's Trainer with a module that grows, prunes and freezes."""

import logging
import subprocess
import sys

import pytest
import torch
from helpers import assert_consistent, assert_same, data, snapshot
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import gpf
from gpf.network.integrations import lightning
from gpf.network.integrations.lightning import GrowPruneFreezeCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore:Be aware that when using:UserWarning"),  # who resumes need not save again
]
BUSY = gpf.Rules(
    grow_patience=1, grow_threshold=9.0, max_depth=3, prune_patience=1, belief_threshold=2.0, saliency_threshold=0.05,
    freeze_patience=4, freeze_delta=9.0,
)  # fmt: skip
"""It grows, prunes and freezes within a few epochs."""


class Regressor(LightningModule):
    def __init__(self, depth=1, name="val_loss"):
        super().__init__()
        torch.manual_seed(0)
        self.net, self.name = gpf.MLP(6, 8, 3, depth), name

    def training_step(self, batch, index):
        x, y = batch
        loss = nn.functional.mse_loss(self.net(x), y)
        self.log("train_loss", loss, on_epoch=True, on_step=False)
        return loss

    def validation_step(self, batch, index):
        self.log(self.name, self.training_loss(batch))

    test_step = validation_step

    def training_loss(self, batch):
        x, y = batch
        return nn.functional.mse_loss(self.net(x), y)

    def configure_optimizers(self):
        """Two groups, the second in another order than the model's, and a schedule."""
        heads, rest = list(self.net.head.parameters()), list(self.net.layers.parameters())
        optimizer = torch.optim.AdamW([{"params": heads, "lr": 0.003}, {"params": rest[::-1]}], lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)]


class Alone(Regressor):
    """A module without validation."""

    validation_step = LightningModule.validation_step


class Loadable(Regressor):
    def on_load_checkpoint(self, checkpoint):
        lightning.extend(self, checkpoint, "net.layers")


def loader():
    return DataLoader(TensorDataset(*data(count=32)), batch_size=8)


def trainer_of(folder, callback, epochs=8, callbacks=(), **options):
    options = {"logger": False, "enable_checkpointing": bool(callbacks), **options}
    return Trainer(
        default_root_dir=folder, max_epochs=epochs, callbacks=[callback, *callbacks], accelerator="cpu",
        enable_progress_bar=False, enable_model_summary=False, **options,
    )  # fmt: skip


def callback_of(rules=BUSY, **options):
    return GrowPruneFreezeCallback("net.layers", rules, **options)


def keep_all(folder):
    return ModelCheckpoint(folder, filename="{epoch}", save_top_k=-1, every_n_epochs=1)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """A finished fit that grew, pruned and froze; its callback and the folder of its checkpoints."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("unbroken")
    callback = callback_of()
    trainer_of(folder, callback, callbacks=[keep_all(folder)]).fit(Regressor(), loader(), loader())
    return callback, folder


def test_a_module_grows_prunes_and_freezes_in_lightning(unbroken):
    callback, _ = unbroken
    assert {event.kind for event in callback.net.events} == {"grown", "pruned", "frozen"}
    assert callback.net.depth == len(callback.net.model.net.layers) == 3
    assert callback.net.epoch == 8  # validations, and not the sanity check
    assert_consistent(callback.net)


@pytest.mark.parametrize("epoch", [0, 1, 3, 6])
def test_resumed_training_equals_unbroken_training(unbroken, tmp_path, epoch):
    callback, folder = unbroken
    resumed = callback_of()
    trainer_of(tmp_path, resumed).fit(Regressor(), loader(), loader(), ckpt_path=folder / f"epoch={epoch}.ckpt")
    assert_same(snapshot(resumed.net), snapshot(callback.net))
    assert resumed.net.events == callback.net.events
    assert resumed.net.epoch == callback.net.epoch
    rates = [[group["lr"] for group in one.net.optimizer.param_groups] for one in (resumed, callback)]
    assert rates[0] == rates[1]


def test_a_module_of_its_final_depth_is_trained_faster_and_resumed(tmp_path):
    """Four layers are cut to two; they double after 75 % of 8 epochs."""
    callback = callback_of("faster")
    trainer_of(tmp_path, callback, callbacks=[keep_all(tmp_path)]).fit(Regressor(depth=4), loader(), loader())
    grown = [(event.epoch, event.after.depth) for event in callback.net.events]
    assert grown == [(6, 4)]
    for epoch in (0, 1, 5):
        again = callback_of("faster")
        trainer_of(tmp_path, again).fit(
            Regressor(depth=4), loader(), loader(), ckpt_path=tmp_path / f"epoch={epoch}.ckpt"
        )
        assert_same(snapshot(again.net), snapshot(callback.net))


def test_the_checkpoints_tested_above_differ_in_depth_and_frozen_layers(unbroken):
    """Plain data and tensors: they load without running code."""
    _, folder = unbroken
    depths, frozen = [], []
    for epoch in (0, 1, 3, 6):
        checkpoint = torch.load(folder / f"epoch={epoch}.ckpt", weights_only=True)
        (state,) = (one for name, one in checkpoint["callbacks"].items() if name.startswith("GrowPruneFreeze"))
        depths.append(len(state["manifest"]["layers"]))
        frozen.append(sum(layer["frozen"] for layer in state["manifest"]["layers"]))
    assert depths == [1, 2, 3, 3]
    assert frozen[:3] == [0, 0, 0]
    assert frozen[3] > 0


@pytest.mark.parametrize("interval", [1.0, 2])
def test_blocks_that_were_added_during_a_validation_train(tmp_path, interval):
    seen = []

    class Watched(Regressor):
        def training_step(self, batch, index):
            seen.append((len(self.net.layers), all(module.training for module in self.modules())))
            return super().training_step(batch, index)

    trainer_of(tmp_path, callback_of(), 4, val_check_interval=interval).fit(module := Watched(), loader(), loader())
    assert {depth for depth, _ in seen} >= {1, 2}
    assert all(training for _, training in seen)
    assert all(module.training for module in module.modules())


def test_rules_that_do_nothing_change_nothing(tmp_path):
    watched, alone = Regressor(), Regressor()
    trainer_of(tmp_path, callback_of(gpf.Rules.fixed()), 3, gradient_clip_val=0.1, accumulate_grad_batches=2).fit(
        watched, loader(), loader()
    )
    trainer = trainer_of(tmp_path, callback_of(), 3, gradient_clip_val=0.1, accumulate_grad_batches=2)
    trainer.callbacks = [one for one in trainer.callbacks if not isinstance(one, GrowPruneFreezeCallback)]
    trainer.fit(alone, loader(), loader())
    for name, tensor in alone.state_dict().items():
        assert torch.equal(watched.state_dict()[name], tensor), name


class TwoOptimizers(Regressor):
    """Matrices and biases have an optimizer each."""

    automatic_optimization = False

    def training_step(self, batch, index):
        loss = super().training_step(batch, index)
        for optimizer in self.optimizers():
            optimizer.zero_grad()
        self.manual_backward(loss)
        for optimizer in self.optimizers():
            optimizer.step()

    def configure_optimizers(self):
        matrices = [p for p in self.parameters() if p.dim() > 1]
        biases = [p for p in self.parameters() if p.dim() == 1]
        return [torch.optim.SGD(matrices, lr=0.1, momentum=0.9), torch.optim.Adam(biases, lr=0.01)]


def test_several_optimizers_are_resumed_too(tmp_path):
    whole, resumed = callback_of(), callback_of()
    trainer_of(tmp_path, whole, callbacks=[keep_all(tmp_path)]).fit(TwoOptimizers(), loader(), loader())
    assert whole.net.frozen
    assert whole.net.depth == 3
    trainer_of(tmp_path, resumed).fit(TwoOptimizers(), loader(), loader(), ckpt_path=tmp_path / "epoch=5.ckpt")
    states = [one.net.model.state_dict() for one in (resumed, whole)]
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(tensor, states[1][name]) for name, tensor in states[0].items())
    assert resumed.net.events == whole.net.events


def test_what_may_be_pruned_is_passed_on(tmp_path):
    callback = callback_of(prunable=lambda name, parameter: False)
    trainer_of(tmp_path, callback, 5).fit(Regressor(), loader(), loader())
    assert callback.net.depth == 3
    assert callback.net.shape().pruned == 0


@pytest.mark.parametrize(
    "options", [{"gradient_clip_val": 0.1, "accumulate_grad_batches": 2}, {"precision": "bf16-mixed"}]
)
def test_accumulation_clipping_and_bfloat16_work(tmp_path, options):
    callback = callback_of()
    trainer_of(tmp_path, callback, **options).fit(Regressor(), loader(), loader())
    assert callback.net.depth == 3
    assert_consistent(callback.net)


def test_without_validation_epochs_of_training_count(tmp_path):
    callback = callback_of(monitor="train_loss")
    trainer = trainer_of(tmp_path, callback, 4)
    trainer.fit(Alone(), loader())
    assert callback.net.epoch == 4
    assert callback.net.plateau.window[-1] == pytest.approx(float(trainer.callback_metrics["train_loss"]))


def test_several_validations_in_an_epoch_count_each(tmp_path):
    callback = callback_of()
    trainer_of(tmp_path, callback, 2, val_check_interval=2).fit(Regressor(), loader(), loader())
    assert callback.net.epoch == 4


def test_the_best_checkpoint_is_tested_with_the_depth_that_it_had(tmp_path):
    callback = callback_of()
    trainer = trainer_of(tmp_path, callback, callbacks=[keep_all(tmp_path)])
    trainer.fit(module := Regressor(), loader(), loader())
    path = tmp_path / "epoch=1.ckpt"
    saved = torch.load(path, weights_only=True)["state_dict"]
    assert callback.net.frozen
    trainer.test(module, loader(), ckpt_path=path, verbose=False)
    assert callback.net.depth == len(module.net.layers) == 2
    assert module.state_dict().keys() == saved.keys()
    assert all(torch.equal(tensor, saved[name]) for name, tensor in module.state_dict().items())
    assert callback.net.epoch == 2
    assert not callback.net.frozen
    assert_consistent(callback.net)


def test_a_module_can_be_fitted_again(tmp_path):
    """With a new optimizer, but the masks, frozen layers and counters that it had."""
    callback = callback_of()
    trainer_of(tmp_path, callback).fit(module := Regressor(), loader(), loader())
    before, pruned, frozen = callback.net.epoch, callback.net.shape().pruned, callback.net.frozen
    assert pruned
    assert frozen
    trainer_of(tmp_path, callback, 1).fit(module, loader(), loader())
    assert callback.net.epoch == before + 1
    assert callback.net.shape().pruned >= pruned
    assert set(frozen) <= set(callback.net.frozen)
    assert_consistent(callback.net)


def test_a_grown_module_can_be_loaded_alone(unbroken):
    callback, folder = unbroken
    module = Loadable.load_from_checkpoint(folder / "epoch=7.ckpt", weights_only=True)
    x, _ = data()
    assert torch.equal(module.net(x), callback.net.model.net(x))


def test_depth_density_and_events_are_logged(tmp_path, caplog):
    callback = callback_of()
    with caplog.at_level(logging.INFO, "gpf.network.integrations.lightning"):
        trainer_of(tmp_path, callback, 3, logger=CSVLogger(tmp_path), log_every_n_steps=1).fit(
            Regressor(), loader(), loader()
        )
    assert [r.message for r in caplog.records if r.name.startswith("gpf")] == list(map(str, callback.net.events))
    (table,) = tmp_path.rglob("metrics.csv")
    header, *lines = table.read_text().splitlines()
    depths = [line.split(",")[header.split(",").index("depth")] for line in lines]
    assert [float(one) for one in depths if one] == [1.0, 2.0, 3.0]


def test_mistakes_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"monitor must be a logged metric \(.*val_loss.*\), got 'accuracy'"):
        trainer_of(tmp_path, callback_of(monitor="accuracy"), 1).fit(Regressor(), loader(), loader())
    with pytest.raises(ValueError, match="stack.*Regressor.*'layers'|'layers'.*Regressor"):
        trainer_of(tmp_path, GrowPruneFreezeCallback("layers")).fit(Regressor(), loader(), loader())


def test_a_deeper_module_than_that_of_the_checkpoint_is_refused(unbroken, tmp_path):
    _, folder = unbroken
    with pytest.raises(ValueError, match="the model must have at most 2 blocks, as many as were saved, got 3"):
        trainer_of(tmp_path, callback_of()).fit(
            Regressor(depth=3), loader(), loader(), ckpt_path=folder / "epoch=1.ckpt"
        )


def test_without_lightning_the_error_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "gpf.network.integrations.lightning")
    for name in ("lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="pip install lightning"):
        import gpf.network.integrations.lightning  # noqa: F401


def test_the_older_package_is_accepted():
    code = """
import sys
sys.modules["lightning.pytorch"] = None
from gpf.network.integrations.lightning import GrowPruneFreezeCallback
import pytorch_lightning
assert issubclass(GrowPruneFreezeCallback, pytorch_lightning.Callback)
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)

"""A network of one hidden layer that grows in Lightning.

python examples/lightning_callback.py [--epochs 40] [--quick]

Prints what grew, and the loss on new data before and after.
Needs: lightning
"""

import argparse

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import gpf
from gpf.network.integrations.lightning import GrowPruneFreezeCallback


class Regressor(LightningModule):
    """Learns a function; knows nothing of growing."""

    def __init__(self) -> None:
        super().__init__()
        self.model = gpf.MLP(inputs=6, width=32, outputs=3)

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:  # noqa: D102
        return nn.functional.mse_loss(self.model(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor], index: int) -> None:  # noqa: D102
        self.log("val_loss", self.training_step(batch, index))

    def configure_optimizers(self) -> torch.optim.Optimizer:  # noqa: D102
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def loader(count: int) -> DataLoader[tuple[Tensor, ...]]:
    """Batches of a smooth function."""
    x = torch.randn(count, 6)
    return DataLoader(TensorDataset(x, torch.sin(3.0 * x[:, :3] * x[:, 3:])), batch_size=64)


def main() -> None:
    """Train, and say what happened."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--quick", action="store_true", help="15 epochs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # fastest for a small network
    torch.manual_seed(0)
    training, validation, module = loader(1024), loader(512), Regressor()
    rules = gpf.Rules(grow_patience=3, grow_threshold=0.005, max_depth=3, freeze_patience=30)
    callback = GrowPruneFreezeCallback(stack="model.layers", rules=rules, monitor="val_loss")
    trainer = Trainer(
        max_epochs=15 if arguments.quick else arguments.epochs, callbacks=[callback], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    before = trainer.validate(module, validation, verbose=False)[0]["val_loss"]
    trainer.fit(module, training, validation)
    print(*callback.net.events, callback.net, sep="\n")
    print(f"loss on new data: {before:.3f} before, {trainer.callback_metrics['val_loss']:.3f} after")


if __name__ == "__main__":
    main()

"""A task in one file: y = x1 x2, with a network that grows, or with all layers from the start."""

from dataclasses import dataclass

import torch

from gpf.network import MLP, Rules
from gpf.reports.tables import Measure
from gpf.runs.training import Round
from gpf.tasks.task import BOTH, COSTS, RoundTraining, Task, TwoVariants, of_result


@dataclass(frozen=True, kw_only=True)
class Config(TwoVariants):
    layers: int = 3
    epochs: int = 8
    learning_rate: float = 0.01

    def own_rules(self):
        return Rules(warmup=1, grow_patience=1, grow_threshold=10.0, prune_patience=1, max_depth=self.layers)


class Training(RoundTraining):
    def build(self):
        return make_model(self.config)

    def make_optimizer(self, model):
        return torch.optim.Adam(model.parameters(), lr=self.config.learning_rate)

    @property
    def over(self):
        return self.progress["round"] >= self.config.epochs

    def learn(self):
        inputs = torch.rand(64, 2)
        loss = (self.net.model(inputs)[:, 0] - inputs.prod(1)).square().mean()
        self.net.optimizer.zero_grad()
        loss.backward()
        self.net.optimizer.step()
        self.progress["step"] += 1
        return Round({"loss": loss.item()}, self.scored(loss.item()), loss.item())

    def finish(self, phase):
        return {"loss": -self.progress["best"][0]}


def make_model(config):
    return MLP(2, 8, 1, config.layers if config.baseline else 1)


TASK = Task(
    name="toy", reference="toy:TASK", title="A product of two numbers", make=Config.of, training=Training,
    length=lambda config: (config.epochs, "round"), network=make_model, variants=BOTH,
    variant_of=lambda config: config.variant, curves={"loss": lambda line: line["loss"]},
    measures={"loss": Measure("least loss", -1, ".4f", of_result("loss")), **COSTS},
)  # fmt: skip

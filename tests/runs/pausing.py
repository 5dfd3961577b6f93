"""A tiny task whose rounds take as long as one likes, for tests of executors."""

import time
from dataclasses import dataclass, field

import torch

from gpf.network import MLP, Rules
from gpf.runs.folder import read_log
from gpf.runs.training import Round
from gpf.settings import rule_changes
from gpf.tasks.task import RoundTraining, Task, TaskConfig


@dataclass(frozen=True, kw_only=True)
class Config(TaskConfig):
    rounds: int = 5
    pause: float = 0.0
    diverges: bool = False
    rules: dict[str, str] = field(default_factory=dict)

    def network_rules(self):
        grows = {"warmup": 0, "grow_patience": 1, "grow_threshold": 100.0, "max_depth": 3}  # after each round at first
        return Rules(**{**grows, **rule_changes(Rules, self.rules)})


class Training(RoundTraining):
    def build(self):
        return MLP(2, 4, 1)

    def make_optimizer(self, model):
        return torch.optim.Adam(model.parameters(), lr=0.01)

    @property
    def over(self):
        return self.progress["round"] >= self.config.rounds

    def learn(self):
        time.sleep(self.config.pause)
        inputs = torch.randn(16, 2)  # resumed where it was, bit by bit, if random states are
        loss = (self.net.model(inputs)[:, 0] - inputs.prod(1)).square().mean()
        if self.config.diverges:
            loss = loss * torch.nan
        self.net.optimizer.zero_grad()
        loss.backward()
        self.net.optimizer.step()
        self.progress["step"] += 1
        return Round({"loss": float(loss.detach())}, self.scored(float(loss.detach())), float(loss.detach()))

    def finish(self, phase):
        return {"loss": read_log(self.run.folder, "metrics")[-1]["loss"]}


TASK = Task(
    name="pausing:TASK",
    reference="pausing:TASK",
    title="A pause",
    make=Config.of,
    training=Training,
    length=lambda config: (config.rounds, "round"),
)

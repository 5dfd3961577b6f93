"""Train a world model on sequences of tokens; with GPF it begins with one block and grows."""

import dataclasses
import math
import shlex
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from gpf.plume.tokens import STATES, VOCABULARY_VERSION
from gpf.runs.folder import Run, RunError, read_config, read_log, write_json
from gpf.tasks.loop import Report, train_to_the_end, versions
from gpf.tasks.rounds import NetworkTraining, gradient_flops
from gpf.world_model.batches import Windows
from gpf.world_model.config import Config
from gpf.world_model.imagination import estimate_coupling
from gpf.world_model.model import WorldModel, next_token_loss, streams
from gpf.world_model.sequences import PAD_CODE, STREAMS, Dataset, read_dataset
from gpf.world_model.trained import found_chances, make_model, read_run_config

STEPS_IN_A_ROUND = 100
"""Gradient steps of a round, which is GPF's epoch: then there are a validation, a line of metrics and a checkpoint."""
VALIDATION_WINDOWS = 512


def three_parts(dataset: Dataset) -> tuple[Dataset, Dataset, Dataset]:
    """To learn from, to decide on, and to report: eight, one and one of ten sequences."""
    rest, test = dataset.split(0.1)
    train, validation = rest.split(1 / 9)
    return train, validation, test


class Training(NetworkTraining):
    """A round is a hundred gradient steps; the rules look at the loss on some windows of held-out sequences."""

    stack: ClassVar[str] = "blocks"
    config: Config

    def __init__(self, run: Run) -> None:
        config = read_run_config(run.folder)
        learnt, validation, _ = three_parts(checked_data(run.folder, config))
        self._windows = Windows(learnt, config.context)
        self._validation = Windows(validation, config.context).draw(VALIDATION_WINDOWS, (0, 1))
        self._found = torch.from_numpy(found_chances(learnt))
        super().__init__(run, config)

    def build(self) -> WorldModel:
        """The model as it is before it learns."""
        return make_model(self.config)

    def make_optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """AdamW."""
        rate, decay = self.config.learning_rate, self.config.weight_decay
        return torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=decay, fused=True)

    @property
    def over(self) -> bool:
        """Whether there is nothing left to learn."""
        now = self.progress
        return bool(now["step"] >= self.config.steps or now["since_best"] >= self.config.patience)

    def learn(self) -> tuple[float, dict[str, Any]]:
        """A hundred gradient steps on windows from anywhere in the sequences."""
        config, now, model, optimizer = self.config, self.progress, self.net.model, self.net.optimizer
        losses = []
        model.train()
        for _ in range(min(STEPS_IN_A_ROUND, config.steps - now["step"])):
            codes = self._windows.draw(config.batch, (config.seed, now["step"]))
            for group in optimizer.param_groups:
                group["lr"] = self._rate()
            loss, _ = next_token_loss(model(codes[:, :-1]), codes)
            optimizer.zero_grad()
            loss.sum().backward()
            if config.gradient_clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), config.gradient_clip)
            optimizer.step()
            losses.append(loss.detach())
            now["step"] += 1
        blocks = [12 * config.width**2] * self.net.depth
        a_code = gradient_flops(blocks, self.net.frozen, below=True)
        now["flops"] += len(losses) * config.batch * (2 * config.context + 1) * a_code
        validation = self._validate()
        return sum(validation), {"loss": torch.stack(losses).mean(0).tolist(), "validation": validation}

    def extra(self) -> dict[str, Any]:
        """What the data taught beside the network."""
        return {"found": self._found, "coupling": self._coupling()}

    def _rate(self) -> float:
        config, step = self.config, self.progress["step"]
        share = min(1.0, step / config.steps)
        return (
            config.learning_rate * min(1.0, (step + 1) / 100) * (0.05 + 0.95 * 0.5 * (1.0 + math.cos(math.pi * share)))
        )

    @torch.inference_mode()
    def _validate(self) -> list[float]:
        self.net.model.eval()
        totals, count = torch.zeros(len(STREAMS), dtype=torch.double), 0
        for codes in self._validation.split(64):
            losses, predicted = next_token_loss(self.net.model(codes[:, :-1]), codes)
            totals += losses.double() * int(predicted)
            count += int(predicted)
        return (totals / count).tolist()

    @torch.inference_mode()
    def _coupling(self) -> float:
        codes = self._validation[:128]
        after = codes[:, 1:]
        predicted = (after < STATES) & (codes[:, :-1] != PAD_CODE)
        left, right, _ = streams(after[predicted])
        return estimate_coupling(self.net.model(codes[:, :-1])[predicted], left, right)


def checked_data(folder: Path, config: Config) -> Dataset:
    """The data of a run, which must still be the one that it began with."""
    dataset = read_dataset(Path(config.data))
    written = read_config(folder).get("data")
    if written != _fingerprint(dataset):
        raise RunError(f"data: {config.data} is not what {folder} began with; accepted: the same sequences")
    return dataset


def _fingerprint(dataset: Dataset) -> dict[str, Any]:
    codes = np.asarray(dataset.codes)
    return {
        "steps": dataset.steps,
        "sequences": len(dataset),
        "sum": int(codes.astype(np.int64) @ (np.arange(len(codes)) % 9973)),
    }


def create_run(folder: Path, config: Config) -> Run:
    """A new run folder for a configuration."""
    config.check()
    dataset = read_dataset(Path(config.data))
    three_parts(dataset)
    return Run.create(
        folder,
        {
            "task": "world",
            "config": dataclasses.asdict(config),
            "rules": dataclasses.asdict(config.network_rules()),
            "data": _fingerprint(dataset),
            "world": dataset.about["world"],
            "vocabulary": VOCABULARY_VERSION,
            "versions": versions(),
        },
    )


def same_run(folder: Path, config: Config) -> bool:
    """Whether a folder holds the run of a configuration, with its rules and its data."""
    written = read_config(folder)
    return (
        read_run_config(folder) == config
        and written["rules"] == dataclasses.asdict(config.network_rules())
        and written["data"] == _fingerprint(read_dataset(Path(config.data)))
    )


def train(run: Run, threads: int | None = None, report: Report = lambda metrics: None) -> dict[str, Any]:
    """Train to the end, from wherever the run is; returns, and writes, its result."""
    go_on = f"saved; go on with: gpf world train --resume {shlex.quote(str(run.folder))}"
    return train_to_the_end(lambda: Training(run), lambda _: finish(run), report, go_on)


def finish(run: Run) -> dict[str, Any]:
    """Write what a run amounts to."""
    lines = read_log(run.folder, "metrics")
    best = min(lines, key=lambda line: sum(line["validation"]))
    result = {
        "run": str(run.folder),
        "validation": best["validation"],
        "loss": sum(best["validation"]),
        "best_step": best["step"],
        **{name: best[name] for name in ("depth", "density", "frozen", "parameters")},
        **{name: lines[-1][name] for name in ("step", "seconds", "flops")},
    }
    write_json(run.folder / "result.json", result)
    return result

"""Train a world model on sequences of tokens; with GPF it begins with one block and grows."""

import dataclasses
import math
import shlex
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gpf
from gpf.plume.tokens import STATES, VOCABULARY_VERSION
from gpf.runs import Run, RunError, read_config, read_log, write_json
from gpf.tasks.loop import Report, train_to_the_end, versions
from gpf.world_model.batches import Windows
from gpf.world_model.config import Config
from gpf.world_model.imagination import estimate_coupling
from gpf.world_model.model import next_token_loss, streams
from gpf.world_model.sequences import PAD_CODE, STREAMS, Dataset, read_dataset
from gpf.world_model.trained import found_chances, load_network, make_model, read_run_config

STEPS_IN_A_ROUND = 100
"""Gradient steps of a round, which is GPF's epoch: then there are a validation, a line of metrics and a checkpoint."""
VALIDATION_WINDOWS = 512


def three_parts(dataset: Dataset) -> tuple[Dataset, Dataset, Dataset]:
    """To learn from, to decide on, and to report: eight, one and one of ten sequences."""
    rest, test = dataset.split(0.1)
    train, validation = rest.split(1 / 9)
    return train, validation, test


class Training:
    """A run in the making. What is not in the network or in `progress` does not outlive a round."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.config = read_run_config(run.folder)
        learnt, validation, _ = three_parts(checked_data(run.folder, self.config))
        self._windows = Windows(learnt, self.config.context)
        self._validation = Windows(validation, self.config.context).draw(VALIDATION_WINDOWS, (0, 1))
        self._found = torch.from_numpy(found_chances(learnt))
        self.progress: dict[str, Any] = {
            "round": 0, "step": 0, "seconds": 0.0, "best": None, "since_best": 0, "flops": 0.0,
        }  # fmt: skip
        last = run.checkpoint("last")
        if (last / "manifest.json").exists():
            self.net = load_network(last, self.config, restore_random=True)
            self.progress = dict(self.net.extra["progress"])
        elif any(line["round"] > 1 for line in read_log(run.folder, "metrics")):
            raise RunError(f"run: {last} is missing; accepted: a run with its last checkpoint")
        else:
            torch.manual_seed(self.config.seed)
            model = make_model(self.config)
            optimizer = torch.optim.AdamW(
                model.parameters(), lr=self.config.learning_rate, weight_decay=self.config.weight_decay, fused=True
            )
            self.net = gpf.attach(model, optimizer, stack="blocks", rules=self.config.network_rules())
        run.drop_after(self.progress["round"])

    @property
    def over(self) -> bool:
        """Whether there is nothing left to learn."""
        now = self.progress
        return bool(now["step"] >= self.config.steps or now["since_best"] >= self.config.patience)

    def round(self) -> dict[str, Any]:
        """Learn for one round, write its lines and its checkpoint, and return its metrics."""
        config, now, started = self.config, self.progress, time.perf_counter()
        model, optimizer = self.net.model, self.net.optimizer
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
            now["flops"] += self._flops()
        now["round"] += 1
        validation = self._validate()
        total = sum(validation)
        if not math.isfinite(total):
            raise RuntimeError(
                f"learning_rate: {config.learning_rate}; the loss is no number any more after {now['step']} steps;"
                " accepted: a lower one"
            )
        is_best = now["best"] is None or total < now["best"]
        now["best"], now["since_best"] = (total, 0) if is_best else (now["best"], now["since_best"] + 1)
        shape = self.net.shape()
        about = self._about()
        if is_best:
            self.net.save(self.run.checkpoint("best"), optimizer=False, extra=about)
        events = self.net.end_epoch(total)
        now["seconds"] += time.perf_counter() - started
        metrics = {
            **{name: now[name] for name in ("round", "step", "seconds", "flops")},
            "loss": torch.stack(losses).mean(0).tolist(),
            "validation": validation,
            "depth": shape.depth,
            "density": shape.density,
            "frozen": list(shape.frozen),
            "parameters": self.parameters(),
        }
        self.run.append("metrics", [metrics])
        self.run.append("events", [{"round": now["round"], "step": now["step"], **e.to_json()} for e in events])
        self.net.save(self.run.checkpoint("last"), extra={**about, "progress": now})
        return metrics

    def parameters(self) -> int:
        """Weights and biases of the whole model that are not pruned."""
        return sum(p.numel() for p in self.net.model.parameters()) - self.net.shape().pruned

    def _rate(self) -> float:
        config, step = self.config, self.progress["step"]
        share = min(1.0, step / config.steps)
        return (
            config.learning_rate * min(1.0, (step + 1) / 100) * (0.05 + 0.95 * 0.5 * (1.0 + math.cos(math.pi * share)))
        )

    def _flops(self) -> float:
        """Of a gradient step: two a weight and code forwards, four backwards, where something learns."""
        shape = self.net.shape()
        learning = shape.depth - len(shape.frozen)
        each = 12 * self.config.width**2
        return self.config.batch * (2 * self.config.context + 1) * each * (2.0 * shape.depth + 4.0 * learning)

    @torch.inference_mode()
    def _validate(self) -> list[float]:
        self.net.model.eval()
        totals, count = torch.zeros(len(STREAMS), dtype=torch.double), 0
        for codes in self._validation.split(64):
            losses, predicted = next_token_loss(self.net.model(codes[:, :-1]), codes)
            totals += losses.double() * int(predicted)
            count += int(predicted)
        return (totals / count).tolist()

    def _about(self) -> dict[str, Any]:
        """What a checkpoint says beside the network."""
        return {"progress": self.progress, "found": self._found, "coupling": self._coupling()}

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
    return train_to_the_end(lambda: Training(run), lambda: finish(run), report, go_on)


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

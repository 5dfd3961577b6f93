"""Trains a world model on sequences of tokens; with GPF it starts with one block and grows."""

import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from gpf.plume.tokens import STATES, VOCABULARY_VERSION
from gpf.reports import html
from gpf.reports.figures import save_figure
from gpf.runs.folder import Run, RunError, read_config, read_log, replace_text
from gpf.runs.training import Phase, Round
from gpf.tasks.task import RoundTraining, Task, Tell, gradient_flops
from gpf.world_model.batches import Windows
from gpf.world_model.config import Config
from gpf.world_model.figures import dreams_figure, reliability_figure, training_figure
from gpf.world_model.imagination import estimate_coupling
from gpf.world_model.measures import DREAM_STEPS, baseline_cross_entropies, dream, predict
from gpf.world_model.model import WorldModel, next_token_loss, streams
from gpf.world_model.sequences import PAD_CODE, STREAMS, Dataset, read_dataset
from gpf.world_model.trained import found_chances, load_world, make_model, read_run_config


def three_parts(dataset: Dataset) -> tuple[Dataset, Dataset, Dataset]:
    """To learn from, to decide on, and to report: eight, one and one of ten sequences."""
    rest, test = dataset.split(0.1)
    train, validation = rest.split(1 / 9)
    return train, validation, test


class Training(RoundTraining[Config]):
    """A round is some gradient steps; the rules look at the loss on some windows of held-out sequences."""

    stack: ClassVar[str] = "blocks"

    def __init__(self, run: Run, config: Config, threads: int | None = None) -> None:
        learnt, validation, _ = three_parts(self.dataset(run.folder, config))
        self._windows = Windows(learnt, config.context)
        self._validation = Windows(validation, config.context).draw(config.validation_windows, (0, 1))
        self._found = torch.from_numpy(found_chances(learnt))
        super().__init__(run, config)

    def dataset(self, folder: Path, config: Config) -> Dataset:
        """The sequences that it learns from."""
        return checked_data(folder, config)

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

    def learn(self) -> Round:
        """Gradient steps on windows from anywhere in the sequences."""
        config, now, model, optimizer = self.config, self.progress, self.net.model, self.net.optimizer
        losses = []
        model.train()
        for _ in range(min(config.round_steps, config.steps - now["step"])):
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
        measured = {"loss": torch.stack(losses).mean(0).tolist(), "validation": validation}
        return Round(measured, self.scored(sum(validation)), sum(validation))

    def finish(self, phase: Phase) -> dict[str, Any]:
        """At the best validation, and how far it went."""
        best = min(read_log(self.run.folder, "metrics"), key=lambda line: sum(line["validation"]))
        return {
            "validation": best["validation"],
            "loss": sum(best["validation"]),
            "best_step": best["step"],
            **{name: best[name] for name in ("depth", "density", "frozen", "parameters")},
        }

    def about(self) -> dict[str, Any]:
        """Statistics of the data, in addition to the network."""
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
        raise RunError(f"data must be the sequences that {folder} began with, got {config.data}")
    return dataset


def _fingerprint(dataset: Dataset) -> dict[str, Any]:
    codes = np.asarray(dataset.codes)
    return {
        "steps": dataset.steps,
        "sequences": len(dataset),
        "sum": int(codes.astype(np.int64) @ (np.arange(len(codes)) % 9973)),
    }


def _about(config: Config) -> dict[str, Any]:
    dataset = read_dataset(Path(config.data))
    return {
        "data": _fingerprint(dataset),
        "world": dataset.about["world"],
        "vocabulary": VOCABULARY_VERSION,
    }


def _line(metrics: dict[str, Any]) -> str:
    return f"validation {sum(metrics['validation']):.4f}, {metrics['depth']} blocks, density {metrics['density']:.2f}"


def _result_line(result: dict[str, Any]) -> str:
    losses = ", ".join(f"{value:.4f}" for value in result["validation"])
    return (
        f"validation {result['loss']:.4f} (left, right, wind: {losses}) at step {result['best_step']:,} of"
        f" {result['step']:,}; {result['depth']} blocks, density {result['density']:.3f}, {result['parameters']:,}"
        " parameters"
    )


def group_name(folder: Path) -> str:
    """The name of a run in tables."""
    config = read_run_config(folder)
    return "GPF" if config.gpf else f"{config.depth} blocks from the start"


def write_report(folder: Path, tell: Tell) -> Path:
    """Write a run's `report.html`, measured on what the run did not learn from nor stop on; returns its path."""
    tell("figures")
    config, lines = read_config(folder), read_log(folder, "metrics")
    if not lines:
        raise RunError(f"run {folder} has no finished round yet")
    last, best = lines[-1], min(lines, key=lambda line: sum(line["validation"]))
    done = f"{last['step']:,}", f"gradient steps in {last['seconds']:.0f} s"
    learnt, _, test = three_parts(checked_data(folder, read_run_config(folder)))
    world, place = load_world(folder), folder / "figures"
    predicted, dreams = predict(world.model, test), dream(world, test)
    save_figure(training_figure({group_name(folder): [folder]}), place / "training.png")
    save_figure(reliability_figure(predicted), place / "reliability.png")
    imagined = ""
    if dreams is not None:
        save_figure(dreams_figure(dreams), place / "dreams.png")
        compared = [[name.replace("_", " "), f"{value:.3f}"] for name, value in dreams.summary().items()]
        imagined = html.table([f"{DREAM_STEPS} steps after real histories, with the real actions", ""], compared)
        imagined += html.figure(place / "dreams.png", "Token streams, real and imagined, and how long spells last.")
    rows = [[name, *(f"{value:.4f}" for value in row)] for name, row in baseline_cross_entropies(learnt, test).items()]
    rows.append(["world model, best checkpoint", *(f"{value:.4f}" for value in predicted.cross_entropy)])
    cards = [
        (f"{predicted.cross_entropy.sum():.4f}", f"nats an observation, {test.steps:,} steps held out"),
        (f"{best['depth']}", f"blocks, {len(best['frozen'])} frozen, at the best checkpoint"),
        (f"{best['density']:.1%}", f"of the weights left: {best['parameters']:,} parameters"),
        done,
    ]
    sections = {
        "Learning": html.figure(place / "training.png", "Validation loss, blocks and parameters; dotted: events."),
        "Events": html.event_table(TASK.named(read_log(folder, "events"), read_run_config(folder)), "step"),
        "Predictions": html.table(["cross-entropy, nats a token", *STREAMS], rows, len(rows) - 1)
        + html.figure(place / "reliability.png", "How often the likeliest token came, by how sure the model was."),
        "Dreams": imagined,
        "Settings": html.settings(config),
    }
    about = f"world model, {group_name(folder)}, seed {config['config']['seed']}, data {config['config']['data']}"
    replace_text(folder / "report.html", html.page(folder.resolve().name, about, cards, sections))
    return folder / "report.html"


TASK = Task(
    name="world",
    reference=f"{__name__}:TASK",
    title="A world model of the plume: sequences of tokens",
    make=Config.of,
    training=Training,
    length=lambda config: (config.steps, "step"),
    length_setting=lambda config: "steps",
    find_data=lambda config: three_parts(read_dataset(Path(config.data))),
    about=_about,
    describe=_line,
    describe_result=_result_line,
    report=write_report,
    metric=lambda config: "validation loss",
    network=make_model,
)

"""The report of a run of any task: curves, events, the spectra of its weights, and settings, in one HTML file."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from torch import nn

from gpf.reports import html
from gpf.reports.figures import curves_figure, events_figure, save_figure
from gpf.reports.verdicts import Claim, Verdict
from gpf.runs.folder import Outcome, RunError, read_config, read_result, replace_text, undamaged
from gpf.spectra.empirical import Bulk
from gpf.spectra.figures import weights_figure
from gpf.spectra.inspection import Inspection, inspect
from gpf.spectra.recorder import read_snapshots
from gpf.tasks import task_of
from gpf.tasks.task import Task, Tell

SHOWN = 8
"""Columns of the figure of spectra: the first growths, and the latest."""
ALIKE = 0.05
"""Kolmogorov distance of eigenvalues below which they follow a law; those of random weights are below 0.01."""


def write_report(folder: str | Path, tell: Tell = lambda phase: None) -> Path:
    """Write a run's `report.html`, as its task has it, and report each phase that begins; returns its path."""
    folder = Path(folder)
    task = task_of(folder)
    read_result(folder)  # a damaged one is refused, also where the report does not show it
    with undamaged(folder):
        return _write(task, folder, tell) if task.report is None else task.report(folder, tell)


def _write(task: Task[Any], folder: Path, tell: Tell) -> Path:
    one, place = Outcome.read(folder), folder / "figures"
    if not one.lines:
        raise RunError(f"run {folder} has no finished round yet")
    config = task.read(folder)
    variant = task.variant_of(config)
    sections = {}
    tell("figures")
    if task.curves:
        save_figure(curves_figure(task.curves, {variant: [one]}, task.unit), place / "training.png")
        sections["Learning"] = html.figure(place / "training.png", "Measurements after every round.")
    sections["Events"] = html.event_table(task.named(one.events, config), task.unit)
    if any("after" in event for event in one.events):
        save_figure(events_figure({variant: [one]}, task.unit), place / "events.png")
        sections["Events"] += html.figure(place / "events.png", "Growth, pruning and freezing over time.")
    tell("spectra")
    spectra = spectra_figure(task, one)
    if spectra is not None:
        save_figure(spectra, place / "spectra.png")
        sections["Spectra"] = html.figure(
            place / "spectra.png",
            "Eigenvalues of the weights after each growth, with the bulk of random weights.",
        )
    sections["Settings"] = html.settings(read_config(folder))
    last = one.lines[-1]
    values = {title: of(last) for title, of in task.curves.items()}
    cards = [(format(value, ".4g") if np.isfinite(value) else "-", title) for title, value in values.items()]
    cards.append((f"{last['seconds']:.0f} s", f"of learning, {last['step']:,} gradient steps"))
    about = f"{task.name}, {variant}, seed {config.seed}" + ("" if one.result else "; not finished")
    replace_text(folder / "report.html", html.page(folder.resolve().name, about, cards, sections))
    return folder / "report.html"


def spectra_figure(task: Task[Any], run: Outcome) -> Figure | None:
    """Eigenvalues of the weights of a run after each growth, with the law of random weights."""
    if task.network is None:
        return None
    net, config, network = task.load(run.folder), task.read(run.folder), task.network

    def build(depth: int) -> Any:
        model: Any = network(config)
        blocks = model.get_submodule(net.stack)
        while len(blocks) < depth:
            blocks.append(model.make_block(len(blocks)))
        while len(blocks) > depth:  # a model that grows back may be built as deep as it is to become
            del blocks[-1]
        return model

    moments = [
        (snapshot.label, _weights(snapshot.model, task.spectra))
        for snapshot in read_snapshots(run.folder / "spectra", build)
        if snapshot.number < len(net.events)
    ]
    moments.append(("end", _weights(net.model, task.spectra)))
    if len(moments) > SHOWN:
        moments = [*moments[: SHOWN // 2], *moments[-SHOWN // 2 :]]
    return weights_figure([label for label, _ in moments], [found for _, found in moments], [{} for _ in moments])


def weights_claim(paper: str, models: Sequence[nn.Module]) -> Claim:
    """Whether the weights' eigenvalues follow the law of random ones, in networks that have learned."""
    bulks: dict[str, list[Bulk]] = {}
    for model in models:
        for layer in inspect(model, quiet=True).layers:
            if layer.weights.bulk is not None:
                bulks.setdefault(layer.name, []).append(layer.weights.bulk)
    said = [
        f"{name}: {np.mean([len(bulk.spikes) for bulk in some]):.0f} and"
        f" {np.mean([bulk.distance for bulk in some]):.3f}"
        for name, some in bulks.items()
    ]
    alike = [not len(bulk.spikes) and bulk.distance < ALIKE for some in bulks.values() for bulk in some]
    return Claim(
        paper,
        "at the end, by layer, how many eigenvalues stand out above the law that fits the others, and the Kolmogorov"
        f" distance of those others from it, means over seeds: {'; '.join(said)}",
        Verdict.of_claim(all(alike), any(alike) and not all(alike), seeds=len(models)),
    )


def _weights(model: Any, ending: str) -> Inspection:
    found = inspect(model, quiet=True)
    return Inspection([layer for layer in found.layers if layer.name.endswith(ending)])

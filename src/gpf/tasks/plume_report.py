"""A navigator's run as one page: `report.html`, a single file that needs nothing else to be looked at."""

from pathlib import Path
from typing import Any

from gpf.navigation.agents import load_navigator
from gpf.navigation.figures import evaluation_figure, network_figure, training_figure
from gpf.reports.figures import save_figure
from gpf.reports.html import event_table, figure, page, settings
from gpf.runs.folder import RunError, read_config, read_log, read_result, replace_text
from gpf.tasks.spectra import analyse_run, draw_run
from gpf.tasks.task import Tell

SHOWN = 200
"""Held-out episodes whose trajectories are shown of a run that was not evaluated."""


def write_report(folder: Path, tell: Tell) -> Path:
    """Write a run's `report.html`, with the figures that are missing; returns its path."""
    config, result, metrics = read_config(folder), read_result(folder), read_log(folder, "metrics")
    if not metrics or not (folder / "checkpoints" / "last" / "manifest.json").exists():
        raise RunError(f"run {folder} has no finished round yet")
    headline, cards = _headline(config["config"]), _cards(result, metrics[-1])
    happened = event_table(read_log(folder, "events"), "step")
    figures = _draw(folder, tell)
    sections = {
        "Learning": figure(
            figures["training"],
            "Success and SPL while learning, validation on other episodes, events, and the weights in use.",
        ),
        "Events": happened,
        "Network": figure(
            figures["network"],
            "Weights at the last checkpoint: blue positive, red negative, grey pruned. A row is a unit, a column what"
            " it listens to.",
        ),
        "Trajectories": figure(
            figures["trajectories"], "Held-out episodes of the last checkpoint; the green dot is the source."
        ),
        "Spectra": "".join(
            figure(figures[name], caption, "large")
            for name, caption in (
                (
                    "spectra-weights",
                    "Eigenvalues of the weights around each event, with the law of random weights of the same size.",
                ),
                ("spectra-activations", "Eigenvalues of the layers' activations, with the law of a random layer."),
            )
        ),
        "Plasticity": figure(figures["plasticity"], "How able each layer still is to learn, at every validation.")
        if "plasticity" in figures
        else "",
        "Settings": settings(config),
    }
    replace_text(folder / "report.html", page(folder.resolve().name, headline, cards, sections))
    return folder / "report.html"


def _draw(folder: Path, tell: Tell) -> dict[str, Path]:
    """Every figure of the run that can be made, by name."""
    place = folder / "figures"
    navigator = load_navigator(folder)
    save_figure(training_figure(folder), place / "training.png")
    save_figure(network_figure(navigator), place / "network.png")
    if read_result(folder) is None or not (place / "trajectories.png").exists():
        shown = navigator.evaluate(SHOWN, paths=SHOWN)
        summary = shown.summary()
        title = f"{folder.name}, last checkpoint so far: {summary['success']:.2%} of {SHOWN:,} held-out episodes"
        save_figure(evaluation_figure(shown, title), place / "trajectories.png")
    analysed, network = folder / "spectra.json", folder / "checkpoints" / "last" / "manifest.json"
    if not analysed.exists() or analysed.stat().st_mtime < network.stat().st_mtime:
        tell("spectra")
        draw_run(folder, analyse_run(folder))
    return {path.stem: path for path in place.glob("*.png") if not path.name.startswith(".")}


def _headline(config: dict[str, Any]) -> str:
    return (
        f"{config['learner']}, observation {config['observation']}, world {config['scenario']}, reward"
        f" {config['reward']}, seed {config['seed']}, {'with' if config['gpf'] else 'without'} GPF"
    )


def _cards(result: dict[str, Any] | None, last: dict[str, Any]) -> list[tuple[str, str]]:
    """What matters at a glance: of the finished run, or of what it has come to."""
    cards = []
    if result is None:
        validated = last["validation"] or {}
        success = validated.get("success", last["success"])
        cards.append(("so far" if success is None else f"{success:.1%}", "success so far; not finished"))
    else:
        interval = f"[{result['low']:.2%}, {result['high']:.2%}], {result['episodes']:,} held out"
        steps = "-" if result["mean_steps"] is None else f"{result['mean_steps']:.0f}"
        cards += [
            (f"{result['success']:.2%}", f"success {interval}"),
            (steps, "mean steps to the source"),
            (f"{result['spl']:.3f}", "SPL"),
        ]
    return [
        *cards,
        (f"{last['depth']}", f"hidden layers, {len(last['frozen'])} frozen"),
        (f"{last['density']:.1%}", f"of the weights left: {last['parameters']:,} parameters"),
        (f"{last['step'] / 1e6:.2f} M", f"steps in {last['seconds']:.0f} s"),
    ]


def show_result(result: dict[str, Any]) -> None:
    """A trained navigator as a table: the last checkpoint, which the run stands behind, and what there is to know."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    if result["episodes"]:
        table = Table(box=box.SIMPLE, title=escape(f"{result['run']}: {result['episodes']:,} held-out episodes"))
        for column in ("checkpoint", "success [95 % CI]", "mean steps", "SPL"):
            table.add_column(column)
        for checkpoint, s in (("last", result), ("best", result.get("best"))):
            if s is not None:
                steps = "-" if s["mean_steps"] is None else f"{s['mean_steps']:.1f}"
                rate = f"{s['success']:.2%} [{s['low']:.2%}, {s['high']:.2%}]"
                table.add_row(checkpoint, rate, steps, f"{s['spl']:.3f}")
        console.print(table)
    else:
        print(f"{result['run']}: {result['validation']['last']:.2%} success in the last validation; not evaluated")
    frozen = ", ".join(map(str, result["frozen"])) or "none"
    print(f"network: depth {result['depth']}, density {result['density']:.3f}, {result['parameters']:,} parameters,"
          f" frozen layers: {frozen}")  # fmt: skip
    print(f"trained: {result['step']:,} steps in {result['seconds']:.1f} s")
    if result["regressed"]:
        print(regression(result))


def regression(result: dict[str, Any]) -> str:
    """What to say of a run whose last checkpoint is far below its best one."""
    last, best = result["validation"]["last"], result["validation"]["best"]
    return (
        f"Training regressed: the last checkpoint found the source in {last:.1%} of the validation episodes, the best"
        f" one in {best:.1%}. Use the best one (gpf evaluate {result['run']} --checkpoint best), train for longer"
        " (--steps), or lower --learning-rate."
    )

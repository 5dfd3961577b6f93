"""A navigator's run as one page: `report.html`, a single file that needs nothing else to be looked at."""

from pathlib import Path
from typing import Any

from gpf.navigation.agents import load_navigator
from gpf.navigation.figures import evaluation_figure, network_figure, training_figure
from gpf.reports.figures import save_figure
from gpf.reports.html import event_table, figure, page, settings, table
from gpf.runs.folder import RunError, read_config, read_log, read_result, replace_text
from gpf.tasks.held_out import EPISODES, PATHS, evaluate_held_out
from gpf.tasks.spectra import analyse_run, draw_run


def write_report(folder: Path) -> Path:
    """Write a run's `report.html`, with the figures that are missing; returns its path."""
    config, result, metrics = read_config(folder), read_result(folder), read_log(folder, "metrics")
    if not metrics or not (folder / "checkpoints" / "last" / "manifest.json").exists():
        raise RunError(f"run {folder} has no finished round yet")
    headline, cards, held_out = _headline(config["config"]), _cards(result, metrics[-1]), _checkpoints(result)
    happened = event_table(read_log(folder, "events"), "step")
    figures = _draw(folder)
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
    replace_text(folder / "report.html", page(folder.resolve().name, headline, cards, sections, held_out))
    return folder / "report.html"


def _draw(folder: Path) -> dict[str, Path]:
    """Every figure of the run that can be made, by name."""
    place = folder / "figures"
    navigator = load_navigator(folder)
    save_figure(training_figure(folder), place / "training.png")
    save_figure(network_figure(navigator), place / "network.png")
    if read_result(folder) is None or not (place / "trajectories.png").exists():
        shown = evaluate_held_out(navigator, EPISODES, paths=PATHS)
        summary = shown.summary()
        title = f"{folder.name}, last checkpoint so far: {summary['success']:.2%} of {EPISODES:,} held-out episodes"
        save_figure(evaluation_figure(shown, title), place / "trajectories.png")
    analysed, network = folder / "spectra.json", folder / "checkpoints" / "last" / "manifest.json"
    if not analysed.exists() or analysed.stat().st_mtime < network.stat().st_mtime:
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


def _checkpoints(result: dict[str, Any] | None) -> str:
    if result is None:
        return ""
    rows: list[list[str]] = []
    chosen = -1
    for checkpoint, by_acting in result["checkpoints"].items():
        for acting, s in by_acting.items():
            if checkpoint == "last" and acting == result["acting"]:
                chosen = len(rows)
            steps = "-" if s["mean_steps"] is None else f"{s['mean_steps']:.1f}"
            success = f"{s['success']:.2%} [{s['low']:.2%}, {s['high']:.2%}]"
            rows.append([checkpoint, acting, success, steps, f"{s['spl']:.3f}"])
    shown = table(["checkpoint", "acting", "success [95 %]", "mean steps", "SPL"], rows, chosen)
    note = '<p class="soft">In bold what the run stands behind: the last checkpoint, without picking.</p>'
    return f"<section><h2>Held-out episodes</h2>{shown}{note}</section>"


def show_result(result: dict[str, Any]) -> None:
    """A trained navigator as a table: the last checkpoint, which we stand behind, and the best one."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE, title=escape(f"{result['run']}: {result['episodes']:,} held-out episodes"))
    for column in ("checkpoint", "acting", "success [95 %]", "mean steps", "SPL"):
        table.add_column(column)
    for checkpoint, by_acting in result["checkpoints"].items():
        for acting, s in by_acting.items():
            chosen = checkpoint == "last" and acting == result["acting"]
            success = f"{s['success']:.2%} [{s['low']:.2%}, {s['high']:.2%}]"
            steps = "-" if s["mean_steps"] is None else f"{s['mean_steps']:.1f}"
            table.add_row(checkpoint, acting, success, steps, f"{s['spl']:.3f}", style="bold" if chosen else None)
    console = Console()
    console.print(table)
    frozen = ", ".join(map(str, result["frozen"])) or "none"
    console.print(
        f"depth {result['depth']}, density {result['density']:.3f}, {result['parameters']:,} parameters,"
        f" frozen layers: {frozen}; {result['step']:,} steps in {result['seconds']:.1f} s",
        highlight=False,
    )
    figures = Path(result["run"], "figures")
    print(f"figures: {figures / 'training.png'}, {figures / 'trajectories.png'}")

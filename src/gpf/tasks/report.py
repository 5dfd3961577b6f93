"""A run as one page: `report.html`, a single file that needs nothing else to be looked at."""

import base64
import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gpf.navigation.agents import load_navigator
from gpf.navigation.figures import evaluation_figure, network_figure, save_figure, training_figure
from gpf.network.events import Shape
from gpf.runs import RunError, read_config, read_log, read_result, replace_text
from gpf.tasks.plume import EPISODES, PATHS, evaluate_held_out
from gpf.tasks.spectra import analyse_run, draw_run

STYLE = """
:root { color-scheme: light; --ink: #1d2733; --soft: #5b6774; --line: #dde3e9; --accent: #2f5d8c; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.25rem 4rem; max-width: 70rem; background: #f6f8fa; color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; overflow-wrap: anywhere; } h2 { font-size: 1.15rem; margin: 0 0 .6rem; }
p { margin: .4rem 0; } .soft { color: var(--soft); }
nav { margin: .8rem 0 0; } nav a { margin-right: 1rem; color: var(--accent); text-decoration: none; }
section { background: #fff; border: 1px solid var(--line); border-radius: 8px; padding: 1.1rem 1.25rem;
  margin: 1rem 0; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: .75rem; margin: 1rem 0; }
.card { background: #fff; border: 1px solid var(--line); border-radius: 8px; padding: .7rem .9rem; }
.card b { display: block; font-size: 1.45rem; line-height: 1.25; font-variant-numeric: tabular-nums; }
.card span { color: var(--soft); font-size: .85rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .88rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .7rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
tr.chosen td { font-weight: 600; }
img { display: block; width: 100%; height: auto; }
figure.large { overflow-x: auto; } figure.large img { width: 88rem; max-width: none; }
figure { margin: 0 0 1rem; } p.caption { color: var(--soft); font-size: .88rem; }
details { margin: .4rem 0; } summary { cursor: pointer; }
code { font-size: .9em; background: #eef2f5; padding: .1em .3em; border-radius: 4px; overflow-wrap: anywhere; }
"""


def write_report(folder: Path) -> Path:
    """Write a run's `report.html`, with the figures that are missing; returns its path."""
    config, result = read_config(folder), read_result(folder)
    if config.get("task") != "plume":
        raise RunError(f"run: {folder} is of task {config.get('task')!r}; accepted: a run that gpf train made")
    if not (folder / "checkpoints" / "last" / "manifest.json").exists():
        raise RunError(f"run: {folder} has no checkpoint yet; accepted: a run that has learnt for a round")
    figures = _draw(folder)
    metrics, events = read_log(folder, "metrics"), read_log(folder, "events")
    sections = {
        "Learning": _figure(
            figures["training"],
            "Success and SPL while learning, validation on other episodes, events, and the weights in use.",
        ),
        "Events": _events(events),
        "Network": _figure(
            figures["network"],
            "Weights at the last checkpoint: blue positive, red negative, grey pruned. A row is a unit, a column what"
            " it listens to.",
        ),
        "Trajectories": _figure(
            figures["trajectories"], "Held-out episodes of the last checkpoint; the green dot is the source."
        ),
        "Spectra": "".join(
            _figure(figures[name], caption, "large")
            for name, caption in (
                (
                    "spectra-weights",
                    "Eigenvalues of the weights around each event, with the law of random weights of the same size.",
                ),
                ("spectra-activations", "Eigenvalues of the layers' activations, with the law of a random layer."),
            )
        ),
        "Plasticity": _figure(figures["plasticity"], "How able each layer still is to learn, at every validation.")
        if "plasticity" in figures
        else "",
        "Settings": _settings(config),
    }
    sections = {title: body for title, body in sections.items() if body}
    links = "".join(f'<a href="#{title.lower()}">{title}</a>' for title in sections)
    bodies = "".join(
        f'<section id="{title.lower()}"><h2>{title}</h2>{body}</section>' for title, body in sections.items()
    )
    name = html.escape(folder.resolve().name)
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><style>{STYLE}</style></head><body>'
        f"<header><h1>{name}</h1>{_headline(config['config'])}<nav>{links}</nav></header>"
        f"{_cards(result, metrics[-1])}{_checkpoints(result)}{bodies}</body></html>\n"
    )
    replace_text(folder / "report.html", page)
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
    what = (
        f"{config['learner']}, observation {config['observation']}, world {config['scenario']}, reward"
        f" {config['reward']}, seed {config['seed']}, {'with' if config['gpf'] else 'without'} GPF"
    )
    return f'<p class="soft">{html.escape(what)}</p>'


def _cards(result: dict[str, Any] | None, last: dict[str, Any]) -> str:
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
    cards += [
        (f"{last['depth']}", f"hidden layers, {len(last['frozen'])} frozen"),
        (f"{last['density']:.1%}", f"of the weights left: {last['parameters']:,} parameters"),
        (f"{last['steps'] / 1e6:.2f} M", f"steps in {last['seconds']:.0f} s"),
    ]
    inside = "".join(
        f'<div class="card"><b>{html.escape(value)}</b><span>{html.escape(what)}</span></div>' for value, what in cards
    )
    return f'<div class="cards">{inside}</div>'


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
    table = _table(["checkpoint", "acting", "success [95 %]", "mean steps", "SPL"], rows, chosen)
    note = '<p class="soft">In bold what the run stands behind: the last checkpoint, without picking.</p>'
    return f"<section><h2>Held-out episodes</h2>{table}{note}</section>"


def _events(events: list[dict[str, Any]]) -> str:
    if not events:
        return "<p>None: nothing grew, was pruned or froze.</p>"
    rows = []
    for event in events:
        before, after = event["before"], event["after"]
        rows.append(
            [
                f"{event['steps']:,}",
                event["kind"],
                ", ".join(map(str, event["layers"])) or "-",
                event["reason"],
                _arrow(before["depth"], after["depth"], "d"),
                _arrow(Shape(**before).density, Shape(**after).density, ".3f"),
                _arrow(before["parameters"] - before["pruned"], after["parameters"] - after["pruned"], ",d"),
            ]
        )
    return _table(["steps", "event", "layers", "why", "depth", "density", "parameters in use"], rows)


def _arrow(before: float, after: float, form: str) -> str:
    old, new = format(before, form), format(after, form)
    return new if old == new else f"{old} → {new}"


def _settings(config: dict[str, Any]) -> str:
    parts = []
    for title, key in (("Learner", "config"), ("Rules", "rules"), ("World", "world"), ("Versions", "versions")):
        values = config.get(key, {})
        rows = [[name, "-" if value is None else str(value)] for name, value in values.items()]
        parts.append(f"<details><summary>{title}</summary>{_table(['setting', 'value'], rows)}</details>")
    return "".join(parts)


def _figure(path: Path, caption: str, kind: str = "") -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    words = html.escape(caption)
    image = f'<img alt="{words}" src="data:image/png;base64,{data}">'
    return f'<p class="caption">{words}</p><figure class="{kind}">{image}</figure>'


def _table(header: Sequence[str], rows: Iterable[Sequence[str]], chosen: int = -1) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join(
        ('<tr class="chosen">' if n == chosen else "<tr>")
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
        + "</tr>"
        for n, row in enumerate(rows)
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'

"""Where growing, pruning and freezing pay: quality against training cost, size and latency, on one page.

Each subject is a task with fixed networks of every depth, at equal steps and at equal FLOPs, and GPF's kinds.
"""

import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpf.reports.pages import Numbers, claims_table, join, write_page
from gpf.reports.statistics import interval_words
from gpf.reports.tables import Values, markdown_table, measure_all, present, scores_table, summary, verdict
from gpf.reports.verdicts import PAIRED_WORDS, Claim, Family, caution, corrected
from gpf.runs.folder import Outcome, environment
from gpf.runs.training import one_thread
from gpf.studies.engine import Cell, Study, place_of
from gpf.studies.subjects import SUBJECTS, Subject
from gpf.tasks.depths import FASTER, NARROW, DepthConfig, DepthTraining, fixed, share_to_reach
from gpf.tasks.task import Outcomes

ROUNDS = 15
"""Turns of a timing; the fastest one counts: other programs can only slow a turn down."""
CALLS = 20
"""Forward passes, or gradient steps, in a turn."""


def pays_study(subject: Subject, seeds: int | None, variants: Mapping[str, Mapping[str, Any]]) -> Study:
    """The runs of a subject."""

    def cell(variant: str, settings: Mapping[str, Any]) -> Cell:
        return Cell(
            subject.name,
            variant,
            lambda seed: subject.task.of({**settings, "seed": seed}),
            Path(place_of(subject.name), place_of(variant)),
        )

    chosen = subject.seeds if seeds is None else subject.seeds[:seeds]
    return Study(subject.task, chosen, [cell(variant, settings) for variant, settings in variants.items()])


def write_pays(found: Mapping[str, Outcomes], folder: Path, command: str) -> Path:
    """Measure latencies, one after the other on an idle machine, and write the page; returns where it is.

    Subjects that the page had before, and that were not requested now, stay on it unchanged.
    """
    numbers: Numbers = {"kind": "pays", "subjects": _earlier(folder / "pays.json")}
    figures = {}
    for name, outcomes in found.items():
        subject = SUBJECTS[name]
        scores = {variant: measure_all(some, subject.measures) for variant, some in outcomes.items()}
        with one_thread():
            latencies = measure_latencies(subject, outcomes)
            steps = measure_steps(subject, outcomes)
        for variant, values in latencies.items():
            scores[variant]["latency"] = list(values)
        numbers["subjects"][name] = {
            "command": command,
            "cpu": environment().get("cpu", "unknown"),
            "seeds": [int(one.folder.name) for one in next(iter(outcomes.values()))],
            "minutes": sum(one.result["seconds"] for some in outcomes.values() for one in some) / 60,
            "scores": scores,
            "curves": {variant: mean_curve(subject, some) for variant, some in outcomes.items()},
            "step_milliseconds": {str(depth): 1e3 * seconds for depth, seconds in steps.items()},
            "time_shares": time_shares(subject, outcomes, steps),
            "claims": [asdict(claim) for claim in subject.claims(outcomes)],
        }
        figures[f"pays-{name}.png"] = draw(subject, numbers["subjects"][name])
    return write_page(folder, "pays", numbers, page(numbers, "pays"), figures)


def _earlier(path: Path) -> dict[str, Any]:
    """The subjects of the existing page, if it exists."""
    try:
        return dict(json.loads(path.read_text())["subjects"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


# Measure


def mean_curve(subject: Subject, outcomes: Sequence[Outcome]) -> list[list[float]]:
    """FLOPs, seconds and quality during training, means over seeds, round by round."""
    lines = [[line for line in one.lines if subject.curve(line) is not None] for one in outcomes]
    rows = zip(*lines, strict=False)
    return [
        [
            float(np.mean([line["flops"] for line in row])),
            float(np.mean([line["seconds"] for line in row])),
            float(np.mean([subject.curve(line) for line in row])),
        ]
        for row in rows
    ]


def measure_latencies(subject: Subject, outcomes: Outcomes) -> dict[str, list[float]]:
    """Microseconds of one forward pass of every compacted network, on one core; all take turns."""
    passes = {(variant, one.folder): subject.forward(one) for variant, some in outcomes.items() for one in some}
    best = dict.fromkeys(passes, float("inf"))
    for _ in range(ROUNDS):
        for key, forward in passes.items():
            started = time.perf_counter()
            for _ in range(CALLS):
                forward()
            best[key] = min(best[key], (time.perf_counter() - started) / CALLS)
    return {variant: [1e6 * best[variant, one.folder] for one in some] for variant, some in outcomes.items()}


def measure_steps(subject: Subject, outcomes: Outcomes) -> dict[int, float]:
    """Seconds of a gradient step at every depth that fixed networks and `faster` have; all take turns."""
    if FASTER not in outcomes or not isinstance(subject.task.of({}), DepthConfig):
        return {}
    depths = sorted({line["depth"] for some in outcomes.values() for one in some for line in one.lines})
    with tempfile.TemporaryDirectory() as folder:
        trainings: dict[int, DepthTraining[Any]] = {}
        for depth in depths:
            config = subject.task.of({"kind": "fixed", "layers": depth})
            run = subject.task.create(Path(folder, str(depth)), config)
            made: Any = subject.task.training(run, config, 1)
            trainings[depth] = made
            run.close()
        best = dict.fromkeys(depths, float("inf"))
        for turn in range(ROUNDS):
            for depth, training in trainings.items():
                started = time.perf_counter()
                for call in range(CALLS // 5):
                    training.gradient_step(turn * CALLS + call)
                best[depth] = min(best[depth], (time.perf_counter() - started) / (CALLS // 5))
    return best


def time_shares(subject: Subject, outcomes: Outcomes, steps: Mapping[int, float]) -> list[float | None]:
    """Of each seed, the time `faster` took to be as good as the fixed network of its final depth, as a share.

    Times are those of gradient steps at each depth, measured alone on the machine, times the steps at that depth.
    """
    if not steps:
        return []
    deepest = fixed(subject.task.of({}).layers)

    def timed(outcome: Outcome) -> Outcome:
        lines, done, seconds = [], 0, 0.0
        for line in outcome.lines:
            seconds += (line["step"] - done) * steps[line["depth"]]
            done = line["step"]
            lines.append({**line, "seconds": seconds})
        return Outcome(outcome.folder, outcome.result, lines, outcome.events)

    pairs = zip(outcomes[FASTER], outcomes[deepest], strict=True)
    return [share_to_reach(timed(a), timed(b), "seconds", subject.quality, subject.sign) for a, b in pairs]


# The page


def page(numbers: Numbers, name: str) -> str:
    """The text of the page."""
    return corrected(lambda family: _page(numbers, name, family))


def _page(numbers: Numbers, name: str, family: Family) -> str:
    sections = [_section(SUBJECTS[key], found, family) for key, found in numbers["subjects"].items()]
    return join(
        [
            "# Where growing, pruning and freezing pay",
            "Every task has fixed networks of several depths, with as many steps as GPF and some with as many training"
            " FLOPs as GPF's growing network. `faster` grows on a schedule, `smaller` prunes units and removes them"
            " while it trains, and the paper's rules grow on a plateau, prune by belief and freeze layers that hardly"
            " move. Last checkpoints, no picking. Training times are those of several runs at once on a shared machine:"
            " compare FLOPs, or the times of steps that were measured alone. Latency is that of one forward pass of the"
            " compacted network on one core: all networks take turns, and the fastest of the turns counts.",
            PAIRED_WORDS + " " + family.sentence,
            *sections,
            f"Numbers of every seed: [{name}.json]({name}.json).",
        ]
    )


def _section(subject: Subject, found: dict[str, Any], family: Family) -> str:
    seeds, scores = found["seeds"], found["scores"]
    measures = {**subject.measures, "latency": subject.latency}
    claims = [Claim(**claim).of(len(seeds)) for claim in found["claims"]]
    return join(
        [
            f"## {subject.title}",
            f"{subject.about} Seeds {seeds[0]} to {seeds[-1]}; {interval_words(len(seeds))}.",
            caution(len(seeds)),
            scores_table(scores, measures),
            _against(subject, scores, family),
            claims_table({subject.name: claims}).replace("the paper says", "claim") if claims else "",
            _timing(found),
            f"![{subject.title}](pays-{subject.name}.png)",
            f"Made by `{found['command']}` on {found['cpu']}: {found['minutes']:.0f} minutes of one core.",
        ]
    ).strip()


def _against(subject: Subject, scores: Mapping[str, Mapping[str, Values]], family: Family) -> str:
    """Ours less the fixed networks that matter: the deepest, and the best at equal steps and at equal FLOPs."""
    measure = subject.measures[subject.test]
    fixed_ones = [name for name in scores if name.startswith("fixed")]
    rivals: dict[str, str] = {}
    for words, chosen in (
        ("best at equal steps", [name for name in fixed_ones if not name.endswith("FLOPs")]),
        ("best at equal FLOPs", [name for name in fixed_ones if name.endswith("FLOPs")]),
    ):
        means = {name: float(np.mean(known)) for name in chosen if (known := present(scores[name][subject.test]))}
        if means:
            rivals[max(means, key=lambda name: measure.better * means[name])] = words
    rivals |= {NARROW: "equal parameters"} if NARROW in scores else {}
    rows = [
        [mine, *(verdict(scores[mine][subject.test], scores[rival][subject.test], measure, family) for rival in rivals)]
        for mine in scores
        if mine.startswith("GPF")
    ]
    header = [f"{measure.title}, less that of", *(f"{rival} ({words})" for rival, words in rivals.items())]
    return markdown_table(header, rows) if rows and rivals else ""


def _timing(found: dict[str, Any]) -> str:
    if not found["step_milliseconds"]:
        return ""
    steps = ", ".join(f"{depth}: {value:.1f}" for depth, value in found["step_milliseconds"].items())
    shares = [share for share in found["time_shares"] if share is not None]
    reached = f"{len(shares)} of {len(found['time_shares'])} seeds"
    return (
        f"Gradient steps alone on the machine take, in milliseconds by depth: {steps}. By these, `faster` is as good as"
        f" the fixed network of its final depth after {summary(shares, '.1%')} of its training time ({reached})."
    )


def draw(subject: Subject, found: dict[str, Any]) -> Figure:
    """Quality against FLOPs and time with the envelope of fixed networks, and against parameters and latency."""
    figure = Figure(figsize=(12.5, 8.4), layout="constrained")
    panels = figure.subplots(2, 2)
    for axes, column, label in ((panels[0, 0], 0, "training TFLOPs"), (panels[0, 1], 1, "training time, s")):
        scale = 1e-12 if column == 0 else 1.0
        _draw_curves(axes, subject, found["curves"], column, scale)
        axes.set_xlabel(label)
        axes.set_xscale("log")
        axes.set_ylabel(subject.label)
    for axes, key, label in ((panels[1, 0], "size", "parameters"), (panels[1, 1], "latency", subject.latency.title)):
        for n, (variant, of) in enumerate(found["scores"].items()):
            sizes, quality = present(of[key]), present(of[subject.test])
            if sizes and quality:
                colour, marker, _ = _look(variant, n)
                axes.plot(np.mean(sizes), np.mean(quality), marker, color=colour, markersize=7)
                axes.annotate(_short(variant), (float(np.mean(sizes)), float(np.mean(quality))), fontsize=7)
        axes.set_xlabel(label)
        axes.set_ylabel(subject.measures[subject.test].title)
    for axes in panels.flat:
        axes.grid(alpha=0.3)
    panels[0, 0].legend(fontsize=7, ncols=2)
    return figure


def _draw_curves(
    axes: Axes, subject: Subject, curves: Mapping[str, Sequence[Sequence[float]]], column: int, scale: float
) -> None:
    known = {name: np.array(curve) for name, curve in curves.items() if len(curve)}
    fixed_ones = [curve for name, curve in known.items() if name.startswith("fixed")]
    if fixed_ones:
        low, high = (pick(float(curve[at, column]) for curve in fixed_ones) for pick, at in ((min, 0), (max, -1)))
        grid = np.geomspace(max(low, 1e-9), high, 200)
        best = [
            max((subject.sign * curve[curve[:, column] <= x, 2]).max(initial=-np.inf) for curve in fixed_ones)
            for x in grid
        ]
        axes.plot(scale * grid, subject.sign * np.array(best), color="black", linewidth=2.5, alpha=0.5,
                  label="envelope of fixed networks")  # fmt: skip
    for n, (name, curve) in enumerate(known.items()):
        colour, marker, style = _look(name, n)
        axes.plot(scale * curve[:, column], curve[:, 2], style, color=colour, linewidth=1.0, alpha=0.8, label=name)
        axes.plot(scale * curve[-1, column], curve[-1, 2], marker, color=colour, markersize=5)
        axes.annotate(_short(name), (scale * float(curve[-1, column]), float(curve[-1, 2])), fontsize=6)
    ends = np.concatenate([curve[len(curve) // 3 :, 2] for curve in known.values()])
    axes.set_ylim(*(np.quantile(ends, (0.0, 0.98)) if subject.sign < 0 else np.quantile(ends, (0.05, 1.0))))


def _look(variant: str, number: int) -> tuple[str, str, str]:
    """Colour, marker and line of a variant: grey, blue and black for fixed networks, bright colours for ours."""
    if variant == NARROW:
        return "black", "^", "--"
    if variant.endswith("FLOPs"):
        return "tab:blue", "s", ":"
    if variant.startswith("fixed"):
        return "tab:gray", "o", "-"
    return ("tab:red", "tab:green", "tab:orange", "tab:purple")[number % 4], "D", "-"


def _short(variant: str) -> str:
    return variant.replace("fixed, ", "").replace(" layers", "").replace(" layer", "").replace("GPF, ", "")

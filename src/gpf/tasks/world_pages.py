"""What trained world models are worth: their predictions and dreams, and the navigators that they make possible."""

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from gpf.navigation.acting import NetworkPolicy
from gpf.navigation.agents import load_navigator
from gpf.navigation.evaluate import BLOCK, HELD_OUT, VALIDATION, Evaluation, Progress, evaluate
from gpf.navigation.flat import FlatNetwork
from gpf.navigation.policies import CastAndSurge, Policy
from gpf.navigation.tokenized import SMELL, Tokenized
from gpf.plume.scenario import Scenario
from gpf.reports.figures import save_figure
from gpf.reports.statistics import interquartile_mean
from gpf.runs.folder import RunError, read_config, read_log, read_result, replace_text
from gpf.tasks import html
from gpf.tasks.compare import markdown_table
from gpf.tasks.world import checked_data, three_parts
from gpf.world_model.dreaming import learn_in_imagination
from gpf.world_model.figures import dreams_figure, reliability_figure, training_figure
from gpf.world_model.measures import (
    DREAM_HISTORY,
    DREAM_STEPS,
    DREAMS,
    baseline_cross_entropies,
    dream,
    measure,
    predict,
)
from gpf.world_model.planner import Planner, Scoring
from gpf.world_model.sequences import STREAMS
from gpf.world_model.trained import TrainedWorld, load_world, read_run_config

CALIBRATED = 0.03
"""Expected calibration error below which probabilities may be taken at their word."""
LATENCIES, WARM_UP = 300, 20
"""Planning steps that are timed, one world at a time, after some that are not."""


def group_name(folder: Path) -> str:
    """What a run is called in tables."""
    config = read_run_config(folder)
    return "GPF" if config.gpf else f"{config.depth} blocks from the start"


def evaluate_worlds(folders: Sequence[Path], page: Path, name: str, command: str) -> Path:
    """Measure trained world models on sequences that nothing was chosen on; write a page, and return where it is."""
    groups: dict[str, list[Path]] = {}
    for folder in folders:
        groups.setdefault(group_name(folder), []).append(folder)
        like = groups[group_name(folder)][0]
        first, this = read_run_config(like), read_run_config(folder)
        if dataclasses.replace(this, seed=first.seed, data=first.data) != first:
            raise ValueError(f"runs: {folder} differs from {like} in more than its seed; accepted: one of each kind")
        if read_result(folder) is None:
            raise ValueError(f"run: {folder} is not finished; accepted: after gpf world train --resume {folder}")
    dataset = checked_data(folders[0], read_run_config(folders[0]))
    for folder in folders[1:]:
        checked_data(folder, dataclasses.replace(read_run_config(folder), data=read_run_config(folders[0]).data))
    learnt, _, test = three_parts(dataset)
    baselines = baseline_cross_entropies(learnt, test)
    measured = {group: [measure(load_world(one), test) for one in runs] for group, runs in groups.items()}
    results = {group: [read_result(one) or {} for one in runs] for group, runs in groups.items()}
    shown = load_world(folders[0])
    page.mkdir(parents=True, exist_ok=True)
    dreams = dream(shown, test)
    if dreams is not None:
        save_figure(dreams_figure(dreams), page / f"{name}-dreams.png")
    save_figure(reliability_figure(predict(shown.model, test)), page / f"{name}-reliability.png")
    save_figure(training_figure(groups), page / f"{name}-training.png")
    sections = [
        "# The world model",
        f"Sequences: {dataset.steps:,} steps in {len(dataset):,} episodes of"
        f" {', '.join(dataset.about.get('behaviours', []))}; eight of ten sequences to learn from, one to stop early"
        f" on, and one, {test.steps:,} steps, to report here. Interquartile means over runs with 95 % bootstrap"
        " intervals.",
        "## Predictions: cross-entropy of the next observation, nats a token",
        _losses(baselines, measured),
        _verdict(baselines, measured),
        f"![reliability]({name}-reliability.png)",
        *_dreams_section(measured, name),
        "## Growing, against the final depth from the start: same data, same steps",
        _growth(measured, results),
        "Seconds are those of the runs as they were, two at a time and beside other work; `benchmarks/world_speed.py"
        " --run` times gradient steps in turns.",
        f"![training]({name}-training.png)",
        f"Made by `{command}`; runs: {', '.join(f'`{folder}`' for folder in folders)}.",
    ]
    plain = {
        "baselines": {key: value.tolist() for key, value in baselines.items()},
        "measured": measured,
        "results": results,
    }
    replace_text(page / f"{name}.json", json.dumps(plain) + "\n")
    replace_text(page / f"{name}.md", "\n\n".join(sections) + "\n")
    return page / f"{name}.md"


def write_report(folder: Path) -> Path:
    """Write a run's `report.html`, measured on what the run did not learn from nor stop on; returns its path."""
    config, lines = read_config(folder), read_log(folder, "metrics")
    if not lines:
        raise RunError(f"run: {folder} has no round yet; accepted: a run that has learnt for one")
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
    last, best = lines[-1], min(lines, key=lambda line: sum(line["validation"]))
    cards = [
        (f"{predicted.cross_entropy.sum():.4f}", f"nats an observation, {test.steps:,} steps held out"),
        (f"{best['depth']}", f"blocks, {len(best['frozen'])} frozen, at the best checkpoint"),
        (f"{best['density']:.1%}", f"of the weights left: {best['parameters']:,} parameters"),
        (f"{last['step']:,}", f"gradient steps in {last['seconds']:.0f} s"),
    ]
    sections = {
        "Learning": html.figure(place / "training.png", "Validation loss, blocks and parameters; dotted: events."),
        "Events": html.event_table(read_log(folder, "events"), "step"),
        "Predictions": html.table(["cross-entropy, nats a token", *STREAMS], rows, len(rows) - 1)
        + html.figure(place / "reliability.png", "How often the likeliest token came, by how sure the model was."),
        "Dreams": imagined,
        "Settings": html.settings(config),
    }
    about = f"world model, {group_name(folder)}, seed {config['config']['seed']}, data {config['config']['data']}"
    replace_text(folder / "report.html", html.page(folder.resolve().name, about, cards, sections))
    return folder / "report.html"


def _losses(baselines: dict[str, Any], measured: dict[str, list[dict[str, Any]]]) -> str:
    rows = [[name, *(f"{value:.4f}" for value in values), "", "", ""] for name, values in baselines.items()]
    for group, runs in measured.items():
        losses = [_iqm([run["cross_entropy"][n] for run in runs], ".4f") for n in range(len(STREAMS))]
        errors = [_iqm([run["calibration_error"][n] for run in runs], ".4f") for n in range(len(STREAMS))]
        rows.append([f"world model, {group}", *losses, *errors])
    return markdown_table(["", *STREAMS, *(f"calibration error, {stream}" for stream in STREAMS)], rows)


def _verdict(baselines: dict[str, Any], measured: dict[str, list[dict[str, Any]]]) -> str:
    """Whether the models beat the best of the baselines on every stream, and whether their probabilities are true."""
    said = []
    for group, runs in measured.items():
        for n, stream in enumerate(STREAMS):
            name, best = min(((key, float(value[n])) for key, value in baselines.items()), key=lambda pair: pair[1])
            worst = interquartile_mean([run["cross_entropy"][n] for run in runs])[2]
            error = interquartile_mean([run["calibration_error"][n] for run in runs])[2]
            said.append(
                f"{group}, {stream}: {'better' if worst < best else 'not better'} than the best baseline ({name});"
                f" calibration error {'under' if error < CALIBRATED else 'not under'} {CALIBRATED}."
            )
    return "\n".join(f"- {line}" for line in said)


def _dreams_section(measured: dict[str, list[dict[str, Any]]], name: str) -> list[str]:
    if any(run["dreams"] is None for runs in measured.values() for run in runs):
        return []
    return [
        f"## Dreams: {DREAM_STEPS} steps after {DREAM_HISTORY} steps of real history",
        f"{DREAMS:,} places drawn at random in sequences that go on for so long, with the actions that were really"
        " taken. What is said of the simulator is therefore said of episodes that did not end there.",
        _dreams(measured),
        f"![dreams]({name}-dreams.png)",
    ]


def _dreams(measured: dict[str, list[dict[str, Any]]]) -> str:
    columns = {
        "whiff_rate": "whiff rate, simulator", "imagined_whiff_rate": "imagined", "whiff_rate_off": "off by",
        "blank_distance": "blanks, Kolmogorov distance", "whiff_distance": "whiffs",
        "correlation": "left-right correlation, simulator", "imagined_correlation": "imagined",
    }  # fmt: skip
    rows = [
        [group, *(_iqm([run["dreams"][key] for run in runs], ".3f") for key in columns)]
        for group, runs in measured.items()
    ]
    return markdown_table(["", *columns.values()], rows)


def _growth(measured: dict[str, list[dict[str, Any]]], results: dict[str, list[dict[str, Any]]]) -> str:
    rows = []
    for group, runs in measured.items():
        of = results[group]
        rows.append(
            [
                group,
                _iqm([sum(run["cross_entropy"]) for run in runs], ".4f"),
                ", ".join(str(one["depth"]) for one in of),
                _iqm([one["parameters"] for one in of], ",.0f"),
                _iqm([one["density"] for one in of], ".3f"),
                _iqm([one["step"] for one in of], ",.0f"),
                _iqm([one["seconds"] for one in of], ",.0f"),
                _iqm([one["flops"] / 1e12 for one in of], ",.0f"),
            ]
        )
    columns = ["", "loss, all streams", "blocks in the end", "parameters", "density of the blocks", "steps", "seconds",
               "TFLOP"]  # fmt: skip
    return markdown_table(columns, rows)


def _iqm(scores: Sequence[float], form: str) -> str:
    value, low, high = interquartile_mean(scores)
    return format(value, form) if low == high else f"{value:{form}} [{low:{form}}, {high:{form}}]"


# Planning


def make_follow(name: str, scenario: Scenario) -> Tokenized | None:
    """Whom rollouts follow: nobody (`repeat`), cast-and-surge, or the navigator of a run; all see tokens only."""
    if name == "repeat":
        return None
    if name == "cast-and-surge":
        return Tokenized(CastAndSurge(), scenario, SMELL)
    if not Path(name).is_dir():
        raise ValueError(f"follow: {name!r}; accepted: repeat, cast-and-surge, or the folder of a run of gpf train")
    policy = load_navigator(Path(name)).policy
    return Tokenized(policy, scenario, SMELL if policy.observation == "memory" else 1)


def make_planner(world: TrainedWorld, follow: str, scoring: Scoring, **options: Any) -> Planner:
    """A planner in the world of a model."""
    if scoring.value and Path(follow).is_dir() and load_navigator(Path(follow)).config.critic == "memory":
        raise ValueError(f"value: {scoring.value}; accepted: 0 with {follow}, whose critic was for learning only")
    return Planner(
        world.model, world.scenario, make_follow(follow, world.scenario), scoring=scoring, coupling=world.coupling,
        **options,
    )  # fmt: skip


class _Timed:
    """A policy whose every choice is timed."""

    PER_LANE: ClassVar[tuple[str, ...]] = ("policy",)

    def __init__(self, policy: Policy) -> None:
        self.policy, self.seconds = policy, list[float]()

    def begin(self, seeds: Sequence[int], scenario: Scenario) -> None:
        self.policy.begin(seeds, scenario)

    def act(self, *observed: Any) -> None:
        started = time.perf_counter()
        self.policy.act(*observed)
        self.seconds.append(time.perf_counter() - started)


def latencies(planner: Planner, count: int | None = None) -> list[float]:
    """Seconds of planning steps in one world, on one thread; the first ones, which warm up, do not count."""
    count = LATENCIES if count is None else count
    before, timed, episode = torch.get_num_threads(), _Timed(planner), 0
    torch.set_num_threads(1)
    try:
        while len(timed.seconds) < count + WARM_UP:
            evaluate(timed, planner.scenario, 1, VALIDATION + episode)
            episode += 1
    finally:
        torch.set_num_threads(before)
    return timed.seconds[WARM_UP : count + WARM_UP]


def check_held_out(episodes: int, seed: int) -> None:
    """Refuse a block of held-out episodes that there cannot be."""
    if not 0 <= seed < BLOCK:
        raise ValueError(f"seed: {seed}; accepted: 0 to {BLOCK - 1}")
    if not 1 <= episodes <= BLOCK:
        raise ValueError(f"episodes: {episodes}; accepted: 1 to {BLOCK}")


def held_out(
    policy: Policy, scenario: Scenario, episodes: int, seed: int = 0, progress: Progress | None = None, paths: int = 0
) -> Evaluation:
    """A policy in episodes that nothing was chosen on."""
    check_held_out(episodes, seed)
    return evaluate(policy, scenario, episodes, HELD_OUT + seed * BLOCK, paths=paths, progress=progress)


def passed_by(result: Evaluation) -> float | None:
    """Of the failures whose paths were kept, the share that ended upwind of the source; None where there are none."""
    ends = [path[-1, 0] for episode, path in result.paths.items() if not result.success[episode]]
    return float(np.mean(np.array(ends) < 0.0)) if ends else None


def baselines_of(scenario: Scenario) -> dict[str, Policy]:
    """Whom a planner is to be compared with."""
    return {
        "cast-and-surge that sees the same tokens": Tokenized(CastAndSurge(), scenario, SMELL),
        "cast-and-surge, raw": CastAndSurge(),
    }


def imagined_navigator(
    world: TrainedWorld, epochs: int, seed: int, progress: Callable[[int], None] = lambda epochs: None
) -> tuple[Tokenized, list[float | None]]:
    """A navigator that has learnt in imagination only; it sees tokens only."""
    model, curve = learn_in_imagination(world, epochs, seed, progress=progress)
    policy = NetworkPolicy(FlatNetwork(model), "memory", "sampled", world.scenario)
    return Tokenized(policy, world.scenario, SMELL), curve


def outcome_table(outcomes: dict[str, dict[str, Any]]) -> str:
    """Evaluations of several policies as Markdown."""
    rows = [
        [
            name,
            f"{one['success']:.2%} [{one['low']:.2%}, {one['high']:.2%}]",
            "-" if one["mean_steps"] is None else f"{one['mean_steps']:.0f}",
            f"{one['spl']:.3f}",
            f"{one['episodes']:,}",
        ]
        for name, one in outcomes.items()
    ]
    return markdown_table(["", "success [95 %]", "steps to the source", "SPL", "episodes"], rows)


def navigators_beside(path: Path, scenario: Scenario) -> str:
    """The navigators of a comparison (its .json) in a world, as Markdown."""
    try:
        rows = [row for row in json.loads(path.read_text())["rows"] if Scenario.of(row["scenario"]) == scenario]
        table = [
            [row["agent"], "{:.2%} [{:.2%}, {:.2%}]".format(*row["success"]),
             "-" if row["mean_steps"] is None else f"{row['mean_steps']:.0f}", f"{np.mean(row['spl']):.3f}",
             f"{len(row['seeds'])}"]
            for row in rows
        ]  # fmt: skip
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"beside: {path} cannot be read ({error}); accepted: numbers that gpf compare wrote") from None
    if not rows:
        raise ValueError(f"beside: {path} has nobody in this world; accepted: numbers of one who was there")
    return (
        f"Beside them, from [{path.stem}]({path.stem}.md), those who see more than tokens or were trained in the plume:"
        " interquartile means over seeds, last checkpoints.\n\n"
        + markdown_table(["", "success [95 %]", "steps to the source", "SPL", "seeds"], table)
    )


def write_planner_page(
    outcomes: dict[str, dict[str, Any]], about: str, beside: str, page: Path, name: str, command: str
) -> Path:
    """A page of a planner's outcomes; returns where it is."""
    sections = ["# Planning in imagination", outcome_table(outcomes), about, *([beside] if beside else [])]
    sections.append(f"Made by `{command}`.")
    page.mkdir(parents=True, exist_ok=True)
    replace_text(page / f"{name}.json", json.dumps({"outcomes": outcomes, "about": about}) + "\n")
    replace_text(page / f"{name}.md", "\n\n".join(sections) + "\n")
    return page / f"{name}.md"


def write_dream_page(
    outcomes: dict[str, dict[str, Any]],
    curves: list[list[float | None]],
    passed: list[float | None],
    page: Path,
    name: str,
    command: str,
) -> Path:
    """A page of navigators that have learnt in imagination; returns where it is."""
    latest = [[share for share in curve if share is not None][-10:] for curve in curves]
    imagined = ", ".join(f"{np.mean(some):.1%}" for some in latest if some)
    sections = [
        "# Navigators that learnt in imagination only",
        "PPO in lanes that the world model makes up, from the first weights on; then let loose in the plume, in"
        " episodes that nothing was learnt or chosen on. All but the last row see tokens only.",
        outcome_table(outcomes),
        f"Of the imagined episodes that ended in the last ten rollouts of learning, {imagined or 'none'} found an"
        " imagined source, seed by seed. In the plume, of the first 200 failures of each,"
        f" {', '.join('-' if share is None else f'{share:.0%}' for share in passed)} ended upwind of the source: the"
        " navigator had flown past it. The model knows nothing of where the source is. In imagination whoever goes on"
        " against the wind will find it, and smell that is lost comes back as often as it did for the behaviours of the"
        " data, most of which knew how to find it again.",
        f"Made by `{command}`.",
    ]
    page.mkdir(parents=True, exist_ok=True)
    plain = {"outcomes": outcomes, "imagined_success": curves, "passed_by": passed}
    replace_text(page / f"{name}.json", json.dumps(plain) + "\n")
    replace_text(page / f"{name}.md", "\n\n".join(sections) + "\n")
    return page / f"{name}.md"


def quantiles(seconds: Sequence[float]) -> dict[str, float]:
    """Milliseconds at the middle and at the 99th percentile."""
    p50, p99 = np.quantile(seconds, (0.5, 0.99)) * 1e3
    return {"p50_ms": float(p50), "p99_ms": float(p99)}

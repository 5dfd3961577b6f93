"""Results of trained world models: predictions, rollouts, and whether growing pays."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpf.reports.pages import Numbers, join, write_page
from gpf.reports.statistics import interval_words, over_seeds
from gpf.reports.tables import markdown_table, summary
from gpf.reports.verdicts import ENOUGH_SEEDS, caution
from gpf.runs.folder import read_result
from gpf.tasks.world import checked_data, group_name, three_parts
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
from gpf.world_model.sequences import STREAMS
from gpf.world_model.trained import load_world, read_run_config

CALIBRATED = 0.03
"""Expected calibration error below which probabilities may be taken at their word."""


def evaluate_worlds(folders: Sequence[Path], page_folder: Path, name: str, command: str) -> Path:
    """Measure trained world models on sequences that nothing was chosen on; write a page, and return where it is."""
    groups: dict[str, list[Path]] = {}
    for folder in folders:
        groups.setdefault(group_name(folder), []).append(folder)
        like = groups[group_name(folder)][0]
        first, this = read_run_config(like), read_run_config(folder)
        if dataclasses.replace(this, seed=first.seed, data=first.data) != first:
            raise ValueError(f"runs of one kind must differ only in their seeds, got {like} and {folder}")
        if read_result(folder) is None:
            raise ValueError(f"run {folder} is not finished; resume it with: gpf train --resume {folder}")
    data = read_run_config(folders[0]).data
    dataset = checked_data(folders[0], read_run_config(folders[0]))
    for folder in folders[1:]:
        checked_data(folder, dataclasses.replace(read_run_config(folder), data=data))
    learned, _, test = three_parts(dataset)
    shown = load_world(folders[0])
    dreams = dream(shown, test)
    figures = {
        f"{name}-reliability.png": reliability_figure(predict(shown.model, test)),
        f"{name}-training.png": training_figure(groups),
    }
    if dreams is not None:
        figures[f"{name}-dreams.png"] = dreams_figure(dreams)
    numbers: Numbers = {
        "kind": "world-model",
        "command": command,
        "runs": [str(folder) for folder in folders],
        "data": {
            "steps": dataset.steps,
            "episodes": len(dataset),
            "behaviours": list(dataset.about.get("behaviours", [])),
            "test_steps": test.steps,
        },
        "baselines": {key: value.tolist() for key, value in baseline_cross_entropies(learned, test).items()},
        "measured": {group: [measure(load_world(one), test) for one in runs] for group, runs in groups.items()},
        "results": {group: [read_result(one) or {} for one in runs] for group, runs in groups.items()},
    }
    return write_page(page_folder, name, numbers, page(numbers, name), figures)


def page(numbers: Numbers, name: str) -> str:
    """The text of a page."""
    data, baselines, measured = numbers["data"], numbers["baselines"], numbers["measured"]
    seeds = min(len(runs) for runs in measured.values())
    return join(
        [
            "# The world model",
            f"Sequences: {data['steps']:,} steps in {data['episodes']:,} episodes of"
            f" {', '.join(data['behaviours'])}; 80 % of the sequences are for training, 10 % for"
            f" validation, and 10 %, {data['test_steps']:,} steps, for testing. Numbers are {interval_words(seeds)}.",
            caution(seeds),
            "## Predictions: cross-entropy of the next observation, nats per token",
            _losses(baselines, measured),
            _verdict(baselines, measured),
            f"![reliability]({name}-reliability.png)",
            *_dreams_section(measured, name),
            "## Growing, compared with the final depth from the start: same data, same steps",
            _growth(measured, numbers["results"]),
            "Seconds are those of the actual runs, two at a time on a shared machine;"
            " `benchmarks/world_speed.py --run` times gradient steps in turns.",
            f"![training]({name}-training.png)",
            f"Made by `{numbers['command']}`; runs: {', '.join(f'`{folder}`' for folder in numbers['runs'])}.",
        ]
    )


def _losses(baselines: dict[str, Any], measured: dict[str, list[dict[str, Any]]]) -> str:
    rows = [[name, *(f"{value:.4f}" for value in values), "", "", ""] for name, values in baselines.items()]
    for group, runs in measured.items():
        losses = [summary([run["cross_entropy"][n] for run in runs], ".4f") for n in range(len(STREAMS))]
        errors = [summary([run["calibration_error"][n] for run in runs], ".4f") for n in range(len(STREAMS))]
        rows.append([f"world model, {group}", *losses, *errors])
    return markdown_table(["", *STREAMS, *(f"calibration error, {stream}" for stream in STREAMS)], rows)


def _verdict(baselines: dict[str, Any], measured: dict[str, list[dict[str, Any]]]) -> str:
    """Whether the models beat the best of the baselines on every stream, and whether their probabilities are true."""
    said = []
    for group, runs in measured.items():
        for n, stream in enumerate(STREAMS):
            name, best = min(((key, float(value[n])) for key, value in baselines.items()), key=lambda pair: pair[1])
            losses, errors = ([run[key][n] for run in runs] for key in ("cross_entropy", "calibration_error"))
            said.append(f"{group}, {stream}: {_against(losses, best, name)}; {_calibrated(errors)}.")
    return "\n".join(f"- {line}" for line in said)


def _against(losses: Sequence[float], best: float, name: str) -> str:
    """Compares the losses of some runs with that of the best baseline."""
    if len(losses) < ENOUGH_SEEDS:
        lower = sum(loss < best for loss in losses)
        return f"a lower loss than the best baseline ({name}) in {lower} of {len(losses)} runs"
    return f"{'better' if over_seeds(losses)[2] < best else 'not better'} than the best baseline ({name})"


def _calibrated(errors: Sequence[float]) -> str:
    """Summary of the calibration errors of some runs."""
    if len(errors) < ENOUGH_SEEDS:
        under = sum(error < CALIBRATED for error in errors)
        return f"a calibration error under {CALIBRATED} in {under} of {len(errors)}"
    return f"calibration error {'under' if over_seeds(errors)[2] < CALIBRATED else 'not under'} {CALIBRATED}"


def _dreams_section(measured: dict[str, list[dict[str, Any]]], name: str) -> list[str]:
    if any(run["dreams"] is None for runs in measured.values() for run in runs):
        return []
    return [
        f"## Free-running rollouts: {DREAM_STEPS} steps after {DREAM_HISTORY} steps of real history",
        f"{DREAMS:,} random positions in sequences that are long enough, with the actions that were actually"
        " taken. The simulator's statistics are therefore those of episodes that did not end there.",
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
        [group, *(summary([run["dreams"][key] for run in runs], ".3f") for key in columns)]
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
                summary([sum(run["cross_entropy"]) for run in runs], ".4f"),
                ", ".join(str(one["depth"]) for one in of),
                summary([one["parameters"] for one in of], ",.0f"),
                summary([one["density"] for one in of], ".3f"),
                summary([one["step"] for one in of], ",.0f"),
                summary([one["seconds"] for one in of], ",.0f"),
                summary([one["flops"] / 1e12 for one in of], ",.0f"),
            ]
        )
    columns = ["", "loss, all streams", "final blocks", "parameters", "density of the blocks", "steps", "seconds",
               "TFLOP"]  # fmt: skip
    return markdown_table(columns, rows)

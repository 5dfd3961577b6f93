"""A navigator's run as one page: `report.html`, a self-contained file."""

import dataclasses
import html
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpf.navigation.agents import Navigator, load_navigator
from gpf.navigation.config import Config
from gpf.navigation.episode_figures import choices_figure, map_figure
from gpf.navigation.evaluate import Evaluation, film
from gpf.navigation.figures import evaluation_figure, network_figure, training_figure
from gpf.navigation.policy_gradient import Settings as PolicyGradient
from gpf.navigation.replay import habits, replay
from gpf.navigation.seeds import BLOCK, HELD_OUT
from gpf.plume.render import save_animation
from gpf.plume.scenario import ACTIONS, Scenario
from gpf.reports.figures import save_figure
from gpf.reports.html import conclusion, event_table, figure, figures, page, settings, table
from gpf.runs.folder import RunError, read_config, read_log, read_result, replace_text
from gpf.runs.training import one_thread
from gpf.spectra.figures import grams_figure, plasticity_figure, weights_figure
from gpf.tasks import task_of
from gpf.tasks.conclusions import activations_conclusion, plasticity_conclusion, weights_conclusion
from gpf.tasks.plume_result import CHECKPOINT_COLUMNS, checkpoint_rows, regression
from gpf.tasks.spectra import analyse_run, drifts
from gpf.tasks.task import Tell

EPISODES = 200
"""Held-out episodes in the report of a run that was not evaluated."""
REPLAYED = 50
"""Episodes from which it tells what the navigator does when."""
MOMENTS = 4
"""Moments of the run whose spectra it shows."""
PIXELS = 360
"""Length of the longer side of its animations."""


@dataclass(frozen=True)
class Looked:
    """Held-out episodes, and the shown ones among them; None without any."""

    navigator: Navigator
    evaluation: Evaluation
    typical: int | None
    """The one that found the source in the median number of steps."""
    failed: int | None
    """The first that did not find it."""

    def seed(self, episode: int) -> int:
        """Of an episode's world."""
        return HELD_OUT + self.navigator.config.seed * BLOCK + episode


def write_report(folder: Path, tell: Tell = lambda phase: None) -> Path:
    """Write a run's `report.html`, with its figures; returns its path. `tell` is called before each phase."""
    written, metrics = read_config(folder), read_log(folder, "metrics")
    if not metrics or not (folder / "checkpoints" / "last" / "manifest.json").exists():
        raise RunError(f"run {folder} has no finished round yet")
    result = read_result(folder)
    evaluated = result is not None and result.get("success") is not None
    with one_thread():
        tell("episodes")
        navigator = load_navigator(folder)
        looked = _look(navigator, _held_out(folder, navigator, evaluated))
        config = looked.navigator.config
        tell("figures")
        sections = {
            "Episode": _episode(folder, looked),
            "Trajectories": _trajectories(folder, looked),
            "Learning": _learning(folder),
            "Events": event_table(task_of(folder).named(read_log(folder, "events"), config), "step"),
            "Network": _network(folder, looked.navigator),
        }
        tell("animations")
        sections["Episode"] += _animations(folder, looked)
        tell("spectra")
        sections["Spectra"] = _spectra(folder, looked.navigator)
        sections["Plasticity"] = _plasticity(folder, metrics)
    sections["Settings"] = _settings(written, config, looked.navigator.scenario)
    cards = _cards(result, looked, metrics[-1])
    headline = _headline(written["config"]) + (f", fine-tuned from {written['from']}" if "from" in written else "")
    replace_text(
        folder / "report.html", page(folder.resolve().name, headline, cards, sections, _regression(folder, result))
    )
    return folder / "report.html"


def _held_out(folder: Path, navigator: Navigator, evaluated: bool) -> Evaluation:
    """The episodes of the run's own evaluation; or some, if it has none."""
    kept = folder / "held_out.npz"
    if evaluated and kept.exists():
        return Evaluation.load(kept, navigator.scenario)
    return navigator.evaluate(EPISODES, paths=EPISODES)


def _look(navigator: Navigator, looked: Evaluation) -> Looked:
    """Choose the episodes that are shown."""
    found, failed = np.flatnonzero(looked.success), np.flatnonzero(~looked.success)
    order = found[np.argsort(looked.steps[found], kind="stable")]
    return Looked(
        navigator,
        looked,
        int(order[(len(order) - 1) // 2]) if len(order) else None,
        int(failed[0]) if len(failed) else None,
    )


def _episode(folder: Path, looked: Looked) -> str:
    """The typical episode, annotated, and what the navigator does by the time since its last whiff."""
    navigator, place = looked.navigator, folder / "figures"
    shown = looked.failed if looked.typical is None else looked.typical
    assert shown is not None  # an episode succeeds or fails
    (episode,) = replay(navigator.policy, navigator.scenario, [looked.seed(shown)])
    values = not isinstance(navigator.config.learner, PolicyGradient)
    paths = [place / "episode-map.png", place / "episode-choices.png"]
    for path, drawn in zip(paths, (map_figure(episode), choices_figure(episode, values)), strict=True):
        save_figure(drawn, path)
    chosen = "value of each action, minus their mean" if values else "probability of each action"
    which = (
        f"The episode that found the source in the median number of steps, {episode.steps}"
        if looked.typical is not None
        else f"No episode found the source; this is the first, of {episode.steps} steps"
    )
    annotated = figures(
        paths,
        f"{which}. First: the path coloured by action, with whiffs, the wind at some moments, step numbers, and the"
        f" plume as it was at the end (grey, logarithmic). Then, over time: the readings of the antennae, the {chosen},"
        " the distance from the source"
        f"{', and the value' if values or episode.value is not None else ''}.",
    )
    count = min(REPLAYED, looked.evaluation.episodes)
    told = habits(replay(navigator.policy, navigator.scenario, [looked.seed(n) for n in range(count)], cells=1))
    rows = [
        [habit.when, f"{habit.share:.1%}", f"{habit.from_upwind:.0f}°", *(f"{share:.0%}" for share in habit.actions)]
        for habit in told
    ]
    header = ["when", "share of steps", "angle from upwind", *ACTIONS]
    note = (
        f'<p class="caption">Actions by time since the last whiff, over the first {count} held-out episodes. Mean angle'
        " from upwind: 0° upwind, 90° crosswind, 180° downwind. Then the share of each action.</p>"
    )
    return annotated + note + table(header, rows)


def _animations(folder: Path, looked: Looked) -> str:
    """The typical and the failed episode, as they went."""
    navigator, place = looked.navigator, folder / "figures"
    shown = {"Typical": looked.typical, "Failed": looked.failed}
    parts = []
    for name, episode in shown.items():
        if episode is None:
            continue
        path = place / f"episode-{name.lower()}.webp"
        seed = looked.seed(episode)
        save_animation(film(navigator.policy, navigator.scenario, seed, pixels=PIXELS), path)
        steps = int(looked.evaluation.steps[episode])
        parts.append(
            f"<div>{figure(path, f'{name} episode, {steps} steps: number {episode + 1} of the held-out ones.')}</div>"
        )
    if looked.failed is None:
        parts.append(f"<p>All {looked.evaluation.episodes:,} episodes found the source.</p>")
    if looked.typical is None:
        parts.append(f"<p>None of {looked.evaluation.episodes:,} episodes found the source.</p>")
    return f'<div class="row films">{"".join(parts)}</div>'


def _trajectories(folder: Path, looked: Looked) -> str:
    path, summary = folder / "figures" / "trajectories.png", looked.evaluation.summary()
    title = f"{folder.name}, last checkpoint: {summary['success']:.2%} of {summary['episodes']:,} held-out episodes"
    save_figure(evaluation_figure(looked.evaluation, title), path)
    return figure(path, "Held-out episodes of the last checkpoint; the green dot is the source.")


def _learning(folder: Path) -> str:
    path = folder / "figures" / "training.png"
    save_figure(training_figure(folder), path)
    return figure(
        path, "Success and SPL while learning, success in validation episodes, events, and the parameters in use."
    )


def _network(folder: Path, navigator: Navigator) -> str:
    path = folder / "figures" / "network.png"
    save_figure(network_figure(navigator), path)
    return figure(
        path,
        "Weights at the last checkpoint: blue positive, red negative, grey pruned. A row is a unit, a column is one of"
        " its inputs.",
    )


def _spectra(folder: Path, navigator: Navigator) -> str:
    """Eigenvalues of weights and activations at some moments, with what they amount to."""
    moments, net = analyse_run(folder, MOMENTS), navigator.net
    notes = ""
    if net.depth > navigator.config.depth and net.rules.grow_init == "identity":
        notes += " A layer that is added starts as the identity, whose eigenvalues are all 1."
    if net.shape().pruned:
        notes += " Where pruning has thinned some units more than others, spikes can appear without learning."
    parts = []
    for name, draw, caption, said in (
        (
            "weights", weights_figure,
            "Eigenvalues of each layer's weights at some moments (blue), the bulk of random weights of the same size"
            f" and scale (red), and spikes above it (yellow).{notes}",
            weights_conclusion(moments[-1].inspection),
        ),
        (
            "activations", grams_figure,
            "Eigenvalues of the layers' activations (blue), and the law of a random layer that is given the same inputs"
            " (red); D is the Kolmogorov distance between the two.",
            activations_conclusion(moments[-1].inspection),
        ),
    ):  # fmt: skip
        paths = []
        shown = zip(moments, drifts(moments), strict=True)
        for n, (moment, drift) in enumerate(shown):
            if name == "activations" and moment.inspection.layers[0].gram is None:
                continue
            paths.append(folder / "figures" / f"report-{name}-{n}.png")
            save_figure(draw([moment.label], [moment.inspection], [drift]), paths[-1])
        parts.append(figures(paths, caption, small=True) + conclusion(said))
    return "".join(parts)


def _plasticity(folder: Path, metrics: list[dict[str, Any]]) -> str:
    lines = [line for line in metrics if line.get("plasticity")]
    if not lines:
        return ""
    path, found = folder / "figures" / "plasticity.png", [line["plasticity"] for line in lines]
    save_figure(plasticity_figure([line["step"] / 1e6 for line in lines], found, "steps, millions"), path)
    return figure(path, "How able each layer still is to learn, at every validation.") + conclusion(
        plasticity_conclusion(found)
    )


def _settings(written: dict[str, Any], config: Config, world: Scenario) -> str:
    """Everything that the run was made with; its world with the reward that was paid, not the one it replaced."""
    note = f"The world is shown as trained, with reward {config.learner.reward}."
    trained = dataclasses.asdict(config.rewarded(world))
    return f'<p class="soft">{html.escape(note)}</p>' + settings({**written, "world": trained})


def _headline(config: dict[str, Any]) -> str:
    return (
        f"{config['learner']}, observation {config['observation']}, world {config['scenario']}, reward"
        f" {config['reward']}, seed {config['seed']}, {'with' if config['gpf'] else 'without'} GPF"
    )


def _cards(result: dict[str, Any] | None, looked: Looked, last: dict[str, Any]) -> list[tuple[str, str]]:
    """The main numbers."""
    summary = looked.evaluation.summary()
    interval = f"[{summary['low']:.2%}, {summary['high']:.2%}]"
    steps = "-" if summary["mean_steps"] is None else f"{summary['mean_steps']:.0f}"
    return [
        (f"{summary['success']:.2%}", f"success {interval}, {summary['episodes']:,} held-out episodes"),
        (steps, "mean steps to the source"),
        (f"{summary['spl']:.3f}", "SPL"),
        (f"{last['depth']}", f"hidden layers, {len(last['frozen'])} frozen"),
        (f"{last['density']:.1%}", f"density: {last['parameters']:,} parameters left"),
        (f"{last['step'] / 1e6:.2f} M", f"steps in {last['seconds']:.0f} s{'' if result else '; not finished'}"),
    ]


def _regression(folder: Path, result: dict[str, Any] | None) -> str:
    """Both checkpoints, where the last one is far below the best one."""
    if result is None or not result.get("regressed"):
        return ""
    said = html.escape(regression({"run": folder, **result}))
    rows = checkpoint_rows(result)
    shown = table(CHECKPOINT_COLUMNS, rows) if rows else ""
    return f"<section><h2>Training regressed</h2><p>{said}</p>{shown}</section>"

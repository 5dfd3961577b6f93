"""Variants of a network on one task over several seeds: the runs, a page of what came of them, and a run's report."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from torch import nn

from gpf.network import GrowPruneFreeze
from gpf.reports.figures import draw_band, save_figure
from gpf.runs.folder import RunError, read_config, replace_text
from gpf.spectra.empirical import Bulk
from gpf.spectra.figures import weights_figure
from gpf.spectra.inspection import Inspection, inspect
from gpf.spectra.recorder import read_snapshots
from gpf.tasks import html
from gpf.tasks.compare import markdown_table
from gpf.tasks.many import Told, train_all
from gpf.tasks.rounds import TaskConfig, find_data_of
from gpf.tasks.streams import difference, verdict
from gpf.tasks.studies import STUDIES, Claim, Outcome, Outcomes, Study, interval, judge, pruned_shares

SHOWN = 8
"""Columns of the figure of spectra: the first growths, and the latest."""
ALIKE = 0.05
"""Kolmogorov distance of eigenvalues below which they follow a law; those of random weights are below 0.01."""
ENOUGH_SEEDS = 6
"""With fewer, no permutation test of signs can have p < 0.05."""
FEW_SEEDS = ", which of so few seeds are plain means and ranges"
OURS = "GPF"
SUMMARY = "paper-tasks"
"""Name of the page that holds the paper's words against all pages' numbers."""


def find_study(name: str) -> Study:
    """A study by its name."""
    if name not in STUDIES:
        raise ValueError(f"task: {name!r}; accepted: {', '.join(STUDIES)}")
    return STUDIES[name]()


def train_variants(
    name: str,
    runs: Path,
    seeds: range,
    jobs: int = 2,
    tell: Told = lambda folder, result: None,
    changes: dict[str, Any] | None = None,
) -> Outcomes:
    """Train what is missing of every variant and seed; returns what came of them."""
    study = find_study(name)
    folders: dict[str, list[Path]] = {variant: [] for variant in study.variants}
    wanted: dict[Path, TaskConfig] = {}
    for seed in seeds:
        for variant, places in folders.items():
            config = study.config(variant, seed, changes or {})
            config.check()
            places.append(runs / name / variant.replace(" ", "-").replace(",", "") / str(seed))
            wanted[places[-1]] = config
    find_data_of(wanted)
    train_all(wanted, jobs, tell, task=study.module)
    return {variant: [Outcome.read(folder) for folder in places] for variant, places in folders.items()}


def write_page(name: str, outcomes: Outcomes, page: Path, command: str) -> Path:
    """A page of numbers, of what they say, and of figures; returns where it is."""
    study = find_study(name)
    scores = {
        variant: {key: [of(one) for one in runs] for key, (_, of) in study.measures.items()}
        for variant, runs in outcomes.items()
    }
    claims = study.claims(outcomes)
    if study.on_weights:
        claims.append(weights_claim(study.on_weights, [_network(study, one).model for one in outcomes[OURS]]))
    page.mkdir(parents=True, exist_ok=True)
    figures = {f"{name}.png": curves_figure(study, outcomes)}
    if any(one.events for runs in outcomes.values() for one in runs):
        figures[f"{name}-events.png"] = events_figure(outcomes, study.unit)
    spectra = spectra_figure(study, outcomes[OURS][0])
    if spectra is not None:
        figures[f"{name}-spectra.png"] = spectra
    for file, figure in figures.items():
        save_figure(figure, page / file)
    seeds = [read_config(one.folder)["config"]["seed"] for one in outcomes[OURS]]
    minutes = sum(one.result["seconds"] for runs in outcomes.values() for one in runs) / 60
    sections = [
        f"# {study.title}",
        f"{study.about} Seeds {seeds[0]} to {seeds[-1]}; interquartile means with 95 % bootstrap intervals"
        f"{FEW_SEEDS if len(seeds) < 4 else ''}.",
        _table(study, scores),
        _against(study, scores),
        *([_claims_table({name: claims})] if claims else []),
        *(f"![{_caption(file, name)}]({file})" for file in figures),
        f"Made by `{command}`: {sum(map(len, outcomes.values()))} runs, {minutes:.0f} minutes of one core in all."
        f" Numbers of every seed: [{name}.json]({name}.json).",
    ]
    plain = {"seeds": seeds, "scores": scores, "claims": [dataclasses.asdict(claim) for claim in claims]}
    replace_text(page / f"{name}.json", json.dumps(plain) + "\n")
    replace_text(page / f"{name}.md", "\n\n".join(section for section in sections if section) + "\n")
    return page / f"{name}.md"


def write_summary(page: Path) -> Path | None:
    """The paper's words against our numbers, of all pages in a folder; None where there are none yet."""
    claims: dict[str, list[Claim]] = {}
    for name in STUDIES:
        path = page / f"{name}.json"
        if path.exists() and (found := json.loads(path.read_text())["claims"]):
            claims[name] = [Claim(**one) for one in found]
    if not claims:
        return None
    sections = [
        "# The paper's other tasks, claim by claim",
        "What the paper says in its section on generalisation, and what we measured; every task's own page has its"
        " numbers, its figures and the command that made them.",
        _claims_table(claims),
    ]
    replace_text(page / f"{SUMMARY}.md", "\n\n".join(sections) + "\n")
    return page / f"{SUMMARY}.md"


def _claims_table(claims: dict[str, list[Claim]]) -> str:
    rows = [
        [*([f"[{name}]({name}.md)"] if len(claims) > 1 else []), claim.paper, claim.measured, claim.verdict]
        for name, some in claims.items()
        for claim in some
    ]
    return markdown_table([*(["task"] if len(claims) > 1 else []), "the paper says", "measured", ""], rows)


def _table(study: Study, scores: dict[str, dict[str, list[float]]]) -> str:
    rows = [
        [variant, *(interval(of[key], measure.form) for key, (measure, _) in study.measures.items())]
        for variant, of in scores.items()
    ]
    return markdown_table(["", *(measure.title for measure, _ in study.measures.values())], rows)


def _against(study: Study, scores: dict[str, dict[str, list[float]]]) -> str:
    """What is ours less each other variant, seed by seed."""
    judged = {key: measure for key, (measure, _) in study.measures.items() if measure.better}
    ours = [variant for variant in scores if variant.startswith(OURS)]
    few = any(len(values) < ENOUGH_SEEDS for of in scores.values() for values in of.values())
    word, say = ("less", difference) if few else ("against", verdict)
    rows = [
        [
            f"{mine} {word} {variant}",
            *(say(scores[mine][key], scores[variant][key], measure) for key, measure in judged.items()),
        ]
        for mine in ours
        for variant in scores
        if variant not in ours
    ]
    note = (
        "Differences are seed by seed; for a test that calls one better or worse it takes six seeds."
        if few
        else "Better and worse are said where a permutation test has p < 0.05."
    )
    return markdown_table(["", *(measure.title for measure in judged.values())], rows) + f"\n\n{note}"


def _caption(file: str, name: str) -> str:
    return {f"{name}.png": "curves", f"{name}-events.png": "pruning", f"{name}-spectra.png": "spectra"}[file]


# Figures


def curves_figure(study: Study, outcomes: Outcomes) -> Figure:
    """Every curve of a study, with bands over seeds."""
    figure = Figure(figsize=(4.2 * len(study.curves), 3.6), layout="constrained")
    for axes, (title, of) in zip(
        figure.subplots(1, len(study.curves), squeeze=False)[0], study.curves.items(), strict=True
    ):
        drawn = []
        for n, (variant, runs) in enumerate(outcomes.items()):
            length = min(len(one.lines) for one in runs)
            x = np.array([line[study.unit] for line in runs[0].lines[:length]])
            drawn.append(np.array([[of(line) for line in one.lines[:length]] for one in runs]))
            draw_band(axes, x, drawn[-1], f"C{n}", variant)
        values = np.concatenate([part.ravel() for part in drawn])
        if 0.0 < 1000.0 * float(np.median(values)) < values.max() and values.min() > 0.0:  # a loss that exploded
            axes.set_yscale("log")
        axes.set_title(title, fontsize=10)
        axes.set_xlabel(study.unit)
    figure.axes[0].legend(fontsize=8)
    return figure


def events_figure(outcomes: Outcomes, unit: str) -> Figure:
    """When layers were added and frozen, and how much went at each pruning, in runs in which something happened."""
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    shares, layers = figure.subplots(1, 2)
    for n, (variant, runs) in enumerate(outcomes.items()):  # colours as in the figure of curves
        name: str | None = variant
        for one in runs:
            if not one.events:
                continue
            pruned = [event for event in one.events if event["kind"] == "pruned"]
            shares.plot([event[unit] for event in pruned], pruned_shares(one), "o-", color=f"C{n}", markersize=4)
            steps, depths = zip(*((line[unit], line["depth"]) for line in one.lines), strict=True)
            layers.step(steps, depths, where="post", color=f"C{n}", label=name)
            for event in one.events:
                if event["kind"] == "frozen":
                    layers.plot(event[unit], event["after"]["depth"], "s", color=f"C{n}", markersize=4)
            name = None  # one entry in the legend
    layers.legend(fontsize=8)
    shares.set_title("share of the weights that went, at each pruning", fontsize=10)
    layers.set_title("layers; a square: one was frozen", fontsize=10)
    shares.set_ylim(bottom=0.0)
    for axes in (shares, layers):
        axes.set_xlabel(unit)
    return figure


def spectra_figure(study: Study, run: Outcome) -> Figure | None:
    """Eigenvalues of the weights of a run after each growth, with the law of random weights."""
    module = study.load_module()
    if not hasattr(module, "load"):
        return None
    net = _network(study, run)

    def build(depth: int) -> Any:
        model = module.make_model(module.Config.of(read_config(run.folder)["config"]))
        blocks = model.get_submodule(net.stack)
        while len(blocks) < depth:
            blocks.append(model.make_block(len(blocks)))
        return model

    moments = [
        (snapshot.label, _weights(snapshot.model, study.spectra))
        for snapshot in read_snapshots(run.folder / "spectra", build)
        if snapshot.number < len(net.events)
    ]
    moments.append(("end", _weights(net.model, study.spectra)))
    if len(moments) > SHOWN:
        moments = [*moments[: SHOWN // 2], *moments[-SHOWN // 2 :]]
    return weights_figure([label for label, _ in moments], [found for _, found in moments], [{} for _ in moments])


def weights_claim(paper: str, models: Sequence[nn.Module]) -> Claim:
    """Whether the weights' eigenvalues follow the law of random ones, in networks that have learnt."""
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
        "in the end, by layer, how many eigenvalues stand out above the law that fits the others, and the Kolmogorov"
        f" distance of those others from it, means over seeds: {'; '.join(said)}",
        judge(all(alike), any(alike) and not all(alike)),
    )


def _network(study: Study, run: Outcome) -> GrowPruneFreeze:
    net: GrowPruneFreeze = study.load_module().load(run.folder)
    return net


def _weights(model: Any, ending: str) -> Inspection:
    found = inspect(model, quiet=True)
    return Inspection([layer for layer in found.layers if layer.name.endswith(ending)])


# A run's report


def write_report(folder: Path) -> Path:
    """Write a run's `report.html`; returns its path."""
    config = read_config(folder)
    name, study = _study_of(config)
    one = Outcome.read(folder)
    if not one.lines:
        raise RunError(f"run: {folder} has no round yet; accepted: a run that has learnt for one")
    variant, place = study.load_module().Config.of(config["config"]).variant, folder / "figures"
    save_figure(curves_figure(study, {variant: [one]}), place / "training.png")
    sections = {"Learning": html.figure(place / "training.png", "What was measured after every round.")}
    sections["Events"] = html.event_table(one.events, study.unit)
    if one.events:
        save_figure(events_figure({variant: [one]}, study.unit), place / "events.png")
        sections["Events"] += html.figure(place / "events.png", "Growth, pruning and freezing over time.")
    spectra = spectra_figure(study, one)
    if spectra is not None:
        save_figure(spectra, place / "spectra.png")
        sections["Spectra"] = html.figure(
            place / "spectra.png",
            "Eigenvalues of the weights after each growth, with the law of random weights.",
            "large",
        )
    sections["Settings"] = html.settings(config)
    last = one.lines[-1]
    cards = [(format(of(last), ".4g"), title) for title, of in study.curves.items()]
    cards.append((f"{last['seconds']:.0f} s", f"of learning, {last['step']:,} gradient steps"))
    about = f"{name}, {variant}, seed {config['config']['seed']}" + ("" if one.result else "; not finished")
    replace_text(folder / "report.html", html.page(folder.resolve().name, about, cards, sections))
    return folder / "report.html"


def _study_of(config: dict[str, Any]) -> tuple[str, Study]:
    """The study that a run belongs to, whatever else was changed in it."""
    for name, make in STUDIES.items():
        study = make()
        if study.module == config["task"] and all(
            config["config"].get(key) == value for key, value in study.settings.items() if key == "problem"
        ):
            return name, study
    raise RunError(f"run: of task {config.get('task')!r}; accepted: {', '.join(STUDIES)}")

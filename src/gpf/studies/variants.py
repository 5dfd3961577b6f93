"""The variants of a task over seeds: what each came to, how ours differ from the others, and the paper's claims."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpf.reports.figures import curves_figure, events_figure
from gpf.reports.pages import Numbers, claims_table, join, read_numbers, write_page
from gpf.reports.tables import Values, difference, markdown_table, measure_all, scores_table, verdict
from gpf.reports.verdicts import ENOUGH_SEEDS, Claim
from gpf.runs.executors import Executor, Tell
from gpf.runs.folder import replace_text
from gpf.studies.engine import Cell, Study, place_of
from gpf.tasks import REGISTRY, find_task
from gpf.tasks.report import spectra_figure, weights_claim
from gpf.tasks.task import Outcomes, Task

FEW_SEEDS = ", which of so few seeds are plain means and ranges"
SUMMARY = "paper-tasks"
"""Name of the page that holds the paper's words against all pages' numbers."""


def variants_study(task: Task[Any], seeds: range, changes: Mapping[str, Any] | None = None) -> Study:
    """Every variant of a task, with some settings changed in all of them."""
    if not task.variants:
        raise ValueError(f"task {task.name!r} has no variants to compare")

    def cell(variant: str, settings: Mapping[str, Any]) -> Cell:
        return Cell(
            task.name,
            variant,
            lambda seed: task.of({**(changes or {}), **settings, "seed": seed}),
            Path(place_of(task.name), place_of(variant)),
        )

    return Study(task, seeds, [cell(variant, settings) for variant, settings in task.variants.items()])


def compare_variants(
    task: Task[Any], study: Study, runs: Path, page: Path, command: str, executor: Executor, tell: Tell
) -> Path:
    """Train what is missing, and write the page; returns where it is."""
    outcomes = {name: some for (_, name), some in study.train(runs, executor, tell).items()}
    return write_variants(task, study.seeds, outcomes, page, command)


def write_variants(task: Task[Any], seeds: range, outcomes: Outcomes, folder: Path, command: str) -> Path:
    """A page of numbers, of what they say, and of figures; returns where it is."""
    ours = outcomes.get(task.ours[0]) or next(iter(outcomes.values()))
    claims = task.claims(outcomes)
    if task.on_weights:
        claims.append(weights_claim(task.on_weights, [task.load(one.folder).model for one in ours]))
    figures = {f"{task.name}.png": curves_figure(task.curves, outcomes, task.unit)} if task.curves else {}
    if any("after" in event for runs in outcomes.values() for one in runs for event in one.events):
        figures[f"{task.name}-events.png"] = events_figure(outcomes, task.unit)
    if (spectra := spectra_figure(task, ours[0])) is not None:
        figures[f"{task.name}-spectra.png"] = spectra
    numbers: Numbers = {
        "kind": "variants",
        "task": task.address,
        "command": command,
        "seeds": list(seeds),
        "minutes": sum(one.result["seconds"] for runs in outcomes.values() for one in runs) / 60,
        "figures": list(figures),
        "scores": {variant: measure_all(runs, task.measures) for variant, runs in outcomes.items()},
        "claims": [asdict(claim) for claim in claims],
    }
    return write_page(folder, task.name, numbers, page(numbers, task.name), figures)


def page(numbers: Numbers, name: str) -> str:
    """The text of a page."""
    task, seeds, scores = find_task(numbers["task"]), numbers["seeds"], numbers["scores"]
    claims = [Claim(**claim) for claim in numbers["claims"]]
    runs = len(seeds) * len(scores)
    return join(
        [
            f"# {task.title}",
            f"{task.summary} Seeds {seeds[0]} to {seeds[-1]}; interquartile means with 95 % bootstrap intervals"
            f"{FEW_SEEDS if len(seeds) < 4 else ''}.".strip(),
            scores_table(scores, task.measures),
            _against(task, scores),
            claims_table({name: claims}) if claims else "",
            *(f"![{_caption(file)}]({file})" for file in numbers["figures"]),
            f"Made by `{numbers['command']}`: {runs} runs, {numbers['minutes']:.0f} minutes of one core in all."
            f" Numbers of every seed: [{name}.json]({name}.json).",
        ]
    )


def _caption(file: str) -> str:
    return "pruning" if file.endswith("-events.png") else "spectra" if file.endswith("-spectra.png") else "curves"


def _against(task: Task[Any], scores: Mapping[str, Mapping[str, Values]]) -> str:
    """What is ours less each other variant, seed by seed."""
    judged = {key: measure for key, measure in task.measures.items() if measure.better}
    ours = [variant for variant in scores if variant in task.ours]
    others = [variant for variant in scores if variant not in ours]
    if not (judged and ours and others):
        return ""
    few = any(len(values) < ENOUGH_SEEDS for of in scores.values() for values in of.values())
    rows = [
        [
            f"{mine} {'less' if few else 'against'} {variant}",
            *(
                difference(scores[mine][key], scores[variant][key], measure.form)
                if few
                else verdict(scores[mine][key], scores[variant][key], measure)
                for key, measure in judged.items()
            ),
        ]
        for mine in ours
        for variant in others
    ]
    note = (
        "Differences are seed by seed; for a test that calls one better or worse it takes six seeds."
        if few
        else "Better and worse are said where a permutation test has p < 0.05."
    )
    return markdown_table(["", *(measure.title for measure in judged.values())], rows) + f"\n\n{note}"


def write_summary(folder: Path, tasks: Sequence[str] = tuple(REGISTRY)) -> Path | None:
    """The paper's words against our numbers, of all pages in a folder; None where there are none yet."""
    claims: dict[str, list[Claim]] = {}
    for name in tasks:
        path = folder / f"{name}.json"
        if path.exists() and (found := read_numbers(path).get("claims")):
            claims[name] = [Claim(**one) for one in found]
    if not claims:
        return None
    text = join(
        [
            "# The paper's other tasks, claim by claim",
            "What the paper says in its section on generalisation, and what we measured; every task's own page has its"
            " numbers, its figures and the command that made them.",
            claims_table(claims),
        ]
    )
    replace_text(folder / f"{SUMMARY}.md", text)
    return folder / f"{SUMMARY}.md"

"""The variants of a task over seeds: results, differences from GPF, and the paper's claims."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpf.reports.figures import curves_figure, events_figure
from gpf.reports.pages import Numbers, claims_table, join, read_numbers, write_page
from gpf.reports.statistics import interval_words
from gpf.reports.tables import Values, markdown_table, measure_all, scores_table, verdict
from gpf.reports.verdicts import ENOUGH_SEEDS, PAIRED_WORDS, Claim, Family, caution, corrected
from gpf.runs.executors import Executor, Tell
from gpf.runs.folder import replace_text
from gpf.studies.engine import Cell, Study, place_of
from gpf.tasks import REGISTRY, find_task
from gpf.tasks.report import spectra_figure, weights_claim
from gpf.tasks.task import Outcomes, Task

BY_T = "t"
"""The kind of intervals in the sentences of the claims: Student's below 10 seeds."""
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
        "claims_by": BY_T,
    }
    return write_page(folder, task.name, numbers, page(numbers, task.name), figures)


def page(numbers: Numbers, name: str) -> str:
    """The text of a page."""
    return corrected(lambda family: _page(numbers, name, family))


def _page(numbers: Numbers, name: str, family: Family) -> str:
    task, seeds, scores = find_task(numbers["task"]), numbers["seeds"], numbers["scores"]
    claims = stored_claims(numbers)
    runs = len(seeds) * len(scores)
    return join(
        [
            f"# {task.title}",
            f"{task.summary} Seeds {seeds[0]} to {seeds[-1]}; {interval_words(len(seeds))}.".strip(),
            caution(len(seeds)),
            scores_table(scores, task.measures),
            _against(task, scores, family),
            claims_table({name: claims}) if claims else "",
            _note_on_claims([numbers]),
            *(f"![{_caption(file)}]({file})" for file in numbers["figures"]),
            f"Made by `{numbers['command']}`: {runs} runs, {numbers['minutes']:.0f} minutes of one core in total."
            f" Numbers of every seed: [{name}.json]({name}.json).",
        ]
    )


def _caption(file: str) -> str:
    return "pruning" if file.endswith("-events.png") else "spectra" if file.endswith("-spectra.png") else "curves"


def stored_claims(numbers: Numbers) -> list[Claim]:
    """The claims of a page's numbers; with too few seeds, stored verdicts are dropped."""
    return [Claim(**claim).of(len(numbers["seeds"])) for claim in numbers.get("claims", [])]


def _note_on_claims(pages: Sequence[Numbers]) -> str:
    """Which intervals the words of claims have, where pages were written before these were Student's."""
    old = [numbers for numbers in pages if numbers.get("claims") and numbers.get("claims_by") != BY_T]
    if not old:
        return ""
    fewest, most = (pick(len(numbers["seeds"]) for numbers in old) for pick in (min, max))
    return (
        "Intervals in the sentences of the claims were computed when the runs ended, as percentile bootstraps over"
        f" {fewest if fewest == most else f'{fewest} to {most}'} seeds. Their coverage is below 95 %."
    )


def _against(task: Task[Any], scores: Mapping[str, Mapping[str, Values]], family: Family) -> str:
    """Difference between GPF and each other variant, by seed."""
    judged = {key: measure for key, measure in task.measures.items() if measure.better}
    ours = [variant for variant in scores if variant in task.ours]
    others = [variant for variant in scores if variant not in ours]
    if not (judged and ours and others):
        return ""
    rows = [
        [
            f"{mine} less {variant}",
            *(verdict(scores[mine][key], scores[variant][key], measure, family) for key, measure in judged.items()),
        ]
        for mine in ours
        for variant in others
    ]
    note = f"{PAIRED_WORDS} {family.sentence}".strip()
    return markdown_table(["", *(measure.title for measure in judged.values())], rows) + f"\n\n{note}"


def write_summary(folder: Path, tasks: Sequence[str] = tuple(REGISTRY)) -> Path | None:
    """The paper's claims and our numbers, of all pages in a folder; None without pages."""
    found = {name: read_numbers(folder / f"{name}.json") for name in tasks if (folder / f"{name}.json").exists()}
    claims = {name: some for name, numbers in found.items() if (some := stored_claims(numbers))}
    if not claims:
        return None
    text = join(
        [
            "# The paper's other tasks, claim by claim",
            "The claims of the paper's section on generalisation, and our measurements. The page of each task has its"
            " numbers, its figures and the command that produced them.",
            claims_table(claims),
            _note_on_claims([found[name] for name in claims]),
            f"A verdict takes {ENOUGH_SEEDS} seeds.",
        ]
    )
    replace_text(folder / f"{SUMMARY}.md", text)
    return folder / f"{SUMMARY}.md"

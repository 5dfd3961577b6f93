"""Ablation of memory features: navigators without each group, compared with one that has them all.

The default learner with two fixed layers, paired by seed; seeds start at 200, where no choice was made. A group is
worth keeping if leaving it out costs success or path length. Groups that can replace each other are also left out
together.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpf.plume.memory import FEATURES
from gpf.reports.pages import Numbers, join, write_page
from gpf.reports.statistics import centre_name, interval_words
from gpf.reports.tables import Measure, Values, markdown_table, measure_all, summary, verdict
from gpf.reports.verdicts import PAIRED_WORDS, Family, caution, corrected
from gpf.runs.executors import Executor, Tell
from gpf.studies.engine import Cell, Study, place_of
from gpf.tasks.plume import TASK
from gpf.tasks.task import of_result

Groups = tuple[str, ...]
TOGETHER: tuple[Groups, ...] = (
    ("whiff", "side", "wind", "ever met"),
    ("whiff", "time since whiff", "side", "wind", "ever met"),
)
LEFT_OUT: tuple[Groups, ...] = ((), *((group,) for group in FEATURES), *TOGETHER)
"""Groups to leave out; first none, the baseline."""
NETWORK: dict[str, Any] = {"gpf": False, "depth": 2}
MEASURES = {
    "success": Measure("success", 1, ".2%", of_result("success")),
    "spl": Measure("SPL", 1, ".3f", of_result("spl")),
}


def ablations_study(seeds: range, steps: int, left_out: Sequence[Groups] = LEFT_OUT) -> Study:
    """A navigator for each of some sets of groups, without them."""

    def cell(groups: Groups) -> Cell:
        settings = {**NETWORK, "steps": steps, "without": groups}
        return Cell(
            "memory", title(groups), lambda seed: TASK.of({**settings, "seed": seed}), Path(place_of(title(groups)))
        )

    return Study(TASK, seeds, [cell(groups) for groups in left_out])


def title(groups: Groups) -> str:
    """The name of a set of groups."""
    return ", ".join(groups) or "nothing"


def ablate(study: Study, runs: Path, folder: Path, name: str, command: str, executor: Executor, tell: Tell) -> Path:
    """Train what is missing, and write the page; returns where it is."""
    outcomes = {without: some for (_, without), some in study.train(runs, executor, tell).items()}
    numbers: Numbers = {
        "kind": "ablations",
        "command": command,
        "seeds": list(study.seeds),
        "steps": study.cells[0].config(study.seeds[0]).plain()["steps"],
        "minutes": sum(one.result["seconds"] for some in outcomes.values() for one in some) / 60,
        "scores": {without: measure_all(some, MEASURES) for without, some in outcomes.items()},
    }
    return write_page(folder, name, numbers, page(numbers, name), {})


def page(numbers: Numbers, name: str) -> str:
    """The text of a page."""
    return corrected(lambda family: _page(numbers, name, family))


def _page(numbers: Numbers, name: str, family: Family) -> str:
    seeds, scores = numbers["seeds"], numbers["scores"]
    return join(
        [
            "# What each group of memory features is worth",
            f"The default learner with {NETWORK['depth']} fixed layers and {numbers['steps']:,} steps, trained without"
            f" some of its inputs. Seeds {seeds[0]} to {seeds[-1]}, last checkpoints, held-out episodes;"
            f" {interval_words(len(seeds))}. {PAIRED_WORDS}",
            caution(len(seeds)),
            table(scores, family),
            family.sentence,
            f"Made by `{numbers['command']}`: {len(seeds) * len(scores)} runs, {numbers['minutes']:.0f} minutes of one"
            f" core in total. Scores of every seed: [{name}.json]({name}.json).",
        ]
    )


def table(scores: Mapping[str, Mapping[str, Values]], family: Family) -> str:
    """A row for each set of groups that was left out: its scores, and their difference from those of the first."""
    reference, *_ = scores.values()
    centre = centre_name(max(len(values) for values in reference.values()))
    header = [
        cell for one in MEASURES.values() for cell in (f"{one.title} ({centre}, 95 % CI)", "difference (95 % CI)")
    ]
    rows = [
        [
            without,
            *(
                cell
                for key, measure in MEASURES.items()
                for cell in (
                    summary(of[key], measure.form),
                    "" if of is reference else verdict(of[key], reference[key], measure, family),
                )
            ),
        ]
        for without, of in scores.items()
    ]
    return markdown_table(["without", *header], rows)

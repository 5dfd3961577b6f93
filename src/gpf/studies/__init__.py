"""Studies: agents or variants, in worlds, over seeds, to one page each. One engine; the studies are data."""

from typing import Any

from gpf.runs.executors import find
from gpf.settings import choose

PAGES: dict[str, str] = {
    "navigators": "gpf.studies.navigators:page",
    "reproduction": "gpf.studies.reproduction:page",
    "shifting": "gpf.studies.shifting:page",
    "variants": "gpf.studies.variants:page",
    "world-model": "gpf.studies.world_model:page",
    "planner": "gpf.studies.imagination:planner_page",
    "dreams": "gpf.studies.imagination:dream_page",
    "sweep": "gpf.studies.sweep:page",
    "ablations": "gpf.studies.ablations:page",
    "pays": "gpf.studies.pays:page",
    "plume": "gpf.studies.plumes:page",
    "suite": "gpf.studies.suite_page:page",
}
"""By kind, the function that makes a page's text from its numbers and its name."""


def page_of(numbers: dict[str, Any], name: str) -> str:
    """The text of a page, from its numbers alone."""
    make = find(PAGES[choose("kind of page", numbers.get("kind"), PAGES)])
    return str(make(numbers, name))

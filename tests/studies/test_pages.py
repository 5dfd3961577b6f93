"""Every committed result page is what the code makes of the numbers beside it."""

import json
import re
from pathlib import Path

import pytest

from gpf.reports.pages import read_numbers
from gpf.reports.verdicts import ENOUGH_SEEDS
from gpf.studies import PAGES, page_of
from gpf.studies.navigators import derived
from gpf.studies.variants import SUMMARY, write_summary

RESULTS = Path(__file__).parent.parent.parent / "docs" / "results"


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_a_page_is_a_function_of_its_numbers(path):
    assert page_of(read_numbers(path), path.stem) == path.with_suffix(".md").read_text()


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_fewer_than_six_seeds_confirm_and_refute_nothing(path):
    numbers = read_numbers(path)
    if numbers["kind"] == "variants" and len(numbers["seeds"]) < ENOUGH_SEEDS:
        assert "too few for a verdict" in path.with_suffix(".md").read_text()
        rows = [line for line in path.with_suffix(".md").read_text().splitlines() if line.startswith("|")]
        assert not re.search(r"\| (confirmed|refuted|partly|better|worse)", "\n".join(rows))


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_what_the_rows_of_navigators_amount_to_is_derived_from_their_scores(path):
    numbers = read_numbers(path)
    if numbers["kind"] == "navigators":
        for row in numbers["rows"]:
            found = json.loads(json.dumps(derived(row, numbers["rows"])))
            assert {name: row.get(name) for name in found} == found


def test_the_summary_of_claims_is_made_from_the_pages_numbers(tmp_path):
    for path in RESULTS.glob("*.json"):
        (tmp_path / path.name).write_text(path.read_text())
    assert write_summary(tmp_path).read_text() == (RESULTS / f"{SUMMARY}.md").read_text()


CITED = [
    ("docs/navigators.md", "growth-policy-gradient", r"0\.\d{3}|\d+,\d{3}"),
    ("docs/results/README.md", "growth-policy-gradient", r"0\.\d{3}"),
    ("docs/navigators.md", "pays", r"0\.\d{3}"),
    ("docs/tasks.md", "mspacman-longer", r"[+-]?\d+ \[[+-]?\d+, [+-]?\d+\]"),
]


@pytest.mark.parametrize(("document", "name", "number"), CITED)
def test_numbers_that_documents_cite_stand_on_the_page(document, name, number):
    text = (RESULTS.parent.parent / document).read_text()
    parts = [part for part in re.split(r"\n\n|\n- ", text) if f"{name}.md)" in part]
    found = max((re.findall(number, " ".join(part.split())) for part in parts), key=len)
    assert len(found) > 2
    for one in found:
        assert one in (RESULTS / f"{name}.md").read_text(), one


def test_headline_numbers_of_the_readme_stand_on_their_pages():
    root = RESULTS.parent.parent
    rows = re.findall(
        r"^\|[^|]*\| ([^|]*\d[^|]*) \| `[^|]*` \| \[.*\]\(([^)#]*).*\) \|$", (root / "README.md").read_text(), re.M
    )
    assert len(rows) == 6
    for measured, page in rows:
        numbers = re.findall(r"\d[\d,]*\.?\d*%?", re.sub(r"`.*?`", "", measured))
        assert numbers
        for one in numbers:
            assert one in (root / page).read_text(), (one, page)


def test_every_kind_of_page_has_been_made_but_sweeps_ablations_plumes_and_the_suite():
    kinds = {read_numbers(path)["kind"] for path in RESULTS.glob("*.json")}
    assert kinds - {"suite"} == PAGES.keys() - {"sweep", "ablations", "plume", "suite"}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kind": 1}', '{"kind": "navigator"}', "[" * 100_000])
def test_other_files_are_refused_in_one_line(tmp_path, text):
    path = tmp_path / "page.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"^[^\n]*(numbers of a page|kind of page)[^\n]*$"):
        page_of(read_numbers(path), "page")


def test_missing_values_and_a_single_seed_lose_no_page():
    numbers = json.loads((RESULTS / "shifting-worlds.json").read_text())
    numbers["plan"]["seeds"] = 1
    for row in numbers["rows"]:
        row["scores"] = {name: [None if name == "forgetting" else values[0]] for name, values in row["scores"].items()}
        row["seconds"] = row["seconds"][:1]
    text = page_of(numbers, "page")
    tables = "\n".join(line for line in text.splitlines() if line.startswith("|"))
    assert "| - |" in tables
    assert "[" not in tables  # no interval of one seed
    numbers = json.loads((RESULTS / "cifar10.json").read_text())
    numbers["seeds"] = numbers["seeds"][:1]
    for scores in numbers["scores"].values():
        scores.update({name: values[:1] for name, values in scores.items()})
    numbers["claims"] = []
    assert "[" not in "\n".join(line for line in page_of(numbers, "page").splitlines() if line.startswith("|"))

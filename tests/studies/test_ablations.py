"""What groups of memory features are worth: who is trained, and what the page says of made-up scores."""

import numpy as np
import pytest

from gpf.plume.memory import FEATURES
from gpf.reports.statistics import mean_interval, paired_difference
from gpf.reports.verdicts import corrected
from gpf.runs.folder import Outcome
from gpf.studies import ablations
from gpf.studies.ablations import LEFT_OUT, ablate, ablations_study, page, title

SCORES = {
    "nothing": {"success": [0.98, 0.97, 0.99, 0.98] * 2, "spl": [0.7, 0.71, 0.72, 0.7] * 2},
    "whiff": {"success": [0.9, 0.88, 0.91, 0.9] * 2, "spl": [0.71, 0.7, 0.72, 0.71] * 2},
}


def table(scores):
    return corrected(lambda family: ablations.table(scores, family))


def test_everybody_learns_alike_but_for_what_is_left_out():
    study = ablations_study(range(200, 202), 1000)
    configs = {cell.name: cell.config(201).plain() for cell in study.cells}
    assert [tuple(config.pop("without")) for config in configs.values()] == list(LEFT_OUT)
    assert {group for groups in LEFT_OUT for group in groups} == set(FEATURES)
    first, *others = configs.values()
    assert all(other == first for other in others)
    assert (first["seed"], first["steps"], first["gpf"], first["depth"]) == (201, 1000, False, 2)


def test_rows_have_scores_and_differences_from_the_first():
    header, _, nothing, whiff = table(SCORES).splitlines()
    assert header == (
        "| without | success (mean, 95 % CI) | difference (95 % CI) | SPL (mean, 95 % CI) | difference (95 % CI) |"
    )
    middle, low, high = mean_interval(SCORES["whiff"]["success"])
    assert nothing.split(" | ")[2] == ""
    assert whiff.startswith(f"| whiff | {middle:.2%} [{low:.2%}, {high:.2%}] | worse: ")
    d = paired_difference(SCORES["whiff"]["spl"], SCORES["nothing"]["spl"])
    assert whiff.endswith(f"| not significant: {d.mean:+.3f} [{d.low:+.3f}, {d.high:+.3f}] |")


@pytest.mark.parametrize("seeds", [1, 3, 8])
def test_few_seeds_give_no_verdict_and_one_no_interval(seeds):
    scores = {name: {key: values[:seeds] for key, values in of.items()} for name, of in SCORES.items()}
    numbers = {"command": "gpf ablate", "seeds": list(range(seeds)), "steps": 1000, "minutes": 2.0, "scores": scores}
    text = page(numbers, "ablation")
    assert ("worse" in table(scores)) == (seeds == 8)
    assert ("too few seeds" in table(scores)) == (seeds < 6)
    assert ("tests on this page: 2," in text) == (seeds == 8)
    assert ("[" in "".join(table(scores).splitlines()[2:])) == (seeds > 1)
    assert f"{2 * seeds} runs, 2 minutes" in text


def test_a_page_is_written_of_the_runs(tmp_path, monkeypatch):
    study = ablations_study(range(2), 1000, LEFT_OUT[:2])
    values = iter(np.linspace(0.5, 0.9, 4))
    outcomes = {
        ("memory", title(groups)): [
            Outcome(tmp_path, {"success": next(values), "spl": 0.5, "seconds": 30.0}, [], []) for _ in study.seeds
        ]
        for groups in LEFT_OUT[:2]
    }
    monkeypatch.setattr(type(study), "train", lambda *arguments: outcomes)
    path = ablate(study, tmp_path, tmp_path, "ablation", "gpf ablate", None, None)
    assert "4 runs, 2 minutes" in path.read_text()
    nothing, other = (outcomes["memory", title(groups)] for groups in LEFT_OUT[:2])
    scores = {
        name: {key: [one.result[key] for one in some] for key in ("success", "spl")}
        for name, some in (("nothing", nothing), (title(LEFT_OUT[1]), other))
    }
    assert table(scores) in path.read_text()

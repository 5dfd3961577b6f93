"""Variants over seeds: the page says what the runs say, and the paper's words are held against it."""

import dataclasses
import json
import re

import numpy as np
import pytest
import torch
from support import BUSY, Here, nobody

from gpf.reports.figures import events_figure, pruned_shares
from gpf.reports.tables import Measure
from gpf.reports.verdicts import corrected
from gpf.runs.folder import Outcome
from gpf.studies import page_of, variants
from gpf.studies.engine import place_of
from gpf.studies.variants import compare_variants, variants_study, write_summary
from gpf.tasks import REGISTRY, find_task
from gpf.tasks.report import weights_claim, write_report

pytestmark = pytest.mark.usefixtures("one_torch_thread", "loaded_data", "short_episodes")

FEDERATED = {
    "rounds": 2, "rollouts": 1, "lanes": 2, "horizon": 8, "minibatch": 16, "width": 8, "validation_episodes": 1,
    "evaluate": 2,
}  # fmt: skip
TINY = {
    "federated": FEDERATED,
    "federated-faults": FEDERATED,
    "cifar10": {"width": 16, "layers": 2, "epochs": 3, "images": 200, "rules": BUSY},
    "mspacman": {"width": 8, "layers": 2, "epochs": 3, "steps": 10, "games": 1, "rules": BUSY},
    "mspacman-longer": {
        "width": 8, "layers": 2, "epochs": 2, "steps": 10, "games": 1, "lanes": 1, "batch": 4, "rules": BUSY,
        "random_lanes": 1, "random_steps": 20,
    },
    "shakespeare": {
        "width": 8, "heads": 2, "context": 8, "layers": 2, "batch": 2, "steps": 6, "rules": BUSY, "round_steps": 2,
        "validation_windows": 2, "test_tokens": 600,
    },
    "characters": {
        "width": 8, "heads": 2, "context": 4, "batch": 1, "steps": 8, "round_steps": 1, "validation_windows": 2,
    },
    "tokens": {
        "width": 16, "heads": 2, "layers": 4, "context": 8, "batch": 2, "steps": 4, "round_steps": 1,
        "validation_windows": 2,
    },
    "images-residual": {"width": 8, "batch": 4, "images": 100, "steps": 4, "round_steps": 1},
    "images-mlp": {"width": 8, "batch": 4, "images": 100, "steps": 4, "round_steps": 1},
    "permuted-mnist": {"tasks": 2, "samples": 320},
    "regression": {"tasks": 2, "samples": 320},
}  # fmt: skip


def compared(name, folder, seeds):
    task = find_task(name)
    short = {variant: {k: v for k, v in of.items() if k != "steps"} for variant, of in task.variants.items()}
    task = dataclasses.replace(task, variants=short)
    study = variants_study(task, range(seeds), TINY[name])
    path = compare_variants(task, study, folder / "runs", folder / "page", "gpf compare it", Here(), nobody)
    return task, path, json.loads(path.with_suffix(".json").read_text())


@pytest.mark.parametrize("name", TINY)
def test_a_page_of_every_task_that_has_variants(name, tmp_path):
    task, path, numbers = compared(name, tmp_path, 2 if name == "regression" else 1)
    seeds = len(numbers["seeds"])
    text = path.read_text()
    assert text == page_of(numbers, name)
    assert text.startswith(f"# {task.title}\n")
    assert "gpf compare it" in text
    assert list(numbers["scores"]) == list(task.variants)
    for variant, scores in numbers["scores"].items():
        assert f"\n| {variant} |" in text
        assert all(len(values) == seeds and np.isfinite(values).all() for values in scores.values())
        if seeds == 1:
            (row,) = (line for line in text.splitlines() if line.startswith(f"| {variant} |"))
            assert not re.search(r"\[|nan", row)  # no interval of one seed
    for file in (tmp_path / "page").glob("*.png"):
        assert f"]({file.name})" in text
    assert (tmp_path / "page" / f"{name}.png").exists()
    for claim in numbers["claims"]:
        assert claim["paper"] in text
        assert claim["verdict"]
        assert "nan" not in claim["measured"]
        assert not re.search(r"\[[-+\d]", claim["measured"])
    summary = write_summary(tmp_path / "page")
    if numbers["claims"]:
        assert all(claim["measured"] in summary.read_text() for claim in numbers["claims"])
    else:
        assert summary is None
    report = write_report(next((tmp_path / "runs" / name / place_of(task.ours[0])).iterdir())).read_text()
    assert "not finished" not in report
    assert report.count("data:image/png") >= 1


def test_those_are_all_tasks_that_have_variants():
    assert [name for name in REGISTRY if find_task(name).variants] == list(TINY)
    with pytest.raises(ValueError, match="'plume' has no variants"):
        variants_study(find_task("plume"), range(2))


def test_a_value_that_a_seed_lacks_is_a_dash_and_the_page_is_written(tmp_path):
    task = find_task("regression")
    scores = {
        variant: {key: [1.0, 2.0] if key != "last" else [None, 1.0] for key in task.measures}
        for variant in task.variants
    }
    numbers = {"kind": "variants", "task": "regression", "command": "c", "seeds": [0, 1], "minutes": 1.0, "figures": [],
               "scores": scores, "claims": []}  # fmt: skip
    text = page_of(numbers, "regression")
    rows = [line for line in text.splitlines() if line.startswith(("| GPF", "| backprop"))]
    assert rows
    assert all(" - |" in row for row in rows)


@pytest.mark.parametrize(
    ("seeds", "row"),
    [
        (3, "| GPF less baseline | too few seeds: +2.000 [+2.000, +2.000] |"),
        (6, "| GPF less baseline | better: +2.000 [+2.000, +2.000] |"),
    ],
)
def test_a_few_seeds_are_not_judged(seeds, row):
    task = dataclasses.replace(find_task("cifar10"), measures={"score": Measure("score", 1, ".3f", lambda one: 0.0)})
    scores = {"baseline": {"score": [1.0] * seeds}, "GPF": {"score": [3.0] * seeds}}
    text = corrected(lambda family: variants._against(task, scores, family))
    assert row in text
    assert ("tests on this page: 1," in text) == (seeds == 6)


@pytest.mark.parametrize("seeds", [3, 6])
def test_a_claim_of_too_few_seeds_loses_the_verdict_that_is_written(seeds):
    claims = [{"paper": "it learns", "measured": "it does", "verdict": "confirmed"}]
    numbers = {"kind": "variants", "task": "regression", "command": "c", "seeds": list(range(seeds)), "minutes": 1.0,
               "figures": [], "scores": {}, "claims": claims}  # fmt: skip
    text = page_of(numbers, "regression")
    assert f"| it learns | it does | {'too few seeds' if seeds < 6 else 'confirmed'} |" in text
    assert f"percentile bootstraps over {seeds} seeds" in text
    assert "percentile bootstraps" not in page_of({**numbers, "claims_by": "t"}, "regression")


def outcome(result, lines=(), events=()):
    return Outcome(None, result, list(lines), list(events))


def cifar(losses, accuracy, parameters):
    lines = [{"validation": {"loss": loss}} for loss in losses]
    result = {
        "best_epoch": 2,
        "most_accurate": {"accuracy": accuracy, "parameters": parameters * 2},
        "parameters": parameters,
    }
    return outcome(result, lines)


@pytest.mark.parametrize(
    ("theirs", "ours", "verdicts"),
    [
        ([2.0, 1.0, 1.5], [2.0, 1.0, 1.0], ["confirmed", "confirmed", "confirmed"]),
        ([2.0, 1.0, 1.0], [2.0, 1.0, 1.5], ["refuted", "refuted", "refuted"]),
        ([2.0, 1.0, 1.5], [2.0, 1.0, 1.5], ["confirmed", "refuted", "not shown"]),
    ],
)
def test_what_is_said_of_the_paper_s_curves(theirs, ours, verdicts):
    claims = find_task("cifar10").claims({"baseline": [cifar(theirs, 0.5, 200)] * 6, "GPF": [cifar(ours, 0.5, 80)] * 6})
    assert [claim.verdict for claim in claims] == verdicts
    assert "with 40% of the baseline's parameters then and 40% at the end" in claims[-1].measured


def test_a_lower_accuracy_is_said_to_be_lower():
    *_, last = find_task("cifar10").claims(
        {"baseline": [cifar([1.0], 0.55, 200)] * 3, "GPF": [cifar([1.0], 0.5, 200)] * 3}
    )
    assert "difference -5.00%" in last.measured


@pytest.mark.parametrize(("scale", "verdict"), [(0.2, "confirmed"), (5.0, "refuted"), (1.0, "not shown")])
def test_volatility_is_judged_by_a_test_of_variance(scale, verdict):
    random = np.random.default_rng(0)
    rewards = random.normal(200.0, 20.0, (6, 30))
    other = 200.0 + scale * random.normal(0.0, 20.0, (6, 30))
    (claim,) = find_task("mspacman").claims(
        {
            "baseline": [outcome({"validation": row.tolist()}, [{"loss": 1.0}, {"loss": 3e5}]) for row in rewards],
            "GPF": [outcome({"validation": row.tolist()}, [{"loss": 0.5}]) for row in other],
        }
    )
    assert claim.verdict == verdict
    assert claim.measured.endswith(f"{', '.join(['0.5'] * 6)} (GPF), {', '.join(['3e+05'] * 6)}")


def spoken(validation, spread):
    lines = [{"validation": loss, "loss": [4.0 - spread, 4.0 + spread]} for loss in validation]
    events = [{"kind": "grown", "step": 100}, {"kind": "grown", "step": 300}, {"kind": "frozen", "step": 900}]
    return outcome({"test": validation[-1], "depth": 3, "flops": 10.0}, lines, events)


@pytest.mark.parametrize(
    ("theirs", "ours", "verdicts"),
    [
        ([0.5, 0.5, 0.5], [(5.0, 0.1)] * 3, ["confirmed", "confirmed"]),  # GPF's loss is far calmer
        ([0.1, 0.1, 0.1], [(5.0, 0.1)] * 3, ["refuted", "confirmed"]),
        ([0.5, 0.1, 0.1], [(5.0, 0.1)] * 3, ["not shown", "confirmed"]),
        ([0.1, 0.1, 0.1], [(5.5, 0.1)] * 3, ["refuted", "refuted"]),  # ends above its least
        ([0.1, 0.1, 0.1], [(5.0, 0.1), (5.0, 0.1), (5.5, 0.1)], ["refuted", "partly"]),
    ],
)
def test_what_is_said_of_a_language_model(theirs, ours, verdicts):
    claims = find_task("shakespeare").claims(
        {
            "baseline": [spoken([9.0, 6.0, 5.0], spread) for spread in theirs * 2],
            "GPF": [spoken([9.0, 5.0, last], spread) for last, spread in ours * 2],
        }
    )
    assert [claim.verdict for claim in claims[:2]] == verdicts
    assert claims[2].measured == "ours had 3 blocks at step 300"


def test_one_seed_confirms_and_refutes_no_difference():
    calm, wild = cifar([2.0, 1.0, 1.0], 0.5, 80), cifar([2.0, 1.0, 1.5], 0.5, 200)
    *_, last = find_task("cifar10").claims({"baseline": [wild], "GPF": [calm]})
    assert last.verdict == "too few seeds"
    assert "that rise less the baseline's is -0.500;" in last.measured
    first, *_ = find_task("shakespeare").claims(
        {"baseline": [spoken([9.0, 5.0], 0.5)], "GPF": [spoken([9.0, 5.0], 0.1)]}
    )
    assert first.verdict == "too few seeds"
    random = np.random.default_rng(0)
    runs = {
        name: [outcome({"validation": random.normal(200.0, spread, 30).tolist()}, [{"loss": 1.0}])]
        for name, spread in (("baseline", 50.0), ("GPF", 1.0))
    }
    assert find_task("mspacman").claims(runs)[0].verdict == "too few seeds"


def test_the_share_that_a_pruning_took_is_of_what_there_was():
    shape = {"weights": 100, "pruned": 20}
    events = [{"kind": "pruned", "before": shape, "after": {**shape, "pruned": 60}}, {"kind": "grown"}]
    assert pruned_shares(outcome({}, events=events)) == [0.5]


def test_the_figure_of_events_names_each_variant_in_which_something_happens_once():
    lines = [{"round": 1, "depth": 1}, {"round": 2, "depth": 2}]
    grown = outcome({}, lines, [{"kind": "grown", "round": 1}, {"kind": "frozen", "round": 2, "after": {"depth": 2}}])
    figure = events_figure({"baseline": [outcome({}, lines)] * 2, "GPF": [grown] * 2}, "round")
    assert [text.get_text() for text in figure.axes[1].get_legend().get_texts()] == ["GPF"]


@pytest.mark.parametrize(("kinds", "verdict"), [("random", "confirmed"), ("spiked", "refuted"), ("both", "partly")])
def test_random_weights_follow_their_law_and_others_do_not(kinds, verdict):
    torch.manual_seed(0)
    models = []
    for spiked in {"random": [False], "spiked": [True], "both": [False, True]}[kinds] * 6:
        layer = torch.nn.Linear(200, 300)
        torch.nn.init.normal_(layer.weight)
        if spiked:
            layer.weight.data += 0.5  # one direction stands out
        models.append(torch.nn.Sequential(layer))
    claim = weights_claim("they are random", models)
    assert claim.verdict == verdict
    assert "0: {} and 0.0".format({"random": 0, "spiked": 1, "both": 0}[kinds]) in claim.measured

"""Variants over seeds: the page says what the runs say, and the paper's words are held against it."""

import dataclasses
import importlib
import json

import numpy as np
import pytest
import torch
from gpf.tasks.streams import Measure
from gpf.tasks.studies import STUDIES, Outcome, pruned_shares

from gpf.runs.folder import read_result
from gpf.tasks import shakespeare, variants

pytestmark = pytest.mark.usefixtures("one_torch_thread", "with_data")

BUSY = {
    "warmup": "0", "grow_patience": "1", "grow_threshold": "100", "prune_patience": "1", "saliency_threshold": "0.01",
    "belief_threshold": "2",
}  # fmt: skip
TINY = {
    "cifar10": {"width": 16, "layers": 2, "epochs": 3, "images": 200, "rules": BUSY},
    "mspacman": {"width": 8, "layers": 2, "epochs": 3, "steps": 10, "games": 1, "rules": BUSY},
    "mspacman-longer": {
        "width": 8,
        "layers": 2,
        "epochs": 2,
        "steps": 10,
        "games": 1,
        "lanes": 1,
        "batch": 4,
        "rules": BUSY,
    },
    "shakespeare": {"width": 8, "heads": 2, "context": 8, "layers": 2, "batch": 2, "steps": 6, "rules": BUSY},
    "permuted-mnist": {"tasks": 2, "samples": 320},
    "regression": {"tasks": 2, "samples": 320},
}


def train_here(wanted, jobs, tell, task):
    """What `train_all` does, which has tests of its own, without the seconds that other processes take to begin."""
    module = importlib.import_module(f"gpf.tasks.{task}")
    for folder, config in wanted.items():
        if read_result(folder) is None:
            module.train(module.create_run(folder, config))


@pytest.mark.usefixtures("short_tasks")
@pytest.mark.parametrize("name", STUDIES)
def test_a_page_of_every_study(name, tmp_path, monkeypatch):
    monkeypatch.setattr(variants, "train_all", train_here)
    study = variants.find_study(name)
    outcomes = variants.train_variants(name, tmp_path / "runs", range(2), jobs=1, changes=TINY[name])
    assert {variant: len(runs) for variant, runs in outcomes.items()} == dict.fromkeys(study.variants, 2)
    path = variants.write_page(name, outcomes, tmp_path / "page", "gpf compare it")
    text, numbers = path.read_text(), json.loads(path.with_suffix(".json").read_text())
    assert text.startswith(f"# {study.title}\n")
    assert "gpf compare it" in text
    for variant, scores in numbers["scores"].items():
        assert f"\n| {variant} |" in text
        assert all(len(values) == 2 and np.isfinite(values).all() for values in scores.values())
    for file in (tmp_path / "page").glob("*.png"):
        assert f"]({file.name})" in text
    assert (tmp_path / "page" / f"{name}.png").exists()
    assert all(claim["paper"] in text and claim["verdict"] for claim in numbers["claims"])
    summary = variants.write_summary(tmp_path / "page")
    if numbers["claims"]:
        assert all(claim["measured"] in summary.read_text() for claim in numbers["claims"])
    else:
        assert summary is None
    report = variants.write_report(outcomes["GPF"][0].folder).read_text()
    assert "not finished" not in report
    assert report.count("data:image/png") >= 1


@pytest.mark.parametrize(
    ("seeds", "row"),
    [
        (3, "| GPF less baseline | +2.000 [+2.000, +2.000] |"),
        (6, "| GPF against baseline | better: +2.000 [+2.000, +2.000] |"),
    ],
)
def test_a_few_seeds_are_not_judged(seeds, row):
    study = dataclasses.replace(
        variants.find_study("cifar10"), measures={"score": (Measure("score", 1, ".3f"), lambda outcome: 0.0)}
    )
    text = variants._against(study, {"baseline": {"score": [1.0] * seeds}, "GPF": {"score": [3.0] * seeds}})
    assert row in text
    assert ("it takes six seeds" in text) == (seeds < 6)


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
    claims = variants.find_study("cifar10").claims(
        {"baseline": [cifar(theirs, 0.5, 200)] * 3, "GPF": [cifar(ours, 0.5, 80)] * 3}
    )
    assert [claim.verdict for claim in claims] == verdicts
    assert "with 40% of the baseline's parameters then and 40% in the end" in claims[-1].measured


def test_a_lower_accuracy_is_said_to_be_lower():
    *_, last = variants.find_study("cifar10").claims(
        {"baseline": [cifar([1.0], 0.55, 200)] * 3, "GPF": [cifar([1.0], 0.5, 200)] * 3}
    )
    assert "difference -5.00%" in last.measured


@pytest.mark.parametrize(("scale", "verdict"), [(0.2, "confirmed"), (5.0, "refuted"), (1.0, "not shown")])
def test_volatility_is_judged_by_a_test_of_variance(scale, verdict):
    random = np.random.default_rng(0)
    rewards = random.normal(200.0, 20.0, (5, 30))
    other = 200.0 + scale * random.normal(0.0, 20.0, (5, 30))
    (claim,) = variants.find_study("mspacman").claims(
        {
            "baseline": [outcome({"validation": row.tolist()}, [{"loss": 1.0}, {"loss": 3e5}]) for row in rewards],
            "GPF": [outcome({"validation": row.tolist()}, [{"loss": 0.5}]) for row in other],
        }
    )
    assert claim.verdict == verdict
    assert claim.measured.endswith("0.5, 0.5, 0.5, 0.5, 0.5 (GPF), 3e+05, 3e+05, 3e+05, 3e+05, 3e+05")


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
    claims = variants.find_study("shakespeare").claims(
        {
            "baseline": [spoken([9.0, 6.0, 5.0], spread) for spread in theirs],
            "GPF": [spoken([9.0, 5.0, last], spread) for last, spread in ours],
        }
    )
    assert [claim.verdict for claim in claims[:2]] == verdicts
    assert claims[2].measured == "ours had 3 blocks at step 300"


def test_the_share_that_a_pruning_took_is_of_what_there_was():
    shape = {"weights": 100, "pruned": 20}
    events = [{"kind": "pruned", "before": shape, "after": {**shape, "pruned": 60}}, {"kind": "grown"}]
    assert pruned_shares(outcome({}, events=events)) == [0.5]


def test_the_figure_of_events_names_each_variant_in_which_something_happens_once():
    lines = [{"round": 1, "depth": 1}, {"round": 2, "depth": 2}]
    grown = outcome({}, lines, [{"kind": "grown", "round": 1}, {"kind": "frozen", "round": 2, "after": {"depth": 2}}])
    figure = variants.events_figure({"baseline": [outcome({}, lines)] * 2, "GPF": [grown] * 2}, "round")
    assert [text.get_text() for text in figure.axes[1].get_legend().get_texts()] == ["GPF"]


@pytest.mark.parametrize(("kinds", "verdict"), [("random", "confirmed"), ("spiked", "refuted"), ("both", "partly")])
def test_random_weights_follow_their_law_and_others_do_not(kinds, verdict):
    torch.manual_seed(0)
    models = []
    for spiked in {"random": [False], "spiked": [True], "both": [False, True]}[kinds]:
        layer = torch.nn.Linear(200, 300)
        torch.nn.init.normal_(layer.weight)
        if spiked:
            layer.weight.data += 0.5  # one direction stands out
        models.append(torch.nn.Sequential(layer))
    claim = variants.weights_claim("they are random", models)
    assert claim.verdict == verdict
    assert "0: {} and 0.0".format({"random": 0, "spiked": 1, "both": 0}[kinds]) in claim.measured


def test_an_unknown_task_is_refused():
    with pytest.raises(ValueError, match=r"^task: 'chess'; accepted: cifar10, mspacman"):
        variants.find_study("chess")


def test_a_round_of_the_language_model_is_a_hundred_steps():
    assert shakespeare.STEPS_IN_A_ROUND == 100

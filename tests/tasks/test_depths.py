"""Fixed networks at equal steps and equal FLOPs: steps, learning rates, names, and what claims follow."""

from pathlib import Path

import pytest

from gpf.reports.tables import Measure
from gpf.reports.verdicts import Verdict
from gpf.runs.folder import Outcome
from gpf.tasks import characters
from gpf.tasks.characters import Config
from gpf.tasks.depths import (
    FASTER,
    SMALLER,
    depth_variants,
    equal_compute_claim,
    faster_claims,
    fixed,
    share_to_reach,
    smaller_claims,
)
from gpf.tasks.images import RESIDUAL

QUALITY = Measure("accuracy", 1, ".1%", lambda outcome: outcome.result["accuracy"])


def outcome(curve=(), cost=1.0, **result):
    lines = [{"validation": value, "flops": cost * (i + 1)} for i, value in enumerate(curve)]
    return Outcome(Path("run"), result, lines, [])


def test_a_network_that_grows_takes_what_its_depths_take():
    """Of 100 steps in rounds of 10, two layers have 20 (12 % is passed in the second round), four 10, eight 70."""
    config = Config(steps=100, round_steps=10, rules={"grow_at": "[0.12, 0.3]"})
    two, four, eight = (config.step_flops(depth) for depth in (2, 4, 8))
    assert config.planned_flops() == 20 * two + 10 * four + 70 * eight


@pytest.mark.parametrize(("task", "layers"), [(characters.TASK, 1), (characters.TASK, 2), (RESIDUAL, 4)])
def test_at_equal_flops_a_fixed_network_takes_as_many_as_faster_to_within_a_step(task, layers):
    config = task.of(task.variants[fixed(layers, True)])
    growing = task.of(task.variants[FASTER])
    assert abs(config.planned_flops() - growing.planned_flops()) <= config.step_flops(layers) / 2
    assert task.length(config) == (config.all_steps, "step")
    assert config.variant == fixed(layers, True)
    assert config.rate_at(config.all_steps - 1) == pytest.approx(0.1 * config.learning_rate, rel=0.02)


def test_the_learning_rate_rises_and_falls_to_a_tenth():
    config = Config(steps=1000, learning_rate=0.02)
    rates = [config.rate_at(step) for step in range(1000)]
    assert rates[0] == pytest.approx(0.02 / 50)
    assert max(rates) == pytest.approx(0.02)
    assert rates.index(max(rates)) in (49, 50)
    assert rates[525] == pytest.approx(0.02 * 0.55)
    assert rates[-1] == pytest.approx(0.002, rel=1e-3)


def test_every_depth_is_an_opponent_twice_and_every_kind_of_ours_is_there_once():
    variants = depth_variants((1, 2), (1, 2), smaller={"steps": 7})
    assert list(variants) == [
        "fixed, 1 layer", "fixed, 2 layers", "fixed, 1 layer, equal FLOPs", "fixed, 2 layers, equal FLOPs",
        "GPF, faster", "GPF, smaller", "GPF, the paper's rules",
    ]  # fmt: skip
    assert variants["fixed, 1 layer, equal FLOPs"] == {"kind": "fixed", "layers": 1, "budget_layers": 2}
    assert variants[SMALLER] == {"kind": "smaller", "steps": 7}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kind": "paper", "budget_layers": 2}, "budget_layers is for kinds fixed and faster, got 2 with paper"),
        ({"kind": "fixed", "rules": {"prune_to": "0.5"}}, "rules cannot be changed with kind fixed, got prune_to"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        Config(**settings).check()


def test_what_it_took_to_be_as_good_as_the_others_end():
    theirs = outcome([3.0, 2.0, 2.2], cost=10.0)
    assert share_to_reach(outcome([2.5, 2.2, 1.0], 6.0), theirs, "flops") == pytest.approx(12 / 30)
    assert share_to_reach(outcome([2.5, 2.3], 6.0), theirs, "flops") is None
    assert share_to_reach(outcome([2.0, 2.3], 6.0), theirs, "flops", sign=1) == pytest.approx(12 / 30)


@pytest.mark.parametrize(("most", "verdict"), [(0.5, Verdict.CONFIRMED), (0.3, Verdict.REFUTED)])
def test_faster_is_judged_by_the_share_of_all_seeds(most, verdict):
    of = {FASTER: [outcome([2.5, 2.2], 6.0)] * 6, fixed(2): [outcome([3.0, 2.0, 2.2], 10.0)] * 6}
    (claim,) = faster_claims(of, 2, {"flops": most})
    assert claim.verdict == verdict
    assert "6 of 6 seeds reach it, with 40.0% of the training FLOPs" in claim.measured


def test_a_seed_that_never_gets_there_leaves_the_claim_half_true():
    of = {
        FASTER: [outcome([2.5, 2.2], 6.0)] * 5 + [outcome([2.5, 2.4], 6.0)],
        fixed(2): [outcome([3.0, 2.0, 2.2], 10.0)] * 6,
    }
    (claim,) = faster_claims(of, 2, {"flops": 0.5})
    assert claim.verdict == Verdict.PARTLY
    assert claim.measured.startswith("5 of 6 seeds")


def test_at_equal_flops_the_best_fixed_depth_is_the_one_to_beat():
    of = {
        FASTER: [outcome(accuracy=a) for a in (0.70, 0.71, 0.70, 0.71, 0.70, 0.71)],
        fixed(1, True): [outcome(accuracy=a) for a in (0.60, 0.61, 0.60, 0.61, 0.60, 0.61)],
        fixed(2, True): [outcome(accuracy=a) for a in (0.65, 0.67, 0.65, 0.67, 0.65, 0.67)],
        fixed(2): [outcome(accuracy=0.99)] * 6,
    }
    (claim,) = equal_compute_claim(of, QUALITY)
    assert fixed(2, True) in claim.measured
    assert claim.verdict == Verdict.CONFIRMED


@pytest.mark.parametrize(
    ("accuracy", "flops", "verdict"),
    [(0.698, 3.0, Verdict.CONFIRMED), (0.698, 5.0, Verdict.REFUTED), (0.60, 3.0, Verdict.REFUTED)],
)
def test_smaller_must_be_both_good_and_small(accuracy, flops, verdict):
    of = {
        fixed(1): [outcome(accuracy=0.6, inference_flops=1.0)] * 6,
        fixed(2): [outcome(accuracy=0.7 + 0.001 * (i % 2), inference_flops=10.0) for i in range(6)],
        SMALLER: [outcome(accuracy=accuracy + 0.001 * (i % 2), inference_flops=flops) for i in range(6)],
    }
    (claim,) = smaller_claims(of, QUALITY, margin=0.005, most=0.4)
    assert claim.verdict == verdict

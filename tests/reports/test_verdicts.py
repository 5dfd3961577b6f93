"""What is said of differences and claims: nothing of few seeds, and less where a page has many tests."""

import pytest

from gpf.reports.tables import Measure, summary, verdict
from gpf.reports.verdicts import ENOUGH_SEEDS, LEVEL, Claim, Family, Verdict, caution, corrected

MORE = Measure("score", 1, ".1f", lambda outcome: 0.0)
HIGHER, SAME = [1.0, 1.1, 1.2, 1.3, 1.4, 1.5], [0.0] * 6
MIXED = [0.1, -0.1, 0.2, -0.2, 0.3, -0.3]


def judged(*pairs):
    """A text of one line for each of some comparisons, and the sentence about them."""
    return corrected(lambda f: "\n".join([f.sentence, *(verdict(ours, theirs, MORE, f) for ours, theirs in pairs)]))


def test_one_test_counts_as_it_always_did():
    sentence, line = judged((HIGHER, SAME)).splitlines()
    assert line.startswith("better: +1.2")
    assert sentence.startswith("Paired permutation tests on this page: 1, corrected together")
    assert "those with p up to 0.031 are significant" in sentence
    assert "must reach" not in sentence


def test_among_many_tests_of_six_seeds_most_must_reach_the_least_p():
    """p = 1 / 32 at best: 5 of 8 are enough, for 0.05 x 5 / 8 = 1 / 32; 4 of 8 are not."""
    for found, words in ((5, "better"), (4, "not significant")):
        sentence, *lines = judged(*[(HIGHER, SAME)] * found, *[(MIXED, SAME)] * (8 - found)).splitlines()
        assert all(line.startswith(words) for line in lines[:found])
        assert all(line.startswith("not significant") for line in lines[found:])
        assert "tests on this page: 8," in sentence
        assert "5 must reach it for any to count" in sentence
        assert ("none is significant" in sentence) == (found == 4)


def test_every_test_that_is_shown_is_counted_once():
    family = Family()
    verdict(HIGHER, SAME, MORE, family)
    assert len(family.found) == 1
    assert verdict([None], [1.0], MORE, family) == "-"
    assert len(family.found) == 1


def test_a_test_that_counts_needs_its_interval_too():
    """Five seeds alike and one far out: every sign agrees, but the mean's interval includes zero."""
    outlier = [0.1, 0.1, 0.1, 0.1, 0.1, 9.0]
    assert judged((outlier, SAME)).splitlines()[1].startswith("not significant")


@pytest.mark.parametrize("seeds", range(1, ENOUGH_SEEDS))
def test_too_few_seeds_have_no_verdict_and_no_test(seeds):
    text = judged((HIGHER[:seeds], SAME[:seeds]))
    assert "tests on this page" not in text
    assert text.strip().startswith("too few seeds: +1.")
    assert Verdict.of_claim(True, seeds=seeds) == Verdict.of_bounds(-2.0, -1.0, seeds=seeds) == Verdict.TOO_FEW
    for said in ("confirmed", "refuted", "partly", "not shown"):
        assert Claim("p", "m", said).of(seeds).verdict == "too few seeds"
    assert Claim("p", "m", Verdict.OF_THE_RULES).of(seeds).verdict == "follows from the rules"
    assert caution(seeds)


def test_enough_seeds_have_one():
    assert caution(ENOUGH_SEEDS) == ""
    assert Claim("p", "m", "confirmed").of(ENOUGH_SEEDS).verdict == "confirmed"
    assert Verdict.of_claim(True, seeds=ENOUGH_SEEDS) == "confirmed"
    assert Verdict.of_claim(False, seeds=ENOUGH_SEEDS) == "refuted"
    assert Verdict.of_claim(False, True, seeds=ENOUGH_SEEDS) == "partly"
    bounds = {(-2.0, -1.0): "confirmed", (1.0, 2.0): "refuted", (-1.0, 1.0): "not shown"}
    assert {pair: Verdict.of_bounds(*pair, seeds=ENOUGH_SEEDS) for pair in bounds} == bounds


def test_a_difference_without_a_better_side_is_higher_or_lower():
    family = Family(tests=1, seeds=6, limit=LEVEL)
    assert family.judge(family.compare(HIGHER, SAME)) == "higher"
    assert family.judge(family.compare(SAME, HIGHER)) == "lower"
    assert family.judge(family.compare(SAME, HIGHER), better=-1) == "better"


def test_a_number_of_equal_seeds_has_no_interval():
    assert summary([0.5] * 4, ".1f") == summary([0.5], ".1f") == "0.5"
    assert summary([1.0, 2.0, 3.0], ".2f") == "2.00 [-0.48, 4.48]"
    assert summary([0.01, None], ".1f") == "-"

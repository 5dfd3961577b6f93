"""The page on where GPF pays: curves, times, latencies and what is said, from made-up runs."""

from pathlib import Path

import numpy as np
import pytest

from gpf.reports.pages import read_numbers
from gpf.runs.folder import Outcome
from gpf.studies import page_of
from gpf.studies.pays import draw, mean_curve, pays_study, time_shares
from gpf.studies.subjects import SHRINKING, SUBJECTS
from gpf.tasks.depths import FASTER, PAPER, fixed

CHARACTERS, NAVIGATION = SUBJECTS["characters"], SUBJECTS["navigation"]


def outcome(losses, depths, result=None):
    lines = [
        {"step": 10 * (i + 1), "flops": 5.0 * (i + 1), "seconds": 2.0 * (i + 1), "validation": loss, "depth": depth}
        for i, (loss, depth) in enumerate(zip(losses, depths, strict=True))
    ]
    return Outcome(Path("run/0"), result or {}, lines, [])


def test_a_curve_is_the_mean_over_seeds_round_by_round():
    curve = mean_curve(CHARACTERS, [outcome([3.0, 2.0], [2, 2]), outcome([5.0, 4.0], [2, 2])])
    assert curve == [[5.0, 2.0, 4.0], [10.0, 4.0, 3.0]]


def test_times_are_those_of_steps_at_each_depth():
    """Ten steps at two layers, then ten at eight, against twenty at eight: (10 + 40) / 80."""
    layers = CHARACTERS.task.of({}).layers
    of = {FASTER: [outcome([3.0, 2.0], [2, layers])], fixed(layers): [outcome([4.0, 2.5], [layers, layers])]}
    assert time_shares(CHARACTERS, of, {2: 1.0, layers: 4.0}) == [pytest.approx(50 / 80)]
    of[FASTER] = [outcome([3.0, 2.6], [2, layers])]
    assert time_shares(CHARACTERS, of, {2: 1.0, layers: 4.0}) == [None]


def test_fixed_navigators_get_as_many_flops_as_a_plan_took():
    """A step of 16-64-64-7 costs 2 W to act and, in each of 4 passes, 6 W less what goes back to inputs."""
    flops = 3e9
    variants = NAVIGATION.variants[1]({SHRINKING: [Outcome(Path("run/0"), {"flops": flops}, [], [])]})
    first, middle, last = 16 * 64, 64 * 64, 64 * 7
    a_step = 2 * (first + middle + last) + 4 * (4 * first + 6 * (middle + last))
    assert variants[fixed(2, True)]["steps"] == round(flops / a_step)
    assert variants[fixed(4)] == {"gpf": False, "depth": 4}


def test_every_subject_can_be_trained_with_its_settings():
    for subject in SUBJECTS.values():
        for variants in subject.variants:
            found = {SHRINKING: [Outcome(Path("run/0"), {"flops": 1e12}, [], [])]}
            study = pays_study(subject, 2, variants(found))
            for cell in study.cells:
                cell.config(subject.seeds[0]).check()


def test_no_seed_of_navigation_was_tuned_or_reported_before():
    assert not set(NAVIGATION.seeds) & {*range(110), *range(900, 1000)}


def numbers(seeds):
    random = np.random.default_rng(0)
    variants = [fixed(1), fixed(1, True), SHRINKING, PAPER]
    scores = {
        variant: {
            key: random.uniform(0.5, 1.0, seeds).tolist() for key in (*NAVIGATION.measures, "latency")
        }
        for variant in variants
    }  # fmt: skip
    found = {
        "seeds": list(range(200, 200 + seeds)),
        "minutes": 1.0,
        "scores": scores,
        "curves": {variant: [[1e9, 1.0, 0.2], [2e9, 2.0, 0.6], [3e9, 3.0, 0.7]] for variant in variants},
        "step_milliseconds": {},
        "time_shares": [],
        "claims": [{"paper": "it pays", "measured": "0.7", "verdict": "confirmed"}],
    }
    return {"kind": "pays", "subjects": {"navigation": {**found, "command": "gpf pays", "cpu": "some"}}}


def test_the_page_names_rivals_counts_tests_and_judges_only_from_six_seeds_up():
    text = page_of(numbers(6), "pays")
    assert "fixed, 1 layer (best at equal steps)" in text
    assert "fixed, 1 layer, equal FLOPs (best at equal FLOPs)" in text
    assert "Paired permutation tests on this page: 4" in text
    assert "| it pays | 0.7 | confirmed |" in text
    few = page_of(numbers(3), "pays")
    assert "3 seeds are too few" in few
    assert "| it pays | 0.7 | too few seeds |" in few


def test_a_figure_has_four_panels_and_an_envelope():
    figure = draw(NAVIGATION, numbers(6)["subjects"]["navigation"])
    assert len(figure.axes) == 4
    envelope = next(line for line in figure.axes[0].lines if "envelope" in str(line.get_label()))
    assert np.nanmax(envelope.get_ydata()) == pytest.approx(0.7)


def test_the_committed_page_has_language_images_and_navigation():
    found = read_numbers(Path(__file__).parents[2] / "docs" / "results" / "pays.json")
    assert {"characters", "images-residual", "navigation"} <= set(found["subjects"]) <= set(SUBJECTS)

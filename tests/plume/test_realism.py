"""The realism gate: the paper's plume fails it, and one that is made like a field plume passes."""

import dataclasses
import math

import numpy as np
import pytest

from gpf.plume import Scenario
from gpf.plume.realism import RANGES, SECONDS, SEEDS, realism
from gpf.plume.statistics import plume_statistics
from gpf.plume.survey import survey

STEPS = 18_000


def bursts(seed, low=0.2, high=20.0, step=0.1):
    """A series with whiffs and blanks of density t^-1.5 between cut-offs; each whiff has a strength of its own."""
    rng = np.random.default_rng(seed)
    durations = (low**-0.5 + rng.random((STEPS // 4, 2)) * (high**-0.5 - low**-0.5)) ** -2.0
    lengths = np.maximum(1, np.round(durations / step).astype(int))
    strengths = rng.exponential(1.0, len(lengths)) ** 2
    return np.repeat(np.stack([0.01 + strengths, np.zeros(len(lengths))], axis=1).ravel(), lengths.ravel())[:STEPS]


@pytest.fixture(scope="module")
def natural():
    series = np.stack([bursts(seed) for seed in range(SEEDS)])
    return plume_statistics(
        [series] * 2, [(series, series)] * 2, [series] * 3, distances=[1.0, 2.0], offsets=[-1.0, 0.0, 1.0],
        profile_distance=1.0, separation=0.1, threshold=0.005, time_step=0.1,
    )  # fmt: skip


@pytest.mark.parametrize("name", ["paper", "reference"])
def test_the_plume_of_the_paper_is_not_realistic(name):
    found = survey(Scenario.preset(name), SECONDS, range(SEEDS)).statistics
    assert (found.records, found.seconds) == (SEEDS, SECONDS)
    checks = realism(found)
    assert [check.name for check in checks if check.passed] == []
    assert 0.93 < checks[0].value < 0.99  # it smells almost always


def test_a_plume_with_the_statistics_of_the_field_is_realistic(natural):
    checks = realism(natural)
    assert [check.name for check in checks if not check.passed] == []
    slopes = {check.name: check.value for check in checks if "slope" in check.name}
    assert slopes == pytest.approx(dict.fromkeys(slopes, -1.5), abs=0.2)


def changed(statistics, name, value):
    """The same statistics but for one number at every point."""

    def point(one):
        if name in ("intermittency", "peak_to_mean"):
            return dataclasses.replace(one, **{name: value})
        kind, field = name.split(".")
        return dataclasses.replace(one, **{kind: dataclasses.replace(getattr(one, kind), **{field: value})})

    return dataclasses.replace(statistics, axis=tuple(point(one) for one in statistics.axis))


@pytest.mark.parametrize(
    ("field", "name", "low", "high"),
    [
        ("intermittency", "intermittency", 0.1, 0.7),
        ("blanks.cv", "blank duration CV", 1.2, 2.5),
        ("blanks.slope", "blank PDF slope", -1.9, -1.1),
        ("whiffs.slope", "whiff PDF slope", -1.9, -1.1),
        ("peak_to_mean", "peak-to-mean ratio", 10.0, math.inf),
    ],
)
def test_each_check_accepts_its_range_and_nothing_else(natural, field, name, low, high):
    for value, accepted in ((low, True), (low - 1e-6, False), (high + 1e-6, high == math.inf), (math.nan, False)):
        failed = [check.name for check in realism(changed(natural, field, value)) if not check.passed]
        assert failed == ([] if accepted else [name]), value


def test_every_range_has_a_test():
    assert len(RANGES) == 5


def test_a_check_is_of_the_median_over_the_axis(natural):
    points = [dataclasses.replace(natural.axis[0], intermittency=share) for share in (0.2, 0.3, 0.95)]
    assert realism(dataclasses.replace(natural, axis=tuple(points)))[0].value == 0.3


def test_a_check_as_plain_data_has_no_infinity(natural):
    plain = realism(natural)[-1].plain()
    assert (plain["low"], plain["high"], plain["passed"]) == (10.0, None, True)

"""The simulated coverage of intervals, against what can be worked out."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "benchmarks"))
import interval_coverage

NORMAL, LOG_NORMAL = interval_coverage.LAWS


def test_laws_have_the_means_that_they_are_said_to_have():
    drawn = LOG_NORMAL.draw(np.random.default_rng(0), (1, 2_000_000))[0]
    assert drawn.mean() == pytest.approx(LOG_NORMAL.mean, rel=5e-3)
    assert stats.trim_mean(drawn, 0.25) == pytest.approx(LOG_NORMAL.interquartile_mean, rel=5e-3)


def test_students_interval_of_normal_scores_covers_as_it_says_and_the_bootstrap_does_not():
    found = interval_coverage.coverage(NORMAL, 3, samples=1500, resamples=200)
    assert found["Student's t"] == pytest.approx(0.95, abs=0.02)
    assert found["bootstrap of the mean"] < 0.85


def test_the_interval_that_pages_use_is_bold():
    shares = {"bootstrap of the mean": 0.8, "Student's t": 0.95, "bootstrap of the IQM": 0.9}
    text = interval_coverage.table({"normal": {3: shares, 10: shares}})
    assert "| normal | 3 | 80.0% | **95.0%** | 90.0% |" in text
    assert "| normal | 10 | 80.0% | 95.0% | **90.0%** |" in text

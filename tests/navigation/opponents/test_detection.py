import dataclasses

import numpy as np
import pytest

from gpf.navigation.opponents import detection
from gpf.navigation.opponents.detection import DetectionModel, fitted
from gpf.navigation.seeds import TUNING
from gpf.plume import Scenario


@pytest.fixture(scope="module")
def walks():
    some = detection._Walks(Scenario.preset("turbulent"))
    some.run()
    return some


def test_models_are_fitted_on_tuning_seeds():
    assert detection.SEEDS >= TUNING


def test_the_fit_recovers_the_model_that_made_the_whiffs(walks):
    """Whiffs drawn from a known model, at the places and in the winds of real walks."""
    true = DetectionModel(0.3, 0.08, 0.05, 2.0, 0.8, 0.01, 0.5)
    rng = np.random.default_rng(0)
    age = walks.tracks.pace.duration * np.arange(1.0, walks.tracks.pace.ages + 1)
    known = np.arange(len(walks.paths))[:, None] * walks.tracks.pace.duration
    narrow = true.spread + true.growth * age
    wide = narrow + true.unknown * np.maximum(age - known, 0.0)
    strength = true.strength * age**-true.decay * (narrow / wide) ** 2
    away = ((walks.offsets[:, :, 0, None] + walks.paths) ** 2).sum(axis=3)
    mean = (strength[:, None] * np.exp(-away / (2 * wide[:, None] ** 2))).sum(axis=2)
    real, walks.whiffs = walks.whiffs, rng.random(mean.shape) < 1 - (1 - true.false) * np.exp(-mean)
    found = walks.fit()
    walks.whiffs = real
    assert found.spread == pytest.approx(true.spread, rel=0.5)
    at = np.array([2.0, 6.0])
    np.testing.assert_allclose(found.spread + found.growth * at, true.spread + true.growth * at, rtol=0.3)
    assert found.false == pytest.approx(true.false, abs=0.01)


def test_a_model_predicts_whiffs_better_than_their_mean_rate(walks):
    """On other walks in the same world."""
    model = fitted(Scenario.preset("turbulent"))
    known = np.flatnonzero(~np.isnan(walks.offsets[:, :, 0, 0]).ravel())[3::7]
    pace, lanes = walks.tracks.pace, walks.whiffs.shape[1]
    whiffs = walks.whiffs.ravel()[known]
    loss = detection._loss(
        model.record(), pace.duration * np.arange(1.0, pace.ages + 1),
        walks.paths.reshape(-1, pace.ages, 2)[known].astype(float), known // lanes * pace.duration,
        walks.offsets.reshape(-1, 1, 2)[known], whiffs,
    ) / len(known)  # fmt: skip
    p = whiffs.mean()
    assert loss < 0.8 * -(p * np.log(p) + (1 - p) * np.log(1 - p))
    assert all(np.isfinite(dataclasses.astuple(model)))


def test_the_fit_is_the_same_on_every_call():
    scenario = Scenario(max_steps=40)
    first = fitted(scenario)
    fitted.cache_clear()
    assert fitted(scenario) == first

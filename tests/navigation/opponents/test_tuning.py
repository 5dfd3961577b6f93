import dataclasses
import json

import numpy as np
import pytest

from gpf.navigation.evaluate import evaluate
from gpf.navigation.opponents import tuned
from gpf.navigation.opponents.tuned import TunedCastAndSurge, parameters_of, shipped
from gpf.navigation.opponents.tuning import ROUNDS, SPACES, Round, scaled, tune
from gpf.navigation.policies import CastAndSurge, make_policy
from gpf.navigation.seeds import BLOCK, TUNING
from gpf.plume import Scenario
from gpf.plume.presets import PRESETS
from gpf.settings import read

FEW = (Round(0.0, 5, 8, 3), Round(0.2, 3, 16, 2))
WORLD = Scenario.preset("reference").changed(["max_steps=300"])


@pytest.mark.parametrize("name", SPACES)
def test_the_place_of_a_parameter_in_its_range_is_undone(name):
    space, rng = SPACES[name], np.random.default_rng(0)
    drawn = space.draw(rng)
    for parameter, (low, high) in space.ranges.items():
        value = getattr(drawn, parameter)
        assert low <= value <= high
        assert space.at(parameter, space.place(parameter, value)) == pytest.approx(value)
    assert set(space.ranges) == {spec.name for spec in dataclasses.fields(space.kind)}
    far = space.perturbed(rng, drawn, 10.0)
    assert all(low <= getattr(far, parameter) <= high for parameter, (low, high) in space.ranges.items())


def test_the_result_is_at_least_as_good_on_episodes_that_the_search_did_not_use():
    bad = dataclasses.replace(WORLD)
    lines = []
    result = tune("cast-and-surge", bad, 1, FEW, 60, lines.append)
    assert len(lines) == len(FEW)
    assert (
        result.after.success.mean() + 0.1 * result.after.spl >= result.before.success.mean() + 0.1 * result.before.spl
    )
    again = evaluate(read(CastAndSurge, result.parameters), WORLD, 60, TUNING + (300 + len(FEW)) * BLOCK)
    np.testing.assert_array_equal(again.success, result.after.success)
    assert tune("cast-and-surge", bad, 1, FEW, 60).parameters == result.parameters


def test_effort_multiplies_episodes():
    assert [one.episodes for one in scaled(ROUNDS, 0.5)] == [round(0.5 * one.episodes) for one in ROUNDS]


def test_shipped_parameters_are_within_their_ranges():
    assert set(shipped()) <= set(PRESETS)
    for parameters in shipped().values():
        read(CastAndSurge, parameters)
        for name, (low, high) in SPACES["cast-and-surge"].ranges.items():
            assert 0.999 * low <= parameters[name] <= 1.001 * high or low <= 0.0


def test_tuned_parameters_belong_to_a_world_whatever_its_reward(monkeypatch):
    special = {**dataclasses.asdict(CastAndSurge()), "surge": 7.5}
    monkeypatch.setattr(tuned, "shipped", lambda: {"turbulent": special})
    turbulent = Scenario.preset("turbulent")
    assert parameters_of(turbulent.rewarded("search"))["surge"] == 7.5
    assert parameters_of(turbulent.changed(["wind_speed=2"])) == dataclasses.asdict(CastAndSurge())
    policy = TunedCastAndSurge()
    policy.begin([0], turbulent)
    assert policy.surge == 7.5
    policy.begin([0], Scenario())
    assert policy.surge == CastAndSurge().surge


def test_a_policy_takes_the_parameters_of_a_file(tmp_path):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps({"surge": 9.0, "lean": 3}))
    policy = make_policy(f"cast-and-surge:{file}")
    assert (policy.surge, policy.lean, policy.growth) == (9.0, 3.0, CastAndSurge().growth)
    file.write_text(json.dumps({"surg": 9.0}))
    with pytest.raises(ValueError, match="unknown setting 'surg'; did you mean 'surge'"):
        make_policy(f"cast-and-surge:{file}")

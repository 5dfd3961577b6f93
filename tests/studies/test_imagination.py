"""Navigators that plan, or have learned, in imagination: what the commands print is what their pages say."""

import json
import time

import pytest

from gpf.studies import imagination, page_of
from gpf.studies.imagination import latencies, make_planner, navigators_beside, quantiles
from gpf.world_model.planner import Scoring
from gpf.world_model.trained import load_world

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(autouse=True)
def few_steps_are_timed(monkeypatch):
    monkeypatch.setattr(imagination, "LATENCIES", 5)


@pytest.fixture
def beside(tmp_path, world_data):
    """Numbers of a comparison in the world of the model, and elsewhere."""
    row = {
        "scenario": str(world_data.parent / "near.json"), "agent": "somebody", "scores": [0.5, 0.5], "mean_steps": None,
        "spl": [0.25, 0.75], "seeds": [0, 1],
    }  # fmt: skip
    path = tmp_path / "others.json"
    path.write_text(json.dumps({"rows": [row, {**row, "scenario": "paper", "agent": "nobody"}]}))
    return path


def test_a_planner_by_command(world_run, tmp_path, beside, gpf):
    few = "--episodes 3 --rollouts 1 --horizon 2 --page page --json".split()
    plan = json.loads(gpf("world", "plan", world_run, *few, "--beside", beside).splitlines()[-1])
    assert 0 < plan["p50_ms"] <= plan["p99_ms"]
    assert [one["episodes"] for one in plan["outcomes"].values()] == [3, 3, 3]
    text = (tmp_path / "page" / "planner.md").read_text()
    assert "| somebody | 50.00% | - | 0.500 | 2 |" in text
    assert "nobody" not in text
    assert "A planning step is 6 rollouts of 2 steps" in text
    assert " ms" not in text  # the benchmark says how long that takes, and the numbers beside the page
    numbers = json.loads((tmp_path / "page" / "planner.json").read_text())
    assert numbers["latency"] == {name: plan[name] for name in ("p50_ms", "p99_ms")}
    numbers = json.loads((tmp_path / "page" / "planner.json").read_text())
    assert text == page_of(numbers, "planner")


def test_dreaming_by_command(world_run, tmp_path, gpf):
    few = ("--epochs", "1", "--episodes", "3", "--seeds", "2", "--page", "page", "--json")
    dreamt = json.loads(gpf("world", "dream", world_run, *few).splitlines()[-1])
    assert [one["episodes"] for one in dreamt["outcomes"].values()] == [3] * 4
    assert len(dreamt["imagined_success"]) == 2
    text = (tmp_path / "page" / "dream-navigators.md").read_text()
    for name in dreamt["outcomes"]:
        assert f"\n| {name} |" in text
    assert text == page_of(json.loads((tmp_path / "page" / "dream-navigators.json").read_text()), "dream-navigators")


def test_a_planning_step_is_timed_one_world_at_a_time(world_run):
    planner = make_planner(load_world(world_run), "repeat", Scoring(), horizon=2, rollouts=1)
    started = time.perf_counter()
    seconds = latencies(planner, 30)
    assert len(seconds) == 30
    assert min(seconds) > 0
    assert sum(seconds) < time.perf_counter() - started


def test_quantiles_by_hand():
    assert quantiles([0.001 * n for n in range(101)]) == pytest.approx({"p50_ms": 50.0, "p99_ms": 99.0})


@pytest.mark.parametrize("text", ["", "[]", "3", "{}", '{"rows": 3}', '{"rows": [3]}', '{"rows": [{}]}'])
def test_numbers_beside_that_are_none_are_refused_in_one_line(text, tmp_path, world_run):
    (tmp_path / "others.json").write_text(text)
    with pytest.raises(ValueError, match="others.json") as caught:
        navigators_beside(tmp_path / "others.json", load_world(world_run).scenario)
    assert "\n" not in str(caught.value)


def test_a_page_of_dreams_in_which_no_episode_ended_is_written():
    outcome = {"success": 0.0, "low": 0.0, "high": 0.5, "mean_steps": None, "spl": 0.0, "episodes": 3}
    numbers = {"kind": "dreams", "command": "c", "outcomes": {"a": outcome}, "imagined_success": [[None], []],
               "passed_by": [None, 0.5]}  # fmt: skip
    text = page_of(numbers, "dreams")
    assert "none found" in text
    assert "-, 50% ended upwind" in text
    assert "| a | 0.00% [0.00%, 50.00%] | - | 0.000 | 3 |" in text


def test_the_kind_of_a_page_must_be_known():
    with pytest.raises(ValueError, match="kind of page 'poem'"):
        page_of({"kind": "poem"}, "x")

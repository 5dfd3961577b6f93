"""The paper's experiment: every agent it needs, and a page that says what the scores say."""

import copy
import json

import numpy as np
import pytest
from PIL import Image
from support import Here, nobody

from gpf.network import MLP
from gpf.reports.statistics import mean_interval, paired_difference
from gpf.reports.verdicts import corrected
from gpf.studies import page_of, reproduction
from gpf.studies.reproduction import (
    PARTS,
    agents,
    change,
    column,
    page,
    parameters,
    q_learning_figure,
    reproduce,
    reproduction_study,
    training_figure,
    width_of,
)

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def test_networks_have_the_parameters_they_are_said_to_have():
    for depth, width in ((1, 64), (2, 31), (4, 45)):
        model = MLP(22, width, 6, depth)
        assert parameters(depth, width) == sum(p.numel() for p in model.parameters())
    for widest in (64, 256):
        sizes = [parameters(depth, width_of(depth, parameters(1, widest))) for depth in range(1, 5)]
        assert max(sizes) / min(sizes) < 1.05  # equal parameters, as near as whole units allow


def test_every_agent_is_one_that_can_be_trained(tmp_path):
    names = [agent.name for agent in agents(tmp_path)]
    assert len(set(names)) == len(names) == 15
    for agent in agents(tmp_path):
        agent.config.check()
        assert agent.config.learner.NAME == "online"
        assert agent.config.epochs == 5000
    plans = {agent.name: agent.config.planned_events() for agent in agents(tmp_path)}
    assert plans["grown and pruned"] == {
        2000: [None], 3000: [None], 4000: [None], 2010: [0.479], 3010: [0.196], 4010: [0.099],
    }  # fmt: skip


def test_half_the_budget_is_a_world_of_half_the_steps(tmp_path):
    study = reproduction_study(tmp_path, range(2), ["budget"])
    world = json.loads((tmp_path / "half-budget.json").read_text())
    assert world["max_steps"] * 2 == reproduction.Scenario.of("reference").max_steps
    assert study.runs == 2 * 6
    assert not (tmp_path / "half-budget.json.new").exists()


@pytest.fixture(scope="module")
def written(tmp_path_factory, few_episodes_in_module):
    """The page of two parts, one seed, in a world so small that it takes seconds."""
    folder = tmp_path_factory.mktemp("reproduce")
    world = folder / "tiny.json"
    world.write_text(json.dumps({"preset": "reference", "max_steps": 4, "start_distance_max": 3.0}))
    study = reproduction_study(folder / "runs", range(3, 4), ["sparsity"], str(world))
    return reproduce(study, folder / "runs", ["sparsity"], str(world), folder / "page", "gpf reproduce", Here(), nobody)


@pytest.fixture(scope="module")
def scores(written):
    return json.loads(written.with_suffix(".json").read_text())


def test_one_seed_has_its_page_without_intervals(written, scores):
    text = written.read_text()
    assert text == page_of(scores, "reproduction")
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert not [row for row in rows if "[" in row or "nan" in row]
    assert "seeds 3 to 3" in text
    for name in ("training", "q-learning"):
        assert f"reproduction-{name}.png" in text
        with Image.open(written.with_name(f"reproduction-{name}.png")) as image:
            assert image.width > 1000


def test_scores_are_those_of_the_runs(scores):
    assert scores["parts"] == ["experiment", "sparsity"]
    assert len(scores["agents"]) == 6
    for agent in scores["agents"].values():
        (run,) = agent["runs"]
        assert len(run["curve"]) == len(run["depth"]) == 10
    (run,) = scores["agents"]["grown and pruned"]["runs"]
    assert [event["episode"] for event in run["events"]] == [2000, 2010, 3000, 3010, 4000, 4010]
    assert [e["kept"] for e in run["events"] if e["kept"]] == pytest.approx([0.479, 0.196, 0.099], abs=1e-3)
    assert run["depth"][-1] == 4
    whole = 22 * 64 + 3 * 64 * 64
    assert run["density"][-1] == pytest.approx(1 - 0.901 * (whole - 64 * 64) / whole, abs=1e-3)
    (run,) = scores["agents"]["grown, not pruned"]["runs"]
    assert run["density"] == [1.0] * 10


def test_the_page_says_what_the_scores_say(scores, tmp_path):
    random = np.random.default_rng(0)
    made_up = {**scores, "parts": list(PARTS), "seeds": [0, 1, 2, 3], "agents": {}}
    for n, agent in enumerate(agents(tmp_path)):
        (like,) = scores["agents"].get(agent.name, scores["agents"]["canonical"])["runs"]
        runs = [copy.deepcopy(like) for _ in range(4)]
        for run in runs:
            run["curve"] = (0.5 + 0.02 * n + 0.1 * random.random(10)).tolist()
            for key in ("best", "last", "best of 100", "last of 100"):
                run[key] = 0.5 + 0.02 * n + 0.01 * random.random()
        made_up["agents"][agent.name] = {"runs": runs}
    text = page(made_up, "reproduction")
    value, low, high = mean_interval(column(made_up, "GPF", "best of 100"))
    assert f"{100 * value:.1f} [{100 * low:.1f}, {100 * high:.1f}]" in text
    best = np.array([max(run["curve"]) for run in made_up["agents"]["depth 4, width 45"]["runs"]])
    assert (column(made_up, "depth 4, width 45", "peak") == best).all()
    d = paired_difference(column(made_up, "GPF", "last"), column(made_up, "canonical", "last"))
    assert f"{100 * d.mean:+.1f} [{100 * d.low:+.1f}, {100 * d.high:+.1f}]" in text
    for title in (
        "paper's table and ours",
        "Held out",
        "Verdicts",
        "with permanent masks",
        "50 s",
        "Deeper or wider",
    ):
        assert title in text
    assert "| 2500 | 91.5 |" in text
    for figure in (training_figure(made_up), q_learning_figure(made_up)):
        assert figure.axes


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [
        ([0.9, 0.91, 0.92] * 2, [0.5, 0.5, 0.51] * 2, "**higher**"),
        ([0.1, 0.11, 0.12] * 2, [0.5, 0.5, 0.51] * 2, "**lower**"),
        ([0.4, 0.6, 0.5] * 2, [0.5, 0.5, 0.5] * 2, "**not significant**"),
        ([0.9, 0.91, 0.92], [0.5, 0.5, 0.51], "p = 0.250: **too few seeds**"),  # three coins say little
    ],
)
def test_a_verdict_is_that_of_the_interval_and_the_test_together(ours, theirs, said):
    assert corrected(lambda family: change(np.array(ours), np.array(theirs), family)).endswith(said)

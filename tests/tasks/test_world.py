"""World models as runs: resumed as if never stopped, stopped early, measured, planned with; what is refused."""

import dataclasses
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from gpf import cli
from gpf.runs.folder import Run, RunError, read_log, read_result
from gpf.tasks import world, world_pages
from gpf.tasks.many import check_same
from gpf.tasks.world import Training, create_run, three_parts, train
from gpf.tasks.world_pages import evaluate_worlds, latencies, make_planner
from gpf.world_model import measures
from gpf.world_model.config import Config
from gpf.world_model.measures import baseline_cross_entropies, predict
from gpf.world_model.planner import Scoring
from gpf.world_model.sequences import read_dataset
from gpf.world_model.trained import load_world

NAVIGATORS = Path(__file__).parent.parent.parent / "docs" / "results" / "navigators.json"
pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """A round of a few steps, few windows to validate on, few dreams and few steps to time."""
    monkeypatch.setattr(measures, "DREAMS", 50)
    monkeypatch.setattr(world_pages, "LATENCIES", 5)
    monkeypatch.setattr(world, "STEPS_IN_A_ROUND", 5)
    monkeypatch.setattr(world, "VALIDATION_WINDOWS", 32)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Sequences that the command collected."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "near.json").write_text(
        json.dumps({"preset": "reference", "max_steps": 90, "start_distance_min": 1.0, "start_distance_max": 2.0})
    )
    command(folder, "world", "data", "--out", "data", "--steps", "20000", "--scenario", "near.json")
    return folder / "data"


@pytest.fixture
def config(data):
    rules = {"warmup": "0", "grow_patience": "1", "grow_threshold": "10", "max_depth": "2", "prune_patience": "1",
             "freeze_patience": "2", "freeze_delta": "1.0"}  # fmt: skip
    return Config(data=str(data), width=16, heads=2, context=8, steps=30, batch=8, rules=rules)


def command(folder, *arguments):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["gpf", *arguments])
        cli.main()


def final(folder):
    lines = [
        {key: value for key, value in line.items() if key != "seconds"}
        for log in ("metrics", "events")
        for line in read_log(folder, log)
    ]
    return lines, [path.read_bytes() for path in (folder / "checkpoints" / "last").glob("*.safetensors")]


def test_a_run_that_is_stopped_after_every_round_ends_as_one_that_is_not(config, tmp_path):
    train(create_run(tmp_path / "whole", config))
    run = create_run(tmp_path / "stopped", config)
    while not (training := Training(run)).over:
        training.round()
    assert final(tmp_path / "whole") == final(tmp_path / "stopped")
    kinds = {line["kind"] for line in read_log(tmp_path / "whole", "events")}
    assert kinds == {"grown", "pruned", "frozen"}
    assert read_log(tmp_path / "whole", "metrics")[-1]["depth"] == 2
    lines = read_log(tmp_path / "whole", "metrics")
    assert sum(lines[-1]["validation"]) < sum(lines[0]["validation"]) < 2 * np.log(7) + np.log(8)


def test_it_stops_early_where_validation_is_no_better(config, tmp_path):
    dull = dataclasses.replace(config, learning_rate=0.0, patience=2, rules={})
    result = train(create_run(tmp_path / "run", dull))
    assert result["step"] == 15  # the first is the best, and two more are waited for


def test_runs_that_differ_in_more_than_their_seeds_are_not_taken_together(config, tmp_path):
    runs = []
    for n, changes in enumerate(({}, {"batch": 9})):
        runs.append(tmp_path / str(n))
        train(create_run(runs[-1], dataclasses.replace(config, steps=5, **changes)))
    with pytest.raises(
        ValueError, match=r"^runs: .*1 differs from .*0 in more than its seed; accepted: one of each kind"
    ):
        evaluate_worlds(runs, tmp_path, "page", "gpf")


def test_the_result_is_that_of_the_best_checkpoint(config, tmp_path):
    """What grew and was pruned after it is another network's."""
    result = train(create_run(tmp_path / "run", config))
    lines = read_log(tmp_path / "run", "metrics")
    best = min(lines, key=lambda line: sum(line["validation"]))
    assert result["parameters"] == best["parameters"]
    assert len(load_world(tmp_path / "run").model.blocks) == result["depth"] == best["depth"]


def test_what_is_learnt_is_held_out_from_what_is_reported(data):
    dataset = read_dataset(data)
    parts = three_parts(dataset)
    assert (np.concatenate([part.codes for part in parts]) == dataset.codes).all()
    assert [round(len(part) / len(dataset), 1) for part in parts] == [0.8, 0.1, 0.1]
    assert (dataset.starts[:-1][dataset.found]).size > 10


def test_a_run_of_other_data_is_refused(config, tmp_path):
    create_run(tmp_path / "run", config).close()
    written = json.loads((tmp_path / "run" / "config.json").read_text())
    (tmp_path / "run" / "config.json").write_text(json.dumps({**written, "data": {"steps": 1}}))
    with pytest.raises(RunError, match=r"^data: .* is not what .* began with; accepted: the same sequences"):
        Training(Run.open(tmp_path / "run"))
    with pytest.raises(RunError, match=r"^run: .* is of another configuration"):
        check_same(tmp_path / "run", config, "world")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context": 1}, "context: 1; accepted: at least 2"),
        ({"heads": 3}, "heads: 3; accepted: a divisor of the width, 16"),
        ({"batch": 0}, "batch: 0; accepted: at least 1"),
        ({"gpf": False}, "rules: .*; accepted: only with --gpf"),
        ({"rules": {"depth": "1"}}, "rules: unknown field 'depth'; accepted: those of gpf.Rules"),
        ({"data": "nowhere"}, "data: nowhere cannot be read"),
        ({"context": 10**6}, "data: .* steps; accepted: more than the context"),
    ],
)
def test_impossible_configurations_are_refused(config, tmp_path, changes, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        Training(create_run(tmp_path / "run", dataclasses.replace(config, **changes)))


def test_everything_by_command(config, tmp_path, capsys):
    """Train, evaluate, plan and dream, as a user would; the page says what the files do."""
    shared = [
        "--data",
        config.data,
        "--width",
        "16",
        "--heads",
        "2",
        "--context",
        "64",
        "--steps",
        "10",
        "--batch",
        "4",
    ]
    command(tmp_path, "world", "train", *shared, "--run", "one", "--json")
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result == read_result(tmp_path / "one") | {"run": "one", "report": "one/report.html"}
    report = (tmp_path / "one" / "report.html").read_text()
    for title in ("Learning", "Events", "Predictions", "Dreams", "Settings"):
        assert f"<h2>{title}</h2>" in report
    assert report.count("data:image/png;base64") == 3
    (tmp_path / "one" / "report.html").unlink()
    command(tmp_path, "report", "one")
    assert (tmp_path / "one" / "report.html").read_text() == report
    command(tmp_path, "world", "train", *shared, "--no-gpf", "--depth", "2", "--seeds", "1", "--run", "two")
    command(tmp_path, "world", "evaluate", "one", "two/0", "--page", "page")
    numbers = json.loads((tmp_path / "page" / "world-model.json").read_text())
    assert list(numbers["measured"]) == ["GPF", "2 blocks from the start"]
    learnt, _, test = three_parts(read_dataset(Path(config.data)))
    wanted = predict(load_world(tmp_path / "one").model, test).cross_entropy
    assert numbers["measured"]["GPF"][0]["cross_entropy"] == pytest.approx(wanted.tolist())
    uniform = baseline_cross_entropies(learnt, test)["uniform"]
    assert uniform == pytest.approx([np.log(7), np.log(7), np.log(8)])
    page = (tmp_path / "page" / "world-model.md").read_text()
    for name in ("dreams", "reliability", "training"):
        assert (tmp_path / "page" / f"world-model-{name}.png").stat().st_size > 10_000
        assert f"world-model-{name}.png" in page
    capsys.readouterr()
    few = "--episodes 3 --rollouts 1 --horizon 2 --page page --json".split()
    row = {"scenario": str(Path(config.data).parent / "near.json"), "agent": "somebody", "success": [0.5, 0.4, 0.6],
           "mean_steps": None, "spl": [0.25, 0.75], "seeds": [0, 1]}  # fmt: skip
    (tmp_path / "others.json").write_text(json.dumps({"rows": [row, {**row, "scenario": "paper", "agent": "nobody"}]}))
    command(tmp_path, "world", "plan", "one", *few, "--beside", "others.json")
    plan = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert 0 < plan["p50_ms"] <= plan["p99_ms"]
    assert [one["episodes"] for one in plan["outcomes"].values()] == [3, 3, 3]
    page = (tmp_path / "page" / "planner.md").read_text()
    assert "| somebody | 50.00% [40.00%, 60.00%] | - | 0.500 | 2 |" in page
    assert "nobody" not in page
    assert f"p99 {plan['p99_ms']:.1f} ms" in page
    few = ("--epochs", "1", "--episodes", "3")
    command(tmp_path, "world", "dream", "one", *few, "--seeds", "2", "--page", "page", "--json")
    dreamt = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [one["episodes"] for one in dreamt["outcomes"].values()] == [3] * 4
    assert len(dreamt["imagined_success"]) == 2
    page = (tmp_path / "page" / "dream-navigators.md").read_text()
    for name in dreamt["outcomes"]:
        assert f"\n| {name} |" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan", "."), "gpf: run: no config.json in ."),
        (("plan", "run", "--follow", "the wind"), "gpf: follow: 'the wind'; accepted: repeat, cast-and-surge"),
        (("plan", "run", "--horizon", "8"), "gpf: horizon: 8; accepted: 1 to 7"),
        (("evaluate", "run"), "gpf: run: run is not finished; accepted: after gpf world train --resume run"),
        (("train", "--resume", "run", "--steps", "5"), "gpf: resume: given beside settings of a new run"),
        (("plan", "run", "--beside", "none.json"), "gpf: beside: none.json cannot be read"),
        (("plan", "run", "--beside", str(NAVIGATORS)), f"gpf: beside: {NAVIGATORS} has nobody in this world"),
        (("plan", "run", "--seed", "-1"), "gpf: seed: -1; accepted: 0 to"),
        (("dream", "run", "--epochs", "0"), "gpf: epochs: 0; accepted: at least 1"),
        (("data", "--steps", "0"), "gpf: steps: 0; accepted: at least 1"),
        (("data", "--from-minari", "plume/none-v0"), "gpf: minari: there is no 'plume/none-v0' here"),
    ],
)
def test_a_users_mistake_is_one_line(config, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    run = create_run(tmp_path / "run", config)
    Training(run).round()
    run.close()
    with pytest.raises(SystemExit) as ended:
        command(tmp_path, "world", *arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(message)
    assert said.count("\n") == 1


def test_a_planning_step_is_timed_one_world_at_a_time(config, tmp_path):
    train(create_run(tmp_path / "run", config))
    planner = make_planner(load_world(tmp_path / "run"), "repeat", Scoring(), horizon=2, rollouts=1)
    seconds = latencies(planner, 30)
    assert len(seconds) == 30
    assert min(seconds) > 0


def test_no_run_to_evaluate_is_refused(tmp_path):
    with pytest.raises(RunError, match=r"^run: no config.json"):
        evaluate_worlds([tmp_path], tmp_path, "page", "gpf")

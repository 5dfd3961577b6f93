"""Folders that somebody has edited: every command says so in one line, with code 2, and changes nothing."""

import json
import shutil

import pytest
from support import edit

from gpf.runs.folder import read_log
from gpf.tasks import find_task

pytestmark = pytest.mark.usefixtures("one_torch_thread", "few_episodes")


@pytest.fixture(scope="module")
def regression_run(tmp_path_factory):
    """A finished run of a task that has the report of all tasks; to copy."""
    task = find_task("regression")
    run = task.create(tmp_path_factory.mktemp("regression") / "run", task.of({"tasks": 2, "samples": 160}))
    task.train(run)
    run.close()
    return run.folder


@pytest.fixture(params=["plume", "regression", "world"])
def run(request, tmp_path):
    """A copy of a run of a task, which lacks nothing but its result."""
    whole = request.getfixturevalue(f"{request.param}_run")
    return shutil.copytree(whole, tmp_path / "run", ignore=shutil.ignore_patterns(".lock", "result.json"))


def refused(mistake, run, *commands):
    """Every one of the commands refuses the run; nothing that training wrote has changed."""
    written = ("config.json", "metrics.jsonl", "events.jsonl", "result.json")
    before = {name: (run / name).read_bytes() for name in written if (run / name).exists()}
    said = [mistake(*command, run) for command in commands]
    assert {name: (run / name).read_bytes() for name in written if (run / name).exists()} == before
    assert all(str(run) in line for line in said)
    return said


REPORT, RESUME = ("report",), ("train", "--resume")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "3", "null", "{}", '{"task": 3}', '{"task": "chess"}', "\x00", "[" * 10_000]
)
def test_a_damaged_configuration(text, run, mistake):
    (run / "config.json").write_text(text)
    refused(mistake, run, REPORT, RESUME)


@pytest.mark.parametrize(
    "damage",
    [
        lambda config: config.pop("config"),
        lambda config: config.update(config=3),
        lambda config: config.update(config=[]),
        lambda config: config["config"].update(colour="red"),
        lambda config: config["config"].update(seed="first"),
        lambda config: config["config"].update(seed=-1),
        lambda config: config["config"].update(learning_rate=None),
        lambda config: config.pop("task"),
        lambda config: config.pop("id"),
    ],
)
def test_wrong_settings_in_the_configuration(damage, run, mistake):
    edit(run / "config.json", lambda config: damage(config) and None)
    refused(mistake, run, RESUME)


@pytest.mark.parametrize("text", ["", "\n", "{}\n", "[]\n", "x\n", '{"round": "x"}\n', '{"round": 1}\n'])
def test_damaged_metrics(text, run, mistake):
    (run / "metrics.jsonl").write_text(text)
    refused(mistake, run, REPORT, RESUME)


def test_metrics_that_are_gone(run, mistake):
    (run / "metrics.jsonl").unlink()
    refused(mistake, run, REPORT, RESUME)


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", "{", '"x"'])
def test_a_result_that_is_none(text, run, mistake):
    (run / "result.json").write_text(text)
    refused(mistake, run, REPORT, RESUME)


@pytest.mark.parametrize("text", ['{"success": "x"}', '{"success": 1, "low": [], "high": {}}'])
def test_wrong_types_in_the_result_of_a_navigator(text, plume_run, tmp_path, mistake):
    run = shutil.copytree(plume_run, tmp_path / "run")
    (run / "result.json").write_text(text)
    refused(mistake, run, REPORT)


@pytest.mark.parametrize(
    "change",
    [
        lambda line: line.pop("step"),
        lambda line: line.update(seconds="x"),
        lambda line: line.update(step=None),
        lambda line: line.update(depth=[1]),
    ],
)
def test_lines_that_lack_what_a_report_shows(change, run, mistake):
    lines = read_log(run, "metrics")
    change(lines[-1])
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "damaged" in mistake("report", run)


@pytest.mark.parametrize(
    "progress",
    [
        {"round": "x"}, {"round": -1}, {"round": None}, {"round": 1.5}, {"step": "many"}, {"step": -1},
        {"seconds": -1.0}, {"events": "x"}, {"events": -1}, {"best": "x"}, {"since_best": None}, {"flops": [1]},
    ],
    ids=str,
)  # fmt: skip
def test_wrong_progress_in_the_manifest(progress, run, mistake):
    manifest = run / "checkpoints" / "last" / "manifest.json"
    edit(manifest, lambda found: found["extra"]["progress"].update(progress))
    refused(mistake, run, RESUME)


@pytest.mark.parametrize("text", ["", "[]", "{}", "{", "null"])
def test_a_manifest_that_is_none(text, run, mistake):
    for checkpoint in ("best", "last"):
        if (run / "checkpoints" / checkpoint).exists():
            (run / "checkpoints" / checkpoint / "manifest.json").write_text(text)
    refused(mistake, run, RESUME)
    if json.loads((run / "config.json").read_text())["task"] != "regression":  # whose report shows no network
        refused(mistake, run, REPORT)


def test_a_checkpoint_of_another_run_of_the_same_settings(run, mistake):
    edit(run / "config.json", lambda config: config.update(id="another"))
    assert "another run" in refused(mistake, run, RESUME)[0]

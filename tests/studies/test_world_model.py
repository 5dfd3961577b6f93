"""Trained world models, measured: the page says what the files do."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from gpf.runs.folder import RunError, read_result
from gpf.studies import page_of
from gpf.studies.world_model import evaluate_worlds
from gpf.tasks.world import TASK, three_parts
from gpf.world_model import measures
from gpf.world_model.measures import baseline_cross_entropies, predict
from gpf.world_model.sequences import read_dataset
from gpf.world_model.trained import load_world

pytestmark = pytest.mark.usefixtures("one_torch_thread")


@pytest.fixture(autouse=True)
def few_dreams(monkeypatch):
    monkeypatch.setattr(measures, "DREAMS", 50)


def trained(folder, config):
    run = TASK.create(folder, config)
    TASK.train(run)
    run.close()
    return folder


def test_world_models_are_trained_and_evaluated_by_command(tiny_world, tmp_path, gpf, monkeypatch):
    """Two kinds of one seed each: the page says what the files do, and no interval."""
    data = tiny_world["data"]
    shared = f"--data {data} --width 16 --heads 2 --context 64 --steps 10 --batch 4 --round-steps 5".split()
    few = ("--validation-windows", "8")
    result = json.loads(gpf("train", "world", *shared, *few, "--run", "one", "--json").splitlines()[-1])
    assert result == read_result(tmp_path / "one") | {"run": "one", "report": "one/report.html"}
    report = (tmp_path / "one" / "report.html").read_text()
    for title in ("Learning", "Events", "Predictions", "Dreams", "Settings"):
        assert f"<h2>{title}</h2>" in report
    assert report.count("data:image/png;base64") == 3
    (tmp_path / "one" / "report.html").unlink()
    gpf("report", "one")
    assert (tmp_path / "one" / "report.html").read_text() == report
    other = TASK.of({**TASK.read(tmp_path / "one").plain(), "gpf": False, "depth": 2})
    trained(tmp_path / "two", other)
    gpf("world", "evaluate", "one", "two", "--page", "page")
    numbers = json.loads((tmp_path / "page" / "world-model.json").read_text())
    assert list(numbers["measured"]) == ["GPF", "2 blocks from the start"]
    learnt, _, test = three_parts(read_dataset(Path(data)))
    wanted = predict(load_world(tmp_path / "one").model, test).cross_entropy
    assert numbers["measured"]["GPF"][0]["cross_entropy"] == pytest.approx(wanted.tolist())
    uniform = baseline_cross_entropies(learnt, test)["uniform"]
    assert uniform == pytest.approx([np.log(7), np.log(7), np.log(8)])
    text = (tmp_path / "page" / "world-model.md").read_text()
    assert text == page_of(numbers, "world-model")
    assert not [line for line in text.splitlines() if line.startswith("| ") and ("[" in line or "nan" in line)]
    for name in ("dreams", "reliability", "training"):
        assert (tmp_path / "page" / f"world-model-{name}.png").stat().st_size > 10_000
        assert f"world-model-{name}.png" in text


def test_runs_that_differ_in_more_than_their_seeds_are_not_taken_together(tiny_world, world_run, tmp_path):
    other = trained(tmp_path / "other", dataclasses.replace(TASK.of(tiny_world), steps=5, batch=9))
    with pytest.raises(ValueError, match=r"differ only in their seeds.*other"):
        evaluate_worlds([world_run, other], tmp_path, "page", "gpf")
    assert not (tmp_path / "page.md").exists()


def test_no_run_to_evaluate_is_refused(tmp_path):
    with pytest.raises(RunError, match="has no config.json"):
        evaluate_worlds([tmp_path], tmp_path, "page", "gpf")

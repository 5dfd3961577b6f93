"""gpf train beyond a first run: finished runs, longer ones, fine-tuned ones, and those that fail at once."""

import json
import re

import pytest

from gpf.network import load
from gpf.runs.folder import read_config, read_log, read_result
from gpf.tasks.plume import TASK, train

pytestmark = pytest.mark.usefixtures("one_torch_thread")

TINY = {
    "steps": 2048, "lanes": 8, "horizon": 32, "minibatch": 64, "width": 8, "validation_episodes": 5, "round_epochs": 2,
    "validate_every": 2, "evaluate": 10,
}  # fmt: skip


@pytest.fixture
def finished(tmp_path, short_world):
    """A finished run of 8 epochs, whose second layer was planned."""
    train(tmp_path / "run", scenario=str(short_world), plan=["4:grow", "6:keep=0.5"], **TINY)
    return tmp_path / "run"


def test_resuming_a_finished_run_says_so_and_changes_nothing(finished, gpf):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    said = gpf("train", "--resume", "run")
    assert said == "run run is finished, after 2,048 steps; train it for longer with --extend STEPS\n"
    assert json.loads(gpf("train", "--resume", "run", "--json")) == {"run": "run", **read_result(finished)}
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


def test_a_finished_run_goes_on_for_longer(finished, gpf):
    first = read_result(finished)
    result = json.loads(gpf("train", "--resume", "run", "--extend", "1024", "--no-report", "--json").splitlines()[-1])
    assert (first["step"], result["step"]) == (2048, 3072)
    assert [line["round"] for line in read_log(finished, "metrics")] == [1, 2, 3, 4, 5, 6]
    assert read_config(finished)["config"]["steps"] == 3072
    assert read_config(finished)["extended"] == [2048]
    assert json.loads((finished / "result-2048.json").read_text()) == first
    assert read_result(finished) == {name: value for name, value in result.items() if name not in ("run", "report")}


@pytest.mark.parametrize(("more", "message"), [("0", "extend must be at least 1, got 0"), ("-5", "at least 1, got -5")])
def test_what_is_no_extension(more, message, finished, mistake):
    assert message in mistake("train", "--resume", "run", "--extend", more)
    assert read_result(finished) is not None


def test_an_unfinished_run_is_not_extended(finished, mistake):
    (finished / "result.json").unlink()
    assert "is not finished" in mistake("train", "--resume", "run", "--extend", "1000")
    assert read_config(finished)["config"]["steps"] == 2048


def test_a_network_is_fine_tuned_in_another_world(finished, tmp_path, gpf):
    """Depth and masks come along; the settings of the first run are the defaults, and the rules begin anew."""
    gpf("train", "--from", "run", "--scenario", "paper", "--steps", "512", "--plan", "--run", "tuned", "--no-report")
    config = read_config(tmp_path / "tuned")
    assert (config["from"], config["config"]["scenario"], config["config"]["lanes"]) == ("run", "paper", 8)
    copied = tmp_path / "tuned" / "checkpoints" / "first"
    net = load(copied, build=lambda: TASK.network(TASK.read(finished)), restore_random=False)
    assert net.depth == 2
    tuned = TASK.load(tmp_path / "tuned")
    assert tuned.depth == 2
    assert tuned.density == net.density < 1.0
    assert tuned.epoch <= 2  # of the rules
    assert not read_log(tmp_path / "tuned", "events")


def test_fine_tuning_learns_from_what_the_network_knew(finished, tmp_path, gpf, short_world):
    """With a rate of zero the network stays what it was."""
    still = ("--learning-rate", "0", "--plan", "--steps", "512", "--no-report")
    gpf("train", "--from", "run", *still, "--run", "same")
    old, new = TASK.load(finished).model.state_dict(), TASK.load(tmp_path / "same").model.state_dict()
    assert all(bool((old[name] == new[name]).all()) for name in old)


def test_another_runs_network_must_fit(finished, tmp_path, mistake):
    assert "does not fit" in mistake("train", "--from", "run", "--width", "16", "--run", "other")
    assert not (tmp_path / "other").exists()


def test_a_run_that_diverges_at_once_leaves_no_folder(tmp_path, short_world, mistake):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    said = mistake("train", *flags, "--scenario", short_world, "--learning-rate", "1e30", "--run", "run")
    assert re.search("non-finite after .* steps; try a learning rate below 1e\\+30", said)
    assert not (tmp_path / "run").exists()


def test_a_run_that_diverges_later_says_what_it_is(finished, tmp_path, mistake, monkeypatch):
    monkeypatch.setattr("gpf.tasks.plume.PlumeTraining.sound", lambda self: self.progress["epoch"] < 10)
    (tmp_path / "run" / "figures").mkdir(exist_ok=True)
    assert "non-finite" in mistake("train", "--resume", "run", "--extend", "1024")
    assert "non-finite" in json.loads((finished / "failure.json").read_text())["error"]


def test_a_run_that_is_resumed_has_not_failed(finished, gpf):
    (finished / "result.json").unlink()
    (finished / "failure.json").write_text("{}")
    gpf("train", "--resume", "run", "--no-report")
    assert not (finished / "failure.json").exists()


def test_missing_extras_are_named_before_anything_is_written(tmp_path, mistake, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'gpf-networks[tensorboard]'" in mistake("train", "--tensorboard", "--run", "run")
    assert not (tmp_path / "run").exists()


def test_list_says_which_runs_failed_and_how_validation_went_where_nothing_was_evaluated(finished, gpf):
    def listed():
        return json.loads(gpf("list", ".", "--json"))["runs"][0]

    result = read_result(finished)
    assert (listed()["score"], listed()["failed"]) == ({"success": result["success"]}, False)
    (finished / "result.json").write_text(json.dumps({**result, "success": None}))
    assert listed()["score"] == {"validation": result["validation"]["last"]}
    (finished / "result.json").unlink()
    (finished / "failure.json").write_text('{"error": "it diverged"}')
    assert (listed()["finished"], listed()["failed"]) == (False, True)
    assert "failed" in gpf("list", ".")

"""gpf train beyond a first run: finished runs, longer ones, fine-tuned ones, and those that fail at once."""

import json
import re
import shutil

import pytest

from gpf.navigation.learner import LaneSettings
from gpf.network import load
from gpf.runs.folder import read_config, read_log, read_result
from gpf.tasks.plume import TASK, train
from gpf.tasks.task import train_shown

pytestmark = pytest.mark.usefixtures("one_torch_thread")

TINY = {
    "steps": 2048, "lanes": 8, "horizon": 32, "minibatch": 64, "width": 8, "validation_episodes": 5, "round_epochs": 2,
    "validate_every": 2, "evaluate": 10,
}  # fmt: skip


@pytest.fixture
def finished(tmp_path, short_world):
    """A finished run of 8 epochs, whose second layer was planned; with what stands for a report."""
    train(tmp_path / "run", scenario=str(short_world), plan=["4:grow", "6:keep=0.5"], **TINY)
    (tmp_path / "run" / "report.html").write_text("")
    return tmp_path / "run"


def test_resuming_a_finished_run_says_so_and_changes_nothing(finished, gpf):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    said = gpf("train", "--resume", "run")
    assert said == "run run is finished, after 2,048 steps; --extend N trains it for longer\n"
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


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("0", "extend must be at least 1, got 0"),
        ("-5", "at least 1, got -5"),
        ("10", "extend must add at least one epoch to the 8 of the run, got 10 steps"),
    ],
)
def test_what_is_no_extension(more, message, finished, mistake):
    assert message in mistake("train", "--resume", "run", "--extend", more)
    assert read_result(finished) is not None


def test_a_run_that_stopped_early_is_not_extended(world_run, tmp_path, mistake):
    shutil.copytree(world_run, tmp_path / "run", ignore=shutil.ignore_patterns(".lock"))
    result = read_result(tmp_path / "run")
    (tmp_path / "run" / "result.json").write_text(json.dumps({**result, "step": 15}))
    said = mistake("train", "--resume", "run", "--extend", "10")
    assert "stopped early, at step 15 of 30" in said
    assert read_result(tmp_path / "run")["step"] == 15


@pytest.mark.parametrize("setting", [("--learner", "online"), ("--seed", "3"), ("--run", "b"), ("--from", "a")])
def test_a_run_is_resumed_with_its_own_settings_only(setting, finished, mistake):
    (finished / "result.json").unlink()
    said = mistake("train", "--resume", "run", *setting)
    assert f"--resume cannot be combined with {setting[0]}; the settings of the run are in its folder" in said


def test_a_finished_run_without_its_report_gets_it(finished, gpf, monkeypatch):
    (finished / "report.html").unlink()
    monkeypatch.setattr("gpf.tasks.report.write_report", lambda folder, tell: (folder / "report.html").write_text("x"))
    gpf("train", "--resume", "run", "--no-report")
    assert not (finished / "report.html").exists()
    gpf("train", "--resume", "run")
    assert (finished / "report.html").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--seeds", "2", "--tensorboard"), "--tensorboard cannot be combined with --seeds"),
        (("--seeds", "2", "--threads", "1"), "--threads cannot be combined with --seeds"),
        (("--seeds", "2", "--from", "run"), "--from cannot be combined with --seeds"),
        (("--jobs", "1"), "--jobs and --cluster need --seeds"),
        (("--from", "run", "--learner", "online"), "--from needs the learner of that run, policy-gradient, got online"),
    ],
)
def test_options_that_would_do_nothing_are_refused(arguments, message, finished, mistake):
    assert message in mistake("train", *arguments)


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


def test_fine_tuning_has_the_optimizer_that_is_asked_for(finished, tmp_path, monkeypatch):
    """Not that of the first run, whose moments it keeps."""
    make = LaneSettings.make_optimizer

    def decaying(self, model):
        optimizer = make(self, model)
        optimizer.param_groups[0].update(weight_decay=0.1, eps=1e-3)
        return optimizer

    monkeypatch.setattr(LaneSettings, "make_optimizer", decaying)
    config = TASK.of({**TASK.read(finished).plain(), "plan": (), "learning_rate": 0.5})
    run = TASK.create(tmp_path / "tuned", config, finished)
    training = TASK.training(run, config, 1)
    (group,) = training.net.optimizer.param_groups
    assert (group["weight_decay"], group["eps"], group["lr"]) == (0.1, 1e-3, 0.5)
    run.close()


def test_a_fine_tuning_that_was_killed_while_it_was_created_says_so(finished, tmp_path, mistake):
    config = TASK.read(finished)
    TASK.create(tmp_path / "tuned", config, finished).close()
    shutil.rmtree(tmp_path / "tuned" / "checkpoints")
    assert "was interrupted while it was created" in mistake("train", "--resume", "tuned")


def test_a_source_that_cannot_be_copied_leaves_no_run(finished, tmp_path, monkeypatch):
    def full(*folders):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copytree", full)
    with pytest.raises(OSError, match="No space left"):
        TASK.create(tmp_path / "tuned", TASK.read(finished), finished)
    assert not (tmp_path / "tuned").exists()


def test_another_runs_network_must_fit(finished, tmp_path, mistake):
    said = mistake("train", "--from", "run", "--width", "16", "--run", "other")
    assert "the network of run does not fit the new run's settings" in said
    assert not (tmp_path / "other").exists()


def test_a_run_that_diverges_at_once_leaves_no_folder(tmp_path, short_world, mistake):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    said = mistake("train", *flags, "--scenario", short_world, "--learning-rate", "1e30", "--run", "run")
    assert re.search("non-finite after .* steps; try a learning rate below 1e\\+30", said)
    assert not (tmp_path / "run").exists()


def test_a_folder_of_the_users_own_stays_where_a_run_in_it_fails_at_once(tmp_path, short_world, mistake):
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to("mine")
    said = mistake("train", *flags, "--scenario", short_world, "--learning-rate", "1e30", "--run", "link")
    assert "non-finite" in said
    assert list((tmp_path / "mine").iterdir()) == []


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


def test_a_run_that_cannot_be_resumed_is_not_extended_and_stays_finished(finished, mistake):
    shutil.rmtree(finished / "checkpoints" / "last")
    before = {path: path.read_bytes() for path in finished.rglob("*.json") if path.is_file()}
    assert "last is missing" in mistake("train", "--resume", "run", "--extend", "1024")
    assert {path: path.read_bytes() for path in finished.rglob("*.json") if path.is_file()} == before


def test_several_seeds_are_not_trained_inside_a_run(finished, mistake):
    assert "run is a run; choose another folder" in mistake("train", "--seeds", "2", "--run", "run")


def test_a_report_that_was_not_written_is_not_spoken_of(finished, gpf):
    assert "report" not in gpf("train", "--resume", "run", "--extend", "1024", "--no-report")


def test_ctrl_c_while_the_report_is_written_says_that_the_run_is_finished(tmp_path, short_world, monkeypatch):
    def press(phase):
        raise KeyboardInterrupt

    run = TASK.create(tmp_path / "run", TASK.of({**TINY, "scenario": str(short_world)}))
    with pytest.raises(KeyboardInterrupt, match="the run is finished; write its report with: gpf report "):
        train_shown(TASK, run, 1, then=press)
    assert read_result(tmp_path / "run") is not None

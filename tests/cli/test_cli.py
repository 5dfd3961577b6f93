"""The commands: what they print and write, and how they refuse."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest
from support import Here, saved_round


def shell(*arguments, cwd):
    """A command in a process of its own, where that is the subject."""
    return subprocess.run([sys.executable, "-m", "gpf", *arguments], capture_output=True, text=True, cwd=cwd)


def last(printed):
    return json.loads(printed.splitlines()[-1])


def test_help_lists_the_commands_and_each_lists_its_options(tmp_path, gpf, capsys):
    done = shell("--help", cwd=tmp_path)
    assert done.returncode == 0
    for name in ("train", "evaluate", "compare", "sweep", "reproduce", "continual", "page", "report", "world"):
        assert re.search(rf"^  {name} ", done.stdout, re.MULTILINE)
    assert gpf() == done.stdout
    for command, option in (("train", "--seeds"), ("compare", "--jobs"), ("world", "plan")):
        with pytest.raises(SystemExit) as ended:
            gpf(command, "--help")
        assert ended.value.code == 0
        assert option in capsys.readouterr().out


def test_a_command_that_there_is_not_is_refused_with_the_likely_one(mistake):
    assert "'trian'; did you mean 'train'?" in mistake("trian")
    assert "'chess'" in mistake("train", "chess")
    assert "'cifar'; did you mean 'cifar10'?" in mistake("compare", "cifar")


def test_evaluate_prints_a_table_and_writes_the_figure(tmp_path, gpf):
    printed = gpf("evaluate", "cast-and-surge", "--scenarios", "reference", "--episodes", "20")
    for word in ("success", "Wilson", "SPL", "never arrived", "steps/s"):
        assert word in printed
    assert (tmp_path / "runs" / "evaluate" / "cast-and-surge-reference.png").exists()


def test_evaluate_json_is_one_object_on_the_last_line(tmp_path, gpf):
    arguments = ("evaluate", "--episodes", "20", "--json", "--figure", "a b/figure.png")
    done = shell(*arguments, "--animation", "walk.gif", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = last(done.stdout)
    assert {"success", "low", "high", "mean_steps", "spl", "steps_per_second"} <= result.keys()
    assert result["low"] <= result["success"] <= result["high"]
    assert (tmp_path / "a b" / "figure.png").exists()
    assert (tmp_path / "walk.gif").exists()
    again, other = last(gpf(*arguments, "--threads", "1")), last(gpf(*arguments, "--seed", "1"))
    assert again["mean_steps"] == result["mean_steps"]
    assert other["mean_steps"] != result["mean_steps"]


def test_a_scenario_can_be_printed_changed_and_used(tmp_path, gpf):
    printed = json.loads(gpf("scenario", "reference"))
    (tmp_path / "mine.json").write_text(json.dumps({**printed, "max_steps": 3}))
    assert last(gpf("evaluate", "--scenarios", "mine.json", "--episodes", "20", "--json"))["success"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dog",), "policy 'dog'.*random, reactive, cast-and-surge, .*, or the folder of a run"),
        (("random", "--acting", "greedy"), "--acting .* are for runs"),
        (("--scenarios", "moon"), "'moon'.*paper, reference"),
        (("--scenarios", "moon.json"), "moon.json"),
        (("--episodes", "0"), "episodes.*1 to 16777216.*0"),
        (("--seed", "-1"), "seed.*0 to 16777215.*-1"),
        (("--threads", "0"), "threads.*0"),
        (("--paths", "-5"), "paths.*-5"),
        (("--figure", "walk.jpg"), "figure.*.png.*'walk.jpg'"),
        (("--animation", "walk.avi"), "animation.*'walk.avi'"),
    ],
)
def test_a_users_mistake_ends_in_one_line(arguments, message, mistake):
    assert re.search(message, mistake("evaluate", *arguments))


def test_a_mistake_is_one_line_and_a_code_for_the_shell_too(tmp_path):
    done = shell("evaluate", "dog", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpf: unknown policy 'dog'; accepted: random")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("report", "nowhere"), "nowhere has no config.json"),
        (("spectra", "nowhere"), "nowhere has no config.json"),
        (("sample", "nowhere"), "nowhere has no config.json"),
        (("reproduce", "--seeds", "0"), "seeds .*0"),
        (("reproduce", "--jobs", "0"), "jobs .*0"),
        (("reproduce", "--scenario", "moon"), "'moon'"),
        (("compare", "nowhere.toml"), "nowhere.toml"),
        (("compare", "mine.toml"), "'A'.*learner 'sarsa'.*policy-gradient, recurrent, parallel, online"),
        (("compare", "--networks", "deep"), "networks .*'deep'"),
        (("compare", "--seeds", "0"), "seeds .*0"),
        (("compare", "--first-seed", "-1"), "first_seed .*-1"),
        (("compare", "cifar10", "--episodes", "5"), "--episodes"),
        (("compare", "cifar10", "--seeds", "0"), "seeds .*0"),
        (("compare", "plume"), "'plume' has no variants"),
        (("compare", "nowhere:TASK"), "'nowhere:TASK'"),
        (("continual", "--methods", "gpf"), "methods .*reset"),
        (("continual", "--streams", "rough"), "stream.*'rough'"),
        (("continual", "--jobs", "0"), "jobs .*0"),
        (("page", "nowhere.json"), "nowhere.json"),
        (("page", "mine.toml"), "mine.toml"),
    ],
)
def test_a_users_mistake_in_the_other_commands_ends_in_one_line(arguments, message, tmp_path, mistake):
    (tmp_path / "mine.toml").write_text('[agents.A]\nlearner = "sarsa"\n')
    assert re.search(message, mistake(*arguments))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.toml"]  # nothing was begun


TINY = (
    "--steps 2000 --lanes 8 --horizon 32 --minibatch 64 --width 8 --validation-episodes 5 --scenario short.json".split()
)


@pytest.fixture
def short(tmp_path):
    (tmp_path / "short.json").write_text('{"preset": "reference", "max_steps": 40, "start_distance_max": 3.0}')
    return tmp_path


@pytest.mark.usefixtures("few_episodes")
def test_train_writes_a_run_that_evaluate_takes(short, gpf):
    result = last(gpf("train", *TINY, "--json", "--tensorboard", "--run", "a b/first run"))
    assert {"run", "success", "low", "high", "mean_steps", "depth", "density", "frozen", "seconds"} <= result.keys()
    assert result["run"] == "a b/first run"
    assert result["low"] <= result["success"] <= result["high"]
    run = short / "a b" / "first run"
    for name in ("config.json", "metrics.jsonl", "result.json", "figures/training.png", "report.html"):
        assert (run / name).stat().st_size > 0
    assert list((run / "tensorboard").glob("events.out.tfevents.*"))
    evaluated = last(gpf("evaluate", "a b/first run", "--episodes", "2000", "--json"))
    assert evaluated["success"] == result["success"]  # of block 0, the run's seed
    assert (evaluated["checkpoint"], evaluated["acting"]) == ("last", "sampled")


def test_train_prints_a_table_and_counts_runs_up(short, gpf, few_episodes):
    """Once in a process of its own."""
    done = shell("train", *TINY, cwd=short)
    assert done.returncode == 0, done.stderr
    for phase in ("training 100%", "evaluation", "spectra"):  # progress, where there is no terminal
        assert f"runs/plume-1: {phase}" in done.stderr
    for number, printed, episodes in ((1, done.stdout, "2,000"), (2, gpf("train", *TINY, "--evaluate", "20"), "20")):
        assert f"runs/plume-{number}: {episodes} held-out episodes" in printed
        for word in ("last", "95 % CI", "depth", "frozen layers"):
            assert word in printed
        assert f"report: runs/plume-{number}/report.html" in printed


@pytest.mark.usefixtures("few_episodes")
def test_every_learner_has_its_flags(short, gpf):
    few, lanes = ("--scenario", "short.json", "--json", "--no-report", "--validation-episodes", "5"), TINY[:8]
    for name, flags in {
        "q": ("--learner", "online", "--q-learning", "--episodes", "5"),
        "values": ("--learner", "parallel", "--q-learning", "--reward", "paper", *lanes, "--no-layer-norm"),
        "fixed": ("--no-gpf", "--depth", "4", *lanes),
        "rules": ("--rules", "max_depth", "2", "grow_trial", "null", "--without", "side", "whiff", *lanes),
    }.items():
        gpf("train", *few, *flags, "--run", name)
        config = json.loads((short / name / "config.json").read_text())
        assert config["config"].get("q_learning", False) == (name in ("q", "values"))
        assert (config["rules"]["max_depth"], config["rules"]["grow_trial"]) == {
            "q": (4, None), "values": (2, None), "fixed": (None, None), "rules": (2, None),
        }[name]  # fmt: skip
    assert config["config"]["without"] == ["side", "whiff"]


@pytest.mark.usefixtures("few_episodes")
def test_several_seeds_have_a_folder_each_and_are_not_trained_again(short, gpf, monkeypatch):
    monkeypatch.setattr("gpf.cli.shared.Where.executor", lambda self: Here())
    arguments = ("train", *TINY, "--seeds", "2", "--seed", "3", "--run", "all", "--json", "--no-report")
    told = last(gpf(*arguments))
    assert [one["run"] for one in told] == ["all/3", "all/4"]
    assert told[0]["success"] == json.loads((short / "all" / "3" / "result.json").read_text())["success"]
    assert [json.loads((short / one["run"] / "config.json").read_text())["config"]["seed"] for one in told] == [3, 4]
    monkeypatch.setattr(Here, "train", lambda *arguments: pytest.fail("trained again"))
    assert [one["seconds"] for one in last(gpf(*arguments))] == [one["seconds"] for one in told]


@pytest.mark.usefixtures("few_episodes")
def test_an_interrupted_training_is_saved_and_resumed(short, gpf):
    command = [sys.executable, "-m", "gpf", "train", *TINY[2:], "--steps", "4000000", "--run", "run"]
    process = subprocess.Popen(command, cwd=short, stderr=subprocess.PIPE, text=True)
    while not (short / "run" / "checkpoints" / "last" / "manifest.json").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    message = process.communicate()[1].splitlines()[-1]
    assert process.returncode == 130
    assert message == "gpf: interrupted; saved; resume with: gpf train --resume run"
    config = json.loads((short / "run" / "config.json").read_text())
    config["config"]["steps"] = 2048 * (saved_round(short / "run") + 1)  # enough waiting: one more round
    (short / "run" / "config.json").write_text(json.dumps(config))
    assert last(gpf("train", "--resume", "run", "--json", "--no-report"))["step"] == config["config"]["steps"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--reward", "paper", "--loitering", "0.2"), "loitering .*0.2"),
        (("--rules", "depth", "4"), "rule 'depth'"),
        (("--rules", "max_depth", "deep"), "max_depth.*'deep'"),
        (("--resume", "nowhere"), "nowhere has no config.json"),
        (("--run", "taken"), "taken exists.*--resume taken"),
        (("--run", "file/below"), "file/below cannot be written to .*--run"),
        (("--threads", "1000"), "threads must be from 1 to .*1000"),
        (("--extend", "100"), "--extend needs --resume"),
        (("--from", "nowhere"), "nowhere has no config.json"),
        (("--scenario", "moon"), "'moon'"),
        (("--threads", "0"), "threads .*0"),
        (("--seeds", "0"), "seeds .*0"),
        (("--width", "0"), "width .*0"),
        (("--seeds", "2", "--jobs", "0"), "jobs .*0"),
    ],
)
def test_a_users_mistake_in_training_ends_in_one_line(arguments, message, tmp_path, mistake):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("")
    assert re.search(message, mistake("train", *arguments))
    assert (tmp_path / "taken" / "mine.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "taken"]


def test_an_option_of_another_learner_is_refused(gpf, capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        gpf("train", "--learner", "online", "--lanes", "4")
    assert ended.value.code == 2
    assert "--lanes" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("few_episodes")
def test_a_full_disk_ends_in_one_line_and_the_run_is_resumed_later(short, gpf):
    """A limit on the size of files stands for the disk: checkpoints do not fit."""
    large = ["--steps", "4000", *TINY[2:], "--width", "64"]
    fresh = gpf("train", *large, "--run", "fresh", "--json", "--no-report")
    quoted = " ".join(f"'{one}'" for one in (sys.executable, "-m", "gpf", "train", *large, "--run", "run"))
    limited = ["bash", "-c", f"ulimit -f 30; trap '' XFSZ; {quoted}"]
    done = subprocess.run(limited, capture_output=True, text=True, cwd=short)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("gpf: [Errno 27] File too large")
    assert "Traceback" not in done.stderr
    assert not list((short / "run").glob("checkpoints/*/tensors-*"))  # nothing half-written stays
    assert last(gpf("train", "--resume", "run", "--json", "--no-report"))["success"] == last(fresh)["success"]


def test_names_are_printed_as_they_are(tmp_path, gpf):
    (tmp_path / "[red]a$x_{$.json").write_text('{"max_steps": 3}')
    assert "on [red]a$x_{$.json" in gpf("evaluate", "--scenarios", "[red]a$x_{$.json", "--episodes", "5")


def test_a_reader_that_has_had_enough_is_no_error(tmp_path):
    command = f'"{sys.executable}" -m gpf scenario | true'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr == ""


def test_a_folder_that_cannot_be_written_ends_in_one_line(tmp_path, mistake):
    (tmp_path / "file").write_text("")
    assert mistake("evaluate", "--episodes", "5", "--figure", "file/figure.png").startswith("gpf: ")
    assert os.listdir(tmp_path) == ["file"]  # noqa: PTH208 - names

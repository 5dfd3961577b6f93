import json
import signal
import subprocess
import sys
import time

import pytest

from gpf.cli import main


def gpf(*arguments, cwd):
    return subprocess.run([sys.executable, "-m", "gpf", *arguments], capture_output=True, text=True, cwd=cwd)


@pytest.fixture
def here(tmp_path, monkeypatch, capsys, one_torch_thread):
    """Runs a command in this process, which saves the seconds that a new one takes; returns what it prints."""

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["gpf", *arguments])
        main()
        return capsys.readouterr().out

    return run


@pytest.fixture
def mistaken(tmp_path, monkeypatch, capsys):
    """Runs a command that is a mistake, in this process, which saves seconds; returns the one line that it says."""

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["gpf", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        return said

    return run


def test_evaluate_prints_a_table_and_writes_the_figure(tmp_path):
    done = gpf("evaluate", "--policy", "cast-and-surge", "--scenario", "reference", "--episodes", "50", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for word in ("success", "Wilson", "SPL", "never arrived", "steps/s"):
        assert word in done.stdout
    assert (tmp_path / "runs" / "evaluate" / "cast-and-surge-reference.png").exists()


def test_evaluate_json_is_one_object_on_the_last_line(tmp_path, here):
    arguments = ("evaluate", "--episodes", "40", "--json", "--figure", "a b/figure.png", "--animation", "walk.gif")
    done = gpf(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert {"success", "low", "high", "mean_steps", "spl", "steps_per_second"} <= result.keys()
    assert result["low"] <= result["success"] <= result["high"]
    assert (tmp_path / "a b" / "figure.png").exists()
    assert (tmp_path / "walk.gif").exists()
    again = json.loads(here(*arguments, "--threads", "1").splitlines()[-1])
    other = json.loads(here(*arguments, "--seed", "1").splitlines()[-1])
    assert again["mean_steps"] == result["mean_steps"]
    assert other["mean_steps"] != result["mean_steps"]


def test_a_scenario_can_be_printed_changed_and_used(tmp_path):
    printed = json.loads(gpf("scenario", "reference", cwd=tmp_path).stdout)
    (tmp_path / "mine.json").write_text(json.dumps({**printed, "max_steps": 3}))
    done = gpf("evaluate", "--scenario", "mine.json", "--episodes", "20", "--json", cwd=tmp_path)
    assert json.loads(done.stdout.splitlines()[-1])["success"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--policy", "dog"), "policy: 'dog'; accepted: random, reactive, cast-and-surge, or the folder of a run"),
        (("--scenario", "moon"), "scenario: unknown preset 'moon'; accepted: paper, reference"),
        (("--scenario", "moon.json"), "scenario: cannot read 'moon.json'"),
        (("--episodes", "0"), "episodes: 0; accepted: 1 to 16777216"),
        (("--seed", "-1"), "seed: -1; accepted: 0 to 16777215"),
        (("--threads", "0"), "threads: 0; accepted"),
        (("--paths", "-5"), "paths: -5; accepted: at least 0"),
        (("--figure", "walk.jpg"), "figure: 'walk.jpg'; accepted: a path that ends in .png"),
        (("--animation", "walk.avi"), "animation: 'walk.avi'; accepted"),
    ],
)
def test_a_users_mistake_ends_in_one_line(arguments, message, mistaken):
    assert mistaken("evaluate", "--episodes", "5", *arguments).startswith(f"gpf: {message}")


def test_a_mistake_is_one_line_and_a_code_for_the_shell_too(tmp_path):
    done = gpf("evaluate", "--policy", "dog", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("gpf: policy: 'dog'; accepted: random")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("report", "nowhere"), "run: no config.json in nowhere; accepted: a folder that gpf train wrote"),
        (("spectra", "nowhere"), "run: no config.json in nowhere; accepted: a folder that gpf train wrote"),
        (("reproduce", "--seeds", "0"), "seeds: 0; accepted: at least 1"),
        (("reproduce", "--jobs", "0"), "jobs: 0; accepted: at least 1"),
        (("reproduce", "--scenario", "moon"), "scenario: unknown preset 'moon'"),
        (("compare", "nowhere.toml"), "comparison: nowhere.toml cannot be read"),
        (("compare", "mine.toml"), "agent 'A': learner: 'sarsa'; accepted: policy-gradient, parallel, online"),
        (("compare", "--networks", "deep"), "networks: 'deep'; accepted: gpf, or a number of layers"),
        (("continual", "--methods", "gpf"), "methods: without reset; accepted: with it"),
        (("continual", "--streams", "rough"), "stream: 'rough'; accepted: gentle, harsh, returning"),
        (("continual", "--jobs", "0"), "jobs: 0; accepted: at least 1"),
    ],
)
def test_a_users_mistake_in_the_other_commands_ends_in_one_line(arguments, message, tmp_path, mistaken):
    (tmp_path / "mine.toml").write_text('[agents.A]\nlearner = "sarsa"\n')
    assert mistaken(*arguments).startswith(f"gpf: {message}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.toml"]  # nothing was begun


TINY = ("--steps", "4000", "--lanes", "8", "--horizon", "32", "--minibatch", "64", "--scenario", "short.json")


@pytest.fixture
def short(tmp_path):
    (tmp_path / "short.json").write_text('{"preset": "reference", "max_steps": 40, "start_distance_max": 3.0}')
    return tmp_path


def test_train_writes_a_run_that_evaluate_takes(short, here):
    done = gpf("train", *TINY, "--json", "--tensorboard", "--run", "a b/first run", cwd=short)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert {"run", "success", "low", "high", "mean_steps", "depth", "density", "frozen", "seconds"} <= result.keys()
    assert result["low"] <= result["success"] <= result["high"]
    run = short / "a b" / "first run"
    for name in ("config.json", "metrics.jsonl", "result.json", "figures/training.png", "report.html"):
        assert (run / name).stat().st_size > 0
    assert list((run / "tensorboard").glob("events.out.tfevents.*"))
    for checkpoint in ("last", "best"):
        flags = ("--policy", "a b/first run", "--checkpoint", checkpoint, "--acting", "greedy")
        evaluated = json.loads(here("evaluate", *flags, "--json").splitlines()[-1])
        in_training = result["checkpoints"][checkpoint]["greedy"]["success"]  # 2,000 episodes of block 0
        assert evaluated["success"] == in_training
        assert (evaluated["checkpoint"], evaluated["acting"]) == (checkpoint, "greedy")


def test_train_prints_a_table_and_counts_runs_up(short, here):
    done = gpf("train", *TINY, cwd=short)
    assert done.returncode == 0, done.stderr
    assert "success" in done.stderr  # progress, where no terminal is
    for number, printed in enumerate((done.stdout, here("train", *TINY)), 1):
        assert f"runs/plume-{number}: 2,000 held-out episodes" in printed
        for word in ("last", "best", "greedy", "sampled", "depth", "frozen layers"):
            assert word in printed


def test_every_learner_has_its_flags(short, here):
    few = ("--scenario", "short.json", "--json")
    for name, flags in {
        "q": ("--learner", "online", "--q-learning", "--episodes", "5"),
        "values": ("--learner", "parallel", "--q-learning", "--reward", "paper", *TINY[:8], "--layer-norm", "False"),
        "fixed": ("--no-gpf", "--depth", "4", *TINY[:8]),
        "rules": ("--rules", "max_depth", "2", "grow_trial", "null", "--without", "side", "whiff", *TINY[:8]),
    }.items():
        here("train", *few, *flags, "--run", name)
        config = json.loads((short / name / "config.json").read_text())
        assert config["config"]["q_learning"] == (name in ("q", "values"))
        assert (config["rules"]["max_depth"], config["rules"]["grow_trial"]) == {
            "q": (4, None), "values": (2, None), "fixed": (None, None), "rules": (2, None),
        }[name]  # fmt: skip
    assert config["config"]["without"] == ["side", "whiff"]


def test_an_interrupted_training_is_saved_and_goes_on(short):
    command = [sys.executable, "-m", "gpf", "train", *TINY[2:], "--steps", "4000000", "--run", "run"]
    process = subprocess.Popen(command, cwd=short, stderr=subprocess.PIPE, text=True)
    while not (short / "run" / "checkpoints" / "last" / "manifest.json").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    message = process.communicate()[1].splitlines()[-1]
    assert process.returncode == 130
    assert message == "gpf: interrupted; saved; go on with: gpf train --resume run"
    config = json.loads((short / "run" / "config.json").read_text())
    config["config"]["steps"] = 8192  # enough waiting: let it be over soon
    (short / "run" / "config.json").write_text(json.dumps(config))
    done = gpf("train", "--resume", "run", "--json", cwd=short)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["steps"] >= 8192


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--learner", "online", "--lanes", "4"), "lanes: 4; accepted: only with --learner policy-gradient, parallel"),
        (("--reward", "paper", "--loitering", "0.2"), "loitering: 0.2; accepted: only with --reward search"),
        (("--rules", "depth", "4"), "rules: unknown field 'depth'"),
        (("--resume", "nowhere"), "run: no config.json in nowhere; accepted: a folder that gpf train wrote"),
        (("--resume", "taken", "--seed", "3"), "resume: given beside settings of a new run"),
        (("--run", "taken"), "run: taken exists; accepted: a new folder, or --resume taken"),
        (("--run", "file/below"), "[Errno 20] Not a directory"),
        (("--scenario", "moon"), "scenario: unknown preset 'moon'"),
        (("--threads", "0"), "threads: 0; accepted: at least 1"),
    ],
)
def test_a_users_mistake_in_training_ends_in_one_line(arguments, message, tmp_path, mistaken):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("")
    assert mistaken("train", *arguments).startswith(f"gpf: {message}")
    assert (tmp_path / "taken" / "mine.txt").read_text() == "mine"


def test_a_full_disk_ends_in_one_line_and_the_run_goes_on_later(short, here):
    """A limit on the size of files stands for the disk: checkpoints do not fit."""
    fresh = here("train", *TINY, "--run", "fresh", "--json")
    quoted = " ".join(f"'{one}'" for one in (sys.executable, "-m", "gpf", "train", *TINY, "--run", "run"))
    limited = ["bash", "-c", f"ulimit -f 30; trap '' XFSZ; {quoted}"]
    done = subprocess.run(limited, capture_output=True, text=True, cwd=short)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("gpf: [Errno 27] File too large")
    assert "Traceback" not in done.stderr
    assert not list((short / "run").glob("checkpoints/*/tensors-*"))  # nothing half-written stays
    resumed = here("train", "--resume", "run", "--json")
    assert json.loads(resumed.splitlines()[-1])["success"] == json.loads(fresh.splitlines()[-1])["success"]


def test_names_are_printed_as_they_are(tmp_path):
    (tmp_path / "[red]a$x_{$.json").write_text('{"max_steps": 3}')
    done = gpf("evaluate", "--scenario", "[red]a$x_{$.json", "--episodes", "5", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "on [red]a$x_{$.json" in done.stdout


def test_a_reader_that_has_had_enough_is_no_error(tmp_path):
    command = f'"{sys.executable}" -m gpf scenario | true'
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr == ""


def test_a_folder_that_cannot_be_written_ends_in_one_line(tmp_path, mistaken):
    (tmp_path / "file").write_text("")
    assert mistaken("evaluate", "--episodes", "5", "--figure", "file/figure.png").startswith("gpf: ")

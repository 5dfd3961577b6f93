"""A newcomer's first hour: from the wheel, in a fresh environment without the extras, command after command."""

import json
import os
import re
import subprocess
import sys
import textwrap
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SMALL = ("--steps", "20000", "--lanes", "16")


class Newcomer:
    """Types commands in a folder, with the gpf of some environment."""

    def __init__(self, python, folder):
        self.python, self.folder = python, folder

    def run(self, *arguments):
        environment = {name: value for name, value in os.environ.items() if "THREADS" not in name}
        return subprocess.run(
            arguments, capture_output=True, text=True, cwd=self.folder, env={**environment, "COLUMNS": "80"}
        )

    def types(self, *arguments):
        """A command that works; returns what it prints."""
        done = self.run(self.python, "-m", "gpf", *arguments)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        self.said = done.stderr
        return done.stdout

    def mistypes(self, *arguments):
        """A mistake: one line, code 2, and nothing is left behind."""
        before = sorted(self.folder.rglob("*"))
        done = self.run(self.python, "-m", "gpf", *arguments)
        assert done.returncode == 2, done.stdout + done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
        assert sorted(self.folder.rglob("*")) == before
        return done.stderr

    def programs(self, text):
        """A Python program; returns what it prints."""
        done = self.run(self.python, "-W", "error::UserWarning", "-c", textwrap.dedent(text))
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory):
    """Somebody who has installed the wheel, and nothing else, into a new environment."""
    folder = tmp_path_factory.mktemp("a new comer")
    quiet = ("install", "--quiet", "--disable-pip-version-check")
    torch = re.search(r"^torch==\S+$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[0]
    venv.create(folder / "environment", with_pip=True)
    python = folder / "environment" / "bin" / "python"

    def pip(*arguments):
        subprocess.run([python, "-m", "pip", *arguments], check=True, cwd=folder)

    pip("wheel", "--quiet", "--no-deps", "--wheel-dir", "wheels", ROOT)
    pip(*quiet, torch)
    (wheel,) = (folder / "wheels").glob("*.whl")
    pip(*quiet, "--constraint", ROOT / "constraints.txt", wheel)
    (folder / "work").mkdir()
    return Newcomer(python, folder / "work")


@pytest.fixture(scope="module")
def trained(newcomer):
    """The first run."""
    shown = newcomer.types("train", *SMALL, "--evaluate", "200")
    assert "runs/plume-1: 200 held-out episodes" in shown
    assert "report: runs/plume-1/report.html" in shown
    for phase in ("training 100%", "evaluation", "spectra"):
        assert f"runs/plume-1: {phase}" in newcomer.said
    return newcomer


MISTAKES = {
    ("train", "--sed", "3"): "did you mean --seed?",
    ("train", "--steps", "many"): "--steps must be a whole number, got 'many'",
    ("train", "--threads", "1000"): "threads must be from 1 to",
    ("train", "--rules", "max_dept", "4"): "did you mean 'max_depth'?",
    ("train", "--scenario", "refrence"): "did you mean 'reference'?",
    ("train", "plum"): "did you mean 'plume'?",
    ("train", "--learner", "online", "--lanes", "4"): "--lanes is an option of",
    ("evaluate", "randm"): "did you mean 'random'? Accepted: random, ",
    ("evaluate", "random", "--set", "wind_sped=2"): "did you mean 'wind_speed'?",
    ("evalate",): "did you mean 'evaluate'?",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_mistakes_are_answered_in_one_line(arguments, mistyped):
    assert MISTAKES[arguments] in mistyped(*arguments)


@pytest.fixture
def mistyped(tmp_path, monkeypatch, capsys):
    """The one line with which a command is refused, in this process."""
    from gpf.cli import main

    def run(*arguments):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["gpf", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr().err
        assert ended.value.code == 2
        assert said.count("\n") == 1
        assert not list(tmp_path.iterdir())
        return said

    return run


@pytest.mark.slow
def test_help_and_version_say_what_there_is(newcomer):
    assert newcomer.types("--version").startswith("gpf ")
    commands = re.findall(r"^  (\w+) ", newcomer.types(), re.MULTILINE)
    assert {"train", "list", "evaluate", "compare", "report", "completion"} <= set(commands)
    for command in [*([one] for one in commands), ["train", "cifar10"], ["train", "--learner", "online"]]:
        text = newcomer.types(*command, "--help")
        assert text.startswith("usage: gpf ")
        assert not re.search(r"type: ignore|<class|NoneType|dataclass|\{None\}", text)
    assert "complete" in newcomer.types("completion", "bash")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_mistakes_are_answered_in_one_line_from_the_wheel(arguments, newcomer):
    assert MISTAKES[arguments] in newcomer.mistypes(*arguments)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("train", "--tensorboard"), "tensorboard"),
        (("train", "mspacman"), "atari"),
        (("train", "shakespeare"), "text"),
        (("train", "--seeds", "2", "--cluster", "auto"), "fleet"),
        (("world", "data", "--steps", "1000", "--to-minari", "plume/mixed-v0"), "data"),
        (("evaluate", "random", "--episodes", "2", "--animation", "walk.mp4"), "video"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_missing_extras_are_named_before_anything_is_written(arguments, extra, newcomer):
    assert f"pip install 'gpf-networks[{extra}]'" in newcomer.mistypes(*arguments)


@pytest.mark.slow
def test_a_run_is_listed_resumed_extended_and_fine_tuned(trained):
    assert re.search(r"runs/plume-1 +plume +0 +20,480 +success \d+\.\d% +yes", trained.types("list"))
    assert "is finished, after 20,480 steps" in trained.types("train", "--resume", "runs/plume-1")
    longer = trained.types("train", "--resume", "runs/plume-1", "--extend", "20000", "--no-report", "--json")
    assert json.loads(longer.splitlines()[-1])["step"] > 39_000
    tuned = trained.types(
        "train", "--from", "runs/plume-1", "--scenario", "paper", "--steps", "20000", "--evaluate", "0", "--no-report"
    )
    assert "runs/plume-2" in tuned
    assert json.loads((trained.folder / "runs/plume-2/config.json").read_text())["from"] == "runs/plume-1"


@pytest.mark.slow
def test_several_policies_in_several_worlds_are_one_table(trained):
    shown = trained.types(
        "evaluate", "random", "cast-and-surge", "runs/plume-1", "--scenarios", "reference", "paper", "--episodes", "50"
    )
    assert len(re.findall(r"^ +(?:random|cast-and-surge|runs/plume-1) +(?:reference|paper) ", shown, re.MULTILINE)) == 6
    harder = trained.types(
        "evaluate", "cast-and-surge", "--set", "wind_speed=2", "sensor_noise=0.002", "--episodes", "50", "--json"
    )
    told = json.loads(harder.splitlines()[-1])
    assert told["episodes"] == 50
    assert "wind_speed=2" in json.dumps(told)


@pytest.mark.slow
def test_a_run_is_reported_and_looked_into(trained):
    assert trained.types("report", "runs/plume-1") == "written: runs/plume-1/report.html\n"
    assert "written: " in trained.types("spectra", "runs/plume-1")


@pytest.mark.slow
def test_a_page_of_one_seed_is_written_and_concludes_nothing(newcomer):
    shown = newcomer.types(
        "continual", "--streams", "harsh", "--methods", "gpf", "reset", "--learners", "policy-gradient", "--seeds", "1",
        "--episodes", "60", "--visits", "3",
    )  # fmt: skip
    assert "nothing can be concluded" in " ".join(shown.split())
    assert "| ---" not in shown
    page = (newcomer.folder / "runs/continual/shifting-worlds.md").read_text()
    assert not re.search(r"\d \[[-\d.]+, [-\d.]+\]", page)


@pytest.mark.slow
def test_a_comparison_is_a_table_that_can_be_read(newcomer):
    (newcomer.folder / "mine.toml").write_text(
        'seeds = 2\nepisodes = 20\n[agents.small]\nsteps = 8192\nlanes = 16\n[agents.surge]\npolicy = "reactive"\n'
    )
    shown = newcomer.types("compare", "mine.toml")
    assert "| ---" not in shown
    assert re.search(r"^ *reference +surge +", shown, re.MULTILINE)
    assert (newcomer.folder / "runs/compare/mine.md").exists()


@pytest.mark.slow
def test_python_is_as_short_as_it_should_be(newcomer):
    printed = newcomer.programs(
        """
        import gymnasium, numpy as np, gpf
        assert {"attach", "MLP", "Rules", "load", "train", "load_navigator"} <= set(dir(gpf))
        gpf.network.register_identity
        gpf.train("runs/mine", scenario="reference", seed=1, steps=20_000, lanes=16, evaluate=0)
        navigator = gpf.load_navigator("runs/mine")

        env = gymnasium.make("gpf/Plume-v0", scenario="reference", observation="raw")
        env = gymnasium.wrappers.RecordEpisodeStatistics(env)
        observation, info = env.reset(seed=3, options={"position": [12, 10], "source": [5, 10], "heading": 3.0})
        state = env.unwrapped.state()
        assert np.allclose(state.position, [12, 10]) and np.allclose(state.source, [5, 10])
        navigator.reset()
        over = False
        while not over:
            observation, reward, terminated, truncated, info = env.step(navigator.act(observation))
            over = terminated or truncated
        print("steps", info["episode"]["l"])

        lanes = gymnasium.make_vec(
            "gpf/Plume-v0", num_envs=8, scenario="reference", observation="raw", autoreset_mode="SameStep"
        )
        observations, infos = lanes.reset(seed=0)
        navigator.reset(8)
        for _ in range(50):
            observations, rewards, terminations, truncations, infos = lanes.step(navigator.act(observations))
            navigator.reset(mask=terminations | truncations)
        print("success", navigator.evaluate(episodes=50).summary()["success"])
        try:
            env.reset(options={"positon": [1, 2]})
        except ValueError as error:
            print(error)
        """
    )
    assert re.search(r"^steps \d+$", printed, re.MULTILINE)
    assert 0.0 <= float(re.search(r"^success (\S+)$", printed, re.MULTILINE)[1]) <= 1.0
    assert "did you mean 'position'" in printed


@pytest.mark.slow
def test_other_frameworks_are_named_when_they_are_missing(newcomer):
    printed = newcomer.programs(
        """
        try:
            import gpf.plume.sb3
        except ImportError as error:
            print(error)
        """
    )
    assert "pip install stable-baselines3" in printed

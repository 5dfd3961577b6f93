"""Comparisons: agents by file or by flags, over seeds, to one table; killed, they go on."""

import dataclasses
import json
import subprocess
import sys

import pytest
from gpf.tasks.compare import Agent, Comparison, chosen_agents, compare, read_comparison, table, write_page
from PIL import Image

from gpf.navigation.config import Config
from gpf.reports.statistics import interquartile_mean

pytestmark = pytest.mark.usefixtures("one_torch_thread")

SETTINGS = "steps = 2000\nlanes = 8\nhorizon = 16\nminibatch = 64\nwidth = 8\n"


@pytest.fixture
def described(tmp_path):
    """Two learners and a baseline in a short world, as a file."""
    (tmp_path / "short.json").write_text(json.dumps({"preset": "reference", "max_steps": 12}))
    path = tmp_path / "comparison.toml"
    path.write_text(
        f'seeds = 2\nepisodes = 30\nscenarios = ["{tmp_path / "short.json"}"]\n'
        f"[agents.GPF]\n{SETTINGS}rules = {{ grow_patience = 2 }}\n"
        f'[agents."depth 2"]\n{SETTINGS}gpf = false\ndepth = 2\n'
        '[agents.cast-and-surge]\npolicy = "cast-and-surge"\n'
    )
    return path


def test_a_comparison_is_made_once_and_is_the_same_again(described, tmp_path):
    comparison = read_comparison(described)
    assert [agent.name for agent in comparison.agents] == ["GPF", "depth 2", "cast-and-surge"]
    assert comparison.agents[0].config.rules == {"grow_patience": "2"}
    told = []
    rows = compare(comparison, tmp_path / "runs", 2, lambda folder, result: told.append(result is None))
    assert told.count(True) == 4
    again = compare(comparison, tmp_path / "runs", 1, lambda folder, result: told.append(result is None))
    assert told.count(True) == 4  # nothing was trained twice
    assert rows == again
    elsewhere = compare(dataclasses.replace(comparison, agents=comparison.agents[:1]), tmp_path / "elsewhere", 1)
    assert table(elsewhere) == table(rows[:1])  # made again, one at a time
    for row in rows:
        assert row["success"] == interquartile_mean(row["scores"])
        assert len(row["scores"]) == 2
    assert "difference" not in rows[0]
    assert rows[1]["difference"]["mean"] == pytest.approx(
        sum(a - b for a, b in zip(rows[1]["scores"], rows[0]["scores"], strict=True)) / 2
    )
    assert rows[2]["parameters"] == []
    page = write_page(comparison, tmp_path / "runs", rows, tmp_path / "page", "small", "gpf compare small.toml")
    written = json.loads(page.with_suffix(".json").read_text())
    assert [row["scores"] for row in written["rows"]] == [row["scores"] for row in rows]
    assert table(rows) in page.read_text()
    assert "`gpf compare small.toml`" in page.read_text()
    with Image.open(page.with_suffix(".png")) as image:
        assert image.width > 1000


def test_agents_by_flags():
    agents = chosen_agents(["online", "parallel"], ["gpf", "4"], ["random"])
    assert [agent.name for agent in agents] == [
        "online, GPF", "online, depth 4", "parallel, GPF", "parallel, depth 4", "random",
    ]  # fmt: skip
    assert (agents[1].config.gpf, agents[1].config.depth) == (False, 4)
    assert agents[4].policy == "random"


def broken(tmp_path, text):
    path = tmp_path / "broken.toml"
    path.write_text(text)
    return read_comparison(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seeds = ", "comparison: .* cannot be read"),
        ("seed = 3\n[agents.A]\n", "comparison: .* has seed; accepted: about, agents, episodes"),
        ('[agents.A]\nlearner = "sarsa"\n', "agent 'A': learner: 'sarsa'; accepted: policy-gradient"),
        ("[agents.A]\nstride = 3\n", "agent 'A': stride; accepted: policy, or"),
        ("[agents.A]\nlanes = 0\n", "agent 'A': lanes: 0; accepted: at least 1"),
        ('[agents.A]\npolicy = "fly"\n', "policy: 'fly' of agent 'A'; accepted: random"),
        ('[agents.A]\npolicy = "random"\ndepth = 2\n', "agent 'A': depth beside policy"),
        ("agents = 3\n", "agents: 3; accepted: a table"),
        ("seeds = 3\n", "agents: none; accepted: at least one"),
        ("seeds = 0\n[agents.A]\n", "seeds: 0; accepted: a whole number of at least 1"),
        ("[agents.'a b']\n[agents.'a-b']\n", "agents: a b, a-b; accepted: names that differ"),
        ('scenarios = ["moon"]\n[agents.A]\n', ".*moon"),
    ],
)
def test_a_file_that_asks_for_the_impossible_is_refused_in_one_line(text, message, tmp_path):
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        broken(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_networks_that_are_none_are_refused():
    with pytest.raises(ValueError, match="^networks: 'deep'; accepted: gpf, or a number of layers"):
        chosen_agents(["online"], ["deep"], [])


def test_the_command(described, tmp_path):
    command = [sys.executable, "-m", "gpf", "compare"]
    runs = ["--runs", str(tmp_path / "runs")]
    done = subprocess.run([*command, str(described), *runs, "--seeds", "1", "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [row["agent"] for row in json.loads(done.stdout.splitlines()[-1])["rows"]] == [
        "GPF",
        "depth 2",
        "cast-and-surge",
    ]
    wrong = subprocess.run([*command, str(described), *runs, "--learners", "online"], capture_output=True, text=True)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("gpf: learners: given beside")


def test_a_damaged_seed_is_named_and_nothing_is_deleted(described, tmp_path):
    comparison = read_comparison(described)
    compare(comparison, tmp_path / "runs", 2)
    seed = comparison.folder(tmp_path / "runs", comparison.scenarios[0], comparison.agents[0], 1)
    (seed / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"^run: .*config\.json is damaged"):
        compare(comparison, tmp_path / "runs", 1)
    assert (seed / "result.json").exists()


def test_an_agent_has_a_learner_or_a_policy():
    with pytest.raises(ValueError, match="^policy: None of agent 'nobody'"):
        Comparison((Agent("nobody"),))
    assert Comparison((Agent("one", Config()),)).all_seeds == range(10)

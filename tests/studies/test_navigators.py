"""Comparisons: agents by file or by flags, over seeds, to one table; killed, they are resumed."""

import json
import re

import pytest
from PIL import Image
from support import Here, nobody

from gpf.reports.statistics import over_seeds
from gpf.reports.verdicts import corrected
from gpf.studies import navigators, page_of
from gpf.studies.navigators import Agent, Comparison, chosen_agents, compare_navigators, read_comparison
from gpf.tasks.plume import TASK

pytestmark = pytest.mark.usefixtures("one_torch_thread", "few_episodes")

SETTINGS = (
    "steps = 600\nlanes = 8\nhorizon = 16\nminibatch = 64\nwidth = 8\nvalidation_episodes = 5\nvalidate_every = 1\n"
)


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


def compared(comparison, folder, tell=nobody):
    command = "gpf compare small.toml"
    path = compare_navigators(comparison, folder / "runs", folder / "page", "small", command, Here(), tell)
    return path, json.loads(path.with_suffix(".json").read_text())


def table(rows):
    return corrected(lambda family: navigators.table(rows, family))


def test_a_comparison_is_made_once_and_is_the_same_again(described, tmp_path):
    comparison = read_comparison(described)
    assert [agent.name for agent in comparison.made] == ["GPF", "depth 2", "cast-and-surge"]
    assert comparison.made[0].config.rules == {"grow_patience": "2"}
    told = []
    path, numbers = compared(comparison, tmp_path, lambda folder, what, said: told.append(what))
    assert told.count("begun") == 4
    rows = numbers["rows"]
    _, again = compared(comparison, tmp_path, lambda folder, what, said: told.append(what))
    assert told.count("begun") == 4  # nothing was trained twice
    assert again == numbers
    alone = Comparison(agents={"GPF": comparison.agents["GPF"]}, scenarios=comparison.scenarios, seeds=2, episodes=30)
    _, elsewhere = compared(alone, tmp_path / "elsewhere")
    assert table(elsewhere["rows"]) == table(rows[:1])
    for row in rows:
        assert tuple(row["success"]) == over_seeds(row["scores"])
        assert len(row["scores"]) == 2
    assert "difference" not in rows[0]
    assert rows[1]["difference"]["mean"] == pytest.approx(
        sum(a - b for a, b in zip(rows[1]["scores"], rows[0]["scores"], strict=True)) / 2
    )
    assert rows[2]["parameters"] == []
    assert table(rows) in path.read_text()
    assert "`gpf compare small.toml`" in path.read_text()
    assert path.read_text() == page_of(numbers, "small")
    with Image.open(path.with_suffix(".png")) as image:
        assert image.width > 1000
    seed = tmp_path / "runs" / "short" / "GPF" / "1"
    (seed / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is damaged"):
        compared(comparison, tmp_path)
    assert (seed / "result.json").exists()


def test_one_seed_has_a_page_without_intervals(described, tmp_path):
    path, numbers = compared(read_comparison(described, {"seeds": 1}), tmp_path)
    rows = [line for line in path.read_text().splitlines() if line.startswith("| short")]
    assert len(rows) == 3
    assert not re.search(r"\[|nan|, p", "".join(rows))
    assert path.read_text() == page_of(numbers, "small")


def test_an_agent_that_never_arrives_has_a_dash_for_its_steps(tmp_path):
    (tmp_path / "far.json").write_text(json.dumps({"preset": "reference", "max_steps": 1}))
    comparison = Comparison(
        agents={"random": {"policy": "random"}}, scenarios=(str(tmp_path / "far.json"),), seeds=1, episodes=3
    )
    path, _ = compared(comparison, tmp_path)
    assert "| far | random | 0.00% | 0.00% |  | - | 0.000 |  | - | - | - |" in path.read_text()


def test_agents_by_flags():
    agents = chosen_agents(["online", "parallel"], ["gpf", "4"], ["random"])
    assert list(agents) == ["online, GPF", "online, depth 4", "parallel, GPF", "parallel, depth 4", "random"]
    made = Comparison(agents=agents).made
    assert (made[1].config.gpf, made[1].config.depth) == (False, 4)
    assert made[4] == Agent("random", policy="random")
    with pytest.raises(ValueError, match="networks .*'deep'"):
        chosen_agents(["online"], ["deep"], [])


BROKEN = {
    "seeds = ": "broken.toml",
    "seed = 3\n[agents.A]\n": "'seed'",
    "colour = 'red'\n[agents.A]\n": "'colour'",
    '[agents.A]\nlearner = "sarsa"\n': "'A'.*learner.*'sarsa'",
    "[agents.A]\nlearner = 3\n": "'A'.*learner.*3",
    "[agents.A]\nstride = 3\n": "'A'.*'stride'",
    "[agents.A]\nlanes = 0\n": "'A'.*lanes.*0",
    "[agents.A]\nlanes = true\n": "'A'.*lanes.*True",
    "[agents.A]\nwidth = 1.5\n": "'A'.*width.*1.5",
    "[agents.A]\nsteps = nan\n": "'A'.*steps.*nan",
    "[agents.A]\nlearning_rate = nan\n": "'A'.*learning_rate.*nan",
    "[agents.A]\nlearning_rate = inf\n": "'A'.*learning_rate.*inf",
    '[agents.A]\ngpf = "false"\n': "'A'.*gpf.*'false'",
    "[agents.A]\ngpf = 0\n": "'A'.*gpf.*0",
    '[agents.A]\nrules = "x"\n': "'A'.*rules.*'x'",
    "[agents.A]\nrules = [1]\n": "'A'.*rules.*1",
    "[agents.A]\nrules = { colour = 1 }\n": "'A'.*rule 'colour'",
    '[agents.A]\nplan = "3:grow"\n': "'A'.*plan.*'3:grow'",
    "[agents.A]\nplan = [3]\n": "'A'.*plan.*3",
    "[agents.A]\nseed = 3\n": "'A'.*seed",
    '[agents.A]\nscenario = "paper"\n': "'A'.*scenario",
    '[agents.A]\npolicy = "fly"\n': "'A'.*policy.*'fly'",
    "[agents.A]\npolicy = { a = 1 }\n": "'A'.*policy.*'a': 1",
    "[agents.A]\npolicy = []\n": "'A'.*policy",
    '[agents.A]\npolicy = "random"\ndepth = 2\n': "'A'.*policy.*depth",
    "agents = 3\n": "agents.*3",
    "agents = []\n": "agents",
    '[agents]\nA = "gpf"\n': "agents.*A.*'gpf'",
    "seeds = 3\n": "agents",
    "seeds = 0\n[agents.A]\n": "seeds.*0",
    "seeds = 1.5\n[agents.A]\n": "seeds.*1.5",
    "seeds = true\n[agents.A]\n": "seeds.*True",
    "first_seed = -1\n[agents.A]\n": "first_seed.*-1",
    "episodes = 0\n[agents.A]\n": "episodes.*0",
    "title = 3\n[agents.A]\n": "title.*3",
    "[agents.'a b']\n[agents.'a-b']\n": "a-b",
    'scenarios = ["moon"]\n[agents.A]\n': "moon",
    "scenarios = 1\n[agents.A]\n": "scenarios.*1",
    'scenarios = "paper"\n[agents.A]\n': "scenarios.*'paper'",
    "scenarios = [1]\n[agents.A]\n": "scenarios.*1",
    "scenarios = []\n[agents.A]\n": "scenarios",
}


@pytest.mark.parametrize("text", BROKEN, ids=repr)
def test_a_file_that_asks_for_the_impossible_is_refused_in_one_line(text, tmp_path, mistake):
    path = tmp_path / "broken.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=BROKEN[text]) as caught:
        read_comparison(path)
    assert "\n" not in str(caught.value)
    said = mistake("compare", "broken.toml", "--runs", "runs")
    assert re.search(BROKEN[text], said)
    assert [one.name for one in tmp_path.iterdir()] == ["broken.toml"]  # before anything is trained


def test_the_command_and_what_it_cannot_be_combined_with(described, tmp_path, gpf, mistake, monkeypatch):
    monkeypatch.setattr("gpf.cli.shared.Where.executor", lambda self: Here())
    runs = ("--runs", tmp_path / "runs")
    shown = json.loads(gpf("compare", described, *runs, "--seeds", "1", "--json").splitlines()[-1])
    assert [row["agent"] for row in shown["rows"]] == ["GPF", "depth 2", "cast-and-surge"]
    assert f"gpf compare {described}" in (tmp_path / "runs" / "comparison.md").read_text()
    assert "--learners cannot be combined with" in mistake("compare", described, *runs, "--learners", "online")


def test_an_agent_has_a_learner_or_a_policy():
    comparison = Comparison(agents={"one": {}})
    assert comparison.all_seeds == range(10)
    assert comparison.made[0].config == TASK.of({"evaluate": 0})

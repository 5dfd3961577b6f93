"""The suite as a study: runs that resume, one page from its numbers, results of others, agents of one's own."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from support import Here

from gpf.navigation.suite import EPISODES, WORLDS, names_of, version, world_of
from gpf.reports.statistics import over_seeds, probability_of_improvement
from gpf.reports.verdicts import Family
from gpf.studies import page_of
from gpf.studies.suite import Plan, code_of
from gpf.studies.suite_ranks import complete, improvement, mean_ranks, profile, reversals
from gpf.studies.suite_results import Record, Results, checked_results, read_results

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "suite.md"
AGENT = re.search(r"```python\n(import numpy.*?class Surge.*?)```", DOCUMENT.read_text(), re.DOTALL)[1]


def record(agent="mine", world="reference", seed=0, success=0.5, **more):
    episodes = world_of(world).episodes(EPISODES)
    times = (1.0, 2.0, 3.0, 4.0, 5.0) if success else None
    return Record(
        **{
            "agent": agent, "world": world, "seed": seed, "episodes": episodes, "success": success,
            "spl": success / 2, "arrival": times, "decision_ms": 0.1, "parameters": 7, **more,
        }
    )  # fmt: skip


def held(*records, **agents):
    """A file of results."""
    names = {one.agent: {"about": "a test"} for one in records}
    return json.loads(json.dumps(Results({**names, **agents}, list(records)).plain()))


# Ranks and profiles


def scores(**agents):
    """Scores by agent, world and seed from lists."""
    return {
        name: {world: dict(enumerate(values)) for world, values in worlds.items()} for name, worlds in agents.items()
    }


def test_ranks_are_means_over_worlds_and_ties_are_shared():
    found = scores(
        a={"w": [0.9, 0.9], "v": [0.5, 0.5]}, b={"w": [0.1, 0.1], "v": [0.5, 0.5]}, c={"w": [0.2, 0.2], "v": [0.1, 0.1]}
    )
    ranks = mean_ranks(found, 50)
    assert ranks == {"a": (1.25, 1.25, 1.25), "b": (2.25, 2.25, 2.25), "c": (2.5, 2.5, 2.5)}
    noisy = scores(a={"w": [0.0, 1.0, 0.2, 0.8]}, b={"w": [0.5, 0.4, 0.6, 0.3]})
    middle, low, high = mean_ranks(noisy)["a"]
    assert (middle, low, high) == (1.0, 1.0, 2.0)


def test_only_agents_that_were_everywhere_are_ranked():
    found = scores(a={"w": [1.0], "v": [0.0]}, b={"w": [0.5]})
    assert complete(found) == ["a"]
    assert list(mean_ranks(found, 10)) == ["a"]
    assert mean_ranks(scores(a={"w": [1.0]}, b={"v": [1.0]}), 10) == {}


def test_in_one_world_improvement_is_that_of_the_statistics():
    ours, theirs = [0.9, 0.8, 0.7], [0.8, 0.6, 0.9]
    found = improvement(scores(a={"w": ours}, b={"w": theirs}), "a", "b")
    assert found[0] == pytest.approx(probability_of_improvement(ours, theirs)[0])
    both = scores(a={"w": ours, "v": [1.0]}, b={"w": theirs, "v": [0.0]})
    assert improvement(both, "a", "b")[0] == pytest.approx((found[0] + 1.0) / 2)


def test_a_profile_is_the_share_of_runs_above_tau():
    found = scores(a={"w": [0.2, 0.4], "v": [0.6, 0.8]})["a"]
    value, low, high = profile(found, np.array([0.0, 0.3, 0.5, 0.8]), 200)
    assert value.tolist() == [1.0, 0.75, 0.5, 0.0]
    assert (low <= value).all()
    assert (value <= high).all()
    assert low[2] == high[2] == 0.5  # stratified: every draw has half of its runs in each world


def test_reversals_need_tests_that_count_in_both_directions():
    many = np.linspace(0, 0.02, 8)
    found = scores(a={"w": 0.9 + many, "v": 0.1 + many}, b={"w": 0.5 + many[::-1], "v": 0.6 + many})
    family = Family(tests=2, seeds=8, limit=0.05)
    (one,) = reversals(found, family)
    assert (one.first, one.second, one.first_better, one.second_better) == ("a", "b", ("w",), ("v",))
    assert reversals(found, Family()) == []  # nothing counts
    few = scores(a={"w": [0.9] * 3, "v": [0.1] * 3}, b={"w": [0.5] * 3, "v": [0.6] * 3})
    assert reversals(few, family) == []


# Files of results


def test_what_is_written_can_be_read(tmp_path):
    some = [record(seed=seed, success=seed / 10) for seed in range(3)] + [record(world="fly-many", success=0.0)]
    (tmp_path / "mine.json").write_text(json.dumps(held(*some)))
    assert read_results(tmp_path / "mine.json").records == some


def _without(name):
    return lambda held: held["results"][0].pop(name)


def _with(**values):
    return lambda held: held["results"][0].update(values)


WRONG = {
    "another version": (lambda held: held.update(version="0.12345678"), "version must be .*, got '0.12345678'"),
    "no version": (lambda held: held.pop("version"), "version must be text, got None"),
    "no results": (lambda held: held.update(results=[]), r"results must be a list of records, got \[\]"),
    "no agents": (lambda held: held.update(agents={}), "agents must be an object with at least one agent"),
    "an agent of text": (lambda held: held.update(agents={"mine": "x"}), "agents.mine must be an object .* got 'x'"),
    "another agent": (_with(agent="yours"), r"results\[0\]: agent must be one of agents \(mine\), got 'yours'"),
    "an agent without records": (lambda held: held["agents"].update(a={"about": "x"}), "agents.a has no record"),
    "an unknown world": (_with(world="moon"), r"results\[0\]: unknown world 'moon'"),
    "a success above 1": (_with(success=1.2), r"results\[0\]: success must be at least 0 and at most 1, got 1.2"),
    "NaN": (_with(success=float("nan")), r"results\[0\]: success must be .* got nan"),
    "NaN in arrival": (
        _with(arrival=[1, 2, float("nan"), 4, 5]),
        r"results\[0\]: arrival must be .* got \[1.0, 2.0, n",
    ),
    "infinity": (_with(decision_ms=float("inf")), "decision_ms must be at least 0, got inf"),
    "a wrong number of episodes": (_with(episodes=999), "episodes must be 100 .* or 1,000 .* got 999"),
    "no whole episodes": (_with(success=0.5003), "success must be a share of 1000 episodes, got 0.5003"),
    "an SPL above success": (_with(spl=0.6), "spl must be at most success, 0.5, got 0.6"),
    "a seed beyond": (_with(seed=10), "seed must be at least 0 and at most 9, got 10"),
    "a seed of text": (_with(seed="0"), r"results\[0\]: seed must be a whole number, got '0'"),
    "a truth for a number": (_with(parameters=True), "parameters must be a whole number, got True"),
    "a field too many": (_with(colour=1), r"results\[0\]: unknown setting 'colour'"),
    "a field too few": (_without("spl"), r"results\[0\] lacks spl"),
    "no arrival": (_with(arrival=None), "arrival must be null where success is 0, and only there, got None"),
    "times out of order": (_with(arrival=[2, 1, 3, 4, 5]), "arrival must be the 5, 25, 50, 75, 95 % quantiles"),
    "four times": (_with(arrival=[1, 2, 3, 4]), "arrival must be the 5, 25"),
    "a record of text": (lambda held: held["results"].insert(0, "x"), r"results\[0\] must be an object, got 'x'"),
    "a record twice": (lambda held: held["results"].append(held["results"][0]), "two records of seed 0 in 'reference'"),
}


@pytest.mark.parametrize("name", WRONG)
def test_every_mistake_in_a_file_is_one_sentence_that_names_it(name, tmp_path):
    change, message = WRONG[name]
    values = held(record())
    change(values)
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match=message) as caught:
        read_results(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "3", "{", "[" * 100_000])
def test_what_is_no_file_of_results_is_refused(text, tmp_path):
    (tmp_path / "mine.json").write_text(text)
    with pytest.raises(ValueError, match=r"^[^\n]*mine\.json[^\n]*$"):
        read_results(tmp_path / "mine.json")


# Plans and runs


def test_a_generalist_is_trained_once_for_all_worlds():
    (study,) = Plan(agents=("gpf", "generalist"), seeds=2).studies()
    places = [str(cell.place) for cell in study.cells]
    assert places == [*(f"gpf/{name}" for name in names_of()), "generalist/everywhere"]
    assert study.cells[-1].config(1).worlds == names_of()
    (other,) = Plan(agents=("generalist",), worlds=("paper",)).studies()
    assert other.cells[0].place.name.startswith("everywhere-")


def test_slow_learners_have_fewer_seeds():
    plan = Plan(agents=("random", "planner"), worlds=("reference",))
    assert [(len(study.seeds), [cell.name for cell in study.cells]) for study in plan.studies()] == [
        (3, ["planner"]), (10, ["random"]),
    ]  # fmt: skip
    assert plan.runs == 13
    assert plan.studies()[0].cells[0].config(0).episodes == 100


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A folder with a page of two agents."""
    from gpf.studies.suite import run_suite, write_suite

    folder = tmp_path_factory.mktemp("suite")
    plan = Plan(agents=("cast-and-surge", "gpf"), worlds=("reference", "fly-many"), seeds=2, episodes=4, quick=True)
    told = []
    for _ in range(2):
        told.append([])
        results = run_suite(plan, folder / "runs", Here(), lambda folder, what, said: told[-1].append(what))
    write_suite(results, {"protocol": plan.protocol}, folder, "suite", "gpf suite")
    assert (told[0].count("begun"), told[1].count("begun")) == (8, 0)  # nothing is repeated
    return folder


def test_the_page_is_a_function_of_its_numbers(small):
    numbers = json.loads((small / "suite.json").read_text())
    text = (small / "suite.md").read_text()
    assert page_of(numbers, "suite") == text
    assert numbers["version"] == version() in text
    assert len(numbers["results"]) == 8
    for words in ("mean rank", "SPL", "## Arrival time", "all seeds", "no agent is trained", "Ranks reverse"):
        assert words in text
    scores = [r["success"] for r in numbers["results"] if (r["agent"], r["world"]) == ("gpf", "reference")]
    assert f"{over_seeds(scores)[0]:.1%}" in text
    with Image.open(small / "suite.png") as image:
        assert image.width > 1000


def full(agent, level):
    """Records of ten seeds in all worlds but the recorded ones."""
    random = np.random.default_rng(len(agent))
    return [
        record(agent, world, seed, round(min(1.0, level(n) + 0.02 * random.random()) * 240) / 240, episodes=240)
        for n, world in enumerate(names_of())
        for seed in range(10)
    ]


def test_a_page_of_many_seeds_names_hard_worlds_and_reversals():
    records = full("cast-and-surge", lambda n: 0.9 if n < 5 else 0.4) + full("gpf", lambda n: 0.7)
    agents = {"cast-and-surge": {"kind": "classical", "about": "a"}, "gpf": {"kind": "learned", "about": "b"}}
    numbers = {"kind": "suite", "command": "gpf suite", **Results(agents, records).plain()}
    text = page_of(json.loads(json.dumps(numbers)), "suite")
    assert "In 10 of 15 worlds the best classical agent finds the source in less than 80%" in text
    assert "Ranks reverse significantly between worlds for 1 pairs of agents" in text
    assert "| cast-and-surge, gpf | reference, paper, meandering, gusty, turbulent | weak-source," in text
    assert "[" in text
    assert "nan" not in text


# The command


@pytest.fixture
def here(monkeypatch):
    monkeypatch.setattr("gpf.cli.shared.Where.executor", lambda self: Here())


def test_the_list_has_agents_worlds_and_version(gpf):
    said = gpf("suite", "--list")
    assert version() in said
    assert all(name in said for name in WORLDS)
    listed = json.loads(gpf("suite", "--list", "--json").splitlines()[-1])
    assert (listed["version"], listed["worlds"]) == (version(), list(WORLDS))


def test_results_of_others_are_checked_and_added_or_nothing_is(small, tmp_path, gpf, mistake):
    for file in ("suite.json", "suite.md", "suite.png"):
        (tmp_path / file).write_bytes((small / file).read_bytes())
    before = (tmp_path / "suite.json").read_text()
    edited = json.loads(before)
    for one in edited["results"]:  # as if it had been the whole suite
        one["episodes"] = world_of(one["world"]).episodes(EPISODES)
    (tmp_path / "suite.json").write_text(json.dumps(edited))
    (tmp_path / "mine.json").write_text(json.dumps(held(record())))
    (tmp_path / "bad.json").write_text(json.dumps(held(record("b"), record("b", seed=1, spl=0.9))))
    assert "mine.json is valid: 1 records of mine" in gpf("suite", "--check", "mine.json")
    assert "bad.json: results[1]: spl must be at most success" in mistake("suite", "--check", "bad.json")
    mistake("suite", "--add", "mine.json", "bad.json", "--page", ".")
    assert json.loads((tmp_path / "suite.json").read_text()) == edited
    gpf("suite", "--add", "mine.json", "--page", ".")
    assert json.loads((tmp_path / "suite.json").read_text())["agents"]["mine"] == {"kind": "added", "about": "a test"}
    assert "| mine |" in (tmp_path / "suite.md").read_text()
    assert "agent 'mine' is in the table already" in mistake("suite", "--add", "mine.json", "--page", ".")


@pytest.mark.usefixtures("here")
def test_an_agent_of_ones_own_takes_part(tmp_path, gpf, monkeypatch):
    """The one of the document."""
    (tmp_path / "my_surge.py").write_text(AGENT)
    monkeypatch.syspath_prepend(tmp_path)
    command = ("suite", "--quick", "--agent", "my_surge:make_agent", "--worlds", "reference", "--episodes", "3")
    shown = json.loads(gpf(*command, "--json").splitlines()[-1])
    assert [(one["agent"], one["world"], one["parameters"]) for one in shown["results"]] == [
        ("my_surge:make_agent", "reference", 0)
    ]
    before = code_of("my_surge:make_agent")
    (tmp_path / "my_surge.py").write_text(f"{AGENT}\n# changed")
    assert code_of("my_surge:make_agent") != before  # another run


@pytest.mark.usefixtures("here")
def test_what_ones_own_agent_does_wrong_is_one_line_before_anything_begins(tmp_path, mistake, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_wrong.py").write_text(
        AGENT.replace("actions[lanes] = ", "actions[lanes] = np.nan * ") + "\nnumber = 3\n"
    )
    command = ("suite", "--quick", "--agents", "random", "--worlds", "fly-many", "--agent")
    said = mistake(*command, "my_wrong:make_agent")
    assert said.startswith("gpf: agent 'my_wrong:make_agent' in world 'fly-many': act must write whole numbers")
    assert "must be a function of a scenario, got int" in mistake(*command, "my_wrong:number")
    assert "'my_wrong:nothing' cannot be imported" in mistake(*command, "my_wrong:nothing")
    assert "'nowhere:make' cannot be imported" in mistake(*command, "nowhere:make")
    assert "agent must be MODULE:FUNCTION, got 'random'" in mistake(*command, "random")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--agents", "gfp"), "unknown agent 'gfp'; did you mean 'gpf'"),
        (("--agents", "a:b"), "agents must be agents of the suite, got 'a:b'; --agent takes one of your own"),
        (("--worlds", "moon"), "unknown world 'moon'"),
        (("--worlds", "hall-001"), "world 'hall-001' needs recordings"),
        (("--recordings", "nowhere"), "recordings must be the folder examples/environments of GSL-Bench"),
        (("--seeds", "0"), "seeds must be at least 1, got 0"),
        (("--episodes", "0"), "episodes must be at least 1, got 0"),
        (("--check", "nowhere.json"), "nowhere.json cannot be read"),
        (("--add", "nowhere.json"), "suite.json does not exist; run gpf suite first"),
        (("--list", "--quick"), "--list cannot be combined with --quick"),
        (("--check", "a.json", "--add", "b.json"), "--check cannot be combined with --add"),
    ],
)
def test_a_users_mistake_ends_in_one_line(arguments, message, mistake, tmp_path):
    assert re.search(message, mistake("suite", *arguments))
    assert not (tmp_path / "runs").exists()


def test_numbers_that_are_not_the_suites_cannot_be_submitted(small):
    with pytest.raises(ValueError, match=r"results\[0\]: episodes must be"):
        checked_results(json.loads((small / "suite.json").read_text()))

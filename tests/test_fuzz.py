"""Whatever settings, files and folders say: it works, or it ends in one clear line."""

import copy
import json
import math
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpf.navigation.config import LEARNERS, Config, flat_settings
from gpf.plume.regimes import Stream, preset
from gpf.plume.scenario import Scenario
from gpf.runs.folder import Run
from gpf.settings import read
from gpf.studies.navigators import Comparison
from gpf.studies.sweep import Search
from gpf.tasks import find_task, report

sys.path.insert(0, str(Path(__file__).parent / "runs"))
from pausing import TASK

NUMBERS = st.one_of(
    st.integers(), st.floats(), st.sampled_from([0, 1, -1, 2, 0.5, 1e100, -1e100, 1e300, math.nan, math.inf, 2**63])
)
WORDS = st.sampled_from(
    ["", "x", "gpf", "none", "null", "paper", "reference", "online", "1", "3:grow", "<b>", "\n", "é"]
)
PLAIN = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=6,
)
OFTEN = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def cases(number, slow):
    """So many examples in the quick suite; in the slow one, as many as it takes for 10,000 in all."""
    return pytest.mark.parametrize(
        "examples", [pytest.param(number, id="few"), pytest.param(slow, id="many", marks=pytest.mark.slow)]
    )


def clear(work):
    """Do something; if it ends in an error, in one of a user's mistake, that says so in one line."""
    try:
        return work()
    except (ValueError, RuntimeError, OSError) as error:
        text = str(error)
        assert text.strip()
        assert len(text) < 2000
        assert "Traceback" not in text
        assert "\n" not in text.strip()
    return None


def names(*kinds):
    return st.sampled_from([*kinds, "unknown", ""])


@cases(150, 3000)
def test_settings(examples):
    flat = sorted({name for learner in LEARNERS for name in flat_settings(learner)})
    learner = st.fixed_dictionaries({}, optional={"learner": names(*LEARNERS)})

    @settings(max_examples=examples, **OFTEN)
    @given(learner, st.dictionaries(st.sampled_from(flat), PLAIN, max_size=3))
    def check(first, others):
        made = clear(lambda: Config.of({**others, **first}))
        if made is not None:
            assert Config.of(json.loads(json.dumps(made.plain()))) == made

    check()


@cases(60, 1000)
@pytest.mark.parametrize("name", ["cifar10", "shifting", "world", "permuted-mnist", "mspacman", "shakespeare"])
def test_settings_of_other_tasks(name, examples):
    task = find_task(name)
    fields = sorted(task.of({}).plain())

    @settings(max_examples=examples // 3, **OFTEN)
    @given(st.dictionaries(st.sampled_from([*fields, "unknown"]), PLAIN, max_size=3))
    def check(values):
        made = clear(lambda: task.of(values))
        if made is not None:
            clear(made.check)

    check()


@cases(100, 1500)
def test_comparisons_and_searches(examples):
    of_agents = names("learner", "gpf", "depth", "rules", "policy", "width", "steps")
    agents = st.dictionaries(WORDS, st.dictionaries(of_agents, PLAIN, max_size=2), max_size=2)
    parts = {"agents": st.one_of(agents, PLAIN), "scenarios": PLAIN, "seeds": PLAIN, "episodes": PLAIN, "about": PLAIN}

    @settings(max_examples=examples // 2, **OFTEN)
    @given(st.fixed_dictionaries({}, optional=parts))
    def compare(values):
        clear(lambda: read(Comparison, {"agents": {}, **values}, "file.toml"))

    ranges = st.dictionaries(names("choices", "low", "high", "log", "steps"), PLAIN, max_size=3)
    space = st.dictionaries(names("learning_rate", "rules.max_depth", "depth"), ranges, max_size=2)
    searched = {"space": st.one_of(space, PLAIN), "task": names("plume", "cifar10"), "measure": PLAIN,
                "sampler": names("grid", "tpe"), "settings": PLAIN, "trials": PLAIN}  # fmt: skip

    @settings(max_examples=examples // 2, **OFTEN)
    @given(st.fixed_dictionaries({}, optional=searched))
    def search(values):
        clear(lambda: read(Search, {"task": "plume", "space": {}, "measure": "spl", **values}, "file.toml"))

    compare()
    search()


@cases(150, 2000)
def test_scenarios(examples, tmp_path):
    fields = sorted(json.loads(Scenario().to_json()))

    @settings(max_examples=examples, **OFTEN)
    @given(st.dictionaries(st.sampled_from([*fields, "preset", "unknown"]), PLAIN, max_size=4), st.binary(max_size=20))
    def check(values, noise):
        clear(lambda: Scenario.of(values))
        path = tmp_path / "scenario.json"
        path.write_bytes(json.dumps(values).encode() + noise)
        clear(lambda: Scenario.of(str(path)))

    check()


@cases(100, 1500)
def test_streams(examples):
    whole = preset("returning", episodes=5, count=3).to_json()

    @settings(max_examples=examples, **OFTEN)
    @given(st.data())
    def check(data):
        clear(lambda: Stream.of(damaged(whole, data)))
        clear(lambda: preset(data.draw(WORDS), data.draw(st.integers(-1, 3)), data.draw(st.integers()),
                             data.draw(st.one_of(st.none(), st.integers()))))  # fmt: skip

    check()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz") / "run"
    run = TASK.create(folder, TASK.of({"rounds": 5}))
    training = TASK.training(run, TASK.read(folder), None)
    for _ in range(4):
        training.round()
    run.close()
    return folder


@cases(100, 1500)
def test_run_folders(examples, run, tmp_path):
    @settings(max_examples=examples, **OFTEN)
    @given(st.data())
    def check(data):
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(run, folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
        path = data.draw(st.sampled_from(files))
        damage(path, data)
        clear(lambda: resumed(folder))

    check()


@cases(10, 100)
def test_reports(examples, run, tmp_path):
    @settings(max_examples=examples, **OFTEN)
    @given(st.data())
    def check(data):
        folder = tmp_path / "run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(run, folder)
        (folder / "result.json").write_text(json.dumps(data.draw(PLAIN)))
        damage(data.draw(st.sampled_from(sorted(folder.glob("*.json*")))), data)
        clear(lambda: report.write_report(folder))

    check()


def resumed(folder):
    run = Run.open(folder)
    try:
        TASK.training(run, TASK.read(folder), None).round()
    finally:
        run.close()


def damage(path, data):
    """Damage a file as an editor, a full disk or a bad copy would."""
    held = path.read_bytes()
    how = data.draw(st.sampled_from(["node", "cut", "byte", "empty", "gone", "twice", "nested", "directory"]))
    if how == "node" and path.suffix in (".json", ".jsonl"):
        lines = held.decode().splitlines() if path.suffix == ".jsonl" else [held.decode()]
        place = data.draw(st.integers(0, len(lines) - 1))
        lines[place] = json.dumps(damaged(json.loads(lines[place]), data))
        path.write_text("\n".join(lines) + "\n")
    elif how == "cut":
        path.write_bytes(held[: data.draw(st.integers(0, len(held)))])
    elif how == "byte":
        place = data.draw(st.integers(0, len(held) - 1))
        path.write_bytes(held[:place] + bytes([data.draw(st.integers(0, 255))]) + held[place + 1 :])
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "twice":
        path.write_bytes(held * 2)
    elif how == "nested":
        path.write_text("[" * 100_000)
    elif how == "directory":
        path.unlink()
        path.mkdir()
    else:
        path.unlink()


def damaged(value, data):
    """Plain data, one part of which is something else, or gone."""
    changed = copy.deepcopy(value)
    holder, place = None, None
    part = changed
    while isinstance(part, dict | list) and part and (holder is None or data.draw(st.booleans())):
        keys = sorted(part) if isinstance(part, dict) else range(len(part))
        holder, place = part, data.draw(st.sampled_from(list(keys)))
        part = part[place]
    if holder is None:
        return data.draw(PLAIN)
    if data.draw(st.booleans()):
        del holder[place]
    else:
        holder[place] = data.draw(PLAIN)
    return changed

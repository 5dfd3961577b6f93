"""Methods in streams over seeds: the page says what the runs say, and never loses its words for want of a number."""

import json

import pytest
from support import Here, nobody

from gpf.reports.tables import Measure, measure_all
from gpf.reports.tables import verdict as judge
from gpf.reports.verdicts import Family, corrected
from gpf.runs.folder import Outcome
from gpf.studies import page_of
from gpf.studies.shifting import MEASURES, Plan, compare_methods, gap_closed, measures_against, pooled, verdicts
from gpf.tasks import shifting

pytestmark = pytest.mark.usefixtures("one_torch_thread")
METHODS = ("gpf", "depth-1", "reset", "one-each")


def stream_of(folder, episodes, visits=3):
    """A short stream near the source: home, another world, and home again."""
    near = {"preset": "reference", "max_steps": 60, "start_distance_min": 0.6, "start_distance_max": 1.0}
    names = ("home", "vane turned around", "home")[:visits]
    path = folder / "short.json"
    path.write_text(json.dumps({"home": near, "visits": [{"regime": name, "episodes": episodes} for name in names]}))
    return str(path)


def compared(folder, plan):
    path = compare_methods(plan, folder / "runs", folder / "page", "shifting", "gpf continual", Here(), nobody)
    return path, json.loads(path.with_suffix(".json").read_text())


def test_a_study_writes_its_page_and_gives_the_same_numbers_again(tmp_path, monkeypatch):
    quick = shifting.Settings(window=1, settled=2, trial=2, drop=0.9)
    monkeypatch.setattr(shifting, "Settings", lambda **changes: type(quick)(**{**vars(quick), **changes}))
    few = ("gpf", "reset", "one-each")
    plan = Plan(streams=(stream_of(tmp_path, 150),), learners=("policy-gradient",), methods=few, seeds=2)
    path, numbers = compared(tmp_path, plan)
    text = path.read_text()
    assert [row["method"] for row in numbers["rows"]] == list(few)
    assert all(len(values) == 2 for row in numbers["rows"] for values in row["scores"].values())
    assert numbers["rows"][0]["scores"].keys() == MEASURES.keys()
    assert "oracle: one network each" in text
    assert "`gpf continual`: 6 runs" in text
    assert text == page_of(numbers, "shifting")
    assert (tmp_path / "page" / "shifting-short-policy-gradient.png").stat().st_size > 10_000
    written = {run: run.stat().st_mtime_ns for run in (tmp_path / "runs").rglob("result.json")}
    assert len(written) == 6
    assert compared(tmp_path, plan)[1] == numbers
    assert {run: run.stat().st_mtime_ns for run in (tmp_path / "runs").rglob("result.json")} == written  # none again


@pytest.mark.parametrize(("episodes", "visits"), [(1, 2), (5, 3)])
def test_one_seed_and_short_visits_lose_no_page(episodes, visits, tmp_path):
    """Of a visit that is over before every lane has ended an episode, there may be nothing to recover or forget."""
    plan = Plan(
        streams=(stream_of(tmp_path, episodes, visits),), learners=("policy-gradient",), methods=METHODS, seeds=1
    )
    path, numbers = compared(tmp_path, plan)
    text = path.read_text()
    assert text == page_of(numbers, "shifting")
    table = text.split("## short")[1].split("![")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "---" not in line]
    assert not [line for line in rows if "[" in line]  # no interval of one seed
    assert "One seed: no number here has an interval, and nothing can be concluded" in text
    assert "not significant" not in text
    assert "nan" not in table
    columns = dict(zip(*([cell.strip() for cell in row.split("|")] for row in rows[:2]), strict=True))
    if visits == 2:
        assert columns["forgetting"] == "-"  # nobody returns anywhere
    assert columns["area under the curve"] != "-"


def test_a_measure_that_a_seed_lacks_is_said_to_be_missing_and_the_others_are_said():
    row = {"stream": "s", "learner": "policy-gradient", "seconds": [1.0, 1.0]}
    scores = {name: [1.0, 2.0] for name in MEASURES}
    rows = [
        {**row, "method": "gpf", "scores": {**scores, "forgetting": [None, 1.0]}},
        {**row, "method": "reset", "scores": {**scores, "recovery": [None, None]}},
    ]
    cells = [cell.strip() for cell in verdicts(rows, Family()).splitlines()[-1].strip("| ").split("|")]
    titles = ["GPF against", *(measure.title for measure in MEASURES.values() if measure.better)]
    said = dict(zip(titles, cells, strict=True))
    assert [title for title, cell in said.items() if cell == "-"] == ["forgetting", "recovery, episodes"]
    assert said["area under the curve"].startswith("too few seeds")


def test_visits_in_which_nobody_ended_a_whole_episode_have_no_recovery_and_nothing_to_forget(tmp_path):
    visit = {
        "regime": "home", "ended": [1], "found": [0], "first": [0, 1], "first_whole": [0, 0], "last": [0, 0],
        "step": 10, "parameters": 5, "flops": 10, "dead": 0.0, "effective_rank": 1.0, "weight_magnitude": 0.1,
    }  # fmt: skip
    outcome = Outcome(tmp_path, {"visits": [visit, visit]}, [], [])
    scores = measure_all([outcome], measures_against({tmp_path: outcome}))
    missing = [name for name, values in scores.items() if values == [None]]
    assert missing == ["forgetting", "forgetting_whole", "recovery", "transfer"]


def test_the_gap_of_one_seed_has_no_interval():
    rows = [
        {"stream": "s", "order": 0, "learner": "parallel", "method": name, "seconds": [1.0],
         "scores": {**{key: [1.0] for key in MEASURES}, "area": [area]}}
        for name, area in {"gpf": 0.7, "depth-1": 0.5, "reset": 0.4, "one-each": 0.9}.items()
    ]  # fmt: skip
    plan = {"streams": ["s"], "learners": ["parallel"], "methods": list(METHODS), "first_seed": 3, "seeds": 1,
            "orders": [0]}  # fmt: skip
    text = page_of({"kind": "shifting", "command": "gpf continual", "plan": plan, "rows": rows}, "x")
    assert "GPF closes 50%.\n" in text


def test_a_seeds_value_is_its_mean_over_the_orders_that_have_one():
    def row(order, **scores):
        return {"method": "gpf", "order": order, "scores": {**{key: [0.0, 0.0] for key in MEASURES}, **scores}}

    (ours,) = pooled(
        [row(0, area=[0.2, 0.4], forgetting=[None, None]), row(1, area=[0.6, 0.8], forgetting=[None, 1.0])]
    )
    assert ours["scores"]["area"] == pytest.approx([0.4, 0.6])
    assert ours["scores"]["forgetting"] == [None, 1.0]


def test_every_order_of_a_preset_is_run_with_every_seed_and_a_file_has_only_one(tmp_path):
    path = stream_of(tmp_path, 20)
    plan = Plan(
        streams=("harsh", path), learners=("policy-gradient",), methods=("gpf", "reset"), seeds=2, orders=(3, 5)
    )
    configs = [cell.config(seed) for cell in plan.study().cells for seed in plan.study().seeds]
    seen = {(config.stream, config.order, config.method, config.seed) for config in configs}
    methods, seeds = ("gpf", "reset"), (0, 1)
    assert seen == {
        (stream, order, method, seed)
        for stream, order in (("harsh", 3), ("harsh", 5), (path, 0)) for method in methods for seed in seeds
    }  # fmt: skip
    assert len(configs) == len(seen)
    assert configs[0].made_stream() != configs[4].made_stream()


def test_the_page_of_several_orders_has_the_mean_and_every_order():
    def row(order, method, *area):
        scores = {**{key: [1.0] * len(area) for key in MEASURES}, "area": list(area)}
        return {"stream": "harsh", "order": order, "learner": "parallel", "method": method,
                "seconds": [1.0] * len(area), "scores": scores}  # fmt: skip

    ours, theirs = [0.70, 0.72, 0.74, 0.70, 0.72, 0.74], [0.60, 0.61, 0.62, 0.60, 0.61, 0.62]
    rows = [
        row(0, "gpf", *ours), row(0, "reset", *theirs),
        row(4, "gpf", *(value + 0.1 for value in ours)), row(4, "reset", *(value + 0.3 for value in ours)),
    ]  # fmt: skip
    plan = {"streams": ["harsh"], "learners": ["parallel"], "methods": ["gpf", "reset"], "first_seed": 0, "seeds": 6,
            "orders": [0, 4]}  # fmt: skip
    text = page_of({"kind": "shifting", "command": "gpf continual", "plan": plan, "rows": rows}, "x")
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert "in each of the orders 0 and 4" in text
    assert "| GPF | 0.770 [" in text  # the mean of both
    assert "area, order 0 | GPF less it, order 0 | area, order 4 | GPF less it, order 4" in text
    assert lines[-2].startswith("| GPF | 0.720 [")
    assert ": +0.110 [" in lines[-1]
    assert ": -0.200 [" in lines[-1]
    assert "x-harsh-parallel-order-0.png" in text
    assert "x-harsh-parallel-order-4.png" in text
    assert "24 runs" in text


def of(title, better):
    return Measure(title, better, ".1f", lambda outcome: 0.0)


def verdict(ours, theirs, measure):
    return corrected(lambda family: judge(ours, theirs, measure, family))


def test_verdicts_by_hand():
    more, less = of("", 1), of("", -1)
    assert verdict([2.0, 3.0] * 3, [1.0, 2.0] * 3, more) == "better: +1.0 [+1.0, +1.0]"
    assert verdict([2.0, 3.0] * 3, [1.0, 2.0] * 3, less) == "worse: +1.0 [+1.0, +1.0]"
    assert verdict([1.0, 3.0] * 3, [2.0, 2.0] * 3, less).startswith("not significant: +0.0")
    assert verdict([2.0, 3.0], [1.0, 2.0], more).startswith("too few seeds")


def areas(**changes):
    found = {"gpf": [0.7, 0.8], "depth-1": [0.5, 0.6], "reset": [0.4, 0.4], "one-each": [0.9, 1.0], **changes}
    return [{"method": name.replace("_", "-"), "scores": {"area": values}} for name, values in found.items()]


def test_the_gap_that_is_closed_by_hand():
    assert gap_closed(areas()) == pytest.approx((0.5, 0.5, 0.5))
    assert gap_closed(areas(**{"one-each": [0.5, 0.6]})) is None  # there is none
    assert gap_closed(areas()[:3]) is None  # nobody to compare with
    assert gap_closed(areas(gpf=[None, 0.8])) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": ("gpf",)}, "methods .*reset"),
        ({"methods": ("reset", "sgd")}, "method .*'sgd'"),
        ({"methods": ()}, "methods"),
        ({"learners": ()}, "learners"),
        ({"learners": ("online",)}, "learner .*'online'"),
        ({"seeds": 0}, "seeds .*1.*0"),
        ({"first_seed": -1}, "first_seed .*0.*-1"),
        ({"streams": ()}, "streams .*at least one"),
        ({"streams": ("rough",)}, "stream.*'rough'"),
        ({"streams": ("harsh", "x/harsh.json")}, "streams .*harsh, harsh"),
        ({"episodes": 0}, "episodes .*0"),
        ({"visits": 1}, "visits .*1"),
        ({"orders": ()}, "orders .*at least one"),
        ({"orders": (1, 1)}, "orders .*differ.*1, 1"),
        ({"orders": (0, -1)}, "order .*0.*-1"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(changes, message):
    with pytest.raises(ValueError, match=message) as caught:
        Plan(**changes)
    assert "\n" not in str(caught.value)

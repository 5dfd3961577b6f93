"""Runs in streams of worlds: the same bits again, killed or not; what they write; what is refused."""

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from gpf.plume.regimes import Stream
from gpf.runs.folder import Run, RunError, read_log, read_result
from gpf.tasks import continual, streams
from gpf.tasks.continual import Config, MethodName, Training, create_run, train
from gpf.tasks.many import check_same
from gpf.tasks.streams import MEASURES, Measure, Study, gap_closed, study, verdict, write_page

pytestmark = pytest.mark.usefixtures("one_torch_thread")
SMALL = {"episodes": 60, "visits": 3}


@pytest.fixture
def stream(tmp_path):
    """A short stream near the source: home, another world, and home again."""
    near = {"preset": "reference", "max_steps": 60, "start_distance_min": 0.6, "start_distance_max": 1.0}
    names = ("home", "vane turned around", "home")
    visits = [{"regime": name, "episodes": 500} for name in names]
    path = tmp_path / "short.json"
    path.write_text(json.dumps({"home": near, "visits": visits}))
    return str(path)


@pytest.fixture(autouse=True)
def eager(monkeypatch):
    """Let recall notice, and try, within the few rollouts of a test; and save often."""
    monkeypatch.setattr(continual, "EPOCHS_IN_A_ROUND", 3)
    quick = continual.Settings(window=1, settled=2, trial=2, drop=0.9)
    monkeypatch.setattr(continual, "Settings", lambda **changes: type(quick)(**{**vars(quick), **changes}))


def final(folder):
    """Everything that a finished run left, but for the time that it took."""
    checkpoint = [path.read_bytes() for path in (folder / "checkpoints" / "last").glob("*.safetensors")]
    lines = [
        {key: value for key, value in line.items() if key != "seconds"}
        for log in ("metrics", "events")
        for line in read_log(folder, log)
    ]
    return lines, checkpoint


@pytest.mark.parametrize(
    ("method", "learner"),
    [
        ("gpf", "parallel"),
        *((name, "policy-gradient") for name in get_args(MethodName) if not name.startswith("depth")),
    ],
)
def test_a_run_that_is_stopped_after_every_round_ends_as_one_that_is_not(tmp_path, stream, method, learner):
    config = Config(method=method, learner=learner, stream=stream)
    result = train(create_run(tmp_path / "whole", config))
    assert [visit["regime"] for visit in result["visits"]] == [v.regime for v in config.made_stream().visits]
    run = create_run(tmp_path / "stopped", config)
    rounds = 0
    while not (training := Training(run)).over:
        training.round()
        rounds += 1
    assert rounds > 2
    assert final(tmp_path / "whole") == final(tmp_path / "stopped")
    if method == "gpf":
        assert {line["kind"] for line in read_log(tmp_path / "whole", "events")} >= {"tries"}


def test_a_run_in_a_drifting_world_goes_on_where_the_drift_was(tmp_path, stream):
    plan = json.loads(Path(stream).read_text())
    plan["visits"][1]["gradual"] = plan["visits"][2]["gradual"] = True
    Path(stream).write_text(json.dumps(plan))
    config = Config(method="gpf", stream=stream)
    train(create_run(tmp_path / "whole", config))
    run, offsets = create_run(tmp_path / "stopped", config), set()
    while not (training := Training(run)).over:
        training.round()
        offsets |= set(training.learner.rollouts.world.rows["vane_offset"].tolist())
    assert len(offsets) > 4  # the vane turned little by little
    assert final(tmp_path / "whole") == final(tmp_path / "stopped")


def test_the_oracle_has_its_network_back(tmp_path, stream):
    config = Config(method="one-each", stream=stream)
    training = Training(create_run(tmp_path / "a", config))
    while training.progress["visit"] < 1:
        training.round()
    kept = {name: tensor.clone() for name, tensor in training._kept["home"].items()}
    assert "head.weight/exp_avg_sq" in kept
    assert training._parameters() == 2 * sum(tensor.numel() for name, tensor in kept.items() if "/" not in name)
    seen = []
    enter = training._enter

    def looked(visit):
        seen.append((visit, {name: tensor.detach().clone() for name, tensor in training._learnt().items()}))
        enter(visit)

    training._enter = looked
    while not training.over:
        training.round()
    assert all(np.array_equal(seen[0][1][name], tensor) for name, tensor in kept.items())


def test_what_is_measured_of_a_visit_by_hand(tmp_path):
    """Lane 7 ended an episode that began in the visit before: it is its first to end, but not its first here."""
    training = Training(create_run(tmp_path / "a", Config(method="depth-1", **SMALL)))
    training.progress["visit"] = 1
    training.progress["began"] = [0] * 100
    rollouts = training.learner.rollouts
    rollouts.ends[:], rollouts.successes[:] = False, False
    for t, lane, found in ((3, 7, True), (9, 7, False), (20, 7, True), (5, 8, True)):
        rollouts.ends[t, lane], rollouts.successes[t, lane] = True, found
    training._note_lanes()
    now = training.progress
    assert (now["first"][7], now["first_whole"][7], now["last"][7]) == (True, False, True)
    assert (now["first"][8], now["first_whole"][8], now["last"][8]) == (True, None, None)
    assert (now["first"][9], now["last"][9]) == (None, None)
    assert now["began"][7:10] == [1, 1, 0]


def test_a_study_writes_its_page_and_gives_the_same_numbers_again(tmp_path, stream):
    methods = ("gpf", "depth-1", "reset", "one-each")
    plan = Study(streams=(stream,), learners=("policy-gradient",), methods=methods, seeds=2)
    told = []
    rows = study(plan, tmp_path / "runs", 2, lambda folder, result: told.append((folder, result)))
    again = study(plan, tmp_path / "runs", 1)
    assert json.dumps(rows) == json.dumps(again)
    assert len({folder for folder, result in told if result}) == 8
    path = write_page(plan, tmp_path / "runs", rows, tmp_path / "page", "shifting", "gpf continual")
    text = path.read_text()
    assert "oracle: one network each" in text
    assert "GPF closes" in text
    assert (tmp_path / "page" / "shifting-short-policy-gradient.png").stat().st_size > 10_000
    assert json.loads((tmp_path / "page" / "shifting.json").read_text())["rows"] == json.loads(json.dumps(rows))
    assert rows[0]["scores"].keys() == MEASURES.keys()


def test_verdicts_by_hand():
    more, less = Measure("", 1, ".1f"), Measure("", -1, ".1f")
    assert verdict([2.0, 3.0] * 3, [1.0, 2.0] * 3, more) == "better: +1.0 [+1.0, +1.0]"
    assert verdict([2.0, 3.0] * 3, [1.0, 2.0] * 3, less) == "worse: +1.0 [+1.0, +1.0]"
    assert verdict([1.0, 3.0] * 3, [2.0, 2.0] * 3, less).startswith("no difference shown: +0.0")
    assert verdict([2.0, 3.0], [1.0, 2.0], more).startswith("no difference shown")  # two seeds say little
    rows = [
        {"method": name, "scores": {"area": areas}}
        for name, areas in {
            "gpf": [0.7, 0.8],
            "depth-1": [0.5, 0.6],
            "reset": [0.4, 0.4],
            "one-each": [0.9, 1.0],
        }.items()
    ]
    assert gap_closed(rows) == pytest.approx((0.5, 0.5, 0.5))
    rows[3]["scores"]["area"] = [0.5, 0.6]
    assert gap_closed(rows) is None  # there is none


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Config(method="magic").resolved(), "method: 'magic'; accepted: gpf, depth-1"),
        (lambda: Config(learner="online").resolved(), "learner: 'online'; accepted: policy-gradient, parallel"),
        (lambda: Config(stream="rough").resolved(), "stream: 'rough'; accepted: gentle, harsh, returning"),
        (lambda: Config(stream="none.json").resolved(), "stream: none.json cannot be read"),
        (lambda: Config(visits=1).resolved(), "visits: 1; accepted: at least 2"),
        (lambda: Config(visits=1, stream="gentle").resolved(), "visits: 1; accepted: at least 2"),
        (lambda: Config(episodes=0).resolved(), "episodes: 0 of visit 0"),
        (lambda: Config(order=-1).resolved(), "order: -1; accepted: at least 0"),
        (lambda: Config(method="ewc", grow=False).resolved(), "grow: False; accepted: only with method gpf"),
        (lambda: Study(methods=("gpf",)), "methods: without reset"),
        (lambda: Study(methods=("reset", "sgd")), "methods: 'sgd'; accepted: gpf"),
        (lambda: Study(seeds=0), "seeds: 0; accepted: at least 1"),
        (lambda: Study(streams=()), "streams: none; accepted: at least one"),
        (lambda: Study(streams=("harsh", "x/harsh.json")), "streams: harsh, x/harsh.json; accepted: at least one"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(make, message):
    with pytest.raises(ValueError, match=f"^{message}") as caught:
        make()
    assert "\n" not in str(caught.value)


def test_another_run_in_the_folder_is_refused_and_left_alone(tmp_path):
    create_run(tmp_path / "a", Config(**SMALL)).close()
    check_same(tmp_path / "a", Config(**SMALL), "continual")
    with pytest.raises(RunError, match="is of another configuration"):
        check_same(tmp_path / "a", Config(seed=1, **SMALL), "continual")
    assert (tmp_path / "a" / "config.json").exists()
    assert read_result(tmp_path / "a") is None


def test_a_stream_of_a_file(tmp_path):
    visits = [{"regime": "home", "episodes": 20}, {"regime": "mine", "episodes": 20, "gradual": True}]
    path = tmp_path / "stream.json"
    path.write_text(json.dumps({"visits": visits, "regimes": {"mine": {"speed": 0.4}}}))
    config = Config(stream=str(path), method="depth-1")
    result = train(create_run(tmp_path / "run", config))
    assert [visit["regime"] for visit in result["visits"]] == ["home", "mine"]
    assert Stream.of(Run.open(tmp_path / "run").config["stream"]) == config.made_stream()
    assert streams.measured(result["visits"], result["visits"])["transfer"] == 0.0

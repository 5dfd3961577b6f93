"""Runs in streams of worlds: the same bits again, killed or not; what they write; what is refused."""

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from support import edit, final

from gpf.continual.measures import transfer
from gpf.plume.regimes import Stream
from gpf.runs.folder import RunError, read_config, read_log, read_result
from gpf.tasks import shifting
from gpf.tasks.shifting import TASK, Config, MethodName

pytestmark = pytest.mark.usefixtures("one_torch_thread")
SMALL = {"episodes": 60, "visits": 3, "round_epochs": 3}


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
    """Let recall notice, and try, within the few rollouts of a test."""
    quick = shifting.Settings(window=1, settled=2, trial=2, drop=0.9)
    monkeypatch.setattr(shifting, "Settings", lambda **changes: type(quick)(**{**vars(quick), **changes}))


def shorten(stream, episodes):
    edit(Path(stream), lambda held: [visit.update(episodes=episodes) for visit in held["visits"]] and None)


def train(folder, config):
    run = TASK.create(folder, config)
    result = TASK.train(run, 1)
    run.close()
    return result


def begin(run):
    return TASK.training(run, TASK.read(run.folder), 1)


@pytest.mark.parametrize(
    ("method", "learner"),
    [
        ("gpf", "parallel"),
        ("replay", "parallel"),
        *((name, "policy-gradient") for name in get_args(MethodName) if not name.startswith("depth")),
    ],
)
def test_a_run_that_is_stopped_after_every_round_ends_as_one_that_is_not(tmp_path, stream, method, learner):
    watches = method in ("gpf", "reset-on-drop")
    if not watches:  # which needs longer visits to notice anything
        shorten(stream, 150)
    seed = 1 if (method, learner) == ("gpf", "parallel") else 0  # in which something is noticed
    config = Config(method=method, learner=learner, stream=stream, seed=seed, round_epochs=3 if watches else 1)
    result = train(tmp_path / "whole", config)
    assert [visit["regime"] for visit in result["visits"]] == [v.regime for v in config.made_stream().visits]
    run = TASK.create(tmp_path / "stopped", config)
    rounds = 0
    while not (training := begin(run)).over:
        training.round()
        rounds += 1
    assert rounds > 2
    assert final(tmp_path / "whole") == final(tmp_path / "stopped")
    if method == "reset-on-drop":
        assert {line["kind"] for line in read_log(tmp_path / "whole", "events")} == {"new-path"}
    if method == "gpf":
        assert {line["kind"] for line in read_log(tmp_path / "whole", "events")} >= {"trial"}


def test_a_line_is_a_round_and_has_the_visits_that_ended_in_it(tmp_path, stream):
    config = Config(method="depth-1", stream=stream, round_epochs=2)
    result = train(tmp_path / "run", config)
    lines = read_log(tmp_path / "run", "metrics")
    assert [line["round"] for line in lines] == list(range(1, len(lines) + 1))
    assert all(line["step"] == 2 * 100 * 40 * line["round"] for line in lines[:-1])
    assert [visit for line in lines for visit in line["visits"]] == result["visits"]
    ended = np.cumsum([len(line["visits"]) for line in lines])
    assert [line["visit"] for line in lines] == ended.tolist()
    assert 0 in [len(line["visits"]) for line in lines]
    assert result["success"] == pytest.approx(
        sum(sum(visit["found"]) for visit in result["visits"]) / sum(sum(visit["ended"]) for visit in result["visits"])
    )
    assert result["parameters"] == max(visit["parameters"] for visit in result["visits"])


def test_a_run_in_a_drifting_world_goes_on_where_the_drift_was(tmp_path, stream):
    plan = json.loads(Path(stream).read_text())
    plan["visits"][1]["gradual"] = plan["visits"][2]["gradual"] = True
    Path(stream).write_text(json.dumps(plan))
    config = Config(method="gpf", stream=stream, round_epochs=1)
    train(tmp_path / "whole", config)
    run, offsets = TASK.create(tmp_path / "stopped", config), set()
    while not (training := begin(run)).over:
        training.round()
        offsets |= set(training.learner.rollouts.world.rows["vane_offset"].tolist())
    assert len(offsets) > 4  # the vane turned little by little
    assert final(tmp_path / "whole") == final(tmp_path / "stopped")


def test_the_oracle_has_its_network_back(tmp_path, stream):
    training = begin(TASK.create(tmp_path / "a", Config(method="one-each", stream=stream, round_epochs=3)))
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


@pytest.mark.parametrize(("learner", "depth"), [("policy-gradient", 2), ("parallel", 1)])
def test_the_wide_network_has_as_many_parameters_as_gpf_may_keep(tmp_path, learner, depth):
    ours, wide, deep = (
        begin(TASK.create(tmp_path / method, Config(method=method, learner=learner, **SMALL)))
        for method in ("gpf", "budget", "depth-4")
    )
    budget = ours.recall.settings.budget
    assert budget == deep.net.count_parameters()
    assert wide.net.depth == depth
    assert wide.net.count_parameters() <= budget < wide._size(depth, wide.net.model.width + 1)
    assert wide._size(depth, wide.net.model.width) == wide.net.count_parameters()


def test_a_softened_policy_prefers_the_same_actions_less_and_values_states_as_before(tmp_path):
    training = begin(TASK.create(tmp_path / "a", Config(method="gpf", **SMALL)))
    training._epoch()
    model, seen = training.net.model, training._probe
    with torch.no_grad():
        model.head.bias[:6] = torch.arange(6.0)
        before = model(seen)
        training.recall.soften(model)
        after = model(seen)
    assert torch.allclose(after[:, :6], 0.3 * before[:, :6], atol=1e-5)
    assert torch.equal(after[:, 6], before[:, 6])


@pytest.mark.parametrize("changes", [{"soften": False}, {"learner": "parallel"}])
def test_nothing_is_softened_where_it_is_turned_off_or_values_are_learnt(tmp_path, changes):
    training = begin(TASK.create(tmp_path / "a", Config(method="gpf", **SMALL, **changes)))
    assert training.recall.soften is None


def test_replay_stores_what_was_seen_with_what_the_network_made_of_it(tmp_path):
    training = begin(TASK.create(tmp_path / "a", Config(method="replay", **SMALL)))
    training._epoch()
    rollouts, replay = training.learner.rollouts, training.method
    assert replay.stored == 100 * 40
    for t, lane in ((0, 0), (17, 3), (39, 99)):
        assert np.array_equal(replay.inputs[100 * t + lane], rollouts.inputs[t, lane])
        assert np.array_equal(replay.outputs[100 * t + lane], rollouts.outputs[t, lane])


def test_what_is_measured_of_a_visit_by_hand(tmp_path):
    """Lane 7 ended an episode that began in the visit before: it is its first to end, but not its first here."""
    training = begin(TASK.create(tmp_path / "a", Config(method="depth-1", **SMALL)))
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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "magic"}, "method .*gpf, depth-1.*'magic'"),
        ({"learner": "online"}, "learner .*policy-gradient, parallel.*'online'"),
        ({"stream": "rough"}, "stream.*'rough'"),
        ({"stream": "none.json"}, "none.json"),
        ({"visits": 1}, "visits .*2.*1"),
        ({"visits": 1, "stream": "gentle"}, "visits .*2.*1"),
        ({"episodes": 0}, "episodes .*1.*0"),
        ({"order": -1}, "order .*0.*-1"),
        ({"method": "ewc", "grow": False}, "grow .*gpf.*ewc"),
        ({"method": "depth-2", "soften": False}, "soften .*gpf.*depth-2"),
        ({"learner": "parallel", "soften": False}, "soften .*policy-gradient.*parallel"),
        ({"round_epochs": 0}, "round_epochs .*1.*0"),
        ({"colour": "red"}, "'colour'"),
        ({"grow": "no"}, "grow .*true or false.*'no'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(settings, message, tmp_path):
    with pytest.raises(ValueError, match=message) as caught:
        TASK.create(tmp_path / "run", TASK.of(settings))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_another_run_in_the_folder_is_refused_and_left_alone(tmp_path):
    TASK.create(tmp_path / "a", Config(**SMALL)).close()
    TASK.check_same(tmp_path / "a", Config(**SMALL))
    with pytest.raises(RunError, match="has other settings"):
        TASK.check_same(tmp_path / "a", Config(seed=1, **SMALL))
    assert (tmp_path / "a" / "config.json").exists()
    assert read_result(tmp_path / "a") is None


def test_a_stream_of_a_file_by_command(tmp_path, gpf):
    visits = [{"regime": "home", "episodes": 20}, {"regime": "mine", "episodes": 20, "gradual": True}]
    (tmp_path / "stream.json").write_text(json.dumps({"visits": visits, "regimes": {"mine": {"speed": 0.4}}}))
    few = ("--round-epochs", "3", "--method", "gpf", "--run", "run", "--json")
    result = json.loads(gpf("train", "shifting", "--stream", "stream.json", *few).splitlines()[-1])
    assert [visit["regime"] for visit in result["visits"]] == ["home", "mine"]
    assert Stream.of(read_config(tmp_path / "run")["stream"]) == Stream.of(tmp_path / "stream.json")
    assert transfer(result["visits"], result["visits"]) == 0.0
    report = (tmp_path / "run" / "report.html").read_text()
    assert "shifting, gpf, seed 0" in report
    for event in read_log(tmp_path / "run", "events"):
        assert event["reason"] in report
    assert "not finished" not in report

"""Episodes on the page are those of the simulator, can be rewound exactly, and go on another way when told to."""

import base64
import json
import shutil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from gpf.navigation.acting import NetworkPolicy
from gpf.navigation.agents import load_navigator, make_network
from gpf.navigation.config import Config
from gpf.navigation.evaluate import evaluate
from gpf.navigation.policies import POLICIES, make_policy
from gpf.navigation.seeds import HELD_OUT
from gpf.plume.memory import Memory
from gpf.plume.pixels import antennae, concentration_field, wind_field
from gpf.plume.placement import move_to
from gpf.plume.scenario import Scenario
from gpf.plume.world import World
from gpf.viewer.app import make_app
from gpf.viewer.episodes import FAINTEST, STRONGEST, Flight
from gpf.viewer.flying import Session, choices
from gpf.viewer.folders import Folders
from gpf.zoo import run_folder

TURBULENT, PAPER = Scenario.preset("turbulent"), Scenario.preset("paper")
ZOO = {"kind": "zoo", "name": "zoo:turbulent"}
CHEAP = [name for name in POLICIES if name not in ("infotaxis", "space-aware-infotaxis", "thompson", "greedy-belief")]
"""Those that choose in a moment; the other searchers share all that a flight copies with the particle filter."""


@pytest.fixture(scope="module")
def navigator():
    return load_navigator("zoo:turbulent")


@pytest.fixture
def flight(navigator):
    return Flight(TURBULENT, navigator.policy, 3)


@pytest.fixture
def session(tmp_path):
    session = Session(Folders([tmp_path]))
    session.answer({"do": "start", "world": "turbulent", "policy": ZOO, "seed": 3})
    return session


def numbers(text, kind):
    return np.frombuffer(base64.b64decode(text), kind)


def fly(flight, steps):
    for _ in range(steps):
        flight.fly()


def test_an_episode_is_that_of_the_evaluation_of_the_same_seed(navigator):
    flight = Flight(TURBULENT, navigator.policy, 5)
    while flight.end is None:
        flight.fly()
    found = evaluate(load_navigator("zoo:turbulent").policy, TURBULENT, 1, HELD_OUT + 5, threads=1)
    assert (flight.end == "found", flight.step) == (found.success[0], found.steps[0])


@pytest.mark.parametrize("name", ["zoo:turbulent", *CHEAP])
def test_a_rewound_flight_shows_the_same_frames_again(name, navigator):
    flight = Flight(TURBULENT, navigator.policy if name.startswith("zoo") else make_policy(name), 4)
    frames = [flight.frame()]
    for _ in range(60):
        flight.fly()
        frames.append(flight.frame())
    for step in (60, 0, 31, 30, 25, 59):
        flight.seek(step)
        assert flight.frame() == frames[step]


def test_a_flight_goes_on_after_rewinding_as_it_did_before(flight):
    fly(flight, 50)
    expected = flight.frame()
    flight.seek(13)
    fly(flight, 37)
    assert flight.frame() == expected


def test_another_action_leads_to_another_episode_that_can_be_rewound_too(flight):
    fly(flight, 40)
    before = flight.frame()
    flight.seek(10)
    flight.fly((flight.frame()["proposed"] + 1) % 6)
    fly(flight, 29)
    assert flight.frame()["agent"] != before["agent"]
    after = flight.frame()
    flight.seek(5)
    flight.seek(40)
    assert flight.frame() == after
    assert flight.reached == 40


def test_a_flight_cannot_go_where_it_has_not_been(flight):
    fly(flight, 3)
    with pytest.raises(ValueError, match="step must be from 0 to 3, got 4"):
        flight.seek(4)


def test_a_moved_source_emits_from_its_new_place_and_leaves_its_plume(flight):
    fly(flight, 30)
    before = numbers(flight.frame()["filaments"], "<u2").reshape(3, -1)
    flight.move({"source": [16.0, 4.0]})
    assert flight.frame()["sources"] == [[16.0, 4.0]]
    assert (numbers(flight.frame()["filaments"], "<u2").reshape(3, -1) == before).all()
    fly(flight, 3)
    newest = numbers(flight.frame()["filaments"], "<u2").reshape(3, -1)[:, -1] / 65535 * 20
    assert np.hypot(newest[0] - 16, newest[1] - 4) < 1.5
    after = flight.frame()
    flight.seek(0)
    flight.seek(33)
    assert flight.frame() == after


def test_a_moved_agent_goes_on_from_there_and_its_move_is_not_rewarded(flight):
    fly(flight, 30)
    flight.move({"position": [2.0, 18.0], "heading": 0.5})
    frame = flight.frame()
    assert frame["agent"] == [2.0, 18.0, 0.5]
    source = frame["sources"][0]
    assert frame["distance"] == pytest.approx(np.hypot(2 - source[0], 18 - source[1]), rel=1e-3)
    flight.fly()
    assert np.hypot(flight.frame()["agent"][0] - 2, flight.frame()["agent"][1] - 18) < 0.5
    assert abs(flight.frame()["reward"]) < 1.0


@pytest.mark.parametrize(
    ("world", "options", "said"),
    [
        ("paper", {"position": [-1, 2]}, "position must be in the domain"),
        ("paper", {"source": [1, 2, 3]}, "source must be two numbers"),
        ("paper", {"source": "here"}, "source must be two numbers"),
        ("paper", {"heading": float("nan")}, "heading must be finite"),
        ("office", {"position": [1.1, 1.1]}, "position must not be in an obstacle"),
        ("office", {"source": [1.1, 1.1]}, "source must not be in an obstacle"),
    ],
)
def test_a_place_where_nothing_can_be_is_refused_and_nothing_moves(world, options, said):
    world = World(1, world, 1)
    world.seed([1])
    world.begin()
    before = world.lanes.copy()
    with pytest.raises(ValueError, match=said):
        move_to(world, 0, {"heading": 1.0, **options})
    assert world.lanes.tobytes() == before.tobytes()


def test_the_field_that_is_shown_is_the_simulators(flight):
    fly(flight, 5)
    header, frame = flight.header(), flight.frame()
    shown = numbers(frame["field"], np.uint8).reshape(header["field"])
    field = np.clip(concentration_field(flight.world, 0, *header["field"]), FAINTEST, STRONGEST)
    expected = 255 * np.log10(field / FAINTEST) / np.log10(STRONGEST / FAINTEST)
    assert np.abs(shown - expected).max() <= 0.5 + 1e-9


def test_the_wind_that_is_shown_is_the_vanes_where_the_agent_is(navigator):
    world = World(1, "office", 1)
    world.seed([2])
    world.begin()
    for _ in range(20):
        world.step(np.zeros(1, np.int64))
    lane, fine = world.lanes[0], wind_field(world, 0, 400, 400)
    row, column = int(400 * (1 - lane["y"] / 20)), int(400 * lane["x"] / 20)
    u, v = fine[row, column]
    assert np.hypot(u, v) == pytest.approx(lane["vane_speed"], rel=0.2)
    shown = numbers(Flight(TURBULENT, navigator.policy, 1).frame()["wind"], "<i2")
    assert shown.shape == (12 * 12 * 2,)


def test_an_ideal_sensor_reads_what_is_in_the_air_at_its_antenna():
    world = World(1, PAPER.changed(["sensor_noise=0"]), 1)
    world.seed([6])
    world.begin()
    strongest = 0.0
    for _ in range(400):
        world.step(np.zeros(1, np.int64))
        _, air = antennae(world, 0)
        if world.lanes["running"][0]:
            assert world.raw[0, :2] == pytest.approx(np.minimum(air, 1e9), rel=1e-5, abs=1e-7)
            strongest = max(strongest, air.max())


def test_memory_features_that_are_shown_are_those_of_the_environments(flight):
    memory = Memory(flight.world.rows)
    memory.update(flight.world.raw)
    for _ in range(40):
        flight.fly()
        memory.update(flight.world.raw)
        assert flight.frame()["inputs"] == pytest.approx(memory.features[0].tolist(), rel=1e-3, abs=1e-6)
    assert len(flight.header()["inputs"]) == 16


def test_probabilities_sum_to_one_and_greedy_navigators_propose_the_likeliest(flight):
    for _ in range(20):
        flight.fly()
        frame = flight.frame()
        assert sum(frame["scores"]) == pytest.approx(1.0, abs=2e-3)
        if flight.policy.acting == "greedy":
            assert frame["proposed"] == int(np.argmax(frame["scores"]))


def test_a_policy_without_a_network_shows_its_actions_alone():
    frame = Flight(PAPER, make_policy("reactive"), 0).frame()
    assert "scores" not in frame
    assert frame["proposed"] in range(6)


@pytest.mark.parametrize("world", ["decoy", "office", "fly-many", "fast-sensor", "two-sources", "paper"])
def test_every_kind_of_world_can_be_shown_as_json(world, navigator):
    flight = Flight(Scenario.preset(world), navigator.policy, 0)
    fly(flight, 5)
    header = json.loads(json.dumps(flight.header(), allow_nan=False))
    frame = json.loads(json.dumps(flight.frame(), allow_nan=False))
    assert len(numbers(frame["field"], np.uint8)) == np.prod(header["field"])
    assert ("second_field" in frame) == (world == "decoy")
    assert bool(header["obstacles"]) == (world == "office")
    assert len(header["decoys"]) == (world == "decoy")
    assert len(frame["sources"]) == 1 + (world == "two-sources")


def test_frames_are_given_as_asked_until_the_episode_ends(session):
    frames, step = [], 0
    while True:
        got = session.answer({"do": "fly", "step": step, "count": 100, "id": 7})
        assert got["id"] == 7
        if not got["frames"]:
            break
        frames += got["frames"]
        step = frames[-1]["step"]
    assert [frame["step"] for frame in frames] == list(range(1, step + 1))
    assert [frame["end"] is None for frame in frames] == [True] * (step - 1) + [False]


def test_the_next_failure_is_the_first_that_the_evaluation_has(session):
    asked = {
        "do": "failure",
        "world": "turbulent",
        "policy": {"kind": "classical", "name": "cast-and-surge"},
        "seed": 2,
    }
    got = session.answer(asked)
    found = evaluate(make_policy("cast-and-surge"), TURBULENT, 64, HELD_OUT + 3, threads=1)
    assert got["header"]["seed"] == 3 + int(np.argmin(found.success))


def test_the_rival_flies_the_same_episode_and_disturbs_nobody(session):
    session.answer({"do": "act", "step": 0, "action": 1})
    before = session.flight.frame()
    rival = session.answer({"do": "rival", "policy": ZOO, "world": "turbulent"})["rival"]
    assert session.flight.frame() == before
    alone = Flight(TURBULENT, load_navigator("zoo:turbulent").policy, 3)
    while alone.end is None:
        alone.fly()
    assert (rival["end"], rival["steps"], len(rival["path"])) == (alone.end, alone.step, alone.step + 1)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"do": "start", "world": "nowhere", "policy": ZOO, "seed": 0}, "unknown world 'nowhere'"),
        ({"do": "start", "world": "paper", "policy": ZOO, "seed": -1}, "seed must be a whole number from 0"),
        ({"do": "start", "world": "paper", "policy": ZOO, "seed": True}, "seed must be a whole number from 0"),
        ({"do": "start", "world": "paper", "policy": "zoo:turbulent", "seed": 0}, "policy must be one that this page"),
        ({"do": "start", "world": "paper", "policy": {"kind": "zoo", "name": "zoo:x"}, "seed": 0}, "unknown navigator"),
        ({"do": "start", "world": "paper", "policy": {"kind": "run", "name": "../x"}, "seed": 0}, "there is no run"),
        (
            {"do": "start", "world": "paper", "policy": {"kind": "classical", "name": "cast-and-surge:/etc/passwd"}},
            "seed must be a whole number",
        ),
        ({"do": "fly", "step": 0, "count": 1e9}, "count must be a whole number from 1 to 100"),
        ({"do": "fly", "step": 5, "count": 1}, "step must be a whole number from 0 to 0, got 5"),
        ({"do": "act", "step": 0, "action": 6}, "action must be a whole number from 0 to 5"),
        ({"do": "move", "step": 0, "source": {"x": 1}}, "source must be two numbers"),
        ({"do": "explode"}, "unknown do 'explode'"),
        ([], "a message must be an object"),
    ],
)
def test_a_wrong_message_is_answered_with_a_sentence_and_the_flight_goes_on(session, asked, said):
    got = session.answer(asked)
    assert said in got["error"]
    assert "\n" not in got["error"]
    assert len(session.answer({"do": "fly", "step": 0, "count": 2})["frames"]) == 2


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
MESSAGES = st.fixed_dictionaries(
    {"do": st.sampled_from(["fly", "act", "move"])},
    optional={
        "step": st.integers(-1, 3) | PLAIN, "count": st.integers(-1, 3) | PLAIN, "action": st.integers(-1, 6) | PLAIN,
        "position": st.lists(st.floats(-1.0, 21.0), min_size=2, max_size=2) | PLAIN,
        "source": st.lists(st.floats(-1.0, 21.0), min_size=2, max_size=2) | PLAIN, "heading": st.floats() | PLAIN,
    },
)  # fmt: skip


@given(messages=st.lists(MESSAGES | PLAIN, max_size=6))
def test_any_messages_get_frames_or_a_sentence_and_leave_a_flight_that_can_go_on(messages):
    session = Session(Folders([]), Flight(PAPER.changed(["max_steps=5"]), make_policy("random"), 1))
    for message in messages:
        got = session.answer(message)
        assert ("frames" in got) != ("error" in got)
        json.dumps(got.get("frames"), allow_nan=False)
    session.flight.seek(0)
    session.flight.fly()
    assert session.flight.frame()["step"] == 1


def test_a_file_cannot_be_read_through_the_name_of_a_policy(session):
    choice = {"kind": "classical", "name": "cast-and-surge:/etc/passwd"}
    got = session.answer({"do": "start", "world": "paper", "policy": choice, "seed": 0})
    assert got["error"].startswith("unknown policy")


@pytest.mark.parametrize(("learner", "has_state", "values"), [("recurrent", True, False), ("parallel", False, True)])
def test_recurrent_states_and_values_of_actions_are_shown(learner, has_state, values):
    config = Config.of(learner=learner, seed=901)
    network = config.learner.FLAT(make_network(config).model)
    policy = NetworkPolicy(network, config.learner.observation, config.learner.acting, PAPER)
    flight = Flight(PAPER, policy, 2, values)
    fly(flight, 10)
    frame = flight.frame()
    assert len(frame["state"]) == (network.state_size if has_state else 0)
    assert any(frame["state"]) == has_state
    if values:
        assert frame["value"] == max(frame["scores"]) == pytest.approx(policy.outputs[0].max(), rel=1e-3)
    else:
        assert sum(frame["scores"]) == pytest.approx(1.0, abs=2e-3)
    expected = [frame]
    flight.seek(0)
    flight.seek(10)
    assert [flight.frame()] == expected


def test_a_run_can_fly_by_its_name_and_as_well_as_the_navigator_that_it_made(tmp_path):
    shutil.copytree(run_folder("zoo:turbulent"), tmp_path / "runs" / "mine")
    session = Session(Folders([tmp_path / "runs"]))
    listed = [one for one in choices(session.folders)["policies"] if one["kind"] == "run"]
    assert listed == [{"kind": "run", "name": "runs/mine", "checkpoint": "last"}]
    answers = [
        session.answer({"do": "start", "world": "own", "policy": policy, "seed": 6})["frames"]
        for policy in (listed[0], ZOO)
    ]
    assert answers[0] == answers[1]


def test_a_new_episode_is_flown_with_what_the_run_has_learned_meanwhile(tmp_path):
    folder = tmp_path / "runs" / "mine"
    session, policy = Session(Folders([tmp_path])), {"kind": "run", "name": f"{tmp_path.name}/runs/mine"}
    starts = []
    for name in ("zoo:turbulent", "zoo:reference"):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(run_folder(name), folder)
        starts.append(session.answer({"do": "start", "world": "paper", "policy": policy, "seed": 6})["frames"][0])
    assert starts[0]["scores"] != starts[1]["scores"]


def test_two_pages_fly_at_once_and_bad_json_harms_neither(tmp_path):
    client = TestClient(make_app([tmp_path], token="t"), base_url="http://127.0.0.1")
    client.get("/?token=t")
    url = "ws://127.0.0.1/ws/fly"
    with client.websocket_connect(url) as first, client.websocket_connect(url) as second:
        for broken in ("{", "[" * 50_000, "1e999"):
            first.send_text(broken)
            assert "a message must be an object" in first.receive_json()["error"]
        for seed, page in ((1, first), (2, second)):
            page.send_json({"do": "start", "world": "paper", "policy": ZOO, "seed": seed})
        assert [page.receive_json()["header"]["seed"] for page in (first, second)] == [1, 2]


def test_choices_are_all_worlds_and_all_that_can_fly(tmp_path):
    client = TestClient(make_app([tmp_path], token="t"), base_url="http://127.0.0.1")
    client.get("/?token=t")
    got = client.get("/api/fly").json()
    assert {"paper", "reference", "office"} <= set(got["worlds"])
    assert {one["name"] for one in got["policies"]} == {"zoo:reference", "zoo:turbulent", *POLICIES}

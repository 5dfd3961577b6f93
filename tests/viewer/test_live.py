import json
import shutil
import threading

import pytest
from made_runs import STEPS, MadeRun
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from gpf.runs.folder import Run, write_json
from gpf.viewer import live
from gpf.viewer.app import make_app
from gpf.viewer.live import RESET, Follower
from gpf.viewer.runs import describe
from gpf.viewer.tail import RestartedError, Tail


@pytest.fixture
def made(tmp_path):
    run = MadeRun(tmp_path / "run").round()
    yield run
    run.run.close()


@pytest.fixture
def often(monkeypatch):
    """The folder is looked at more often than in earnest."""
    monkeypatch.setattr(live, "INTERVAL", 0.02)


def follower(made):
    """One that has read what a page has."""
    run = describe(made.run.folder)
    return Follower(made.run.folder, {"unit": run["unit"], "state": run["state"], **run["cursor"]})


def connect(client, name, run):
    query = "&".join(
        f"{key}={value}" for key, value in {"unit": "step", "state": run["state"], **run["cursor"]}.items()
    )
    return client.websocket_connect(f"ws://127.0.0.1/ws/run/{name}?{query}")


def client_of(folder):
    client = TestClient(make_app([folder], token="t"), "http://127.0.0.1")
    client.get("/?token=t")
    return client


def lines(messages):
    return [message for message in messages if message["type"] == "lines"]


def test_a_tail_reads_each_whole_line_once(tmp_path):
    path = tmp_path / "log.jsonl"
    tail = Tail(path)
    assert tail.read() == []
    path.write_text('{"a": 1}\n{"a": 2')
    assert tail.read() == [{"a": 1}]
    assert tail.read() == []
    with path.open("a") as file:
        file.write('}\n\n[3]\n{"a": 4}\n')
    later = Tail(path, tail.mark)
    assert tail.read() == later.read() == [{"a": 2}, {"a": 4}]
    assert tail.broken == 1


def test_a_tail_notices_that_its_log_was_replaced_shortened_or_deleted(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"a": 1}\n{"a": 2}\n')
    tail = Tail(path)
    tail.read()
    mark = tail.mark
    new = tmp_path / "new"
    new.write_text('{"a": 1}\n{"a": 2}\n{"a": 3}\n')
    new.replace(path)
    with pytest.raises(RestartedError):
        tail.read()
    again = Tail(path)
    again.read()
    path.write_text("{}\n")
    for held in (again, Tail(path, mark)):
        with pytest.raises(RestartedError):
            held.read()
    path.unlink()
    with pytest.raises(RestartedError):
        again.read()


@pytest.mark.parametrize("mark", ["", "1", "-1-2", "1-x", "1" * 50 + "-2", "٣-٤x"])
def test_a_mark_that_is_none_is_refused(tmp_path, mark):
    with pytest.raises(ValueError, match="mark must be a position"):
        Tail(tmp_path, mark)


def test_a_follower_tells_of_new_lines_and_events_once(made):
    follow = follower(made)
    assert follow.look() == []
    made.round()
    made.round()
    (told,) = lines(follow.look())
    (loss,) = [one for one in told["curves"] if one["key"] == "loss"]
    assert (loss["x"], loss["y"]) == ([2 * STEPS, 3 * STEPS], [1 / 2, 1 / 3])
    assert [(event["kind"], event["x"]) for event in told["events"]] == [("grown", 3 * STEPS)]
    assert {"id": "0000-after", "event": 0, "when": "after"} in told["moments"]
    assert told["numbers"]["depth"] == 2
    assert lines(follow.look()) == []
    assert told["cursor"] == describe(made.run.folder)["cursor"]


def test_what_was_followed_is_what_a_page_loads_later(made):
    run, follow = describe(made.run.folder), follower(made)
    curves = {one["key"]: one["y"] for one in run["curves"]}
    for _ in range(8):
        made.round()
        for told in lines(follow.look()):
            for one in told["curves"]:
                curves.setdefault(one["key"], []).extend(one["y"])
    assert curves == {one["key"]: one["y"] for one in describe(made.run.folder)["curves"]}


def test_a_follower_tells_of_a_new_checkpoint(made):
    follow = follower(made)
    follow.look()
    made.net.save(made.run.checkpoint("last"))
    assert follow.look() == [{"type": "checkpoint"}]


def test_a_page_is_to_load_a_run_again_that_is_resumed_finished_or_far_ahead(made, monkeypatch):
    resumed, finished, far = follower(made), follower(made), follower(made)
    made.run.drop_after(1, 0)  # as a resumed run does
    assert resumed.look() == [RESET]
    far = follower(made)
    monkeypatch.setattr(live, "MOST_LINES", 2)
    for _ in range(3):
        made.round()
    assert far.look() == [RESET]
    finished = follower(made)
    write_json(made.run.folder / "result.json", {"step": 1})
    assert finished.look() == [RESET]


@pytest.mark.parametrize("result", ["", "{", "{}", '{"step": 1}'])
def test_a_finished_run_is_not_to_be_loaded_again_whatever_its_result_says(made, result):
    (made.run.folder / "result.json").write_text(result)
    follow = follower(made)
    assert [follow.look(), follow.look()] == [[], []]


def test_a_page_is_told_that_a_run_was_interrupted_failed_or_is_running_again(made):
    follow = follower(made)
    made.run.close()
    assert follow.look() == [{"type": "state", "state": "interrupted", "failure": None}]
    write_json(made.run.folder / "failure.json", {"error": "the weights became non-finite"})
    assert follow.look() == [{"type": "state", "state": "failed", "failure": "the weights became non-finite"}]
    again = Run.open(made.run.folder)
    (made.run.folder / "failure.json").unlink()
    assert follow.look() == [{"type": "state", "state": "running", "failure": None}]
    again.close()


def test_a_deleted_folder_is_a_sentence(made):
    follow = follower(made)
    shutil.rmtree(made.run.folder)
    assert follow.look() == [{"type": "gone", "message": "The folder of this run was deleted."}]


def test_a_visit_that_ends_in_a_stream_makes_the_page_load_again(made):
    follow = follower(made)
    made.run.append("metrics", [{"round": 2, "step": 200, "visits": [{"regime": "home", "step": 200}]}])
    assert follow.look() == [RESET]


def test_following_holds_no_lock_of_the_run(made):
    """The lock is taken for a moment, to see whether it is free; a process that opens the run waits longer."""
    follow = follower(made)
    made.run.close()
    stop = threading.Event()

    def look():
        while not stop.is_set():
            follow.look()

    thread = threading.Thread(target=look)
    thread.start()
    for _ in range(20):
        Run.open(made.run.folder).close()
    stop.set()
    thread.join()


def test_two_viewers_get_the_same_lines(made, often):
    client = client_of(made.run.folder.parent)
    name = f"{made.run.folder.parent.name}/run"
    run = client.get(f"/api/run/{name}").json()
    with connect(client, name, run) as one, connect(client, name, run) as other:
        made.round()
        told = [socket.receive_json() for socket in (one, other)]
    assert told[0] == told[1]
    assert [one["y"] for one in told[0]["curves"] if one["key"] == "loss"] == [[0.5]]


def test_a_socket_of_a_deleted_run_says_so_and_closes(made, often):
    client = client_of(made.run.folder.parent)
    name = f"{made.run.folder.parent.name}/run"
    run = client.get(f"/api/run/{name}").json()
    with connect(client, name, run) as socket:
        made.run.folder.rename(made.run.folder.with_name(".deleted"))  # at once, unlike rmtree
        while "type" in (told := socket.receive_json()) and told["type"] != "gone":
            pass
        with pytest.raises(WebSocketDisconnect):
            socket.receive_json()
    with connect(client, name, run) as socket:
        assert "there is no run" in socket.receive_json()["error"]


@pytest.mark.parametrize("query", ["unit=seconds", "metrics=1", "events=x-1"])
def test_a_socket_with_a_wrong_query_says_what_is_accepted(made, query):
    client = client_of(made.run.folder.parent)
    with client.websocket_connect(f"ws://127.0.0.1/ws/run/{made.run.folder.parent.name}/run?{query}") as socket:
        assert "must be" in socket.receive_json()["error"]


def test_messages_are_strict_json(made):
    follow = follower(made)
    with (made.run.folder / "metrics.jsonl").open("a") as file:
        file.write('{"round": 2, "step": 200, "loss": NaN, "other": -Infinity}\n')
    json.dumps(follow.look(), allow_nan=False)

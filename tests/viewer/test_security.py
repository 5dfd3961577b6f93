"""Only pages of the server itself, with its token, get anything, and no name leads out of the folders."""

import json
import socket
import string
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from gpf.viewer.app import make_app
from gpf.viewer.folders import Folders
from gpf.viewer.security import LOOPBACK, Access, Headers
from gpf.viewer.serve import listen

TOKEN = "right"
BASE, SOCKETS = "http://127.0.0.1:8642", "ws://127.0.0.1:8642"
REFUSED = {"evil.example": 403, "127.0.0.1.evil.example": 403, "": 403, "127.0.0.1:80:80": 403, "[::1": 403}


def write_run(folder, **config):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"task": "plume", "config": {"seed": 1}, **config}))
    return folder


@pytest.fixture
def runs(tmp_path):
    write_run(tmp_path / "runs" / "plume-1")
    write_run(tmp_path / "elsewhere" / "secret-1")
    return tmp_path / "runs"


@pytest.fixture
def app(runs):
    return make_app([runs], token=TOKEN)


@pytest.fixture
def stranger(app):
    """A client without the token."""
    return TestClient(app, base_url=BASE)


@pytest.fixture
def client(stranger):
    """A client that has opened the printed address."""
    assert stranger.get(f"/?token={TOKEN}").status_code == 200
    return stranger


@pytest.mark.parametrize("path", ["/", "/api/runs", "/api/run/runs/plume-1", "/api/fly", "/?token=wrong", "/?token="])
def test_nothing_is_answered_without_the_token(stranger, path):
    response = stranger.get(path)
    assert response.status_code == 401
    assert response.text == "the token is missing or wrong; open the address that gpf view printed\n"
    assert "set-cookie" not in response.headers


def test_the_printed_address_sets_a_cookie_that_scripts_and_other_sites_cannot_use(stranger):
    cookie = stranger.get(f"/?token={TOKEN}").headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie  # noqa: PT018 - one fact
    assert [row["run"] for row in stranger.get("/api/runs").json()] == ["runs/plume-1"]


@pytest.mark.parametrize("host", REFUSED)
def test_a_foreign_host_name_is_refused_even_with_the_token(client, host):
    response = client.get("/api/runs", headers={"host": host})
    assert response.status_code == REFUSED[host]
    assert "is not the host of this page" in response.text


@pytest.mark.parametrize("host", ["127.0.0.1:8642", "localhost:8642", "[::1]:8642", "LOCALHOST"])
def test_this_machine_is_known_by_its_loopback_names(host):
    assert Access(TOKEN).refusal("/", f"token={TOKEN}", Headers({"host": host})) is None


def test_served_to_a_network_an_address_is_accepted_but_no_name():
    access = Access(TOKEN, (*LOOPBACK, "0.0.0.0"))
    assert access.refusal("/", f"token={TOKEN}", Headers({"host": "192.168.1.7:8642"})) is None
    assert access.refusal("/", f"token={TOKEN}", Headers({"host": "robot.evil.example"}))[0] == 403
    assert Access(TOKEN).refusal("/", f"token={TOKEN}", Headers({"host": "192.168.1.7"}))[0] == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "file://"])
def test_a_page_of_another_origin_gets_nothing(client, origin):
    assert client.get("/api/runs", headers={"origin": origin}).status_code == 403
    with pytest.raises(WebSocketDisconnect), client.websocket_connect(f"{SOCKETS}/ws/fly", headers={"origin": origin}):
        pass


def test_a_page_of_our_own_origin_gets_what_it_asks(client):
    assert client.get("/api/runs", headers={"origin": BASE}).status_code == 200
    with client.websocket_connect(f"{SOCKETS}/ws/fly", headers={"origin": BASE}) as talk:
        talk.send_json({"do": "nothing", "id": 1})
        assert talk.receive_json()["error"].startswith("unknown do 'nothing'")


@pytest.mark.parametrize("path", ["/ws/fly", "/ws/run/runs/plume-1"])
def test_sockets_need_the_token(stranger, path):
    with pytest.raises(WebSocketDisconnect), stranger.websocket_connect(SOCKETS + path):
        pass


def test_every_response_forbids_what_the_page_does_not_need(client, stranger):
    for path in ("/", "/static/main.js", "/api/runs", "/api/run/none"):
        headers = client.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "name",
    [
        "runs/../elsewhere/secret-1", "../elsewhere/secret-1", "elsewhere/secret-1", "/etc", "runs//etc",
        "runs/%2e%2e/elsewhere/secret-1", "runs/..", "", "runs", "runs/plume-1\0", "runs/" + "x" * 5000,
        "runs/..\\elsewhere\\secret-1", "runs/link",
    ],
)  # fmt: skip
def test_no_name_leads_out_of_the_folders(runs, name):
    (runs / "link").symlink_to(runs.parent / "elsewhere" / "secret-1")
    with pytest.raises(ValueError, match="there is no run"):
        Folders([runs]).find(name)


@given(st.lists(st.sampled_from(["runs", "plume-1", "..", ".", "elsewhere", "secret-1", "", "~"]), max_size=7))
def test_whatever_the_name_the_folder_is_inside(tmp_path_factory, parts):
    root = tmp_path_factory.getbasetemp() / "names"
    if not root.exists():
        write_run(root / "runs" / "plume-1")
        write_run(root / "elsewhere" / "secret-1")
    try:
        found = Folders([root / "runs"]).find("/".join(parts))
    except ValueError:
        return
    assert found == (root / "runs" / "plume-1").resolve()


def test_encoded_paths_do_not_leave_the_static_files_either(client):
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py", "/static//etc/passwd"):
        assert client.get(path).status_code == 404


def test_a_run_can_have_any_name_and_two_folders_can_have_the_same(tmp_path):
    strange = '<script>alert("x")</script>'.replace("/", "")
    write_run(tmp_path / "a" / "runs" / strange)
    write_run(tmp_path / "b" / "runs" / "plume-1")
    folders = Folders([tmp_path / "a" / "runs", tmp_path / "b" / "runs"])
    assert {name for name, _ in folders.names()} == {f"runs/{strange}", "runs-2/plume-1"}
    client = TestClient(make_app([tmp_path / "a" / "runs"], token=TOKEN), base_url=BASE)
    client.get(f"/?token={TOKEN}")
    answer = client.get("/api/runs")
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()[0]["run"] == f"runs/{strange}"


def test_a_run_itself_can_be_shown(runs):
    ((name, folder),) = Folders([runs / "plume-1"]).names()
    assert (name, Folders([runs / "plume-1"]).find(name)) == ("plume-1", folder)


def test_damaged_and_deleted_runs_are_told_in_a_sentence(client, runs):
    (runs / "plume-1" / "config.json").write_text("{")
    assert "damaged" in client.get("/api/runs").json()[0]
    assert "config.json is damaged" in client.get("/api/run/runs/plume-1").json()["problems"][0]
    (runs / "plume-1" / "config.json").unlink()
    assert "there is no run 'runs/plume-1'" in client.get("/api/run/runs/plume-1").json()["error"]


def test_another_port_is_taken_where_the_wanted_one_is_in_use():
    with listen("127.0.0.1", 0) as first, listen("127.0.0.1", first.getsockname()[1]) as second:
        assert first.getsockname()[1] != second.getsockname()[1]
        assert second.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("host", "port", "said"), [("127.0.0.1", 70000, "port must be"), ("203.0.113.9", 0, "host '203")]
)
def test_an_address_that_cannot_be_used_is_told_in_a_sentence(host, port, said):
    with pytest.raises(ValueError, match=said):
        listen(host, port)


def test_the_command_prints_an_address_with_a_fresh_token_and_stops_at_once(runs):
    busy = socket.create_server(("127.0.0.1", 0))
    port = str(busy.getsockname()[1])
    command = [sys.executable, "-m", "gpf", "view", str(runs), "--port", port]
    with busy, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        said = [process.stdout.readline() for _ in range(3)]
        process.send_signal(2)
        _, errors = process.communicate(timeout=60)
    assert said[0].startswith(f"port {port} is in use")
    assert said[1].startswith("http://127.0.0.1:")
    token = said[1].strip().partition("?token=")[2]
    assert len(token) >= 32
    assert set(token) <= set(string.ascii_letters + string.digits + "-_")
    assert (process.returncode, errors) == (0, "")

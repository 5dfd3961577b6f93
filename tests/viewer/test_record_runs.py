import json

import pytest
from made_runs import MadeRun

from gpf.runs.folder import RunError
from gpf.viewer import record_runs
from gpf.viewer.record import LIMIT
from gpf.viewer.record_runs import record_run


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return MadeRun(tmp_path_factory.mktemp("made") / "<script>alert(1)<!--").finish()


@pytest.fixture
def written(monkeypatch):
    """What recordings were asked to hold."""
    held = []
    monkeypatch.setattr(record_runs, "write_page", lambda path, start, answers: held.append((start, answers)) or 1)
    return held


def test_a_recorded_run_is_one_file_within_the_limit_and_has_no_link(made, tmp_path):
    size = record_run(made, tmp_path / "run.html")
    text = (tmp_path / "run.html").read_text()
    assert size == len(text.encode()) < LIMIT
    assert "<script>alert" not in text
    assert 'src="/' not in text
    assert 'href="/' not in text


def test_all_networks_of_a_short_run_are_recorded(made, tmp_path, written):
    record_run(made, tmp_path / "run.html")
    ((start, answers),) = written
    name = "%3Cscript%3Ealert(1)%3C!--"
    assert start == f"#/run/{name}"
    run = answers[f"/api/run/{name}"]
    assert {f"/api/network/{name}?moment={moment['id']}" for moment in run["moments"]} == answers.keys() - {
        f"/api/run/{name}"
    }
    assert len(run["moments"]) == 7  # before and after each of three events, and the last checkpoint


def test_a_run_that_is_too_long_keeps_its_end_and_its_growths(made, tmp_path, written, monkeypatch):
    record_run(made, tmp_path / "run.html")
    sizes = [record_runs._size(answer) for answer in written[0][1].values()]
    monkeypatch.setattr(record_runs, "ROOM", sizes[0] + 2.5 * max(sizes[1:]))
    record_run(made, tmp_path / "run.html")
    (run,) = [answer for path, answer in written[1][1].items() if path.startswith("/api/run/")]
    assert [moment["id"] for moment in run["moments"]][-1] == "last"
    assert "0000-after" in [moment["id"] for moment in run["moments"]]
    assert len(run["moments"]) < 7


def test_a_damaged_network_is_left_out_with_a_sentence(tmp_path, written):
    folder = MadeRun(tmp_path / "run").finish()
    (folder / "spectra" / "0000-after.safetensors").write_bytes(b"x")
    record_run(folder, tmp_path / "run.html")
    run = written[0][1]["/api/run/run"]
    assert "0000-after.safetensors is damaged" in json.dumps(run["problems"])
    assert "0000-after" not in [moment["id"] for moment in run["moments"]]
    with pytest.raises(RunError):
        record_run(tmp_path / "nothing", tmp_path / "run.html")

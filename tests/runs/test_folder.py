import json
import os
import subprocess
import sys

import pytest
import torch

from gpf.runs.folder import (
    Outcome,
    Run,
    RunError,
    cpu_model,
    environment,
    next_folder,
    read_config,
    read_log,
    read_result,
    replace_text,
    versions,
    write_json,
)


def run_in(folder):
    return Run.create(folder / "run", {"a": 1})


def test_lines_are_appended_and_read_back(tmp_path):
    run = run_in(tmp_path)
    run.append("metrics", [{"round": 1, "success": 0.5}])
    run.append("metrics", [{"round": 2, "success": None}, {"round": 3, "success": 1.0}])
    assert [line["round"] for line in read_log(run.folder, "metrics")] == [1, 2, 3]
    assert read_log(run.folder, "events") == []
    assert read_config(run.folder) == {"id": run.id, "a": 1}


def test_versions_name_the_cpu_and_how_torch_was_built(tmp_path):
    found = environment()
    assert versions().items() < found.items()
    assert found["torch_build"].startswith(torch.version.git_version)
    assert torch.backends.cpu.get_cpu_capability() in found["torch_build"]
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz \nmodel name\t: Some CPU @ 2 GHz\n")
    assert cpu_model(info) == "Some CPU @ 2 GHz"
    info.write_text("processor : 0\n")  # as on ARM
    assert cpu_model(info) == cpu_model(tmp_path / "none") != ""
    assert found["cpu"] == cpu_model()


def test_every_run_has_an_identity_of_its_own(tmp_path):
    ids = {Run.create(tmp_path / str(n), {"a": 1}).id for n in range(5)}
    assert len(ids) == 5
    assert Run.open(tmp_path / "0").id in ids


def test_a_run_is_read_back_as_one(tmp_path):
    run = run_in(tmp_path)
    run.append("metrics", [{"round": 1}])
    run.append("events", [{"round": 1, "kind": "grown"}])
    one = Outcome.read(run.folder)
    assert (one.result, one.lines, one.events) == ({}, [{"round": 1}], [{"round": 1, "kind": "grown"}])
    write_json(run.folder / "result.json", {"loss": 1.0})
    assert Outcome.read(run.folder).result == read_result(run.folder) == {"loss": 1.0}


def test_a_line_that_a_killed_process_left_unfinished_is_dropped(tmp_path):
    run = run_in(tmp_path)
    run.append("metrics", [{"round": 1}])
    run.append("events", [{"round": 1}, {"round": 2}])
    with (run.folder / "events.jsonl").open("a") as file:
        file.write('{"round": 3, "ki')
    assert [line["round"] for line in read_log(run.folder, "events")] == [1, 2]
    run.drop_after(1, 1)
    run.append("events", [{"round": 2}])
    assert (run.folder / "events.jsonl").read_text() == '{"round": 1}\n{"round": 2}\n'


@pytest.mark.parametrize(
    "rounds", [[], [1], [2, 3], [1, 3], [1, 1, 2, 3], [1, 2, 2], [1, 3, 2], [3, 2, 1], [0, 1, 2, 3]], ids=str
)
def test_metrics_that_are_not_one_line_for_each_round_are_refused(rounds, tmp_path):
    run = run_in(tmp_path)
    run.append("metrics", [{"round": number} for number in [*rounds, 4]])
    before = (run.folder / "metrics.jsonl").read_text()
    with pytest.raises(RunError, match=r"metrics\.jsonl .*3 rounds") as caught:
        run.drop_after(3, 0)
    assert "\n" not in str(caught.value)
    assert (run.folder / "metrics.jsonl").read_text() == before


@pytest.mark.parametrize("kept", [0, 1, 3])
def test_events_that_are_not_so_many_as_the_checkpoint_counts_are_refused(kept, tmp_path):
    run = run_in(tmp_path)
    run.append("metrics", [{"round": 1}, {"round": 2}])
    run.append("events", [{"round": 1}] * kept + [{"round": 3}])
    with pytest.raises(RunError, match=rf"events\.jsonl has {kept} lines .*counts 2"):
        run.drop_after(2, 2)


def test_a_damaged_line_in_the_middle_is_an_error(tmp_path):
    run = run_in(tmp_path)
    (run.folder / "metrics.jsonl").write_text('{"round": 1}\n{"rou\n{"round": 3}\n')
    with pytest.raises(RunError, match=r"metrics\.jsonl is damaged"):
        read_log(run.folder, "metrics")
    (run.folder / "metrics.jsonl").write_text('{"success": 1}\n')
    with pytest.raises(RunError, match="a line without its round"):
        read_log(run.folder, "metrics")


def test_a_folder_is_never_overwritten(tmp_path):
    run = run_in(tmp_path)
    run.close()
    with pytest.raises(RunError, match=r"run exists; .* --resume"):
        run_in(tmp_path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(RunError, match=r"file exists"):
        Run.create(tmp_path / "file", {})
    assert (tmp_path / "file").read_text() == "mine"


def test_two_processes_cannot_write_to_one_run(tmp_path):
    run = run_in(tmp_path)
    code = f"from gpf.runs.folder import Run; from pathlib import Path; Run.open(Path({str(run.folder)!r}))"
    taken = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "is in use by another process" in taken.stderr
    run.close()
    free = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert free.returncode == 0, free.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "has no config.json"),
        ("", "config.json is damaged"),
        ("{", "config.json is damaged"),
        ("[1]", "config.json is damaged"),
    ],
)
def test_folders_that_are_no_runs_are_refused(text, message, tmp_path):
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    for use in (read_config, Run.open):
        with pytest.raises(RunError, match=message):
            use(tmp_path)


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    write_json(tmp_path / "result.json", {"old": 1})

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_text(tmp_path / "result.json", "new")
    assert json.loads((tmp_path / "result.json").read_text()) == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_names_of_new_runs_count_up(tmp_path):
    (tmp_path / "plume-1").mkdir()
    (tmp_path / "plume-2").mkdir()
    assert next_folder(tmp_path, "plume").name == "plume-3"


def test_a_folder_that_a_killed_process_had_only_locked_can_be_used(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").touch()
    assert read_config(run_in(tmp_path).folder)["a"] == 1


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", "{"])
def test_a_damaged_result_is_refused(text, tmp_path):
    run = run_in(tmp_path)
    (run.folder / "result.json").write_text(text)
    with pytest.raises(RunError, match=r"result\.json is damaged"):
        read_result(run.folder)

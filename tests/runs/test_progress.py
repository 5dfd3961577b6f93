"""Progress of runs: a line for each, whoever tells of it."""

import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path

from rich.console import Console

from gpf.runs.progress import phase_progress, runs_progress, training_progress


class Slow(StringIO):
    """Lets other threads go on between two writes."""

    def write(self, text):
        time.sleep(0.001)
        return super().write(text)


def test_runs_that_end_at_once_have_a_line_each_and_are_counted(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Slow())
    with runs_progress("runs", 8, finished=lambda result: f"score {result['score']}") as tell:

        def one(n):
            tell(Path(str(n)), "begun", {})
            tell(Path(str(n)), "finished", {"score": n})

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(one, range(8)))
        lines = sys.stderr.getvalue().splitlines()
    assert sorted(line.partition(" (")[0] for line in lines) == [f"{n}: score {n}" for n in range(8)]
    assert [line.partition(" (")[2] for line in lines] == [f"{n} of 8)" for n in range(1, 9)]


def test_a_run_that_fails_has_a_line_that_says_why(capsys):
    with runs_progress("runs", 2) as tell:
        tell(Path("a"), "begun", {})
        tell(Path("a"), "failed", {"error": "it diverged"})
    assert capsys.readouterr().err == "a: failed: it diverged (1 of 2)\n"


def test_rounds_are_said_now_and_then_where_no_terminal_is_also_before_anything_is_counted(capsys, monkeypatch):
    """A stream's first rounds are of visit 0, of which nobody can say how long the others will take."""
    monkeypatch.setattr("gpf.runs.progress.time.monotonic", lambda: 100.0)
    with training_progress(
        Path("run"), 4, count="visit", describe=lambda metrics: f"loss {metrics['loss']}"
    ) as display:
        for visit in range(5):
            display.round({"visit": visit, "seconds": 10.0 * visit, "loss": visit})
    told = capsys.readouterr().err.splitlines()
    assert told == ["run: training 0%, loss 0", "run: training 100%, loss 4, 0 s left"]


def test_the_time_that_is_left_is_that_of_the_rounds_so_far(capsys, monkeypatch):
    monkeypatch.setattr("gpf.runs.progress.time.monotonic", lambda: 100.0)
    with training_progress(Path("run"), 4, count="round", describe=lambda metrics: "on") as display:
        display.round({"round": 1, "seconds": 10.0})
    assert capsys.readouterr().err == "run: training 25%, on, 30 s left\n"


def test_every_phase_has_a_line_where_there_is_no_terminal(capsys):
    with training_progress(Path("run"), 1, count="round", describe=lambda metrics: "on") as display:
        display.round({"round": 1, "seconds": 1.0})
        advance = display.phase("evaluation", 200)
        advance(100)
        display.phase("spectra")
    told = capsys.readouterr().err.splitlines()
    assert told == ["run: training 100%, on, 0 s left", "run: evaluation", "run: spectra"]


def test_a_long_phase_says_how_far_it_is(capsys, monkeypatch):
    clock = iter(range(0, 1000, 6))
    monkeypatch.setattr("gpf.runs.progress.time.monotonic", lambda: float(next(clock)))
    with training_progress(Path("run"), 1, count="round") as display:
        advance = display.phase("evaluation", 200)
        advance(50)
        advance(200)
    assert capsys.readouterr().err.splitlines() == ["run: evaluation", "run: evaluation 25%"]


def test_bars_and_times_are_whole_on_a_terminal_of_80_columns(monkeypatch):
    screen = StringIO()
    terminal = Console(file=screen, force_terminal=True, width=80, height=25, color_system=None)
    monkeypatch.setattr("gpf.runs.progress.Console", lambda **how: terminal)
    words = "success 98.7%, depth 3, 45% dense, 123k steps/s"
    with training_progress(Path("runs/plume-1"), 4, count="round", describe=lambda metrics: words) as display:
        display.round({"round": 2, "seconds": 10.0})
        display.bars.refresh()
        display.round({"round": 4, "seconds": 10.0})
        display.phase("evaluation", 100)(100)
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]+", screen.getvalue())]
    half = next(line for line in lines if " 50%" in line)
    assert re.match(r"training +━+ .*50% +[-\d]+:[-\d]+ ", half)
    assert words in half
    assert any(re.match(r"training .* 100% .*\d:\d\d", line) for line in lines)
    assert any(re.match(r"evaluation .* 100% .*\d:\d\d", line) for line in lines)
    assert max(map(len, lines)) <= 80


def test_phases_of_other_work_have_a_line_each(capsys):
    with phase_progress("runs/a") as tell:
        tell("figures")
        tell("spectra")
    assert capsys.readouterr().err == "runs/a: figures\nruns/a: spectra\n"

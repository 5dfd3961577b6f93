"""Progress of runs: a line for each, whoever tells of it."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path

from gpf.runs.progress import runs_progress, training_progress


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
    with training_progress(Path("run"), 4, count="visit", describe=lambda metrics: f"loss {metrics['loss']}") as report:
        for visit in range(5):
            report({"visit": visit, "seconds": 10.0 * visit, "loss": visit})
    assert capsys.readouterr().err.splitlines() == ["run: 0%, loss 0", "run: 100%, loss 4, 0 s left"]


def test_the_time_that_is_left_is_that_of_the_rounds_so_far(capsys):
    with training_progress(Path("run"), 4, count="round", describe=lambda metrics: "on") as report:
        report({"round": 1, "seconds": 10.0})
    assert capsys.readouterr().err == "run: 25%, on, 30 s left\n"

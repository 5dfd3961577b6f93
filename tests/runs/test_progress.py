"""Progress of runs: a line for each, whoever tells of it."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path

from gpf.runs.progress import runs_progress


class Slow(StringIO):
    """Lets other threads go on between two writes."""

    def write(self, text):
        time.sleep(0.001)
        return super().write(text)


def test_runs_that_end_at_once_have_a_line_each_and_are_counted(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Slow())
    with runs_progress("runs", 8, lambda result: f"score {result['score']}") as tell:

        def one(n):
            tell(Path(str(n)), None)
            tell(Path(str(n)), {"score": n})

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(one, range(8)))
        lines = sys.stderr.getvalue().splitlines()
    assert sorted(line.partition(" (")[0] for line in lines) == [f"{n}: score {n}" for n in range(8)]
    assert [line.partition(" (")[2] for line in lines] == [f"{n} of 8)" for n in range(1, 9)]

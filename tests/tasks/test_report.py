"""Reports: one file, everything in it, nothing outside it."""

import base64
import io
import math
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image

from gpf.reports.figures import curves_figure
from gpf.runs.folder import Outcome, RunError, read_log
from gpf.tasks import find_task
from gpf.tasks.plume import TASK
from gpf.tasks.report import write_report

pytestmark = pytest.mark.usefixtures("one_torch_thread", "few_episodes")

VOID = {"meta", "link", "img"}


class Page(HTMLParser):
    """A page taken apart; fails where elements do not close."""

    def __init__(self, text):
        super().__init__()
        self.open, self.images, self.addresses, self.words = [], [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "action", "data", "srcset"):
                self.addresses.append(value)
        if tag == "img":
            self.images.append(dict(attrs)["src"])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture
def begun(tmp_path, short_world):
    """A run with a hostile name in which everything happens, after its first rounds."""
    config = TASK.of({
        "learner": "online", "scenario": str(short_world), "width": 8, "episodes": 30, "round_epochs": 5,
        "validate_every": 2, "validation_episodes": 10, "plan": ["11:grow", "12:keep=0.5"],
        "rules": {"freeze_patience": "null"},
    })  # fmt: skip
    run = TASK.create(tmp_path / "a <b> & 'c'", config)
    training = TASK.training(run, config, 1)
    for _ in range(3):
        training.round()
    return run


def test_a_report_has_everything_in_it_and_asks_for_nothing_outside(begun):
    result = TASK.train(begun, 1)
    path = write_report(begun.folder)
    page = Page(path.read_text())
    text = " ".join(page.words)
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    assert "@import" not in text
    assert "url(" not in text
    assert len(page.images) == 6
    for source in page.images:
        with Image.open(io.BytesIO(base64.b64decode(source.removeprefix("data:image/png;base64,")))) as image:
            assert image.width > 800
    assert "a <b> & 'c'" in text  # escaped, so that it is read as words
    assert f"{result['success']:.2%}" in text
    for event in read_log(begun.folder, "events"):
        assert event["reason"] in text
    for setting in ("exploration_decay", "belief_threshold", "wind_speed", "numba"):
        assert setting in text


def test_a_run_that_is_not_finished_has_a_report_too_and_it_follows(begun):
    first = write_report(begun.folder).read_text()
    assert "not finished" in first
    TASK.train(begun, 1)
    second = write_report(begun.folder).read_text()
    assert "not finished" not in second
    assert write_report(begun.folder).read_text() == second


def test_what_has_no_report_is_refused_in_one_line(tmp_path):
    with pytest.raises(RunError, match="has no config.json"):
        write_report(tmp_path)
    for name in ("plume", "shifting", "regression"):
        other = find_task(name)
        with pytest.raises(RunError, match="has no finished round yet"):
            write_report(other.create(tmp_path / name, other.of({"seed": 1})).folder)


def test_values_that_are_missing_are_left_out_of_curves_and_the_rest_is_drawn():
    lines = [{"round": n, "score": value} for n, value in enumerate([1.0, math.nan, 3.0, math.nan], 1)]
    figure = curves_figure({"score": lambda line: line["score"]}, {"a": [Outcome(Path(), {}, lines, [])]}, "round")
    (line,) = figure.axes[0].lines
    assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([1, 3], [1.0, 3.0])
    nothing = [{"round": 1, "score": math.nan}]
    curves_figure({"score": lambda line: line["score"]}, {"a": [Outcome(Path(), {}, nothing, [])]}, "round")

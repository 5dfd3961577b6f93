"""Reports: one file, everything in it, nothing outside it."""

import base64
import io
import json
from html.parser import HTMLParser

import pytest
from PIL import Image

from gpf.navigation.config import Config
from gpf.runs.folder import RunError, read_log, read_result
from gpf.tasks import plume
from gpf.tasks.plume import Training, create_run, train
from gpf.tasks.report import write_report

pytestmark = pytest.mark.usefixtures("one_torch_thread")

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
def begun(tmp_path, monkeypatch):
    """A run with a hostile name in which everything happens, after its first rounds."""
    monkeypatch.setattr(plume, "EPISODES", 20)
    monkeypatch.setattr("gpf.tasks.report.EPISODES", 20)
    monkeypatch.setattr(plume, "EPOCHS_IN_A_ROUND", {"online": 5})
    monkeypatch.setattr(plume, "ROUNDS_BETWEEN_VALIDATIONS", {"online": 2})
    monkeypatch.setattr(plume, "VALIDATION_EPISODES", {"online": 10})
    (tmp_path / "short.json").write_text(json.dumps({"preset": "reference", "max_steps": 30}))
    config = Config(
        learner="online", scenario=str(tmp_path / "short.json"), width=8, episodes=30,
        plan=("11:grow", "12:keep=0.5"), rules={"freeze_patience": "null"},
    )  # fmt: skip
    run = create_run(tmp_path / "a <b> & 'c'", config)
    training = Training(run, threads=1)
    for _ in range(3):
        training.round()
    return run


def test_a_report_has_everything_in_it_and_asks_for_nothing_outside(begun):
    train(begun, threads=1)
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
    result = read_result(begun.folder)
    assert "a <b> & 'c'" in text  # escaped, so that it is read as words
    assert f"{result['success']:.2%}" in text
    for event in read_log(begun.folder, "events"):
        assert event["reason"] in text
    for setting in ("exploration_decay", "belief_threshold", "wind_speed", "numba"):
        assert setting in text


def test_a_run_that_is_not_finished_has_a_report_too_and_it_follows(begun):
    first = write_report(begun.folder).read_text()
    assert "not finished" in first
    train(begun, threads=1)
    second = write_report(begun.folder).read_text()
    assert "not finished" not in second
    assert write_report(begun.folder).read_text() == second


def test_what_has_no_report_is_refused_in_one_line(begun, tmp_path):
    with pytest.raises(RunError, match=r"^run: no config.json in .*; accepted: a folder that gpf train wrote$"):
        write_report(tmp_path)
    other = create_run(tmp_path / "other", Config(seed=1))
    with pytest.raises(RunError, match=r"^run: .* has no checkpoint yet; accepted:"):
        write_report(other.folder)

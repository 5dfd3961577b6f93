"""Reports: one file, everything in it, nothing outside it."""

import base64
import dataclasses
import html
import io
import json
import math
import shutil
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gpf.navigation.agents import load_navigator, read_run_config
from gpf.reports.figures import curves_figure
from gpf.reports.glossary import TERMS
from gpf.runs.folder import Outcome, RunError, read_log, read_result
from gpf.tasks import find_task, plume_report
from gpf.tasks.conclusions import activations_conclusion, weights_conclusion
from gpf.tasks.plume import TASK
from gpf.tasks.report import write_report
from gpf.tasks.spectra import analyse_run

pytestmark = pytest.mark.usefixtures("one_torch_thread")

VOID = {"meta", "link", "img"}


class Page(HTMLParser):
    """A page taken apart; fails where elements do not close."""

    def __init__(self, text):
        super().__init__()
        self.open, self.images, self.addresses, self.words, self.sections = [], [], [], [], []
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
        if tag == "section":
            self.sections.append(dict(attrs).get("id"))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        """All words, as they are read."""
        return "".join(self.words)

    def pictures(self, kind):
        """The images of a kind, opened."""
        start = f"data:image/{kind};base64,"
        found = [source.removeprefix(start) for source in self.images if source.startswith(start)]
        return [Image.open(io.BytesIO(base64.b64decode(data))) for data in found]


@pytest.fixture(scope="module")
def reported(tmp_path_factory, short_world, few_episodes_in_module):
    """A run with a hostile name in which everything happens; and its report after three rounds, and at its end."""
    config = TASK.of({
        "learner": "online", "scenario": str(short_world), "width": 8, "episodes": 30, "round_epochs": 5,
        "validate_every": 2, "validation_episodes": 10, "plan": ["11:grow", "12:keep=0.5"],
        "rules": {"freeze_patience": "null"},
    })  # fmt: skip
    run = TASK.create(tmp_path_factory.mktemp("report") / "a <b> & 'c'", config)
    training = TASK.training(run, config, 1)
    for _ in range(3):
        training.round()
    first = write_report(run.folder).read_text()
    TASK.train(run, 1)
    return run.folder, first, write_report(run.folder).read_text()


def test_a_report_has_everything_in_it_and_asks_for_nothing_outside(reported):
    folder, _, report = reported
    page = Page(report)
    text = page.text
    assert all(address.startswith(("#", "data:")) for address in page.addresses)
    assert "@import" not in text
    assert "url(" not in text
    assert page.sections == [
        "episode", "trajectories", "learning", "events", "network", "spectra", "plasticity", "settings", "terms",
    ]  # fmt: skip
    assert len(page.pictures("png")) + len(page.pictures("webp")) == len(page.images)
    assert all(image.width > 300 for image in page.pictures("png"))
    assert "a <b> & 'c'" in text  # escaped, so that it is read as words
    assert f"{read_result(folder)['success']:.2%}" in text
    for event in read_log(folder, "events"):
        assert event["reason"] in text
    for setting in ("exploration_decay", "belief_threshold", "wind_speed", "numba"):
        assert setting in text


def test_a_run_that_is_not_finished_has_a_report_too_and_it_follows(reported):
    folder, first, second = reported
    assert "not finished" in first
    assert "not finished" not in second
    assert write_report(folder).read_text() == second


@pytest.fixture(scope="module")
def finished(plume_run, tmp_path_factory, few_episodes_in_module):
    """A finished run of a policy, with its report, to read; and the phases that were told of."""
    folder = shutil.copytree(plume_run, tmp_path_factory.mktemp("finished") / "run")
    phases = []
    write_report(folder, phases.append)
    return folder, Page((folder / "report.html").read_text()), phases


@pytest.fixture
def episodes_only(monkeypatch):
    """Reports without what does not depend on held-out episodes and takes most of the time."""
    for part in ("_learning", "_network", "_spectra", "_plasticity"):
        monkeypatch.setattr(plume_report, part, lambda *arguments: "")


def outcomes(monkeypatch, success):
    """Held-out episodes have these outcomes in reports, whatever the navigator does."""
    held_out = plume_report._held_out

    def changed(*arguments):
        found = held_out(*arguments)
        return dataclasses.replace(found, success=np.resize(success, found.episodes))

    monkeypatch.setattr(plume_report, "_held_out", changed)


def without_evaluation(source, folder):
    """A copy of a run that was not evaluated when it ended."""
    shutil.copytree(source, folder)
    result = json.loads((folder / "result.json").read_text())
    for name in ("success", "low", "high", "mean_steps", "spl"):
        result[name] = None
    (folder / "result.json").write_text(json.dumps({**result, "episodes": 0}))
    (folder / "figures" / "trajectories.png").unlink()
    (folder / "held_out.npz").unlink()
    return folder


def test_phases_are_told_of_before_they_begin(finished):
    assert finished[2] == ["episodes", "figures", "animations", "spectra"]


def test_reasons_name_the_metric_that_the_rules_look_at(finished):
    folder, page, _ = finished
    grown = next(event for event in read_log(folder, "events") if event["kind"] == "grown")
    assert grown["reason"].startswith("the metric improved by ")
    assert f"SPL of the last 500 training episodes{grown['reason'].removeprefix('the metric')}" in page.text
    assert "the metric" not in page.text
    online = TASK.of({"learner": "online"})
    assert TASK.named([{"reason": "the metric fell"}], online) == [
        {"reason": "success rate of the last validation fell"}
    ]


def test_the_world_in_the_settings_has_the_reward_of_the_header(finished):
    folder, page, _ = finished
    config, world = read_run_config(folder)
    assert f"reward {config.learner.reward}," in page.text
    paid = config.rewarded(world)
    assert paid.reward_time != world.reward_time  # else nothing could be contradicted
    words = [word for word in page.words if word.strip()]
    for name in ("reward_time", "reward_success", "reward_whiff", "reward_blank", "shaping_discount"):
        assert words[words.index(name) + 1] == str(getattr(paid, name))
        assert words.count(name) == 1


def test_terms_are_explained_where_they_first_appear(finished):
    folder, page, _ = finished
    report = (folder / "report.html").read_text()
    for term in ("SPL", "density", "belief", "whiff", "bulk", "plasticity", "held-out"):
        assert report.count(f'href="#term-{term.lower()}"') == 1
        assert report.count(f'id="term-{term.lower()}"') == 1
    assert f">{html.escape(TERMS['SPL'])}</dd>" in report


@pytest.mark.usefixtures("episodes_only")
def test_animations_last_for_seconds_and_end_where_the_episode_does(finished, monkeypatch, tmp_path):
    folder = shutil.copytree(finished[0], tmp_path / "run")
    outcomes(monkeypatch, [True, False])
    page = Page(write_report(folder).read_text())
    films = page.pictures("webp")
    assert len(films) == 2
    for image in films:
        duration = 0
        for n in range(image.n_frames):
            image.seek(n)
            image.load()
            duration += image.info["duration"]
        assert 2000 <= duration <= 12_000
    assert "Failed episode" in page.text
    assert "episodes found the source." not in page.text


@pytest.mark.usefixtures("episodes_only")
def test_no_failed_episode_is_shown_where_none_failed(finished, monkeypatch, tmp_path):
    folder = without_evaluation(finished[0], tmp_path / "run")
    outcomes(monkeypatch, [True])
    page = Page(write_report(folder).read_text())
    assert len(page.pictures("webp")) == 1
    assert "Failed episode" not in page.text
    assert "All 20 episodes found the source." in page.text
    with Image.open(folder / "figures" / "trajectories.png") as image:
        assert image.width > 1.5 * image.height  # one panel next to another; three take two rows


@pytest.mark.usefixtures("episodes_only")
def test_where_all_failed_the_first_is_explained(finished, monkeypatch, tmp_path):
    folder = without_evaluation(finished[0], tmp_path / "run")
    outcomes(monkeypatch, [False])
    page = Page(write_report(folder).read_text())
    assert len(page.pictures("webp")) == 1
    assert "Typical episode" not in page.text
    assert "None of 20 episodes found the source." in page.text
    assert "No episode found the source; this is the first" in page.text


def test_the_episodes_of_a_report_are_those_of_the_result(finished):
    """Both are read from one file, so that a report cannot contradict its run."""
    folder = finished[0]
    navigator, result = load_navigator(folder), read_result(folder)
    kept = plume_report._held_out(folder, navigator, evaluated=True)
    assert (kept.episodes, kept.summary()["spl"]) == (result["episodes"], result["spl"])
    assert kept.steps.tolist() == navigator.evaluate(result["episodes"]).steps.tolist()


def test_the_typical_episode_is_the_median_of_those_that_found_the_source(finished):
    navigator = load_navigator(finished[0])
    result = dataclasses.replace(
        navigator.evaluate(7),
        success=np.array([True, False, True, True, False, True, True]),
        steps=np.array([9, 30, 3, 7, 30, 5, 6]),
    )
    looked = plume_report._look(navigator, result)
    assert (looked.typical, looked.failed) == (6, 1)  # of 3, 5, 6, 7 and 9 steps


@pytest.mark.usefixtures("episodes_only")
def test_a_report_says_that_training_regressed(finished, tmp_path):
    folder = shutil.copytree(finished[0], tmp_path / "run")
    result = read_result(folder)
    best = {**result, "success": 0.875, "low": 0.8, "high": 0.9}
    changes = {"regressed": True, "best": best, "validation": {"last": 0.638, "best": 0.844}}
    (folder / "result.json").write_text(json.dumps({**result, **changes}))
    page = Page(write_report(folder).read_text())
    assert "Training regressed" in page.text
    for number in ("63.8%", "84.4%", "87.50%"):
        assert number in page.text


@pytest.mark.usefixtures("episodes_only")
def test_a_run_that_was_not_evaluated_has_a_report_all_the_same(finished, tmp_path):
    folder = without_evaluation(finished[0], tmp_path / "run")
    page = Page(write_report(folder).read_text())
    assert "20 held-out episodes" in page.text
    assert "not finished" not in page.text
    assert page.sections[0] == "episode"  # no table of checkpoints
    assert (folder / "figures" / "trajectories.png").exists()


def test_conclusions_are_those_of_the_numbers(finished):
    folder, page, _ = finished
    final = analyse_run(folder, 4)[-1].inspection
    assert weights_conclusion(final) in page.text
    assert activations_conclusion(final) in page.text


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

import json
import re
import shutil

import pytest
from axe_playwright_python.sync_playwright import Axe
from made_runs import ROUNDS, STEPS, MadeRun, save_transformer
from playwright.sync_api import expect

from gpf.viewer import live
from gpf.viewer.record_runs import record_run

NAME = "run <script>document.title='broken'</script>"
expect.set_options(timeout=60_000)  # other tests have the other cores


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two variants with three seeds each, a checkpoint, and a run in a stream of worlds."""
    folder = tmp_path_factory.mktemp("browser") / "runs"
    for width in (6, 10):
        for seed in (900, 901, 902):
            MadeRun(folder / f"width-{width}-{seed}", seed, width).finish()
    save_transformer(folder / "mine")
    stream = MadeRun(folder / "stream").round()
    for n, regime in enumerate(["home", "<i>gale</i>", "home"]):
        visit = {"regime": regime, "step": 400 * (n + 1), "ended": [5] * 8, "found": [n, 1, 2, 3, 4, 5, 5, 5]}
        stream.run.append("metrics", [{"round": n + 2, "step": 400 * (n + 1), "visits": [visit]}])
    stream.run.close()
    return folder


@pytest.fixture
def often(monkeypatch):
    """Folders are looked at more often than in earnest."""
    monkeypatch.setattr(live, "INTERVAL", 0.05)


def address(served, *names, view="run"):
    quoted = ",".join(name.replace("/", "%2F").replace(" ", "%20").replace("<", "%3C") for name in names)
    return f"{served.url}#/{view}/{quoted}" if view == "run" else f"{served.url}#/compare?runs={quoted}"


def layers(page):
    """Rows of the table of layers that are in the stack."""
    return page.locator(".layers tbody tr[data-place]")


def table_of(page, title):
    """The rows of the table under a chart, which is opened."""
    figure = page.locator("figure", has=page.locator("figcaption b", has_text=title).first).first
    if figure.locator("details").get_attribute("open") is None:
        figure.locator("summary").click()
    return figure.locator("tbody tr")


def picture(page, name="network"):
    return page.locator(f"canvas.{name}").first.evaluate("canvas => canvas.toDataURL()")


def violations(page):
    found = Axe().run(page).response["violations"]
    return [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")]


def test_scrubbing_to_a_growth_shows_the_layers_as_they_were(serve, open_page, runs, artefact):
    page = open_page(address(serve(runs), "runs/width-10-900"))
    expect(layers(page)).to_have_count(2)
    now = picture(page)
    page.get_by_role("button", name="Start", exact=True).click()
    expect(layers(page)).to_have_count(1)
    expect(page.locator(".about")).to_contain_text("just before the event")
    start = picture(page)
    page.get_by_role("button", name="Next growth").click()
    expect(layers(page)).to_have_count(2)
    expect(page.locator(".reason")).to_contain_text("grown layer 1, at step 300. Reason: the loss has not fallen")
    expect(page.locator("canvas.network")).to_have_attribute(
        "aria-label", "Network of 2 layers, density 1.000, none frozen."
    )
    assert len({now, start, picture(page)}) == 3
    page.screenshot(path=artefact("run-growth"), full_page=True)


def test_the_timeline_is_worked_by_keyboard(serve, open_page, runs):
    page = open_page(address(serve(runs), "runs/width-10-900"))
    slider = page.get_by_role("slider", name="Moment of the run")
    slider.focus()
    slider.press("Home")
    expect(slider).to_have_attribute("aria-valuetext", "The start, before the first event.")
    for kind in ("grown", "pruned", "frozen"):
        slider.press("ArrowRight")
        expect(slider).to_have_attribute("aria-valuetext", re.compile(kind))
    expect(layers(page).filter(has_text="frozen")).to_have_count(1)
    slider.press("End")
    expect(page.locator(".reason")).to_have_text("Now, after the last event.")
    link = page.get_by_role("button", name="2 pruned")
    link.focus()
    link.press("Enter")
    expect(page.get_by_role("button", name="2 pruned")).to_be_focused()
    expect(page.locator(".reason")).to_contain_text("pruned")


def test_belief_and_matrices_are_other_drawings(serve, open_page, runs):
    page = open_page(address(serve(runs), "runs/width-10-900"))
    expect(layers(page)).to_have_count(2)
    seen = {picture(page)}
    page.get_by_label("Show units").or_(page.locator("#network-view")).first.select_option("matrices")
    seen.add(picture(page))
    page.locator("#network-colour").select_option("belief")
    seen.add(picture(page))
    assert len(seen) == 3


def test_weights_that_are_not_on_disk_are_said_to_be_missing(serve, open_page, runs, tmp_path):
    copy = shutil.copytree(runs / "width-6-900", tmp_path / "runs" / "copy")
    shutil.rmtree(copy / "spectra")
    page = open_page(address(serve(tmp_path / "runs"), "runs/copy"))
    expect(layers(page)).to_have_count(2)
    page.get_by_role("button", name="Previous event").click()
    expect(page.locator(".about")).to_contain_text("not on disk")
    expect(layers(page)).to_have_count(2)
    expect(layers(page).filter(has_text="frozen")).to_have_count(1)


def test_a_transformer_of_ones_own_is_shown_from_its_checkpoint(serve, open_page, runs, artefact):
    page = open_page(address(serve(runs), "runs/mine"))
    expect(layers(page)).to_have_count(3)
    expect(page.locator(".layers")).to_contain_text("transformer.wte")
    expect(page.locator("#network-view")).to_be_disabled()
    page.screenshot(path=artefact("run-transformer"), full_page=True)


def test_curves_have_tables_and_the_stream_its_regimes(serve, open_page, runs, artefact):
    page = open_page(address(serve(runs), "runs/stream"))
    success = table_of(page, "success rate within visits")
    expect(success.first).to_contain_text("0")
    assert 2 < success.count() <= 12
    expect(page.locator(".legend").first).to_contain_text("<i>gale</i>")
    page.screenshot(path=artefact("run-stream"), full_page=True)


def test_a_live_run_adds_points_and_events_for_two_viewers(serve, open_page, tmp_path, often, artefact):
    made = MadeRun(tmp_path / "live" / "run").round()
    served = serve(tmp_path / "live")
    pages = [open_page(address(served, "live/run")) for _ in range(2)]
    for page in pages:
        expect(page.locator(".running")).to_be_visible()
        expect(table_of(page, "loss")).to_have_count(1)
    made.round().round()
    for page in pages:
        expect(table_of(page, "loss")).to_have_count(3)
        expect(page.locator(".events tbody tr")).to_have_count(1)
        expect(layers(page)).to_have_count(2)
        expect(table_of(page, "validation, success")).to_have_count(1)  # first measured in the second round
        grown = table_of(page, "effective rank").locator("td:last-child")
        expect(grown).to_have_text(["-", "-", "6"])  # layer 1 is there since the third
    pages[0].screenshot(path=artefact("run-live"), full_page=True)
    made.finish()
    for page in pages:
        expect(page.locator("p", has_text="made, seed 900, finished")).to_be_visible()
        expect(table_of(page, "loss")).to_have_count(ROUNDS)


def test_a_page_says_that_the_server_has_stopped_and_connects_again(serve, open_page, tmp_path, often):
    made = MadeRun(tmp_path / "live" / "run").round()
    served = serve(tmp_path / "live")
    open_page.allowed += ["WebSocket", "ERR_CONNECTION_REFUSED"]
    page = open_page(address(served, "live/run"))
    expect(page.locator(".running")).to_be_visible()
    served.stop()
    expect(page.locator(".status")).to_contain_text("The next attempt to reach it is in")
    made.round()
    serve(tmp_path / "live", port=served.port)
    expect(page.locator(".status")).to_be_empty()
    expect(table_of(page, "loss")).to_have_count(2)
    made.run.close()


def test_a_run_that_is_deleted_while_it_is_open_is_a_sentence(serve, open_page, tmp_path, runs, often):
    shutil.copytree(runs / "width-6-900", tmp_path / "runs" / "copy")
    page = open_page(address(serve(tmp_path / "runs"), "runs/copy"))
    expect(layers(page)).to_have_count(2)
    (tmp_path / "runs" / "copy").rename(tmp_path / "gone")
    expect(page.get_by_role("alert")).to_have_text("The folder of this run was deleted.")


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "events.jsonl", "result.json"])
def test_a_malformed_run_is_shown_as_far_as_it_can_be(serve, open_page, tmp_path, runs, name):
    copy = shutil.copytree(runs / "width-6-900", tmp_path / "runs" / "copy")
    (copy / name).write_text('{"round": 1, "step": \n[[[\n')
    page = open_page(address(serve(tmp_path / "runs"), "runs/copy"))
    expect(page.get_by_role("alert")).to_contain_text(name)
    expect(layers(page)).to_have_count(2)


def test_a_run_that_is_not_there_is_a_sentence(serve, open_page, runs):
    open_page.allowed += ["404", "there is no run"]
    page = open_page(address(serve(runs), "runs/none"))
    expect(page.get_by_role("alert")).to_contain_text("there is no run 'runs/none'")


def test_names_and_reasons_with_markup_are_text(serve, open_page, tmp_path):
    made = MadeRun(tmp_path / "runs" / NAME.replace("/", ""), note="<img src=x onerror=alert(1)>").round()
    event = made.net.grow("<b>bold</b>").to_json()
    made.run.append("events", [{"round": 1, "step": STEPS, **event, "kind": "<script>"}])
    made.run.close()
    served = serve(tmp_path / "runs")
    page = open_page(address(served, f"runs/{NAME.replace('/', '')}"))
    expect(page.locator("h1")).to_have_text(f"runs/{NAME.replace('/', '')}")
    expect(page.locator(".events")).to_contain_text("<b>bold</b>")
    assert page.locator("#content img, #content script, #content b >> text=bold").count() == 0
    assert page.title() != "broken"


def test_runs_are_compared_with_bands_by_variant(serve, open_page, runs, artefact):
    names = [f"runs/width-{width}-{seed}" for width in (6, 10) for seed in (900, 901, 902)]
    page = open_page(address(serve(runs), *names, view="compare"))
    expect(page.locator("section li")).to_have_count(2)
    expect(table_of(page, "density").last).to_contain_text(" to ")
    page.screenshot(path=artefact("run-compare"), full_page=True)
    page.get_by_role("link", name="runs/width-6-901").click()
    expect(page.locator("h1")).to_have_text("runs/width-6-901")
    page.get_by_text("Compare with other runs").click()
    page.get_by_label("runs/width-10-900").check()
    page.get_by_role("link", name="Compare", exact=True).click()
    expect(page.locator("section li")).to_have_count(2)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_a_run_is_readable_at_both_widths_and_in_both_themes(serve, open_page, runs, artefact, scheme, width):
    served = serve(runs)
    page = open_page(address(served, "runs/width-10-900"), width=width, color_scheme=scheme)
    expect(layers(page)).to_have_count(2)
    for summary in page.locator("summary").all():
        summary.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=artefact(f"run-{scheme}-{width}"), full_page=True)
    assert violations(page) == []
    compared = open_page(
        address(served, "runs/width-10-900", "runs/mine", view="compare"), width=width, color_scheme=scheme
    )
    expect(compared.get_by_role("alert")).to_contain_text("runs/mine is left out")
    assert compared.evaluate("document.documentElement.scrollWidth") <= width
    assert violations(compared) == []


def test_a_theme_is_drawn_with_other_colours(serve, open_page, runs):
    page = open_page(address(serve(runs), "runs/width-10-900"), color_scheme="light")
    expect(layers(page)).to_have_count(2)
    light = picture(page), picture(page, "chart")
    page.emulate_media(color_scheme="dark")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    assert light[0] != picture(page)
    assert light[1] != picture(page, "chart")


def test_a_recorded_run_plays_without_a_server(open_page, runs, tmp_path, artefact):
    record_run(runs / "width-10-900", tmp_path / "run.html")
    page = open_page((tmp_path / "run.html").as_uri())
    expect(layers(page)).to_have_count(2)
    page.get_by_role("button", name="Start", exact=True).click()
    expect(layers(page)).to_have_count(1)
    expect(table_of(page, "loss")).to_have_count(ROUNDS)
    page.screenshot(path=artefact("run-recorded"), full_page=True)


def test_a_run_with_ten_thousand_events_is_opened_and_scrubbed(serve, open_page, tmp_path):
    made = MadeRun(tmp_path / "runs" / "long").round()
    line = json.loads((tmp_path / "runs" / "long" / "metrics.jsonl").read_text())
    event = made.net.grow("it was time").to_json()
    made.run.append("metrics", [{**line, "step": STEPS * n, "loss": 1 / n} for n in range(2, 10_001)])
    made.run.append("events", [{"round": n, "step": STEPS * n, **event} for n in range(2, 10_002)])
    made.run.close()
    page = open_page(address(serve(tmp_path / "runs"), "runs/long"))
    expect(page.locator(".timeline")).to_contain_text("10000 events")
    page.get_by_role("button", name="Previous event").click()
    expect(page.locator(".reason")).to_contain_text("Event 10000: grown")
    assert page.locator(".events tbody tr").count() == 40

"""The page of episodes in a browser: it plays, flies, steers, drags, fits and can be used without seeing it."""

import json
import re
import shutil
from itertools import pairwise

import pytest
from axe_playwright_python.sync_playwright import Axe

from gpf.viewer.flying import Pilot
from gpf.viewer.record import LIMIT
from gpf.viewer.record_episodes import record_episode
from gpf.zoo import run_folder

PICTURE = "document.querySelector('canvas.plume').toDataURL()"
CAST = "world=paper&policy=cast-and-surge"


@pytest.fixture
def runs(tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture
def fly(serve, open_page, runs):
    """Opens the page of episodes and waits for the first of them."""
    server = serve(runs)

    def open_(query=f"{CAST}&seed=1", **options):
        page = open_page(f"{server.url}#/fly?{query}", **options)
        wait_for_step(page, 1)
        page.server = server
        return page

    return open_


def step_of(page):
    return int(re.match(r"Step (\d+)", page.locator("#status").text_content())[1])


def wait_for_step(page, step):
    page.wait_for_function(
        "step => Number(/^Step (\\d+)/.exec(document.getElementById('status')?.textContent)?.[1]) >= step", arg=step
    )


def pause(page):
    page.get_by_role("button", name="Pause").click()


def distance_of(page):
    return float(re.search(r"([\d.]+) m from the source", page.locator("#status").text_content())[1])


def marker(page, what):
    """Where the agent or the source is on the screen, by the frame that is shown."""
    box = page.locator("canvas.plume").bounding_box()
    x, y = page.evaluate("what => window.gpfView.places()[what]", what)
    return box["x"] + x * box["width"], box["y"] + (1 - y) * box["height"]


def serious(page):
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {node['html']}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]


def test_an_episode_plays_and_pauses_and_can_be_scrubbed(fly, artefact):
    page = fly()
    before = page.evaluate(PICTURE)
    wait_for_step(page, step_of(page) + 3)
    assert page.evaluate(PICTURE) != before
    pause(page)
    still = page.evaluate(PICTURE)
    page.wait_for_timeout(300)
    assert page.evaluate(PICTURE) == still
    page.get_by_label("Step", exact=True).fill("2")
    assert step_of(page) == 2
    page.locator("canvas.plume").press("ArrowRight")
    assert step_of(page) == 3
    page.screenshot(path=artefact("fly-1280"), full_page=True)


def test_speed_and_the_end_of_an_episode(fly):
    page = fly()
    page.get_by_label("Speed").select_option("32")
    page.wait_for_function("() => /Found|Lost|Out of time/.test(document.getElementById('status').textContent)")
    page.get_by_role("button", name="Play").wait_for()  # it has stopped
    assert page.locator("#live").text_content() == page.locator("#status").text_content()


def test_another_seed_is_another_episode_and_the_same_seed_the_same(fly):
    page = fly()
    starts = []
    for seed in ("7", "8", "7"):
        page.get_by_label("Seed").fill(seed)
        page.get_by_role("button", name="New episode").click()
        page.wait_for_function("seed => window.gpfView.seed() === seed", arg=int(seed))
        wait_for_step(page, 1)
        pause(page)
        page.get_by_label("Step", exact=True).fill("0")
        starts.append(page.evaluate(PICTURE))
    assert starts[0] == starts[2] != starts[1]


def test_the_next_failure_is_another_seed_and_ends_without_the_source(fly):
    page = fly("world=fly-many&policy=random&seed=0")
    page.get_by_role("button", name="Next failure").click()
    page.wait_for_function("() => window.gpfView.seed() > 0")
    assert int(page.get_by_label("Seed").input_value()) > 0
    wait_for_step(page, 1)
    page.get_by_label("Speed").select_option("32")
    page.wait_for_function("() => /Found|Lost|Out of time/.test(document.getElementById('status').textContent)")
    assert "Found" not in page.locator("#status").text_content()


def test_the_source_and_the_agent_can_be_dragged(fly, artefact):
    page = fly()
    pause(page)
    for what in ("source", "agent"):
        before, (x, y) = distance_of(page), marker(page, what)
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 40, y + 60, steps=3)
        page.mouse.up()
        page.wait_for_function(
            "before => !document.getElementById('status').textContent.includes(before)", arg=f"{before} m"
        )
        new = marker(page, what)
        assert new == pytest.approx((x + 40, y + 60), abs=2)
    step = step_of(page)
    page.screenshot(path=artefact("dragged"), full_page=True)
    page.get_by_role("button", name="Play").click()
    wait_for_step(page, step + 2)  # and it goes on from there


def test_what_can_be_dragged_can_be_moved_by_keyboard_too(fly):
    page = fly("world=office&policy=cast-and-surge&seed=1")
    pause(page)
    page.get_by_label("Move", exact=True).select_option("Source")
    assert float(page.get_by_label("x, m").input_value()) == pytest.approx(
        20 * page.evaluate("window.gpfView.places().source[0]")
    )
    page.get_by_label("x, m").fill("1.1")
    page.get_by_label("y, m").fill("1.1")
    page.locator("form.move button").click()
    assert "source must not be in an obstacle" in page.get_by_role("alert").text_content()
    page.get_by_label("x, m").fill("4")
    page.get_by_label("y, m").fill("8")
    page.locator("form.move button").click()
    page.wait_for_function("() => window.gpfView.places().source[0] === 0.2")
    assert page.get_by_role("alert").count() == 0


def test_a_person_steers_by_keyboard_next_to_the_navigator(fly, artefact):
    page = fly()
    pause(page)
    page.get_by_label("Step", exact=True).fill("0")
    page.get_by_role("button", name="Steer it yourself").click()
    page.get_by_text(re.compile(r"cast-and-surge (found the source|did not find it) in \d+ steps")).wait_for()
    headings = [page.evaluate("window.gpfView.heading()")]
    for key in ("ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"):
        page.keyboard.press(key)
        page.wait_for_function("step => window.gpfView.step() === step", arg=len(headings))
        headings.append(page.evaluate("window.gpfView.heading()"))
    left, right, ahead, around = ((b - a + 9.42478) % 6.28319 - 3.14159 for a, b in pairwise(headings))
    assert left == pytest.approx(0.2618, abs=0.01)  # counter-clockwise
    assert right == pytest.approx(-0.2618, abs=0.01)
    assert ahead == pytest.approx(0.0, abs=0.01)
    assert abs(around) == pytest.approx(3.14159, abs=0.01)
    page.get_by_role("button", name="Play").click()  # it flies on by itself, straight ahead
    page.keyboard.down("ArrowLeft")
    wait_for_step(page, 12)
    page.keyboard.up("ArrowLeft")
    page.screenshot(path=artefact("steering"), full_page=True)
    pause(page)
    assert page.get_by_role("button", name="Steer it yourself").get_attribute("aria-pressed") == "true"


def test_senses_and_thoughts_are_shown(fly):
    page = fly("world=turbulent&policy=zoo:turbulent&seed=3")
    wait_for_step(page, 5)
    pause(page)
    shares = [float(text.rstrip(" %")) for text in page.locator("ul[aria-label=Actions] .amount").all_text_contents()]
    assert sum(shares) == pytest.approx(100, abs=4)
    assert page.locator("ul[aria-label='Memory features'] li").count() == 16
    assert page.get_by_role("heading", name=re.compile(r"Value: -?\d")).is_visible()
    assert re.fullmatch(r"(BLANK|C\d)", page.locator(".tokens dd").first.text_content())


def test_layers_can_be_hidden(fly):
    page = fly()
    wait_for_step(page, 5)
    pause(page)
    seen = {page.evaluate(PICTURE)}
    for layer in ("Filaments", "Wind", "Trail", "Concentration"):
        page.get_by_label(layer).uncheck()
        seen.add(page.evaluate(PICTURE))
    assert len(seen) == 5


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_it_fits_and_has_no_serious_accessibility_violations(fly, artefact, width, scheme):
    page = fly("world=turbulent&policy=zoo:turbulent&seed=3", width=width, color_scheme=scheme)
    wait_for_step(page, 20)
    pause(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    page.screenshot(path=artefact(f"fly-{width}-{scheme}"), full_page=True)
    assert serious(page) == []


def test_who_prefers_less_motion_starts_an_episode_themselves(serve, open_page, runs):
    page = open_page(f"{serve(runs).url}#/fly?{CAST}&seed=1", reduced_motion="reduce")
    page.wait_for_function("() => window.gpfView.frames().frames.length > 10")
    assert step_of(page) == 0
    page.get_by_role("button", name="Play").click()
    wait_for_step(page, 2)


def test_the_theme_can_be_switched_and_is_remembered(fly):
    page = fly()
    pause(page)
    background = "getComputedStyle(document.body).backgroundColor"
    light, picture = page.evaluate(background), page.evaluate(PICTURE)
    for name in ("light", "dark"):
        page.get_by_role("button", name="Theme").click()
        page.get_by_role("button", name=f"Theme: {name}").wait_for()
    assert page.evaluate(background) != light
    assert page.evaluate(PICTURE) != picture
    page.reload()
    wait_for_step(page, 1)
    assert page.get_by_role("button", name="Theme: dark").is_visible()


def test_everything_can_be_reached_with_the_tab_key_and_shows_it(fly):
    page = fly()
    pause(page)
    page.evaluate("document.activeElement.blur()")
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            "() => { const e = document.activeElement, name = e.ariaLabel || e.textContent.trim() || e.id;"
            " return [e === document.body ? '' : name, getComputedStyle(e).outlineStyle]; }"
        )
        if name and name not in seen:
            seen.append(name)
            assert outline != "none", name
    for name in ("Skip to content", "Fly", "Plume", "Play", "Step", "New episode", "Next failure", "Steer it yourself"):
        assert name in seen


def test_a_navigator_can_be_flown_from_the_page_of_its_run(serve, open_page, runs):
    shutil.copytree(run_folder("zoo:reference"), runs / "mine")
    page = open_page(serve(runs).url)
    page.get_by_role("link", name="runs/mine").click()
    page.get_by_role("link", name="Fly this navigator").click()
    wait_for_step(page, 2)
    assert json.loads(page.get_by_label("Policy").input_value())["name"] == "runs/mine"
    assert page.get_by_label("World").input_value() == "own"


def test_a_name_from_a_run_folder_is_text(serve, open_page, runs):
    name = "<img src=x onerror=alert(1)>"
    (runs / name).mkdir()
    (runs / name / "config.json").write_text(json.dumps({"task": "<b>task</b>", "config": {"seed": 1}}))
    page = open_page(serve(runs).url)
    page.get_by_text(name).wait_for()
    assert page.locator("img, main b").count() == 0
    assert serious(page) == []


def test_a_server_that_stops_is_told_and_what_was_flown_can_still_be_seen(fly, open_page):
    page = fly()
    open_page.allowed += ["ERR_CONNECTION_REFUSED", "WebSocket"]
    wait_for_step(page, 5)
    page.server.stop()
    assert "The connection to the server is lost" in page.get_by_role("alert").text_content()
    page.get_by_label("Step", exact=True).fill("1")
    assert step_of(page) == 1


def test_a_recorded_episode_plays_from_one_small_file(open_page, artefact, tmp_path):
    path = tmp_path / "episode.html"
    size = record_episode(path, Pilot.trained("zoo:turbulent", "zoo:turbulent"), "turbulent", 1)
    assert size == path.stat().st_size < LIMIT
    page = open_page(path.as_uri(), width=400)
    wait_for_step(page, 3)
    before = page.evaluate(PICTURE)
    pause(page)
    page.get_by_label("Step", exact=True).fill("200")
    assert page.evaluate(PICTURE) != before
    assert page.get_by_role("heading", name="zoo:turbulent in turbulent, seed 1").is_visible()
    assert page.get_by_role("button", name="New episode").count() == 0
    page.screenshot(path=artefact("recorded-400"), full_page=True)
    assert serious(page) == []

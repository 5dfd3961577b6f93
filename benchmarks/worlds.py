"""All presets on one page: a picture and a table of how hard they are.

    python benchmarks/worlds.py [--episodes 500] [--write]

Evaluates cast-and-surge and the random policy in every preset, on episodes that nothing else uses, and measures how
often there is odour on the plume's axis. `--write` puts the table into docs/plume.md, a frame of every preset into
docs/images/worlds.png and an episode of `turbulent` into docs/images/turbulent.gif.
"""

import argparse
import itertools

import numpy as np
from documents import ROOT, insert
from PIL import Image, ImageDraw, ImageFont

from gpf.navigation.evaluate import Evaluation, evaluate, film
from gpf.navigation.policies import CastAndSurge, Random
from gpf.navigation.seeds import BLOCK, HELD_OUT
from gpf.plume.presets import PRESETS
from gpf.plume.realism import realism
from gpf.plume.render import COLOURS, Frame, save_animation
from gpf.plume.scenario import Scenario
from gpf.plume.survey import survey
from gpf.plume.world import World
from gpf.reports.tables import markdown_table

ABOUT = {
    "paper": "the paper's text: dense plume, gusty wind",
    "reference": "the authors' code: shorter starts",
    "meandering": "thin filaments, wind that swings slowly",
    "gusty": "strong wind, gusts in speed and direction",
    "turbulent": "wind differs from place to place; whiffs",
    "weak-source": "a third of the filaments, half the mass",
    "calm": "0.3 m/s: the plume is wide and wanders",
    "two-sources": "either source counts",
    "decoy": "another substance, in blue, does not count",
    "office": "walls and desks divert wind and odour",
    "slow-sensor": "metal oxide: 3 s rise, 12 s recovery",
    "fast-sensor": "fast electronic nose, five sub-steps",
    "fly-constant": "flies' assay: steady wind",
    "fly-once": "flies' assay: the wind turns once",
    "fly-many": "flies' assay: the wind turns every 3 s",
}
"""What is special about each preset."""
SEEDS = HELD_OUT + 7_001 * BLOCK
"""Seeds of these episodes; comparisons use blocks from 0 on."""
SECONDS, RECORDS = 600.0, 3
"""Duration of the series on the axis, s, and their number."""
COLUMNS, CELL, MARGIN, HEAD = 4, 284, 13, 46
"""Frames side by side; pixels of a frame, between frames and above each of them."""
INK, GREY = (40, 40, 40), (110, 110, 110)


def main() -> None:
    """Measure, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--write", action="store_true", help="write the table and the pictures into docs")
    arguments = parser.parse_args()
    scenarios = {name: Scenario.preset(name) for name in PRESETS}
    results = {name: evaluate(CastAndSurge(), world, arguments.episodes, SEEDS) for name, world in scenarios.items()}
    rows = [
        [
            f"`{name}`", ABOUT[name], on_axis(world), rate(results[name]),
            rate(evaluate(Random(), world, arguments.episodes, SEEDS)),
        ]
        for name, world in scenarios.items()
    ]  # fmt: skip
    header = ["preset", "special feature", "on-axis intermittency", "cast-and-surge [95 %]", "random [95 %]"]
    table = markdown_table(header, rows)
    print(table)
    if arguments.write:
        insert("docs/plume.md", "worlds", table)
        frames = {name: snapshot(world, results[name]) for name, world in scenarios.items()}
        page(frames).save(ROOT / "docs/images/worlds.png", optimize=True)
        save_animation(walk(scenarios["turbulent"], results["turbulent"]), ROOT / "docs/images/turbulent.gif")
        print("written to docs/images/worlds.png and docs/images/turbulent.gif")


def on_axis(scenario: Scenario) -> str:
    """The share of time with odour on the plume's axis, median over probes; walls and a wind that turns leave none."""
    if scenario.obstacles or scenario.wind_switch_time:
        return "-"
    checks = realism(survey(scenario, SECONDS, range(RECORDS)).statistics)
    return f"{next(check.value for check in checks if check.name == 'intermittency'):.2f}"


def rate(result: Evaluation) -> str:
    """Success with its interval."""
    summary = result.summary()
    return f"{summary['success']:.1%} [{summary['low']:.1%}, {summary['high']:.1%}]"


def typical(result: Evaluation) -> int:
    """The episode to show: a success that takes longer than three in four, and starts far from the source."""
    found = np.flatnonzero(result.success)
    if not len(found):
        return 0
    near = found[np.argsort(np.abs(result.steps[found] - np.quantile(result.arrival, 0.75)))[:20]]
    return int(near[np.argmax(result.start_distance[near])])


def with_decoy_in_sight(scenario: Scenario, result: Evaluation) -> int:
    """The same in a world with a decoy: the success whose decoy is nearest to the middle of the domain."""
    world = World(result.episodes, scenario, threads=1)
    world.seed(range(SEEDS, SEEDS + result.episodes))
    world.begin()
    x, y = world.lanes["others_x"][:, 0], world.lanes["others_y"][:, 0]
    off = np.hypot(x - 0.5 * scenario.width, y - 0.5 * scenario.height)
    return int(np.argmin(np.where(result.success, off, np.inf)))


def snapshot(scenario: Scenario, result: Evaluation) -> Frame:
    """A frame of a typical episode, when the agent is two thirds of the way."""
    episode = with_decoy_in_sight(scenario, result) if scenario.decoys else typical(result)
    at = max(1, 2 * int(result.steps[episode]) // 3)
    frames = film(CastAndSurge(), scenario, SEEDS + episode, every=at, pixels=CELL)
    return list(itertools.islice(frames, 2))[-1]


def walk(scenario: Scenario, result: Evaluation) -> list[Frame]:
    """The frames of a typical episode."""
    return list(film(CastAndSurge(), scenario, SEEDS + typical(result), pixels=400))


def page(frames: dict[str, Frame]) -> Image.Image:
    """Frames with their names, and special feature about them, in a grid."""
    lines = -(-(len(frames) + 1) // COLUMNS)
    size = (COLUMNS * (CELL + MARGIN) + MARGIN, lines * (CELL + HEAD + MARGIN) + MARGIN)
    sheet = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(sheet)
    name_font, small_font = ImageFont.load_default(18), ImageFont.load_default(13)
    for n, (name, frame) in enumerate(frames.items()):
        left = MARGIN + n % COLUMNS * (CELL + MARGIN)
        top = MARGIN + n // COLUMNS * (CELL + HEAD + MARGIN)
        pen.text((left, top), name, fill=INK, font=name_font)
        pen.text((left, top + 23), ABOUT[name], fill=GREY, font=small_font)
        height, width = frame.shape[:2]
        corner = (left + (CELL - width) // 2, top + HEAD)
        sheet.paste(Image.fromarray(frame), corner)
        pen.rectangle((corner[0], corner[1], corner[0] + width - 1, corner[1] + height - 1), outline=(205, 205, 205))
    draw_legend(pen, size[0] - MARGIN - CELL, size[1] - MARGIN - CELL)
    return sheet


def draw_legend(pen: ImageDraw.ImageDraw, left: int, top: int) -> None:
    """What the signs and colours mean, in the last place of the grid; the colours are those of `gpf.plume.render`."""
    font = ImageFont.load_default(14)
    lines = [
        "source, found within the circle",
        "decoy",
        "obstacle",
        "path of cast-and-surge",
        "concentration, 0.001 to 1",
    ]
    middles = [top + 20 + 30 * n for n in range(len(lines))]
    for y, line in zip(middles, lines, strict=True):
        pen.text((left + 52, y), line, fill=INK, font=font, anchor="lm")
    x = left + 22
    pen.ellipse((x - 9, middles[0] - 9, x + 9, middles[0] + 9), outline=(30, 122, 84), width=2)
    pen.ellipse((x - 3, middles[0] - 3, x + 3, middles[0] + 3), fill=(30, 122, 84))
    pen.rectangle((x - 6, middles[1] - 6, x + 6, middles[1] + 6), fill=(96, 40, 160))
    for slope in (1, -1):
        pen.line((x - 3, middles[1] - 3 * slope, x + 3, middles[1] + 3 * slope), fill="white", width=2)
    pen.rectangle((x - 10, middles[2] - 6, x + 10, middles[2] + 6), fill=(122, 126, 134))
    pen.line((x - 18, middles[3], x + 18, middles[3]), fill=(47, 93, 140), width=2)
    pen.ellipse((x - 21, middles[3] - 3, x - 15, middles[3] + 3), fill=(47, 93, 140))
    for n in range(40):
        colour = tuple(COLOURS[n * 255 // 39].tolist())
        pen.line((x - 20 + n, middles[4] - 7, x - 20 + n, middles[4] + 7), fill=colour)


if __name__ == "__main__":
    main()

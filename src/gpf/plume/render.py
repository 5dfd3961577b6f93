"""Pictures of a plume world: frames, a window, and animations of an episode."""

import importlib.util
import math
import os
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from gpf.plume.inputs import naming
from gpf.plume.pixels import concentration_field, obstacle_map
from gpf.plume.world import World

Frame = NDArray[np.uint8]

PIXELS = 480
"""Length of a frame's longer side."""
FPS = 12
"""Frames of an animation in a second."""
HOLD = 1.5
"""How long an animation that repeats shows its last frame, s."""
_FAINTEST, _STRONGEST = 1e-3, 1.0  # concentrations at the two ends of the colour scale, which is logarithmic
_BACKGROUND = (250, 250, 247)


def _colour_scale(*stops: tuple[int, int, int]) -> Frame:
    """Colours from the background through `stops` in 256 steps, shape (256, 3)."""
    palette = np.array([_BACKGROUND, *stops], np.float64)
    at = np.linspace(0, len(palette) - 1, 256)
    return np.stack([np.interp(at, range(len(palette)), channel) for channel in palette.T], axis=1).astype(np.uint8)


COLOURS = _colour_scale((253, 231, 200), (249, 183, 120), (228, 116, 74), (171, 55, 66), (96, 22, 63))
"""The colour scale of concentrations in 256 steps, shape (256, 3)."""
DECOY_COLOURS = _colour_scale((222, 228, 246), (168, 186, 230), (116, 134, 204), (88, 78, 164), (60, 34, 108))
"""The same of the decoys' substance."""
_PATH, _AGENT, _SOURCE, _INK = (47, 93, 140), (18, 52, 92), (30, 122, 84), (70, 70, 70)
_DECOY, _OBSTACLE = (96, 40, 160), (122, 126, 134)


def draw(world: World, lane: int, path: Sequence[tuple[float, float]] = (), pixels: int = PIXELS) -> Frame:
    """A picture of a lane: plume, obstacles, wind, sources, decoys, agent, and the path so far (positions in m)."""
    row, state = world.rows[lane], world.lanes[lane]
    scale = pixels / max(row["width"], row["height"])
    columns, rows = (max(1, round(extent * scale)) for extent in (row["width"], row["height"]))
    shown = Image.fromarray(_plume(world, lane, rows, columns))
    picture = shown.resize((2 * columns, 2 * rows), Image.Resampling.NEAREST)  # drawn at twice the size: smooth lines
    solid = obstacle_map(world, lane)
    _draw_obstacles(picture, solid)
    halo = 4 if solid.size else 0  # letters can be read on walls, too
    pen = ImageDraw.Draw(picture)

    def at(x: float, y: float) -> tuple[float, float]:
        return 2.0 * scale * x, 2.0 * scale * (row["height"] - y)

    def disc(x: float, y: float, radius: float, **style: object) -> None:
        centre_x, centre_y = at(x, y)
        pen.ellipse((centre_x - radius, centre_y - radius, centre_x + radius, centre_y + radius), **style)  # type: ignore[arg-type]

    sources, decoys = _places(row, state)
    for x, y in sources:
        if row["success_radius"] < math.hypot(row["width"], row["height"]):  # a larger circle lies outside the picture
            disc(x, y, 2 * scale * row["success_radius"], outline=_SOURCE, width=3)
        disc(x, y, 5, fill=_SOURCE)
    for x, y in decoys:
        _draw_decoy(pen, at(x, y))
    if len(path) > 1:
        pen.line([at(x, y) for x, y in path], fill=_PATH, width=4, joint="curve")
        disc(*path[0], 6, fill=_PATH)
    _draw_agent(pen, at(state["x"], state["y"]), state["heading"])
    _draw_wind(pen, state["vane_speed"], state["vane_direction"], halo)
    _write(pen, (16, 2 * rows - 40), f"{state['step'] * row['substeps'] * row['time_step']:.1f} s", 26, halo)
    return np.asarray(picture.reduce(2))


def _plume(world: World, lane: int, rows: int, columns: int) -> Frame:
    """The plume in colours, shape (rows, columns, 3); where there are decoys, both substances as layers of ink."""
    of_sources = _colours(concentration_field(world, lane, rows, columns), COLOURS)
    if world.rows[lane]["substances"] < 2.0:
        return of_sources
    of_decoys = _colours(concentration_field(world, lane, rows, columns, substance=1), DECOY_COLOURS)
    return (of_sources * (of_decoys / np.array(_BACKGROUND))).astype(np.uint8)


def _colours(field: NDArray[np.float64], scale: Frame) -> Frame:
    """Concentrations as colours of a scale, shape (..., 3)."""
    span = math.log(_STRONGEST / _FAINTEST)
    level = np.log(np.clip(field, _FAINTEST, _STRONGEST) / _FAINTEST) / span
    return scale[(level * (len(scale) - 1)).astype(np.intp)]


def _places(row: np.void, state: np.void) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Where the sources and the decoys of a lane are, m."""
    others = list(zip(state["others_x"].tolist(), state["others_y"].tolist(), strict=True))
    sources, places = int(row["sources"]), int(row["places"])
    return [(state["source_x"], state["source_y"]), *others[: sources - 1]], others[sources - 1 : places - 1]


def _draw_obstacles(picture: Image.Image, solid: NDArray[np.bool_]) -> None:
    """Solid cells, top row first, over the whole picture."""
    if solid.size:
        mask = Image.fromarray((255 * solid).astype(np.uint8)).resize(picture.size, Image.Resampling.NEAREST)
        picture.paste(_OBSTACLE, mask=mask)


def _draw_decoy(pen: ImageDraw.ImageDraw, centre: tuple[float, float]) -> None:
    """A square with a cross in it."""
    x, y = centre
    pen.rectangle((x - 10, y - 10, x + 10, y + 10), fill=_DECOY)
    for slope in (1, -1):
        pen.line((x - 6, y - 6 * slope, x + 6, y + 6 * slope), fill="white", width=3)


def _draw_agent(pen: ImageDraw.ImageDraw, centre: tuple[float, float], heading: float) -> None:
    """A wedge that points where the agent is heading."""
    corners = [(heading + turn, length) for turn, length in ((0.0, 22), (2.5, 15), (math.pi, 5), (-2.5, 15))]
    pen.polygon([(centre[0] + r * math.cos(a), centre[1] - r * math.sin(a)) for a, r in corners], fill=_AGENT)


def _write(pen: ImageDraw.ImageDraw, place: tuple[int, int], text: str, size: int, halo: int) -> None:
    """Letters with a halo of this many pixels."""
    pen.text(place, text, fill=_INK, font_size=size, stroke_width=halo, stroke_fill=_BACKGROUND)


def _draw_wind(pen: ImageDraw.ImageDraw, speed: float, direction: float, halo: int) -> None:
    """An arrow in the upper left corner, as long as the wind is fast."""
    x, y = 70.0, 60.0
    dx, dy = 40.0 * speed * math.cos(direction), -40.0 * speed * math.sin(direction)
    pen.line((x - dx / 2, y - dy / 2, x + dx / 2, y + dy / 2), fill=_INK, width=4)
    tip = math.atan2(-dy, dx)
    wings = [(tip, 16.0), (tip + 2.6, 14.0), (tip - 2.6, 14.0)]
    pen.polygon([(x + dx / 2 + r * math.cos(a), y + dy / 2 - r * math.sin(a)) for a, r in wings], fill=_INK)
    _write(pen, (24, 96), f"wind {speed:.1f} m/s", 24, halo)


class Window:
    """A window that shows frames as they come, at most `fps` a second; says so and shows none without a display."""

    def __init__(self, fps: int) -> None:
        import matplotlib.pyplot as plt
        from matplotlib.backends import BackendFilter, backend_registry

        self._pause = 1.0 / fps
        self.visible: bool = False
        if plt.get_backend().lower() not in backend_registry.list_builtin(BackendFilter.INTERACTIVE):
            print("gpf: no display, so render_mode 'human' shows nothing; try 'rgb_array'", file=sys.stderr)
            return
        self._figure, axes = plt.subplots(figsize=(6, 6), num="gpf plume")
        axes.set_axis_off()
        self._figure.subplots_adjust(0, 0, 1, 1)
        self._image = axes.imshow(np.zeros((PIXELS, PIXELS, 3), np.uint8))
        self._due = time.monotonic()
        self.visible = True

    def show(self, frame: Frame) -> None:
        """Show a frame, and wait until the next one is due."""
        import matplotlib.pyplot as plt

        self._image.set_data(frame)
        self._due = max(self._due + self._pause, time.monotonic() + 1e-3)
        plt.pause(self._due - time.monotonic())

    def close(self) -> None:
        """Close the window."""
        if self.visible:
            import matplotlib.pyplot as plt

            plt.close(self._figure)


def save_animation(frames: Iterable[Frame], path: str | Path, fps: int = FPS) -> None:
    """Write frames as an animation, GIF, WebP or MP4 by the path's ending; an existing file is replaced at the end."""
    path = Path(path)
    check_animation(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{os.getpid()}-{path.name}")
    write = {".gif": _write_gif, ".webp": _write_webp, ".mp4": _write_mp4}[path.suffix]
    try:
        with naming(path):
            write(frames, unfinished, fps)
            unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def check_animation(path: Path) -> None:
    """Refuse a path to which no animation can be written."""
    if path.suffix not in (".gif", ".webp", ".mp4"):
        raise ValueError(f"animation must be a path that ends in .gif, .webp or .mp4, got {str(path)!r}")
    if path.suffix == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise ValueError("an MP4 needs the extra video: pip install 'gpf-networks[video]'; or write a .gif or .webp")


def _write_gif(frames: Iterable[Frame], path: Path, fps: int) -> None:
    pictures = [Image.fromarray(frame) for frame in frames]
    # The last frame has plume, path, agent and source in it. This method keeps colours of few pixels, as the source.
    palette = pictures[-1].quantize(64, Image.Quantize.MAXCOVERAGE)
    first, *rest = [picture.quantize(palette=palette, dither=Image.Dither.NONE) for picture in pictures]
    first.save(path, save_all=True, append_images=rest, duration=_durations(len(pictures), fps), loop=0)


def _write_webp(frames: Iterable[Frame], path: Path, fps: int) -> None:
    first, *rest = [Image.fromarray(frame) for frame in frames]
    durations = _durations(1 + len(rest), fps)
    first.save(path, save_all=True, append_images=rest, duration=durations, loop=0, quality=60, method=1)


def _durations(frames: int, fps: int) -> list[int]:
    """How long each frame is shown, ms."""
    return [*[round(1000 / fps)] * (frames - 1), round(1000 * HOLD)]


def _write_mp4(frames: Iterable[Frame], path: Path, fps: int) -> None:
    import imageio_ffmpeg

    frames = iter(frames)
    first = next(frames)
    writer = imageio_ffmpeg.write_frames(path, first.shape[1::-1], fps=fps, macro_block_size=8)
    writer.send(None)  # starts the encoder
    for frame in (first, *frames):
        writer.send(np.ascontiguousarray(frame))
    writer.close()
    next(imageio_ffmpeg.read_frames(path))  # the encoder does not say whether it could write everything

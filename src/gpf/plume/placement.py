"""Placement by the caller: where an episode begins (the options of `reset`), and moves while it runs; all checked."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.plume.inputs import shown, unknown
from gpf.plume.obstacles import check_reachable
from gpf.plume.physics import distance_to_source
from gpf.plume.world import START, World

PLACES: dict[str, tuple[str, ...]] = {
    "position": ("x", "y"),
    "source": ("source_x", "source_y"),
    "heading": ("heading",),
}
"""The options that place something, and the columns of a start that each of them sets."""


def checked_options(options: Any, names: tuple[str, ...]) -> Mapping[str, Any]:
    """The options of a reset, all of which must be among `names`; an empty mapping for None."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise ValueError(f"options must be a dictionary, got {shown(options)}")
    for name in options:
        if name not in names:
            raise ValueError(unknown("option", name, names))
    return options


def starts_of(
    options: Mapping[str, Any], world: World, indices: NDArray[np.int64] | None = None
) -> NDArray[np.float64] | None:
    """The starts of the lanes `indices`, shape (lanes, 5), see `world.START`; None where nothing is placed.

    Args:
        options: The options of a reset. A value is for all lanes, or has one row per lane; rows outside `indices` are
            ignored.
        world: The lanes.
        indices: The lanes that begin an episode; None for an environment that has just one, and takes no rows.
    """
    if not any(name in options for name in PLACES):
        return None
    lanes = np.zeros(1, np.int64) if indices is None else indices
    starts = np.full((len(lanes), len(START)), math.nan)
    for name, columns in PLACES.items():
        if name not in options:
            continue
        values = _numbers(name, options[name])
        one = () if name == "heading" else (2,)
        several = (world.count, *one)
        if values.shape != one and (indices is None or values.shape != several):
            accepted = one if indices is None else f"{one} or {several}"
            raise ValueError(f"{name} must have shape {accepted}, got {values.shape}")
        values = np.broadcast_to(values, several)[lanes].reshape(len(lanes), len(columns))
        _check(name, values, world, lanes)
        starts[:, [START.index(column) for column in columns]] = _wrapped(values) if name == "heading" else values
    _check_obstacles(starts, world, lanes)
    return starts


def move_to(world: World, lane: int, options: Mapping[str, Any]) -> None:
    """Move the agent or the source of a running episode: `position` and `source` in m, `heading` in rad.

    Filaments stay where they are, and new ones come from the new place. The sensors read there from the next step on.
    The move changes no reward: the distance to the source counts from the new place.
    """
    row = world.rows.view(np.recarray)[lane]
    if "source" in options and row.recording >= 0.0:
        raise ValueError("source cannot be moved in a recorded plume, which has come from where it is")
    one = np.array([lane])
    for name, columns in PLACES.items():
        if name in options:
            values = _numbers(name, options[name])
            if values.shape != (() if name == "heading" else (2,)):
                raise ValueError(f"{name} must be {_WANTED[name]}, got {shown(options[name])}")
            _check(name, values.reshape(1, len(columns)), world, one)
    state = world.lanes[lane : lane + 1]
    wanted = {name: _numbers(name, options[name]) for name in PLACES if name in options}
    if row.terrain >= 0.0:
        terrain = world.catalogue.terrains_of(row)[int(state["mirrored"][0])]
        source = wanted.get("source", np.array([state["source_x"][0], state["source_y"][0]]))
        position = wanted.get("position", np.array([state["x"][0], state["y"][0]]))
        check_reachable(terrain, source.tolist(), position.tolist())
    for name, values in wanted.items():
        for column, value in zip(PLACES[name], np.atleast_1d(values), strict=True):
            state[column] = _wrapped(np.array([value]))[0] if name == "heading" else value
    state["distance"] = distance_to_source.py_func(row, world.lanes.view(np.recarray)[lane])


_WANTED = {
    "position": "two numbers, x and y in m",
    "source": "two numbers, x and y in m",
    "heading": "one number, in rad",
}


def _numbers(name: str, value: Any) -> NDArray[np.float64]:
    try:
        array = np.asarray(value)
    except (ValueError, TypeError):  # lists of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} must be {_WANTED[name]}, got {shown(value)}")
    return array.astype(np.float64)


def _check(name: str, values: NDArray[np.float64], world: World, indices: NDArray[np.int64]) -> None:
    """Refuse places outside the domain, and headings that are not finite; `values` has shape (lanes, 1 or 2)."""
    if name == "heading":
        good = np.isfinite(values).all(axis=1)
    else:
        extents = np.array([_extent(world, i) for i in indices])
        good = ((values >= 0.0) & (values <= extents)).all(axis=1)  # not so of NaN
    if good.all():
        return
    n = int(np.argmin(good))
    where = _where(world, indices[n])
    if name == "heading":
        raise ValueError(f"heading must be finite, got {values[n, 0]}{where}")
    width, height = extents[n]
    raise ValueError(
        f"{name} must be in the domain, x from 0 to {width:g} m and y from 0 to {height:g} m, got {values[n].tolist()}"
        f"{where}"
    )


def _extent(world: World, index: int) -> tuple[float, float]:
    """Width and height that the domain of a lane has at least in its next episode, m."""
    row = world.rows[index]
    rows = world.catalogue.next_rows(row) if row["bank_count"] else row
    return float(np.min(rows["width"])), float(np.min(rows["height"]))


def _check_obstacles(starts: NDArray[np.float64], world: World, indices: NDArray[np.int64]) -> None:
    """Refuse places in obstacles, and starts without a way to the source where it is known."""
    if len(world.catalogue.terrains.table) == 0:
        return
    for start, index in zip(starts, indices, strict=True):
        rows = world.catalogue.next_rows(world.rows[index])
        for row in rows[np.unique(rows["terrain"], return_index=True)[1]]:
            for mirrored, terrain in enumerate(world.catalogue.terrains_of(row)):
                source = _given(start[:2])
                if source is None and row["source_x"] >= 0.0:
                    source = [row["source_x"], row["height"] - row["source_y"] if mirrored else row["source_y"]]
                check_reachable(terrain, source, _given(start[2:4]), _where(world, index))


def _given(place: NDArray[np.float64]) -> list[float] | None:
    """A place, or None for one that is drawn."""
    return None if np.isnan(place[0]) else place.tolist()


def _where(world: World, index: int) -> str:
    """Ends the sentence of an error, where there are several lanes."""
    return f" in lane {index}" if world.count > 1 else ""


def _wrapped(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Angles in [-pi, pi), however large they were."""
    angles = np.fmod(angles, 2.0 * math.pi)
    return angles - 2.0 * math.pi * np.floor(angles / (2.0 * math.pi) + 0.5)

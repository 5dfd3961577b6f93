"""Where an episode begins, if the caller says so: the options of `reset`, checked before anything changes."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpf.plume.inputs import shown, unknown
from gpf.plume.world import START

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
    options: Mapping[str, Any], rows: NDArray[Any], indices: NDArray[np.int64] | None = None
) -> NDArray[np.float64] | None:
    """The starts of the lanes `indices`, shape (lanes, 5), see `world.START`; None where nothing is placed.

    Args:
        options: The options of a reset. A value is for all lanes, or has one row per lane; rows outside `indices` are
            not looked at.
        rows: The scenarios of all lanes.
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
        several = (len(rows), *one)
        if values.shape != one and (indices is None or values.shape != several):
            accepted = one if indices is None else f"{one} or {several}"
            raise ValueError(f"{name} must have shape {accepted}, got {values.shape}")
        values = np.broadcast_to(values, several)[lanes].reshape(len(lanes), len(columns))
        _check(name, values, rows, lanes)
        starts[:, [START.index(column) for column in columns]] = _wrapped(values) if name == "heading" else values
    return starts


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


def _check(name: str, values: NDArray[np.float64], rows: NDArray[Any], indices: NDArray[np.int64]) -> None:
    """Refuse places outside the domain, and headings that are not finite; `values` has shape (lanes, 1 or 2)."""
    if name == "heading":
        good = np.isfinite(values).all(axis=1)
    else:
        extents = np.stack([rows["width"], rows["height"]], axis=1)[indices]
        good = ((values >= 0.0) & (values <= extents)).all(axis=1)  # not so of NaN
    if good.all():
        return
    n = int(np.argmin(good))
    where = f" in lane {indices[n]}" if len(rows) > 1 else ""
    if name == "heading":
        raise ValueError(f"heading must be finite, got {values[n, 0]}{where}")
    width, height = extents[n]
    raise ValueError(
        f"{name} must be in the domain, x from 0 to {width:g} m and y from 0 to {height:g} m, got {values[n].tolist()}"
        f"{where}"
    )


def _wrapped(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Angles in [-pi, pi), however large they were."""
    angles = np.fmod(angles, 2.0 * math.pi)
    return angles - 2.0 * math.pi * np.floor(angles / (2.0 * math.pi) + 0.5)

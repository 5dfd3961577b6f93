"""Scenarios of recorded plumes: finds the recording and creates its world."""

import dataclasses
import math
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gpf.plume.recordings import Recording, load_recording
from gpf.plume.recordings.loading import holds_filaments
from gpf.plume.scenario import Scenario

_LOADED_WITH = ("recording_rate", "recording_height", "recording_skip")
"""Fields that say how a recording is loaded: once, not for each episode."""


def recording_of(scenario: Scenario) -> Recording | None:
    """The recording that a scenario replays; None if its plume is simulated. Loaded once for all who ask for it."""
    if not scenario.recording:
        return None
    for name, low, high in scenario.ranges:
        if name in _LOADED_WITH:
            raise ValueError(f"{name} must be one number with a recording, got the range {low:g} to {high:g}")
    path = Path(scenario.recording)
    stamp = path.stat().st_mtime_ns if path.exists() else 0  # a changed file is loaded again
    options: dict[str, Any] = {
        "rate": scenario.recording_rate or None,
        "pixel": scenario.recording_pixel or None,
        "dataset": scenario.recording_dataset or None,
        "axes": scenario.recording_axes or None,
        "wind": scenario.recording_wind or None,
        "height": scenario.recording_height if holds_filaments(path) else None,  # movies have none
    }
    return _loaded(path, stamp, scenario.recording_skip, tuple(options.items()))


@lru_cache(maxsize=8)
def _loaded(path: Path, stamp: int, skip: float, options: tuple[tuple[str, Any], ...]) -> Recording:
    given = {name: value for name, value in options if value is not None}
    return _after(load_recording(path, **given), skip)


def _after(recording: Recording, skip: float) -> Recording:
    """The recording without its first seconds."""
    count, times = len(recording.frames), len(recording.wind)
    first = round(skip / recording.interval)
    if first >= count:
        raise ValueError(
            f"recording_skip must be below the duration of the recording, {recording.duration:g} s, got {skip:g}"
        )
    wind = recording.wind if times == 1 else recording.wind[first * times // count :]
    return dataclasses.replace(recording, frames=recording.frames[first:], wind=wind) if first else recording


def resolved(scenario: Scenario, recording: Recording | None) -> Scenario:
    """The scenario with the domain, wind, source and obstacles of its recording; unchanged without one."""
    if recording is None:
        return scenario
    if scenario.lost_distance:
        raise ValueError(f"lost_distance must be 0 with a recording, got {scenario.lost_distance:g}")
    if scenario.decoys or scenario.sources > 1:
        raise ValueError(
            f"sources and decoys must be 1 and 0 with a recording, got {scenario.sources} and {scenario.decoys}"
        )
    if recording.source is None and not scenario.source_at:
        raise ValueError(f"source_at must be given, for the source of the recording {recording.name} is not known")
    enlarged = (scenario.recording_pixel or recording.pixel) / recording.pixel
    width, height = enlarged * recording.width, enlarged * recording.height
    known = zip(recording.source, recording.origin, (width, height), strict=True) if recording.source else ()
    source = scenario.source_at or tuple(min(max(enlarged * (at - low), 0.0), extent) for at, low, extent in known)
    if not (source[0] <= width and source[1] <= height):
        raise ValueError(
            f"source_at must be in the recording, x from 0 to {width:g} m and y from 0 to {height:g} m,"
            f" got {list(source)}"
        )
    u, v = recording.wind.astype(np.float64).mean(axis=(0, 1, 2))
    changes: dict[str, Any] = {
        "width": width,
        "height": height,
        "source_at": source,
        "wind_speed": math.hypot(u, v),
        "wind_direction": math.degrees(math.atan2(v, u)),
    }
    if recording.occupied is not None:
        rows = ["".join("#" if solid else "." for solid in row) for row in recording.occupied[::-1]]
        changes |= {"occupancy": tuple(rows), "obstacles": (), "obstacle_cell": max(width, height)}
    return dataclasses.replace(scenario, **changes)

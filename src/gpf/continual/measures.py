"""Measures of a run in a stream: success, recovery, forgetting and transfer.

A visit is plain data: `ended` and `found`, the number of episodes that ended in each rollout and of those that found
the source; `first`, every lane's first episode to end in the visit, which may have started in the previous one;
`first_whole` and `last`, its first and last episode that lay wholly within it, each as (found, ended); and its regime.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Visits = Sequence[dict[str, Any]]

RECENT = 100
"""Episodes over which success is averaged to see a recovery."""
RECOVERED = 0.9
"""Share of what a fresh learner reaches that counts as recovered."""


def success(visit: dict[str, Any]) -> float:
    """The share of a visit's episodes that found the source."""
    return float(sum(visit["found"]) / sum(visit["ended"]))


def area(visits: Visits) -> float:
    """Area under the curve of success: its mean over visits."""
    return float(np.mean([success(visit) for visit in visits]))


def share(visit: dict[str, Any], which: str) -> float | None:
    """Success in the first, or the last, episodes of a visit; None where there were none."""
    found, ended = visit[which]
    return found / ended if ended else None


def forgetting(visits: Visits, which: str = "first") -> float | None:
    """Drop in success from the last episodes of the regime's previous visit to the first episodes of this one.

    The mean over all visits to a known regime; None if there are none. `which` selects the first episodes: `first` to
    end, or `first_whole`, the first that lay wholly within the visit.
    """
    left: dict[str, float | None] = {}
    lost = []
    for visit in visits:
        before, now = left.get(visit["regime"]), share(visit, which)
        if before is not None and now is not None:
            lost.append(before - now)
        left[visit["regime"]] = share(visit, "last")
    return float(np.mean(lost)) if lost else None


def recovery(visits: Visits, fresh: Visits) -> float | None:
    """Episodes until the latest 100 reach 90 % of a fresh learner's final success in a visit; the mean over changes.

    A visit that never reaches it counts with all its episodes; None if the fresh learner had no whole episode.
    """
    levels = [(visit, share(other, "last")) for visit, other in _pairs(visits, fresh)[1:]]
    counts = [_episodes_to(visit, RECOVERED * level) for visit, level in levels if level is not None]
    return float(np.mean(counts)) if counts else None


def _episodes_to(visit: dict[str, Any], level: float) -> float:
    ended, found = np.cumsum(visit["ended"]), np.cumsum(visit["found"])
    for now in range(len(ended)):
        if ended[now] < RECENT:
            continue
        since = int(np.searchsorted(ended, ended[now] - RECENT, side="right")) - 1
        episodes, successes = (
            (ended[now] - ended[since], found[now] - found[since]) if since >= 0 else (ended[now], found[now])
        )
        if successes >= level * episodes - 1e-9:
            return float(ended[now])
    return float(ended[-1])


def transfer(visits: Visits, fresh: Visits) -> float | None:
    """By how much success in regimes that are met for the first time lies above a fresh learner's, on average."""
    seen = {visits[0]["regime"]}
    gained = []
    for visit, other in _pairs(visits, fresh)[1:]:
        if visit["regime"] not in seen:
            gained.append(success(visit) - success(other))
        seen.add(visit["regime"])
    return float(np.mean(gained)) if gained else None


def _pairs(visits: Visits, fresh: Visits) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    if [v["regime"] for v in visits] != [v["regime"] for v in fresh]:
        raise ValueError("fresh must be visits to the same regimes, got those of another stream")
    return list(zip(visits, fresh, strict=True))


def curve(visits: Visits, points: int = 20) -> NDArray[np.float64]:
    """Success over the stream, `points` to a visit, each over that share of its episodes."""
    values = []
    for visit in visits:
        ended, found = (np.concatenate([[0], np.cumsum(visit[name])]) for name in ("ended", "found"))
        bounds = np.interp(np.linspace(0, ended[-1], points + 1), ended, found)
        values.append(np.diff(bounds) * points / ended[-1])
    return np.concatenate(values)

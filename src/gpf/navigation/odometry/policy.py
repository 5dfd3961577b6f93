"""A policy whose dead reckoning is a filter's estimate in place of the truth."""

from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from gpf.navigation.odometry.model import Aids, Grade, Model
from gpf.navigation.odometry.tracking import TRACKER, shift_lanes, track_lanes, tracker_streams
from gpf.navigation.policies import Policy
from gpf.plume.scenario import Scenario
from gpf.plume.world import RAW

Odometry = Literal["perfect", "filter"]
"""Own motion that a policy gets: the truth, or a filter's estimate from an IMU, commands, vane and gas."""


class Reckoning(Policy, Protocol):
    """A policy that reckons its place by dead reckoning."""

    @property
    def reckons(self) -> bool:
        """Whether this one does."""

    @property
    def places(self) -> NDArray[Any]:
        """Where each lane is: structured array with fields x and y, m."""


def reckons(policy: Policy) -> TypeGuard[Reckoning]:
    """Whether a policy uses dead reckoning, and therefore knowledge of its own motion."""
    return getattr(policy, "reckons", False)


class Estimating:
    """A policy that is shown a filter's estimates: heading, wind's direction in the world, and way of each step.

    Attributes:
        trackers: `tracking.TRACKER` of each lane, shape (lanes,).
    """

    PER_LANE: ClassVar[tuple[str, ...]] = ("policy", "trackers", "_streams", "_seen")

    def __init__(self, policy: Policy, grade: Grade = "drone", aids: Aids = "vane and gas", **model: Any) -> None:
        if not reckons(policy):
            raise ValueError(
                "odometry filter needs a policy that reckons its place (cast-and-surge, or a navigator with observation"
                f" memory), got {type(policy).__name__}, which does not"
            )
        self.policy: Reckoning = policy
        self._options: tuple[Grade, Aids, dict[str, Any]] = grade, aids, model

    def begin(self, seeds: Sequence[int], scenario: Scenario) -> None:
        """Forget everything and begin one episode per seed."""
        self.policy.begin(seeds, scenario)
        grade, aids, more = self._options
        self._row = Model.of(scenario, grade, aids, **more).row()
        self._seconds = scenario.time_step
        self._stride = scenario.speed * scenario.time_step
        self._streams = tracker_streams(list(seeds))
        self._seen = np.zeros((len(seeds), len(RAW)), np.float32)
        self.trackers: NDArray[np.void] = np.zeros(len(seeds), TRACKER)

    def act(self, raw: NDArray[np.float32], lanes: NDArray[np.int64], actions: NDArray[np.int64]) -> None:
        """Choose actions in the lanes given by their indices."""
        track_lanes(lanes, self.trackers, self._row, self._stride, self._seconds, self._streams, raw, self._seen)
        shift_lanes(lanes, self.trackers, self.policy.places)
        self.policy.act(self._seen, lanes, actions)


def with_odometry(policy: Policy, odometry: Odometry, grade: Grade = "drone") -> Policy:
    """The policy itself with perfect odometry, or one that is shown a filter's estimates."""
    return policy if odometry == "perfect" else Estimating(policy, grade)

"""What a plume world is like: every physical quantity of an episode, with its unit.

A `Scenario` is plain data. The kernels read it as one row of numbers (`Scenario.row`), so that another scenario, or a
different one in each lane of a vector environment, needs no recompilation.
"""

import dataclasses
import difflib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpf.plume.inputs import parse_json, read_json, shown

LEVELS = 7
"""Concentration levels of a token: blank, then six bands."""
OCTANTS = 8
"""Wind directions of a token."""
ACTIONS = ("forward", "left 15", "right 15", "around", "cast left", "cast right")
"""What the agent can do; each turns first and then moves one step forward."""


# Far beyond any real use, and small enough that nothing computed of them overflows.
_LENGTH = 1e5  # m
_SPEED = 100.0  # m/s: a hurricane, and as much as a vane shows
_DURATION = 1e9  # s: the longest episode
_AMOUNT = 1e6  # concentrations, masses, gains and rewards


def _number(default: float, low: float, high: float, *, above: bool = False) -> Any:
    """A number with its accepted range: [low, high], or (low, high] with `above`."""
    return field(default=default, metadata={"low": low, "high": high, "above": above})


def _positive(default: float, high: float) -> Any:
    return _number(default, 0.0, high, above=True)


def _not_negative(default: float, high: float) -> Any:
    return _number(default, 0.0, high)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One plume world: physics, sensor, motion, episode and reward. The defaults are the preset `paper`.

    Angles are in degrees, counter-clockwise; direction 0 points along +x. The wind's direction is where it blows to.
    """

    width: float = _number(20.0, 1e-3, _LENGTH)
    """Extent of the domain along x, m."""
    height: float = _number(20.0, 1e-3, _LENGTH)
    """Extent of the domain along y, m."""
    time_step: float = _number(0.1, 1e-4, 100.0)
    """Duration of a step, s."""

    emission_rate: float = _not_negative(5.0, 1e6)
    """Mean number of filaments that the source releases, 1/s (a Poisson process; at most 20 a step)."""
    emission_period: float = _not_negative(0.0, _DURATION)
    """Period with which the source turns on and off; 0 for one that is always on, s."""
    emission_duty: float = _positive(1.0, 1.0)
    """Share of a period for which the source is on."""
    emission_jitter: float = _not_negative(0.01, _LENGTH)
    """Standard deviation of a new filament's position about the source, per axis, m."""
    filament_radius: float = _number(0.01, 1e-6, _LENGTH)
    """Radius (Gaussian sigma) of a new filament, m."""
    diffusion: float = _not_negative(0.05, 1e3)
    """Diffusion rate D of a filament: its radius is sqrt(filament_radius^2 + 2 D age), m^2/s."""
    filament_lifetime: float = _positive(30.0, _DURATION)
    """Age at which a filament ends, unless it leaves the domain before, s."""
    filament_mass: float = _not_negative(0.1, _AMOUNT)
    """Mass m of a filament: m / (2 pi sigma^2) is the concentration at its centre, concentration x m^2."""
    cutoff: float = _positive(3.0, 4.0)
    """Distance beyond which a filament contributes nothing, in its radii."""

    wind_speed: float = _not_negative(1.0, _SPEED)
    """Mean wind speed, m/s."""
    wind_speed_sigma: float = _not_negative(0.2, _SPEED)
    """Standard deviation of the wind speed, m/s."""
    wind_speed_floor: float = _not_negative(0.1, _SPEED)
    """Lowest wind speed, m/s."""
    wind_direction: float = _number(0.0, -360.0, 360.0)
    """Mean direction that the wind blows to, deg."""
    wind_turn: float = _number(0.0, -360.0, 360.0)
    """By how much the mean direction turns in the course of an episode, deg/s."""
    wind_direction_sigma: float = _not_negative(15.0, 360.0)
    """Standard deviation of the wind direction, deg."""
    wind_correlation_time: float = _positive(2.0, _DURATION)
    """Correlation time of wind speed and direction, both Ornstein-Uhlenbeck processes, s; at least one time step."""

    source_upwind: float = _number(0.25, -0.5, 0.5)
    """How far upwind of the domain's centre the source is placed, in domain widths."""
    source_jitter: float = _not_negative(0.15, 0.5)
    """Half-width of the uniform jitter of the source, per axis, in domain widths."""
    source_margin: float = _not_negative(0.05, 0.5)
    """Least distance of the source from the walls, in domain widths."""
    start_distance_min: float = _not_negative(3.0, _LENGTH)
    """Least distance from the source at which the agent starts, m."""
    start_distance_max: float = _not_negative(10.0, _LENGTH)
    """Greatest distance from the source at which the agent starts, m."""
    start_bearing: float = _not_negative(45.0, 180.0)
    """Half-width of the uniform bearing of the start, seen from the source, about downwind, deg."""
    start_heading_sigma: float = _not_negative(30.0, 360.0)
    """Standard deviation of the start's heading about upwind, deg."""

    speed: float = _not_negative(0.5, _SPEED)
    """Speed of the agent, m/s."""
    turn_angle: float = _number(15.0, 0.0, 180.0)
    """Turn of the actions `left` and `right`, deg."""
    around_angle: float = _number(180.0, 0.0, 180.0)
    """Turn of the action `around`, deg."""
    cast_angle: float = _number(30.0, 0.0, 180.0)
    """Turn of the actions `cast left` and `cast right`, deg."""

    drift_speed: float = _not_negative(0.0, _SPEED)
    """Speed of a current that carries the agent along, of which it does not know, m/s."""
    drift_direction: float = _number(90.0, -360.0, 360.0)
    """Direction of that current, deg."""

    antenna_separation: float = _not_negative(0.1, 100.0)
    """Distance between the two antennae, m."""
    antenna_forward: float = _number(0.08, -100.0, 100.0)
    """Distance of the antennae ahead of the body's centre, m."""
    antennae_swapped: bool = False
    """Whether what is called the left antenna sits on the right, and the right one on the left."""
    left_gain: float = _not_negative(1.0, _AMOUNT)
    """What the left reading is multiplied by before noise is added; 0 for a dead antenna."""
    right_gain: float = _not_negative(1.0, _AMOUNT)
    """The same of the right reading."""
    vane_offset: float = _number(0.0, -360.0, 360.0)
    """By how much the wind vane is turned: what it adds to the wind's direction, deg."""
    sensor_noise: float = _not_negative(1e-3, _AMOUNT)
    """Standard deviation of the noise added to each reading, concentration."""
    sensor_saturation: float = _number(1.0, 1e-9, _AMOUNT)
    """Greatest reading; noise is added first, then readings are clipped to [0, this], concentration."""
    level_edges: tuple[float, ...] = (3e-3, 6e-3, 15e-3, 45e-3, 150e-3, 600e-3)
    """Upper edges of the first six concentration levels; a reading equal to an edge belongs below it, concentration."""
    octant_offset: float = _number(22.5, 0.0, 45.0)
    """Where octant 0 begins, deg before straight ahead: 22.5 centres it, 0 starts it there."""
    octant_clockwise: bool = True
    """Whether octants of the direction that the wind comes from count clockwise from straight ahead."""
    calm_speed: float = _not_negative(0.05, _SPEED)
    """Wind speed below which the octant is 0, m/s."""

    success_radius: float = _positive(0.5, _LENGTH)
    """Distance from the source below which it is found, m."""
    max_steps: int = _number(1200, 1, 10_000_000)
    """Steps after which an episode ends without success."""
    timeout_terminates: bool = False
    """Whether running out of steps is terminal (no bootstrap) as well as truncation."""

    reward_time: float = _number(-0.01, -_AMOUNT, _AMOUNT)
    """Reward of every step."""
    reward_success: float = _number(100.0, -_AMOUNT, _AMOUNT)
    """Reward of finding the source."""
    reward_whiff: float = _number(1.0, -_AMOUNT, _AMOUNT)
    """Reward of a step on which either reading exceeds `whiff_threshold`."""
    whiff_threshold: float = _not_negative(3e-3, _AMOUNT)
    """Reading above which a step counts as a whiff, concentration."""
    reward_blank: float = _number(-0.05, -_AMOUNT, _AMOUNT)
    """Reward of every step of a blank once it has lasted longer than `blank_duration`."""
    blank_duration: float = _not_negative(2.0, _DURATION)
    """How long a blank may last before it costs, s."""
    reward_shaping: float = _number(2.0, -_AMOUNT, _AMOUNT)
    """Weight of the shaping by distance: the potential is -weight x distance, and 0 at the source, 1/m."""
    shaping_discount: float = _not_negative(0.99, 1.0)
    """Discount in the shaping term; the learner's own keeps the optimal policy (Ng et al. 1999), 1 pays progress."""
    success_replaces: bool = False
    """Whether the step that finds the source is paid time and success only."""

    def __post_init__(self) -> None:
        for spec in dataclasses.fields(self):
            object.__setattr__(self, spec.name, _checked(spec, getattr(self, spec.name)))
        if self.emission_rate * self.time_step > 20.0 * (1.0 + 1e-9):
            raise ValueError(
                f"emission_rate must be at most 20 filaments a step, {20.0 / self.time_step:g} a second,"
                f" got {self.emission_rate:g}"
            )
        if self.filament_capacity > 100_000:
            raise ValueError(
                f"filament_lifetime must allow at most 100,000 filaments at once, got {self.filament_lifetime:g} s with"
                f" {self.emission_rate:g} filaments a second, which is {self.filament_capacity:,}"
            )
        if self.wind_correlation_time < self.time_step:
            raise ValueError(
                f"wind_correlation_time must be at least time_step, {self.time_step:g},"
                f" got {self.wind_correlation_time:g}"
            )
        if self.start_distance_max < self.start_distance_min:
            raise ValueError(
                f"start_distance_max must be at least start_distance_min, {self.start_distance_min:g},"
                f" got {self.start_distance_max:g}"
            )

    @classmethod
    def preset(cls, name: str) -> "Scenario":
        """The scenario of that name: `paper` (the text, made consistent) or `reference` (the authors' code)."""
        if not isinstance(name, str) or name not in PRESETS:
            raise ValueError(_unknown("scenario", name, list(PRESETS)))
        return cls(**PRESETS[name])

    @classmethod
    def of(cls, scenario: "Scenario | str | Path | dict[str, Any]") -> "Scenario":
        """A scenario from what a user may give: itself, a preset's name, a path to JSON, or a dictionary of fields.

        A dictionary may name a `preset` to start from; otherwise it starts from `paper`.
        """
        if isinstance(scenario, cls):
            return scenario
        if isinstance(scenario, Path) or (isinstance(scenario, str) and scenario.lower().endswith(".json")):
            return cls.from_json(Path(scenario))
        if isinstance(scenario, str):
            return cls.preset(scenario)
        if not isinstance(scenario, dict):
            raise ValueError(
                "scenario must be a Scenario, a preset's name, a path to a .json file or a dictionary,"
                f" got {shown(scenario)}"
            )
        values = dict(scenario)
        base = cls.preset(values.pop("preset", "paper"))
        known = [spec.name for spec in dataclasses.fields(cls)]
        for name in values:
            if name not in known:
                raise ValueError(_unknown("scenario field", name, known))
        return dataclasses.replace(base, **values)

    def changed(self, assignments: Sequence[str]) -> "Scenario":
        """The same world with other values of some fields, which are typed as FIELD=VALUE.

        Numbers, `true` and `false` are written as in JSON, level edges as numbers with commas between them.
        """
        kinds = {spec.name: spec.type for spec in dataclasses.fields(self)}
        changes: dict[str, Any] = {}
        for text in assignments:
            name, equals, value = text.partition("=")
            if not equals:
                raise ValueError(f"a change of a scenario must be FIELD=VALUE, got {shown(text)}")
            if name not in kinds:
                raise ValueError(_unknown("scenario field", name, list(kinds)))
            changes[name] = _typed(kinds[name], value)
        return dataclasses.replace(self, **changes)

    def rewarded(self, reward: str, discount: float = 0.99, loitering: float = 0.0) -> "Scenario":
        """The same world with another reward: `paper`, `reference`, or `search` for a learner of this discount.

        `search` is ours. The paper pays +1 for every step in the plume, which an agent that loiters there collects for
        ever: at its discount of 0.99 that is worth 1 / (1 - 0.99) = 100, as much as the source. In `search` loitering
        is worth `loitering` times the source whatever the discount, by default nothing. It does not punish blanks,
        which a search cannot avoid, shapes by distance with the learner's own discount, so that the best policy is the
        one without shaping, and lets an episode that runs out of time go on in the value of its last state. Such
        shaping pays (1 - discount) d for a step that keeps its distance d; time costs more than that, within 10 m at
        a discount of 0.998.
        """
        if not 0.0 <= loitering < 1.0:
            raise ValueError(f"loitering must be at least 0 and below 1, the worth of the source, got {loitering}")
        if reward == "search":
            success = 10.0
            changes: dict[str, Any] = {
                "reward_time": -0.02,
                "reward_success": success,
                "reward_whiff": loitering * success * (1.0 - discount),
                "reward_blank": 0.0,
                "reward_shaping": 1.0,
                "shaping_discount": discount,
                "success_replaces": False,
                "timeout_terminates": False,
            }
        elif reward in PRESETS:
            preset = Scenario.preset(reward)
            changes = {name: getattr(preset, name) for name in _OF_REWARD}
        else:
            raise ValueError(_unknown("reward", reward, list(REWARDS)))
        return dataclasses.replace(self, **changes)

    def to_json(self) -> str:
        """All fields as a JSON object."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    @classmethod
    def from_json(cls, source: str | Path) -> "Scenario":
        """The scenario of a JSON text, or of the file at a path."""
        values = read_json(source, "scenario") if isinstance(source, Path) else parse_json(source, "scenario")
        if not isinstance(values, dict):
            raise ValueError(f"scenario must be an object of fields, got {shown(values)}")
        return cls.of(values)

    @property
    def filament_capacity(self) -> int:
        """How many filaments a lane must hold: eight standard deviations above the greatest mean number alive."""
        lifetime = min(self.filament_lifetime, self.max_steps * self.time_step)
        mean = self.emission_rate * (lifetime + self.time_step)
        return 64 + math.ceil(mean + 8.0 * math.sqrt(mean))  # 64: room to append between two compactions

    def row(self) -> Any:
        """The numbers that the kernels read: per step, in radians, with what does not change worked out."""
        row = np.zeros((), ROW)
        alpha = self.time_step / self.wind_correlation_time
        turn, cast = math.radians(self.turn_angle), math.radians(self.cast_angle)
        values = {
            "turns": (0.0, turn, -turn, math.radians(self.around_angle), cast, -cast),
            "stride": self.speed * self.time_step,
            "emission_mean": self.emission_rate * self.time_step,
            "emission_none": math.exp(-self.emission_rate * self.time_step),
            "emission_period": round(self.emission_period / self.time_step),
            "emission_on": round(self.emission_duty * self.emission_period / self.time_step),
            "initial_variance": self.filament_radius**2,
            "variance_growth": 2.0 * self.diffusion * self.time_step,
            "lifetime_steps": math.floor(self.filament_lifetime / self.time_step + 1e-9),
            "cutoff_squared": self.cutoff**2,
            "wind_reversion": alpha,
            "wind_speed_kick": self.wind_speed_sigma * math.sqrt(2.0 * alpha),
            "wind_direction": math.radians(self.wind_direction),
            "wind_turn": math.radians(self.wind_turn) * self.time_step,
            "wind_direction_kick": math.radians(self.wind_direction_sigma) * math.sqrt(2.0 * alpha),
            "start_bearing": math.radians(self.start_bearing),
            "start_heading_sigma": math.radians(self.start_heading_sigma),
            "drift_x": self.drift_speed * self.time_step * math.cos(math.radians(self.drift_direction)),
            "drift_y": self.drift_speed * self.time_step * math.sin(math.radians(self.drift_direction)),
            "antenna_left": (-0.5 if self.antennae_swapped else 0.5) * self.antenna_separation,
            "vane_offset": math.radians(self.vane_offset),
            "octant_sign": -1.0 if self.octant_clockwise else 1.0,
            "octant_offset": math.radians(self.octant_offset),
            "blank_steps": math.floor(self.blank_duration / self.time_step + 1e-9),
        }
        for name in ROW.names or ():
            row[name] = values.get(name, getattr(self, name, None))
        return row[()]


_NUMBERS = (
    "width height time_step stride drift_x drift_y"
    " emission_mean emission_none emission_period emission_on emission_jitter filament_mass"
    " initial_variance variance_growth lifetime_steps cutoff_squared"
    " wind_speed wind_speed_kick wind_speed_floor wind_direction wind_turn wind_direction_kick"
    " wind_reversion"
    " source_upwind source_jitter source_margin"
    " start_distance_min start_distance_max start_bearing start_heading_sigma"
    " antenna_left antenna_forward left_gain right_gain vane_offset sensor_noise sensor_saturation"
    " octant_offset octant_sign calm_speed"
    " success_radius max_steps timeout_terminates"
    " reward_time reward_success reward_whiff whiff_threshold reward_blank blank_steps"
    " reward_shaping shaping_discount success_replaces"
).split()
ROW = np.dtype(
    [("turns", np.float64, (len(ACTIONS),)), ("level_edges", np.float64, (LEVELS - 1,))]
    + [(name, np.float64) for name in _NUMBERS],
    align=True,
)
"""One scenario as the kernels see it; see `Scenario.row`."""


def _checked(spec: "dataclasses.Field[Any]", value: Any) -> Any:
    """The value in its field's type, or an error that names field, value and what is accepted."""
    if spec.name == "level_edges":
        return _checked_edges(value)
    if spec.type is bool:
        if not isinstance(value, bool | np.bool_):
            raise ValueError(f"{spec.name} must be true or false, got {shown(value)}")
        return bool(value)
    whole = spec.type is int
    low, high, above = (spec.metadata[key] for key in ("low", "high", "above"))
    is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not is_number or value != value or (whole and value % 1 != 0):
        raise ValueError(f"{spec.name} must be a {'whole ' if whole else ''}number, got {shown(value)}")
    if value < low or (above and value == low):
        raise ValueError(f"{spec.name} must be {'above' if above else 'at least'} {low:,.12g}, got {shown(value)}")
    if value > high:
        raise ValueError(f"{spec.name} must be at most {high:,.12g}, got {shown(value)}")
    return int(value) if whole else float(value)


def _checked_edges(value: Any) -> tuple[float, ...]:
    try:
        edges = () if isinstance(value, str) else tuple(float(edge) for edge in value)
    except (TypeError, ValueError, OverflowError):
        edges = ()
    ordered = all(a < b for a, b in zip((-math.inf, *edges), (*edges, math.inf), strict=True))
    if len(edges) != LEVELS - 1 or not ordered:
        raise ValueError(f"level_edges must be {LEVELS - 1} increasing numbers, got {shown(value)}")
    return edges


def _typed(kind: Any, text: str) -> Any:
    """A value from what was typed, where it can be one of that type; otherwise the text, which is refused later."""
    if kind is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    try:
        return float(text) if kind in (int, float) else [float(edge) for edge in text.split(",")]
    except ValueError:
        return text


def _unknown(what: str, name: Any, known: list[str]) -> str:
    """An error about a name that nobody knows: what was probably meant, and what is accepted, if that is not long."""
    close = difflib.get_close_matches(str(name), known, n=1)
    some = ", ".join(known[:12]) + (f" and {len(known) - 12} more" if len(known) > 12 else "")
    hint = f"did you mean {close[0]!r}?" if close else f"accepted: {some}"
    return f"unknown {what} {shown(name)}; {hint}" + (f" Accepted: {some}" if close and len(known) <= 12 else "")


PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    "reference": {
        "start_distance_max": 20.0 / 3.0,
        "octant_offset": 0.0,
        "octant_clockwise": False,
        "timeout_terminates": True,
        "shaping_discount": 1.0,
        "success_replaces": True,
    },
}
"""Fields of each preset that differ from the defaults."""
REWARDS = (*PRESETS, "search")
"""What `Scenario.rewarded` takes."""
_OF_REWARD = (
    "reward_time reward_success reward_whiff whiff_threshold reward_blank blank_duration"
    " reward_shaping shaping_discount success_replaces timeout_terminates"
).split()

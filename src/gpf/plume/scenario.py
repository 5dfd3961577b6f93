"""Scenarios: every physical quantity of an episode, with its unit.

A `Scenario` is plain data. The kernels read it as one row of numbers (`gpf.plume.row`), so that another scenario, or a
different one in each lane of a vector environment, needs no recompilation.
"""

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpf.plume.fields import (
    AMOUNT,
    CONCENTRATION_LEVELS,
    DURATION,
    LENGTH,
    MOST_NODES,
    MOST_PLACES,
    RATIO,
    SPEED,
    Range,
    checked,
    checked_ranges,
    choice,
    not_negative,
    number,
    positive,
    typed,
    unknown,
    with_ranges,
)
from gpf.plume.inputs import parse_json, read_json, shown
from gpf.plume.layout import Rectangle, check_layout
from gpf.plume.parts import SENSORS
from gpf.plume.presets import PRESETS
from gpf.plume.sensor_row import SENSOR_KINDS

LEVELS = CONCENTRATION_LEVELS
"""Concentration levels of a token: blank, then six bands."""
MOST_UPDATES = 200_000
"""Updates of the wind's nodes in a physical step: a fraction of a millisecond."""
MOST_HEAD_START = 10_000
"""Physical steps before an episode begins."""
_STABLE = 0.8
"""Share of the largest stable step (von Neumann) that a step of the wind's grid may have."""
_GUST = 4.0
"""Standard deviations of the fluctuations up to which the grid's step is stable."""
OCTANTS = 8
"""Wind directions of a token."""
ACTIONS = ("forward", "left 15", "right 15", "around", "cast left", "cast right")
"""The agent's actions; each turns first and then moves one step forward."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One plume world: physics, sensor, motion, episode and reward. The defaults are the preset `paper`.

    Angles are in degrees, counter-clockwise; direction 0 points along +x. The wind's direction is where it blows to.
    """

    width: float = number(20.0, 1e-3, LENGTH)
    """Extent of the domain along x, m."""
    height: float = number(20.0, 1e-3, LENGTH)
    """Extent of the domain along y, m."""
    time_step: float = number(0.1, 1e-4, 100.0)
    """Duration of a step, s."""
    substeps: int = number(1, 1, 100)
    """Physical steps in each step of the agent, for sensors and turbulence that are faster than the agent."""
    head_start: float = not_negative(0.0, 3600.0)
    """How long wind and source have been on when an episode begins, s."""

    obstacles: tuple[Rectangle, ...] = ()
    """Rectangles that stop wind, odour and agent: x and y of the lower left corner, width and height, m."""
    occupancy: tuple[str, ...] = ()
    """Obstacles as a grid over the domain, in place of rectangles: rows of # (solid) and . (free), top row first."""
    obstacle_cell: float = number(0.25, 1e-3, LENGTH)
    """Greatest size of the cells on which obstacles are laid and the wind around them is solved, m."""

    emission_rate: float = not_negative(5.0, 1e6)
    """Mean number of filaments that the source releases, 1/s (a Poisson process; at most 20 a step)."""
    emission_period: float = not_negative(0.0, DURATION)
    """Period with which the source turns on and off; 0 for one that is always on, s."""
    emission_duty: float = positive(1.0, 1.0)
    """Share of a period for which the source is on."""
    emission_random: bool = False
    """Whether spells on and off are exponentially distributed about these means, independently at each source."""
    emission_jitter: float = not_negative(0.01, LENGTH)
    """Standard deviation of a new filament's position about the source, per axis, m."""
    filament_radius: float = number(0.01, 1e-6, LENGTH)
    """Radius (Gaussian sigma) of a new filament, m."""
    diffusion: float = not_negative(0.05, 1e3)
    """Diffusion rate D of a filament: its radius is sqrt(filament_radius^2 + 2 D age + R age^3), m^2/s."""
    dispersion: float = not_negative(0.0, 1e3)
    """Relative dispersion R of a filament by eddies of its own size (Richardson's law), m^2/s^3."""
    filament_velocity_sigma: float = not_negative(0.0, SPEED)
    """Standard deviation of a filament's own turbulent velocity, per axis, m/s; an Ornstein-Uhlenbeck process."""
    filament_velocity_time: float = positive(1.0, DURATION)
    """Correlation time of that velocity (Lagrangian time scale), s."""
    filament_lifetime: float = positive(30.0, DURATION)
    """Age at which a filament ends, unless it leaves the domain before, s."""
    filament_mass: float = not_negative(0.1, AMOUNT)
    """Mass m of a filament: m / (2 pi sigma^2) is the concentration at its centre, concentration x m^2."""
    cutoff: float = positive(3.0, 4.0)
    """Distance beyond which a filament contributes nothing, in its radii."""

    wind_speed: float = not_negative(1.0, SPEED)
    """Mean wind speed, m/s."""
    wind_speed_sigma: float = not_negative(0.2, SPEED)
    """Standard deviation of the wind speed, m/s."""
    wind_speed_floor: float = not_negative(0.1, SPEED)
    """Lowest wind speed, m/s."""
    wind_direction: float = number(0.0, -360.0, 360.0)
    """Mean direction that the wind blows to, deg."""
    wind_turn: float = number(0.0, -360.0, 360.0)
    """Rate at which the mean direction turns during an episode, deg/s."""
    wind_direction_sigma: float = not_negative(15.0, 360.0)
    """Standard deviation of the wind direction, deg."""
    wind_correlation_time: float = positive(2.0, DURATION)
    """Correlation time of wind speed and direction, both Ornstein-Uhlenbeck processes, s; at least one time step."""
    wind_grid: int = number(0, 0, MOST_NODES)
    """Nodes along each side of the grid on which the wind fluctuates from place to place (Farrell et al. 2002); 0 for a
    wind that is the same everywhere."""
    wind_noise_sigma: float = not_negative(0.0, SPEED)
    """Standard deviation of the fluctuations at the corners of the grid, per axis, m/s."""
    wind_noise_frequency: float = number(0.5, 1e-6, 100.0)
    """Natural frequency of the fluctuations at the corners, rad/s."""
    wind_noise_damping: float = number(0.1, 1e-6, 100.0)
    """Their damping ratio."""
    wind_diffusivity: float = number(4.0, 1e-3, 1e4)
    """Diffusivity K of the fluctuations, m^2/s."""
    wind_switch_time: float = not_negative(0.0, DURATION)
    """Time after which the mean direction switches, counted from the beginning of the head start, s; 0 for a direction
    that does not."""
    wind_switch_period: float = not_negative(0.0, DURATION)
    """Time between two switches, s; 0 for a single one."""
    wind_switch_angle: float = number(45.0, 0.0, 180.0)
    """Angle of a switch, to either side of `wind_direction`, deg."""
    wind_switch_random: bool = False
    """Whether that angle is drawn for each switch, uniformly up to `wind_switch_angle`."""

    source_upwind: float = number(0.25, -0.5, 0.5)
    """How far upwind of the domain's centre the source is placed, in domain widths."""
    source_jitter: float = not_negative(0.15, 0.5)
    """Half-width of the uniform jitter of the source, per axis, in domain widths."""
    source_margin: float = not_negative(0.05, 0.5)
    """Least distance of the source from the walls, in domain widths."""
    source_at: tuple[float, ...] = ()
    """Where the source is, (x, y) in m; empty for a place that is drawn."""
    sources: int = number(1, 1, MOST_PLACES)
    """Number of sources; to find any of them is success."""
    decoys: int = number(0, 0, MOST_PLACES - 1)
    """Number of sources of another substance, which do not count; at most 4 with `sources`."""
    decoy_strength: float = positive(1.0, 100.0)
    """Emission rate of a decoy, in those of a source."""
    source_spacing: float = not_negative(4.0, LENGTH)
    """Least distance between two sources, decoys included, m."""
    start_distance_min: float = not_negative(3.0, LENGTH)
    """Least distance from the source at which the agent starts, m."""
    start_distance_max: float = not_negative(10.0, LENGTH)
    """Greatest distance from the source at which the agent starts, m."""
    start_bearing: float = not_negative(45.0, 180.0)
    """Half-width of the uniform bearing of the start, seen from the source, about downwind, deg."""
    start_heading_sigma: float = not_negative(30.0, 360.0)
    """Standard deviation of the start's heading about upwind, deg."""

    speed: float = not_negative(0.5, SPEED)
    """Speed of the agent, m/s."""
    turn_angle: float = number(15.0, 0.0, 180.0)
    """Turn of the actions `left` and `right`, deg."""
    around_angle: float = number(180.0, 0.0, 180.0)
    """Turn of the action `around`, deg."""
    cast_angle: float = number(30.0, 0.0, 180.0)
    """Turn of the actions `cast left` and `cast right`, deg."""

    drift_speed: float = not_negative(0.0, SPEED)
    """Speed of a current that carries the agent along, of which it does not know, m/s."""
    drift_direction: float = number(90.0, -360.0, 360.0)
    """Direction of that current, deg."""

    antenna_separation: float = not_negative(0.1, 100.0)
    """Distance between the two antennae, m."""
    antenna_forward: float = number(0.08, -100.0, 100.0)
    """Distance of the antennae ahead of the body's centre, m."""
    antennae_swapped: bool = False
    """Whether what is called the left antenna sits on the right, and the right one on the left."""
    left_gain: float = not_negative(1.0, AMOUNT)
    """Factor of the left reading before noise is added; 0 for a dead antenna."""
    right_gain: float = not_negative(1.0, AMOUNT)
    """The same of the right reading."""
    vane_offset: float = number(0.0, -360.0, 360.0)
    """By how much the wind vane is turned: what it adds to the wind's direction, deg."""
    sensor_kind: str = choice("ideal", SENSOR_KINDS)
    """Model of the gas sensor: `ideal` has noise only, `linear` also dynamics, `metal-oxide` the whole chain."""
    sensor_noise: float = not_negative(1e-3, AMOUNT)
    """Standard deviation of the noise added to each reading of an ideal or linear sensor, concentration."""
    sensor_saturation: float = number(1.0, 1e-9, AMOUNT)
    """Greatest reading; noise is added first, then readings are clipped to [0, this], concentration."""
    sensitivity: tuple[float, ...] = (1.0, 0.0, 0.0, 1.0)
    """Responses of the two gas channels of an antenna to the two substances, with decoys: channel one of the
    source's and of the decoys' substance, then channel two of both."""
    sensor_relative_noise: float = not_negative(2e-3, 1.0)
    """Standard deviation of the noise that is proportional to the signal (of metal oxide: to RS), not of `ideal`."""
    sensor_rise_time: float = not_negative(3.0, 1e4)
    """Time constant of the response to more gas; 0 for none, s."""
    sensor_recovery_time: float = not_negative(12.0, 1e4)
    """Time constant of the response to less gas; 0 for none, s."""
    sensor_ppm_per_unit: float = number(1e3, 1e-6, AMOUNT)
    """Amount of gas that a concentration of 1 stands for, which the curve of a metal-oxide sensor refers to, ppm."""
    sensor_curve_scale: float = number(3.5, 1e-6, RATIO)
    """Scale A of the static curve RS/R0 = A c^B of a metal-oxide sensor: RS/R0 at c = 1 ppm."""
    sensor_curve_exponent: float = number(-0.85, -5.0, 5.0)
    """Exponent B of that curve: negative where gas lowers the resistance; its magnitude is at least 0.01."""
    sensor_clean_air: float = number(4.0, 1e-6, RATIO)
    """RS/R0 of a metal-oxide sensor in clean air; it is blind to concentrations whose A c^B is beyond this."""
    sensor_load: float = number(0.5, 1e-6, RATIO)
    """Load resistor RL/R0 of the voltage divider that reads a metal-oxide sensor."""
    sensor_bits: int = number(0, 0, 24)
    """Bits of the analogue-to-digital converter; 0 for no rounding. Full scale is the supply voltage of the divider,
    or the saturation of a linear sensor."""
    sensor_temperature: float = number(20.0, -50.0, 100.0)
    """Temperature of the air, at which the sensor was not calibrated unless it is 20, deg C."""
    sensor_temperature_drift: float = number(0.0, -0.1, 0.1)
    """Relative change of RS/R0 (linear: of the signal) with temperature, 1/K."""
    sensor_humidity: float = number(50.0, 0.0, 100.0)
    """Relative humidity of the air, at which the sensor was not calibrated unless it is 50, %."""
    sensor_humidity_drift: float = number(0.0, -0.1, 0.1)
    """Relative change of RS/R0 (linear: of the signal) with humidity, 1/%."""
    sensor_drift_sigma: float = not_negative(0.0, 1.0)
    """Standard deviation of a slow random relative drift, an Ornstein-Uhlenbeck process that starts at 0."""
    sensor_drift_time: float = positive(600.0, DURATION)
    """Correlation time of that drift, s."""
    sensor_inverse: bool = False
    """Whether an inverse filter undoes the sensor's response times."""
    sensor_inverse_rise_time: float = not_negative(0.0, 1e4)
    """Time constant that the inverse filter assumes for more gas; 0 for the true one, s."""
    sensor_inverse_recovery_time: float = not_negative(0.0, 1e4)
    """Time constant that the inverse filter assumes for less gas; 0 for the true one, s."""
    sensor_inverse_smoothing: float = not_negative(0.05, 1e4)
    """Time constant of each of the two low-pass stages of the inverse filter; 0 for no smoothing, s."""
    level_edges: tuple[float, ...] = (3e-3, 6e-3, 15e-3, 45e-3, 150e-3, 600e-3)
    """Upper edges of the first six concentration levels; a reading equal to an edge belongs below it, concentration."""
    octant_offset: float = number(22.5, 0.0, 45.0)
    """Where octant 0 begins, deg before straight ahead: 22.5 centres it, 0 starts it there."""
    octant_clockwise: bool = True
    """Whether octants of the direction that the wind comes from count clockwise from straight ahead."""
    calm_speed: float = not_negative(0.05, SPEED)
    """Wind speed below which the octant is 0, m/s."""

    success_radius: float = positive(0.5, LENGTH)
    """Distance from the source below which it is found, m."""
    max_steps: int = number(1200, 1, 10_000_000)
    """Steps after which an episode ends without success."""
    recording: str = ""
    """File or folder of a recorded plume that takes the place of the simulated one; see `gpf.plume.recordings`. Domain,
    source, obstacles and wind are then those of the recording, unless fields below say otherwise."""
    recording_rate: float = not_negative(0.0, 1e6)
    """Frames a second; 0 for what the file says, Hz."""
    recording_pixel: float = not_negative(0.0, LENGTH)
    """Size of a pixel; 0 for what the file says, m."""
    recording_dataset: str = ""
    """Name of the movie in a file of several arrays; empty for the only one."""
    recording_axes: str = ""
    """Order of the movie's axes, such as `tyx`; empty for what the format suggests."""
    recording_height: float = not_negative(1.5, LENGTH)
    """Height at which filaments in three dimensions are sliced, m."""
    recording_wind: tuple[float, ...] = ()
    """Wind of a recording, (u, v) in m/s; empty for what the file has, or for an estimate from the movie."""
    recording_scale: float = positive(1.0, 1e9)
    """Factor of the concentrations of a recording."""
    recording_skip: float = not_negative(0.0, DURATION)
    """Time at the beginning of a recording that is left out, s."""
    recording_start_random: bool = True
    """Whether an episode starts at a random time of the recording, and not at its beginning."""
    recording_mirrored: bool = False
    """Whether half of the episodes see the recording mirrored across the x axis."""

    lost_distance: float = not_negative(0.0, LENGTH)
    """Distance from the nearest filament beyond which an episode ends without success, m; 0 for none."""
    timeout_terminates: bool = False
    """Whether running out of steps is terminal (no bootstrap) as well as truncation."""

    reward_time: float = number(-0.01, -AMOUNT, AMOUNT)
    """Reward of every step."""
    reward_success: float = number(100.0, -AMOUNT, AMOUNT)
    """Reward of finding the source."""
    reward_whiff: float = number(1.0, -AMOUNT, AMOUNT)
    """Reward of a step on which either reading exceeds `whiff_threshold`."""
    whiff_threshold: float = not_negative(3e-3, AMOUNT)
    """Reading above which a step counts as a whiff, concentration."""
    reward_blank: float = number(-0.05, -AMOUNT, AMOUNT)
    """Reward of every step of a blank once it has lasted longer than `blank_duration`."""
    blank_duration: float = not_negative(2.0, DURATION)
    """How long a blank may last before it costs, s."""
    reward_shaping: float = number(2.0, -AMOUNT, AMOUNT)
    """Weight of the shaping by distance: the potential is -weight x distance, and 0 at the source, 1/m."""
    shaping_discount: float = not_negative(0.99, 1.0)
    """Discount in the shaping term; the learner's own keeps the optimal policy (Ng et al. 1999), 1 pays progress."""
    success_replaces: bool = False
    """Whether the step that finds the source is paid time and success only."""

    ranges: tuple[Range, ...] = ()
    """Numbers that are drawn for each episode, uniformly: field, lowest and highest value. In a dictionary or a
    JSON file a field with two numbers in place of one says the same."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranges", checked_ranges(self.ranges, _kinds()))
        typed_ends = {name: ends for name, *ends in self.ranges}
        for spec in dataclasses.fields(self):
            if spec.name == "ranges":
                continue
            for end in typed_ends.get(spec.name, ()):  # before their middle, which nobody typed
                checked(spec, end)
            object.__setattr__(self, spec.name, checked(spec, getattr(self, spec.name)))
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
        if 0 < self.wind_grid < 3:
            raise ValueError(f"wind_grid must be 0 or at least 3 nodes, got {self.wind_grid}")
        updates = self.grid_substeps * self.wind_grid**2
        if updates > MOST_UPDATES:
            raise ValueError(
                f"wind_diffusivity must allow at most {MOST_UPDATES:,} updates of the wind's nodes in a physical step,"
                f" got {self.wind_diffusivity:g} with wind_grid={self.wind_grid}, which takes {updates:,}"
            )
        if self.head_start * self.substeps > MOST_HEAD_START * self.time_step:
            raise ValueError(
                f"head_start must be at most {MOST_HEAD_START:,} physical steps,"
                f" {MOST_HEAD_START * self.time_step / self.substeps:g} s, got {self.head_start:g}"
            )
        if self.sources + self.decoys > MOST_PLACES:
            raise ValueError(
                f"decoys must be at most {MOST_PLACES - self.sources} with sources={self.sources}, got {self.decoys}"
            )
        inside = not self.source_at or (
            0.0 <= self.source_at[0] <= self.width and 0.0 <= self.source_at[1] <= self.height
        )
        if not inside and not self.recording:  # a recording has a domain of its own
            raise ValueError(
                f"source_at must be in the domain, x from 0 to {self.width:g} m and y from 0 to {self.height:g} m,"
                f" got {list(self.source_at)}"
            )
        if abs(self.sensor_curve_exponent) < 0.01:
            raise ValueError(
                f"sensor_curve_exponent must be at most -0.01 or at least 0.01, got {self.sensor_curve_exponent:g}"
            )
        if self.start_distance_max < self.start_distance_min:
            raise ValueError(
                f"start_distance_max must be at least start_distance_min, {self.start_distance_min:g},"
                f" got {self.start_distance_max:g}"
            )
        for name, *ends in self.ranges:
            for end in ends:
                extreme: dict[str, Any] = {name: end}
                dataclasses.replace(self, ranges=(), **extreme)  # refuses what no scenario may have
        check_layout(self.width, self.height, self.obstacle_cell, self.obstacles, self.occupancy)

    @classmethod
    def preset(cls, name: str) -> "Scenario":
        """The scenario of that name, such as `paper` (the text, made consistent) or `reference` (the authors' code)."""
        if not isinstance(name, str) or name not in PRESETS:
            raise ValueError(unknown("scenario", name, list(PRESETS)))
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
                raise ValueError(unknown("scenario field", name, known))
        return dataclasses.replace(base, **with_ranges(values, base.ranges, _kinds()))

    def changed(self, assignments: Sequence[str]) -> "Scenario":
        """The same world with other values of some fields, which are typed as FIELD=VALUE.

        Numbers, `true` and `false` are written as in JSON, several numbers with commas between them, and a range
        that is drawn from anew for each episode as LOW..HIGH. Obstacles
        are such numbers with semicolons between rectangles, as in `obstacles=2,3,1,4;6,0,0.25,8`, and the rows of an
        occupancy grid also have semicolons between them; nothing after the equals sign stands for none.
        """
        kinds = {spec.name: spec.type for spec in dataclasses.fields(self)}
        changes: dict[str, Any] = {}
        for text in assignments:
            name, equals, value = text.partition("=")
            if not equals:
                raise ValueError(f"a change of a scenario must be FIELD=VALUE, got {shown(text)}")
            if name not in kinds:
                raise ValueError(unknown("scenario field", name, list(kinds)))
            changes[name] = typed(kinds[name], value)
        return dataclasses.replace(self, **with_ranges(changes, self.ranges, kinds))

    def with_sensor(self, name: str) -> "Scenario":
        """The same world with another gas sensor, one of `gpf.plume.parts.SENSORS` such as `MiCS-6814-RED`."""
        if not isinstance(name, str) or name not in SENSORS:
            raise ValueError(unknown("sensor", name, list(SENSORS)))
        return dataclasses.replace(self, **SENSORS[name])

    def rewarded(self, reward: str, discount: float = 0.99, loitering: float = 0.0) -> "Scenario":
        """The same world with another reward: `paper`, `reference`, or `search` for a learner of this discount.

        `search` is ours. The paper pays +1 for every step in the plume, which an agent that loiters there collects
        forever: at its discount of 0.99 that is worth 1 / (1 - 0.99) = 100, as much as the source. In `search`
        loitering is worth `loitering` times the source at any discount, by default nothing. It does not punish blanks,
        which a search cannot avoid, shapes by distance with the learner's own discount, so that the best policy is the
        one without shaping, and lets a learner decide whether an episode that runs out of time goes on in the value of
        its last state. Such shaping pays (1 - discount) d for a step that keeps its distance d; time costs more than
        that, within 10 m at a discount of 0.998.
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
        elif reward in REWARDS:
            preset = Scenario.preset(reward)
            changes = {name: getattr(preset, name) for name in _OF_REWARD}
        else:
            raise ValueError(unknown("reward", reward, list(REWARDS)))
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
        lifetime = min(self.filament_lifetime, self.head_start + self.max_steps * self.time_step)
        rate = self.emission_rate * (self.sources + self.decoys * self.decoy_strength)
        mean = rate * (lifetime + self.time_step)
        return 64 + math.ceil(mean + 8.0 * math.sqrt(mean))  # 64: room to append between two compactions

    @property
    def grid_substeps(self) -> int:
        """Steps of the wind's grid in a physical step: central differences and explicit steps must be stable."""
        if self.wind_grid == 0:
            return 0
        per_x, per_y = ((self.wind_grid - 1) / extent for extent in (self.width, self.height))
        diffusivity = 0.5 * self.wind_diffusivity
        fastest = self.wind_speed + 3.0 * self.wind_speed_sigma + _GUST * self.wind_noise_sigma
        largest = min(0.5 / (diffusivity * (per_x**2 + per_y**2)), diffusivity / max(fastest, 1e-9) ** 2)
        return max(1, math.ceil(min(self.time_step / self.substeps / (_STABLE * largest), 1e9)))

    @property
    def needs_rows(self) -> bool:
        """Whether filaments have velocities or substances of their own."""
        return self.filament_velocity_sigma > 0.0 or self.decoys > 0


def _kinds() -> dict[str, Any]:
    """The types of all fields."""
    return {spec.name: spec.type for spec in dataclasses.fields(Scenario)}


REWARDS = ("paper", "reference", "search")
"""Rewards of `Scenario.rewarded`."""
_OF_REWARD = (
    "reward_time reward_success reward_whiff whiff_threshold reward_blank blank_duration"
    " reward_shaping shaping_discount success_replaces timeout_terminates"
).split()

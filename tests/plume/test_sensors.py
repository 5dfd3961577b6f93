"""The sensor's chain against a plain version of it, written here and nowhere else, and against closed forms."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpf.plume import Scenario
from gpf.plume.parts import SENSORS
from gpf.plume.regimes import between
from gpf.plume.rng import normal, seed_streams
from gpf.plume.row import row_of
from gpf.plume.sensor_row import SENSOR_KINDS, inverse_noise_gain
from gpf.plume.sensors import DRIFT, RESPONSE, SENSOR_STATE, respond, start_sensor

METAL_OXIDE = [name for name, fields in SENSORS.items() if fields["sensor_kind"] == "metal-oxide"]
CLEAN = {"sensor_noise": 0.0, "sensor_relative_noise": 0.0, "sensor_bits": 0}
"""Neither noise nor rounding."""


def sensor(name, **fields):
    return dataclasses.replace(Scenario().with_sensor(name), **fields)


def read(scenario, concentrations, seed=0, gain=1.0):
    """Readings of a sensing element that starts in clean air, and its states after each."""
    row, stream = row_of(scenario), seed_streams([seed])[0]
    state = np.full(SENSOR_STATE, np.nan)
    start_sensor(row, state)
    readings, states = [], []
    for concentration in concentrations:
        readings.append(respond(row, state, concentration, gain, stream))
        states.append(state.copy())
    return np.array(readings), np.array(states)


def blind_ppm(scenario):
    return (scenario.sensor_clean_air / scenario.sensor_curve_scale) ** (1 / scenario.sensor_curve_exponent)


class PlainSensor:
    """The chain in words: resistances, a divider, codes and decays; noise comes from a list of normal numbers."""

    def __init__(self, s, normals):
        self.s, self.normals = s, iter(normals)
        self.oxide = s.sensor_kind == "metal-oxide"
        self.falls = self.oxide and s.sensor_curve_exponent < 0
        self.value = s.sensor_clean_air if self.oxide else 0.0
        self.slow = 0.0
        self.first = self.second = self.value * max(self.climate(), 0.1)

    def climate(self):
        s = self.s
        return (
            1
            + s.sensor_temperature_drift * (s.sensor_temperature - 20)
            + s.sensor_humidity_drift * (s.sensor_humidity - 50)
        )

    def decay(self, time):
        return math.exp(-self.s.time_step / time) if time else 0.0

    def closer_to_gas(self, new, old):
        return new < old if self.falls else new > old

    def reading(self, concentration):
        s = self.s
        target = self.settled(concentration) if self.oxide else concentration
        e = self.decay(s.sensor_rise_time if self.closer_to_gas(target, self.value) else s.sensor_recovery_time)
        self.value = target + (self.value - target) * e
        signal = self.value * self.drift()
        measured = self.resistor(signal) if self.oxide else self.amplifier(signal)
        estimate, gain = self.undone(measured) if s.sensor_inverse else (measured, 1.0)
        if not self.oxide:
            return float(np.clip(estimate, 0, s.sensor_saturation))
        beyond = s.sensor_clean_air - estimate if self.falls else estimate - s.sensor_clean_air
        if beyond <= 4 * gain * self.relative_noise() * measured:
            return 0.0
        if estimate <= 0:
            return s.sensor_saturation
        ppm = 10 ** (math.log10(estimate / s.sensor_curve_scale) / s.sensor_curve_exponent)
        return min(ppm / s.sensor_ppm_per_unit, s.sensor_saturation)

    def settled(self, concentration):
        s, ppm = self.s, concentration * self.s.sensor_ppm_per_unit
        if ppm == 0:
            return s.sensor_clean_air
        ratio = 10 ** (math.log10(s.sensor_curve_scale) + s.sensor_curve_exponent * math.log10(ppm))
        return min(ratio, s.sensor_clean_air) if self.falls else max(ratio, s.sensor_clean_air)

    def drift(self):
        if self.s.sensor_drift_sigma:
            e = self.decay(self.s.sensor_drift_time)
            self.slow = e * self.slow + self.s.sensor_drift_sigma * math.sqrt(1 - e**2) * next(self.normals)
        return max(self.climate() + self.slow, 0.1)

    def resistor(self, ratio):
        s = self.s
        ratio += s.sensor_relative_noise * ratio * next(self.normals)
        voltage = 1 / (1 + ratio / s.sensor_load)
        if s.sensor_bits:
            voltage = max(math.floor(voltage * (2**s.sensor_bits - 1) + 0.5), 0.5) / (2**s.sensor_bits - 1)
        return s.sensor_load / voltage - s.sensor_load

    def amplifier(self, signal):
        s = self.s
        signal += math.hypot(s.sensor_noise, s.sensor_relative_noise * signal) * next(self.normals)
        signal = float(np.clip(signal, 0, s.sensor_saturation))
        if s.sensor_bits:
            step = s.sensor_saturation / (2**s.sensor_bits - 1)
            signal = step * math.floor(signal / step + 0.5)
        return signal

    def undone(self, measured):
        s = self.s
        keep = self.decay(s.sensor_inverse_smoothing)
        self.first = keep * self.first + (1 - keep) * measured
        before, self.second = self.second, keep * self.second + (1 - keep) * self.first
        if self.closer_to_gas(self.second, before):
            e = self.decay(s.sensor_inverse_rise_time or s.sensor_rise_time)
        else:
            e = self.decay(s.sensor_inverse_recovery_time or s.sensor_recovery_time)
        return (self.second - e * before) / (1 - e), noise_gain(e, keep)

    def relative_noise(self):
        s = self.s
        code = 1 / (2**s.sensor_bits - 1) if s.sensor_bits else 0.0
        of_rounding = code / math.sqrt(12) * (s.sensor_load + s.sensor_clean_air) ** 2 / s.sensor_load
        return math.hypot(s.sensor_relative_noise, of_rounding / s.sensor_clean_air, 1e-9)


def noise_gain(e, keep, length=4000):
    """Root of the summed squares of the inverse filter's response to a unit impulse."""
    lag = np.arange(length)
    smooth = (1 - keep) ** 2 * (lag + 1) * keep**lag if keep else (lag == 0).astype(float)
    before = np.concatenate([[0.0], smooth[:-1]])
    return math.sqrt(float(np.sum(((smooth - e * before) / (1 - e)) ** 2)))


def whiffs(seed, count, top=1.0):
    """Blanks and whiffs of a few steps, of any strength."""
    random = np.random.default_rng(seed)
    blocks = [
        np.full(random.integers(1, 12), c) for c in top * random.random(count) ** 3 * random.integers(0, 2, count)
    ]
    return np.concatenate(blocks)[:count]


CHAINS = {
    **{name: {} for name in SENSORS},
    **{f"{name}, filtered": {"sensor_inverse": True} for name in SENSORS},
    "drifting": {
        "sensor_drift_sigma": 0.05, "sensor_drift_time": 2.0, "sensor_temperature": 31.0, "sensor_humidity": 80.0,
    },
    "wrong constants": {
        "sensor_inverse": True, "sensor_inverse_rise_time": 2.0, "sensor_inverse_recovery_time": 20.0,
        "sensor_inverse_smoothing": 0.0, "sensor_temperature": 5.0,
    },
    "hot and humid": {
        "sensor_temperature": 100.0, "sensor_humidity": 100.0, "sensor_saturation": 1e6, "sensor_bits": 24,
        "sensor_inverse": True,
    },
    "no converter": {"sensor_bits": 0, "sensor_rise_time": 0.0, "sensor_relative_noise": 0.3},
}  # fmt: skip


@pytest.mark.parametrize("kind", CHAINS)
def test_readings_equal_those_of_the_plain_chain(kind):
    name = kind.partition(",")[0]
    name = name if name in SENSORS else "TGS2600"
    scenario = sensor(name, time_step=0.05, **CHAINS[kind])
    series = whiffs(1, 600)
    stream = seed_streams([7])[0]
    plain = PlainSensor(scenario, [normal(stream) for _ in range(2 * len(series))])
    expected = [plain.reading(0.7 * c) for c in series]
    readings, _ = read(scenario, series, seed=7, gain=0.7)
    assert readings == pytest.approx(expected, rel=1e-8, abs=1e-12)
    assert np.count_nonzero(readings) > 20
    assert len(set(expected)) > 20


@given(
    st.floats(0.0, 10.0), st.floats(0.0, 5.0), st.floats(0.0, 0.1), st.integers(0, 2**63), st.sampled_from([0.5, 1.0])
)
def test_an_ideal_sensor_is_gain_noise_and_clip_to_the_last_bit(concentration, gain, noise, seed, saturation):
    scenario = Scenario(sensor_noise=noise, sensor_saturation=saturation)
    reading = read(scenario, [concentration], seed, gain)[0][0]
    expected = gain * concentration + noise * normal(seed_streams([seed])[0])
    assert reading == min(max(expected, 0.0), saturation)


@pytest.mark.parametrize("steps", [1, 2, 7, 300])
@pytest.mark.parametrize("name", SENSORS)
def test_a_time_constant_covers_63_percent_of_a_step_whatever_the_time_step(name, steps):
    """Towards gas in the rise time, back in the recovery time; RS/R0 or concentration."""
    part = SENSORS[name]
    gas = 0.5
    rising = sensor(
        name, time_step=part["sensor_rise_time"] / steps, **CLEAN, wind_correlation_time=100.0, emission_rate=0.0
    )
    start = PlainSensor(rising, []).value
    target = PlainSensor(rising, []).settled(gas) if name in METAL_OXIDE else gas
    _, states = read(rising, [gas] * steps)
    assert states[-1, RESPONSE] == pytest.approx(target + (start - target) / math.e, rel=1e-10)
    falling = dataclasses.replace(rising, time_step=part["sensor_recovery_time"] / steps, sensor_rise_time=0.0)
    _, states = read(falling, [gas] + [0.0] * steps)
    assert states[0, RESPONSE] == pytest.approx(target)
    assert states[-1, RESPONSE] == pytest.approx(start + (target - start) / math.e, rel=1e-10)


@given(st.integers(1, 40), st.floats(0.01, 30.0))
def test_sub_steps_change_nothing_while_the_concentration_lasts(substeps, time):
    scenario = sensor("TGS2620", **CLEAN, time_step=time, wind_correlation_time=100.0, emission_rate=0.0)
    finer = dataclasses.replace(scenario, time_step=time / substeps) if time / substeps > 1e-4 else scenario
    steps = round(time / finer.time_step)
    once, often = read(scenario, [0.2])[1][-1], read(finer, [0.2] * steps)[1][-1]
    assert often[RESPONSE] == pytest.approx(once[RESPONSE], rel=1e-9)


def test_the_fast_nose_covers_90_percent_of_a_step_in_87_and_106_ms():
    scenario = sensor("fast-e-nose", **CLEAN, time_step=1e-3)
    readings, _ = read(scenario, [0.5] * 1000 + [0.0] * 1000)
    assert np.argmax(readings >= 0.9 * 0.5) + 1 == pytest.approx(87, abs=1)
    assert np.argmax(readings[1000:] <= 0.1 * 0.5) + 1 == pytest.approx(106, abs=1)


@pytest.mark.parametrize(("name", "ppm"), [("TGS2620", 4.6), ("TGS2600", 0.30), ("TGS2611", 123.0)])
def test_figaro_sensors_are_blind_below_what_the_literature_says(name, ppm):
    scenario = sensor(name, **CLEAN)
    assert blind_ppm(scenario) == pytest.approx(ppm, rel=0.01)
    assert (read(scenario, [0.98 * ppm / 1000] * 2000)[0] == 0.0).all()
    assert read(scenario, [1.02 * ppm / 1000] * 2000)[0][-1] == pytest.approx(1.02 * ppm / 1000, rel=1e-3)


@pytest.mark.parametrize("name", SENSORS)
@settings(max_examples=20, deadline=None)
@given(share=st.floats(0.0, 1.0))
def test_a_settled_sensor_reads_the_concentration(name, share):
    scenario = sensor(name, **CLEAN, sensor_rise_time=0.0)
    blind = blind_ppm(scenario) / 1000 if name in METAL_OXIDE else 1e-3
    concentration = (1.01 * blind) ** (1 - share)  # from hardly visible to the saturation, 1
    assert read(scenario, [concentration])[0][0] == pytest.approx(concentration, rel=1e-9)
    assert read(scenario, [3.0 * concentration + 1.0])[0][0] == 1.0


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("name", METAL_OXIDE)
def test_clean_air_reads_as_nothing_in_spite_of_noise(name, filtered):
    """A threshold of four standard deviations: at most a few of 30,000 readings are above it."""
    scenario = sensor(name, sensor_inverse=filtered)
    assert np.count_nonzero(read(scenario, np.zeros(30_000))[0]) <= 10


@pytest.mark.parametrize("name", METAL_OXIDE)
def test_clean_air_reads_as_nothing_after_gas_without_noise(name):
    scenario = sensor(name, **CLEAN, sensor_inverse=True, sensor_inverse_smoothing=0.0)
    readings, _ = read(scenario, [0.5] * 30 + [0.0] * 300)
    assert (readings[:30] > 0).all()
    assert (readings[30:] == 0).all()


@given(st.integers(1, 24), st.floats(0.0, 1.0))
def test_a_linear_sensor_is_rounded_by_at_most_half_a_step(bits, concentration):
    scenario = sensor("fast-e-nose", **{**CLEAN, "sensor_bits": bits}, sensor_rise_time=0.0)
    reading = read(scenario, [concentration])[0][0]
    assert abs(reading - concentration) <= 0.5 / (2**bits - 1) + 1e-12
    assert reading * (2**bits - 1) == pytest.approx(round(reading * (2**bits - 1)), abs=1e-6)


@given(st.sampled_from(METAL_OXIDE), st.integers(6, 24), st.floats(0.0, 1.0))
def test_the_voltage_of_a_divider_is_rounded_by_at_most_half_a_step(name, bits, share):
    scenario = sensor(name, **{**CLEAN, "sensor_bits": bits}, sensor_rise_time=0.0)
    concentration = (1.01 * blind_ppm(scenario) / 1000) ** (1 - share)
    reading = read(scenario, [concentration])[0][0]
    settled = PlainSensor(scenario, []).settled

    def voltage(c):
        return scenario.sensor_load / (scenario.sensor_load + settled(c))

    error = abs(voltage(reading) - voltage(concentration)) * (2**bits - 1)
    assert error <= 0.5 + 1e-6 or reading in (0.0, 1.0)  # within the noise of clean air, or saturated
    if reading == 0.0:
        assert abs(voltage(0.0) - voltage(concentration)) * (2**bits - 1) < 3.0


def test_temperature_and_humidity_scale_the_resistance():
    """10 K above the calibration at -1 % a kelvin and 20 % drier at -0.5 %: RS is 0.9 + 0.1 times what it was."""
    base = sensor(
        "TGS2620", **CLEAN, sensor_rise_time=0.0, sensor_temperature_drift=-0.01, sensor_humidity_drift=-0.005
    )
    warm = dataclasses.replace(base, sensor_temperature=30.0)
    dry = dataclasses.replace(warm, sensor_humidity=30.0)
    c = 0.1
    assert read(warm, [c])[0][0] == pytest.approx(c * 0.9 ** (1 / -0.7155), rel=1e-9)
    assert read(dry, [c])[0][0] == pytest.approx(c, rel=1e-9)
    cold = dataclasses.replace(base, sensor_temperature=10.0)
    assert read(cold, [c])[0][0] == pytest.approx(c * 1.1 ** (1 / -0.7155), rel=1e-9)


@pytest.mark.parametrize("time_step", [0.05, 0.5])
def test_slow_drift_is_an_ornstein_uhlenbeck_process_at_any_time_step(time_step):
    scenario = sensor("TGS2600", time_step=time_step, sensor_drift_sigma=0.02, sensor_drift_time=2.0)
    _, states = read(scenario, np.zeros(60_000))
    drift = states[1000:, DRIFT]
    independent = len(drift) * time_step / 4.0  # twice the correlation time apart
    assert drift.std() == pytest.approx(0.02, rel=4.0 / math.sqrt(independent))
    lag = round(2.0 / time_step)
    correlation = np.corrcoef(drift[:-lag], drift[lag:])[0, 1]
    assert correlation == pytest.approx(math.exp(-1.0), abs=4.0 / math.sqrt(independent))


def test_a_dead_antenna_smells_clean_air():
    for name in METAL_OXIDE:
        assert np.count_nonzero(read(sensor(name), np.ones(1000), gain=0.0)[0]) <= 1


@given(st.floats(0.01, 1.0), st.floats(0.0, 0.99))
def test_the_noise_gain_is_that_of_the_impulse_response(share, keep):
    assert inverse_noise_gain(share, 1 - keep) == pytest.approx(noise_gain(1 - share, keep), rel=1e-8)


SENSOR_FIELDS = {
    spec.name: spec
    for spec in dataclasses.fields(Scenario)
    if spec.name.startswith("sensor_") and spec.type in (int, float)
}


def ends(spec):
    low, high, above = (spec.metadata[key] for key in ("low", "high", "above"))
    return [math.nextafter(low, math.inf) if above else low, high]


@settings(max_examples=300, deadline=None)
@given(
    st.fixed_dictionaries({}, optional={name: st.sampled_from(ends(spec)) for name, spec in SENSOR_FIELDS.items()}),
    st.sampled_from(SENSOR_KINDS),
    st.booleans(),
    st.sampled_from([1e-4, 0.1, 100.0]),
    st.lists(st.sampled_from([0.0, 1e-9, 0.1, 1.0, 1e22]), min_size=1, max_size=12),
    st.sampled_from([0.0, 1.0, 1e6]),
)
def test_any_bounds_give_readings_between_nothing_and_saturation(fields, kind, inverse, time_step, series, gain):
    scenario = Scenario(
        **fields,
        sensor_kind=kind,
        sensor_inverse=inverse,
        time_step=time_step,
        emission_rate=0.0,
        wind_correlation_time=100.0,
    )
    readings, states = read(scenario, series, gain=gain)
    assert ((readings >= 0.0) & (readings <= scenario.sensor_saturation)).all()
    assert np.isfinite(states).all()


def test_a_sensor_changes_nothing_else_of_a_scenario():
    world = Scenario(wind_speed=2.0, sensor_saturation=0.5)
    for name, fields in SENSORS.items():
        changed = dataclasses.asdict(world.with_sensor(name))
        assert changed == {**dataclasses.asdict(world), **fields}
        assert Scenario.from_json(world.with_sensor(name).to_json()) == world.with_sensor(name)


def test_one_sensor_replaces_another_completely():
    """But for the static curve, which a linear sensor does not read."""
    for name in METAL_OXIDE:
        for before in SENSORS:
            assert Scenario().with_sensor(before).with_sensor(name) == Scenario().with_sensor(name)


def test_an_unknown_sensor_is_refused_in_one_line():
    with pytest.raises(
        ValueError, match="^unknown sensor 'TGS262'; did you mean 'TGS2620'. Accepted: MiCS-6814-RED, "
    ) as error:
        Scenario().with_sensor("TGS262")
    assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="^unknown sensor 3; accepted: "):
        Scenario().with_sensor(3)


def test_a_kind_of_sensor_changes_at_half_time_of_a_gradual_visit():
    before, after = Scenario().with_sensor("fast-e-nose"), Scenario().with_sensor("TGS2620")
    assert between(before, after, 0.49).sensor_kind == "linear"
    assert between(before, after, 0.5).sensor_kind == "metal-oxide"
    assert between(before, after, 0.5).sensor_rise_time == pytest.approx((0.0378 + 2.96) / 2)


def test_a_kind_of_sensor_can_be_typed():
    assert Scenario().changed(["sensor_kind=metal-oxide"]).sensor_kind == "metal-oxide"
    with pytest.raises(ValueError, match="^sensor_kind must be one of ideal, linear, metal-oxide, got 'mox'$"):
        Scenario().changed(["sensor_kind=mox"])

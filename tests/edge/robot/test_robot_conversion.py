import math
from types import SimpleNamespace

import numpy as np
import pytest

from gpf.edge.robot import from_adc, from_ppm
from gpf.plume import Scenario
from gpf.plume.row import row_of
from gpf.plume.sensors import calibrated, static_ratio

PARTS = ["MiCS-6814-RED", "MiCS-6814-OX", "MiCS-6814-NH3", "TGS2600", "TGS2611", "TGS2620"]


def noiseless(part):
    """A sensor of that kind that responds at once and without noise."""
    quiet = {"sensor_rise_time": 0.0, "sensor_recovery_time": 0.0, "sensor_relative_noise": 0.0, "sensor_noise": 0.0}
    fields = {name: value for name, value in vars(Scenario().with_sensor(part)).items() if name.startswith("sensor")}
    return Scenario.of({**fields, **quiet, "sensor_temperature": 20.0, "sensor_humidity": 50.0})


@pytest.mark.parametrize("part", PARTS)
def test_codes_of_a_metal_oxide_sensor_are_read_as_in_training(part):
    scenario = noiseless(part)
    numbers = row_of(scenario)
    row = SimpleNamespace(**{name: numbers[name] for name in numbers.dtype.names})
    convert = from_adc(scenario)
    seen = 0
    for concentration in np.geomspace(1e-3, 0.99, 20):
        ratio = static_ratio.py_func(row, concentration)
        code = np.rint(scenario.sensor_load / (scenario.sensor_load + ratio) * 4095.0)
        around = [calibrated.py_func(row, scenario.sensor_load * (4095.0 - c) / c) for c in (code - 1, code + 1)]
        if convert(code):
            assert min(around) < convert(code) < max(around)
            assert min(around) <= concentration <= max(around)
            seen += 1
    assert seen >= 5
    in_air = 4095.0 * scenario.sensor_load / (scenario.sensor_load + scenario.sensor_clean_air)
    towards_gas = 1.0 if scenario.sensor_curve_exponent < 0.0 else -1.0
    assert convert(in_air) == convert(in_air + 0.5 * towards_gas) == convert(in_air - 10.0 * towards_gas) == 0.0
    assert convert(in_air + 50.0 * towards_gas) > 0.0


@pytest.mark.parametrize("part", PARTS)
def test_a_code_at_the_end_of_the_range_is_a_broken_sensor(part):
    convert = from_adc(noiseless(part))
    for code in (0, 4095, 5000, -1, math.nan):
        assert math.isnan(convert(code))


def test_codes_of_a_linear_sensor_are_shares_of_its_saturation():
    convert = from_adc(noiseless("fast-e-nose"))
    assert [convert(0), convert(65535), convert(6553.5)] == pytest.approx([0.0, 1.0, 0.1])
    assert math.isnan(convert(65536))


def test_ppm_are_scaled_and_clipped_at_saturation_only():
    convert = from_ppm(Scenario.of({"sensor_ppm_per_unit": 500.0, "sensor_saturation": 2.0}))
    assert [convert(250.0), convert(5000.0), convert(-50.0)] == [0.5, 2.0, -0.1]
    assert math.isnan(convert(math.nan))


def test_sensors_without_a_calibration_are_refused():
    with pytest.raises(ValueError, match="sensor_kind must be linear or metal-oxide"):
        from_adc(Scenario())
    with pytest.raises(ValueError, match="sensor_inverse must be false"):
        from_adc(Scenario.of("slow-sensor").changed(["sensor_inverse=true", "sensor_bits=12"]))

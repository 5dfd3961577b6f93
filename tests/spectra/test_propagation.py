"""Signal propagation against published values, closed forms, and real deep random networks."""

import numpy as np
import pytest
import torch
from torch import nn

import gpf
from gpf.spectra.propagation import (
    advise_depth,
    correlation_map,
    critical_point,
    fixed_length,
    length_map,
    measured_variances,
    propagation,
)

pytestmark = pytest.mark.usefixtures("one_torch_thread")


def test_relu_is_critical_at_two():
    variance, bias = critical_point(1.0, "relu")
    assert (variance, bias) == pytest.approx((2.0, 0.0), abs=1e-6)
    at = propagation(np.sqrt(2.0), 0.0, "relu")
    assert at.phase == "critical"
    assert at.depth_scale == np.inf


@pytest.mark.parametrize("variance", [0.5, 1.5, 3.0])
def test_chi_of_relu_is_half_the_variance(variance):
    found = propagation(np.sqrt(variance), 0.0, "relu")
    assert found.chi == pytest.approx(variance / 2, abs=1e-6)
    assert found.length == (0.0 if variance < 2 else np.inf)
    assert found.depth_scale == pytest.approx(1 / abs(np.log(variance / 2)), rel=1e-5)
    assert found.phase == ("ordered" if variance < 2 else "chaotic")


@pytest.mark.parametrize(
    ("length", "variance", "bias"), [(0.1, 1.1776, 0.00083), (0.5, 1.688, 0.03804), (1.0, 2.1533, 0.15096)]
)
def test_tanhs_critical_line_is_the_published_one(length, variance, bias):
    assert critical_point(length, "tanh") == pytest.approx((variance, bias), abs=1e-4)
    found = propagation(np.sqrt(variance), np.sqrt(bias), "tanh")
    assert found.length == pytest.approx(length, abs=1e-2)
    assert found.chi == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(("variance", "bias"), [(1.3, 0.05), (2.5, 0.05), (4.0, 0.1)])
def test_tanhs_depth_scales_are_the_rates_at_which_its_maps_settle(variance, bias):
    w, b = np.sqrt(variance), np.sqrt(bias)
    found = propagation(w, b, "tanh")
    lengths = [2.0 * found.length]
    for _ in range(14):
        lengths.append(length_map(lengths[-1], w, b, "tanh"))
    gaps = np.abs(np.array(lengths) - found.length)
    assert gaps[13] / gaps[12] == pytest.approx(np.exp(-1 / found.length_scale), abs=1e-3)
    c = [found.correlation - 0.1 if found.correlation > 0.5 else found.correlation + 0.1]
    for _ in range(60):
        c.append(correlation_map(c[-1], found.length, w, b, "tanh"))
    away = np.abs(np.array(c) - found.correlation)
    assert away[-1] / away[-2] == pytest.approx(np.exp(-1 / found.depth_scale), abs=1e-3)


def test_the_correlation_map_of_relu_is_the_arc_cosine_kernel():
    for c in (-0.5, 0.0, 0.3, 0.9):
        wanted = (np.sqrt(1 - c * c) + c * (np.pi - np.arccos(c))) / np.pi
        assert correlation_map(c, 1.0, np.sqrt(2.0), 0.0, "relu") == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize(
    ("activation", "module", "sigma_w", "sigma_b"),
    [
        ("relu", nn.ReLU, 1.2, 0.0),
        ("relu", nn.ReLU, 1.6, 0.0),
        ("tanh", nn.Tanh, 1.1, 0.1),
        ("tanh", nn.Tanh, 2.0, 0.2),
    ],
)
def test_gradients_of_real_random_networks_grow_or_vanish_as_chi_says(activation, module, sigma_w, sigma_b):
    width, depth, ratios = 600, 24, []
    for seed in range(3):
        torch.manual_seed(seed)
        layers = []
        for _ in range(depth):
            linear = nn.Linear(width, width)
            nn.init.normal_(linear.weight, std=sigma_w / np.sqrt(width))
            nn.init.normal_(linear.bias, std=sigma_b)
            layers += [linear, module()]
        found = propagation(sigma_w, sigma_b, activation)
        x = torch.randn(8, width) * (np.sqrt(min(found.length, 1.0)) if found.length > 0 else 1.0)
        values, kept = x, []
        for layer in layers:
            values = layer(values)
            if isinstance(layer, nn.Linear):
                values.retain_grad()
                kept.append(values)
        (values * torch.randn_like(values)).sum().backward()
        norms = [float(v.grad.square().mean()) for v in kept]
        ratios.append((norms[2] / norms[20]) ** (1 / 18))  # a layer, backwards
    assert np.mean(ratios) == pytest.approx(found.chi, rel=0.05)


@pytest.mark.parametrize(
    ("activation", "variance", "bias"), [("silu", 2.5, 0.1), ("silu", 2.2, 0.3), ("gelu", 2.1, 0.05)]
)
def test_of_several_lengths_the_one_that_signals_of_length_one_settle_at_is_found(activation, variance, bias):
    """Far out such maps grow for ever; near one they settle."""
    q = 1.0
    for _ in range(3000):
        q = length_map(q, np.sqrt(variance), bias, activation)
    assert propagation(np.sqrt(variance), bias, activation).length == pytest.approx(q, rel=1e-6)


@pytest.mark.parametrize(("variance", "bias"), [(1.9, 0.1), (1.99, 0.1), (1.999, 0.1), (1.999, 0.01)])
def test_signals_that_settle_slowly_have_their_length_in_closed_form(variance, bias):
    """ReLU: q = variance q / 2 + bias^2; at a variance of 1.99 a seventh of the way is left after 400 layers."""
    found = propagation(np.sqrt(variance), bias, "relu")
    assert found.length == pytest.approx(bias**2 / (1.0 - variance / 2.0), rel=1e-6)
    assert found.length_scale == pytest.approx(-1.0 / np.log(variance / 2.0), rel=1e-3)


@pytest.mark.parametrize(
    ("variance", "bias", "activation", "length"),
    [
        (1.99, 0.0, "relu", 0.0), (1.999999, 0.0, "relu", 0.0), (2.01, 0.0, "relu", np.inf),
        (2.0, 0.0, "relu", 1.0), (1.0, 0.0, "linear", 1.0), (1.0, 0.0, "tanh", 0.0),
        (2.0, 0.1, "relu", np.inf), (2.0, 0.5, "relu", np.inf), (1.0, 0.1, "linear", np.inf),
        (1.0, 0.5, "linear", np.inf), (1.0, 0.3, "linear", np.inf),
    ],
)  # fmt: skip
def test_signals_that_slowly_die_or_slowly_grow_for_ever(variance, bias, activation, length):
    """ReLU adds bias^2 to a length in each layer at a variance of 2; tanh lets it die at 1, ever slower."""
    assert propagation(np.sqrt(variance), bias, activation).length == pytest.approx(length, rel=1e-9)


@pytest.mark.parametrize(("unstable", "length"), [(1.1, 0.0), (0.9, np.inf)])
def test_signals_that_leave_a_length_ever_faster_do_not_come_back_to_it(unstable, length):
    """f = |x|^1.001: lengths below the one that stays the same shrink, those above grow, both by larger steps each."""

    def f(x):
        return np.abs(x) ** 1.001

    variance = 1.0 / (length_map(1.0, 1.0, 0.0, f) * unstable**0.001)
    assert length_map(unstable, np.sqrt(variance), 0.0, f) == pytest.approx(unstable, rel=1e-12)
    assert fixed_length(np.sqrt(variance), 0.0, f) == length


def test_chaos_forgets_that_signals_were_alike():
    """tanh without biases is odd: signals without correlation stay so, and those that have some lose it."""
    found = propagation(2.0, 0.0, "tanh")
    assert found.phase == "chaotic"
    assert found.correlation == pytest.approx(0.0, abs=1e-9)
    c = 0.9
    for _ in range(200):
        c = correlation_map(c, found.length, 2.0, 0.0, "tanh")
    assert c == pytest.approx(0.0, abs=1e-6)


def test_the_head_does_not_count_among_a_models_variances():
    model = gpf.MLP(64, 64, 64)
    nn.init.constant_(model.layers[0].linear.weight, 0.25)
    nn.init.constant_(model.layers[0].linear.bias, 0.5)
    nn.init.constant_(model.head.weight, 9.0)
    assert measured_variances(model)[:2] == pytest.approx((2.0, 0.5))
    alone = nn.Sequential(model.head, nn.ReLU())
    assert measured_variances(alone)[0] == pytest.approx(72.0)


def test_advice_for_a_model_is_that_for_its_variances():
    torch.manual_seed(0)
    model = gpf.MLP(64, 64, 4, depth=3)
    for block in model.layers:
        nn.init.normal_(block.linear.weight, std=1.2 / 8.0)
        nn.init.zeros_(block.linear.bias)
    w, b, activation = measured_variances(model)
    assert (w, b) == pytest.approx((1.2, 0.0), abs=0.03)
    assert isinstance(activation, nn.ReLU)
    assert advise_depth(model) == pytest.approx(advise_depth(w, b, "relu"))
    assert advise_depth(1.2, 0.0, "relu") == pytest.approx(6 / abs(np.log(0.72)), rel=1e-4)
    rules = gpf.Rules(max_depth=int(min(advise_depth(model), 100)))  # as a bound on growth
    assert 5 < rules.max_depth < 100


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: propagation(0.0), "sigma_w must be above 0, got 0.0"),
        (lambda: propagation(1.0, -1.0), "sigma_b must be at least 0, got -1.0"),
        (lambda: critical_point(-1.0, "tanh"), "length must be above 0, got -1.0"),
        (lambda: advise_depth(nn.Linear(3, 3)), "model must have linear layers and activations"),
        (lambda: advise_depth(gpf.MLP(3, 3, 3), 0.1), "sigma_b and activation must be omitted with a model"),
    ],
)
def test_impossible_questions_are_refused(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()

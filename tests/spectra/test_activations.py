"""Moments of activations, against closed forms and SciPy's adaptive integration."""

import numpy as np
import pytest
import torch
from scipy import integrate

from gpf.spectra.activations import ACTIVATIONS, apply, gauss, hermite_coefficients, moments

PI = np.pi
EXACT = {  # activation: eta, zeta at scale 1, centred
    "linear": (1.0, 1.0),
    "relu": (0.5 - 1 / (2 * PI), 0.25),
    "abs": (1 - 2 / PI, 0.0),
    "sign": (1.0, 2 / PI),
    "erf": (2 / PI * np.arcsin(2 / 3), 4 / (3 * PI)),
}
TABLE = {"tanh": (0.39429, 0.36688), "gelu": (0.34564, 0.25), "silu": (0.31308, 0.25)}  # published values


@pytest.mark.parametrize("name", EXACT)
def test_moments_are_the_exact_ones(name):
    found = moments(name)
    assert (found.eta, found.zeta) == pytest.approx(EXACT[name], abs=1e-10)


@pytest.mark.parametrize("name", TABLE)
def test_moments_are_those_of_the_table(name):
    found = moments(name)
    assert (found.eta, found.zeta) == pytest.approx(TABLE[name], abs=6e-6)


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
@pytest.mark.parametrize("scale", [0.3, 1.0, 2.7])
def test_moments_equal_adaptive_integrals(name, scale):
    def mean(function):
        parts = [(-12.0, 0.0), (0.0, 12.0)]
        return sum(integrate.quad(lambda z: function(z) * np.exp(-z * z / 2), *part)[0] for part in parts) / np.sqrt(
            2 * PI
        )

    def f(z):
        return float(ACTIVATIONS[name](np.array([scale * z]))[0])

    found = moments(name, scale)
    assert found.mean == pytest.approx(mean(f), abs=1e-9)
    assert found.eta == pytest.approx(mean(lambda z: f(z) ** 2) - mean(f) ** 2, abs=1e-8)
    assert found.zeta == pytest.approx(mean(lambda z: z * f(z)) ** 2, abs=1e-8)


@pytest.mark.parametrize("slope", [0.0, 0.1, 0.5, -1.0])
def test_the_leaky_family_has_the_published_ratio(slope):
    """f = [x]+ + a [-x]+ scaled to eta = 1: zeta = (1 - a)^2 / (2 (1 + a^2) - (2 / pi) (1 + a)^2); a = -slope."""
    a = -slope
    found = moments(lambda x: np.maximum(x, 0) + a * np.maximum(-x, 0))
    assert found.linearity == pytest.approx((1 - a) ** 2 / (2 * (1 + a * a) - 2 / PI * (1 + a) ** 2), abs=1e-9)


@pytest.mark.parametrize(
    ("module", "name"), [(torch.nn.ReLU(), "relu"), (torch.nn.GELU(), "gelu"), (torch.tanh, "tanh")]
)
def test_torch_functions_and_modules_are_activations_too(module, name):
    x = np.linspace(-3, 3, 50)
    np.testing.assert_allclose(apply(module, x), apply(name, x), atol=1e-12)
    assert moments(module).eta == pytest.approx(moments(name).eta)


def test_hermite_coefficients_rebuild_the_function():
    """Parseval: squares of all coefficients add up to E f^2; the first two are E f and E z f."""
    coefficients, squares = hermite_coefficients("tanh", np.array([0.5, 1.0]), 40)
    assert (coefficients**2).sum(axis=1) == pytest.approx(squares, abs=1e-6)
    relu, _ = hermite_coefficients("relu", np.ones(1), 2)
    assert relu[0] == pytest.approx([1 / np.sqrt(2 * PI), 0.5, 1 / np.sqrt(4 * PI)], abs=1e-10)


def test_weights_of_the_rule_are_those_of_a_normal_variable():
    z, weights = gauss()
    assert [float(weights @ z**k) for k in (0, 2, 4, 6)] == pytest.approx([1, 1, 3, 15], abs=1e-10)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: moments("rely"), "activation must be one of linear, relu, .*, got 'rely'"),
        (lambda: moments("relu", 0.0), "scale must be above 0, got 0.0"),
        (lambda: moments(lambda x: np.zeros_like(x)), "activation must not be constant"),
        (lambda: moments(lambda x: np.full_like(x, -5.0)), "activation must not be constant"),
        (lambda: moments(lambda x: x.sum()), "activation must return a finite value for each element"),
        (lambda: moments(lambda x: np.full_like(x, np.nan)), "activation must return a finite value"),
    ],
)
def test_what_is_no_activation_is_refused(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()

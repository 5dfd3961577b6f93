"""Predicted densities against closed forms, the published quartic, and matrices that were drawn."""

import functools
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpf.spectra import (
    Contraction,
    Law,
    LayerOperator,
    Region,
    deep_law,
    density,
    layer_law,
    marchenko_pastur,
    moments,
    product_wishart,
)
from gpf.spectra.activations import apply
from gpf.spectra.empirical import gram_spectrum, kolmogorov
from gpf.spectra.theory import Step, layer_step

SHAPES = [(1000, 1000, 1000), (1000, 500, 2000), (500, 1500, 1000)]


def drawn(activation, widths, m, seed=0):
    """The activations of a random network, centred and rescaled between layers, as the theory has it."""
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(widths[0], m))
    f = moments(activation)
    for before, after in itertools.pairwise(widths):
        y = apply(activation, rng.normal(size=(after, before)) @ y / np.sqrt(before)) - f.mean
        y /= np.sqrt(f.eta)
    return y * np.sqrt(f.eta)


@functools.cache
def measured(activation, n0, n1, m):
    """The activations of a random layer, and the traces of Y^T Y / m and of its square, means over five layers."""
    layers = [drawn(activation, [n0, n1], m, seed) for seed in range(5)]
    grams = [(y @ y.T if n1 < m else y.T @ y) / m for y in layers]  # either has the same traces
    return layers[0], np.mean([(np.trace(gram), np.sum(gram**2)) for gram in grams], axis=0)


@pytest.mark.parametrize("ratio", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("variance", [1.0, 2.5])
def test_marchenko_pastur_is_the_closed_form(ratio, variance):
    low, high = variance * (1 - np.sqrt(ratio)) ** 2, variance * (1 + np.sqrt(ratio)) ** 2
    x = np.linspace(0.005, 1.1 * high, 300)
    inside = np.maximum((high - x) * (x - low), 0.0)
    wanted = np.where(inside > 0, np.sqrt(inside) / (2 * np.pi * variance * ratio * x), 0.0)
    law = marchenko_pastur(ratio, variance)
    np.testing.assert_allclose(law.density(x), wanted, atol=2e-5)
    assert law.atom == pytest.approx(max(0.0, 1 - 1 / ratio))
    assert law.support[1] == pytest.approx(high, rel=1e-3)
    assert law.mass == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu", "abs", "sign", "linear"])
@pytest.mark.parametrize(("n0", "n1", "m"), SHAPES)
def test_the_transform_solves_the_quartic_of_pennington_and_worah(activation, n0, n1, m):
    """u (1 - zeta x) - eta x + zeta (eta - zeta) x^2 = 0, x = t (1 + phi u)(1 + psi u), t = 1 / (psi z)."""
    f = moments(activation)
    phi, psi = n0 / m, n0 / n1
    z = np.array([0.3 + 0.5j, 1.0 + 0.1j, 2.0 + 2.0j, -1.0 + 0.3j])
    g = -layer_law(activation, n0=n0, n1=n1, m=m, gram="features").stieltjes(z)
    u = (g * z - 1) / psi
    x = (1 + phi * u) * (1 + psi * u) / (psi * z)
    residual = u * (1 - f.zeta * x) - f.eta * x + f.zeta * (f.eta - f.zeta) * x**2
    np.testing.assert_allclose(residual, 0.0, atol=1e-8)


@pytest.mark.parametrize("activation", ["relu", "tanh", "gelu", "abs"])
@pytest.mark.parametrize(("n0", "n1", "m"), SHAPES)
@pytest.mark.parametrize("gram", ["samples", "features"])
def test_predicted_spectra_are_those_of_matrices_that_were_drawn(activation, n0, n1, m, gram):
    y, traces = measured(activation, n0, n1, m)
    spectrum = gram_spectrum(y if gram == "samples" else y.T, m)
    law = layer_law(activation, n0=n0, n1=n1, m=m, gram=gram)
    assert kolmogorov(spectrum, law) < 0.02
    assert law.mass == pytest.approx(1.0, abs=1e-3)
    grid = np.linspace(0.0, law.support[1] ** 0.25, 6000) ** 4
    heights = law.density(grid)
    for order in (1, 2):
        assert np.trapezoid(heights * grid**order, grid) == pytest.approx(law.moments[order - 1], rel=0.01)
        mean = traces[order - 1] / (m if gram == "samples" else n1)
        finite = 0.02 if activation == "abs" and n0 == 500 else 0.01  # its second moment is high at so few inputs
        assert mean == pytest.approx(law.moments[order - 1], rel=finite)
    assert law.atom == pytest.approx(np.mean(spectrum.values <= 1e-9), abs=0.002)


@pytest.mark.parametrize("activation", ["relu", "tanh", "abs"])
@pytest.mark.parametrize(("n0", "n1", "m"), [(7, 3, 5), (10, 30, 20)])
def test_moments_are_the_published_ones(activation, n0, n1, m):
    """m1 = eta, m2 = eta^2 (1 + phi / psi) + zeta^2 / psi, of Y Y^T / m."""
    f, phi, psi = moments(activation), n0 / m, n0 / n1
    first, second = layer_law(activation, n0=n0, n1=n1, m=m, gram="features").moments
    assert first == pytest.approx(f.eta)
    assert second == pytest.approx(f.eta**2 * (1 + phi / psi) + f.zeta**2 / psi)


@pytest.mark.parametrize(("activation", "wanted"), [("abs", [2.0] * 6), ("linear", [2, 3, 4, 5, 6, 7])])
def test_depth_keeps_the_spectrum_without_a_linear_part_and_spreads_it_for_ever_with_nothing_else(activation, wanted):
    assert depth_ratios(activation) == pytest.approx(wanted)


def test_relu_spreads_the_spectrum_to_a_limit():
    """Theory after one layer 2.538; measured at n = 500 by others, layers 2 to 5: 2.85, 3.03, 3.14, 3.24."""
    ratios = depth_ratios("relu")
    assert ratios[:2] == pytest.approx([2.0, 2.538], abs=1e-3)
    assert ratios[2:] == pytest.approx([2.85, 3.03, 3.14, 3.24], rel=0.045)
    b = moments("relu").linearity
    assert depth_ratios("relu", 60)[-1] == pytest.approx(1 + 1 / (1 - b * b), rel=1e-6)


def depth_ratios(activation, depth=5):
    operator = LayerOperator.of(activation)
    laws = [operator.compose(marchenko_pastur(1.0), n) for n in range(depth + 1)]
    return [law.moments[1] / law.moments[0] ** 2 for law in laws]


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_deep_spectra_are_those_of_deep_networks_that_were_drawn(activation):
    widths, m = [800, 600, 1000, 800], 800
    law = deep_law(activation, widths, m)
    spectrum = gram_spectrum(drawn(activation, widths, m), m)
    assert kolmogorov(spectrum, law) < 0.02
    assert spectrum.moment(2) == pytest.approx(law.moments[1], rel=0.05)


@pytest.mark.parametrize("widths", [(50, 70, 60), (70, 50, 60)])
def test_a_linear_layer_is_a_product_of_two_wisharts(widths):
    n0, n1, m = widths
    z = np.array([0.5 + 0.5j, 2.0 + 0.1j])
    product = product_wishart(m / n0, m / n1)
    linear = layer_law("linear", n0=n0, n1=n1, m=m)
    np.testing.assert_allclose(linear.stieltjes(z * n1 / m) * n1 / m, product.stieltjes(z), rtol=1e-8)
    assert linear.atom == pytest.approx(1 - min(1, n0 / m, n1 / m))


def test_without_a_linear_part_only_the_last_layer_counts():
    law = deep_law("abs", [10, 999, 40], 60)
    plain = marchenko_pastur(60 / 40, moments("abs").eta * 40 / 60)
    x = np.linspace(0.01, 2, 50)
    np.testing.assert_allclose(law.density(x), plain.density(x), atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(
    linearity=st.floats(0.05, 1.0), ratio=st.floats(0.1, 8.0), first=st.floats(0.1, 8.0),
    real=st.floats(-2.0, 6.0), imaginary=st.floats(0.02, 5.0),
)  # fmt: skip
def test_a_transform_is_that_of_a_measure(linearity, ratio, first, real, imaginary):
    """Im s > 0, |s| <= 1 / Im z, Im z s >= 0, and s(z*) = s(z)*."""
    law = marchenko_pastur(first).then(layer_step(linearity, ratio))
    z = complex(real, imaginary)
    s = law.stieltjes([z, z.conjugate()])
    assert s[0].imag > 0
    assert abs(s[0]) <= 1 / imaginary + 1e-9
    assert (z * s[0]).imag >= -1e-9
    assert s[1] == pytest.approx(s[0].conjugate())


def test_the_transform_is_the_integral_of_the_density():
    law = layer_law("relu", n0=30, n1=20, m=40)
    grid = np.linspace(law.support[0] ** 0.25, law.support[1] ** 0.25, 20_000) ** 4
    z = 0.4 + 0.3j
    integral = np.trapezoid(law.density(grid) / (grid - z), grid) - law.atom / z
    assert law.stieltjes([z])[0] == pytest.approx(integral, abs=1e-4)


def test_quantiles_invert_the_distribution_function():
    law = layer_law("gelu", n0=30, n1=20, m=40)
    shares = np.array([0.6, 0.75, 0.9, 0.99])
    np.testing.assert_allclose(law.cdf(law.quantile(shares)), shares, atol=1e-6)
    assert law.quantile([0.3])[0] == 0.0  # in the atom
    assert law.cdf([-1.0, 0.0, 100.0]) == pytest.approx([0.0, law.atom, 1.0], abs=1e-3)


def test_a_population_of_atoms_is_an_average_over_them():
    """Two equal atoms are one; a population of zeros and ones has an atom at zero."""
    one = Law((Step(1.0, 0.0, 0.5),), np.ones(1))
    two = Law((Step(1.0, 0.0, 0.5),), np.ones(2), np.array([0.3, 0.7]))
    z = np.array([0.5 + 0.2j, 2.0 + 0.01j])
    np.testing.assert_allclose(one.stieltjes(z), two.stieltjes(z), rtol=1e-9)
    assert Law((Step(1.0, 0.0, 0.5),), np.array([0.0, 1.0]), np.array([0.4, 0.6])).atom == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("activation", "converges"), [("relu", True), ("gelu", True), ("abs", True), ("linear", False)]
)
def test_the_depth_limit(activation, converges):
    operator = LayerOperator.of(activation)
    if not converges:
        with pytest.raises(ArithmeticError, match="no fixed point within 20 layers"):
            operator.fixed_point(most=20)
        return
    law, _ = operator.fixed_point()
    z = Region().border()
    np.testing.assert_allclose(operator(law).stieltjes(z), law.stieltjes(z), atol=1e-5)


def test_without_a_linear_part_two_spectra_become_one_and_with_one_they_come_nearer():
    z = Region(low=2.0, high=8.0).border()
    one, other = marchenko_pastur(0.2), marchenko_pastur(1.5)
    before = np.abs(one.stieltjes(z) - other.stieltjes(z)).max()
    after = {}
    for activation in ("abs", "relu", "tanh"):
        operator = LayerOperator.of(activation)
        after[activation] = np.abs(operator(one).stieltjes(z) - operator(other).stieltjes(z)).max()
    assert after["abs"] < 1e-12 < after["relu"] < after["tanh"] < before
    found = LayerOperator.of("abs").contraction(starts=1, steps=5)
    assert found.holds
    assert found.factor == pytest.approx(0.0, abs=1e-6)


def derivative(operator, at, towards, z, share=1e-4):
    """The norm of Psi's derivative at one measure towards another, over that of the direction."""
    mixed = Law(
        (), np.concatenate([at.population, towards.population]),
        np.concatenate([(1 - share) * at.parts, share * towards.parts]),
    )  # fmt: skip
    moved = np.abs(operator(mixed).stieltjes(z) - operator(at).stieltjes(z)).max() / share
    return moved / np.abs(towards.stieltjes(z) - at.stieltjes(z)).max()


def test_a_layer_of_relu_is_no_contraction_in_the_sup_norm():
    """Two measures of mean 1 at which the derivative is greater than 1 refute condition 2 of the paper's theorem."""
    at = Law((), np.array([5.235, 0.1607, 0.0698, 0.2657]), np.array([0.1686, 0.3542, 0.3393, 0.1379]))
    towards = Law((), np.array([1.644, 1.880, 0.169, 2.252]), np.array([0.155, 0.312, 0.500, 0.033]))
    z = Region(low=0.1, high=8.0).border()
    for share in (1e-3, 1e-4):
        assert derivative(LayerOperator.of("relu"), at, towards, z, share) > 1.1


def test_the_search_only_climbs():
    """A longer walk from the same start finds nothing smaller, and what it reports is a derivative that is there."""
    operator, region = LayerOperator.of("relu"), Region(low=0.5, high=8.0)
    short, longer = (operator.contraction(region, starts=1, steps=steps) for steps in (2, 25))
    assert 0.0 < short.factor <= longer.factor < 3.0
    assert longer.well_defined
    point = np.random.default_rng(0).normal(size=(2, 2, 4))  # where the walk starts
    shares = np.exp(2 * point[:, 1]) / np.exp(2 * point[:, 1]).sum(axis=1, keepdims=True)
    atoms = np.exp(1.5 * point[:, 0])
    at, towards = (Law((), a / (a @ s), s) for a, s in zip(atoms, shares, strict=True))
    assert derivative(operator, at, towards, region.border()) <= short.factor * 1.01


@pytest.mark.parametrize(
    ("activation", "n0", "n1", "m"),
    [
        ("relu", 784, 10, 1000), ("relu", 1, 1000, 1000), ("relu", 1, 1, 10_000), ("linear", 10, 1000, 1000),
        ("tanh", 10_000, 10, 10), ("abs", 3, 100_000, 7), ("relu", 1_000_000, 1000, 1), ("gelu", 2, 3, 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("gram", ["samples", "features"])
def test_extreme_ratios_have_whole_laws_and_the_right_atoms(activation, n0, n1, m, gram):
    law = layer_law(activation, n0=n0, n1=n1, m=m, gram=gram)
    assert law.mass == pytest.approx(1.0, abs=1e-3)
    rank = min(n1, m) if activation != "linear" else min(n0, n1, m)
    assert law.atom == pytest.approx(1 - rank / (m if gram == "samples" else n1), abs=1e-9)
    grid, _ = law._summed
    assert np.trapezoid(law.density(grid) * grid, grid) == pytest.approx(law.moments[0], rel=0.01)


@pytest.mark.parametrize(("activation", "depth"), [("relu", 20), ("tanh", 20), ("relu", 40), ("linear", 5)])
def test_deep_laws_are_whole(activation, depth):
    law = deep_law(activation, [100] * (depth + 1), 100)
    assert law.mass == pytest.approx(1.0, abs=1e-3)
    assert law.cdf(law.support[1]) == pytest.approx(1.0, abs=1e-3)


def test_a_law_that_cannot_be_followed_says_so():
    with pytest.raises(ArithmeticError, match="the density adds up to"):
        _ = deep_law("linear", [100] * 16, 100).mass


@pytest.mark.parametrize("scale", [0.3, 2.5])
def test_pre_activations_of_any_scale(scale):
    rng = np.random.default_rng(0)
    y = apply("tanh", scale * rng.normal(size=(500, 400)) @ rng.normal(size=(400, 600)) / 20.0)
    law = layer_law("tanh", n0=400, n1=500, m=600, scale=scale)
    assert kolmogorov(gram_spectrum(y, 600), law) < 0.02


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: density([1.0], "relu", n0=0, n1=2, m=2), "n0 must be above 0, got 0"),
        (
            lambda: density([1.0], "relu", n0=2, n1=2, m=2, gram="rows"),
            "gram must be one of samples, features, got 'rows'",
        ),
        (lambda: deep_law("relu", [3], 2), "widths must have the inputs and at least one layer, got "),
        (lambda: marchenko_pastur(-1.0), "ratio must be above 0, got -1.0"),
        (lambda: marchenko_pastur(1.0).stieltjes([1.0]), "z must have an imaginary part"),
        (lambda: layer_law("relu", n0=2, n1=2, m=2).then(Step(1.0, 0.0, 1.0)), "then needs a normalised law"),
        (lambda: Region(low=0.0), "region must have left < right and 0 < low < high, got "),
    ],
)
def test_impossible_questions_are_refused(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()


@pytest.mark.parametrize(
    ("well_defined", "factor", "holds"),
    [(True, 0.9, True), (True, 1.0, False), (False, 0.9, False), (False, 2.0, False)],
)
def test_a_contraction_holds_if_neither_condition_is_refuted(well_defined, factor, holds):
    assert Contraction(well_defined, factor, 0.5).holds == holds

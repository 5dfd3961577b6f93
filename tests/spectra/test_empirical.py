"""Measured spectra against NumPy, weightwatcher, and matrices with known spikes."""

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from gpf.spectra import (
    Spectrum,
    analyse_weights,
    fit_bulk,
    gram_spectrum,
    kolmogorov,
    lanczos_spectrum,
    layer_law,
    marchenko_pastur,
    random_layer_law,
    spectrum_of,
    wasserstein,
)
from gpf.spectra.activations import apply
from gpf.spectra.empirical import tail_exponent, tracy_widom


def noise(shape, seed=0, scale=1.0):
    return np.random.default_rng(seed).normal(size=shape) * scale


def with_spikes(shape, strengths, seed=0):
    """Noise of variance 1 / longer side, plus orthogonal directions of these singular values."""
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.normal(size=(shape[0], len(strengths))))[0]
    right = np.linalg.qr(rng.normal(size=(shape[1], len(strengths))))[0]
    return rng.normal(size=shape) / np.sqrt(max(shape)) + (left * strengths) @ right.T


@pytest.mark.parametrize("shape", [(30, 50), (50, 30), (20, 20), (1, 9)])
def test_eigenvalues_are_those_of_numpy(shape):
    a = noise(shape)
    found = gram_spectrum(a, divisor=3.0)
    np.testing.assert_allclose(found.values, np.maximum(np.linalg.eigvalsh(a.T @ a / 3.0), 0.0), atol=1e-10)
    assert found.exact
    assert np.sum(found.values == 0.0) == max(0, shape[1] - shape[0])


def test_a_spectrum_is_a_distribution():
    found = spectrum_of([3.0, 1.0, 1.0, 0.0])
    assert found.cdf([-1.0, 0.0, 1.0, 2.0, 3.0]) == pytest.approx([0.0, 0.25, 0.75, 0.75, 1.0])
    assert found.moment(2) == pytest.approx(11 / 4)
    z = 0.5 + 1j
    assert found.stieltjes([z])[0] == pytest.approx(np.mean([1 / (v - z) for v in (0, 1, 1, 3)]))
    x = np.linspace(-2, 5, 2000)
    assert np.trapezoid(found.density(x), x) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("n", "m"), [(1500, 1500), (3000, 1000), (1000, 2500)])
def test_the_lanczos_estimate_has_the_spectrum_of_the_whole_matrix(n, m):
    a = noise((n, m)).astype(np.float32) / np.float32(np.sqrt(n))
    estimate = gram_spectrum(a, exact_up_to=10)
    exact = gram_spectrum(a)
    assert not estimate.exact
    assert estimate.shares.sum() == pytest.approx(1.0, abs=1e-5)
    x = np.linspace(0.01, 8, 400)
    assert np.abs(estimate.cdf(x) - exact.cdf(x)).max() < 0.03
    for order in (1, 2, 3):
        assert estimate.moment(order) == pytest.approx(exact.moment(order), rel=0.035 * order)  # four standard errors
    assert estimate.values[-1] == pytest.approx(exact.values[-1], rel=0.01)


def test_the_lanczos_estimate_of_a_matrix_of_few_eigenvalues_is_exact():
    """It stops where the whole space has been seen, and does not find what is not there."""
    diagonal = np.repeat([1.0, 4.0], 50)
    found = lanczos_spectrum(lambda v: diagonal[:, None] * v, 100, steps=30, probes=4)
    assert set(np.round(found.values, 4)) == {1.0, 4.0}


def test_distances_of_a_spectrum_from_its_own_law_vanish_and_from_another_do_not():
    law, other = marchenko_pastur(0.5), marchenko_pastur(0.5, 1.5)
    own = spectrum_of(law.quantile((np.arange(2000) + 0.5) / 2000))
    assert kolmogorov(own, law) < 1e-3
    assert wasserstein(own, law) < 1e-3
    assert wasserstein(own, other) == pytest.approx(0.5, abs=0.01)  # all eigenvalues are 1.5 times as great
    x = np.linspace(0.0, 5.0, 5000)
    assert kolmogorov(own, other) == pytest.approx(np.abs(law.cdf(x) - other.cdf(x)).max(), abs=5e-3)


def test_the_kolmogorov_distance_knows_the_atom():
    law = marchenko_pastur(2.0)
    a = noise((400, 800)) / 20.0
    assert kolmogorov(gram_spectrum(a), law) < 0.02
    assert kolmogorov(gram_spectrum(a.T * np.sqrt(0.5)), law) > 0.4  # the same without its zeros


def test_tracy_widom_has_its_published_quantiles():
    assert [tracy_widom(p) for p in (0.1, 0.05, 0.01)] == pytest.approx([0.4501, 0.9793, 2.0234], abs=0.02)


@pytest.mark.parametrize("shape", [(200, 100), (64, 64), (50, 300)])
def test_pure_noise_has_no_spikes(shape):
    """At the level of 1 %, over 200 draws, not more than a binomial variable has in 99.9 % of cases; at ours, none."""
    counts = {0.01: 0, 0.001: 0}
    sigmas = []
    for seed in range(200):
        w = noise(shape, seed, 0.3)
        values = np.linalg.eigvalsh(w @ w.T if shape[0] < shape[1] else w.T @ w)
        for level in counts:
            bulk = fit_bulk(values, shape, level)
            counts[level] += len(bulk.spikes) > 0
        sigmas.append(bulk.sigma)
    assert counts[0.01] <= 7
    assert counts[0.001] <= 1
    assert np.mean(sigmas) == pytest.approx(0.3, rel=0.01)


@pytest.mark.parametrize("strengths", [(1.6,), (2.0, 3.0), (1.5, 1.8, 2.5, 4.0, 9.0)])
def test_planted_spikes_are_found(strengths):
    """Above (M / N)^(1/4) = 0.84 a direction s leaves the bulk, at (1 + s^2)(s^2 + M / N) / s^2."""
    wanted = [(1 + s * s) * (s * s + 0.5) / (s * s) for s in sorted(strengths, reverse=True)]
    found = 0
    for seed in range(30):
        bulk = analyse_weights(with_spikes((400, 200), strengths, seed)).bulk
        assert bulk.sigma == pytest.approx(1 / 20.0, rel=0.02)
        if len(bulk.spikes) == len(wanted):
            found += 1
            assert bulk.spikes == pytest.approx(wanted, rel=0.2)
    assert found > 28


def test_what_is_too_weak_to_leave_the_bulk_is_not_called_a_spike():
    found = sum(len(analyse_weights(with_spikes((400, 200), (0.5,), seed)).bulk.spikes) for seed in range(50))
    assert found <= 1


def test_the_scale_of_the_noise_is_that_of_its_middle():
    """Eigenvalues just where noise has them, but for the least tenth, gone, and the greatest, a little too great."""
    values = 300.0 * marchenko_pastur(0.5).quantile((np.arange(200) + 0.5) / 200)
    values[:18], values[-18:] = 1e-3, 1.03 * values[-18:]
    bulk = fit_bulk(values, (400, 200))
    assert len(bulk.spikes) == 0
    assert bulk.sigma == pytest.approx(np.sqrt(300.0 / 400.0), rel=1e-3)


def test_a_bulk_is_fitted_from_eight_eigenvalues_on():
    assert fit_bulk(np.arange(1.0, 8.0), (7, 20)) is None
    assert fit_bulk(np.arange(1.0, 9.0), (8, 20)) is not None


@pytest.fixture(scope="module")
def watched():
    """Matrices of several shapes, with and without structure, and what weightwatcher says of them."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it and its dependencies warn of themselves
        import weightwatcher

        matrices = {
            "square": noise((200, 200), 1, 0.05), "tall": noise((300, 120), 2, 0.1), "wide": noise((100, 400), 3, 0.02),
            "spiked": with_spikes((300, 150), (3.0, 5.0), 4),
            "heavy": np.random.default_rng(5).standard_t(3, (200, 100)),
        }  # fmt: skip
        model = torch.nn.Module()
        for name, matrix in matrices.items():
            layer = torch.nn.Linear(matrix.shape[1], matrix.shape[0], bias=False)
            layer.weight.data = torch.from_numpy(matrix).float()
            setattr(model, name, layer)
        watcher = weightwatcher.WeightWatcher(model=model, log_level="ERROR")
        details = watcher.analyze(mp_fit=True).set_index("name")
    return {name: (getattr(model, name).weight.detach().numpy(), details.loc[name]) for name in matrices}


@pytest.mark.parametrize("name", ["square", "tall", "wide", "spiked", "heavy"])
def test_numbers_are_those_of_weightwatcher(watched, name):
    matrix, theirs = watched[name]
    ours = analyse_weights(matrix)
    assert np.log10(ours.norm**2) == pytest.approx(theirs["log_norm"], abs=1e-6)
    assert np.log10(ours.spectral_norm**2) == pytest.approx(theirs["log_spectral_norm"], abs=1e-6)
    assert ours.stable_rank == pytest.approx(theirs["stable_rank"], rel=1e-6)
    assert ours.rank == theirs["matrix_rank"]
    assert ours.entropy == pytest.approx(theirs["entropy"], abs=1e-6)
    assert ours.alpha == pytest.approx(theirs["alpha"], rel=0.1)  # it also cuts the power law off at the greatest


@pytest.mark.parametrize("name", ["square", "tall", "wide", "spiked"])
def test_the_bulk_is_that_of_weightwatcher(watched, name):
    matrix, theirs = watched[name]
    ours = analyse_weights(matrix).bulk
    root = np.sqrt(min(matrix.shape) / max(matrix.shape))
    sigma = np.sqrt(theirs["bulk_max"]) / (1 + root)  # of the unscaled matrix, times the root of its longer side
    assert ours.sigma * np.sqrt(max(matrix.shape)) == pytest.approx(sigma, rel=0.05)
    assert abs(len(ours.spikes) - theirs["num_spikes"]) <= 1


def test_the_tail_exponent_of_a_power_law_is_found():
    values = (1.0 - np.random.default_rng(0).random(4000)) ** (-1 / 1.5)  # density x^-2.5 from 1 on
    alpha, start = tail_exponent(values)
    assert alpha == pytest.approx(2.5, abs=0.15)
    assert np.isnan(tail_exponent([1.0, 2.0, 3.0])[0])
    assert np.isnan(tail_exponent([])[0])
    assert start < 3.0


def test_a_tail_is_of_five_eigenvalues_at_least():
    """A power law can be laid through any two of them."""
    for seed in range(40):
        values = np.sort(np.random.default_rng(seed).random(12))
        assert tail_exponent(values)[1] <= values[-5]


@pytest.mark.parametrize("activation", ["relu", "tanh", "abs", "linear"])
@pytest.mark.parametrize("normalised", [False, True])
def test_the_law_of_a_random_layer_is_what_drawn_weights_give_for_real_inputs(activation, normalised):
    """Inputs that no theory of white data covers: correlated, of unequal length, off centre; with a bias."""
    rng = np.random.default_rng(0)
    x = (rng.normal(size=(300, 40)) * rng.gamma(2.0, 0.5, 40) + 0.5) * rng.uniform(0.5, 2.0, (300, 1))
    units, sigma_w, sigma_b = 500, 1.3, 0.4
    before = rng.normal(size=(units, 40)) @ x.T * sigma_w / np.sqrt(40) + rng.normal(size=(units, 1)) * sigma_b
    if normalised:
        before = (before - before.mean(axis=0)) / before.std(axis=0)
    law = random_layer_law(x, units, activation, sigma_w, sigma_b, normalised)
    spectrum = gram_spectrum(apply(activation, before), 300)
    assert kolmogorov(spectrum, law) < 0.03
    assert law.moments[0] == pytest.approx(spectrum.moment(1), rel=0.1)


@pytest.mark.parametrize("kind", ["each four times", "two dimensions", "far off centre", "some all zero", "one line"])
def test_the_law_knows_samples_that_are_alike(kind):
    rng = np.random.default_rng(2)
    x = {
        "each four times": np.repeat(rng.normal(size=(60, 30)), 4, axis=0),
        "two dimensions": rng.normal(size=(240, 2)),
        "far off centre": rng.normal(size=(240, 30)) + 5.0,
        "some all zero": np.concatenate([np.zeros((3, 30)), rng.normal(size=(237, 30))]),
        "one line": rng.normal(size=(240, 1)),
    }[kind]
    drawn = np.maximum(rng.normal(size=(400, x.shape[1])) @ x.T / np.sqrt(x.shape[1]), 0.0)
    law = random_layer_law(x, 400, "relu")
    spectrum = gram_spectrum(drawn, 240)
    big = spectrum.values > 1e-4 * spectrum.values[-1]  # below, the series ends before the eigenvalues do
    assert law.cdf(spectrum.values[big]) == pytest.approx(spectrum.cdf(spectrum.values[big]), abs=0.06)
    assert law.moments[0] == pytest.approx(spectrum.moment(1), rel=0.15)


def test_the_rank_of_deficient_matrices_is_seen_whatever_their_precision():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(100, 5)) @ rng.normal(size=(5, 80))
    for kind in (np.float64, np.float32):
        found = analyse_weights(w.astype(kind))
        assert found.rank == 5
        assert found.entropy == pytest.approx(0.97, abs=0.03)
    assert analyse_weights(w, exact_up_to=10).rank is None
    assert analyse_weights((rng.normal(size=(200, 200))).astype(np.float16)).rank == 200


def test_very_small_and_very_great_numbers_have_a_spectrum_or_a_reason():
    w = noise((20, 12))
    tiny = analyse_weights(w * 1e-120)
    assert tiny.stable_rank == pytest.approx(analyse_weights(w).stable_rank)
    with pytest.raises(ValueError, match="^matrix must hold numbers whose squares are finite"):
        analyse_weights(w * 1e200)


def test_the_law_for_white_inputs_is_that_of_the_theory():
    rng = np.random.default_rng(1)
    law, theory = random_layer_law(rng.normal(size=(600, 500)), 400, "tanh"), layer_law("tanh", n0=500, n1=400, m=600)
    x = np.linspace(0.01, theory.support[1], 200)
    assert np.abs(law.cdf(x) - theory.cdf(x)).max() < 0.01


def test_pruned_units_do_not_count_as_noise():
    """Rows and columns of zeros are cut off; zeros strewn over the rest only make the noise weaker."""
    w = noise((200, 100), 1, 0.1)
    padded = np.zeros((260, 150))
    padded[30:230, 50:] = w
    assert analyse_weights(padded).shape == (200, 100)
    assert analyse_weights(padded).bulk.sigma == analyse_weights(w).bulk.sigma
    mask = np.random.default_rng(0).random((200, 100)) < 0.3
    found = analyse_weights(np.where(mask, w, 0.0)).bulk
    assert found.sigma == pytest.approx(0.1 * np.sqrt(0.3), rel=0.04)
    assert len(found.spikes) == 0


def test_small_and_empty_matrices_have_defined_answers():
    zeros = analyse_weights(np.zeros((5, 7)))
    assert (zeros.rank, zeros.stable_rank, zeros.norm, zeros.bulk) == (0, 0.0, 0.0, None)
    row = analyse_weights(np.arange(1.0, 6.0)[None])
    assert row.rank == 1
    assert row.spectral_norm == pytest.approx(np.sqrt(55.0))
    assert row.stable_rank == pytest.approx(1.0)
    assert row.bulk is None
    assert row.entropy == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: analyse_weights(np.full((3, 3), np.nan)), "matrix must hold finite numbers only"),
        (lambda: analyse_weights(np.zeros((0, 3))), r"matrix must have two dimensions, .*, got the shape \(0, 3\)"),
        (lambda: analyse_weights(np.zeros(3)), r"matrix must have .*, got the shape \(3,\)"),
        (lambda: analyse_weights(np.ones((3, 3), complex)), "matrix must hold real numbers, got complex128"),
        (lambda: fit_bulk(np.ones(5), (10, 4)), "eigenvalues must be 4 for .*, got 5"),
        (lambda: spectrum_of([]), "eigenvalues must be a list of finite numbers"),
        (lambda: spectrum_of([np.inf]), "eigenvalues must be a list of finite numbers"),
    ],
)
def test_what_has_no_spectrum_is_refused(call, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        call()


def test_the_distance_of_one_eigenvalue_is_the_mean_distance_of_the_law_from_it():
    law = marchenko_pastur(0.5)
    levels = (np.arange(8) + 0.5) / 8
    one = Spectrum(np.array([1.0]), np.array([1.0]), 1, True)
    assert wasserstein(one, law) == pytest.approx(np.abs(law.quantile(levels) - 1.0).mean())
    exact = quad(lambda x: abs(x - 1.0) * float(law.density(np.array([x]))[0]), *law.support, limit=200)[0]
    assert wasserstein(one, law) == pytest.approx(exact, rel=0.05)

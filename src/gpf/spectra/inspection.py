"""Inspects a torch model layer by layer: weights, activations, and the same activations with random weights."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from gpf.spectra.activations import Array, apply
from gpf.spectra.capture import SAMPLES, Captured, capture, check_weights, variances, weight_matrix, weighted_layers
from gpf.spectra.empirical import (
    EXACT,
    Spectrum,
    Weights,
    analyse_weights,
    gram_spectrum,
    kolmogorov,
    random_layer_law,
    wasserstein,
)
from gpf.spectra.plasticity import Plasticity, measure
from gpf.spectra.theory import Law


@dataclass(frozen=True, eq=False)
class GramReport:
    """The Gram matrix of a layer's activations: Y^T Y / m of the samples or, if units are fewer, Y Y^T / m of those.

    Both have the same eigenvalues except zeros, which would hide how far the others are from the law.
    """

    spectrum: Spectrum
    law: Law | None
    """Expectation for random weights of the same variance; None where something in between is not understood."""
    kolmogorov: float | None
    wasserstein: float | None
    """Distances between the two."""
    chance: float | None
    """The same Kolmogorov distance for random weights, which shows the scatter of a small sample."""
    spikes: Array
    """Eigenvalues above the law's support, and above that of the weights drawn, greatest first."""


@dataclass(frozen=True, eq=False)
class LayerReport:
    """One weight layer."""

    name: str
    weights: Weights
    gram: GramReport | None
    """None without a batch."""
    plasticity: Plasticity | None


@dataclass(frozen=True, eq=False)
class Inspection:
    """All weight layers of a model, in the order of use."""

    layers: list[LayerReport]

    def __str__(self) -> str:
        lines = [
            f"{'layer':<20} {'shape':>11} {'spectral':>8} {'stable':>7} {'alpha':>6} {'sigma':>8} {'spikes':>6}"
            f" | {'to random':>9} {'chance':>6} {'spikes':>6} {'eff.rank':>8} {'dead':>5}",
            f"{'':<20} {'':>11} {'norm':>8} {'rank':>7} {'':>6} {'of bulk':>8} {'':>6} | {'(Kolm.)':>9}",
        ]
        for layer in self.layers:
            w, gram, p = layer.weights, layer.gram, layer.plasticity
            bulk = (f"{w.bulk.sigma:>8.4f} {len(w.bulk.spikes):>6}") if w.bulk else f"{'-':>8} {'-':>6}"
            right = f" | {'-':>9} {'-':>6} {'-':>6}"
            if gram is not None and gram.kolmogorov is not None:
                right = f" | {gram.kolmogorov:>9.3f} {gram.chance:>6.3f} {len(gram.spikes):>6}"
            if p is not None:
                right += f" {p.effective_rank:>8.1f} {p.dead:>5.0%}"
            shape = f"{w.shape[0]}x{w.shape[1]}"
            lines.append(
                f"{layer.name:<20.20} {shape:>11} {w.spectral_norm:>8.3f} {w.stable_rank:>7.1f} {w.alpha:>6.2f} {bulk}"
                + right
            )
        return "\n".join(lines)


def inspect(
    model: nn.Module, batch: Any = None, most: int = SAMPLES, exact_up_to: int = EXACT, quiet: bool = False
) -> Inspection:
    """Spectra of all linear and convolutional layers of a model: prints a table, and returns everything.

    Args:
        model: Any torch module. Nothing of it changes.
        batch: What its forward takes, or a tuple of that. Without one, only weights are inspected.
        most: Maximum number of samples, or positions.
        exact_up_to: Shorter side of a matrix beyond which its spectrum is estimated.
        quiet: Whether to print nothing.
    """
    if batch is None:
        check_weights(model)
        layers = [
            LayerReport(name, _weights(module, exact_up_to), None, None) for name, module in weighted_layers(model)
        ]
    else:
        layers = [
            LayerReport(
                layer.name,
                _weights(layer.module, exact_up_to),
                gram_report(layer, exact_up_to),
                measure(layer.name, layer.module, layer.activated),
            )
            for layer in capture(model, batch, most)
        ]
    found = Inspection(layers)
    if not quiet:
        print(found)
    return found


def gram_report(layer: Captured, exact_up_to: int = EXACT) -> GramReport:
    """The Gram matrix of a layer's activations next to that of random weights."""
    activations = layer.activated.double().cpu().numpy()
    samples, units = activations.shape
    spectrum = gram_spectrum(activations if units < samples else activations.T, samples, exact_up_to)
    law = random_law(layer) if samples <= exact_up_to else None
    if law is None:
        return GramReport(spectrum, None, None, None, None, np.zeros(0))
    law = replace(law, share=samples / min(samples, units))
    drawn = _drawn_activations(layer)
    random = gram_spectrum(drawn if units < samples else drawn.T, samples, exact_up_to)
    top = 1.05 * max(law.support[1], float(random.values[-1]))
    spikes = spectrum.values[spectrum.values > top][::-1] if spectrum.exact else np.zeros(0)
    return GramReport(
        spectrum, law, kolmogorov(spectrum, law), wasserstein(spectrum, law), kolmogorov(random, law), spikes
    )


def _drawn_activations(layer: Captured) -> NDArray[np.float64]:
    """The layer's outputs with random weights; always the same ones."""
    weight, (sigma_w, sigma_b) = weight_matrix(layer.module), variances(layer.module)
    rng = np.random.default_rng(0)
    assert layer.inputs is not None  # there is a law only then
    before = layer.inputs.double().cpu().numpy() @ rng.normal(size=weight.T.shape) * sigma_w / np.sqrt(weight.shape[1])
    before += sigma_b * rng.normal(size=len(weight))
    if layer.normalised:
        before = (before - before.mean(axis=1, keepdims=True)) / np.sqrt(before.var(axis=1, keepdims=True) + 1e-5)
    return apply(layer.activation, before)


def random_law(layer: Captured) -> Law | None:
    """The law of a layer's Gram matrix, had it random weights of the same variance; None where that is not known."""
    if layer.inputs is None or not layer.predictable or layer.outputs.shape[1] < 2 or len(layer.outputs) < 2:
        return None
    sigma_w, sigma_b = variances(layer.module)
    inputs = layer.inputs.double().cpu().numpy()
    if sigma_w == 0.0 or not np.any(inputs):
        return None
    return random_layer_law(inputs, layer.outputs.shape[1], layer.activation, sigma_w, sigma_b, layer.normalised)


def _weights(module: nn.Module, exact_up_to: int) -> Weights:
    return analyse_weights(weight_matrix(module).cpu().numpy(), exact_up_to)

"""A torch model layer by layer: weights, activations, and what random weights would have made of the same inputs."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from gpf.spectra.activations import Array
from gpf.spectra.capture import SAMPLES, Captured, capture, check_weights, weight_matrix, weighted_layers
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

    Both have the same eigenvalues but for zeros, which would hide how far the others are from the law.
    """

    spectrum: Spectrum
    law: Law | None
    """What random weights of the same variance would give; None where something in between is not understood."""
    kolmogorov: float | None
    wasserstein: float | None
    """Distances between the two."""
    spikes: Array
    """Eigenvalues above the law's support, greatest first."""


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
            f" | {'to random':>9} {'spikes':>6} {'eff.rank':>8} {'dead':>5}",
            f"{'':<20} {'':>11} {'norm':>8} {'rank':>7} {'':>6} {'of bulk':>8} {'':>6} | {'(Kolm.)':>9}",
        ]
        for layer in self.layers:
            w, gram, p = layer.weights, layer.gram, layer.plasticity
            bulk = (f"{w.bulk.sigma:>8.4f} {len(w.bulk.spikes):>6}") if w.bulk else f"{'-':>8} {'-':>6}"
            right = f" | {'-':>9} {'-':>6}"
            if gram is not None and gram.kolmogorov is not None:
                right = f" | {gram.kolmogorov:>9.3f} {len(gram.spikes):>6}"
            if p is not None:
                right += f" {p.effective_rank:>8.1f} {p.dead:>5.0%}"
            shape = f"{w.shape[0]}x{w.shape[1]}"
            lines.append(
                f"{layer.name:<20.20} {shape:>11} {w.spectral_norm:>8.3f} {w.stable_rank:>7.1f} {w.alpha:>6.2f} {bulk}"
                + right
            )
        return "\n".join(lines)


def inspect(model: nn.Module, batch: Any = None, most: int = SAMPLES, exact_up_to: int = EXACT) -> Inspection:
    """Spectra of all linear and convolutional layers of a model; print it for a table.

    Args:
        model: Any torch module. Nothing of it changes.
        batch: What its forward takes, or a tuple of that. Without one only weights are looked at.
        most: Samples, or positions, of which not more are used.
        exact_up_to: Shorter side of a matrix beyond which its spectrum is estimated.
    """
    if batch is None:
        check_weights(model)
        return Inspection(
            [LayerReport(name, _weights(module, exact_up_to), None, None) for name, module in weighted_layers(model)]
        )
    return Inspection(
        [
            LayerReport(
                layer.name,
                _weights(layer.module, exact_up_to),
                gram_report(layer, exact_up_to),
                measure(layer.name, layer.module, layer.activated),
            )
            for layer in capture(model, batch, most)
        ]
    )


def gram_report(layer: Captured, exact_up_to: int = EXACT) -> GramReport:
    """The Gram matrix of a layer's activations beside that of random weights."""
    activations = layer.activated.double().cpu().numpy()
    samples, units = activations.shape
    spectrum = gram_spectrum(activations if units < samples else activations.T, samples, exact_up_to)
    law = random_law(layer) if samples <= exact_up_to else None
    if law is None:
        return GramReport(spectrum, None, None, None, np.zeros(0))
    law = replace(law, share=samples / min(samples, units))
    top = law.support[1]
    spikes = spectrum.values[spectrum.values > 1.05 * top][::-1] if spectrum.exact else np.zeros(0)
    return GramReport(spectrum, law, kolmogorov(spectrum, law), wasserstein(spectrum, law), spikes)


def random_law(layer: Captured) -> Law | None:
    """The law of a layer's Gram matrix, had it random weights of the same variance; None where that is not known."""
    if layer.inputs is None or not layer.predictable or layer.outputs.shape[1] < 2 or len(layer.outputs) < 2:
        return None
    weight = weight_matrix(layer.module).double()
    bias: Any = layer.module.bias
    sigma_w = float(torch.sqrt(weight.square().mean() * weight.shape[1]))
    sigma_b = 0.0 if bias is None else float(torch.sqrt(bias.detach().double().square().mean()))
    inputs = layer.inputs.double().cpu().numpy()
    if sigma_w == 0.0 or not np.any(inputs):
        return None
    return random_layer_law(inputs, len(weight), layer.activation, sigma_w, sigma_b, layer.normalised)


def _weights(module: nn.Module, exact_up_to: int) -> Weights:
    return analyse_weights(weight_matrix(module).cpu().numpy(), exact_up_to)

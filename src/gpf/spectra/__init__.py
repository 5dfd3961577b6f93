"""Spectra of networks: predictions of random-matrix theory, measurements, and how the two differ."""

from gpf.spectra.activations import ACTIVATIONS, Moments, moments
from gpf.spectra.depth import Contraction, LayerOperator, Region
from gpf.spectra.empirical import (
    Bulk,
    Spectrum,
    Weights,
    analyse_weights,
    fit_bulk,
    gram_spectrum,
    kolmogorov,
    lanczos_spectrum,
    random_layer_law,
    spectrum_of,
    wasserstein,
)
from gpf.spectra.folds import Folds, folds
from gpf.spectra.inspection import GramReport, Inspection, LayerReport, inspect
from gpf.spectra.plasticity import Plasticity, plasticity
from gpf.spectra.propagation import (
    Propagation,
    advise_depth,
    correlation_map,
    critical_point,
    length_map,
    propagation,
)
from gpf.spectra.theory import Law, deep_law, density, layer_law, marchenko_pastur, product_wishart

__all__ = [
    "ACTIVATIONS", "Bulk", "Contraction", "Folds", "GramReport", "Inspection", "Law", "LayerOperator", "LayerReport",
    "Moments", "Plasticity", "Propagation", "Region", "Spectrum", "Weights", "advise_depth", "analyse_weights",
    "correlation_map", "critical_point", "deep_law", "density", "fit_bulk", "folds", "gram_spectrum", "inspect",
    "kolmogorov", "lanczos_spectrum", "layer_law", "length_map", "marchenko_pastur", "moments", "plasticity",
    "product_wishart", "propagation", "random_layer_law", "spectrum_of", "wasserstein",
]  # fmt: skip

"""Signal propagation in wide random networks (Schoenholz et al. 2016): the maximum trainable depth.

Weights have variance sigma_w^2 / inputs and biases sigma_b^2. The length q of a signal and the correlation c of two of
them follow maps from layer to layer; how fast those maps settle says how far information, and gradients, reach.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from torch import nn

from gpf.spectra.activations import Activation, Array, apply, gauss
from gpf.spectra.capture import is_activation, variances

DEPTHS = 6.0
"""Networks train up to about this many depth scales (Schoenholz et al. 2016)."""
UNBOUNDED = float("inf")
NEAR, FAR = 1e-12, 1e8
"""Lengths below which a signal is said to die, and beyond which to grow forever."""


def length_map(q: float, sigma_w: float, sigma_b: float, activation: Activation) -> float:
    """The length of a signal after the next layer."""
    return sigma_w**2 * _mean_square(q, activation) + sigma_b**2


def correlation_map(c: float, q: float, sigma_w: float, sigma_b: float, activation: Activation) -> float:
    """The correlation of two signals of length q after the next layer."""
    z, weights = gauss(np.sqrt(q))
    root = np.sqrt(q)
    first = apply(activation, root * z)
    inner = apply(activation, root * (c * z[:, None] + np.sqrt(max(0.0, 1.0 - c * c)) * z[None, :])) @ weights
    product = float(weights @ (first * inner))
    return (sigma_w**2 * product + sigma_b**2) / length_map(q, sigma_w, sigma_b, activation)


def fixed_length(sigma_w: float, sigma_b: float, activation: Activation) -> float:
    """The length at which signals of length 1 settle: 0 where they die, infinite where they grow forever.

    Some activations, such as SiLU, have several such lengths; which one is reached depends on where a signal starts.
    """
    _check(sigma_w, sigma_b)

    def after(q: float) -> float:
        return length_map(q, sigma_w, sigma_b, activation)

    q, step = 1.0, 0.0
    for _ in range(400):
        before, step_before = q, step
        q = after(q)
        step = q - before
        if q > FAR:
            return UNBOUNDED
        if q < NEAR:
            return 0.0
        if abs(step) < 1e-14 * q:
            return q
    # still on the way: from here on steps shrink, or grow, by a constant factor
    factor = step / step_before
    if factor < 1.0:
        limit = q + step * factor / (1.0 - factor)
        low, high = max(NEAR, min(q, limit) - abs(limit - q)), max(q, limit) + abs(limit - q)
        if (after(low) - low) * (after(high) - high) < 0.0:
            return float(brentq(lambda x: after(x) - x, low, high, xtol=1e-15))
    return UNBOUNDED if step > 0.0 else 0.0  # no end is near, as at criticality, where steps shrink ever more slowly


@dataclass(frozen=True)
class Propagation:
    """Signals and gradients in a wide random network of these variances."""

    sigma_w: float
    sigma_b: float
    length: float
    """q*, the length that signals settle at."""
    chi: float
    """chi_1: by what squared gradients are multiplied, a layer; 1 is critical."""
    correlation: float
    """c*, the correlation that two signals settle at."""
    length_scale: float
    """xi_q: layers in which a difference in length falls by e."""
    depth_scale: float
    """xi_c: layers in which a difference in correlation falls by e; infinite at criticality."""

    @property
    def trainable_depth(self) -> float:
        """About the deepest that still learns."""
        return DEPTHS * self.depth_scale

    @property
    def phase(self) -> str:
        """`ordered` (gradients vanish), `chaotic` (they explode) or `critical`."""
        if abs(self.chi - 1.0) < 1e-6:
            return "critical"
        return "ordered" if self.chi < 1.0 else "chaotic"


def propagation(sigma_w: float, sigma_b: float = 0.0, activation: Activation = "relu") -> Propagation:
    """Lengths, correlations and depth scales of a random network."""
    q = fixed_length(sigma_w, sigma_b, activation)
    at = min(max(q, NEAR), FAR)  # where signals die or grow forever, the limit from there
    chi = sigma_w**2 * _mean_square_slope(at, 1.0, activation)
    c = 1.0 if chi <= 1.0 + 1e-9 else _fixed_correlation(at, sigma_w, sigma_b, activation)
    slope = chi if c == 1.0 else sigma_w**2 * _mean_square_slope(at, c, activation)
    step = 1e-4 * at
    up, down = (length_map(at + change, sigma_w, sigma_b, activation) for change in (step, -step))
    return Propagation(sigma_w, sigma_b, q, chi, c, _scale((up - down) / (2.0 * step)), _scale(slope))


def critical_point(length: float, activation: Activation) -> tuple[float, float]:
    """sigma_w^2 and sigma_b^2 at which chi_1 is 1 and signals settle at this length; over all lengths, a line."""
    if not 0.0 < length < FAR:
        raise ValueError(f"length must be above 0, got {length}")
    variance = 1.0 / _mean_square_slope(length, 1.0, activation)
    bias = length - variance * _mean_square(length, activation)
    if bias < -1e-6 * length:
        raise ValueError(f"length must be on the critical line of this activation, got {length}")
    return variance, bias if bias > 1e-9 * length else 0.0


def advise_depth(model: nn.Module | float, sigma_b: float | None = None, activation: Activation | None = None) -> float:
    """The trainable depth, in layers, of a model or of (sigma_w, sigma_b, activation); infinite at criticality.

    A model's variances are the medians over its stack of linear layers, and its activation is the one between them.
    `gpf.Rules(max_depth=...)` takes it as a bound on growth: `int(min(advise_depth(model), 100))`.
    """
    if not isinstance(model, nn.Module):
        return propagation(float(model), sigma_b or 0.0, activation or "relu").trainable_depth
    if sigma_b is not None or activation is not None:
        raise ValueError("sigma_b and activation must be omitted with a model, which has both")
    return propagation(*measured_variances(model)).trainable_depth


def measured_variances(model: nn.Module) -> tuple[float, float, Activation]:
    """Current sigma_w, sigma_b and activation of a model.

    Weights are taken about zero, pruned ones included. The head, the last linear layer, does not count if there are
    others.
    """
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    activations = [module for module in model.modules() if is_activation(module)]
    if not linear or not activations:
        raise ValueError("model must have linear layers and activations; otherwise pass sigma_w")
    sigma_w, sigma_b = np.sqrt(np.median([np.square(variances(module)) for module in linear[:-1] or linear], axis=0))
    return float(sigma_w), float(sigma_b), activations[0]


def _check(sigma_w: float, sigma_b: float) -> None:
    if not 0.0 < sigma_w < np.inf:
        raise ValueError(f"sigma_w must be above 0, got {sigma_w}")
    if not 0.0 <= sigma_b < np.inf:
        raise ValueError(f"sigma_b must be at least 0, got {sigma_b}")


def _mean_square(q: float, activation: Activation) -> float:
    z, weights = gauss(np.sqrt(q))
    return float(weights @ apply(activation, np.sqrt(q) * z) ** 2)


def _slope(activation: Activation, x: Array) -> Array:
    """The derivative, from both sides, which leaves out a jump but not a kink."""
    step = 1e-6 * np.maximum(np.abs(x), 1e-6)
    return (apply(activation, x + step) - apply(activation, x - step)) / (2.0 * step)


def _mean_square_slope(q: float, c: float, activation: Activation) -> float:
    """E f'(u1) f'(u2), of signals of length q and correlation c."""
    z, weights = gauss(np.sqrt(q))
    root = np.sqrt(q)
    first = _slope(activation, root * z)
    if c == 1.0:
        return float(weights @ first**2)
    second = _slope(activation, root * (c * z[:, None] + np.sqrt(1.0 - c * c) * z[None, :])) @ weights
    return float(weights @ (first * second))


def _fixed_correlation(q: float, sigma_w: float, sigma_b: float, activation: Activation) -> float:
    """The stable fixed point below 1, in the chaotic phase."""

    def gain(c: float) -> float:
        return correlation_map(c, q, sigma_w, sigma_b, activation) - c

    if gain(0.0) <= 0.0:
        return 0.0
    return float(brentq(gain, 0.0, 1.0 - 1e-9)) if gain(1.0 - 1e-9) < 0.0 else 1.0


def _scale(slope: float) -> float:
    """Layers in which a difference that is multiplied by `slope` each layer falls by e."""
    if slope <= 0.0:
        return 0.0
    rate = -np.log(slope)
    return UNBOUNDED if abs(rate) < 1e-9 else float(1.0 / abs(rate))

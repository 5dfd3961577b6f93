"""Activation functions under Gaussian inputs: the few numbers by which a nonlinearity enters the theory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf, expit

Array = NDArray[np.float64]
Activation = str | Callable[[Any], Any]
"""A name in `ACTIVATIONS`, or any function of an array or of a torch tensor, element by element."""

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0.0),
    "leaky_relu": lambda x: np.where(x > 0.0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0.0, x, np.expm1(np.minimum(x, 0.0))),
    "gelu": lambda x: 0.5 * x * (1.0 + erf(x / np.sqrt(2.0))),
    "silu": lambda x: x * expit(x),
    "sigmoid": lambda x: expit(x),
    "tanh": lambda x: np.tanh(x),
    "erf": lambda x: erf(x),
    "abs": lambda x: np.abs(x),
    "sign": lambda x: np.sign(x),
}
"""Activation functions by name, of arrays and element by element."""

EXACT: dict[str, Callable[[float], tuple[float, float, float]]] = {
    "linear": lambda s: (0.0, s * s, s * s),
    "relu": lambda s: (s / np.sqrt(2.0 * np.pi), s * s * (0.5 - 0.5 / np.pi), s * s / 4.0),
    "abs": lambda s: (s * np.sqrt(2.0 / np.pi), s * s * (1.0 - 2.0 / np.pi), 0.0),
    "sign": lambda s: (0.0, 1.0, 2.0 / np.pi),
    "erf": lambda s: (
        0.0,
        2.0 / np.pi * np.arcsin(2.0 * s * s / (1.0 + 2.0 * s * s)),
        4.0 * s * s / (np.pi * (1.0 + 2.0 * s * s)),
    ),
}
"""Mean, eta and zeta in closed form, of the scale."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)
REACH = 12.0
"""Standard deviations up to which integrals go; the normal density there is 2e-32."""


def apply(activation: Activation, x: Array) -> Array:
    """The activation of an array, whether it is a name, a NumPy function, a torch function or a module."""
    if isinstance(activation, str):
        if activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)} or a function, got {activation!r}")
        return ACTIVATIONS[activation](x)
    try:
        out = np.asarray(activation(x), np.float64)
    except (TypeError, AttributeError):  # a function of tensors
        import torch

        with torch.no_grad():
            out = activation(torch.from_numpy(x)).numpy().astype(np.float64)
    if out.shape != x.shape or not np.isfinite(out).all():
        raise ValueError(f"activation must return a finite value for each element, got {activation!r}")
    return out


def gauss(scale: float = 1.0) -> tuple[Array, Array]:
    """Nodes and weights of a mean over a standard normal variable z, for functions of scale * z.

    Panels of Gauss-Legendre, with edges where common activations have kinks (0, 1, 3 and 6), at which one Gauss-Hermite
    rule over the whole line would converge slowly.
    """
    kinks = [k / scale for k in (-6.0, -3.0, -1.0, 1.0, 3.0, 6.0) if abs(k) < REACH * scale]
    edges = np.unique(np.concatenate([np.arange(-REACH, REACH + 1.0), kinks]))
    half = np.diff(edges)[:, None] / 2.0
    z = (edges[:-1, None] + half * (NODES + 1.0)).ravel()
    return z, (half * WEIGHTS).ravel() * np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)


@dataclass(frozen=True)
class Moments:
    """Properties that determine a layer's spectrum: f is the activation of scale * z, z standard normal."""

    mean: float
    """E f."""
    eta: float
    """Var f: the mean square of the centred activation."""
    zeta: float
    """(E z f)^2: how much of it is linear."""

    @property
    def linearity(self) -> float:
        """Zeta / eta: 1 where the layer is linear, 0 where it keeps nothing of its input's spectrum."""
        return min(1.0, self.zeta / self.eta)


def moments(activation: Activation, scale: float = 1.0) -> Moments:
    """The moments of an activation whose input has standard deviation `scale`."""
    if not 0.0 < scale < np.inf:
        raise ValueError(f"scale must be above 0, got {scale}")
    if isinstance(activation, str) and activation in EXACT:
        return Moments(*(float(value) for value in EXACT[activation](scale)))
    z, weights = gauss(scale)
    f = apply(activation, scale * z)
    mean = float(weights @ f)
    eta = float(weights @ (f - mean) ** 2)
    if eta <= 1e-15 * float(weights @ f**2):
        raise ValueError(f"activation must not be constant at scale {scale}, got {activation!r}")
    zeta = float(weights @ (z * f)) ** 2
    return Moments(mean, eta, 0.0 if zeta < 1e-12 * eta else zeta)


def hermite_coefficients(activation: Activation, scales: Array, order: int) -> tuple[Array, Array]:
    """Coefficients of f(scale z) in normalised Hermite polynomials, and E f^2, for each scale.

    Returns:
        Arrays of shape (scales, order + 1) and (scales,).
    """
    z, weights = gauss()
    values = apply(activation, np.multiply.outer(scales, z))
    polynomials = np.empty((order + 1, len(z)))
    polynomials[0] = 1.0
    if order:
        polynomials[1] = z
    for k in range(2, order + 1):
        polynomials[k] = (z * polynomials[k - 1] - np.sqrt(k - 1.0) * polynomials[k - 2]) / np.sqrt(k)
    return values @ (weights * polynomials).T, values**2 @ weights

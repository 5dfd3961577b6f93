"""The spectrum of the Gram matrix of a random nonlinear layer (Pennington & Worah 2017), at any depth.

Let Y = f(W X) be a layer's output for m samples, its weights Gaussian and its activation centred. In the limit of many
samples and units its Gram matrix K = Y^T Y / n, of unit trace, is a sample covariance: its population is

    b K' + (1 - b) I,    b = zeta / eta,

K' being the Gram matrix of the layer's input (Peche 2019; Fan & Wang 2020). So a law is a chain of two maps, both
explicit in a parameter x: shrink the previous law towards 1 by b, then the map of Marchenko and Pastur,

    z = w x,  s = s_H(x) / w,  w = 1 - gamma - gamma x s_H(x),  gamma = m / n,

of which x is found for a given z by Newton's method, followed down from a large imaginary part. Any depth costs one
unknown. Transforms are s(z) = E 1 / (lambda - z), the paper's sign.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gpf.spectra.activations import Activation, Array, moments

Complex = NDArray[Any]
Gram = Literal["samples", "features"]
CLOSE = 1e-7
"""Imaginary part at which densities are read, as a share of the eigenvalue."""
NOTHING, HARDLY_ANYTHING = 1e-13, 1e-30
"""Eigenvalues below this share of the greatest are taken for zero; the second where a chain of square linear layers
piles them up there."""
POINTS = 4000
"""Points of the grid on which a law's distribution function is summed up."""


@dataclass(frozen=True)
class Step:
    """One layer: the population is `slope` times the Gram matrix before it plus `constant`; `ratio` is m / n."""

    slope: float
    constant: float
    ratio: float


@dataclass(frozen=True, eq=False)
class Law:
    """A limiting spectral distribution on [0, inf), with an atom at zero where the matrix has not full rank."""

    steps: tuple[Step, ...]
    """Transformations of the first population, in order."""
    population: Array
    """Eigenvalues of the first population; a single 1 for white data."""
    parts: Array = field(default_factory=lambda: np.ones(1))
    """The share of each of them."""
    scale: float = 1.0
    """Factor of all eigenvalues."""
    share: float = 1.0
    """Eigenvalues of the matrix in the chain for each one of the matrix that is meant: m for samples, m / n for
    features, which has the same eigenvalues except zeros."""

    def stieltjes(self, z: ArrayLike) -> Complex:
        """E 1 / (lambda - z), at complex z off the real axis."""
        points = np.asarray(z, complex)
        if (points.imag == 0.0).any():
            raise ValueError("z must have an imaginary part other than 0")
        upper = np.where(points.imag > 0.0, points, points.conj()).ravel() / self.scale
        s = self._transform(upper) / self.scale
        s = self.share * s - (1.0 - self.share) / (upper * self.scale)
        return np.where(points.imag > 0.0, s.reshape(points.shape), s.reshape(points.shape).conj())

    def density(self, x: ArrayLike) -> Array:
        """The density of the continuous part; 0 at zero, where there may be an atom."""
        points = np.asarray(x, float)
        out = np.zeros(points.shape)
        low, high = self._bounds
        inside = (points > low) & (points < high)
        if inside.any():
            out[inside] = self.share * self._imaginary(points[inside] / self.scale) / (np.pi * self.scale)
        return out

    @property
    def atom(self) -> float:
        """The share of eigenvalues that are exactly zero."""
        return 1.0 - self.share * (1.0 - self._zeros)

    @cached_property
    def _zeros(self) -> float:
        """The atom of the matrix in the chain."""
        zeros = float(self.parts[self.population <= 0.0].sum())
        for step in self.steps:
            zeros = zeros if step.constant <= 1e-12 else 0.0
            zeros = max(zeros, 1.0 - 1.0 / step.ratio)
        return zeros

    def _imaginary(self, x: Array) -> Array:
        """The imaginary part of the chain's transform just above the real axis, without what is not density."""
        z = x * (1.0 + 1j * CLOSE)
        s = self._transform(z) + self._zeros / z
        return np.where(s.imag > 1e-4 * np.abs(s), s.imag, 0.0)

    @property
    def moments(self) -> tuple[float, float]:
        """The first two moments, exactly."""
        first, second = float(self.parts @ self.population), float(self.parts @ self.population**2)
        for step in self.steps:
            second = step.slope**2 * second + 2.0 * step.slope * step.constant * first + step.constant**2
            first = step.slope * first + step.constant
            second += step.ratio * first**2
        return self.share * self.scale * first, self.share * self.scale**2 * second

    @property
    def support(self) -> tuple[float, float]:
        """The smallest and the largest eigenvalue of the continuous part."""
        grid, _ = self._summed
        return float(grid[0]), float(grid[-1])

    def cdf(self, x: ArrayLike) -> Array:
        """The distribution function, atom included."""
        grid, mass = self._summed
        points = np.asarray(x, float)
        inside = np.interp(points, grid, mass, left=0.0)
        return np.where(points < 0.0, 0.0, np.minimum(1.0, self.atom + inside))

    def quantile(self, share: ArrayLike) -> Array:
        """The eigenvalue below which this share of them lies."""
        grid, mass = self._summed
        wanted = np.asarray(share, float) - self.atom
        return np.where(wanted <= 0.0, 0.0, np.interp(wanted, mass, grid))

    @property
    def mass(self) -> float:
        """Of the whole law, as far as the density and the atom add up: 1, up to the error of the grid."""
        return self.atom + float(self._summed[1][-1])

    def then(self, *steps: Step) -> "Law":
        """The law after further layers."""
        if self.scale != 1.0 or self.share != 1.0:
            raise ValueError("then needs a normalised law of samples, not of features")
        chain, population, parts = list(self.steps), self.population, self.parts
        for step in steps:
            if step.slope == 0.0:  # nothing of what was before is left
                chain, population, parts = [Step(1.0, 0.0, step.ratio)], np.array([step.constant]), np.ones(1)
            else:
                chain.append(step)
        return Law(tuple(chain), population, parts)

    @cached_property
    def _bounds(self) -> tuple[float, float]:
        """No eigenvalue is outside, except zeros."""
        low, high = float(np.min(self.population)), float(np.max(self.population))
        singular = False  # whether there are zeros in addition to values above `low`
        for step in self.steps:
            low = (step.slope * (0.0 if singular else low) + step.constant) * (1.0 - np.sqrt(step.ratio)) ** 2
            high = (step.slope * high + step.constant) * (1.0 + np.sqrt(step.ratio)) ** 2
            singular = step.ratio > 1.0
        # many layers together reach far less high than the product of what each could do: look where it ends
        least = self.moments[0] / self.share / self.scale
        heights = np.geomspace(least, 1.001 * high, 400)
        seen = np.flatnonzero(self._imaginary(heights) > 0.0)
        top = heights[min(len(heights) - 1, seen[-1] + 1)] if len(seen) else 1.001 * high
        piled = all(step.constant == 0.0 and step.ratio == 1.0 for step in self.steps)
        least = (HARDLY_ANYTHING if piled else NOTHING) * top
        return max(0.999 * low, least) * self.scale, float(top) * self.scale

    @cached_property
    def _summed(self) -> tuple[Array, Array]:
        """A grid over the support and the mass of the continuous part up to each of its points."""
        for points in (POINTS,) if len(self.parts) == 1 else (450, 1800, 7200):  # many parts are slow, and mostly easy
            grid, mass = self._sum_up(points)
            if abs(self.atom + mass[-1] - 1.0) < 2e-3:
                return grid, mass
        raise ArithmeticError(f"the density adds up to {self.atom + mass[-1]:.4f} and not to 1: {self.steps}")

    def _sum_up(self, points: int) -> tuple[Array, Array]:
        low, high = self._bounds
        # eigenvalues to a power: tames the growth of the density at zero, and sees what lies decades apart
        decades = int(np.log10(high / low)) if len(self.parts) > 1 else 0
        power = max(2 * (len(self.steps) + 1), min(decades, 12))
        low, high = low ** (1.0 / power), high ** (1.0 / power)
        for _ in range(3):
            t = np.linspace(low, high, points // 3)[1:-1]
            there = np.flatnonzero(self.density(t**power) > 0.0)
            if len(there):
                width = 3.0 * (high - low) / points
                low, high = max(low, t[there[0]] - 2.0 * width), min(high, t[there[-1]] + 2.0 * width)
        # dense at both ends, where densities rise like a square root
        t = low + (high - low) * 0.5 * (1.0 - np.cos(np.linspace(0.0, np.pi, points)))
        grid = t**power
        heights = self.density(grid) * power * t ** (power - 1)
        if grid[0] <= 2.0 * self._bounds[0]:
            heights[0] = heights[1]  # as far as can be seen, it goes on to zero
        mass = np.concatenate([[0.0], np.cumsum(np.diff(t) * 0.5 * (heights[1:] + heights[:-1]))])
        there = np.flatnonzero(heights > 0.0)
        keep = slice(max(0, there[0] - 1), there[-1] + 2) if len(there) else slice(None)
        return grid[keep], mass[keep]

    def _forward(self, x: Complex) -> tuple[Complex, Complex, Complex]:
        """The point z, the transform there, and dz/dx, of a parameter x."""
        if len(self.population) == 1:
            s = 1.0 / (self.population[0] - x)
            ds = s * s
        else:
            each = 1.0 / (self.population - x[..., None])
            # not by BLAS, whose threads wait for each other's cores: on a busy machine that takes 50 times as long
            s, ds = np.einsum("...i,i->...", each, self.parts), np.einsum("...i,i->...", each * each, self.parts)
        z, dz = x, np.ones_like(x)
        for step in self.steps:
            z, dz = step.slope * z + step.constant, step.slope * dz
            s, ds = s / step.slope, ds / step.slope
            w = 1.0 - step.ratio - step.ratio * z * s
            dw = -step.ratio * (dz * s + z * ds)
            ds = (ds - s * dw / w) / w
            s = s / w
            z, dz = w * z, dw * z + w * dz
        return z, s, dz

    def _transform(self, z: Complex) -> Complex:
        """The transform of the chain at points of the upper half-plane."""
        if not self.steps:
            return self._forward(z)[1]
        out = np.empty_like(z)
        todo = np.arange(len(z))
        for shrink in (0.4, 0.7, 0.9, 0.98):  # in ever smaller strides, for the few that lost their root
            s, fine = self._follow(z[todo], shrink)
            out[todo] = s
            todo = todo[~fine]
            if not len(todo):
                return out
        raise ArithmeticError(f"no root found at {len(todo)} of {len(z)} points, near {z[todo[0]]}: {self.steps}")

    def _follow(self, z: Complex, shrink: float) -> tuple[Complex, NDArray[np.bool_]]:
        """The transform by continuation from far above, and where it can be relied on."""
        high = 100.0 * max(1.0, float(np.abs(z).max()), float(self.population.max()))
        x = z.real + 1j * high
        for step in reversed(self.steps):
            x = (x - step.constant) / step.slope
        height, left = high, np.arange(len(z))  # those that are still above where they are to be
        while len(left):
            height *= shrink
            goal = z[left].real + 1j * np.maximum(z[left].imag, height)
            there = z[left].imag >= height
            x[left] = self._newton(x[left], goal, 4)
            x[left[there]] = self._newton(x[left[there]], goal[there], 40)
            left = left[~there]
        reached, s, _ = self._forward(x)
        with np.errstate(invalid="ignore"):
            rounding = 1e-13 * float(np.abs(x).max(initial=1.0))
            fine = (np.abs(reached - z) < 1e-6 * np.abs(z) + rounding) & (s.imag > -1e-12) & ((z * s).imag > -1e-9)
        return s, fine

    def _newton(self, x: Complex, goal: Complex, most: int) -> Complex:
        for _ in range(most):
            reached, _, slope = self._forward(x)
            change = (reached - goal) / slope
            x = x - change
            if not (np.abs(change) > 1e-11 * np.abs(x)).any():
                break
        return x


def _shape(**sizes: float) -> None:
    for name, size in sizes.items():
        if not 0 < size < np.inf:
            raise ValueError(f"{name} must be above 0, got {size}")


def marchenko_pastur(ratio: float, variance: float = 1.0) -> Law:
    """The law of A^T A / n for an n x m matrix of independent entries of this variance; `ratio` is m / n."""
    _shape(ratio=ratio, variance=variance)
    return Law((Step(1.0, 0.0, ratio),), np.ones(1), scale=variance)


def product_wishart(first: float, second: float) -> Law:
    """The law of (A B)^T A B / (n1 n0), A being n1 x n0 and B n0 x m; `first` is m / n0 and `second` m / n1."""
    _shape(first=first, second=second)
    return Law((Step(1.0, 0.0, first), Step(1.0, 0.0, second)), np.ones(1))


def layer_law(
    activation: Activation = "relu",
    *,
    n0: float,
    n1: float,
    m: float,
    gram: Gram = "samples",
    scale: float = 1.0,
) -> Law:
    """The law of Y^T Y / m (`samples`) or Y Y^T / m (`features`), Y = f(W X) centred, for white Gaussian data.

    Args:
        activation: f, by name or as a function.
        n0: inputs.
        n1: units.
        m: samples; of all three only ratios matter.
        gram: which of the two matrices.
        scale: standard deviation of the pre-activations.
    """
    return deep_law(activation, [n0, n1], m, gram, scale)


def deep_law(
    activation: Activation, widths: Sequence[float], m: float, gram: Gram = "samples", scale: float = 1.0
) -> Law:
    """The same for the last of many layers, `widths` being the inputs and then the units of each.

    Between layers activations are centred and rescaled, so every pre-activation has standard deviation `scale`.
    """
    if gram not in ("samples", "features"):
        raise ValueError(f"gram must be one of samples, features, got {gram!r}")
    if len(widths) < 2:
        raise ValueError(f"widths must have the inputs and at least one layer, got {list(widths)}")
    _shape(m=m, **{f"n{n}": width for n, width in enumerate(widths)})
    f = moments(activation, scale)
    law = marchenko_pastur(m / widths[0]).then(*(layer_step(f.linearity, m / width) for width in widths[1:]))
    last = widths[-1]
    return replace(law, scale=f.eta * last / m, share=1.0 if gram == "samples" else m / last)


def layer_step(linearity: float, ratio: float) -> Step:
    """A layer of this zeta / eta, normalised to unit variance."""
    return Step(linearity, max(0.0, 1.0 - linearity), ratio)


def density(
    x: ArrayLike,
    activation: Activation = "relu",
    *,
    n0: float,
    n1: float,
    m: float,
    gram: Gram = "samples",
    scale: float = 1.0,
) -> Array:
    """The predicted density of the eigenvalues of a random layer's Gram matrix; see `layer_law`."""
    return layer_law(activation, n0=n0, n1=n1, m=m, gram=gram, scale=scale).density(x)

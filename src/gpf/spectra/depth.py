"""The paper's operator Psi, which maps the spectrum of a layer's input to its own; its fixed point and contraction.

The paper writes s_l(z) = Psi(s_{l-1}(z), z), as if the transform at z depended on that of the layer before at the same
z. It does not: it depends on it at another point, the x of `theory`. So Psi is an operator on whole transforms, and its
contraction is measured in the norm that Theorem 1 asks for, the greatest difference on a compact set of z.
"""

from dataclasses import dataclass

import numpy as np

from gpf.spectra.activations import Activation, Array, moments
from gpf.spectra.theory import Complex, Law, layer_step, marchenko_pastur

ATOMS = 4
"""Atoms of the measures at which, and towards which, the derivative is taken: few make the greatest."""


@dataclass(frozen=True)
class Region:
    """A compact set of z: a rectangle above the real axis."""

    left: float = -1.0
    right: float = 8.0
    low: float = 0.5
    high: float = 4.0

    def __post_init__(self) -> None:
        if not (self.left < self.right and 0.0 < self.low < self.high):
            raise ValueError(f"region must have left < right and 0 < low < high, got {self}")

    def border(self, across: int = 600, up: int = 40) -> Complex:
        """Points of its border, on which any function that is analytic inside has its maximum."""
        real, imaginary = np.linspace(self.left, self.right, across), np.geomspace(self.low, self.high, up)
        return np.concatenate(
            [real + 1j * self.low, real[::10] + 1j * self.high, self.left + 1j * imaginary, self.right + 1j * imaginary]
        )


@dataclass(frozen=True)
class Contraction:
    """The conditions of Theorem 1, measured."""

    well_defined: bool
    """Condition 1: a transform of a measure came out, everywhere in the region, and its derivative exists."""
    factor: float
    """Condition 2: the greatest norm of the derivative that a search has found, which must be below 1. The true one is
    at least as great: a factor above 1 refutes the condition, one below does not prove it."""
    second_moment: float
    """By what the spectrum's variance is multiplied, a layer: (zeta / eta)^2, exactly."""

    @property
    def holds(self) -> bool:
        """Whether nothing was found that refutes either condition."""
        return self.well_defined and self.factor < 1.0


@dataclass(frozen=True)
class LayerOperator:
    """Psi for one kind of layer, normalised to unit variance."""

    linearity: float
    """zeta / eta."""
    ratio: float = 1.0
    """Samples over units, m / n."""

    @classmethod
    def of(cls, activation: Activation, ratio: float = 1.0, scale: float = 1.0) -> "LayerOperator":
        """That of an activation."""
        return cls(moments(activation, scale).linearity, ratio)

    def __call__(self, law: Law) -> Law:
        """The spectrum after the layer."""
        return law.then(layer_step(self.linearity, self.ratio))

    def compose(self, law: Law, depth: int) -> Law:
        """The spectrum after several layers."""
        for _ in range(depth):
            law = self(law)
        return law

    def fixed_point(self, region: Region | None = None, tolerance: float = 1e-6, most: int = 200) -> tuple[Law, int]:
        """The law that a layer does not change, and after how many layers white data is that near to it.

        Raises ArithmeticError where there is none: a linear layer spreads the spectrum forever.
        """
        z = (region or Region()).border()
        law = marchenko_pastur(self.ratio)
        before = law.stieltjes(z)
        for depth in range(1, most + 1):
            law = self(law)
            after = law.stieltjes(z)
            if np.abs(after - before).max() < tolerance:
                return law, depth
            before = after
        raise ArithmeticError(f"no fixed point within {most} layers at linearity {self.linearity:.3f}")

    def contraction(self, region: Region | None = None, starts: int = 4, steps: int = 60, seed: int = 0) -> Contraction:
        """Search for the greatest derivative of Psi, in the sup norm, at measures of mean 1 towards others.

        From each of several random pairs of measures a walk takes every random step that makes it greater.
        """
        z = (region or Region()).border()
        rng = np.random.default_rng(seed)
        best, fine = 0.0, True
        for _ in range(starts):
            point = rng.normal(size=(2, 2, ATOMS))
            factor, good = self._derivative(point, z)
            for n in range(steps):
                tried = point + rng.normal(size=point.shape) * (0.7 if n % 2 else 0.2)
                higher, well = self._derivative(tried, z)
                good = good and well
                if higher > factor:
                    point, factor = tried, higher
            best, fine = max(best, factor), fine and good
        return Contraction(fine, best, self.linearity**2)

    def _derivative(self, point: Array, z: Complex) -> tuple[float, bool]:
        """The norm of the derivative over that of the direction, and whether it exists, at a point of the search."""
        at, towards = (_measure(*one) for one in point)
        change = np.abs(towards.stieltjes(z) - at.stieltjes(z)).max()
        if change < 1e-9:
            return 0.0, True
        start = self(at).stieltjes(z)
        moves = [(self(_mixture(at, towards, t)).stieltjes(z) - start) / t for t in (2e-4, 1e-4)]
        derivative = 2.0 * moves[1] - moves[0]  # free of the second order
        size = float(np.abs(derivative).max())
        smooth = np.abs(moves[0] - moves[1]).max() < 0.05 * size + 1e-6
        return size / float(change), bool(smooth and (start.imag > 0.0).all())


def _measure(values: Array, parts: Array) -> Law:
    """A measure of mean 1 with a few atoms, of any real numbers."""
    shares = np.exp(2.0 * parts)
    shares /= shares.sum()
    atoms = np.exp(1.5 * values)
    return Law((), atoms / (atoms @ shares), shares)


def _mixture(one: Law, other: Law, share: float) -> Law:
    return Law(
        (),
        np.concatenate([one.population, other.population]),
        np.concatenate([(1.0 - share) * one.parts, share * other.parts]),
    )

"""The paper's operator Psi, which makes a layer's spectrum of that of its input, its fixed point and its contraction.

The paper writes s_l(z) = Psi(s_{l-1}(z), z), as if the transform at z depended on that of the layer before at the same
z. It does not: it depends on it at another point, the x of `theory`. So Psi is an operator on whole transforms, and its
contraction is measured in the norm that Theorem 1 asks for, the greatest difference on a compact set of z.
"""

from dataclasses import dataclass

import numpy as np

from gpf.spectra.activations import Activation, Array, moments
from gpf.spectra.theory import Complex, Law, Step, layer_step

ATOMS = 48
"""Atoms of the measures between which contraction is measured."""


@dataclass(frozen=True)
class Region:
    """A compact set of z: a rectangle above the real axis."""

    left: float = -1.0
    right: float = 8.0
    low: float = 0.5
    high: float = 4.0

    def __post_init__(self) -> None:
        if not (self.left < self.right and 0.0 < self.low < self.high):
            raise ValueError(f"region: {self}; accepted: left < right and 0 < low < high")

    def grid(self, across: int = 40, up: int = 8) -> Complex:
        """Points of it, its borders included."""
        real, imaginary = np.meshgrid(np.linspace(self.left, self.right, across), np.geomspace(self.low, self.high, up))
        return (real + 1j * imaginary).ravel()


@dataclass(frozen=True)
class Contraction:
    """What Theorem 1 asks, measured."""

    well_defined: bool
    """Condition 1: a transform of a measure came out, everywhere in the region, and its derivative exists."""
    factor: float
    """Condition 2: the greatest norm of the derivative that was found; it must be below 1."""
    typical: float
    """The median over all measures and directions."""
    second_moment: float
    """By what the spectrum's variance is multiplied, a layer: (zeta / eta)^2, exactly."""

    @property
    def holds(self) -> bool:
        """Whether both conditions hold, as far as was looked."""
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

        Raises ArithmeticError where there is none: a linear layer spreads the spectrum for ever.
        """
        z = (region or Region()).grid()
        law = Law((Step(1.0, 0.0, self.ratio),), np.ones(1))
        before = law.stieltjes(z)
        for depth in range(1, most + 1):
            law = self(law)
            after = law.stieltjes(z)
            if np.abs(after - before).max() < tolerance:
                return law, depth
            before = after
        raise ArithmeticError(f"no fixed point within {most} layers at linearity {self.linearity:.3f}")

    def contraction(self, region: Region | None = None, measures: int = 12, seed: int = 0) -> Contraction:
        """The derivative of Psi at random measures of mean 1, in the direction of others, in the sup norm."""
        z = (region or Region()).grid()
        rng = np.random.default_rng(seed)
        factors, fine = [], True
        for _ in range(measures):
            at, towards = _random_measure(rng), _random_measure(rng)
            start = self(at).stieltjes(z)
            change = towards.stieltjes(z) - at.stieltjes(z)
            moves = [(self(_mixture(at, towards, t)).stieltjes(z) - start) / t for t in (1e-3, 5e-4)]
            derivative = 2.0 * moves[1] - moves[0]  # free of the second order
            size = np.abs(derivative).max()
            fine = (
                fine and bool((start.imag > 0.0).all()) and bool(np.abs(moves[0] - moves[1]).max() < 0.05 * size + 1e-9)
            )
            factors.append(float(size / np.abs(change).max()))
        return Contraction(fine, max(factors), float(np.median(factors)), self.linearity**2)


def _random_measure(rng: np.random.Generator) -> Law:
    """Atoms on the positive axis with mean 1, from nearly equal to widely spread."""
    shape = np.exp(rng.uniform(np.log(0.03), np.log(10.0)))
    values: Array = rng.gamma(shape, 1.0 / shape, ATOMS) + 1e-9
    parts = rng.dirichlet(np.ones(ATOMS))
    return Law((), np.sort(values / (values @ parts)), parts)


def _mixture(one: Law, other: Law, share: float) -> Law:
    return Law(
        (),
        np.concatenate([one.population, other.population]),
        np.concatenate([(1.0 - share) * one.parts, share * other.parts]),
    )

"""Measured spectra of weights and Gram matrices, and their outliers.

Conventions of weights are those of Martin & Mahoney and their `weightwatcher`: eigenvalues are those of W^T W, not
divided by anything; N is the longer side of W, M the shorter, Q = N / M.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh_tridiagonal
from scipy.special import gammainccinv

from gpf.spectra.activations import Activation, Array, hermite_coefficients
from gpf.spectra.theory import Complex, Law, Step, marchenko_pastur

EXACT = 2048
"""Shorter side up to which all eigenvalues are computed; beyond it their density is estimated."""
SMALLEST = 8
"""Shorter side from which a bulk is fitted: fewer eigenvalues are no distribution."""
LEVEL = 0.001
"""Chance of calling pure noise a spike, for a whole matrix."""
ATOMS = 80
"""Atoms that stand for a population of many eigenvalues."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of a matrix that is positive semidefinite, each with its share of all."""

    values: Array
    """Ascending."""
    shares: Array
    """Adding up to 1."""
    size: int
    """Rows of the matrix."""
    exact: bool
    """Whether these are all eigenvalues, and not an estimate by random probes."""

    def cdf(self, x: ArrayLike) -> Array:
        """The share of eigenvalues that are not greater than x."""
        summed = np.concatenate([[0.0], np.cumsum(self.shares)])
        return summed[np.searchsorted(self.values, np.asarray(x, float), side="right")]

    def moment(self, order: int) -> float:
        """The mean of a power of the eigenvalues."""
        return float(self.shares @ self.values**order)

    def stieltjes(self, z: ArrayLike) -> Complex:
        """The mean of 1 / (lambda - z)."""
        points = np.asarray(z, complex)
        out: Complex = (self.shares / (self.values - points[..., None])).sum(-1)
        return out

    def density(self, x: ArrayLike, width: float | None = None) -> Array:
        """A smooth density: a Gaussian of this width on each eigenvalue, by default a fiftieth of their spread."""
        points = np.asarray(x, float)
        width = width or max(1e-12, 0.02 * float(self.values[-1] - self.values[0]))
        bumps = np.exp(-0.5 * ((points[..., None] - self.values) / width) ** 2)
        out: Array = (self.shares * bumps).sum(-1) / (width * np.sqrt(2.0 * np.pi))
        return out


def spectrum_of(eigenvalues: ArrayLike) -> Spectrum:
    """A spectrum of known eigenvalues."""
    values = np.sort(np.asarray(eigenvalues, float))
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise ValueError("eigenvalues must be a list of finite numbers, with at least one")
    return Spectrum(values, np.full(len(values), 1.0 / len(values)), len(values), True)


def gram_spectrum(matrix: ArrayLike, divisor: float = 1.0, exact_up_to: int = EXACT, seed: int = 0) -> Spectrum:
    """The spectrum of A^T A / divisor for an n x m matrix A; zeros that its shape forces are among the m values.

    If both sides are longer than `exact_up_to`, it is estimated by stochastic Lanczos quadrature, in memory of a few
    dozen vectors.
    """
    a = checked_matrix(matrix)
    n, m = a.shape
    if min(n, m) > exact_up_to:
        return lanczos_spectrum(lambda v: a.T @ (a @ v) / np.float32(divisor), m, seed=seed)
    unit = float(np.abs(a).max()) or 1.0
    if not 1e-150 < unit < 1e150:
        raise ValueError(f"matrix must hold numbers whose squares are finite, got {unit:g}")
    small = a.astype(np.float64) / unit
    small = small.T @ small if m <= n else small @ small.T
    values = np.maximum(np.linalg.eigvalsh(small), 0.0)
    # what rounding alone can make: of the entries as they came, and of the product
    values[values < values[-1] * max((max(n, m) * np.finfo(a.dtype).eps) ** 2, max(n, m) * np.finfo(float).eps)] = 0.0
    values *= unit**2 / divisor
    return spectrum_of(np.concatenate([np.zeros(m - len(values)), values]))


def checked_matrix(matrix: ArrayLike) -> NDArray[Any]:
    """The matrix as an array of floats; refuses what has no spectrum."""
    a = np.asarray(matrix)
    if a.ndim != 2 or 0 in a.shape:
        raise ValueError(f"matrix must have two dimensions, none of them 0, got the shape {a.shape}")
    if np.issubdtype(a.dtype, np.complexfloating):
        raise ValueError(f"matrix must hold real numbers, got {a.dtype}")
    if a.dtype not in (np.float32, np.float64):
        a = a.astype(np.float32 if a.dtype == np.float16 else np.float64)
    if not np.isfinite(a).all():
        raise ValueError("matrix must hold finite numbers only")
    return a


def lanczos_spectrum(
    product: Callable[[NDArray[Any]], NDArray[Any]], size: int, steps: int = 80, probes: int = 8, seed: int = 0
) -> Spectrum:
    """An estimate of a symmetric matrix's spectrum from products with `probes` random vectors.

    Stochastic Lanczos quadrature (Ubaru, Chen & Saad 2017). `product` takes a block of vectors, as columns.
    """
    rng = np.random.default_rng(seed)
    steps = min(steps, size)
    vectors: NDArray[Any] = rng.choice(np.array([-1.0, 1.0], np.float32), (size, probes)) / np.float32(np.sqrt(size))
    basis = np.zeros((steps, probes, size), np.float32)
    diagonal, beside = np.zeros((probes, steps)), np.zeros((probes, steps))
    for k in range(steps):
        basis[k] = vectors.T
        after = product(vectors).astype(np.float32, copy=False)
        diagonal[:, k] = np.einsum("ij,ij->j", vectors, after)
        for p in range(probes):  # against all earlier ones, twice: else values that were found are found again
            q = basis[: k + 1, p]
            for _ in range(2):
                after[:, p] -= q.T @ (q @ after[:, p])
        beside[:, k] = np.linalg.norm(after, axis=0)
        vectors = after / np.maximum(beside[:, k], 1e-30).astype(np.float32)
    values, shares = [], []
    for p in range(probes):
        found = np.flatnonzero(beside[p] < 1e-5 * np.abs(diagonal[p]).max())  # the whole space has been seen
        last = int(found[0]) + 1 if len(found) else steps
        nodes, directions = eigh_tridiagonal(diagonal[p, :last], beside[p, : last - 1])
        values.append(nodes)
        shares.append(directions[0] ** 2 / probes)
    order = np.argsort(np.concatenate(values))
    return Spectrum(np.maximum(np.concatenate(values)[order], 0.0), np.concatenate(shares)[order], size, False)


def kolmogorov(measured: Spectrum, law: Law) -> float:
    """The greatest difference between measured and predicted distribution function."""
    values = measured.values
    noise = np.where(values <= 1e-9 * values[-1], 0.0, values)  # zeros, up to rounding
    predicted = law.cdf(noise)
    above = np.abs(np.cumsum(measured.shares) - predicted)
    before = np.where(noise > 0.0, predicted, 0.0)  # the limit from below: at zero there may be an atom
    below = np.abs(np.concatenate([[0.0], np.cumsum(measured.shares)[:-1]]) - before)
    last_zero = np.flatnonzero(noise == 0.0)
    if len(last_zero):  # equal values are one step of the distribution function
        above[last_zero[:-1]] = 0.0
        below[last_zero] = 0.0
    return float(max(above.max(), below.max()))


def wasserstein(measured: Spectrum, law: Law) -> float:
    """The mean distance that an eigenvalue is from where the law wants it."""
    edges = np.concatenate([[0.0], np.cumsum(measured.shares)])
    parts = 8  # points inside each share, where the law's quantiles differ
    inside = (np.arange(parts) + 0.5) / parts
    levels = edges[:-1, None] + measured.shares[:, None] * inside
    return float((measured.shares[:, None] * np.abs(law.quantile(levels) - measured.values[:, None])).sum() / parts)


def tracy_widom(chance: float) -> float:
    """The value that a Tracy-Widom variable (of real matrices) exceeds with this chance; Chiani 2014."""
    return float(0.186054 * gammainccinv(46.446, chance) - 9.84801)


@dataclass(frozen=True, eq=False)
class Bulk:
    """The Marchenko-Pastur law that fits the noise in a matrix, and what stands out of it."""

    sigma: float
    """Standard deviation of the noise in the weights."""
    low: float
    high: float
    """Edges of the bulk of the eigenvalues of W^T W."""
    threshold: float
    """The limit that noise exceeds with probability `LEVEL`."""
    spikes: Array
    """Eigenvalues above it, greatest first."""
    distance: float
    """Kolmogorov distance between the eigenvalues below the threshold and the law."""


def fit_bulk(eigenvalues: ArrayLike, shape: tuple[int, int], level: float = LEVEL) -> Bulk | None:
    """Fit the bulk of the eigenvalues of W^T W (the shorter side's, all of them); None if there are too few.

    The scale is the one that fits the middle four fifths of the eigenvalues which are no spikes, found again until
    those stay the same. A spike is above the Tracy-Widom range of the greatest eigenvalue of noise (Johnstone 2001).
    """
    values = np.sort(np.asarray(eigenvalues, float))
    longer, shorter = max(shape), min(shape)
    if len(values) != shorter:
        raise ValueError(f"eigenvalues must be {shorter} for a matrix of shape {shape}, got {len(values)}")
    if shorter < SMALLEST or values[shorter // 2] <= 0.0:
        return None
    ratio = shorter / longer
    law = _unit_law(ratio)
    mu = (np.sqrt(longer - 0.5) + np.sqrt(shorter - 0.5)) ** 2 / longer
    spread = np.sqrt(mu / longer) * (1.0 / np.sqrt(longer - 0.5) + 1.0 / np.sqrt(shorter - 0.5)) ** (1.0 / 3.0)
    doubt = mu * np.sqrt(2.0 / (longer * shorter))  # of the scale, which is estimated from the same matrix
    limit = mu + np.hypot(spread, doubt / 1.27) * tracy_widom(level)  # 1.27: standard deviation of Tracy-Widom
    kept = shorter
    for _ in range(50):
        middle = slice(kept // 10, kept - kept // 10)  # the ends are where spikes and pruned units pull
        wanted = law.quantile((np.arange(kept)[middle] + 0.5) / kept)
        unit = float(values[middle] @ wanted / (wanted @ wanted))
        within = int(np.searchsorted(values, limit * unit, side="right"))
        if within == kept or within < shorter // 2:
            break
        kept = within
    spikes = values[values > limit * unit][::-1]
    rest = spectrum_of(values[: shorter - len(spikes)] / unit) if len(spikes) < shorter else None
    low, high = (1.0 - np.sqrt(ratio)) ** 2, (1.0 + np.sqrt(ratio)) ** 2
    distance = kolmogorov(rest, law) if rest is not None else 1.0
    return Bulk(float(np.sqrt(unit / longer)), low * unit, high * unit, float(limit * unit), spikes, distance)


@lru_cache(maxsize=64)
def _unit_law(ratio: float) -> Law:
    return marchenko_pastur(ratio)


def tail_exponent(eigenvalues: ArrayLike, most: int = 512) -> tuple[float, float]:
    """Alpha and start of the power law that fits the tail best (Clauset, Shalizi & Newman 2009).

    Of all starts, or of `most` of them spread evenly, the one with the smallest Kolmogorov distance; NaN for fewer than
    ten positive eigenvalues.
    """
    values = np.sort(np.asarray(eigenvalues, float))
    values = values[values > 1e-12 * values[-1]] if len(values) else values
    count = len(values)
    if count < 10:
        return float("nan"), float("nan")
    starts = np.unique(np.linspace(0, count - 5, min(most, count - 4)).astype(int))
    logs = np.log(values)
    sums = np.cumsum(logs[::-1])[::-1]
    best = (np.inf, float("nan"), float("nan"))
    for i in starts:
        total = sums[i] - (count - i) * logs[i]
        if total <= 0.0:
            continue
        alpha = 1.0 + (count - i) / total
        predicted = 1.0 - np.exp((1.0 - alpha) * (logs[i:] - logs[i]))
        steps = np.arange(count - i + 1) / (count - i)
        distance = max(np.abs(steps[1:] - predicted).max(), np.abs(steps[:-1] - predicted).max())
        best = min(best, (distance, alpha, float(values[i])))
    return best[1], best[2]


@dataclass(frozen=True, eq=False)
class Weights:
    """Findings about the spectrum of one weight matrix."""

    shape: tuple[int, int]
    """Without rows and columns of zeros, which pruning leaves behind."""
    spectrum: Spectrum
    """Of W^T W, on its shorter side."""
    norm: float
    """Frobenius norm."""
    spectral_norm: float
    """The greatest singular value."""
    rank: int | None
    """None where the spectrum is an estimate."""
    stable_rank: float
    """Frobenius^2 / spectral^2."""
    entropy: float
    """Of the eigenvalues' shares in their sum, divided by its greatest possible value."""
    alpha: float
    """Exponent of the tail."""
    bulk: Bulk | None
    """The fitted noise; None where there is too little to fit, or the spectrum is an estimate."""


def analyse_weights(matrix: ArrayLike, exact_up_to: int = EXACT, level: float = LEVEL) -> Weights:
    """The spectrum of a weight matrix, of any shape; a matrix of zeros has rank 0 and no bulk."""
    full = checked_matrix(matrix)
    rows, columns = np.any(full != 0.0, axis=1), np.any(full != 0.0, axis=0)
    used = full if rows.all() and columns.all() else full[np.ix_(rows, columns)]
    if used.size == 0:
        return Weights((0, 0), spectrum_of([0.0]), 0.0, 0.0, 0, 0.0, 0.0, float("nan"), None)
    a = used if used.shape[0] >= used.shape[1] else used.T
    found = gram_spectrum(a, exact_up_to=exact_up_to)
    values = found.values
    total = float(found.size * found.moment(1)) if found.exact else float(np.einsum("ij,ij->", a, a, dtype=np.float64))
    top = float(values[-1])
    shares = found.shares * found.size * values / total
    positive = shares > 0.0
    rank = int(np.sum(values > 0.0)) if found.exact else None
    entropy = 0.0
    if rank is None or rank > 1:
        each = values[positive] / total
        entropy = float(-np.sum(shares[positive] * np.log(each)) / np.log(rank or min(a.shape)))
    return Weights(
        shape=(int(used.shape[0]), int(used.shape[1])),
        spectrum=found,
        norm=float(np.sqrt(total)),
        spectral_norm=float(np.sqrt(top)),
        rank=rank,
        stable_rank=total / top,
        entropy=entropy,
        alpha=tail_exponent(values)[0] if found.exact else float("nan"),
        bulk=fit_bulk(values, a.shape, level) if found.exact else None,
    )


def random_layer_law(
    inputs: ArrayLike,
    units: int,
    activation: Activation = "linear",
    sigma_w: float = 1.0,
    sigma_b: float = 0.0,
    normalised: bool = False,
    order: int = 24,
) -> Law:
    """The law of Y^T Y / m of a layer with random weights that is given these inputs, one sample a row.

    What a trained layer is to be held against: nothing is assumed of the data. Its population is the expected product
    of two samples' activations, as a series in their correlation, which includes an activation's mean (an outlier).

    Args:
        inputs: m samples.
        units: outputs of the layer.
        activation: what follows its linear map.
        sigma_w: weights have variance sigma_w^2 / inputs.
        sigma_b: standard deviation of the biases.
        normalised: whether layer normalisation stands before the activation.
        order: terms of the series.
    """
    x = checked_matrix(inputs).astype(np.float64)
    m = len(x)
    covariance = sigma_w**2 * (x @ x.T) / x.shape[1] + sigma_b**2
    lengths = np.diag(covariance).copy()
    roots = np.sqrt(np.where(lengths > 0.0, lengths, 1.0))
    correlation = np.clip(covariance / roots / roots[:, None], -1.0, 1.0)  # 0 with a sample that is all zeros
    np.fill_diagonal(correlation, 1.0)
    scales = np.ones(m) if normalised else np.sqrt(lengths)
    coefficients, squares = hermite_coefficients(activation, scales, order)
    population = np.zeros((m, m))
    power, odd = np.ones((m, m)), 0.0  # powers of the correlation, and how much of the series is in odd ones
    for k in range(order + 1):
        population += np.outer(coefficients[:, k], coefficients[:, k]) * power
        power *= correlation
        if k > 1 and k % 2:
            odd += float(np.abs(coefficients[:, k]).sum())
    # The terms that were left out, all as if they were the next one: exact for a sample with itself or its like.
    left = np.sqrt(np.maximum(squares - (coefficients**2).sum(axis=1), 0.0))
    population += np.outer(left, left) * (power if odd > 1e-9 * np.abs(coefficients).sum() else power * correlation)
    values = np.linalg.eigvalsh(population)
    values[values < 1e-10 * values[-1]] = 0.0
    return Law((Step(1.0, 0.0, m / units),), *_few(values), scale=units / m)


def _few(values: NDArray[Any]) -> tuple[Array, Array]:
    """Not more than `ATOMS` atoms for many eigenvalues, and their shares: the greatest alone, the others in groups."""
    count, zeros = len(values), int(np.sum(values == 0.0))
    alone = min(count - zeros, ATOMS // 4)
    groups = [values[:zeros], *np.array_split(values[zeros : count - alone], ATOMS - alone)]
    groups = [group for group in [*groups, *np.split(values[count - alone :], alone)] if len(group)]
    return np.array([group.mean() for group in groups]), np.array([len(group) for group in groups]) / count

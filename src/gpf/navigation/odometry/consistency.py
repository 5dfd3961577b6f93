"""Whether a filter knows how wrong it is: normalised estimation error squared (NEES) and its chi-squared band."""

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from gpf.navigation.odometry.kalman import HEADING, X, Y


def errors(means: NDArray[np.float64], truths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Estimates minus truths, shape (..., n): the plain errors, which are reported; headings in [-pi, pi)."""
    plain = means - truths
    plain[..., HEADING] = (plain[..., HEADING] + np.pi) % (2.0 * np.pi) - np.pi
    return plain


def invariant_errors(means: NDArray[np.float64], truths: NDArray[np.float64]) -> NDArray[np.float64]:
    """The errors whose covariance the filter keeps, see `kalman`."""
    invariant = errors(means, truths)
    c, s = np.cos(invariant[..., HEADING]), np.sin(invariant[..., HEADING])
    x, y = truths[..., X], truths[..., Y]
    invariant[..., X] = means[..., X] - (c * x - s * y)
    invariant[..., Y] = means[..., Y] - (s * x + c * y)
    return invariant


def plain_covariance(mean: NDArray[np.float64], covariance: NDArray[np.float64]) -> NDArray[np.float64]:
    """The covariance of plain errors, to first order, of that of a filter, shape (n, n)."""
    change = np.eye(len(mean))
    change[X, HEADING], change[Y, HEADING] = -mean[Y], mean[X]
    plain: NDArray[np.float64] = change @ covariance @ change.T
    return plain


def nees(errors: NDArray[np.float64], covariances: NDArray[np.float64]) -> NDArray[np.float64]:
    """The squared Mahalanobis norm of errors, shape (..., n), by their covariances, shape (..., n, n)."""
    solved = np.linalg.solve(covariances, errors[..., None])[..., 0]
    squared: NDArray[np.float64] = np.sum(errors * solved, axis=-1)
    return squared


def band(numbers: int, runs: int, confidence: float = 0.95) -> tuple[float, float]:
    """Where the mean NEES of independent runs lies with this probability, if the filter is consistent.

    Args:
        numbers: Of the state.
        runs: How many.
        confidence: The probability.
    """
    tail = 0.5 * (1.0 - confidence)
    low, high = chi2.ppf([tail, 1.0 - tail], numbers * runs) / runs
    return float(low), float(high)

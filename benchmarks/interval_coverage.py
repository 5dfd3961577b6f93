"""How often 95 % intervals over seeds cover what they estimate, for few and for many seeds.

    python benchmarks/interval_coverage.py [--samples 4000] [--resamples 1000] [--seed 0] [--write] [--json]

Draws scores of n seeds from a known law many times, and counts how often each interval contains the true value: the
mean for the percentile bootstrap of the mean and for Student's t, the interquartile mean for its percentile bootstrap.
The laws are normal, and log-normal with sigma 1, which is skewed. Pages use Student's t below 10 seeds and the
interquartile mean from there on. The standard error of a coverage is at most 0.8 points with 4,000 samples.

`--write` puts the table into docs/results/README.md.
"""

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from documents import insert
from numpy.typing import NDArray
from scipy import integrate, stats

from gpf.reports.statistics import MANY_SEEDS, TAILS, mean_interval
from gpf.reports.tables import markdown_table

SEEDS = (3, 6, 10, 20)
SIGMA = 1.0
"""Of the logarithm of log-normal scores."""

Draws = NDArray[np.float64]
Bounds = tuple[Draws, Draws]


@dataclass(frozen=True)
class Law:
    """Where scores come from, and what is true of them."""

    name: str
    draw: Callable[[np.random.Generator, tuple[int, int]], Draws]
    mean: float
    interquartile_mean: float


def middle_half_mean(quantile: Callable[[float], float]) -> float:
    """The mean of the middle half of a law, by its quantiles."""
    return 2.0 * float(integrate.quad(quantile, 0.25, 0.75)[0])


LAWS = (
    Law("normal", lambda rng, shape: rng.normal(size=shape), 0.0, 0.0),
    Law(
        "log-normal",
        lambda rng, shape: rng.lognormal(sigma=SIGMA, size=shape),
        math.exp(SIGMA**2 / 2),
        middle_half_mean(stats.lognorm(SIGMA).ppf),
    ),
)


def main() -> None:
    """Simulate, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=4000, help="draws of n seeds")
    parser.add_argument("--resamples", type=int, default=1000, help="of each bootstrap")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", action="store_true", help="put the table into docs/results/README.md")
    parser.add_argument("--json", action="store_true", help="end with one JSON object of coverages")
    arguments = parser.parse_args()
    found = {
        law.name: {
            seeds: coverage(law, seeds, arguments.samples, arguments.resamples, arguments.seed) for seeds in SEEDS
        }
        for law in LAWS
    }
    text = table(found)
    print(text)
    if arguments.write:
        insert("docs/results/README.md", "coverage", text)
    if arguments.json:
        print(json.dumps(found))


def coverage(law: Law, seeds: int, samples: int, resamples: int, seed: int = 0) -> dict[str, float]:
    """Of each interval, the share of samples in which it contains the truth."""
    rng = np.random.default_rng(seed)
    scores = law.draw(rng, (samples, seeds))
    means, middles = np.empty((samples, 2)), np.empty((samples, 2))
    for n, values in enumerate(scores):
        drawn = rng.choice(values, (resamples, seeds))
        means[n] = np.quantile(drawn.mean(axis=1), TAILS)
        middles[n] = np.quantile(stats.trim_mean(drawn, 0.25, axis=1), TAILS)
    return {
        "bootstrap of the mean": covered((means[:, 0], means[:, 1]), law.mean),
        "Student's t": covered(student(scores), law.mean),
        "bootstrap of the IQM": covered((middles[:, 0], middles[:, 1]), law.interquartile_mean),
    }


def student(scores: Draws) -> Bounds:
    """Student's intervals for the means of many samples, scores of shape (samples, seeds)."""
    bounds = np.array([mean_interval(values)[1:] for values in scores])
    return bounds[:, 0], bounds[:, 1]


def covered(bounds: Bounds, truth: float) -> float:
    """The share of intervals that contain the truth."""
    low, high = bounds
    return float(np.mean((low <= truth) & (truth <= high)))


def table(found: dict[str, dict[int, dict[str, float]]]) -> str:
    """A row for each law and number of seeds; what pages use is bold."""
    rows = []
    for law, by_seeds in found.items():
        for seeds, shares in by_seeds.items():
            used = "Student's t" if seeds < MANY_SEEDS else "bootstrap of the IQM"
            cells = [f"**{share:.1%}**" if name == used else f"{share:.1%}" for name, share in shares.items()]
            rows.append([law, seeds, *cells])
    names = list(next(iter(found[LAWS[0].name].values())))
    return markdown_table(["scores", "seeds", *names], rows)


if __name__ == "__main__":
    main()

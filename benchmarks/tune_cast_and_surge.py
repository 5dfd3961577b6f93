"""Tune the parameters of the cast-and-surge baseline, on seeds that no evaluation reports.

    python benchmarks/tune_cast_and_surge.py [--draws 400] [--seed 0] [--json]

Random draws, then the best of them perturbed. The score is success plus a tenth of SPL, averaged over both presets:
reliability first, speed as the tie-break. Prints the parameters to put into `CastAndSurge`.
"""

import argparse
import dataclasses
import json
import math

import numpy as np

from gpf.navigation.evaluate import evaluate
from gpf.navigation.policies import CastAndSurge
from gpf.navigation.seeds import BLOCK, TUNING
from gpf.plume.scenario import Scenario

RANGES = {
    "whiff": (3.5e-3, 1.2e-2),
    "wind_smoothing": (0.005, 0.3),
    "surge": (3.0, 60.0),
    "lean": (0.0, 60.0),
    "first_sweep": (0.1, 2.0),
    "growth": (0.1, 2.0),
    "climb": (-30.0, 60.0),
    "descent": (0.0, 30.0),
    "search_sweep": (0.5, 6.0),
    "search_growth": (0.5, 6.0),
    "search_climb": (-45.0, 45.0),
}
LOGARITHMIC = ("whiff", "wind_smoothing", "surge", "first_sweep", "growth", "search_sweep", "search_growth")


def main() -> None:
    """Search, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=400, help="random draws; half as many perturbations follow")
    parser.add_argument("--json", action="store_true", help="end with one JSON object of parameters")
    parser.add_argument("--seed", type=int, default=0, help="seed of the search")
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)

    candidates = [CastAndSurge()] + [draw(rng) for _ in range(arguments.draws)]
    candidates = best(candidates, episodes=250, block=0, keep=40)
    candidates = best(candidates, episodes=1500, block=1, keep=8)
    for scale, block in ((0.15, 2), (0.05, 3)):
        near = [perturb(rng, base, scale) for base in candidates for _ in range(arguments.draws // 32)]
        candidates = best(best(candidates + near, 500, block, keep=24), episodes=3000, block=block + 8, keep=8)
    winner = best(candidates, episodes=20_000, block=20, keep=1)[0]
    print(f"score on fresh tuning episodes: {score(winner, 20_000, block=21):.4f}")
    for name, value in dataclasses.asdict(winner).items():
        print(f"    {name}: float = {value:.3g}")
    if arguments.json:
        print(json.dumps(dataclasses.asdict(winner)))


def draw(rng: np.random.Generator) -> CastAndSurge:
    """Parameters drawn from their ranges."""
    return CastAndSurge(**{name: from_unit(name, rng.random()) for name in RANGES})


def perturb(rng: np.random.Generator, base: CastAndSurge, scale: float) -> CastAndSurge:
    """Parameters near those of `base`: each moved by a normal step, in units of its range."""
    return CastAndSurge(
        **{
            name: from_unit(name, np.clip(to_unit(name, value) + scale * rng.standard_normal(), 0.0, 1.0))
            for name, value in dataclasses.asdict(base).items()
        }
    )


def from_unit(name: str, u: float) -> float:
    """The parameter at a place in [0, 1] of its range."""
    low, high = RANGES[name]
    return float(low * (high / low) ** u if name in LOGARITHMIC else low + (high - low) * u)


def to_unit(name: str, value: float) -> float:
    """The place in [0, 1] of a parameter in its range."""
    low, high = RANGES[name]
    return math.log(value / low) / math.log(high / low) if name in LOGARITHMIC else (value - low) / (high - low)


def score(policy: CastAndSurge, episodes: int, block: int) -> float:
    """Success plus a tenth of SPL, averaged over the presets."""
    results = [
        evaluate(policy, Scenario.preset(name), episodes, TUNING + block * BLOCK) for name in ("reference", "paper")
    ]
    return float(np.mean([result.success.mean() + 0.1 * result.spl for result in results]))


def best(candidates: list[CastAndSurge], episodes: int, block: int, keep: int) -> list[CastAndSurge]:
    """The candidates that score best on a block of tuning episodes, best first."""
    scores = [score(candidate, episodes, block) for candidate in candidates]
    order = np.argsort(scores)[::-1][:keep]
    print(f"{len(candidates):4d} candidates x {episodes} episodes: best {scores[order[0]]:.4f}", flush=True)
    return [candidates[i] for i in order]


if __name__ == "__main__":
    main()

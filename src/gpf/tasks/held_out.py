"""Held-out episodes of a navigator: how many are reported, and which."""

from gpf.navigation.agents import Navigator
from gpf.navigation.evaluate import Evaluation, evaluate
from gpf.navigation.seeds import BLOCK, HELD_OUT

EPISODES = 2000
"""Held-out episodes on which a trained navigator is reported."""
PATHS = 200
"""Successful, and failed, episodes whose trajectories its figure shows."""


def evaluate_held_out(navigator: Navigator, episodes: int, threads: int | None = None, paths: int = 0) -> Evaluation:
    """A navigator in episodes that nothing was chosen on: those of its own seed's block."""
    first_seed = HELD_OUT + navigator.config.seed * BLOCK
    return evaluate(navigator.policy, navigator.scenario, episodes, first_seed, threads=threads, paths=paths)

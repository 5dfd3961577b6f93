"""Seed ranges: no reported episode was used for training, validation or tuning."""

HELD_OUT = 1 << 48
"""First seed of the held-out episodes, which are only ever reported."""
VALIDATION = 1 << 50
"""First seed of the episodes on which checkpoints are chosen and networks grow, which are never reported."""
TUNING = 1 << 52
"""First seed of the episodes on which baselines are tuned, which are never reported."""
SUITE = 1 << 56
"""First seed of the held-out episodes of `gpf suite`, which are reported there only; each of its seeds has a block."""
BLOCK = 1 << 24
"""Number of seeds in a block of episodes."""
LANES_OF_A_SEED = 1 << 16
"""A run with seed s owns the seeds of the world from s times this on."""
PROBE_SEED = BLOCK - 1
"""The last seed that a run can have."""


def training_seeds(seed: int, lanes: int) -> list[int]:
    """The world's seeds of a training run's lanes; no two runs share one, and none is ever evaluated on."""
    return [seed * LANES_OF_A_SEED + lane for lane in range(lanes)]

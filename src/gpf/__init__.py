"""Networks that grow, prune and freeze themselves while they learn, and an odour-plume world for them to learn in."""

import gymnasium

__version__ = "0.1.0"

gymnasium.register(
    id="gpf/Plume-v0",
    entry_point="gpf.plume.env:PlumeEnv",
    vector_entry_point="gpf.plume.vector_env:PlumeVectorEnv",
)

"""Runs: folders that survive a kill, the one training loop, and executors that train many at once."""

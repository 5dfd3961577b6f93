"""Whole units: which can be pruned, and how dead ones are removed without a change of the function."""

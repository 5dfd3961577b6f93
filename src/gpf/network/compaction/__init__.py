"""Whole units: which can be pruned, and how to remove dead ones without changing the function."""

"""Agents that search for the source of a plume, and how well they do."""

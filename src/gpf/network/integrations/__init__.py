"""Callbacks for training frameworks; each file imports its framework, and nothing here is imported by `gpf.network`."""

"""Continual learning: GPF and other methods that keep networks plastic or prevent forgetting."""

from gpf.continual.decisions import Continued, Decision, FalseAlarm, NewPath, Recalled, TrialBegun
from gpf.continual.methods import ContinualBackprop, L2Init, OnlineEWC, ShrinkAndPerturb
from gpf.continual.recall import Recall, Settings
from gpf.continual.replay import Replay

__all__ = [
    "ContinualBackprop",
    "Continued",
    "Decision",
    "FalseAlarm",
    "L2Init",
    "NewPath",
    "OnlineEWC",
    "Recall",
    "Recalled",
    "Replay",
    "Settings",
    "ShrinkAndPerturb",
    "TrialBegun",
]  # fmt: skip

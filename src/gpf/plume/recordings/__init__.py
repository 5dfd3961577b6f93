"""Recorded plumes: concentration movies and filament logs, read from files into one form."""

from gpf.plume.recordings.loading import load_recording
from gpf.plume.recordings.recording import Recording
from gpf.plume.recordings.wind import estimate_wind

__all__ = ["Recording", "estimate_wind", "load_recording"]

"""Trained navigators for robots: as C99, as ONNX, or as a table of 392 actions."""

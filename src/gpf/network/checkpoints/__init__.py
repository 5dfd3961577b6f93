"""Checkpoints: the state of a network as named tensors and plain data, without pickle."""

"""Checkpoints: the state of a network as named tensors and plain data, written and read back without pickle."""

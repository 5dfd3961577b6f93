"""New blocks: how they are built and initialised, and how a model records their number."""

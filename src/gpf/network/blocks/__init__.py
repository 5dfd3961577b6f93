"""New blocks: how they are made, how they start, and what a model writes down about their number."""

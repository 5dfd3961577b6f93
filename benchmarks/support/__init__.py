"""Training scripts in which gpf is tried out, one per row of the support table in docs/network.md."""

"""Classical agents that search with a belief about where the source is, or by a rule that is tuned for a world."""

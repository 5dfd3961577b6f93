"""Learning that never ends: methods that keep networks plastic or keep them from forgetting, beside GPF."""

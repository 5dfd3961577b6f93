"""Callbacks for training frameworks. Each file imports its framework; `gpf.network` imports none of them."""

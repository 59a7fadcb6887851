"""The guard. It checks every text before a store writes it, and again before a model sees it."""

"""Embedders: they turn text into vectors. Without one, recall uses words only."""

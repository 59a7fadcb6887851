"""Agent frameworks from PyPI, each in an environment of its own below .frameworks/, and the tests that run there."""

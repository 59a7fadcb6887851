"""Figures of one run: ours beside the limit that the same machine sets at the same moment."""

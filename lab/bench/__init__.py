"""Figures of one run: ours compared with the limit that the same machine sets at the same moment."""

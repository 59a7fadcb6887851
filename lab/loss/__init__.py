"""Crashes, power cuts and errors of the disk at every kind of moment, and what the stores hold afterwards."""

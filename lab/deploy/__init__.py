"""Checks the files of deploy/ without containers: linters, and the steps that these files name."""

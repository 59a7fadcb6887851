"""Kills processes that write and counts what was lost: `python -m lab.crash --rounds 200 --seed 1`."""

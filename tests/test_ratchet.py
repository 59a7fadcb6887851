"""Counts that only fall: `tools/ratchet.py` counts, `ratchet.json` has the highest that are allowed."""

import json

from ratchet import STORED, count_all, exceeded, lowered


def test_nothing_grows():
    """If this fails, give back what the change added, or merge what says the same. Counts are never raised."""
    assert list(exceeded(json.loads(STORED.read_text(encoding="utf-8")), count_all())) == []


def test_counts_are_lowered_and_never_raised():
    stored = {"lines": {"recall": 10, "gone": 3}}
    counted = {"lines": {"recall": 12, "sources": 7}}
    assert list(exceeded(stored, counted)) == ["lines, recall: 12 instead of at most 10"]
    assert lowered(stored, counted) == {"lines": {"recall": 10, "sources": 7}}
    assert lowered({"lines": {"recall": 10}}, {"lines": {"recall": 9}}) == {"lines": {"recall": 9}}

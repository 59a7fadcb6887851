"""Turns, reviews, edits, undo, forgetting and consolidation at once, in several processes on one store, by chance."""

"""Turns recorded conversations into knowledge: reviews by rules or a model, and consolidation."""

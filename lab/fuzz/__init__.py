"""Hostile input for every parser and renderer."""

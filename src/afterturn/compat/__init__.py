"""Interfaces of other memory libraries, over afterturn: change one import and keep your code."""

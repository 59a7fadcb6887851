"""Scanners: what they find in a text, by name. They know neither stores nor origins; `guard/` decides what follows."""

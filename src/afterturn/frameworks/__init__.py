"""Adapters for agent frameworks, one module each, over one shared core. Importing one needs the extra of its name."""

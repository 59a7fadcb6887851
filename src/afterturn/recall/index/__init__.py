"""The in-memory index of a space, and the cache of those indexes."""

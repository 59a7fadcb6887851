"""The only way into a store: what is not admitted here is not written."""

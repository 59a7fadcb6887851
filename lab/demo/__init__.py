"""The demo: conversations on several days, each in its own process, with one store."""

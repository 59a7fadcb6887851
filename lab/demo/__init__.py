"""The demonstration: conversations of several days, each in a process of its own, over one memory."""

"""The demonstration: three conversations on three days, each in a process of its own, over one memory."""

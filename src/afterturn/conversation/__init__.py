"""One conversation: its turns, what is recalled for them, delivered to the host, and recorded."""

"""Models: chat messages in, one assistant message out. `runtime` chooses one; fast recall needs none."""

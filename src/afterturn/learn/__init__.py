"""What becomes of a finished turn: it is recorded, durably, once."""

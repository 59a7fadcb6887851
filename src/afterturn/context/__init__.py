"""What the model sees: the blocks of memory, and how they are found again in a conversation."""

"""A turn from the user's message to the final answer: what is recalled, handed over and recorded, and when."""

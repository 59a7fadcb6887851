"""`afterturn eval`: what recall finds and what it hands over, on conversations with questions about them."""

"""`afterturn eval`: measures what recall finds and delivers, on conversations with questions about them."""

"""Past conversations of other programs, one module per format."""

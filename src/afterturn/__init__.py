"""afterturn: the memory an agent's host manages."""

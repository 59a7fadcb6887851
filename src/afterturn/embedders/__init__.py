"""Embedders: text in, vectors out. `runtime` chooses one; recall goes on by words without any."""

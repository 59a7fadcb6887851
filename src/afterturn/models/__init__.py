"""Chat models behind HTTP, the HTTP client that they share with embedders, and the token meter."""

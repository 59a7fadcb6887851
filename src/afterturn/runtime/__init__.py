"""Threads, the private event loop, background tasks and jobs."""

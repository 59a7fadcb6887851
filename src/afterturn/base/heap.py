"""Memory that is free but still the process's: what large work leaves behind in the C library's heap."""

import ctypes


def give_back() -> None:
    """Returns it to the system where the C library can do that; elsewhere nothing happens. Takes some milliseconds,
    without Python's lock."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return
    trim(0)

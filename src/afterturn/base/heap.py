"""Memory that is free but still the process's: what large work leaves behind in the C library's heap."""


def give_back() -> None:
    """Returns it to the system where the C library can do that; elsewhere nothing happens. Takes some milliseconds,
    without Python's lock."""
    import ctypes

    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError, TypeError):
        return
    trim(0)

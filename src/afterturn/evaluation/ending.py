"""A run that is told to end takes away what it made: some of that is gigabytes in a temporary folder."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def unwinding() -> Iterator[None]:
    """SIGTERM ends what is done here as Ctrl-C does. What is told to end is not interrupted again while it takes things
    away."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_ending = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal is_ending
        if not is_ending:
            is_ending = True
            raise KeyboardInterrupt

    earlier = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)

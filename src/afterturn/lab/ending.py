"""A run that is told to end takes away what it made: some of that is gigabytes in a temporary folder."""

import signal
import threading


def unwind_when_terminated() -> None:
    """SIGTERM ends this process as Ctrl-C does. For programs that have no better way to end."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)

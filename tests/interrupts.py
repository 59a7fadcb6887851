"""Undoes an ignored SIGINT, for the tests and for the processes that they start."""

import signal


def restore_interrupts() -> None:
    """Gives this process Python's SIGINT handler, if it was started with SIGINT ignored.

    A shell's background jobs and some CI runners start pytest in that way, and a program inherits it.
    A handler is not inherited: the kernel resets it to the default when a child starts its own program.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

"""Loads modules away from the thread that will need them."""

import importlib
import os
import threading

# A child that is forked in the middle of an import would wait for that module for ever, so a fork waits for its end.
_loading = threading.Lock()


def load(module: str) -> None:
    """For a thread of memory's own."""
    with _loading:
        importlib.import_module(module)


os.register_at_fork(before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release)

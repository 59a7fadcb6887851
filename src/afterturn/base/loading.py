"""Loads modules when they are needed, on threads of memory's own, in a way that forks survive."""

import importlib
import os
import threading

# A child that is forked in the middle of an import would wait for that module for ever, so a fork waits for its end.
_loading = threading.RLock()
_loaded: set[str] = set()


def load(module: str) -> None:
    """To be called before an import in a function that a thread of memory's own runs."""
    if module in _loaded:
        return
    with _loading:
        importlib.import_module(module)
        _loaded.add(module)


os.register_at_fork(before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release)

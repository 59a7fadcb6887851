"""Loads modules when they are needed, on threads of memory's own, in a way that forks survive."""

import importlib
import os
import sys
import threading

# A child that is forked in the middle of an import would wait for that module for ever, so a fork waits for its end.
_loading = threading.RLock()
_loaded: set[str] = set()
# One for each fork that is under way, or waits for `_loading`.
_forks: list[None] = []
# What `logging` itself imports.
_BENEATH_LOGGING = ("re", "string", "traceback", "warnings", "weakref")
_LOOKS_MAX = 1000
_LOOK_AFTER = 0.001


def load(module: str) -> None:
    """To be called before an import in a function that a thread of memory's own runs. `load_logging` comes first where
    what is imported may have a logger."""
    if module in _loaded:
        return
    with _loading:
        importlib.import_module(module)
        _loaded.add(module)


def load_logging() -> None:
    """`logging` has a lock of its own that a fork takes, and what is registered last is called first at a fork. A fork
    that held it and waited for `load`, where a module asks for its logger, would wait for ever."""
    if "logging" in _loaded:
        return
    if "logging" not in sys.modules:
        for module in _BENEATH_LOGGING:
            load(module)
        _let_forks_pass()
    # No fork waits for this, a millisecond: it would give back a lock that was not there when it took all others.
    importlib.import_module("logging")
    with _loading:
        if "logging" not in _loaded:
            _register()
            _loaded.add("logging")


def _let_forks_pass() -> None:
    pause = threading.Event()
    for _ in range(_LOOKS_MAX):
        if not _forks:
            return
        pause.wait(_LOOK_AFTER)


def _hold() -> None:
    _forks.append(None)
    _loading.acquire()


def _release() -> None:
    _loading.release()
    _forks.pop()


def _release_in_child() -> None:
    _loading.release()
    _forks.clear()


def _register() -> None:
    os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_release_in_child)


_register()

"""Loads modules when they are needed, on threads of memory's own, in a way that forks survive."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    # What is called before, then after in the parent, and after in the child.
    _Rest: TypeAlias = tuple[Callable[[], object], Callable[[], object], Callable[[], object]]

R = TypeVar("R")


# No named tuples: making one takes longer than all else here, and every first answer would wait for it.
class _Fork:
    """What it holds up. It may be interrupted before that is all."""

    def __init__(self) -> None:
        self.resting: list[_Rest] = []
        self.locks: list[threading.RLock] = []


# A child that is forked in the middle of an import would wait for that module for ever, so a fork waits for its end.
_loading = threading.RLock()
_packages = threading.RLock()
_loaded: set[str] = set()
# By thread: those that go on just now, or wait until they can.
_forking: dict[int, _Fork] = {}
_resting: list[_Rest] = []
# What `logging` itself imports.
_BENEATH_LOGGING = ("re", "string", "traceback", "warnings", "weakref")
_LOOKS_MAX = 1000
_LOOK_AFTER = 0.001


def load(module: str) -> None:
    """To be called before an import in a function that a thread of memory's own runs. `load_logging` comes first where
    what is imported may have a logger."""
    if module not in _loaded:
        _load(module, _loading)


def load_package(name: str) -> None:
    """The same for a package that is not ours and takes long, as numpy does. `load` does not wait for it."""
    if name not in _loaded:
        _load(name, _packages)


def unforked(work: Callable[[], R]) -> R:
    """What a package does when it is first used may be as bad a moment for a fork as its import."""
    with _packages:
        return work()


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


def register_at_fork(
    *, before: Callable[[], object], after_in_parent: Callable[[], object], after_in_child: Callable[[], object]
) -> None:
    """As in `os`, for what a fork waits for that may itself wait for `load` or for a logger: it is waited for first."""
    _resting.append((before, after_in_parent, after_in_child))


def _load(module: str, lock: threading.RLock) -> None:
    with lock:
        importlib.import_module(module)
        _loaded.add(module)


def _let_forks_pass() -> None:
    pause = threading.Event()
    for _ in range(_LOOKS_MAX):
        if not _forking:
            return
        pause.wait(_LOOK_AFTER)


def _hold() -> None:
    # Registered twice, and one of the two perhaps while this fork was under way already.
    if threading.get_ident() in _forking:
        return
    fork = _forking[threading.get_ident()] = _Fork()
    for rest in reversed(_resting):
        rest[0]()
        fork.resting.append(rest)
    for lock in (_packages, _loading):
        lock.acquire()
        fork.locks.append(lock)


def _release() -> None:
    for _, in_parent, _ in _let_go():
        in_parent()


def _release_in_child() -> None:
    resting = _let_go()
    _forking.clear()
    for *_, in_child in resting:
        in_child()


def _let_go() -> list[_Rest]:
    fork = _forking.pop(threading.get_ident(), None)
    if fork is None:
        return []
    for lock in fork.locks:
        lock.release()
    return fork.resting


def _register() -> None:
    os.register_at_fork(before=_hold, after_in_parent=_release, after_in_child=_release_in_child)


_register()

"""Lets no process fork in the middle of a transaction.

SQLite keeps track of a process's own locks in its memory. A forked child inherits that too: whatever the parent held
at that moment would stay locked for the child's own connections to the same file, for ever.
"""

import os
import weakref
from typing import Protocol

# Longer than a transaction takes; a fork that has to wait for more than this happens all the same.
_WITHIN = 2.0


class Pausable(Protocol):
    def pause(self, *, within: float) -> bool:
        """Waits until nothing is under way, and lets nothing begin. False when that took too long."""

    def resume(self) -> None: ...


_watched: "weakref.WeakSet[Pausable]" = weakref.WeakSet()
_paused: list[Pausable] = []


def watch(item: Pausable) -> None:
    _watched.add(item)


def _pause() -> None:
    _paused.extend(item for item in list(_watched) if item.pause(within=_WITHIN))


def _resume() -> None:
    while _paused:
        _paused.pop().resume()


def _leave() -> None:
    # The parent's; a child does not touch them.
    _paused.clear()
    _watched.clear()


os.register_at_fork(before=_pause, after_in_parent=_resume, after_in_child=_leave)

"""Context files on their way into a conversation: what was touched, and what came of it. For any thread."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence

from afterturn.context.cutting import size
from afterturn.context.files import ContextFile, Places, read_touched
from afterturn.context.standing import StandingBlock, render_arrived
from afterturn.context.trusted import Refusal, Skipped

TOUCHED_MAX = 10_000
_AT_ONCE = 500


class Arrivals:
    """Paths go in, one block's text comes out. `bytes_max` is the room for all files until `join` frees it.

    With `scanning`, secrets in them are left out.
    """

    def __init__(self, bytes_max: int, *, scanning: bool = True) -> None:
        self._bytes_max = bytes_max
        self._scanning = scanning
        self._lock = threading.Lock()
        self._touched: dict[str, None] = {}
        self._is_reading = False
        # Everything that came, by real path with its size; then what of it still waits to be taken.
        self._came: dict[str, int] = {}
        self._files: tuple[ContextFile, ...] = ()
        self._block = StandingBlock()
        # Counts what is taken or joins, so that a block in the making notices it.
        self._changes = 0

    def touch(self, path: str) -> bool:
        """True when somebody has to start reading. Beyond TOUCHED_MAX waiting paths nothing is noted."""
        with self._lock:
            if len(self._touched) < TOUCHED_MAX:
                self._touched[path] = None
            started, self._is_reading = self._is_reading, True
            return not started

    def next_touched(self) -> list[str]:
        """The next paths to look at. Empty: nobody reads any more, and the next `touch` starts it."""
        with self._lock:
            batch = list(self._touched)[:_AT_ONCE]
            for path in batch:
                del self._touched[path]
            self._is_reading = bool(batch)
            return batch

    def stop(self) -> None:
        """Reading was given up; what waits is looked at after the next `touch`."""
        with self._lock:
            self._is_reading = False

    def look(self, places: Places, touched: Sequence[str], loaded: Iterable[str]) -> tuple[Skipped, ...]:
        """Reads what was touched, but for what is `loaded`, and adds it to what waits. Blocks: for a worker."""
        found = read_touched(places, touched, {*loaded, *self.came()})
        fitting, refused = self._that_fit(found.files)
        shown = self._add(fitting) if fitting else frozenset()
        refused += [file for file in fitting if file.path not in shown]
        return (*found.skipped, *(Skipped(file.path, Refusal.NO_ROOM) for file in refused))

    def take(self) -> str | None:
        """What waits, to the first who asks."""
        with self._lock:
            text = self._block.text
            # Asking in vain changes nothing: a host that asks all the time must not keep a block from being made.
            self._changes += bool(self._files)
            self._files, self._block = (), StandingBlock()
        return text or None

    def came(self) -> tuple[str, ...]:
        """Real paths of what came by touch and has not joined the standing block, taken or not."""
        with self._lock:
            return tuple(self._came)

    def join(self, paths: Collection[str]) -> None:
        """These stand in the system prompt now, and need not arrive any more. Renders the rest: for a worker."""
        with self._lock:
            for path in paths:
                self._came.pop(path, None)
            self._files = tuple(file for file in self._files if file.path not in paths)
            self._changes += 1
        self._add(())

    def _that_fit(self, files: Iterable[ContextFile]) -> tuple[list[ContextFile], list[ContextFile]]:
        with self._lock:
            room = self._bytes_max - sum(self._came.values())
        fitting: list[ContextFile] = []
        refused: list[ContextFile] = []
        for file in files:
            fits = size(file.text) <= room
            (fitting if fits else refused).append(file)
            room -= size(file.text) if fits else 0
        return fitting, refused

    def _add(self, files: Sequence[ContextFile]) -> frozenset[str]:
        """The paths of all that waits now."""
        while True:
            with self._lock:
                changes, waiting = self._changes, (*self._files, *files)
            block = render_arrived(waiting, self._bytes_max, scanning=self._scanning)
            shown = frozenset(block.paths)
            with self._lock:
                if changes == self._changes:
                    self._files = tuple(file for file in waiting if file.path in shown)
                    self._block = block
                    self._came.update((file.path, size(file.text)) for file in files if file.path in shown)
                    return shown

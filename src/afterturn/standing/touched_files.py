"""Context files that are added because the agent touched a path near them. Thread-safe."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence

from afterturn.scanners.detection import Scanning
from afterturn.standing.block import StandingBlock, render_arrived
from afterturn.standing.context_files import ContextFile, ContextFolders, Refusal, Skipped, read_touched
from afterturn.text import size

TOUCHED_MAX = 10_000
_AT_ONCE = 500


class TouchedFiles:
    """Collects touched paths, and renders the context files near them as one block.

    `bytes_max` limits all files that are not yet part of the standing block (`join`). With `scanning`, secrets in them
    are redacted.
    """

    def __init__(self, bytes_max: int, *, scanning: Scanning = True) -> None:
        self._bytes_max = bytes_max
        self._scanning = scanning
        self._lock = threading.Lock()
        self._touched: dict[str, None] = {}
        self._is_reading = False
        # The sizes of all files that were found, by real path; then those that wait to be taken, and their block.
        self._arrived: dict[str, int] = {}
        self._files: tuple[ContextFile, ...] = ()
        self._block = StandingBlock()
        # Counts calls of `take` and `join`, so that `_add` notices one while it renders.
        self._changes = 0

    def touch(self, path: str) -> bool:
        """Returns True if the caller must start reading. Ignores the path if TOUCHED_MAX paths wait already."""
        with self._lock:
            if len(self._touched) < TOUCHED_MAX:
                self._touched[path] = None
            started, self._is_reading = self._is_reading, True
            return not started

    def next_touched(self) -> list[str]:
        """The next paths to read. If there are none, reading ends until the next `touch`."""
        with self._lock:
            batch = list(self._touched)[:_AT_ONCE]
            for path in batch:
                del self._touched[path]
            self._is_reading = bool(batch)
            return batch

    def stop(self) -> None:
        """Reading failed. Waiting paths are read after the next `touch`."""
        with self._lock:
            self._is_reading = False

    def look(self, folders: ContextFolders, touched: Sequence[str], loaded: Iterable[str]) -> tuple[Skipped, ...]:
        """Reads the context files near touched paths, except those `loaded` already. Blocks: call it on a worker."""
        found = read_touched(folders, touched, {*loaded, *self.paths()})
        fitting, refused = self._split_by_room(found.files)
        shown = self._add(fitting) if fitting else frozenset()
        refused += [file for file in fitting if file.path not in shown]
        return (*found.skipped, *(Skipped(file.path, Refusal.NO_ROOM) for file in refused))

    @property
    def has_block(self) -> bool:
        with self._lock:
            return bool(self._block.text)

    def take(self) -> str | None:
        """The block of the files that wait, for the first caller."""
        with self._lock:
            text = self._block.text
            # Counts only if there was something, so that a host that asks all the time does not delay `_add`.
            self._changes += bool(self._files)
            self._files, self._block = (), StandingBlock()
        return text or None

    def paths(self) -> tuple[str, ...]:
        """The real paths of all files that were found and are not yet part of the standing block."""
        with self._lock:
            return tuple(self._arrived)

    def join(self, paths: Collection[str]) -> None:
        """These files are part of the standing block now. Renders the others again: call it on a worker."""
        with self._lock:
            for path in paths:
                self._arrived.pop(path, None)
            self._files = tuple(file for file in self._files if file.path not in paths)
            self._changes += 1
        self._add(())

    def _split_by_room(self, files: Iterable[ContextFile]) -> tuple[list[ContextFile], list[ContextFile]]:
        with self._lock:
            room = self._bytes_max - sum(self._arrived.values())
        fitting: list[ContextFile] = []
        refused: list[ContextFile] = []
        for file in files:
            fits = size(file.text) <= room
            (fitting if fits else refused).append(file)
            room -= size(file.text) if fits else 0
        return fitting, refused

    def _add(self, files: Sequence[ContextFile]) -> frozenset[str]:
        """Returns the paths of all files that wait now."""
        while True:
            with self._lock:
                changes, waiting = self._changes, (*self._files, *files)
            block = render_arrived(waiting, self._bytes_max, scanning=self._scanning)
            shown = frozenset(block.paths)
            with self._lock:
                if changes == self._changes:
                    self._files = tuple(file for file in waiting if file.path in shown)
                    self._block = block
                    self._arrived.update((file.path, size(file.text)) for file in files if file.path in shown)
                    return shown

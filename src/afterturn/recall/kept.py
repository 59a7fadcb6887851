"""Entries that answers were made of, kept beside a shelf: most of what is asked for next was asked for before."""

import sys
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from afterturn.base.types import Entry

KEPT_BYTES_LEAST = 65_536
"""Some entries of a small space may take more than its shelf."""
# Measured: an entry with the strings that every one has, its place in the dictionary included.
_ENTRY_BYTES = 1200
# What is larger than such a share of the room would drive out too much that is asked for more often.
_SHARE = 16


class Kept:
    """By key, as they were last read; those unused for longest go first. Whoever shares it holds a lock."""

    def __init__(self) -> None:
        self._entries: OrderedDict[int, tuple[Entry, int]] = OrderedDict()
        self.size_bytes = 0

    def find(self, keys: Iterable[int]) -> dict[int, Entry]:
        found: dict[int, Entry] = {}
        for key in keys:
            kept = self._entries.get(key)
            if kept is not None:
                found[key] = kept[0]
                self._entries.move_to_end(key)
        return found

    def put(self, entries: Mapping[int, Entry], *, bytes_max: int) -> None:
        self.drop(entries)
        for key, entry in entries.items():
            size_bytes = _size(entry)
            if size_bytes <= bytes_max // _SHARE:
                self._entries[key] = entry, size_bytes
                self.size_bytes += size_bytes
        while self.size_bytes > bytes_max:
            self.size_bytes -= self._entries.popitem(last=False)[1][1]

    def drop(self, keys: Iterable[int]) -> None:
        for key in keys:
            kept = self._entries.pop(key, None)
            if kept is not None:
                self.size_bytes -= kept[1]

    def clear(self) -> None:
        self._entries.clear()
        self.size_bytes = 0


def _size(entry: Entry) -> int:
    told = (*entry.metadata, *entry.metadata.values(), *entry.sources)
    return _ENTRY_BYTES + sys.getsizeof(entry.text) + sum(map(sys.getsizeof, told))

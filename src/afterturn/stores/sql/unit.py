"""One transaction's repositories over one session."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from afterturn.base.loading import load
from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.session import Session
from afterturn.stores.sql.text import TextIndex

if TYPE_CHECKING:
    from afterturn.stores.sql.conversations import SqlConversations
    from afterturn.stores.sql.index import SqlIndex
    from afterturn.stores.sql.jobs import SqlJobs
    from afterturn.stores.sql.memories import SqlMemories
    from afterturn.stores.sql.operations import SqlOperations
    from afterturn.stores.sql.recalls import SqlRecalls
    from afterturn.stores.sql.records import SqlRecords
    from afterturn.stores.sql.reviews import SqlReviews
    from afterturn.stores.sql.timeline import SqlTimeline
    from afterturn.stores.sql.usage import SqlUsage


def load_repositories() -> None:
    """All that a turn asks for, before there is one: its first recall has no time to load anything."""
    for name in _OF_TURNS:
        load(f"afterturn.stores.sql.{name}")


_OF_TURNS = ("conversations", "index", "jobs", "memories", "operations", "recalls", "records", "timeline")


class SqlUnit:
    """`base.ports.Unit` in SQL. The engine calls `flush` once the work is done, before the changes stand.

    A repository is made, and loaded, when the work first asks for it: most need one or two.
    """

    def __init__(self, session: Session, text: TextIndex) -> None:
        self._entries = Entries(session, text)
        self.check = session.check

    @cached_property
    def memories(self) -> SqlMemories:
        load("afterturn.stores.sql.memories")
        from afterturn.stores.sql.memories import SqlMemories

        return SqlMemories(self._entries)

    @cached_property
    def records(self) -> SqlRecords:
        load("afterturn.stores.sql.records")
        from afterturn.stores.sql.records import SqlRecords

        return SqlRecords(self._entries)

    @cached_property
    def operations(self) -> SqlOperations:
        load("afterturn.stores.sql.operations")
        from afterturn.stores.sql.operations import SqlOperations

        return SqlOperations(self._entries)

    @cached_property
    def index(self) -> SqlIndex:
        load("afterturn.stores.sql.index")
        from afterturn.stores.sql.index import SqlIndex

        return SqlIndex(self._entries)

    @cached_property
    def jobs(self) -> SqlJobs:
        load("afterturn.stores.sql.jobs")
        from afterturn.stores.sql.jobs import SqlJobs

        return SqlJobs(self._entries)

    @cached_property
    def conversations(self) -> SqlConversations:
        load("afterturn.stores.sql.conversations")
        from afterturn.stores.sql.conversations import SqlConversations

        return SqlConversations(self._entries)

    @cached_property
    def recalls(self) -> SqlRecalls:
        load("afterturn.stores.sql.recalls")
        from afterturn.stores.sql.recalls import SqlRecalls

        return SqlRecalls(self._entries)

    @cached_property
    def timeline(self) -> SqlTimeline:
        load("afterturn.stores.sql.timeline")
        from afterturn.stores.sql.timeline import SqlTimeline

        return SqlTimeline(self._entries)

    @cached_property
    def reviews(self) -> SqlReviews:
        load("afterturn.stores.sql.reviews")
        from afterturn.stores.sql.reviews import SqlReviews

        return SqlReviews(self._entries)

    @cached_property
    def usage(self) -> SqlUsage:
        load("afterturn.stores.sql.usage")
        from afterturn.stores.sql.usage import SqlUsage

        return SqlUsage(self._entries)

    def flush(self) -> None:
        self._entries.settle()

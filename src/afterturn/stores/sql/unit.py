"""One transaction's repositories over one session."""

from __future__ import annotations

from functools import cached_property

from afterturn.stores.sql.conversations import SqlConversations, SqlRecalls
from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.index import SqlIndex
from afterturn.stores.sql.jobs import SqlJobs
from afterturn.stores.sql.memories import SqlMemories
from afterturn.stores.sql.operations import SqlOperations
from afterturn.stores.sql.records import SqlRecords
from afterturn.stores.sql.reviews import SqlReviews, SqlUsage
from afterturn.stores.sql.session import Session, TextIndex
from afterturn.stores.sql.timeline import SqlTimeline


class SqlUnit:
    """The `Unit` port in SQL. The engine calls `flush` after the work, before the commit.

    A repository is created when it is first used: most units need one or two.
    """

    def __init__(self, session: Session, text: TextIndex) -> None:
        self.session = session
        self.text = text
        self._entries = Entries(session, text)
        self.check = session.check

    @cached_property
    def memories(self) -> SqlMemories:
        return SqlMemories(self._entries)

    @cached_property
    def records(self) -> SqlRecords:
        return SqlRecords(self._entries)

    @cached_property
    def operations(self) -> SqlOperations:
        return SqlOperations(self._entries)

    @cached_property
    def index(self) -> SqlIndex:
        return SqlIndex(self._entries)

    @cached_property
    def jobs(self) -> SqlJobs:
        return SqlJobs(self._entries)

    @cached_property
    def conversations(self) -> SqlConversations:
        return SqlConversations(self._entries)

    @cached_property
    def recalls(self) -> SqlRecalls:
        return SqlRecalls(self._entries)

    @cached_property
    def timeline(self) -> SqlTimeline:
        return SqlTimeline(self._entries)

    @cached_property
    def reviews(self) -> SqlReviews:
        return SqlReviews(self._entries)

    @cached_property
    def usage(self) -> SqlUsage:
        return SqlUsage(self._entries)

    def flush(self) -> None:
        self._entries.flush()

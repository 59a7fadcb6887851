"""One transaction's repositories over one session."""

from afterturn.stores.sql.conversations import SqlConversations
from afterturn.stores.sql.entries import Entries
from afterturn.stores.sql.index import SqlIndex
from afterturn.stores.sql.jobs import SqlJobs
from afterturn.stores.sql.memories import SqlMemories
from afterturn.stores.sql.operations import SqlOperations
from afterturn.stores.sql.recalls import SqlRecalls
from afterturn.stores.sql.records import SqlRecords
from afterturn.stores.sql.reviews import SqlReviews
from afterturn.stores.sql.session import Session
from afterturn.stores.sql.text import TextIndex
from afterturn.stores.sql.timeline import SqlTimeline
from afterturn.stores.sql.usage import SqlUsage


class SqlUnit:
    """`base.ports.Unit` in SQL. The engine calls `flush` once the work is done, before the changes stand."""

    def __init__(self, session: Session, text: TextIndex) -> None:
        self._entries = entries = Entries(session, text)
        self.check = session.check
        self.memories = SqlMemories(entries)
        self.records = SqlRecords(entries)
        self.operations = SqlOperations(entries)
        self.index = SqlIndex(entries)
        self.jobs = SqlJobs(entries)
        self.conversations = SqlConversations(entries)
        self.recalls = SqlRecalls(entries)
        self.timeline = SqlTimeline(entries)
        self.reviews = SqlReviews(entries)
        self.usage = SqlUsage(entries)

    def flush(self) -> None:
        self._entries.settle()

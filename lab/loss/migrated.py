"""A store and a later schema for it, made up for migrations that are killed: the first release has none of its own."""

from pathlib import Path

from afterturn.config import Config
from afterturn.ports import Unit
from afterturn.runtime.clock import SystemClock
from afterturn.stores.sqlite.connection import StoreLocation
from afterturn.stores.sqlite.engine import open_engine, open_place
from afterturn.stores.sqlite.schema import SCHEMA
from afterturn.testing.entries import admit, operation
from afterturn.types import BlockRow, ConversationKey, TurnRow, TurnStatus

ROWS = 50
SPACE = "user:old"
_MIGRATIONS = (
    "ALTER TABLE entry ADD COLUMN length INTEGER NOT NULL DEFAULT 0; UPDATE entry SET length = length(text); "
    "CREATE INDEX entry_length ON entry (space_key, length)",
    "CREATE TABLE copied (key INTEGER PRIMARY KEY, text TEXT NOT NULL); "
    "INSERT INTO copied SELECT key, text FROM entry WHERE length > 0; DROP INDEX entry_length",
)


def write_store(path: Path) -> None:
    """Writes `ROWS` statements, each by an operation, and a conversation that shows all of them."""
    engine = open_engine(path, Config(), SystemClock())
    engine.write_now(_fill)
    engine.close()


def migrate(path: Path) -> None:
    """Opens the store as a later version would. Raises a StoreError."""
    schema = SCHEMA._replace(migrations=(*SCHEMA.migrations, *_MIGRATIONS))
    open_place(StoreLocation(path, Config(), SystemClock(), schema)).close()


def _fill(unit: Unit) -> None:
    refs = tuple(f"old{number}" for number in range(1, ROWS + 1))
    for ref in refs:
        unit.memories.add(operation(space=SPACE), admit(f"{ref} green tea", id=ref))
    key = ConversationKey("default", SPACE, "c")
    unit.conversations.start_turn(key, TurnRow("old-turn", TurnStatus.OPEN, 1.0, "hash"))
    unit.conversations.add_block(key, BlockRow("hash", "old-turn", refs, 9, 1.0))

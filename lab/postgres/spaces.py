"""Fills stores with a few statements, for benchmarks: very many copies of a space, or one very large space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeAlias

import psycopg
from psycopg import sql

from afterturn.embedders.sentence_encoder import SentenceEncoder
from afterturn.stores.postgres.session import HashedTerms, PostgresSession, Transaction
from afterturn.text import content_hash, terms

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
# More than the template has rows in any table, and more keys than a benchmark uses besides the copies.
_STRIDE = 100
_FIRST_KEY = 1_000_000
_BATCH_SPACES = 500
_OWN_KEYS = {"space": "key", "entry": "key", "operation": "seq"}


class _NeverHalted:
    halted = False


def clone_space(connection: Connection, schema: str, template: str, count: int, *, first: int = 1) -> None:
    """Copies the space `template` to `template-<first>` and the following, with entries, history, terms and vectors.

    The template has no conversations. Its rows keep their distances, so that copies refer to each other as they do.
    """
    connection.execute(sql.SQL("SET search_path TO {}, public").format(sql.Identifier(schema)))
    connection.execute("SELECT set_config('afterturn.tenant', '*', false)")
    row = connection.execute("SELECT key, tenant FROM space WHERE name = %s", (template,)).fetchone()
    assert row is not None
    space_key, tenant = row
    tables = _tables(connection, schema)
    terms = _terms(connection, space_key)
    last = first + count - 1
    for begin in range(first, last + 1, _BATCH_SPACES):
        numbers = range(begin, min(begin + _BATCH_SPACES, last + 1))
        with connection.transaction():
            connection.execute("SELECT set_config('afterturn.tenant', %s, true)", (tenant,))
            for table, columns in tables.items():
                if table != "entry_terms":
                    _copy_rows(connection, table, columns, space_key, numbers)
            transaction = Transaction(connection)
            text = HashedTerms(PostgresSession(transaction, "benchmark", _NeverHalted()))
            for number in numbers:
                for entry_key, found in terms:
                    moved = _FIRST_KEY + number * _STRIDE
                    text.put(entry_key + moved, space_key + moved, found)
            text.flush()
            transaction.flush()


def fill_space(connection: Connection, name: str, texts: Sequence[str]) -> None:
    """Stores a space of statements with terms and vectors, but without history, in the schema of `search_path`.

    The texts are distinct, and the store has the built-in embedder already.
    """
    embedder = SentenceEncoder()
    embedder.load_gradually()
    analysed = [terms(text) for text in texts]
    frequencies = Counter(term for found in analysed for term in frozenset(found))
    count = len(texts)
    with connection.transaction(), connection.cursor() as cursor:
        row = cursor.execute(
            "INSERT INTO space (tenant, name, seq, documents, terms_total, embedder_key, changed_at) "
            "SELECT 'default', %s, %s, %s, %s, min(key), 1 FROM embedder RETURNING key, embedder_key, "
            "(SELECT coalesce(max(key), 0) + 1 FROM entry)",
            (name, count, count, sum(map(len, analysed))),
        ).fetchone()
        assert row is not None
        space_key, embedder_key, first = row
        keys = range(first, first + count)
        same = ("default", 1, space_key, "statement", "active", "user", "user", 100, 1.0, 1.0, 0, "{}", "", 0)
        columns = (
            "tenant, version, space_key, kind, status, target, origin, trust, occurred_at, recorded_at, pinned, "
            "metadata, reason, has_sources, key, id, text, content_hash"
        )
        with cursor.copy(f"COPY entry ({columns}) FROM STDIN".encode()) as copy:
            for key, text in zip(keys, texts, strict=True):
                copy.write_row((*same, key, f"large{key}", text, content_hash(text)))
        with cursor.copy("COPY embedding (embedder_key, space_key, entry_key, data) FROM STDIN") as copy:
            for start in range(0, count, 1000):
                for key, vector in zip(keys[start:], embedder.embed(texts[start : start + 1000]), strict=False):
                    copy.write_row((embedder_key, space_key, key, vector.astype("<f2").tobytes()))
        with cursor.copy("COPY frequency (space_key, term, documents) FROM STDIN") as copy:
            for term, documents in frequencies.items():
                copy.write_row((space_key, term, documents))
        with cursor.copy("COPY change (space_key, seq, entry_key) FROM STDIN") as copy:
            for seq, key in enumerate(keys, 1):
                copy.write_row((space_key, seq, key))
        cursor.execute("SELECT setval(pg_get_serial_sequence('entry', 'key'), %s)", (keys[-1],))
        transaction = Transaction(connection)
        text_index = HashedTerms(PostgresSession(transaction, "benchmark", _NeverHalted()))
        for key, found in zip(keys, analysed, strict=True):
            text_index.put(key, space_key, found)
        text_index.flush()
        transaction.flush()


def _tables(connection: Connection, schema: str) -> dict[str, list[str]]:
    """The tables that belong to a space or an entry, with their columns."""
    rows = connection.execute(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = %s "
        "ORDER BY table_name, ordinal_position",
        (schema,),
    ).fetchall()
    found: dict[str, list[str]] = {}
    for table, column in rows:
        found.setdefault(table, []).append(column)
    return {
        table: columns
        for table, columns in found.items()
        if table == "space" or "space_key" in columns or "entry_key" in columns
    }


def _terms(connection: Connection, space_key: int) -> list[tuple[int, tuple[str, ...]]]:
    session = PostgresSession(Transaction(connection), "benchmark", _NeverHalted())
    keys = [key for (key,) in session.rows("SELECT key FROM entry WHERE space_key = ?", (space_key,))]
    return sorted(HashedTerms(session).find(keys).items())


def _copy_rows(
    connection: Connection,
    table: str,
    columns: Sequence[str],
    space_key: int,
    numbers: range,
) -> None:
    values = [_value(table, column) for column in columns]
    if table == "space":
        within = sql.SQL("t.key = {}")
    elif "space_key" in columns:
        within = sql.SQL("t.space_key = {}")
    else:
        within = sql.SQL("t.entry_key IN (SELECT key FROM entry WHERE space_key = {})")
    connection.execute(
        sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} AS t, generate_series({}, {}) AS n WHERE {}").format(
            sql.Identifier(table),
            sql.SQL(", ").join(map(sql.Identifier, columns)),
            sql.SQL(", ").join(values),
            sql.Identifier(table),
            sql.Literal(numbers[0]),
            sql.Literal(numbers[-1]),
            within.format(sql.Literal(space_key)),
        )
    )


def _value(table: str, column: str) -> sql.Composable:
    if column == _OWN_KEYS.get(table) or column in ("space_key", "entry_key", "operation_seq"):
        return sql.SQL("t.{} + {} + n * {}").format(
            sql.Identifier(column), sql.Literal(_FIRST_KEY), sql.Literal(_STRIDE)
        )
    if (table, column) in (("operation", "id"), ("space", "name"), ("entry", "id")):
        return sql.SQL("t.{} || '-' || n").format(sql.Identifier(column))
    return sql.SQL("t.{}").format(sql.Identifier(column))

"""Content for stores that are moved: turns, reviews, undo, forgetting, proposals and jobs of two tenants."""

import random
from pathlib import Path
from typing import Any

import apsw

from afterturn import blocking
from afterturn.memory import StoreTarget
from afterturn.ports import Unit
from afterturn.services import Components
from afterturn.stores.copier import TableDigest, _Digest, read_batches
from afterturn.stores.engine import StoreEngine
from afterturn.stores.sql.tables import TABLES, Table
from afterturn.stores.sql.unit import SqlUnit
from afterturn.testing import HashingEmbedder

TOKEN = f"ghp_{'A1b2' * 9}"
QUESTIONS = ("What food is my cat allergic to?", "Where do I keep my bees?", "Wo wohnt Jürgen?", "猫の名前は何ですか?")
WORDS = (
    'bees tea Lisbon server green 猫 Jürgen deploy 🐝 cat moved train rope %s ? percent\' "quoted" back\\slash'.split()
)
# `entry_terms` is written by the store's own TextIndex, and of `meta` some rows are copied. Without `change`, every
# index in memory is built again.
NOT_MOVED = frozenset(["meta", "change", "entry_terms", "last_commit", "migration"])
SETTINGS: dict[str, Any] = {"grace": 5.0, "approval": "background", "review_interval": 0}


# Arguments: source, target, and the number of the report at which it kills itself.
KILLED_MIGRATION = """
import os, signal, sys
from afterturn.config import Config, find_store
from afterturn.services import migrate
calls = 0
def report(done, total):
    global calls
    calls += 1
    if calls == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
migrate(find_store(sys.argv[1]), find_store(sys.argv[2]), Config(), tenant=None, keep=False, progress=report)
"""


def open_memory(target: StoreTarget, *, tenant: str = "default", background: bool = True) -> blocking.Memory:
    return blocking.open(
        target, SETTINGS, tenant=tenant, background=background, components=Components(embedder=HashingEmbedder())
    )


def say(memory: blocking.Memory, conversation: str, text: str, *, user: str = "ada") -> str:
    """One recorded turn. Returns its block."""
    messages: list[dict[str, str]] = [{"role": "user", "content": text}]
    with memory.conversation(conversation, user=user).turn(messages) as turn:
        turn.inject(messages)
        blocks = [message["content"] for message in messages[1:]]
        messages.append({"role": "assistant", "content": "Noted."})
    assert turn.wait_recorded(within=30.0)
    return "".join(blocks)


def fill(target: StoreTarget, *, seed: int = 1, turns: int = 6) -> dict[str, str]:
    """Returns operations of user:ada by name: `update` and `delete` can be undone."""
    chance = random.Random(seed)
    with open_memory(target) as memory:
        ada = memory.space("user:ada")
        say(memory, "monday", "My cat Miso is allergic to chicken. Remember that I keep my bees behind the barn.")
        for number in range(turns):
            say(memory, f"talk-{number % 3}", f"{' '.join(chance.sample(WORDS, 5))} number {number}", user="ada")
            say(memory, "talk", f"{' '.join(chance.sample(WORDS, 4))} number {number}", user="bob")
        tea = ada.add("Ada prefers oolong tea", metadata={"team": "garden"})
        hive = ada.add("Ada has three hives", pinned=True)
        moved = ada.update(tea.entry.id, "Ada prefers green tea")
        gone = ada.delete(hive.entry.id)
        undone = ada.add("Ada lives in Porto")
        ada.undo(undone.operation)
        ada.add(f"The api key is {TOKEN}", origin="tool")
        ada.add("Deploy on Fridays only", origin="agent", target="environment")
        say(memory, "secret", "My old address was in Lisbon.")
        ada.forget(conversation="secret")
        memory.drain(within=60.0)
        say(memory, "tuesday", QUESTIONS[0])
    with open_memory(target, tenant="acme", background=False) as memory:
        memory.space("team:support").add("Jürgen wohnt in Köln")
        say(memory, "monday", "I work at Acme and my name is Ada.")
    return {"update": moved.operation, "delete": gone.operation}


def answers(target: StoreTarget, *, tenant: str = "default") -> list[tuple[str, float]]:
    """What the questions find, with scores."""
    with open_memory(target, tenant=tenant, background=False) as memory:
        memory.ready(within=30.0)
        return [
            (hit.entry.text, round(hit.score, 6))
            for question in QUESTIONS
            for hit in memory.space("user:ada").search(question, limit=5).hits
        ]


def add_rare_rows(path: Path) -> None:
    """Rows that need a model, a compaction or a crash to come about, and a job that a worker holds."""
    with apsw.Connection(str(path)) as connection:
        for statement in (
            "INSERT INTO usage VALUES ('default', 1, '2026-11-17', 'review', 2, 300, 40, 0)",
            "INSERT INTO spent_block VALUES (1, 'f00d', 120)",
            "INSERT INTO carried SELECT 1, key, 'c-1', 't-1', '[\"e1\"]', '{\"lines\": [1]}' FROM conversation LIMIT 1",
            "INSERT INTO standing SELECT key, 1.5, 'Always answer in rhyme.' FROM conversation LIMIT 1",
            "INSERT INTO standing_ref SELECT key, 0, 'e1' FROM conversation LIMIT 1",
            "INSERT INTO job (id, space_key, tenant, kind, payload, run_at, attempts, state, error, owner, "
            "leased_until) VALUES ('held', 1, 'default', 'embed', '{}', 1.0, 2, 'leased', '', 'worker', 9e9)",
        ):
            connection.execute(statement)


def digest_store(engine: StoreEngine, tenant: str | None = None) -> list[TableDigest]:
    """The counts and hashes of a store."""

    def digest(unit: Unit, table: Table) -> TableDigest:
        assert isinstance(unit, SqlUnit)
        found = _Digest(table)
        for batch in read_batches(unit, table, tenant):
            found.add(batch)
        return found.result()

    return [engine.read_now(lambda unit, table=table: digest(unit, table)) for table in TABLES]  # type: ignore[misc]

"""With keys, no byte of a store's files shows a word; without them, the same search finds every word."""

import base64
import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

import afterturn
from afterturn.config import Config
from afterturn.ports import Unit
from afterturn.stores.keys import FolderKeys
from afterturn.stores.sql.sealing import COMPARED, SEALED
from afterturn.stores.sqlite.store import open_store
from afterturn.testing import HashingEmbedder, ManualClock
from afterturn.types import (
    BlockRow,
    CarriedRow,
    ConversationKey,
    Event,
    Job,
    Phase,
    ReviewKind,
    ReviewMessage,
    ReviewRow,
    ReviewState,
    Scope,
    TurnRow,
    TurnStatus,
)
from lab.slices import without_log
from planted_words import NAMES, files_with, plant

# These are not stored at once; the others are.
_UNDER_WAY = {"a review that is under way", "a turn that is under way"}


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
async def test_no_word_of_a_sealed_store_is_in_its_files(
    sealed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M2: the database, its log and the files of waiting turns, while it is open and after it was closed."""
    if sealed:
        monkeypatch.setenv("AFTERTURN_KEYS", str(tmp_path / "keys"))
    folder = tmp_path / "store"
    folder.mkdir()
    seen: set[str] = set()
    with without_log():
        words, _ = await plant(folder / "memory.db", {}, look=lambda words: seen.update(files_with(folder, words)))
    seen |= files_with(folder, words)
    assert "a turn that waits in a file" in words
    assert not set(NAMES) & set(words)
    assert seen - _UNDER_WAY == (set() if sealed else set(words) - _UNDER_WAY)
    assert not sealed or not seen


_THINGS = "bicycle boat garden piano kettle ladder lantern violin greenhouse canoe".split()
_PLACES = "cellar attic harbour kitchen shed library".split()
_QUESTIONS = (
    "Where is the bicycle?",
    "What is in the cellar?",
    "Which things are in the attic or the shed?",
    "When did I move the piano?",
    "Do I own a canoe?",
    "lantern ladder",
    "music instruments",
)


async def _answers(store: Path, settings: dict[str, Any]) -> list[object]:
    """What searches and turns return after the same history."""
    clock = ManualClock()
    found: list[object] = []
    parts = afterturn.Components(clock=clock, embedder=HashingEmbedder())
    async with afterturn.open(store, {"grace": 5.0, "recall_score_min": 0.0, **settings}, components=parts) as memory:
        await memory.ready()
        ada, club = memory.space("user:ada"), memory.space("project:club")
        for number, (thing, place) in enumerate(itertools.product(_THINGS, _PLACES)):
            clock.advance(60.0)
            space = (ada, club)[number % 2]
            added = await space.add(f"The {thing} is in the {place}.", metadata={"place": place, "number": number})
            if number % 7 == 0:
                await space.update(added.entry.id, f"The {thing} was moved from the {place}.")
            if number % 11 == 0:
                undone = await space.delete(added.entry.id)
                await space.undo(undone.operation)
        await memory.drain(within=30)
        for question in _QUESTIONS:
            for space in (ada, club):
                for wanted in (afterturn.Filter(), afterturn.Filter(metadata={"place": ("attic", "shed")})):
                    result = await space.search(question, limit=20, filter=wanted)
                    found.append(
                        [(hit.entry.text, dict(hit.entry.metadata), hit.score, hit.terms) for hit in result.hits]
                    )
            clock.advance(60.0)
            messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
            talk = memory.conversation("talk", owner="user:ada", reads=["project:club"])
            async with talk.turn(messages) as turn:
                await turn.inject(messages)
                found.append([re.sub(r"\[\w{16}(\.\d+)?\]", "[id]", message["content"]) for message in messages])
                messages.append({"role": "assistant", "content": "I see."})
            await turn.wait_recorded(within=30)
            await memory.drain(within=30)
    return found


async def test_recall_finds_the_same_with_and_without_keys(tmp_path: Path) -> None:
    """L6: the same entries, in the same order, with the same scores, and the same blocks."""
    plain = await _answers(tmp_path / "plain.db", {})
    sealed = await _answers(tmp_path / "sealed.db", {"keys": str(tmp_path / "keys")})
    assert sealed == plain
    assert sum(map(bool, plain)) > 25
    assert b"greenhouse" in (tmp_path / "plain.db").read_bytes()
    assert b"greenhouse" not in (tmp_path / "sealed.db").read_bytes()


async def test_every_sealed_column_has_only_sealed_values(tmp_path: Path) -> None:
    """M2: whatever wrote them."""
    with without_log():
        await plant(
            tmp_path / "memory.db", {"keys": str(tmp_path / "keys")}, leave_out=("a turn that waits in a file",)
        )
    connection = apsw.Connection(str(tmp_path / "memory.db"))
    seen = set()
    for part in (SEALED, COMPARED):
        for table, columns in part.items():
            for column in set(columns) - {"hashes"}:
                for (value,) in connection.execute(f"SELECT {column} FROM {table}").fetchall():
                    if value not in ("", "{}"):
                        seen.add(f"{table}.{column}")
                        assert _is_sealed(value), (table, column, value)
    connection.close()
    # Those that this history leaves empty: a job that failed, why a review ended, forgotten conversations.
    expected = {
        f"{table}.{column}" for part in (SEALED, COMPARED) for table, columns in part.items() for column in columns
    }
    assert expected - seen <= {
        "job.error",
        "review.reason",
        "entry.reason",
        "spent_block.hash",
        "block.anchor",
        "carried.detail",
        "review_message.text",
        "entry_terms.hashes",
    }


def _is_sealed(value: Any) -> bool:
    """Ciphertext, a JSON object of it, or digests: no word is as long, or made of these digits only."""
    if isinstance(value, bytes):
        return len(value) > 28
    if str(value).startswith("{"):
        members = json.loads(str(value))
        pasted = members.pop("pasted", True)
        return pasted is True and all(_is_sealed(member) for member in members.values())
    if re.fullmatch(r"(_\d+ )?[0-9a-f ]+", str(value)):
        return True
    return len(base64.urlsafe_b64decode(f"{value}==")) >= 28


async def test_rows_that_turns_rarely_write_are_sealed(tmp_path: Path) -> None:
    """M2: errors of jobs, what reviews are to read and why they ended, carried recalls, anchors, events."""
    store = open_store(tmp_path / "memory.db", Config(), ManualClock(), keys=FolderKeys(tmp_path / "keys"))
    talk, at = ConversationKey("default", "user:ada", "talk"), Scope("default", ("user:ada",))
    job = Job("j1", "embed", "default", "user:ada", "{}", 1.0, error="no greenhouse")
    review = ReviewRow("r1", ReviewKind.ASKED, "default", "user:ada", "user:ada", 1.0, conversation="talk")
    message = ReviewMessage("user", "ada", "In the greenhouse", None, 100, 5.0)
    ended = replace(review, state=ReviewState.FAILED, ended_at=2.0, reason="a greenhouse", notes=("greenhouse",))
    block = BlockRow("hash", "t1", (), 400, 1.0, point="user", anchor="greenhouse", text="The greenhouse")
    event = Event("recalled", 1.0, "default", "user:ada", "talk", "t1", {"reason": "greenhouse"})
    carried = CarriedRow("c1", "t1", 1, "Where is the greenhouse?", 1.0, 2.0, (Phase.FAST,), ())
    turn = TurnRow("t1", TurnStatus.OPEN, 1.0, "greenhouse")

    def fill(unit: Unit) -> None:
        unit.jobs.add(job)
        unit.conversations.start_turn(talk, turn)
        unit.conversations.add_block(talk, block)
        unit.conversations.carry(talk, carried)
        unit.timeline.add([event], entries_max=10)
        unit.reviews.add(review, [message])

    try:
        await store.write(fill, at=at)
        assert await store.read(lambda unit: unit.reviews.messages("default", "r1"), at=at) == [message]
        content = b"".join(path.read_bytes() for path in tmp_path.glob("memory.db*"))
        await store.write(lambda unit: unit.reviews.end(ended), at=at)
        content += b"".join(path.read_bytes() for path in tmp_path.glob("memory.db*"))
        assert b"greenhouse" not in content
        assert await store.read(lambda unit: unit.reviews.get("default", "r1"), at=at) == ended
        assert await store.read(lambda unit: unit.conversations.blocks(talk), at=at) == [block]
        assert await store.read(lambda unit: unit.conversations.find_turn(talk, "t1"), at=at) == turn
        assert await store.read(lambda unit: unit.timeline.page(at, limit=5), at=at) == [event]
        assert await store.read(lambda unit: unit.jobs.find("default", "j1"), at=at) == job
    finally:
        await store.close(within=5.0)

"""After forgetting and scrubbing, no file of the store holds a word of it, nor a fragment of one."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from afterturn.config import Config
from afterturn.ports import Unit
from afterturn.stores.sqlite.engine import Engine, open_engine
from afterturn.testing.clock import ManualClock
from afterturn.testing.entries import admit, operation
from afterturn.types import (
    BlockRow,
    Candidate,
    CarriedRow,
    ConversationKey,
    EmbedderIdentity,
    Event,
    Job,
    Kind,
    Lane,
    LaneQuery,
    Outcome,
    Phase,
    RecallCause,
    RecallRow,
    ReviewKind,
    ReviewMessage,
    ReviewRow,
    ReviewState,
    Scope,
    Selector,
    StandingRow,
    TurnRow,
    TurnStatus,
    Verb,
)

SPACE = "user:ada"
SCOPE = Scope("default", (SPACE,))
FRAGMENT = 5

# Made-up words, so that no schema, English text or neighbour has five letters in a row of any of them.
TEXT = "Zyxquartzite vlorbnakking 蜂蜜蜂蝋 wjmqprtle"
CONVERSATION = "qonvwhisperj"
SPEAKER = "spjkrwulfz"
METADATA = {"mkxeyvqo": "mvxalqjw"}
AGENT, PROJECT, SOURCE, TURN = "agxqntwv", "prqjzxkt", "srxqwcjk", "tvrnqxzw"
WORDS = [
    *(word.lower() for word in TEXT.split()),
    *TEXT.split(),
    CONVERSATION,
    SPEAKER,
    *METADATA,
    *METADATA.values(),
    AGENT,
    PROJECT,
    SOURCE,
    TURN,
]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Engine]:
    engine = open_engine(tmp_path / "memory.db", Config(synchronous="normal"), ManualClock())
    yield engine
    engine.close()


def write_sentinels(unit: Unit) -> str:
    """One of everything that could keep a trace; gives the id of the statement."""
    fields = {"conversation": CONVERSATION, "speaker": SPEAKER, "metadata": METADATA, "turn": TURN}
    record = admit(TEXT, kind=Kind.RECORD, position=0, **fields)
    unit.records.add(operation(Verb.RECORD, group=TURN), [record])
    statement = admit(TEXT + " stated", agent=AGENT, project=PROJECT, sources=(SOURCE, record.id), **fields)
    unit.memories.add(operation(), statement)
    newer = admit(TEXT + " corrected", agent=AGENT, project=PROJECT, sources=(SOURCE,), **fields)
    unit.memories.update(operation(Verb.UPDATE), statement.id, newer, expected_version=1)
    key = ConversationKey("default", SPACE, CONVERSATION)
    keep_traces(unit, key, [record.id, statement.id])
    keep_review(unit, "waiting", record.id)
    payload = json.dumps({"conversation": CONVERSATION, "turn": TURN})
    unit.jobs.add(Job("pending", "embed", "default", SPACE, payload, 1.0))
    unit.jobs.add(Job("failed", "embed", "default", SPACE, "{}", 1.0, error=f"can not embed {TEXT!r}"))
    unit.timeline.add([Event("recorded", 1.0, "default", SPACE, CONVERSATION, TURN)], entries_max=100)
    return statement.id


def keep_traces(unit: Unit, key: ConversationKey, refs: Sequence[str]) -> None:
    """Text that a conversation keeps of what these entries say and of what was asked."""
    shown, turn = f"a block about {TEXT} " * 60, TurnRow(TURN, TurnStatus.OPEN, 1.0, "hash")
    unit.conversations.start_turn(key, turn)
    for ref in refs:
        unit.conversations.add_block(key, BlockRow(f"hash{ref}", TURN, (ref,), 9, 1.0, "user_message", "anchor", shown))
    unit.conversations.put_standing(key, StandingRow(f"always {shown}", tuple(refs), 1.0))
    candidates = tuple(Candidate(ref, SPACE, Lane.LONG_TERM, 0.5, 0.5, None) for ref in refs)
    unit.conversations.carry(key, CarriedRow("c1", TURN, 1, f"what of {TEXT}?", 1.0, 2.0, (Phase.FAST,), candidates))
    asked = RecallRow("c1", TURN, 1, RecallCause.MESSAGE, Phase.FAST, f"and {TEXT}?", 1.0, 2.0, Outcome.EMPTY, "")
    unit.recalls.add(key, replace(asked, candidates=candidates), entries_max=100)


def keep_review(unit: Unit, name: str, source: str | None, conversation: str = CONVERSATION) -> ReviewRow:
    """One that waits, and is to read what was said."""
    row = ReviewRow(name, ReviewKind.RULES, "default", SPACE, SPACE, 1.0, conversation=conversation, turn=TURN)
    said = ReviewMessage("user", SPEAKER, f"so I said: {TEXT}. " * 60, source, 100, 1.0)
    unit.reviews.add(row, [said, replace(said, text=TEXT)])
    return row


def traces(folder: Path) -> dict[str, list[str]]:
    """Fragments of the sentinels by file; the files are read as the bytes they are."""
    fragments = {fragment for word in WORDS for fragment in _fragments(word)}
    found = {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
    return {
        name: hits
        for name, content in found.items()
        if (hits := sorted(fragment for fragment in fragments if fragment.encode() in content))
    }


def _fragments(word: str) -> set[str]:
    size = FRAGMENT if word.isascii() else 2
    return {word[at : at + size] for at in range(len(word) - size + 1)}


def forget(store: Engine, selector: Selector) -> int:
    return store.write_now(lambda unit: unit.operations.forget("default", SPACE, selector, at=1.0)).versions


@pytest.mark.parametrize("selector", [Selector(conversation=CONVERSATION), Selector(everything=True)])
def test_a_forgotten_conversation_leaves_no_fragment(store: Engine, tmp_path: Path, selector: Selector):
    """M2: text, versions, index entries, jobs, timeline and names are erased, whole words and fragments alike."""
    store.write_now(write_sentinels)
    assert "Zyxqu" in traces(tmp_path)["memory.db-wal"]
    assert forget(store, selector) == 3
    assert store.scrub() == ()
    assert traces(tmp_path) == {}


def test_a_forgotten_speaker_leaves_no_word_of_the_text(store: Engine, tmp_path: Path):
    """M2: by speaker, with the conversation still there."""
    store.write_now(write_sentinels)
    forget(store, Selector(speaker=SPEAKER))
    assert store.scrub() == ()
    left = {fragment for hits in traces(tmp_path).values() for fragment in hits}
    assert left <= _fragments(CONVERSATION) | _fragments(TURN)


@pytest.mark.parametrize("recorded", [True, False], ids=["recorded", "shown only"])
def test_what_a_review_was_to_read_goes_with_the_record(store: Engine, tmp_path: Path, *, recorded: bool):
    """M2, M4: by id, or when its retention ended, whether the message names its record or not."""
    said = admit(TEXT, kind=Kind.RECORD, conversation="talk", turn=TURN)
    store.write_now(lambda unit: unit.records.add(operation(Verb.RECORD), [said]))
    for at in range(30):
        source = said.id if recorded else None
        store.write_now(lambda unit, at=at, source=source: keep_review(unit, f"r{at:02d}", source, "talk"))
    assert "Zyxqu" in traces(tmp_path)["memory.db-wal"]
    assert forget(store, Selector(memories=(said.id,))) == 1
    assert store.scrub() == ()
    left = {fragment for hits in traces(tmp_path).values() for fragment in hits}
    assert left <= _fragments(TURN)
    assert len(store.read_now(lambda unit: unit.reviews.page("default", SPACE, limit=99))) == 30


def test_what_an_ended_review_has_read_leaves_no_word(store: Engine, tmp_path: Path):
    """M2, V2: messages that were replaced or let go are erased wherever they had been."""
    for at in range(40):
        row = store.write_now(lambda unit, at=at: keep_review(unit, f"r{at:02d}", None))
        store.write_now(lambda unit, row=row: unit.reviews.replace_messages("default", row.id, _longer(unit, row)))
        if at % 3:
            ended = replace(row, state=ReviewState.NOTHING)
            assert store.write_now(lambda unit, ended=ended: unit.reviews.end(ended))
    assert "Zyxqu" in traces(tmp_path)["memory.db-wal"]
    forget(store, Selector(conversation=CONVERSATION))
    assert store.scrub() == ()
    assert traces(tmp_path) == {}


def _longer(unit: Unit, row: ReviewRow) -> list[ReviewMessage]:
    return [replace(said, text=f"{said.text} and more") for said in unit.reviews.messages(row.tenant, row.id)]


def test_a_change_that_waits_leaves_no_word(store: Engine, tmp_path: Path):
    """M2: proposals and withdrawals go with their memory, decided or not."""
    bases = [admit(f"{TEXT} number {at}") for at in range(20)]

    def work(unit: Unit) -> None:
        for at, base in enumerate(bases):
            unit.memories.add(operation(), base)
            if at % 2:
                change = admit(f"{TEXT} was number {at}", proposed=True)
                unit.memories.update(operation(Verb.UPDATE), base.id, change, expected_version=1)
            else:
                unit.memories.propose_delete(operation(Verb.DELETE), base.id, expected_version=1)
            if at % 3 == 0:
                unit.memories.approve(operation(Verb.APPROVE), base.id)

    store.write_now(work)
    assert forget(store, Selector(memories=tuple(base.id for base in bases))) == 40
    assert store.scrub() == ()
    assert traces(tmp_path) == {}


@pytest.mark.parametrize("others", [0, 40], ids=["alone", "among others"])
def test_a_forgotten_memory_leaves_no_word_where_it_was_shown(store: Engine, tmp_path: Path, others: int):
    """M2: block texts and standing blocks, in its own space's conversations and in another's, go with its text."""
    secret = admit(TEXT)
    store.write_now(lambda unit: unit.memories.add(operation(), secret))
    for at in range(others + 1):
        shown = BlockRow(
            f"hash{at}", "turn", (secret.id,), 9, 1.0, "user_message", "anchor", f"{TEXT} {'so ' * at * 40}"
        )
        standing = StandingRow(f"always {shown.text}", (secret.id,), 1.0)
        for space in (SPACE, "user:bob"):
            key = ConversationKey("default", space, f"talk {at % 7}")
            store.write_now(lambda unit, key=key, shown=shown: unit.conversations.add_block(key, shown))
            store.write_now(lambda unit, key=key, standing=standing: unit.conversations.put_standing(key, standing))
    assert "Zyxqu" in traces(tmp_path)["memory.db-wal"]
    assert forget(store, Selector(memory=secret.id)) == 1
    assert store.scrub() == ()
    assert traces(tmp_path) == {}


def test_a_question_goes_with_the_message_that_it_was(store: Engine, tmp_path: Path):
    """M2, M4: when a record's retention ends, what was asked in its turn is erased, carried or not."""
    said = admit(TEXT, kind=Kind.RECORD, conversation="talk", turn=TURN)
    store.write_now(lambda unit: unit.records.add(operation(Verb.RECORD), [said]))
    store.write_now(lambda unit: keep_traces(unit, ConversationKey("default", SPACE, "talk"), [said.id]))
    assert "Zyxqu" in traces(tmp_path)["memory.db-wal"]
    assert forget(store, Selector(memories=(said.id,))) == 1
    assert store.scrub() == ()
    left = {fragment for hits in traces(tmp_path).values() for fragment in hits}
    assert left <= _fragments(TURN)


def test_a_recall_that_was_replaced_or_pushed_out_leaves_no_word(store: Engine, tmp_path: Path):
    """M2: rows that were rewritten or trimmed are erased wherever they had been."""
    key = ConversationKey("default", SPACE, CONVERSATION)
    row = RecallRow("c", TURN, 1, RecallCause.MESSAGE, Phase.FAST, TEXT, 1.0, 2.0, Outcome.EMPTY, "")
    for at in range(60):
        asked = replace(row, correlation=f"c{at % 30}", question=f"{TEXT} {'hm ' * (at * 7 % 50)}")
        store.write_now(lambda unit, asked=asked: unit.recalls.add(key, asked, entries_max=20))
    assert "Zyxqu" in traces(tmp_path)["memory.db-wal"]
    forget(store, Selector(conversation=CONVERSATION))
    assert store.scrub() == ()
    assert traces(tmp_path) == {}


def test_a_reader_holds_the_bytes_until_it_ends(store: Engine, tmp_path: Path):
    """M2: pending while a reader holds the old log, then erased."""
    store.write_now(write_sentinels)
    reader = apsw.Connection(str(tmp_path / "memory.db"))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM entry").fetchall()
    forget(store, Selector(conversation=CONVERSATION))
    assert [remaining.retry for remaining in store.scrub()] == [True]
    reader.execute("COMMIT")
    reader.close()
    assert store.scrub() == ()
    assert traces(tmp_path) == {}


def test_the_vector_of_a_forgotten_memory_leaves_no_byte(store: Engine, tmp_path: Path):
    """M2, M3: a vector reveals what its text says, so it goes with the text."""
    memory = admit("Ada keeps bees")
    store.write_now(lambda unit: unit.memories.add(operation(), memory))
    keys = store.read_now(lambda unit: unit.index.changes("default", SPACE, since=0)).keys or ()
    small = EmbedderIdentity("small", "1", 4)
    stored = store.write_now(
        lambda unit: unit.index.put_vectors("default", SPACE, small, [(key, b"vlorbnak") for key in keys])
    )
    assert stored == 1
    assert "vlorb" in traces(tmp_path)["memory.db-wal"]
    forget(store, Selector(memory=memory.id))
    assert store.scrub() == ()
    assert traces(tmp_path) == {}


def test_an_interrupted_recording_can_not_bring_it_back(store: Engine, tmp_path: Path):
    """M2: a late vector and a late end of the turn find nothing to attach to."""
    store.write_now(write_sentinels)
    keys = store.read_now(lambda unit: unit.index.changes("default", SPACE, since=0)).keys or ()
    forget(store, Selector(conversation=CONVERSATION))
    small = EmbedderIdentity("small", "1", 4)
    stored = store.write_now(
        lambda unit: unit.index.put_vectors("default", SPACE, small, [(key, b"vlorbnak") for key in keys])
    )
    assert stored == 0
    assert store.scrub() == ()
    assert traces(tmp_path) == {}


@pytest.mark.parametrize("one_in", [7, 2], ids=["few", "many"])
@pytest.mark.parametrize("seed", range(2))
def test_a_busy_store_s_page_splits_leave_no_copy(store: Engine, tmp_path: Path, seed: int, one_in: int):
    """M2: rows that moved between pages, overflowed, or were superseded are erased wherever they had been."""
    chance = random.Random(seed)
    vocabulary = [f"word{number}" for number in range(200)]

    def filler() -> str:
        return " ".join(chance.choices(vocabulary, k=chance.choice([2, 8, 30, 120, 900])))

    def fresh_id() -> str:
        return f"{chance.randrange(10**12):012d}"

    def work(unit: Unit, number: int) -> None:
        if number % one_in:
            name = chance.choice([None, "aaa", "zzz"])
            unit.memories.add(operation(), admit(f"{filler()} {number}", id=fresh_id(), conversation=name))
            return
        secret = admit(
            f"{TEXT} {filler()}", id=fresh_id(), kind=Kind.RECORD, conversation=CONVERSATION, speaker=SPEAKER
        )
        unit.records.add(operation(Verb.RECORD), [secret])
        if number % 3 == 0:
            unit.memories.delete(operation(Verb.DELETE), secret.id)

    for number in range(500):
        store.write_now(lambda unit, number=number: work(unit, number))
    assert forget(store, Selector(conversation=CONVERSATION)) == len(range(0, 500, one_in))
    assert store.scrub() == ()
    assert traces(tmp_path) == {}
    assert len(store.read_now(lambda unit: unit.index.matches(LaneQuery(SCOPE, 200.0), vocabulary[:9], limit=9))) == 9


def test_memories_forgotten_one_by_one_are_gone_one_by_one(store: Engine, tmp_path: Path):
    """M2: the bytes of a neighbour that is forgotten later do not bring back those of an earlier one."""
    drafts = [admit(text) for text in _numbered()]
    store.write_now(lambda unit: [unit.memories.add(operation(), draft) for draft in drafts])
    assert sum(forget(store, Selector(memory=draft.id)) for draft in drafts) == len(drafts)
    assert store.scrub() == ()
    assert traces(tmp_path) == {}


def _numbered() -> Iterator[str]:
    for number in range(60):
        yield f"{TEXT} number {number} {'filling ' * (number * 7 % 50)}"

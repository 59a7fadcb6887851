"""Which spaces are in memory, on a real store: within bounds, level with it, and safe to share."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
from fake_index import reachable

from afterturn.errors import DeadlineExceeded
from afterturn.recall.index import builder as assembly_module
from afterturn.recall.index import cache as shelves_module
from afterturn.recall.index import space_index as stock_module
from afterturn.recall.index.builder import BuildPlan, SpaceKey, extent_of
from afterturn.recall.index.cache import IndexCache, build_at_once
from afterturn.recall.index.postings import PostingForm
from afterturn.recall.index.snapshot import is_nearly_all
from afterturn.recall.index.space_index import SpaceIndex
from afterturn.recall.query import read_query
from afterturn.testing.hashing import HashingEmbedder
from afterturn.text import read_words
from afterturn.types import Lane, Scope, Selector

ADA = "user:ada"
EMBEDDER = HashingEmbedder()
MEGABYTE = 1 << 20


class Reading:
    """The store as a builder sees it."""

    def __init__(self, library) -> None:
        self._library = library

    async def read(self, work):
        return self._library.read(work)


def build(library, shelves: IndexCache) -> bool:
    return build_from(Reading(library), shelves)


def build_from(store: "Reading", shelves: IndexCache) -> bool:
    return asyncio.run(shelves.build_wanted(store)) is not None


def find(library, shelves: IndexCache, space: str = ADA) -> bool:
    return library.read(lambda unit: shelves.find(unit, "default", space)) is not None


def shelve(library, shelves: IndexCache, space: str = ADA) -> None:
    """As a question, and the builder behind it, bring a space to memory."""
    while not find(library, shelves, space):
        build(library, shelves)


def in_memory(shelves: IndexCache) -> list[SpaceIndex]:
    return [one for one in reachable(shelves) if isinstance(one, SpaceIndex)]


def spaces_in_memory(shelves: IndexCache) -> set[str]:
    return {stock.place.space for stock in in_memory(shelves)}


def ask(library, shelves: IndexCache, text: str, *, space: str = ADA, lane: Lane | None = None) -> list[str]:
    def work(unit):
        shelf = shelves.find(unit, "default", space)
        assert shelf is not None
        reading = shelf.read(
            read_query(unit.index, Scope("default", (space,)), *read_words(text)), EMBEDDER.embed([text])[0]
        )
        keys = [ranked.key for ranked in reading.best(lane, None, 100)]
        texts = {entry.key: entry.terms for entry in unit.index.shelved("default", space, keys=keys, limit=len(keys))}
        return [" ".join(texts[key]) for key in keys if key in texts]

    return library.read(work)


@pytest.fixture
def shelves() -> IndexCache:
    return IndexCache(EMBEDDER.identity, 16 * MEGABYTE)


def test_the_first_question_builds_a_small_space(library, shelves):
    """L6: within the question, and the next one finds it built."""
    library.add_all(["red apple pie", "blue sea"])
    assert find(library, shelves)
    [first] = in_memory(shelves)
    assert find(library, shelves)
    [second] = in_memory(shelves)
    assert first is second
    assert not build(library, shelves)


def test_a_large_space_is_built_in_the_background(library, shelves, monkeypatch):
    """L6, H3: reading thousands of rows takes longer than a turn waits."""
    monkeypatch.setattr(shelves_module, "AT_ONCE_ROWS_MAX", 2)
    library.add_all(["red apple pie", "red apple tart", "blue sea"])
    found = [find(library, shelves), build(library, shelves), find(library, shelves)]
    assert found == [False, True, True]


def test_a_question_that_is_given_up_leaves_the_building_to_the_background(library, shelves):
    """L1, L6: what took too long for one question is there for a later one."""
    library.add_all(["red apple pie", "blue sea"])

    def given_up() -> None:
        raise DeadlineExceeded("too late")

    with pytest.raises(DeadlineExceeded):
        library.read(
            lambda unit: shelves.find(SimpleNamespace(index=unit.index, check=given_up), "default", ADA)  # type: ignore[arg-type]
        )
    assert build(library, shelves)
    assert spaces_in_memory(shelves) == {ADA}


def test_what_was_committed_is_on_the_shelf_for_the_next_question(library, shelves):
    """M2, M3: the difference is applied inside the reader's own snapshot."""
    library.add("blue sea")
    shelve(library, shelves)
    pie = library.add("red apple pie")
    library.embed(EMBEDDER)
    assert ask(library, shelves, "red apple")[0] == "red appl pie"
    library.delete(pie)
    assert ask(library, shelves, "red apple") == ["blue sea"]


def test_vectors_arrive_by_changes_too(library, shelves):
    """M3: a shelf without vectors gets them as they are made."""
    library.add_all(["red apple pie", "blue sea"])
    shelve(library, shelves)

    def is_complete() -> bool:
        return library.read(lambda unit: shelves.find(unit, "default", ADA).complete)

    before = is_complete()
    library.embed(EMBEDDER)
    assert (before, is_complete()) == (False, True)


@pytest.mark.parametrize(
    "present, documents, is_told",
    [
        (1, 2, True),
        (2, 3, False),
        (936, 1000, False),
        (935, 1000, True),
        (9800, 10_000, False),
        (9799, 10_000, True),
        (0, 0, False),
    ],
)
def test_a_few_entries_without_vectors_are_nothing_to_tell_of(present, documents, is_told):
    """L1, M3: up to 64, or two in a hundred of a large space; but never as many as have one."""
    assert is_nearly_all(present, documents) is not is_told


def test_what_was_forgotten_leaves_memory(library, shelves):
    """M2: its terms, its speaker and its conversation, before the next answer. Vectors: see test_index.py."""
    library.add("blue sea")
    secret = library.add("red apple pie", conversation="secret talk", position=0, speaker="Eve")
    library.embed(EMBEDDER)
    shelve(library, shelves)

    def traces() -> tuple[bool, bool, dict[str, int]]:
        counts = library.read(lambda unit: shelves.find(unit, "default", ADA).frequencies(("pie", "sea")))
        strings = {one.casefold() for one in reachable(shelves) if isinstance(one, str)}
        return "eve" in strings, "secret talk" in strings, counts

    before = traces()
    library.write(lambda unit: unit.operations.forget("default", ADA, Selector(memory=secret.id), at=500.0))
    assert (before, traces()) == ((True, True, {"pie": 1, "sea": 1}), (False, False, {"sea": 1}))


def test_more_changes_than_a_question_should_wait_for_are_left_to_the_builder(library, shelves, monkeypatch):
    """L1: after an import, recall goes on without the shelf until that has caught up."""
    monkeypatch.setattr(stock_module, "FOLLOWED_MAX", 3)
    monkeypatch.setattr(stock_module.SpaceIndex.follow, "__kwdefaults__", {"changed_max": 3})
    library.add("blue sea")
    shelve(library, shelves)
    library.add_all([f"red apple {number}" for number in range(8)])
    assert not find(library, shelves)
    assert build(library, shelves)
    assert len(ask(library, shelves, "red apple")) == 9


def test_a_space_that_was_emptied_is_let_go(library, shelves):
    """M2: neither what was in it nor its name stays."""
    library.add("red apple pie")
    library.embed(EMBEDDER)
    assert find(library, shelves)
    assert shelves.size_bytes > 0
    library.write(lambda unit: unit.operations.forget("default", ADA, Selector(everything=True), at=500.0))
    assert not find(library, shelves)
    assert (spaces_in_memory(shelves), shelves.size_bytes) == (set(), 0)


def test_a_shelf_that_was_built_meanwhile_stays(library, shelves):
    """L6: as new as the store: a question that began before it was there does not put an older copy in its place."""
    library.add("red apple pie")
    library.embed(EMBEDDER)

    place = SpaceKey("default", ADA)

    def slow(unit):
        older = build_at_once(unit, place, BuildPlan(EMBEDDER.identity, extent_of(unit, place)))
        library.add("blue sea")
        assert find(library, shelves)
        newer = shelves._held[place]
        shelves._keep(older)
        return older, newer

    older, newer = library.read(slow)
    assert shelves._held[place] is newer
    assert (older.edition.alive_count, newer.edition.alive_count) == (1, 2)


def test_room_is_made_before_a_shelf_is_built(library, monkeypatch):
    """L6: what is built anew is not in memory twice at the cost of the bound."""
    monkeypatch.setattr(stock_module, "_WORN_MIN", 4)
    entries = library.add_all([f"red apple {number}" for number in range(60)])
    library.embed(EMBEDDER)
    shelves = IndexCache(EMBEDDER.identity, 16 * MEGABYTE)
    shelve(library, shelves)
    bound = IndexCache(EMBEDDER.identity, shelves.size_bytes * 3 // 2)
    shelve(library, bound)
    for entry in entries[:20]:
        library.delete(entry)
    assert find(library, bound)
    sizes = []

    class Watched(Reading):
        async def read(self, work):
            sizes.append(bound.size_bytes)
            return await super().read(work)

    asyncio.run(bound.build_wanted(Watched(library)))
    assert (sizes[0] > 0, sizes[-1]) == (True, 0)
    assert find(library, bound)


def test_a_space_that_grows_while_it_is_read_is_read_again(library, shelves, monkeypatch):
    """L6: as new as the store: an import may be faster than the builder, which begins anew with what is there then."""
    monkeypatch.setattr(assembly_module, "form_for", lambda rows: PostingForm(4 if rows < 20 else 12))
    monkeypatch.setattr(shelves_module, "AT_ONCE_ROWS_MAX", 0)
    monkeypatch.setattr(assembly_module, "PAGE_ROWS", 4)
    monkeypatch.setattr(assembly_module, "_PAGES_AT_ONCE", 1)
    library.add_all([f"red apple {number}" for number in range(5)])
    for _ in range(2):
        find(library, shelves)
    pages = []

    class Growing(Reading):
        async def read(self, work):
            if len(pages) == 1:
                library.add_all([f"red apple {number}" for number in range(5, 30)])
            pages.append(work)
            return await super().read(work)

    growing = Growing(library)
    found = [build_from(growing, shelves), find(library, shelves)]
    found += [build_from(growing, shelves), find(library, shelves)]
    assert found == [True, False, True, True]
    assert len(ask(library, shelves, "red apple")) == 30


def test_two_embedders_never_meet(library, shelves):
    """M3: vectors of another identity are not compared."""
    library.add("red apple pie")
    library.embed(HashingEmbedder(32))
    shelve(library, shelves)
    assert not library.read(lambda unit: shelves.find(unit, "default", ADA).complete)


def test_memory_is_bounded_over_all_spaces(library):
    """L6: what had to go comes back when it is asked for."""
    spaces = [f"user:u{number}" for number in range(6)]
    for space in spaces:
        library.add_all([f"red apple {word}" for word in ("one", "two", "three")], space=space)
        library.embed(EMBEDDER, space=space)
    shelves = IndexCache(EMBEDDER.identity, 60_000)
    for space in [*spaces, spaces[0]]:
        shelve(library, shelves, space)
        assert len(ask(library, shelves, "red apple", space=space)) == 3
        assert 0 < shelves.size_bytes <= 60_000
    assert len(in_memory(shelves)) < len(spaces)


def test_the_space_unused_for_longest_goes_first(library):
    """L6: which spaces are in memory is decided by their use, not by when they came there."""
    for space in "abcd":
        library.add_all(["red apple pie", "blue sea"], space=f"user:{space}")
        library.embed(EMBEDDER, space=f"user:{space}")
    alone = IndexCache(EMBEDDER.identity, MEGABYTE)
    shelve(library, alone, "user:a")
    shelves = IndexCache(EMBEDDER.identity, alone.size_bytes * 7 // 2)
    for space in "abc":
        shelve(library, shelves, f"user:{space}")
    before = spaces_in_memory(shelves)
    assert find(library, shelves, "user:a")
    shelve(library, shelves, "user:d")
    after = spaces_in_memory(shelves)
    assert (before, after) == ({"user:a", "user:b", "user:c"}, {"user:a", "user:c", "user:d"})


def test_a_space_that_does_not_fit_keeps_sketches_alone(library):
    """L6: vectors of the few that are worth it are read from the store."""
    library.add_all([f"red apple {number} of {number * 7}" for number in range(600)])
    library.embed(EMBEDDER)
    whole = IndexCache(EMBEDDER.identity, 16 * MEGABYTE)
    shelve(library, whole)
    small = IndexCache(EMBEDDER.identity, whole.size_bytes // 2)
    shelve(library, small)
    assert small.size_bytes <= whole.size_bytes // 2
    assert ask(library, small, "red apple 39")[:10] == ask(library, whole, "red apple 39")[:10]


def test_a_shelf_that_has_outgrown_its_room_is_built_anew(library):
    """L6: at once and in less room, not after it was asked for twice more."""
    library.add_all([f"red apple {number}" for number in range(60)])
    library.embed(EMBEDDER)
    whole = IndexCache(EMBEDDER.identity, 16 * MEGABYTE)
    shelve(library, whole)
    bytes_max = whole.size_bytes + 2_000
    shelves = IndexCache(EMBEDDER.identity, bytes_max)
    shelve(library, shelves)
    before = shelves.is_wanted
    library.add_all([f"red apple {number}" for number in range(60, 120)])
    library.embed(EMBEDDER)
    assert find(library, shelves)
    after = shelves.is_wanted
    assert (before, after) == (False, True)
    assert build(library, shelves)
    assert 0 < shelves.size_bytes <= bytes_max
    assert len(ask(library, shelves, "red apple")) == 100


def test_a_space_too_large_for_any_shelf_is_not_tried_again_until_it_shrinks(library):
    """L6: no time is spent on what can not be."""
    entries = library.add_all([f"red apple {number}" for number in range(40)])
    shelves = IndexCache(EMBEDDER.identity, 4_000)
    for _ in range(2):
        find(library, shelves)
    tried = [build(library, shelves)]
    for _ in range(3):
        find(library, shelves)
    tried.append(build(library, shelves))
    for entry in entries[:39]:
        library.delete(entry)
    find(library, shelves)
    tried.append(build(library, shelves))
    assert tried == [True, False, True]


def test_a_restored_store_is_shelved_anew(library, shelves, tmp_path):
    """M4: another generation means another content, whatever the sequence numbers say."""
    library.add("red apple pie")
    library.backup(tmp_path / "copy.db")
    library.add("red apple tart")
    shelve(library, shelves)
    assert len(ask(library, shelves, "red apple")) == 2
    library.restore(tmp_path / "copy.db")
    library.add("deep blue sea")
    assert not find(library, shelves)
    shelve(library, shelves)
    assert ask(library, shelves, "red apple") == ["red appl pie", "deep blue sea"]


def test_an_older_snapshot_meets_a_newer_shelf(library, shelves):
    """L6: a reader that began earlier gets what its snapshot holds, and the next one what is there now."""
    library.add("red apple pie")
    shelve(library, shelves)

    def older(unit):
        unit.index.extents(Scope("default", (ADA,)))
        library.add("red apple tart")
        assert len(ask(library, shelves, "red apple")) == 2
        shelf = shelves.find(unit, "default", ADA)
        keys = [
            one.key
            for one in shelf.read(read_query(unit.index, Scope("default", (ADA,)), *read_words("apple")), None).best(
                None, None, 9
            )
        ]
        return len(unit.index.shelved("default", ADA, keys=keys, limit=9))

    assert library.read(older) == 1
    assert len(ask(library, shelves, "red apple")) == 2


def test_threads_share_a_shelf(library, shelves):
    """L6: every thread ranks whole rows, whatever the others add and remove meanwhile."""
    entries = library.add_all([f"red apple {number}" for number in range(60)], conversation="c1")
    library.embed(EMBEDDER)
    shelve(library, shelves)
    wrong: list[object] = []

    def look() -> None:
        for _ in range(30):
            found = ask(library, shelves, "red apple", lane=Lane.EPISODIC)
            if not 30 <= len(found) <= 90 or any("appl" not in text for text in found):
                wrong.append(found)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number, entry in enumerate(entries[:30]):
        library.delete(entry)
        library.add(f"green apple {number}", conversation="c1", position=number)
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_worn_shelf_is_built_anew(library, shelves, monkeypatch):
    """L6: rows that are dead or came late do not pile up."""
    monkeypatch.setattr(stock_module, "_WORN_MIN", 4)
    entries = library.add_all([f"red apple {number}" for number in range(12)])
    shelve(library, shelves)
    for entry in entries[:6]:
        library.delete(entry)
    assert find(library, shelves)
    before = shelves.size_bytes
    assert build(library, shelves)
    assert shelves.size_bytes < before
    assert (len(ask(library, shelves, "red apple")), build(library, shelves)) == (6, False)


def test_without_an_embedder_words_decide(library):
    """L6: a shelf needs no vectors."""
    shelves = IndexCache(None, MEGABYTE)
    library.add_all(["red apple pie", "blue sea"])
    shelve(library, shelves)
    assert ask(library, shelves, "blue sea")[0] == "blue sea"


@pytest.mark.parametrize("missing, complete", [(64, True), (65, False)])
def test_up_to_sixty_four_may_wait_for_their_vectors(library, shelves, missing, complete):
    """L1: a turn at most that was just recorded; more is a backlog, and said."""
    library.add_all([f"red apple {number}" for number in range(200 - missing)])
    library.embed(EMBEDDER)
    library.add_all([f"blue sea {number}" for number in range(missing)])
    assert library.read(lambda unit: shelves.find(unit, "default", ADA).complete) is complete

"""Which spaces are in memory, on a real store: within bounds, level with it, and safe to share."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
from fake_index import reachable

from afterturn.errors import DeadlineExceeded
from afterturn.recall.index import cache as cache_module
from afterturn.recall.index import space_index as space_index_module
from afterturn.recall.index.cache import IndexCache, build_at_once
from afterturn.recall.index.snapshot import PostingForm, is_nearly_all
from afterturn.recall.index.space_index import BuildPlan, SpaceIndex, SpaceKey, find_stats
from afterturn.recall.query import read_query
from afterturn.testing.hashing import HashingEmbedder
from afterturn.text import read_words
from afterturn.types import Lane, Origin, Scope, Selector

ADA = "user:ada"
EMBEDDER = HashingEmbedder()
MEGABYTE = 1 << 20


class Reading:
    """The store as a builder sees it."""

    def __init__(self, library) -> None:
        self._library = library

    async def read(self, work, *, at):
        return self._library.read(work)


def build(library, cache: IndexCache) -> bool:
    return build_from(Reading(library), cache)


def build_from(store: "Reading", cache: IndexCache) -> bool:
    return asyncio.run(cache.build_next(store)) is not None


def find(library, cache: IndexCache, space: str = ADA) -> bool:
    return library.read(lambda unit: cache.find(unit, "default", space)) is not None


def shelve(library, cache: IndexCache, space: str = ADA) -> None:
    """As a question, and the builder behind it, bring a space to memory."""
    while not find(library, cache, space):
        build(library, cache)


def in_memory(cache: IndexCache) -> list[SpaceIndex]:
    return [one for one in reachable(cache) if isinstance(one, SpaceIndex)]


def spaces_in_memory(cache: IndexCache) -> set[str]:
    return {space_index.space_key.space for space_index in in_memory(cache)}


def ask(library, cache: IndexCache, text: str, *, space: str = ADA, lane: Lane | None = None) -> list[str]:
    def work(unit):
        searcher = cache.find(unit, "default", space)
        assert searcher is not None
        reading = searcher.search(
            read_query(unit.index, Scope("default", (space,)), *read_words(text)), EMBEDDER.embed([text])[0]
        )
        keys = [ranked.key for ranked in reading.best(lane, None, 100)]
        texts = {entry.key: entry.terms for entry in unit.index.entries("default", space, keys=keys, limit=len(keys))}
        return [" ".join(texts[key]) for key in keys if key in texts]

    return library.read(work)


@pytest.fixture
def cache() -> IndexCache:
    return IndexCache(EMBEDDER.identity, 16 * MEGABYTE)


def test_the_first_question_builds_a_small_space(library, cache):
    """L6: within the question, and the next one finds it built."""
    library.add_all(["red apple pie", "blue sea"])
    assert find(library, cache)
    [first] = in_memory(cache)
    assert find(library, cache)
    [second] = in_memory(cache)
    assert first is second
    assert not build(library, cache)


def test_a_large_space_is_built_in_the_background(library, cache, monkeypatch):
    """L6, H3: reading thousands of rows takes longer than a turn waits."""
    monkeypatch.setattr(cache_module, "AT_ONCE_ROWS_MAX", 2)
    library.add_all(["red apple pie", "red apple tart", "blue sea"])
    found = [find(library, cache), build(library, cache), find(library, cache)]
    assert found == [False, True, True]


def test_a_question_that_is_given_up_leaves_the_building_to_the_background(library, cache):
    """L1, L6: what took too long for one question is there for a later one."""
    library.add_all(["red apple pie", "blue sea"])

    def given_up() -> None:
        raise DeadlineExceeded("too late")

    with pytest.raises(DeadlineExceeded):
        library.read(
            lambda unit: cache.find(SimpleNamespace(index=unit.index, check=given_up), "default", ADA)  # type: ignore[arg-type]
        )
    assert build(library, cache)
    assert spaces_in_memory(cache) == {ADA}


def test_what_was_committed_is_on_the_shelf_for_the_next_question(library, cache):
    """M2, M3: the difference is applied inside the reader's own snapshot."""
    library.add("blue sea")
    shelve(library, cache)
    pie = library.add("red apple pie")
    library.embed(EMBEDDER)
    assert ask(library, cache, "red apple")[0] == "red appl pie"
    library.delete(pie)
    assert ask(library, cache, "red apple") == ["blue sea"]


def test_vectors_arrive_by_changes_too(library, cache):
    """M3: a searcher without vectors gets them as they are made."""
    library.add_all(["red apple pie", "blue sea"])
    shelve(library, cache)

    def is_complete() -> bool:
        return library.read(lambda unit: cache.find(unit, "default", ADA).complete)

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


def test_what_was_forgotten_leaves_memory(library, cache):
    """M2: its terms, its speaker and its conversation, before the next answer. Vectors: see test_index.py."""
    library.add("blue sea")
    secret = library.add("red apple pie", conversation="secret talk", position=0, speaker="Eve")
    library.embed(EMBEDDER)
    shelve(library, cache)

    def traces() -> tuple[bool, bool, dict[str, int]]:
        counts = library.read(lambda unit: cache.find(unit, "default", ADA).frequencies(("pie", "sea")))
        strings = {one.casefold() for one in reachable(cache) if isinstance(one, str)}
        return "eve" in strings, "secret talk" in strings, counts

    before = traces()
    library.write(lambda unit: unit.operations.forget("default", ADA, Selector(memory=secret.id), at=500.0))
    assert (before, traces()) == ((True, True, {"pie": 1, "sea": 1}), (False, False, {"sea": 1}))


def test_more_changes_than_a_question_should_wait_for_are_left_to_the_builder(library, cache, monkeypatch):
    """L1: after an import, recall goes on without the searcher until that has caught up."""
    monkeypatch.setattr(space_index_module, "CHANGES_MAX", 3)
    monkeypatch.setattr(space_index_module.SpaceIndex.update, "__kwdefaults__", {"changed_max": 3})
    library.add("blue sea")
    shelve(library, cache)
    library.add_all([f"red apple {number}" for number in range(8)])
    assert not find(library, cache)
    assert build(library, cache)
    assert len(ask(library, cache, "red apple")) == 9


def test_a_space_that_was_emptied_is_let_go(library, cache):
    """M2: neither what was in it nor its name stays."""
    library.add("red apple pie")
    library.embed(EMBEDDER)
    assert find(library, cache)
    assert cache.size_bytes > 0
    library.write(lambda unit: unit.operations.forget("default", ADA, Selector(everything=True), at=500.0))
    assert not find(library, cache)
    assert (spaces_in_memory(cache), cache.size_bytes) == (set(), 0)


def test_a_shelf_that_was_built_meanwhile_stays(library, cache):
    """L6: as new as the store: a question that began before it was there does not put an older copy in its place."""
    library.add("red apple pie")
    library.embed(EMBEDDER)

    place = SpaceKey("default", ADA)

    def slow(unit):
        older = build_at_once(unit, place, BuildPlan(EMBEDDER.identity, find_stats(unit, place)))
        library.add("blue sea")
        assert find(library, cache)
        newer = cache._spaces[place]
        cache._keep(older)
        return older, newer

    older, newer = library.read(slow)
    assert cache._spaces[place] is newer
    assert (older.snapshot.alive_count, newer.snapshot.alive_count) == (1, 2)


def test_room_is_made_before_a_shelf_is_built(library, monkeypatch):
    """L6: what is built anew is not in memory twice at the cost of the bound."""
    monkeypatch.setattr(space_index_module, "_REBUILD_MIN", 4)
    entries = library.add_all([f"red apple {number}" for number in range(60)])
    library.embed(EMBEDDER)
    cache = IndexCache(EMBEDDER.identity, 16 * MEGABYTE)
    shelve(library, cache)
    bound = IndexCache(EMBEDDER.identity, cache.size_bytes * 3 // 2)
    shelve(library, bound)
    for entry in entries[:20]:
        library.delete(entry)
    assert find(library, bound)
    sizes = []

    class Watched(Reading):
        async def read(self, work, *, at):
            sizes.append(bound.size_bytes)
            return await super().read(work, at=at)

    asyncio.run(bound.build_next(Watched(library)))
    assert (sizes[0] > 0, sizes[-1]) == (True, 0)
    assert find(library, bound)


def test_a_space_that_grows_while_it_is_read_is_read_again(library, cache, monkeypatch):
    """L6: as new as the store: an import may be faster than the builder, which begins anew with what is there then."""
    monkeypatch.setattr(space_index_module, "form_for", lambda rows: PostingForm(4 if rows < 20 else 12))
    monkeypatch.setattr(cache_module, "AT_ONCE_ROWS_MAX", 0)
    monkeypatch.setattr(space_index_module, "PAGE_ROWS", 4)
    library.add_all([f"red apple {number}" for number in range(5)])
    for _ in range(2):
        find(library, cache)
    pages = []

    class Growing(Reading):
        async def read(self, work, *, at):
            if len(pages) == 1:
                library.add_all([f"red apple {number}" for number in range(5, 30)])
            pages.append(work)
            return await super().read(work, at=at)

    growing = Growing(library)
    found = [build_from(growing, cache), find(library, cache)]
    found += [build_from(growing, cache), find(library, cache)]
    assert found == [True, False, True, True]
    assert len(ask(library, cache, "red apple")) == 30


def test_two_embedders_never_meet(library, cache):
    """M3: vectors of another identity are not compared."""
    library.add("red apple pie")
    library.embed(HashingEmbedder(32))
    shelve(library, cache)
    assert not library.read(lambda unit: cache.find(unit, "default", ADA).complete)


def test_memory_is_bounded_over_all_spaces(library):
    """L6: what had to go comes back when it is asked for."""
    spaces = [f"user:u{number}" for number in range(6)]
    for space in spaces:
        library.add_all([f"red apple {word}" for word in ("one", "two", "three")], space=space)
        library.embed(EMBEDDER, space=space)
    cache = IndexCache(EMBEDDER.identity, 60_000)
    for space in [*spaces, spaces[0]]:
        shelve(library, cache, space)
        assert len(ask(library, cache, "red apple", space=space)) == 3
        assert 0 < cache.size_bytes <= 60_000
    assert len(in_memory(cache)) < len(spaces)


def test_the_space_unused_for_longest_goes_first(library):
    """L6: which spaces are in memory is decided by their use, not by when they came there."""
    for space in "abcd":
        library.add_all(["red apple pie", "blue sea"], space=f"user:{space}")
        library.embed(EMBEDDER, space=f"user:{space}")
    alone = IndexCache(EMBEDDER.identity, MEGABYTE)
    shelve(library, alone, "user:a")
    cache = IndexCache(EMBEDDER.identity, alone.size_bytes * 7 // 2)
    for space in "abc":
        shelve(library, cache, f"user:{space}")
    before = spaces_in_memory(cache)
    assert find(library, cache, "user:a")
    shelve(library, cache, "user:d")
    after = spaces_in_memory(cache)
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
    cache = IndexCache(EMBEDDER.identity, bytes_max)
    shelve(library, cache)
    before = cache.has_queued
    library.add_all([f"red apple {number}" for number in range(60, 120)])
    library.embed(EMBEDDER)
    assert find(library, cache)
    after = cache.has_queued
    assert (before, after) == (False, True)
    assert build(library, cache)
    assert 0 < cache.size_bytes <= bytes_max
    assert len(ask(library, cache, "red apple")) == 100


def test_a_space_too_large_for_any_shelf_is_not_tried_again_until_it_shrinks(library):
    """L6: no time is spent on what can not be."""
    entries = library.add_all([f"red apple {number}" for number in range(40)])
    cache = IndexCache(EMBEDDER.identity, 4_000)
    for _ in range(2):
        find(library, cache)
    tried = [build(library, cache)]
    for _ in range(3):
        find(library, cache)
    tried.append(build(library, cache))
    for entry in entries[:39]:
        library.delete(entry)
    find(library, cache)
    tried.append(build(library, cache))
    assert tried == [True, False, True]


def test_a_restored_store_is_indexed_anew(library, cache, tmp_path):
    """M4: another generation means another content, whatever the sequence numbers say."""
    library.add("red apple pie")
    library.backup(tmp_path / "copy.db")
    library.add("red apple tart")
    shelve(library, cache)
    assert len(ask(library, cache, "red apple")) == 2
    library.restore(tmp_path / "copy.db")
    library.add("deep blue sea")
    assert not find(library, cache)
    shelve(library, cache)
    assert ask(library, cache, "red apple") == ["red appl pie", "deep blue sea"]


def test_an_older_snapshot_meets_a_newer_shelf(library, cache):
    """L6: a reader that began earlier gets what its snapshot holds, and the next one what is there now."""
    library.add("red apple pie")
    shelve(library, cache)

    def older(unit):
        unit.index.stats(Scope("default", (ADA,)))
        library.add("red apple tart")
        assert len(ask(library, cache, "red apple")) == 2
        searcher = cache.find(unit, "default", ADA)
        keys = [
            one.key
            for one in searcher.search(
                read_query(unit.index, Scope("default", (ADA,)), *read_words("apple")), None
            ).best(None, None, 9)
        ]
        return len(unit.index.entries("default", ADA, keys=keys, limit=9))

    assert library.read(older) == 1
    assert len(ask(library, cache, "red apple")) == 2


def test_threads_share_a_shelf(library, cache):
    """L6: every thread ranks whole rows, whatever the others add and remove meanwhile."""
    entries = library.add_all([f"red apple {number}" for number in range(60)], conversation="c1")
    library.embed(EMBEDDER)
    shelve(library, cache)
    wrong: list[object] = []

    def look() -> None:
        for _ in range(30):
            found = ask(library, cache, "red apple", lane=Lane.EPISODIC)
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


def test_a_worn_shelf_is_built_anew(library, cache, monkeypatch):
    """L6: rows that are dead or came late do not pile up."""
    monkeypatch.setattr(space_index_module, "_REBUILD_MIN", 4)
    entries = library.add_all([f"red apple {number}" for number in range(12)])
    shelve(library, cache)
    for entry in entries[:6]:
        library.delete(entry)
    assert find(library, cache)
    before = cache.size_bytes
    assert build(library, cache)
    assert cache.size_bytes < before
    assert (len(ask(library, cache, "red apple")), build(library, cache)) == (6, False)


def test_without_an_embedder_words_decide(library):
    """L6: a searcher needs no vectors."""
    cache = IndexCache(None, MEGABYTE)
    library.add_all(["red apple pie", "blue sea"])
    shelve(library, cache)
    assert ask(library, cache, "blue sea")[0] == "blue sea"


@pytest.mark.parametrize("missing, complete", [(64, True), (65, False)])
def test_up_to_sixty_four_may_wait_for_their_vectors(library, cache, missing, complete):
    """L1: a turn at most that was just recorded; more is a backlog, and said."""
    library.add_all([f"red apple {number}" for number in range(200 - missing)])
    library.embed(EMBEDDER)
    library.add_all([f"blue sea {number}" for number in range(missing)])
    assert library.read(lambda unit: cache.find(unit, "default", ADA).complete) is complete


def test_tool_outputs_take_no_place_of_others(library):
    """C6: they match better and are many, but an index returns none of them, and is complete without their vectors."""
    library.add_all([f"the apple pie number {number} is red" for number in range(4)])
    for number in range(300):
        library.add(f"red apple {number}", conversation="talk", position=number, origin=Origin.TOOL)
    library.embed(EMBEDDER)
    cache = IndexCache(EMBEDDER.identity, 16 * MEGABYTE)
    shelve(library, cache)
    for lane in (None, Lane.LONG_TERM):
        assert len(ask(library, cache, "red apple", lane=lane)) == 4
    assert ask(library, cache, "red apple", lane=Lane.EPISODIC) == []
    assert library.read(lambda unit: cache.find(unit, "default", ADA)).complete


class Noticed(Reading):
    def __init__(self, library) -> None:
        super().__init__(library)
        self.was_read = asyncio.Event()

    async def read(self, work, *, at):
        try:
            return await super().read(work, at=at)
        finally:
            self.was_read.set()


async def test_a_space_is_updated_before_the_next_question(library):
    """L6: what was written after a turn is in the index before anybody asks."""
    library.add("red apple pie")
    cache = IndexCache(None, 16 * MEGABYTE)
    shelve(library, cache)
    library.add("green apple pie")
    store = Noticed(library)
    builder = asyncio.create_task(cache.run_builder(store))
    cache.note_changes("default", ADA)
    await asyncio.wait_for(store.was_read.wait(), 100)
    builder.cancel()
    [space_index] = in_memory(cache)
    assert space_index.snapshot.alive_count == 2


async def test_the_growth_of_a_space_that_nobody_asks_is_bounded(library):
    """L6: an index that is updated in the background counts with its new size, and leaves if it is too large."""
    library.add("red apple pie")
    cache = IndexCache(None, 64 * 1024)
    shelve(library, cache)
    for number in range(1000):
        library.add(f"apple pie number {number} for guest {number}")
    store = Noticed(library)
    builder = asyncio.create_task(cache.run_builder(store))
    cache.note_changes("default", ADA)
    await asyncio.wait_for(store.was_read.wait(), 100)
    builder.cancel()
    assert in_memory(cache) == []
    assert cache.size_bytes == 0

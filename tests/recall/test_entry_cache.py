"""Entries that stay in memory beside a searcher: the same as the store would give, level with it, and bounded."""

import asyncio
import tracemalloc
from types import SimpleNamespace

import pytest
from asking import ADA, BYTES_MAX, Behind, indexed, request, texts
from fake_index import reachable
from hypothesis import given
from hypothesis import strategies as st
from library import Library

from afterturn.recall.features import features_of
from afterturn.recall.index.cache import IndexCache
from afterturn.recall.index.space_index import CACHE_BYTES_MIN, CACHE_SHARE, EntryCache, SpaceIndex
from afterturn.recall.query import admits, is_decidable
from afterturn.recall.search import search
from afterturn.testing.entries import admit, entry, operation
from afterturn.types import Entry, Filter, Kind, Lane, LaneQuery, Origin, Scope, Selector

EVERYTHING = LaneQuery(ADA, 150.0, evidence=True)


@pytest.fixture(scope="module")
def stacks(tmp_path_factory) -> Library:
    """Entries of every kind that a query tells apart."""
    library = Library(tmp_path_factory.mktemp("stacks") / "store.db")
    said = [
        library.add(
            f"said {at} in {conversation} of {owner}", conversation=conversation, owner=owner, position=at, at=at
        )
        for at in (100.0, 140.0)
        for conversation in ("c1", "c2")
        for owner in (None, "user:bob")
    ]
    for origin in Origin:
        library.add(f"told by {origin}", conversation="c3", position=0, origin=origin, owner=f"user:{origin}")
        library.add(f"stated by {origin}", origin=origin)
    library.add("expired", expires_at=120.0)
    library.add("expires", expires_at=180.0)
    library.add("not yet", valid_from=160.0)
    library.add("no more", valid_to=140.0)
    for one in said:
        library.add(f"learned from {one.text}", sources=(one.id,))
    library.add("learned from all", sources=tuple(one.id for one in said))
    library.add("learned elsewhere", sources=("nowhere",))
    return library


def entries_of(library, query: LaneQuery) -> dict[int, Entry]:
    def work(unit):
        keys = unit.index.newest("default", "user:ada", limit=1000)
        return unit.index.resolve(query, keys)

    return library.read(work)


@st.composite
def queries(draw: st.DrawFn, library) -> LaneQuery:
    entries = list(entries_of(library, EVERYTHING).values())
    chosen = st.lists(st.sampled_from(entries), max_size=6)
    return LaneQuery(
        ADA,
        draw(st.sampled_from((110.0, 120.0, 140.0, 150.0, 160.0, 180.0, 200.0))),
        lane=draw(st.sampled_from((*Lane, None))),
        conversation=draw(st.sampled_from((None, "c1", "c3"))),
        owner=draw(st.sampled_from((None, "user:ada", "user:bob"))),
        excluded_refs=frozenset(one.ref for one in draw(chosen)),
        visible_hashes=frozenset(one.content_hash for one in draw(chosen)),
        seen_since=draw(st.sampled_from((None, 90.0, 100.0, 120.0))),
        filter=draw(st.sampled_from((Filter(), Filter(kind=Kind.RECORD), Filter(conversation="c1")))),
        evidence=draw(st.booleans()),
    )


@given(data=st.data())
def test_memory_admits_what_the_store_does(stacks, data):
    """L1, L2, L3, L7, L9: for every query, of every entry; or it says that only the store can tell."""
    query = data.draw(queries(stacks))
    admitted = entries_of(stacks, query)
    everything = {
        key: one
        for now in (110.0, 150.0, 170.0)
        for key, one in entries_of(stacks, EVERYTHING._replace(now=now)).items()
    }
    if not is_decidable(query):
        assert query.filter != Filter()
        return
    for key, one in everything.items():
        told = admits(query, one)
        if told is None:
            assert one.sources
            assert query.visible_hashes or query.seen_since is not None
        else:
            assert told == (key in admitted)


class Counting:
    """A unit that counts which entries are read."""

    def __init__(self, unit) -> None:
        self._unit = unit
        self.read: list[int] = []
        self.index = self

    def resolve(self, query, keys, **options):
        self.read += keys
        return self._unit.index.resolve(query, keys, **options)

    def __getattr__(self, name):
        return getattr(self._unit.index if hasattr(self._unit.index, name) else self._unit, name)


def ask(library, cache: IndexCache, text: str, **fields) -> tuple[list[str], int]:
    """What is found, and how many entries had to be read for it."""

    def work(unit):
        counting = Counting(unit)
        found = search(counting, request(text, score_min=0.0, **fields), cache)
        return texts(found), len(counting.read)

    return library.read(work)


def test_what_was_read_for_an_answer_is_not_read_again(library):
    """L6: the second answer is the same, and no entry is read for it."""
    library.add_all(["red apple pie", "red apple tart", "blue apple"])
    cache = indexed(library, ADA)
    first = ask(library, cache, "red apple")
    assert first == (["red apple tart", "red apple pie", "blue apple"], 3)
    assert ask(library, cache, "red apple") == (first[0], 0)
    library.add("red apple juice")
    assert ask(library, cache, "red apple") == (["red apple juice", *first[0]], 1)


def test_what_ended_meanwhile_is_not_given_from_memory(library):
    """L7: time passes without a change in the store."""
    library.add("red apple pie", expires_at=500.0)
    library.add("red apple tart")
    cache = indexed(library, ADA)
    assert len(ask(library, cache, "red apple", now=499.0)[0]) == 2
    assert ask(library, cache, "red apple", now=500.0) == (["red apple tart"], 0)


def space_indexes_of(cache: IndexCache) -> list[SpaceIndex]:
    return [one for one in reachable(cache) if isinstance(one, SpaceIndex)]


def texts_in_memory(cache: IndexCache) -> set[str]:
    return {one.text for one in reachable(cache) if isinstance(one, Entry)}


def test_what_was_forgotten_is_in_memory_no_more(library):
    """M2: neither answered nor kept, once anybody looks."""
    pie = library.add("red apple pie")
    library.add("blue apple")
    cache = indexed(library, ADA)
    ask(library, cache, "red apple")
    before = texts_in_memory(cache)
    library.write(lambda unit: unit.operations.forget("default", "user:ada", Selector(memory=pie.id), at=500.0))
    found = ask(library, cache, "red apple")
    assert (before, found) == ({"red apple pie", "blue apple"}, (["blue apple"], 0))
    assert texts_in_memory(cache) == {"blue apple"}


@pytest.mark.parametrize("conversation", ["c1", None])
def test_what_rests_on_something_else_is_read_anew(library, conversation):
    """M2: a statement's sources, messages or statements, are forgotten one by one, while its text stays."""
    said = [library.add(f"yes {number}", conversation=conversation, position=number) for number in range(3)]
    library.add("red apple pie", sources=(said[0].id, said[1].id))
    cache = indexed(library, ADA)

    def sources() -> tuple[str, ...]:
        found = library.read(lambda unit: search(unit, request("red apple", score_min=0.0), cache))
        return found.hits[0].entry.sources

    seen = [sources(), sources()]
    library.add("red apple pie", sources=(said[2].id,))
    seen.append(sources())
    library.write(lambda unit: unit.operations.forget("default", "user:ada", Selector(memory=said[0].id), at=500.0))
    first, second, third = (one.id for one in said)
    assert [*seen, sources()] == [(first, second), (first, second), (first, second, third), (second, third)]


def test_nobody_is_told_of_what_another_tenant_forgets(library):
    """M2, L2: ids are a tenant's own, so what rests on the same id elsewhere stays as it was."""
    said = [library.add(f"yes {number}", conversation="c1", position=number) for number in range(2)]
    places = [("default", "user:ada"), ("default", "user:bob"), ("other", "user:ada")]

    def learn(unit):
        for tenant, space in places:
            step = operation(tenant=tenant, space=space)
            unit.memories.add(step, admit("red apple pie", sources=tuple(one.id for one in said)))

    def changes(*since: int):
        return library.read(
            lambda unit: [unit.index.changes(*at, since=seq) for at, seq in zip(places, since, strict=True)]
        )

    library.write(learn)
    before = [one.seq for one in changes(0, 0, 0)]
    library.write(lambda unit: unit.operations.forget("default", "user:ada", Selector(memory=said[0].id), at=500.0))
    assert [len(one.keys) for one in changes(*before)] == [2, 1, 0]


@pytest.mark.parametrize("is_forgotten", [True, False])
def test_what_an_older_snapshot_reads_is_not_kept(library, is_forgotten):
    """M2: a reader that began before something was forgotten must not bring it back, nor be told what came since."""
    pie = library.add("red apple pie")
    cache = indexed(library, ADA)

    def older(unit):
        unit.index.stats(ADA)
        if is_forgotten:
            library.write(lambda unit: unit.operations.forget("default", "user:ada", Selector(memory=pie.id), at=500.0))
        library.add("red apple tart")
        now = ask(library, cache, "red apple")[0]
        return now, texts(search(unit, request("red apple", score_min=0.0), cache))

    now, then = library.read(older)
    assert now == ["red apple tart"] if is_forgotten else ["red apple tart", "red apple pie"]
    assert "red apple tart" not in then
    assert texts_in_memory(cache) == set(now)


def test_what_is_forgotten_while_it_is_read_is_not_kept(library):
    """M2: between reading an entry and keeping it, another reader may have dropped it."""
    pie = library.add("red apple pie")
    library.add("blue apple")
    cache = indexed(library, ADA)

    class Overtaken(Counting):
        def resolve(self, query, keys, **options):
            found = super().resolve(query, keys, **options)
            library.write(lambda unit: unit.operations.forget("default", "user:ada", Selector(memory=pie.id), at=500.0))
            assert ask(library, cache, "red apple")[0] == ["blue apple"]
            return found

    began_before = library.read(lambda unit: search(Overtaken(unit), request("red apple", score_min=0.0), cache))  # type: ignore[arg-type]
    assert texts(began_before) == ["red apple pie", "blue apple"]
    assert texts_in_memory(cache) == {"blue apple"}


def test_a_shelf_that_is_too_far_behind_keeps_no_text(library, monkeypatch):
    """M2: who brings it up to date may take a while, and what was forgotten must not wait for that."""
    pie = library.add("red apple pie")
    cache = indexed(library, ADA)
    ask(library, cache, "red apple")
    library.write(lambda unit: unit.operations.forget("default", "user:ada", Selector(memory=pie.id), at=500.0))
    library.add_all(["red apple tart", "blue sea"])
    monkeypatch.setattr(SpaceIndex.update, "__kwdefaults__", {"changed_max": 1})
    before = texts_in_memory(cache)
    assert "red apple pie" not in ask(library, cache, "red apple")[0]
    assert (before, texts_in_memory(cache)) == ({"red apple pie"}, set())


def test_catching_up_leaves_nothing_that_was_put_back_on_the_way(library):
    """M2: a reader may come between two pages of many changes."""
    library.add("red apple pie")
    cache = indexed(library, ADA)
    ask(library, cache, "red apple")
    [space_index] = space_indexes_of(cache)
    space_index.advance(SimpleNamespace(seq=space_index.seq + 1))  # type: ignore[arg-type]
    assert texts_in_memory(cache) == set()


def test_entries_take_no_more_room_than_their_shelf_and_drive_out_no_other(library):
    """L6: within the one bound over all spaces, those unused for longest go first."""
    spaces = [f"user:u{number}" for number in range(3)]
    for space in spaces:
        library.add_all([f"red apple {number} " + "pie " * 100 for number in range(30)], space=space)
    scope = Scope("default", tuple(spaces))
    alone_bytes = filled(library, scope, BYTES_MAX).size_bytes
    cache = filled(library, scope, alone_bytes + 60_000)
    for number in range(60):
        ask(library, cache, f"red apple {number % 30}", scope=Scope("default", (spaces[number % 3],)), limit=5)
        assert cache.size_bytes <= alone_bytes + 60_000
        stocks = space_indexes_of(cache)
        assert len(stocks) == 3
        for space_index in stocks:
            assert space_index.size_bytes - space_index.index_bytes <= max(
                CACHE_SHARE * space_index.index_bytes, CACHE_BYTES_MIN
            )
    assert texts_in_memory(cache)


def filled(library, scope: Scope, bytes_max: int) -> IndexCache:
    """By words alone: with every space of the scope, and no entries yet."""
    cache = IndexCache(None, bytes_max)
    for space in (*scope.spaces, *scope.spaces):
        library.read(lambda unit, space=space: cache.find(unit, scope.tenant, space))
    while asyncio.run(cache.build_next(Behind(library))):  # type: ignore[arg-type]
        pass
    return cache


def test_the_entry_unused_for_longest_goes_first_and_a_large_one_is_not_kept():
    """L6: a page must not drive out what is asked for every day."""
    kept = EntryCache()
    kept.put({key: entry(f"text {key}") for key in range(20)}, bytes_max=72_000)
    kept.find([0, 1])
    kept.put({20: entry("x" * 10_000), 21: entry("text 21")}, bytes_max=72_000)
    kept.put({key: entry(f"text {key}") for key in range(30, 50)}, bytes_max=72_000)
    found = kept.find(range(50))
    assert 0 < kept.size_bytes <= 72_000
    assert set(found) == {0, 1, 21, *range(30, 50)}


def compute_features(one: Entry) -> None:
    """All that a turn needs."""
    features = features_of(one)
    form = features.form
    assert features.line_tokens > 0
    assert form is None or all((form.impersonal, form.content, form.turned or form.breaks or form.names or form.steps))


def test_what_entries_take_is_counted(library):
    """L6: about as much as Python says, with everything that recall computes from them."""
    for number in range(200):
        library.add(
            f"red apple {number} " + " ".join(f"pie{at}" for at in range(number)),
            conversation=f"talk {number}",
            position=number,
            speaker="Ada",
        )
    keys = library.read(lambda unit: unit.index.newest("default", "user:ada", limit=1000))
    kept = EntryCache()
    library.read(lambda unit: unit.index.resolve(EVERYTHING, keys[:3]))
    tracemalloc.start()
    try:
        kept.put(entries_of(library, EVERYTHING), bytes_max=1 << 24)
        for one in kept.find(keys).values():
            compute_features(one)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken <= kept.size_bytes <= 1.5 * taken

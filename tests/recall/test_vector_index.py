"""Search by meaning on a real store, kept level with it."""

import threading

import numpy as np

from afterturn.base.types import Lane, LaneQuery, Scope, Selector
from afterturn.recall.vectors import VectorIndex
from afterturn.testing.hashing import HashingEmbedder

ADA = Scope("default", ("user:ada",))
EMBEDDER = HashingEmbedder()
MEGABYTE = 1 << 20


def nearest(library, index: VectorIndex, text: str, *, limit: int = 3, scope: Scope = ADA, **query) -> list[str]:
    def work(unit):
        similarities = index.compare(unit, scope, EMBEDDER.embed([text])[0])
        lane = LaneQuery(scope, 1000.0, **{"lane": Lane.LONG_TERM, **query})
        return similarities.nearest(lane, limit=limit, cosine_min=0.05)

    return [match.entry.text for match, _ in library.read(work)]


def test_the_nearest_come_first(library):
    """L6: exact cosines over the spaces of the scope."""
    library.add_all(["red apple pie", "red car", "blue sea"])
    library.embed(EMBEDDER)
    assert nearest(library, VectorIndex(EMBEDDER.identity, MEGABYTE), "red apple") == ["red apple pie", "red car"]


def test_what_was_committed_is_found_by_the_next_comparison(library):
    """M2, M3: the difference is applied inside the reader's own snapshot."""
    index = VectorIndex(EMBEDDER.identity, MEGABYTE)
    assert nearest(library, index, "red apple") == []
    pie = library.add("red apple pie")
    library.embed(EMBEDDER)
    assert nearest(library, index, "red apple") == ["red apple pie"]
    library.delete(pie)
    assert nearest(library, index, "red apple") == []


def test_forgotten_vectors_leave_memory(library):
    """M2: the rows of what was forgotten are blank before the next answer."""
    index = VectorIndex(EMBEDDER.identity, MEGABYTE)
    pie, _ = library.add_all(["red apple pie", "blue sea"])
    library.embed(EMBEDDER)
    nearest(library, index, "red apple")
    library.write(lambda unit: unit.operations.forget("default", "user:ada", Selector(memory=pie.id), at=500.0))
    nearest(library, index, "red apple")
    [space] = index._spaces.values()
    assert np.count_nonzero(space._matrix.any(axis=1)) == 1


def test_spaces_with_nothing_in_them_are_not_held(library):
    """M2: neither those that nobody ever wrote to, nor one that was forgotten."""
    index = VectorIndex(EMBEDDER.identity, MEGABYTE)
    library.add("red apple pie")
    library.embed(EMBEDDER)
    nearest(library, index, "red apple")
    library.write(lambda unit: unit.operations.forget("default", "user:ada", Selector(everything=True), at=500.0))
    assert nearest(library, index, "red apple", scope=Scope("default", ("user:ada", "user:nobody"))) == []
    assert (len(index._spaces), index.size_bytes) == (0, 0)


def test_spaces_without_vectors_count_too(library):
    """§13: however many spaces wait for their vectors, memory is bounded."""
    index = VectorIndex(EMBEDDER.identity, 8_000)
    for number in range(20):
        library.add("red apple pie", space=f"user:u{number}")
        nearest(library, index, "red apple", scope=Scope("default", (f"user:u{number}",)))
        assert index.size_bytes <= 8_000


def test_an_entry_without_a_vector_makes_the_answer_incomplete(library):
    """L1: until the last entry of every space has its vector, an answer says that some are missing."""
    index = VectorIndex(EMBEDDER.identity, MEGABYTE)
    both = Scope("default", ("user:ada", "team:a"))

    def is_complete() -> bool:
        return library.read(lambda unit: index.compare(unit, both, EMBEDDER.embed(["red apple"])[0]).complete)

    library.add("red apple pie")
    library.embed(EMBEDDER)
    library.add("red apple tart", space="team:a")
    before = is_complete()
    library.embed(EMBEDDER, space="team:a")
    assert (before, is_complete()) == (False, True)


def test_exclusions_are_passed_over_before_the_cut(library):
    """L3: A B C, then D E F, then G H, by meaning alone."""
    library.add_all([f"red apple {letter * 3}" for letter in "abcdefgh"])
    library.embed(EMBEDDER)
    index, shown = VectorIndex(EMBEDDER.identity, MEGABYTE), []
    sizes = []
    for _ in range(3):
        refs = library.read(
            lambda unit: [
                match.entry.ref
                for match, _ in index.compare(unit, ADA, EMBEDDER.embed(["red apple"])[0]).nearest(
                    LaneQuery(ADA, 1000.0, Lane.LONG_TERM, excluded_refs=frozenset(shown)), limit=3, cosine_min=0.05
                )
            ]
        )
        sizes.append(len(refs))
        shown.extend(refs)
    assert (sizes, len(set(shown))) == ([3, 3, 2], 8)


def test_a_filter_that_few_pass_is_searched_past_the_first_page(library):
    """L3: a page of better but filtered entries does not hide the one that passes."""
    library.add_all(["red apple"] * 90, conversation="c1")
    library.add("red apple tree by the river", project="garden")
    library.embed(EMBEDDER)
    index = VectorIndex(EMBEDDER.identity, MEGABYTE)
    assert nearest(library, index, "red apple", limit=1) == ["red apple tree by the river"]


def test_two_embedders_never_meet(library):
    """M3: vectors of another identity are not compared."""
    library.add("red apple pie")
    library.embed(HashingEmbedder(32))
    assert nearest(library, VectorIndex(EMBEDDER.identity, MEGABYTE), "red apple") == []


def test_memory_is_bounded_over_all_spaces(library):
    """§13: the space that was unused for longest goes first, and comes back when it is asked for."""
    spaces = [f"user:u{number}" for number in range(4)]
    for space in spaces:
        library.add_all([f"red apple {word}" for word in ("one", "two", "three")], space=space)
        library.embed(EMBEDDER, space=space)
    bytes_max = 130 * EMBEDDER.identity.dimensions * 4
    index = VectorIndex(EMBEDDER.identity, bytes_max)
    for space in [*spaces, spaces[0]]:
        assert len(nearest(library, index, "red apple", scope=Scope("default", (space,)))) == 3
        assert index.size_bytes <= bytes_max


def test_a_space_that_does_not_fit_keeps_its_newest_and_says_so(library):
    """L1: an answer from part of the vectors is marked as such."""
    library.add_all([f"red apple {number}" for number in range(40)])
    library.embed(EMBEDDER)
    index = VectorIndex(EMBEDDER.identity, 16 * EMBEDDER.identity.dimensions * 4)
    found = library.read(lambda unit: index.compare(unit, ADA, EMBEDDER.embed(["red apple"])[0]))
    assert not found.complete
    assert "red apple 39" in nearest(library, index, "red apple 39", limit=1)


def test_later_vectors_of_a_full_space_push_out_the_oldest(library):
    """L1: what was said last can be found by meaning however large the space has grown."""
    index = VectorIndex(EMBEDDER.identity, 16 * EMBEDDER.identity.dimensions * 4)
    for number in range(40):
        library.add(f"red apple {number}")
        library.embed(EMBEDDER)
        nearest(library, index, "red apple")
    assert nearest(library, index, "red apple 39", limit=1) == ["red apple 39"]


def test_a_restored_store_is_read_anew(library, tmp_path):
    """M4: another generation means another content, whatever the sequence numbers say."""
    index = VectorIndex(EMBEDDER.identity, MEGABYTE)
    library.add("red apple pie")
    library.embed(EMBEDDER)
    library.backup(tmp_path / "copy.db")
    library.add("red apple tart")
    library.embed(EMBEDDER)
    assert len(nearest(library, index, "red apple")) == 2
    library.restore(tmp_path / "copy.db")
    library.add("deep blue sea")
    library.embed(EMBEDDER)
    assert nearest(library, index, "red apple") == ["red apple pie"]
    assert nearest(library, index, "blue sea") == ["deep blue sea"]


def test_an_older_snapshot_meets_a_newer_matrix(library):
    """§13: a reader that began earlier gets what its snapshot holds, and the next one what is there now."""
    index = VectorIndex(EMBEDDER.identity, MEGABYTE)
    library.add("red apple pie")
    library.embed(EMBEDDER)
    nearest(library, index, "red apple")

    def older(unit):
        unit.index.extents(ADA)
        library.add("red apple tart")
        library.embed(EMBEDDER)
        assert len(nearest(library, index, "red apple")) == 2
        found = index.compare(unit, ADA, EMBEDDER.embed(["red apple"])[0])
        return [match.entry.text for match, _ in found.nearest(LaneQuery(ADA, 1000.0), limit=5, cosine_min=0.05)]

    assert library.read(older) == ["red apple pie"]
    assert len(nearest(library, index, "red apple")) == 2


def test_threads_share_one_index(library):
    """§13: every thread sees whole rows, whatever the others add and remove meanwhile."""
    index = VectorIndex(EMBEDDER.identity, MEGABYTE)
    entries = library.add_all([f"red apple {number}" for number in range(30)])
    library.embed(EMBEDDER)
    wrong: list[object] = []

    def look() -> None:
        for _ in range(20):
            cosines = library.read(lambda unit: index.compare(unit, ADA, EMBEDDER.embed(["red apple"])[0])._cosines)
            if not np.all((cosines > 0.3) & (cosines < 1.01)):
                wrong.append(cosines)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for entry in entries[:15]:
        library.delete(entry)
    for thread in threads:
        thread.join()
    assert not wrong

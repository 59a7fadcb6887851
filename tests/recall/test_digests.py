"""Small spaces that were saved come to memory at their first question, on a real store."""

import asyncio
from dataclasses import replace

import apsw
import pytest
from library import Library
from test_recall_at_work import Built
from test_shelves import ADA, EMBEDDER, MEGABYTE, Reading, ask, find, shelve

import afterturn
from afterturn.base.types import Job, JobKind, Scope, Selector, new_job
from afterturn.recall import assembly as assembly_module
from afterturn.recall import digests as digests_module
from afterturn.recall import shelves as shelves_module
from afterturn.recall import stock as stock_module
from afterturn.recall.digesting import Digesting
from afterturn.recall.digests import DIGESTED_MIN, is_due
from afterturn.recall.shelves import Shelves

WITHIN = 20.0


class Counting:
    """Ids, one after the other."""

    def __init__(self) -> None:
        self._count = 0

    def new(self) -> str:
        self._count += 1
        return f"job{self._count}"


def digesting(library) -> Digesting:
    return Digesting(Reading(library), Counting())


def job(space: str = ADA) -> Job:
    return new_job(JobKind.DIGEST, "1", "default", space, 0.0)


def save(library) -> None:
    """As the job does that a space's last vectors leave behind."""
    library.write(asyncio.run(digesting(library).handle(job())))


def saved_seq(library) -> int | None:
    digest = library.read(lambda unit: unit.digests.find("default", ADA))
    return None if digest is None else digest.seq


def waiting(library) -> list[str]:
    return [one.kind for one in library.read(lambda unit: unit.jobs.page("default"))]


@pytest.fixture
def shelves() -> Shelves:
    return Shelves(EMBEDDER.identity, 16 * MEGABYTE)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A space of two is worth saving."""
    monkeypatch.setattr(digests_module, "DIGESTED_MIN", 2)


def test_a_saved_space_is_in_memory_at_its_first_question(library, shelves):
    """L6: nobody asks twice, and nothing is built."""
    library.add_all(["red apple pie", "blue sea"])
    library.embed(EMBEDDER)
    save(library)
    assert find(library, shelves)
    assert not shelves.is_wanted
    assert ask(library, shelves, "apple")[0] == "red appl pie"


def test_what_came_since_is_there_too(library, shelves):
    """L6: as new as the store: added, deleted, embedded after it was saved."""
    library.add_all(["red apple pie", "blue sea"])
    library.embed(EMBEDDER)
    save(library)
    library.delete(library.add("green apple tart"))
    library.add("yellow apple juice")
    library.embed(EMBEDDER)
    assert sorted(ask(library, shelves, "apple")) == ["blue sea", "red appl pie", "yellow appl juic"]


def test_a_digest_too_far_behind_is_passed_over(library, shelves, monkeypatch):
    """L6: reading many changes would take longer than reading the space by other means."""
    library.add_all(["red apple pie", "blue sea"])
    save(library)
    monkeypatch.setattr(digests_module, "FOLLOWED_MAX", 1)
    library.add_all(["green apple tart", "yellow apple juice"])
    assert not find(library, shelves)


def test_a_large_space_is_left_to_the_builder(library, shelves, monkeypatch):
    """L6, H3: its vectors take longer to read than a turn waits."""
    library.add_all(["red apple pie", "blue sea"])
    save(library)
    monkeypatch.setattr(shelves_module, "AT_ONCE_ROWS_MAX", 1)
    assert not find(library, shelves)


def test_what_does_not_fit_is_not_loaded(library):
    """L6: one setting bounds what is in memory, however it came there."""
    library.add_all(["red apple pie", "blue sea"])
    library.embed(EMBEDDER)
    save(library)
    bound = Shelves(EMBEDDER.identity, 1000)
    assert not find(library, bound)
    assert bound.size_bytes <= 1000


def test_forgotten_words_do_not_come_back(library, shelves):
    """M2: nor does anything else of it, to who asks first afterwards."""
    _, gone = library.add_all(["red apple pie", "green apple tart"])
    library.embed(EMBEDDER)
    save(library)
    library.write(lambda unit: unit.operations.forget("default", ADA, Selector(memory=gone.id), at=300.0))
    assert saved_seq(library) is None
    assert not find(library, shelves)
    shelve(library, shelves)
    assert ask(library, shelves, "apple") == ["red appl pie"]


def test_one_that_a_forget_overtakes_is_made_again(library, few):
    """M2: what it was made of was read before."""
    _, gone, _ = library.add_all(["red apple pie", "green apple tart", "blue sea"])
    commit = asyncio.run(digesting(library).handle(job()))
    library.write(lambda unit: unit.operations.forget("default", ADA, Selector(memory=gone.id), at=300.0))
    library.write(commit)
    assert (saved_seq(library), waiting(library)) == (None, [JobKind.DIGEST])


def test_what_is_forgotten_while_it_is_read_is_not_in_it(library, few):
    """M2: the moment is noted before anything of the space is read."""
    _, gone, _ = library.add_all(["red apple pie", "green apple tart", "blue sea"])

    class Forgetting(Reading):
        reads = 0

        async def read(self, work):
            found = await super().read(work)
            self.reads += 1
            if self.reads == 2:
                library.write(lambda unit: unit.operations.forget("default", ADA, Selector(memory=gone.id), at=300.0))
            return found

    library.write(asyncio.run(Digesting(Forgetting(library), Counting()).handle(job())))
    assert (saved_seq(library), waiting(library)) == (None, [JobKind.DIGEST])


def test_a_worn_shelf_is_not_gone_on_from(library, monkeypatch):
    """L6: it is read row by row, and so put in place."""
    library.add_all(["red apple pie", "blue sea"])
    save(library)
    library.add("green apple tart")
    monkeypatch.setattr(stock_module, "_WORN_MIN", 0)
    reads = []
    read = assembly_module.Assembly.read
    monkeypatch.setattr(assembly_module.Assembly, "read", lambda *parts: reads.append(1) or read(*parts))
    save(library)
    assert reads == [1]


def test_a_restored_store_has_its_own(library, shelves, tmp_path):
    """L6: a digest belongs to the changes that it was made from."""
    library.add_all(["red apple pie", "blue sea"])
    library.embed(EMBEDDER)
    save(library)
    library.backup(tmp_path / "backup.db")
    library.add("green apple tart")
    library.embed(EMBEDDER)
    save(library)
    library.restore(tmp_path / "backup.db")
    assert sorted(ask(library, shelves, "apple")) == ["blue sea", "red appl pie"]


def test_it_is_due_when_a_space_is_large_enough_and_has_moved_on(library, monkeypatch):
    """L6: few entries need none, and a few changes are read with the question."""

    def due() -> bool:
        return library.read(lambda unit: is_due(unit, "default", ADA))

    library.add_all([f"note {number}" for number in range(DIGESTED_MIN - 1)])
    found = [due()]
    library.add("one more")
    found.append(due())
    save(library)
    found.append(due())
    library.add("and another")
    found.append(due())
    monkeypatch.setattr(digests_module, "BEHIND_MAX", 0)
    found.append(due())
    library.add_all([f"note {number} of many" for number in range(9)])
    found.append(due())
    save(library)
    found.append(due())
    assert found == [False, True, False, False, False, True, False]


def test_an_empty_space_has_none(library):
    """L6: a job that comes too late does nothing."""
    library.delete(library.add("red apple pie"))
    save(library)
    assert saved_seq(library) is None


def test_saving_goes_on_from_what_was_saved(library, monkeypatch):
    """L6: of a space that has moved on a little, only that is read."""
    library.add_all(["red apple pie", "blue sea"])
    save(library)
    library.add("green apple tart")

    def never(*_):
        raise AssertionError("the space was read row by row")

    monkeypatch.setattr(assembly_module.Assembly, "read", never)
    save(library)
    assert saved_seq(library) == library.read(lambda unit: unit.index.extents(Scope("default", (ADA,)))[ADA].seq)


def test_a_space_that_shrank_is_loaded_too(library, shelves, caplog):
    """L6: more rows were saved than there are entries now."""
    entries = library.add_all([f"jar {number} of honey" for number in range(80)])
    library.embed(EMBEDDER)
    save(library)
    for entry in entries[:50]:
        library.delete(entry)
    assert find(library, shelves)
    assert len(ask(library, shelves, "honey")) == 30
    assert not caplog.records


@pytest.mark.parametrize("broken", [{"data": b"nothing"}, {"form": 0}])
def test_a_digest_that_can_not_be_read_is_made_anew(library, few, broken):
    """L6: it is due, and the job does not go on from it."""
    library.add_all(["red apple pie", "blue sea"])
    save(library)
    whole = library.read(lambda unit: unit.digests.find("default", ADA))
    damaged = replace(whole, **broken)
    library.write(lambda unit: unit.digests.put("default", ADA, damaged, begun=unit.digests.moment()))
    assert library.read(lambda unit: is_due(unit, "default", ADA))
    save(library)
    assert library.read(lambda unit: unit.digests.find("default", ADA)) == whole


def test_a_space_that_outgrew_its_digest_keeps_none(library, few, monkeypatch):
    """L6: nobody would read it."""
    library.add_all(["red apple pie", "blue sea"])
    save(library)
    monkeypatch.setattr(digests_module, "AT_ONCE_ROWS_MAX", 1)
    library.write(lambda unit: digesting(library).want(unit, "default", ADA, 0.0))
    assert (saved_seq(library), waiting(library)) == (None, [])


def test_an_older_version_that_forgets_takes_it_away(library, tmp_path):
    """M2: one that has the store open, and knows of no digests."""
    entry = library.add("red apple pie")
    save(library)
    older = apsw.Connection(str(tmp_path / "memory.db"))
    older.execute("DELETE FROM entry WHERE id = ?", (entry.id,))
    older.close()
    assert saved_seq(library) is None


async def test_the_first_question_of_another_process_has_vectors(tmp_path, few, monkeypatch):
    """L6, M3: written by one, asked of another; what it answers is what the first one would have."""
    path = tmp_path / "memory.db"
    facts = ["I keep bees in the orchard", "My sister plays the cello", "The boat is moored at the northern harbour"]
    async with afterturn.open(path, parts=afterturn.Parts(embedder=EMBEDDER)) as memory:
        assert await memory.ready(within=WITHIN)
        await memory.space(ADA).add_many([afterturn.Draft(fact) for fact in facts])
        assert await memory.drain(within=WITHIN)
        expected = await memory.space(ADA).search("where is the boat moored?")
    loaded: list[bool] = []

    def loading(*parts):
        stock = digests_module.load_digest(*parts)
        loaded.append(stock is not None)
        return stock

    monkeypatch.setattr(shelves_module, "load_digest", loading)
    async with afterturn.open(path, parts=afterturn.Parts(embedder=EMBEDDER)) as memory:
        assert await memory.ready(within=WITHIN)
        found = await memory.space(ADA).search("where is the boat moored?")
    assert [(hit.entry.text, hit.score) for hit in found.hits] == [(hit.entry.text, hit.score) for hit in expected.hits]
    assert (found.missing, loaded) == ((), [True])
    assert found.hits[0].similarity is not None


async def test_a_space_that_had_to_be_built_is_saved_for_the_next_process(tmp_path, monkeypatch):
    """L6: as in a store of an older version, where nothing was saved."""
    built = Built(monkeypatch)
    async with afterturn.open(tmp_path / "memory.db", parts=afterturn.Parts(embedder=EMBEDDER)) as memory:
        assert await memory.ready(within=WITHIN)
        space = memory.space(ADA)
        await space.add_many([afterturn.Draft(f"jar {number} of honey") for number in range(3)])
        assert await memory.drain(within=WITHIN)
        monkeypatch.setattr(digests_module, "DIGESTED_MIN", 2)
        for _ in range(2):
            await space.search("which honey?")
        await built.wait()
        assert await memory.drain(within=WITHIN)
    library = Library(tmp_path / "memory.db")
    assert find(library, Shelves(EMBEDDER.identity, 16 * MEGABYTE))
    library.close()

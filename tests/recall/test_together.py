"""Questions at the same time share a reader's way, on a real store, and each gets its own answer."""

import asyncio
from contextlib import nullcontext

import pytest
from asking import ADA, STATIC, from_shelf, request, shelved

from afterturn.base.errors import StoreUnavailable
from afterturn.base.types import Scope
from afterturn.recall import shelves as shelves_module
from afterturn.recall import together as together_module
from afterturn.recall.lanes import RecallRequest, recall
from afterturn.recall.shelves import Shelves
from afterturn.recall.together import Together

THINGS = ("apple", "bee", "cider", "dew", "elm", "fig", "grape", "hazel", "iris", "juniper")


class Readers:
    """The store as whoever asks sees it: every read waits until it is let through."""

    def __init__(self, library) -> None:
        self._library = library
        self._through = asyncio.Semaphore(0)
        self.begun = 0
        self.failure: Exception | None = None

    async def read(self, work):
        self.begun += 1
        await self._through.acquire()
        if self.failure is not None:
            raise self.failure
        return self._library.read(work)

    def let_through(self, count: int) -> None:
        for _ in range(count):
            self._through.release()


class Scene:
    def __init__(self, library) -> None:
        library.add_all([f"the {thing} stands on the table" for thing in THINGS])
        library.embed(STATIC)
        self.shelves = shelved(library, ADA)
        self.readers = Readers(library)
        self.batches: list[list[str]] = []
        self.is_embedder_broken = False
        self.together = Together(self.readers, self._embed)  # type: ignore[arg-type]

    def _embed(self, texts: list[str]):
        self.batches.append(list(texts))
        if self.is_embedder_broken:
            raise OSError("no memory left")
        return STATIC.embed(texts)

    def ask(self, thing: str, shelves: Shelves | None = None) -> asyncio.Task:
        asked = request(f"where is the {thing}", embed=lambda text: STATIC.embed([text])[0])
        return asyncio.create_task(self.together.recall(asked, shelves or self.shelves))

    async def ask_all(self, *things: str) -> list[asyncio.Task]:
        tasks = [self.ask(thing) for thing in things]
        await settled()
        return tasks


async def settled() -> None:
    """Until every task waits for something that only the test can bring about."""
    for _ in range(10):
        await asyncio.sleep(0)


def about(thing: str) -> str:
    return f"the {thing} stands on the table"


def first(task: asyncio.Task) -> str:
    return task.result().hits[0].entry.text


@pytest.fixture
def scene(library) -> Scene:
    return Scene(library)


async def test_questions_that_come_meanwhile_are_asked_together(scene):
    """L6: in one snapshot; each is answered as it would be alone."""
    tasks = await scene.ask_all(*THINGS[:5])
    scene.readers.let_through(2)
    await asyncio.gather(*tasks)
    assert [first(task) for task in tasks] == [about(thing) for thing in THINGS[:5]]
    assert scene.readers.begun == 2


async def test_questions_in_one_snapshot_look_for_changes_once(scene, monkeypatch):
    """L6: what one of them found level with it is so for the others."""
    looks = []
    find = scene.shelves.find
    monkeypatch.setattr(scene.shelves, "find", lambda *place: looks.append(place) or find(*place))
    tasks = await scene.ask_all(*THINGS[:5])
    scene.readers.let_through(2)
    await asyncio.gather(*tasks)
    assert [first(task) for task in tasks] == [about(thing) for thing in THINGS[:5]]
    assert len(looks) == 2


async def test_questions_wait_for_no_write_but_take_their_turn_behind_it(scene, monkeypatch):
    """L7: as soon as it is theirs, which they look for before each of them."""
    given = iter([True, False, False, True])
    monkeypatch.setattr(together_module, "turn", lambda *, within: nullcontext(next(given)))
    tasks = await scene.ask_all(*THINGS[:6])
    scene.readers.let_through(2)
    await asyncio.gather(*tasks)
    assert [first(task) for task in tasks] == [about(thing) for thing in THINGS[:6]]
    assert list(given) == []


@pytest.mark.parametrize("is_broken", [False, True])
async def test_questions_that_are_asked_together_are_embedded_together(scene, is_broken):
    """L6: to the same vectors; where that can not be done, each by itself."""
    scene.is_embedder_broken = is_broken
    tasks = await scene.ask_all(*THINGS[:4])
    scene.readers.let_through(2)
    await asyncio.gather(*tasks)
    assert scene.batches == [[f"where is the {thing}" for thing in THINGS[1:4]]]
    for task, thing in zip(tasks, THINGS, strict=False):
        alone = scene.ask(thing)
        scene.readers.let_through(1)
        assert task.result().hits == (await alone).hits
        assert task.result().missing == ()


async def test_a_question_with_a_name_is_embedded_without_it_whoever_asks_too(scene, library):
    """L6: of what is asked, not of whom, also beside others."""
    library.add("we took the ferry to the island", conversation="c", position=0, speaker="Bob Miller")
    library.embed(STATIC)
    tasks = await scene.ask_all("apple", "ferry that Bob took", "bee")
    scene.readers.let_through(3)
    await asyncio.gather(*tasks)
    alone = await scene.ask("ferry that Bob took")
    assert scene.batches == [["where is the ferry that Bob took", "where is the bee"]]
    assert alone.hits[0].entry.speaker == "Bob Miller"
    assert [hit.similarity for hit in tasks[1].result().hits] == [hit.similarity for hit in alone.hits]


async def test_what_was_added_before_a_question_is_in_its_answer(scene, library):
    """L6: whoever it is asked together with, and whatever was asked before it."""
    [early] = await scene.ask_all("apple")
    library.add("the lemon stands on the table")
    late = await scene.ask_all("bee", "lemon")
    scene.readers.let_through(2)
    await asyncio.gather(early, *late)
    assert [first(task) for task in late] == [about("bee"), about("lemon")]


async def test_no_question_waits_for_more_than_a_few_others(scene, monkeypatch):
    """L7: whoever asks first waits for those who ask with it, so there is an end to them."""
    monkeypatch.setattr(together_module, "_TOGETHER_MAX", 3)
    tasks = await scene.ask_all(*THINGS)
    scene.readers.let_through(4)
    await asyncio.gather(*tasks)
    assert scene.readers.begun == 4


async def test_when_nobody_else_asks_a_question_waits_for_nobody(scene):
    """L7: the one after the last begins anew."""
    scene.readers.let_through(2)
    for thing in THINGS[:2]:
        task = scene.ask(thing)
        await task
        assert first(task) == about(thing)
    assert scene.readers.begun == 2


@pytest.mark.parametrize("given_up", range(4))
@pytest.mark.parametrize("passed", range(2))
async def test_whoever_gives_up_leaves_the_others_their_answers(scene, given_up, passed):
    """L7: be it the one that asks for all, or one of them, or the one whose turn it is next."""
    tasks = await scene.ask_all(*THINGS[:4])
    scene.readers.let_through(passed)
    for _ in range(passed):
        await settled()
    tasks[given_up].cancel()
    await settled()
    scene.readers.let_through(4)
    await asyncio.wait(tasks, timeout=20)
    answered = [task for task in tasks if not task.cancelled()]
    assert [first(task) for task in answered] == [about(THINGS[tasks.index(task)]) for task in answered]
    assert len(answered) >= 3


async def test_whoever_gives_up_leaves_the_others_their_places(scene):
    """L7: who came first is asked for first, whoever asks."""
    tasks = await scene.ask_all(*THINGS[:5])
    scene.readers.let_through(1)
    await settled()
    tasks[1].cancel()
    await settled()
    scene.readers.let_through(1)
    await asyncio.wait(tasks, timeout=20)
    assert [task.cancelled() for task in tasks] == [False, True, False, False, False]
    assert scene.batches == [[f"where is the {thing}" for thing in THINGS[2:5]]]


async def test_a_turn_that_comes_to_one_who_has_just_given_up_goes_on(scene, monkeypatch):
    """L7: nobody is left waiting for somebody who has gone."""
    tasks = await scene.ask_all(*THINGS[:3])
    hand_on = scene.together._hand_on

    def hand_on_to_somebody_who_leaves() -> None:
        hand_on()
        tasks[1].cancel()

    monkeypatch.setattr(scene.together, "_hand_on", hand_on_to_somebody_who_leaves)
    scene.readers.let_through(3)
    await asyncio.wait(tasks, timeout=20)
    assert [task.cancelled() for task in tasks] == [False, True, False]
    assert first(tasks[2]) == about(THINGS[2])


async def test_a_fault_of_the_store_is_told_to_all_who_asked(scene):
    """L1: to those who waited too, and the next may ask again."""
    tasks = await scene.ask_all(*THINGS[:4])
    scene.readers.failure = StoreUnavailable("the disk is gone")
    scene.readers.let_through(2)
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreUnavailable] * 4
    scene.readers.failure = None
    scene.readers.let_through(1)
    [task] = await scene.ask_all("fig")
    assert first(task) == about("fig")


@pytest.mark.parametrize("is_large", [True, False])
async def test_what_takes_longer_is_asked_apart(scene, monkeypatch, is_large):
    """L7: a space that is large, or not in memory, keeps nobody waiting for it."""
    monkeypatch.setattr(shelves_module, "AT_HAND_ROWS_MAX", 5 if is_large else 100)
    shelves = scene.shelves if is_large else Shelves(STATIC.identity, 1 << 24)
    tasks = [scene.ask(thing, shelves) for thing in THINGS[:3]]
    await settled()
    assert scene.readers.begun == 3
    scene.readers.let_through(3)
    await asyncio.gather(*tasks)


def test_a_question_is_embedded_without_the_names_of_those_who_spoke(library):
    """L6: by whoever searches, as it is when it was embedded before."""
    library.add("we took the ferry to the island", conversation="c", position=0, speaker="Bob Miller")
    text = "How did Bob get to the island?"
    expected = from_shelf(library, text)
    heard = []

    def embed(asked: str):
        heard.append(asked)
        return STATIC.embed([asked])[0]

    found = recalled(library, request(text, embed=embed))
    assert heard == ["How did get to the island?"]
    assert (found.hits, found.missing) == (expected.hits, ())


def test_a_question_that_can_not_be_embedded_is_found_by_its_words(library, caplog):
    """L1: vectors are a part like any other, and the answer tells that they were missing."""
    library.add("we took the ferry to the island")

    def embed(asked: str):
        raise OSError("no memory left")

    found = recalled(library, request("the ferry to the island", embed=embed))
    assert ([hit.entry.text for hit in found.hits], found.missing) == (
        ["we took the ferry to the island"],
        ("vectors",),
    )
    assert "no memory left" in caplog.text


def recalled(library, asked: RecallRequest):
    library.embed(STATIC)
    shelves = shelved(library, Scope("default", ("user:ada",)))
    return library.read(lambda unit: recall(unit, asked, shelves))

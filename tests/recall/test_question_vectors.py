"""Vectors of questions: made once, kept for a while without their words, and never waited for behind one that hangs."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import afterturn
from afterturn.embedders.service import CACHED_MAX, QuestionVectors
from afterturn.errors import EmbedderUnavailable
from afterturn.runtime.worker import ThreadWorker
from afterturn.testing.hashing import HashingEmbedder

WITHIN = 100.0


class Counted(HashingEmbedder):
    """Counts, and stops at "hang" until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.begun = threading.Event()
        self.go = threading.Event()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked += texts
        if "hang" in texts:
            self.begun.set()
            assert self.go.wait(WITHIN)
        if "broken" in texts:
            raise EmbedderUnavailable("Gone.")
        return super().embed(texts)


@pytest.fixture
def embedder() -> Counted:
    return Counted()


@pytest.fixture
def questions(embedder: Counted) -> Iterator[QuestionVectors]:
    worker = ThreadWorker("questions")
    yield QuestionVectors(embedder, worker)
    embedder.go.set()
    worker.close(within=WITHIN)


async def test_the_same_question_is_embedded_once(embedder: Counted, questions: QuestionVectors):
    first, second = await questions.get("which tea?"), await questions.get("which tea?")
    assert embedder.asked == ["which tea?"]
    assert np.array_equal(first, HashingEmbedder().embed(["which tea?"])[0])
    assert second is first


async def test_two_questions_that_differ_in_case_alone_have_a_vector_each(
    embedder: Counted, questions: QuestionVectors
):
    """L6: an embedder may tell "US" from "us"; the same question gets the same answer."""
    await questions.get("what of us?")
    await questions.get("what of US?")
    assert embedder.asked == ["what of us?", "what of US?"]


async def test_what_is_kept_can_not_be_written_to(questions: QuestionVectors):
    """One who changes his vector would change everybody's."""
    vector = await questions.get("which tea?")
    with pytest.raises(ValueError, match="read-only"):
        vector[0] = 1


async def test_so_many_are_kept_and_the_one_unused_for_longest_goes_first(
    embedder: Counted, questions: QuestionVectors
):
    """Bounded, however many questions there are."""
    for number in range(CACHED_MAX):
        await questions.get(f"question {number}")
    await questions.get("question 0")
    await questions.get("one more")
    embedder.asked.clear()
    await questions.get("question 0")
    await questions.get("question 1")
    assert embedder.asked == ["question 1"]


async def test_no_words_of_a_question_are_kept(questions: QuestionVectors):
    """M2: nor a hash that could be tried out against a list of words, since each memory has a key of its own."""
    await questions.get("is Vlorbnak my doctor?")
    (name,) = questions._vectors
    other = QuestionVectors(HashingEmbedder(), questions._worker)
    assert len(name) == 16
    assert name == questions._name("is Vlorbnak my doctor?")
    assert name != other._name("is Vlorbnak my doctor?")
    assert "Vlorbnak" not in repr(vars(questions))


async def test_forgetting_leaves_nothing_behind(embedder: Counted, questions: QuestionVectors):
    """M2: neither of what was asked before, nor of what is being asked."""
    await questions.get("which tea?")
    asking = asyncio.ensure_future(questions.get("hang"))
    assert await asyncio.to_thread(embedder.begun.wait, WITHIN)
    questions.clear()
    embedder.go.set()
    await asking
    embedder.asked.clear()
    await questions.get("which tea?")
    await questions.get("hang")
    assert embedder.asked == ["which tea?", "hang"]


async def test_a_turn_that_is_recorded_embeds_its_question_only_once(tmp_path: Path):
    class Immediate(Counted):
        is_immediate = True

    embedder = Immediate()
    # However busy the machine is.
    settings = {"grace": 20.0, "recall_timeout": 20.0}
    parts = afterturn.Components(embedder=embedder)
    async with afterturn.open(tmp_path / "memory.db", settings, components=parts) as memory:
        await memory.ready(within=WITHIN)
        messages = [{"role": "user", "content": "Where does my sister Ruth live?"}]
        async with memory.conversation("monday", user="ada").turn(messages) as turn:
            await turn.inject(messages)
            messages.append({"role": "assistant", "content": "In Oslo."})
        assert await turn.wait_recorded(within=WITHIN)
        await memory.drain(within=WITHIN)
        found = await memory.space("user:ada").search("Ruth", score_min=0)
    assert found.hits[0].similarity is not None
    assert [embedder.asked.count(text) for text in ("Where does my sister Ruth live?", "In Oslo.")] == [1, 1]


async def test_forgetting_drops_a_question_that_is_embedded_on_another_thread(
    embedder: Counted, questions: QuestionVectors
):
    embedding = asyncio.ensure_future(asyncio.to_thread(questions.embed, "hang"))
    assert await asyncio.to_thread(embedder.begun.wait, WITHIN)
    questions.clear()
    embedder.go.set()
    await embedding
    assert questions.find("hang") is None
    assert questions.embed("which tea?") is questions.find("which tea?")


async def test_an_embedder_that_fails_leaves_nothing_to_be_given_again(questions: QuestionVectors, embedder: Counted):
    for _ in range(2):
        with pytest.raises(EmbedderUnavailable, match="Gone"):
            await questions.get("broken")
    assert embedder.asked == ["broken", "broken"]


async def test_nobody_queues_up_behind_a_question_that_was_given_up(embedder: Counted, questions: QuestionVectors):
    """L1: those who ask meanwhile are answered by words at once; afterwards all is as before."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await questions.get("hang")
    with pytest.raises(EmbedderUnavailable, match="still busy"):
        await questions.get("which tea?")
    embedder.go.set()
    async with asyncio.timeout(WITHIN):
        while True:
            try:
                await questions.get("which tea?")
                break
            except EmbedderUnavailable:
                await asyncio.to_thread(embedder.begun.wait, 0.01)
    assert embedder.asked == ["hang", "which tea?"]

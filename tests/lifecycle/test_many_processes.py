"""Several processes with one file: nothing is lost, duplicated or stale, and each job runs once."""

import collections
import signal
from pathlib import Path

import pytest
from children import StartChild
from exchanges import NO_EMBEDDER

from afterturn import blocking
from afterturn.types import Kind

pytestmark = pytest.mark.slow
PROCESSES = 4
ROUNDS = 15


def test_processes_that_write_at_once_lose_and_double_nothing(path: Path, start: StartChild) -> None:
    """§13, G6: the same statements from all sides are created once each, and every recording arrives."""
    script = """
        with blocking.open(path, NO_EMBEDDER) as memory:
            ada = memory.space("user:ada")
            say("ready")
            hear()
            for number in range(int(arguments[1])):
                say(number if ada.add(f"Shared statement {number}").created else "known")
                ada.add(f"Statement {number} of process {arguments[0]}")
                ada.search("statement")
                with memory.conversation(f"c{arguments[0]}", user="ada").turn(exchange(f"Message {number}")) as turn:
                    pass
                assert turn.wait_recorded(within=20)
    """
    children = [start(script, name, ROUNDS) for name in range(PROCESSES)]
    for child in children:
        child.hear()
    for child in children:
        child.say()
    created = collections.Counter(line for child in children for line in child.result() if line != "known")
    with blocking.open(path, NO_EMBEDDER) as memory:
        entries = memory.space("user:ada").list(limit=1000)
        assert not [finding for finding in memory.check() if finding.level == "error"]
    kinds = collections.Counter(entry.kind for entry in entries)
    assert created == {str(number): 1 for number in range(ROUNDS)}
    assert kinds == {Kind.STATEMENT: ROUNDS + PROCESSES * ROUNDS, Kind.RECORD: 2 * PROCESSES * ROUNDS}


def test_processes_that_update_one_memory_lose_no_update(path: Path, start: StartChild) -> None:
    """M1: each counts one up from the version it read; what came between is a Conflict, never overwritten."""
    with blocking.open(path, NO_EMBEDDER) as memory:
        entry = memory.space("user:ada").add("The count is 0").entry
    script = """
        from afterturn.errors import Conflict
        with blocking.open(path, NO_EMBEDDER) as memory:
            ada, done = memory.space("user:ada"), 0
            say("ready")
            hear()
            while done < int(arguments[1]):
                seen = ada.get(arguments[0])
                count = int(seen.text.split()[-1])
                try:
                    ada.update(arguments[0], f"The count is {count + 1}", expected_version=seen.version)
                    done += 1
                except Conflict:
                    pass
    """
    children = [start(script, entry.id, ROUNDS) for _ in range(PROCESSES)]
    for child in children:
        child.hear()
    for child in children:
        child.say()
    for child in children:
        child.result()
    with blocking.open(path, NO_EMBEDDER) as memory:
        history = memory.space("user:ada").history(entry.id)
    assert [version.text for version in history.versions] == [
        f"The count is {number}" for number in range(PROCESSES * ROUNDS + 1)
    ]


LOOK = """
from afterturn.testing.hashing import HashingEmbedder

def is_held(item):
    word = "".join(("zanzibar", "quartz"))
    return word in item if type(item) is str else word.encode() in item if type(item) is bytes else False

def held():
    embedder._directions.clear()
    gc.collect()
    count = 0
    for owner in gc.get_objects():
        items = [*owner, *owner.values()] if type(owner) is dict else owner if type(owner) in (list, tuple, set) else ()
        count += sum(map(is_held, items))
    return count

embedder = HashingEmbedder()
with blocking.open(path, components=afterturn.Components(embedder=embedder)) as memory:
    ada = memory.space("user:ada")
    assert memory.ready()
    ada.search("anything")
    say("ready")
    while question := hear():
        if question == "held?":
            say(held())
        else:
            say([(hit.entry.text, hit.similarity is not None) for hit in ada.search(question).hits])
"""


def test_committed_memories_are_in_the_next_recall_of_another_process(path: Path, start: StartChild) -> None:
    """§13: by words at once, by vectors once the job is done; an update and a delete are seen as soon."""
    other = start(LOOK)
    other.hear()
    with blocking.open(path, NO_EMBEDDER, background=False) as memory:
        ada = memory.space("user:ada")
        entry = ada.add("Ada likes green tea").entry
        assert "Ada likes green tea" in _ask(other, "green tea")
        with blocking.open(path, components=_hashing()) as worker:
            assert worker.drain()
        assert _ask(other, "green tea") == "[('Ada likes green tea', True)]"
        ada.update(entry.id, "Ada likes black tea")
        assert "Ada likes black tea" in _ask(other, "tea")
        assert "green" not in _ask(other, "tea")
        ada.delete(entry.id)
        assert _ask(other, "tea") == "[]"
    other.say("")
    assert other.result() == []


SENTINEL = "zanzibarquartz"


def test_memories_that_one_process_forgot_are_gone_in_another(path: Path, start: StartChild) -> None:
    """M2: after the other's next recall no object of it holds the text, neither as text nor as bytes."""
    other = start(LOOK)
    other.hear()
    with blocking.open(path, components=_hashing()) as memory:
        entry = memory.space("user:ada").add(f"The word is {SENTINEL}").entry
        memory.drain()
        assert SENTINEL in _ask(other, "which word")
        memory.space("user:ada").forget(memory=entry.id)
        found, held = _ask(other, "which word"), _ask(other, "held?")
    other.say("")
    other.result()
    assert (found, held) == ("[]", "0")


def test_jobs_are_done_once_by_any_process(path: Path, start: StartChild) -> None:
    """C8: four workers share what one process left; every entry has its vector and no job is left or dead."""
    with blocking.open(path, NO_EMBEDDER, background=False) as memory:
        for number in range(20):
            memory.space(f"user:{number}").add(f"Statement {number}")
        assert memory.stats()["jobs"] == {"ready": 20}
    script = """
        from afterturn.testing.hashing import HashingEmbedder
        class Counting(HashingEmbedder):
            def embed(self, texts):
                for text in texts:
                    if text.startswith("Statement"):
                        say(text)
                return super().embed(texts)
        with blocking.open(path, background=False, components=afterturn.Components(embedder=Counting())) as memory:
            assert memory.drain()
    """
    children = [start(script) for _ in range(PROCESSES)]
    embedded = [line for child in children for line in child.result()]
    with blocking.open(path, NO_EMBEDDER, background=False) as memory:
        jobs = memory.stats()["jobs"]
    assert sorted(embedded) == sorted(f"Statement {number}" for number in range(20))
    assert jobs == {}


HOLD_A_JOB = """
from afterturn.testing.hashing import HashingEmbedder
class Hanging(HashingEmbedder):
    def embed(self, texts):
        if texts != ["warm"]:
            say("embedding")
            threading.Event().wait()
        return super().embed(texts)
from afterturn.runtime import jobs
jobs.LEASE = float(arguments[0])
memory = blocking.open(path, {"close_timeout": 0.2}, components=afterturn.Components(embedder=Hanging())).start()
"""


def test_a_killed_workers_job_is_done_by_another_after_its_lease(path: Path, start: StartChild) -> None:
    """C8: the process dies with the lease in its hand; nobody has to tell anybody."""
    with blocking.open(path, NO_EMBEDDER, background=False) as memory:
        memory.space("user:ada").add("Ada likes green tea")
    child = start(HOLD_A_JOB + "threading.Event().wait()", 1.0)
    child.hear()
    child.send(signal.SIGKILL)
    child.end()
    with blocking.open(path, background=False, components=_hashing()) as memory:
        drained = memory.drain(within=20)
        (hit,) = memory.space("user:ada").search("green tea").hits
    assert drained
    assert hit.similarity is not None


def test_a_closing_worker_gives_its_jobs_back(path: Path, start: StartChild) -> None:
    """C8: a worker that closes in the middle of a job releases it at once, not after a lease of an hour."""
    with blocking.open(path, NO_EMBEDDER, background=False) as memory:
        memory.space("user:ada").add("Ada likes green tea")
    child = start(HOLD_A_JOB + "hear()\nmemory.close()", 3600.0)
    child.hear()
    child.say()
    ended = child.end()
    with blocking.open(path, background=False, components=_hashing()) as memory:
        drained = memory.drain(within=20)
    assert ended.code == 0
    assert drained


def _hashing():
    from afterturn import Components
    from afterturn.testing.hashing import HashingEmbedder

    return Components(embedder=HashingEmbedder())


def _ask(child, question: str) -> str:
    child.say(question)
    return child.hear()

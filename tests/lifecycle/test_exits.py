"""A process may end with memory open: normally, by Ctrl-C, by SIGTERM or by SIGKILL."""

import signal
from pathlib import Path
from time import monotonic

import pytest
from children import Child, StartChild
from exchanges import NO_EMBEDDER

from afterturn import blocking

pytestmark = pytest.mark.slow
PROMPTLY = 5.0


def test_a_turn_left_just_before_the_end_is_recorded(start: StartChild, path: Path) -> None:
    """C4: nobody closes memory; the interpreter's exit does, and without a word."""
    child = start(
        """
        memory = blocking.open(path, NO_EMBEDDER).start()
        with memory.conversation("c", user="ada").turn(exchange("My last words")):
            pass
        """
    )
    assert child.result() == []
    assert _texts(path) == ["My last words", "Noted."]


def test_no_new_thread_is_needed_at_the_end(start: StartChild, path: Path) -> None:
    """C4: from Python 3.12 on, no thread can be started while the interpreter exits."""
    child = start(
        """
        import atexit
        def refuse(thread):
            raise RuntimeError("can't create new thread at interpreter shutdown")
        memory = blocking.open(path, NO_EMBEDDER).start()
        atexit.register(setattr, threading.Thread, "start", refuse)
        for number in range(3):
            with memory.conversation(f"c{number}", user="ada").turn(exchange("My last words")):
                pass
        """
    )
    assert child.result() == []
    assert _texts(path) == ["My last words"] * 3 + ["Noted."] * 3


def test_a_memory_without_references_is_closed_too(start: StartChild, path: Path) -> None:
    """C4: the host keeps no reference; what it handed over was promised all the same."""
    child = start(
        """
        def speak():
            memory = blocking.open(path, NO_EMBEDDER).start()
            with memory.conversation("c", user="ada").turn(exchange("My last words")):
                pass
        speak()
        gc.collect()
        """
    )
    assert child.result() == []
    assert _texts(path) == ["My last words", "Noted."]


def test_an_async_memory_left_open_is_closed_at_exit(start: StartChild, path: Path) -> None:
    """C4: the host's loop is long closed by then."""
    child = start(
        """
        async def speak():
            memory = await afterturn.open(path).start()
            async with memory.conversation("c", user="ada").turn(exchange("My last words")):
                pass
        asyncio.run(speak())
        """
    )
    assert child.result() == []
    assert _texts(path) == ["My last words", "Noted."]


def test_the_exit_is_prompt_though_the_store_is_locked(start: StartChild, path: Path) -> None:
    """C4: bounded by `close_timeout`; one line says what waits, and the next process stores it."""
    child = start(
        """
        import apsw
        memory = blocking.open(path, NO_EMBEDDER | {"close_timeout": 0.5, "busy_timeout": 60.0}).start()
        other = apsw.Connection(path)
        other.set_busy_timeout(10_000)
        other.execute("BEGIN IMMEDIATE")
        with memory.conversation("c", user="ada").turn(exchange("My last words")):
            pass
        say("leaving")
        """
    )
    child.hear()
    began = monotonic()
    ended = child.end()
    assert monotonic() - began < PROMPTLY
    assert (ended.code, ended.err.count("\n")) == (0, 1)
    assert "1 turn waits in" in ended.err
    assert _texts(path) == ["My last words", "Noted."]


# Hosts that wait do it in short waits: beside other threads, Python now and then noticed a signal only when the main
# thread's wait was over (3 of 240 runs; none of 1,000 without threads).
INTERRUPTED = {
    "in a turn": """
        async def speak():
            async with afterturn.open(path, NO_EMBEDDER) as memory:
                await memory.space("user:ada").add("Acknowledged")
                async with memory.conversation("c", user="ada").turn(exchange("Never finished")[:1]) as turn:
                    say("now")
                    while True:
                        await asyncio.sleep(0.05)
        asyncio.run(speak())
    """,
    "in a recall": """
        async def speak():
            async with afterturn.open(path, NO_EMBEDDER) as memory:
                await memory.space("user:ada").add("Acknowledged")
                say("now")
                while True:
                    await memory.space("user:ada").search("what was acknowledged")
        asyncio.run(speak())
    """,
    "in blocking calls": """
        with blocking.open(path, NO_EMBEDDER) as memory:
            memory.space("user:ada").add("Acknowledged")
            say("now")
            while True:
                memory.space("user:ada").search("what was acknowledged")
    """,
    "in a blocking wait": """
        with blocking.open(path, NO_EMBEDDER) as memory:
            memory.space("user:ada").add("Acknowledged")
            with memory.conversation("c", user="ada").turn(exchange("Never finished")[:1]) as turn:
                pass
            say("now")
            memory.work(lambda: False)
    """,
    "with nothing closed": """
        memory = blocking.open(path, NO_EMBEDDER).start()
        memory.space("user:ada").add("Acknowledged")
        say("now")
        while not threading.Event().wait(0.05):
            pass
    """,
    "while opening and closing": """
        with blocking.open(path, NO_EMBEDDER) as memory:
            memory.space("user:ada").add("Acknowledged")
        say("now")
        while True:
            with blocking.open(path, NO_EMBEDDER):
                pass
    """,
}


@pytest.mark.parametrize("moment", INTERRUPTED)
def test_an_interrupt_ends_the_process_promptly(start: StartChild, path: Path, moment: str) -> None:
    """§2: Ctrl-C anywhere: no traceback but the host's own, and what was acknowledged is there."""
    ended = _ended_by(start(INTERRUPTED[moment]), signal.SIGINT)
    assert ended.code == -signal.SIGINT
    # Inside asyncio's own functions an interrupt leaves things half made, of which Python itself warns afterwards.
    _, interrupted, after = ended.err.partition("\nKeyboardInterrupt\n")
    assert interrupted
    assert not after.strip() or "Warning: " in after.strip().splitlines()[0]
    assert "Exception in thread" not in ended.err
    assert "Exception ignored" not in ended.err
    assert "never awaited" not in ended.err
    assert "Acknowledged" in _texts(path)


@pytest.mark.parametrize("moment", ["in a turn", "in blocking calls", "while opening and closing"])
def test_a_terminated_process_loses_nothing_that_was_acknowledged(start: StartChild, path: Path, moment: str) -> None:
    """C2: SIGTERM ends it at once and without a word; the store is whole."""
    ended = _ended_by(start(INTERRUPTED[moment]), signal.SIGTERM)
    assert (ended.code, ended.err) == (-signal.SIGTERM, "")
    assert "Acknowledged" in _texts(path)


@pytest.mark.parametrize("modules", ["afterturn.memory", "afterturn.blocking", "afterturn.stores.sqlite.store"])
def test_an_interrupt_while_importing_is_the_hosts_alone(start: StartChild, modules: str) -> None:
    """§2: nothing of memory's runs yet, and importing again works."""
    child = start(
        f"""
        import importlib
        class Interrupt:
            def find_spec(self, name, *rest):
                if name == "{modules}":
                    sys.meta_path.remove(self)
                    os.kill(os.getpid(), signal.SIGINT)
                return None
        for name in [name for name in sys.modules if name.startswith("afterturn")]:
            del sys.modules[name]
        sys.meta_path.insert(0, Interrupt())
        try:
            importlib.import_module("{modules}")
        except KeyboardInterrupt:
            say("interrupted")
        importlib.import_module("{modules}")
        say([thread.name for thread in threading.enumerate()])
        """
    )
    assert child.result() == ["interrupted", "['MainThread']"]


def test_a_second_interrupt_while_closing_still_keeps_what_was_handed_over(start: StartChild, path: Path) -> None:
    """C4: the host is impatient; closing goes on by itself and the exit waits for it, bounded."""
    child = start(
        """
        import apsw
        memory = blocking.open(path, NO_EMBEDDER | {"close_timeout": 2.0, "busy_timeout": 60.0}).start()
        other = apsw.Connection(path)
        other.set_busy_timeout(10_000)
        other.execute("BEGIN IMMEDIATE")
        with memory.conversation("c", user="ada").turn(exchange("My last words")):
            pass
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            memory.close()
        except KeyboardInterrupt:
            say("interrupted")
        other.execute("ROLLBACK")
        """
    )
    ended = child.end()
    assert (ended.code, ended.out) == (0, ["interrupted"])
    assert _texts(path) == ["My last words", "Noted."]


def _ended_by(child: Child, number: signal.Signals):
    assert child.hear() == "now"
    child.send(number)
    return child.end(PROMPTLY)


def _texts(path: Path) -> list[str]:
    with blocking.open(path, NO_EMBEDDER) as memory:
        memory.drain()
        assert not [finding for finding in memory.check() if finding.level == "error"]
        return sorted(entry.text for entry in memory.space("user:ada").list())

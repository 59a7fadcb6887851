"""A server that keeps and accepts connections and does not answer: direct verbs and commands fail within a limit."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from afterturn import blocking
from afterturn.errors import StoreUnavailable
from lab.postgres.server import PostgresServer
from lab.postgres.wire_proxy import WireProxy

pytestmark = pytest.mark.postgres

# With `SERVER_TIMEOUT` how long the server may be silent, also while the store is created on a busy machine.
SETTINGS = {"busy_timeout": 0.5, "embedder": "none", "background": False}
# `python -m afterturn` that waits for half a second.
COMMAND = """
from afterturn.stores.postgres import connection
connection.SERVER_TIMEOUT = 0.5
from afterturn.__main__ import main
main()
"""
VERBS: list[tuple[str, Callable[[blocking.Memory], object]]] = [
    ("add", lambda memory: memory.space("user:ada").add("Ada plays chess")),
    ("search", lambda memory: memory.space("user:ada").search("bees")),
    ("list", lambda memory: memory.space("user:ada").list()),
    ("forget", lambda memory: memory.space("user:ada").forget(everything=True)),
    ("stats", lambda memory: memory.stats()),
]


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("afterturn.stores.postgres.connection.SERVER_TIMEOUT", 2.0)


@pytest.fixture
def proxy(server: PostgresServer) -> Iterator[WireProxy]:
    with WireProxy(server.port) as started:
        yield started


@pytest.fixture
def held_url(server: PostgresServer, proxy: WireProxy, url: str) -> str:
    """The store, through the proxy."""
    return f"{url.replace(f':{server.port}', f':{proxy.port}')}&connect_timeout=2"


def texts(url: str) -> list[str]:
    with blocking.open(url, {"embedder": "none", "background": False}) as memory:
        return [entry.text for entry in memory.space("user:ada").list()]


@pytest.mark.parametrize("verb", [verb for _, verb in VERBS], ids=[name for name, _ in VERBS])
def test_a_direct_verb_fails_while_the_server_does_not_answer(
    proxy: WireProxy, held_url: str, url: str, verb: Callable[[blocking.Memory], object]
) -> None:
    """C2: it says what to do and changes nothing, and the same memory works when the server answers again."""
    with blocking.open(held_url, SETTINGS) as memory:
        space = memory.space("user:ada")
        space.add("Ada keeps bees")
        space.list()
        proxy.hold()
        for expected in ("did not answer within .* Nothing was stored", "cannot be reached|did not answer"):
            with pytest.raises(StoreUnavailable, match=expected):
                verb(memory)
        proxy.resume()
        assert [entry.text for entry in space.list()] == ["Ada keeps bees"]
        space.add("Ada has a cat")
    assert sorted(texts(url)) == ["Ada has a cat", "Ada keeps bees"]


def test_a_commit_without_an_answer_is_reported_as_unknown(proxy: WireProxy, held_url: str, url: str) -> None:
    """C2: the server may still do it, so the verb does not run it again."""
    with blocking.open(held_url, SETTINGS) as memory:
        proxy.hold("COMMIT\0")
        with pytest.raises(StoreUnavailable, match=r"whether it took place\. Read the current state"):
            memory.space("user:ada").add("Ada keeps bees")
        proxy.resume()
        # Waits for the lock that the lost transaction holds until it has ended.
        memory.space("user:ada").add("Ada has a cat")
    assert sorted(texts(url)) == ["Ada has a cat", "Ada keeps bees"]


@pytest.mark.parametrize("arguments", [["list"], ["search", "bees"], ["add", "Ada has a cat"], ["stats"]], ids=" ".join)
def test_a_command_fails_while_the_server_does_not_answer(
    proxy: WireProxy, held_url: str, url: str, arguments: list[str]
) -> None:
    with blocking.open(url, SETTINGS) as memory:
        memory.space("user:ada").add("Ada keeps bees")
    proxy.hold()
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, *arguments, "--space", "user:ada"],
        env={**os.environ, "AFTERTURN_STORE": held_url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr
    proxy.resume()
    assert texts(url) == ["Ada keeps bees"]


def test_closing_does_not_wait_for_a_server_that_does_not_answer(
    proxy: WireProxy, held_url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C4: within close_timeout, without a thread that is left."""
    monkeypatch.setattr("afterturn.stores.postgres.connection.SERVER_TIMEOUT", 3600.0)
    memory = blocking.open(held_url, {**SETTINGS, "close_timeout": 0.5})
    memory.start()
    memory.space("user:ada").add("Ada keeps bees")
    proxy.hold()
    memory.close()
    assert "took longer" not in caplog.text

"""`recall_once` and `recall_block_once`: the answer of a turn's recall by words, without a loop, a thread or numpy."""

import hashlib
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import afterturn
from afterturn import blocking
from afterturn.errors import InvalidInput, StoreUnavailable

WORDS = {"embedder": "none"}
TEXTS = ["Ada's cat is called Miso", "Ada likes green tea", "The tea kettle of the office is broken"]
QUESTIONS = ["What is my cat called?", "Which tea does Ada like?", "tea", "Where is the moon?"]
FRESH = """
    import json, sys, threading
    import afterturn
    block = afterturn.recall_block_once("What is my cat called?", user="ada", store=sys.argv[1], standing=False)
    found = afterturn.recall_once("What is my cat called?", user="ada", store=sys.argv[1])
    slow = {"asyncio", "numpy", "tokenizers", "concurrent.futures", "afterturn.guard.pasted"}
    slow |= {"calendar", "html", "importlib.resources", "tempfile", "tomllib", "uuid", "afterturn.stores.sql.memories"}
    heavy = sorted(slow & set(sys.modules))
    print(json.dumps([block, [hit.entry.text for hit in found.hits], heavy, threading.active_count()]))
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with blocking.open(tmp_path / "memory.db", WORDS) as memory:
        for text in TEXTS:
            memory.space("user:ada").add(text)
        memory.space("user:grace").add("Grace's cat is called Tofu")
    return tmp_path / "memory.db"


def test_a_fresh_process_loads_neither_asyncio_nor_numpy(store: Path) -> None:
    """§2: lexical recall and rendering are synchronous and light."""
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(FRESH), str(store)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    block, texts, heavy, threads = json.loads(done.stdout)
    assert (texts, heavy, threads) == ([TEXTS[0]], [], 1)
    assert block.startswith("<afterturn-memory>\n")
    assert TEXTS[0] in block


@pytest.mark.parametrize("question", QUESTIONS)
def test_it_finds_what_a_space_finds_by_words(store: Path, question: str) -> None:
    """L1: one search, two ways to it: the same hits with the same scores."""
    once = afterturn.recall_once(question, user="ada", store=store, limit=2)
    with blocking.open(store, WORDS) as memory:
        found = memory.space("user:ada").search(question, limit=2)
    assert (once.hits, once.missing, once.query) == (found.hits, found.missing, found.query)


def test_its_block_is_the_one_that_a_first_turn_gets(store: Path) -> None:
    """H1: the same renderer under the same budget."""
    messages = [{"role": "user", "content": QUESTIONS[0]}]
    once = afterturn.recall_block_once(QUESTIONS[0], user="ada", store=store)
    with blocking.open(store, WORDS) as memory:
        injected = memory.conversation("c", user="ada").start_turn(messages).inject(messages, within=30.0)
    assert injected is not None
    assert once
    assert once in str(messages[-1]["content"])


def test_nothing_worth_telling_is_an_empty_block(store: Path) -> None:
    """L5: an acknowledgement asks for nothing."""
    assert afterturn.recall_block_once("ok, thanks", user="ada", store=store) == ""


def test_it_creates_no_store(tmp_path: Path) -> None:
    """§2: a hook that runs before the first conversation leaves nothing behind."""
    with pytest.raises(StoreUnavailable, match="There is no store at"):
        afterturn.recall_once("tea", user="ada", store=tmp_path / "none.db")
    assert list(tmp_path.iterdir()) == []


def test_it_writes_nothing(store: Path) -> None:
    """§2: recall never writes."""
    before = hashlib.sha256(store.read_bytes()).hexdigest()
    afterturn.recall_once("tea", user="ada", store=store)
    assert hashlib.sha256(store.read_bytes()).hexdigest() == before


def test_it_reads_what_another_memory_has_just_written(store: Path) -> None:
    """M1: the store is open elsewhere, and its write-ahead log holds the newest."""
    with blocking.open(store, WORDS) as memory:
        memory.space("user:ada").add("Ada plays the cello")
        found = afterturn.recall_once("cello", user="ada", store=store)
        memory.space("user:ada").add("Ada sold the cello")
    assert [hit.entry.text for hit in found.hits] == ["Ada plays the cello"]


@pytest.mark.parametrize("named", [{}, {"user": "ada", "space": "user:ada"}])
def test_exactly_one_space_is_named(store: Path, named: dict[str, str]) -> None:
    """L2: nothing reads across spaces that it did not name."""
    with pytest.raises(InvalidInput, match="Name one space"):
        afterturn.recall_once("tea", store=store, **named)

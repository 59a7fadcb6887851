"""What a program loads before its first answer from a space: every module costs it some of that time."""

import importlib.util
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from afterturn import blocking

# A name stands for everything below it too.
UNNEEDED = [
    # What turns need is loaded with the first conversation.
    "afterturn.base.turns",
    "afterturn.context",
    "afterturn.dialects",
    "afterturn.turn",
    # What writes, with the first write.
    "afterturn.learn.recording",
    "afterturn.learn.reviewing",
    "afterturn.learn.rules",
    "afterturn.learn.scheduling",
    "afterturn.space.transfer",
    "afterturn.stores.sql.conversations",
    "afterturn.stores.sql.forget",
    "afterturn.stores.sql.jobs",
    "afterturn.stores.sql.memories",
    "afterturn.stores.sql.operations",
    # What looks after a store or explains itself, when it is asked to.
    "afterturn.base.reviews",
    "afterturn.recall.explain",
    "afterturn.recall.selector",
    "afterturn.space.export",
    "afterturn.space.proposals",
    "afterturn.stores.sqlite.backup",
    "afterturn.stores.sqlite.findings",
    "afterturn.stores.sqlite.pages",
    # Vectors warm up behind the first answer.
    "afterturn.recall.backlog",
    "afterturn.recall.shelves",
    "numpy",
    "tokenizers",
    # And of the standard library, what only some of these use.
    "ctypes",
    "difflib",
    "email",
    "importlib.metadata",
    "secrets",
    "shutil",
    "tomllib",
    "zipfile",
]
# Warming up is put off, so that a slow machine shows the same.
OPENED = """
    import asyncio, json, sys
    import afterturn
    import afterturn.recall.embedding, afterturn.runtime
    afterturn.recall.embedding.WARM_UP_DELAY = afterturn.runtime.LOAD_AFTER = 3600.0

    async def main():
        async with afterturn.open(sys.argv[1], background=False) as memory:
            found = await memory.space("user:ada").recall("What is my cat called?")
            print(json.dumps([[hit.entry.text for hit in found.hits], list(sys.modules)]))

    asyncio.run(main())
"""


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], set[str]]:
    """What a fresh process found, and the modules it had loaded by then."""
    store = tmp_path_factory.mktemp("opened") / "memory.db"
    with blocking.open(store, {"embedder": "none"}) as memory:
        memory.space("user:ada").add("Ada's cat is called Miso")
    texts, modules = json.loads(_printed(textwrap.dedent(OPENED), store))
    return texts, set(modules)


def test_a_first_recall_answers_by_words(answered: tuple[list[str], set[str]]) -> None:
    """§2: opening returns when words can be searched; vectors come later."""
    assert answered[0] == ["Ada's cat is called Miso"]


@pytest.mark.parametrize("module", UNNEEDED)
def test_a_first_recall_goes_without(answered: tuple[list[str], set[str]], module: str) -> None:
    """§2: what the first answer does not need is loaded by what needs it."""
    loaded = {name for name in answered[1] if name == module or name.startswith(f"{module}.")}
    assert loaded == set()


def test_what_a_first_recall_goes_without_is_there() -> None:
    """§2: a module that was renamed is named anew above, or nothing would be held back."""
    assert [name for name in UNNEEDED if importlib.util.find_spec(name) is None] == []


def _printed(program: str, store: Path) -> str:
    command = [sys.executable, "-W", "error", "-c", program, str(store)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

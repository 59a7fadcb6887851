"""What a program loads before its first answer from a space: every module costs it some of that time."""

import importlib.util
import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TypeAlias

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
# A host without an event loop goes without these too, until a verb needs them or half a second has passed.
UNNEEDED_WITHOUT_A_LOOP = [
    "asyncio",
    "concurrent",
    "socket",
    "ssl",
    "afterturn.base.jobs",
    "afterturn.base.loop",
    "afterturn.base.ports",
    "afterturn.base.worker",
    "afterturn.base.written",
    "afterturn.embedders",
    "afterturn.guard.gate",
    "afterturn.guard.writing",
    "afterturn.learn",
    "afterturn.maintenance",
    "afterturn.memory",
    "afterturn.models",
    "afterturn.recall.embedding",
    "afterturn.runtime",
    "afterturn.space.verbs",
    "afterturn.stores.sqlite.store",
    # Of the standard library, what takes milliseconds to load.
    "base64",
    "datetime",
    "hashlib",
    "ipaddress",
    "logging",
    "pathlib",
    "queue",
    "traceback",
    "urllib",
]
# Warming up is put off, so that a slow machine shows the same.
AWAITED = """
    import asyncio, json, sys
    import afterturn
    import afterturn.recall.embedding, afterturn.runtime
    afterturn.recall.embedding.WARM_UP_DELAY = afterturn.runtime.LOAD_AFTER = 3600.0

    async def main():
        async with afterturn.open(sys.argv[1], background=False) as memory:
            found = await memory.space("user:ada").search("What is my cat called?")
            print(json.dumps([[hit.entry.text for hit in found.hits], list(sys.modules)]))

    asyncio.run(main())
"""
WAITED = """
    import json, sys
    import afterturn.blocking, afterturn.early
    afterturn.early.START_AFTER = 3600.0

    with afterturn.blocking.open(sys.argv[1]) as memory:
        found = memory.space("user:ada").search("What is my cat called?")
        modules = list(sys.modules)
    assert modules == list(sys.modules), "closing loads something"
    print(json.dumps([[hit.entry.text for hit in found.hits], modules]))
"""
Answered: TypeAlias = dict[str, tuple[list[str], set[str]]]


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Answered:
    """What fresh processes found, with a loop and without, and the modules each had loaded by then."""
    store = tmp_path_factory.mktemp("opened") / "memory.db"
    with blocking.open(store, {"embedder": "none"}) as memory:
        memory.space("user:ada").add("Ada's cat is called Miso")
    found = {}
    for name, program in {"awaited": AWAITED, "waited": WAITED}.items():
        texts, modules = json.loads(_printed(textwrap.dedent(program), store))
        found[name] = texts, set(modules)
    return found


@pytest.mark.parametrize("way", ["awaited", "waited"])
def test_a_first_recall_answers_by_words(answered: Answered, way: str) -> None:
    """§2: opening returns when words can be searched; vectors come later."""
    assert answered[way][0] == ["Ada's cat is called Miso"]


@pytest.mark.parametrize("module", UNNEEDED)
def test_a_first_recall_goes_without(answered: Answered, module: str) -> None:
    """§2: what the first answer does not need is loaded by what needs it."""
    assert _loaded(answered["awaited"][1], module) == set()


@pytest.mark.parametrize("module", [*UNNEEDED, *UNNEEDED_WITHOUT_A_LOOP])
def test_a_first_recall_without_a_loop_goes_without(answered: Answered, module: str) -> None:
    """§2: a script, a hook or a cron job that asks one question pays for no event loop."""
    assert _loaded(answered["waited"][1], module) == set()


def test_what_a_first_recall_goes_without_is_there() -> None:
    """§2: a module that was renamed is named anew above, or nothing would be held back."""
    named = [*UNNEEDED, *UNNEEDED_WITHOUT_A_LOOP]
    assert [name for name in named if importlib.util.find_spec(name) is None] == []


def _loaded(modules: set[str], module: str) -> set[str]:
    return {name for name in modules if name == module or name.startswith(f"{module}.")}


def _printed(program: str, store: Path) -> str:
    command = [sys.executable, "-W", "error", "-c", program, str(store)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

"""What a hook process calls must load in milliseconds, and give what a turn would give."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from afterturn import blocking

HEAVY = "{'asyncio', 'numpy', 'tokenizers'}"
LIGHT = [
    "afterturn.recall.query",
    "afterturn.recall.scoring",
    "afterturn.recall.store_search",
    "afterturn.recall.search",
    "afterturn.recall.block",
    "afterturn.conversation.ledger",
    "afterturn.conversation.read_turn",
    "afterturn.recall.block",
    "afterturn.dialects",
]
HOOK = """
    import json, sys
    from pathlib import Path
    from afterturn.runtime.clock import SystemClock
    from afterturn.config import Config
    from afterturn.dialects.detection import find_dialect
    from afterturn.stores.sqlite.engine import open_engine
    from afterturn.conversation.scope import make_place
    from afterturn.conversation.read_turn import RecallTiming, ShownMessages, compose, prepare, read_turn

    def work(unit):
        shown = ShownMessages(find_dialect(messages), messages, {}, clock.now())
        question = read_turn(unit, shown, place, config).question
        if question is None:
            return None
        now, seen = clock.now(), question.ledger.size_bytes
        prepared = prepare(unit, question, RecallTiming(now, "hook"), config)
        return compose(prepared.hits, config, visible_bytes=seen, now=now)

    messages, config, clock = json.loads(sys.argv[2]), Config(), SystemClock()
    place = make_place("default", "c", {"user": "ada"})
    engine = open_engine(Path(sys.argv[1]), config, clock)
    block = engine.read_now(work)
    engine.close()
    print(json.dumps([block.text if block else "", sorted(HEAVY & set(sys.modules))]))
"""
ASKED = [{"role": "user", "content": "What is my cat called?"}]


@pytest.mark.parametrize("module", LIGHT)
def test_a_hooks_module_loads_neither_asyncio_nor_numpy(module: str) -> None:
    """§2: lexical recall, ledger and rendering are synchronous and light."""
    program = f"import sys, {module}; print(sorted({{'asyncio', 'numpy', 'apsw', 'tokenizers'}} & set(sys.modules)))"
    assert _printed(program) == "[]\n"


def test_a_hook_recalls_and_renders_without_an_event_loop(tmp_path: Path) -> None:
    """§2: from an open store to a block's text in one process, and neither asyncio nor numpy is loaded in it."""
    store = _store_with_a_cat(tmp_path)
    text, heavy = _hooked(store, ASKED)
    assert heavy == []
    assert text.startswith("<afterturn-memory>\n## Relevant Memory\n")
    assert "Ada's cat is called Miso" in text


def test_a_hook_does_not_repeat_what_the_model_sees(tmp_path: Path) -> None:
    """H6: its ledger is read from the messages and the store, as a turn's is."""
    store = _store_with_a_cat(tmp_path)
    messages = list(ASKED)
    with blocking.open(store, {"embedder": "none"}) as memory:
        turn = memory.conversation("c", user="ada").start_turn(messages)
        injected = turn.inject(messages, within=10.0)
    text, _ = _hooked(store, [*messages, {"role": "assistant", "content": "Miso."}, *ASKED])
    assert injected is not None
    assert text == ""


def _store_with_a_cat(folder: Path) -> Path:
    with blocking.open(folder / "memory.db", {"embedder": "none"}) as memory:
        memory.space("user:ada").add("Ada's cat is called Miso")
    return folder / "memory.db"


def _hooked(store: Path, messages: list[dict[str, str]]) -> tuple[str, list[str]]:
    text, heavy = json.loads(_printed(textwrap.dedent(HOOK).replace("HEAVY", HEAVY), str(store), json.dumps(messages)))
    return text, heavy


def _printed(program: str, *arguments: str) -> str:
    command = [sys.executable, "-W", "error", "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout

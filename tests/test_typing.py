"""Type checkers see the public names and the parameters of every verb. mypy and pyright read the same two programs."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent

GOOD = """
from collections.abc import Sequence
from typing import Any, assert_type

import afterturn
from afterturn import Added, Embedder, Entry, Filter, Hit, Lane, SearchResults, Settings, SpaceSummary, blocking

settings: Settings = {"grace": 0.1, "memory_review_interval": 5}


def handle(event: afterturn.Event) -> None:
    print(event.name)


async def with_a_loop() -> None:
    async with afterturn.open("memory.db", {"grace": 0.1}, on_event=handle) as memory:
        assert_type(memory, afterturn.Memory)
        assert_type(await memory.spaces(), list[SpaceSummary])
        space = memory.space("user:ada")
        assert_type(await space.add("The cat is called Miso.", target="user", pinned=True), Added)
        assert_type(await space.search("cat", lanes=[Lane.LONG_TERM]), SearchResults)
        assert_type(await space.search("cat", lanes=["episodic"]), SearchResults)
        found = await space.search("cat", limit=3, filter=Filter(kind="statement"), exclude=["a"])
        assert_type(found, SearchResults)
        assert_type(found.hits[0], Hit)
        assert_type(await space.list(filter=Filter(since="2026-01-01T00:00:00Z")), Sequence[Entry])
        conversation = memory.conversation("monday", user="ada", reads=["project:api"])
        messages = [{"role": "user", "content": "What is my cat called?"}]
        async with conversation.turn(messages) as turn:
            assert_type(turn, afterturn.Turn)
            await turn.inject(messages)
            messages.append({"role": "assistant", "content": "Miso."})
            turn.complete(messages)
        standing: afterturn.Standing = conversation.standing(roots=["."])
        assert_type(await standing.block(), str)
        tools: afterturn.Tools = conversation.tools()
        assert_type(await tools.dispatch("search_memory", {"query": "cat"}), str)


def without_a_loop() -> None:
    with blocking.open("memory.db", settings) as memory:
        assert_type(memory, blocking.Memory)
        space = memory.space("user:ada")
        assert_type(space.search("cat", limit=3), SearchResults)
        messages: list[dict[str, Any]] = [{"role": "user", "content": "What is my cat called?"}]
        with memory.conversation("monday", user="ada").turn(messages) as turn:
            turn.inject(messages)
            turn.complete(messages)
    try:
        assert_type(afterturn.recall_once("cat", user="ada"), SearchResults)
    except afterturn.StoreUnavailable as error:
        print(error)


class Model:
    async def complete(self, messages: object, tools: object = (), *, schema: object = None) -> dict[str, Any]:
        return {"role": "assistant", "content": ""}


model: afterturn.ChatModel = Model()
embedder: Embedder | None = None
afterturn.open("memory.db", model=model)
"""

# Every line that is marked must be reported, and no other.
BAD = """
import afterturn
from afterturn import Fliter  # wrong
from afterturn import Filter, Settings, blocking

afterturn.opne()  # wrong
afterturn.open("memory.db", grace=1)  # wrong
blocking.opne()  # wrong
Filter(kind="sentence")  # wrong
settings: Settings = {"graze": 0.1}  # wrong


async def with_a_loop(memory: afterturn.Memory) -> None:
    space = memory.space("user:ada")
    await space.search("cat", limt=3)  # wrong
    await space.search(3)  # wrong
    await space.search("cat", lanes=["words"])  # wrong
    await space.add("The cat is called Miso.", targt="user")  # wrong
    await space.recall("cat")  # wrong
    await memory.conversation("monday", usr="ada").compact([])  # wrong
    await memory.conversation("monday", user="ada").standing().block(1)  # wrong
    await memory.drain(whithin=1)  # wrong


def without_a_loop(memory: blocking.Memory) -> None:
    memory.space("user:ada").search("cat", limt=3)  # wrong
    memory.space("user:ada").get()  # wrong
    memory.space("user:ada").search("cat").hitz  # wrong
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("typing")
    (folder / "good.py").write_text(GOOD, encoding="utf-8")
    (folder / "bad.py").write_text(BAD, encoding="utf-8")
    return folder


def test_mypy_accepts_programs_and_reports_mistakes(folder: Path):
    settings = folder / "mypy.ini"
    settings.write_text(f"[mypy]\nstrict = true\nmypy_path = {ROOT / 'src'}\n", encoding="utf-8")
    done = run(["-m", "mypy", "--config-file", str(settings), "good.py", "bad.py"], folder)
    reported = re.findall(r"(?m)^(\w+)\.py:(\d+): error: (.*)", done)
    check([(name, int(line), message) for name, line, message in reported])


def test_pyright_accepts_programs_and_reports_mistakes(folder: Path):
    """By basedpyright, whose wheel brings all it needs, with pyright's standard rules."""
    settings: Mapping[str, object] = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT / "src")]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    done = run(["-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable], folder)
    reported = [
        (Path(item["file"]).stem, item["range"]["start"]["line"] + 1, item["message"])
        for item in json.loads(done)["generalDiagnostics"]
        if item["severity"] == "error"
    ]
    check(reported)


def test_pyright_accepts_the_examples(tmp_path: Path):
    """Those of frameworks run in environments of their own, with the packages that they import."""
    examples = ROOT / "examples"
    settings = {
        "typeCheckingMode": "standard",
        "extraPaths": [str(ROOT / "src")],
        "include": [str(examples)],
        "exclude": [str(examples / "frameworks")],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    done = run(["-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable], tmp_path, expected=0)
    assert json.loads(done)["summary"]["filesAnalyzed"] == len(list(examples.glob("*.py")))


def check(reported: list[tuple[str, int, str]]) -> None:
    wrong = {number for number, line in enumerate(BAD.splitlines(), start=1) if line.endswith("# wrong")}
    assert [item for item in reported if item[0] != "bad"] == []
    assert {line for name, line, _ in reported if name == "bad"} == wrong


def run(arguments: list[str], folder: Path, *, expected: int = 1) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, encoding="utf-8", timeout=110, check=False
    )
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout

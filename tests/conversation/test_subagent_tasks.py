"""A turn's dealings with sub-agents, on a loop of their own as in a memory: tasks, results, tools."""

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from toolbox import Toolbox

from afterturn.conversation.subagents import Subagents, Tools
from afterturn.errors import InvalidInput, MemoryClosed
from afterturn.runtime.loop_thread import LoopThread
from afterturn.runtime.supervisor import Supervisor
from afterturn.testing.entries import hit
from afterturn.types import Filter, Scope, Status


class Office:
    """The sub-agents of one memory, with a store or without."""

    def __init__(self, box: Toolbox, *, off: bool = False) -> None:
        self.box = box
        self.loop = LoopThread("test")
        self.loop.start()
        self.expected: list[object] = []
        services = box.services()
        services.has_store = not off
        services.loop = self.loop
        services.supervisor = Supervisor()
        services.recorder = SimpleNamespace(expect=self.expected.append)
        self.errands = Subagents(services)

    def close(self) -> None:
        self.loop.end(self.box.close)
        assert self.loop.wait_ended(within=10.0)

    def waiting(self) -> list[str]:
        scope, proposed = Scope("default", ("user:ada",)), Filter(statuses=(Status.PROPOSED,))
        found = self.box.store.read_now(lambda unit: unit.memories.page(scope, proposed, limit=100))
        return [entry.text for entry in reversed(found)]


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    opened = Office(Toolbox(tmp_path / "memory.db"))
    yield opened
    opened.close()


def test_delegating_tells_the_task_the_facts_and_the_tools(office: Office) -> None:
    """A1: at once, in the host's thread; the event has counts, no words."""
    recalled = [hit("Ada's table is by the window", occurred_at=office.box.clock.now())]
    text = office.errands.delegate(office.box.occasion(), recalled, "Book a table", remember=True)
    event = office.box.told.wait("delegated")
    assert text.startswith("## Task\nBook a table\n\n## Key Context (preserve these facts)\n")
    assert "- [e001] just now, user: Ada's table is by the window\n" in text
    assert [line.split(":")[0] for line in text.splitlines() if "_" in line] == ["- search_memory", "- remember_this"]
    assert (event.turn, dict(event.data)) == ("t1", {"memories": 1, "bytes": len(text.encode())})


def test_delegating_does_not_wait_for_memory(office: Office) -> None:
    """A1: its loop may be busy."""
    busy = threading.Event()
    office.loop.post(busy.wait, 20.0)
    text = office.errands.delegate(office.box.occasion(), (), "Book a table", remember=False)
    busy.set()
    assert text.startswith("## Task\nBook a table\n\n## Memory Tools Available\n- search_memory: ")


def test_without_memory_a_task_is_the_task_and_a_result_is_nothing(tmp_path: Path) -> None:
    """A1, §2: no tools are promised that would find nothing."""
    office = Office(Toolbox(tmp_path / "memory.db"), off=True)
    text = office.errands.delegate(office.box.occasion(), (), "Book a table", remember=True)
    office.errands.returned(office.box.occasion(), "Book a table", "The port is 5433")
    office.close()
    assert text == "## Task\nBook a table"
    assert (office.expected, office.box.told.events) == ([], [])


def test_what_comes_back_is_proposed_as_it_was_when_it_came(office: Office) -> None:
    """A3: behind the host's back, but not with what the host does to its list afterwards; closing waits for it."""
    learned = ["The port is 5433"]
    office.errands.returned(office.box.occasion(), "Look into the build", learned)
    learned.clear()
    office.box.told.wait("proposed")
    assert office.waiting() == ["The port is 5433"]
    assert len(office.expected) == 1


async def test_a_hosts_loop_gets_answers_from_memorys(office: Office) -> None:
    """A2, A3: the public tools, in each message format."""
    tools = Tools(office.errands.tools(office.box.occasion(), remember=True), office.loop)
    answer = await tools.dispatch("remember_this", '{"text": "The port is 5433"}')
    assert answer == "Proposed. A person decides whether it is kept."
    assert (await tools.dispatch("search_memory", {"query": "port"})).startswith("Nothing relevant")
    assert [definition["function"]["name"] for definition in tools.definitions()] == ["search_memory", "remember_this"]
    assert [definition["name"] for definition in tools.definitions("anthropic")] == ["search_memory", "remember_this"]


async def test_definitions_are_in_the_format_that_the_conversation_names(office: Office) -> None:
    """A2: and an unknown one is an error of the host's, told with the known ones."""
    occasion = office.box.occasion({"user": "ada", "dialect": "gemini"})
    tools = Tools(office.errands.tools(occasion, remember=False), office.loop)
    assert [list(definition) for definition in tools.definitions()] == [["function_declarations"]]
    with pytest.raises(InvalidInput, match="openai_chat"):
        tools.definitions("klingon")


async def test_after_closing_the_tools_still_answer(tmp_path: Path) -> None:
    """A2: with the reason, as text."""
    office = Office(Toolbox(tmp_path / "memory.db"))
    tools = Tools(office.errands.tools(office.box.occasion(), remember=False), office.loop)
    office.close()
    assert (await tools.dispatch("search_memory", {"query": "port"})).startswith(
        f"Memory cannot be searched now ({MemoryClosed.__name__})"
    )

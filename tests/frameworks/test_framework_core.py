"""What all adapters share: ids, open turns, the store that an adapter opens, and missing or untested frameworks."""

import asyncio
import logging
import os
import signal
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import afterturn
from afterturn import Filter, Kind, blocking
from afterturn.errors import ConfigError, ExtraMissing, InvalidInput, MemoryClosed, StoreUnavailable
from afterturn.frameworks import core
from afterturn.frameworks.core import FrameworkMemory, RunIds, usable_id, with_rules, with_rules_in
from afterturn.frameworks.requirements import check_framework
from afterturn.types import Entry

ASKED = [{"role": "user", "content": "What is my cat called?"}]
ANSWERED = [*ASKED, {"role": "assistant", "content": "Miso."}]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[blocking.Memory]:
    with blocking.open(tmp_path / "memory.db", {"grace": 30.0}) as opened:
        yield opened


def records(memory: blocking.Memory, space: str = "user:ada") -> list[Entry]:
    return list(memory.space(space).list(filter=Filter(kind=Kind.RECORD), limit=100))


def test_an_adapter_says_whose_memory_it_is(memory: blocking.Memory):
    """L2: there is no memory without an owner."""
    with pytest.raises(InvalidInput, match='user="ada"'):
        FrameworkMemory(memory)
    assert FrameworkMemory(memory, owner="team:support").conversation(RunIds(None)).owner == "team:support"
    assert FrameworkMemory(memory, needs_user=False).conversation(RunIds(None, user="bob")).owner == "user:bob"


@pytest.mark.parametrize("wrong", [object(), b"ada", ["ada"], True, 1.5])
def test_an_id_that_is_not_one_is_refused(memory: blocking.Memory, wrong: object):
    """L2: the text of an object has its address, which may be another user's object later."""
    with pytest.raises(ConfigError, match="Return a str, an int or a UUID"):
        FrameworkMemory(memory, user=lambda run: run).conversation(RunIds(wrong))
    assert FrameworkMemory(memory, user=lambda run: run).conversation(RunIds(7)).owner == "user:7"


def test_a_coroutine_function_does_not_choose_ids(memory: blocking.Memory):
    """L2: what it returns is not the id."""

    async def find_user(run: object) -> str:
        return "ada"

    with pytest.raises(ConfigError, match="coroutine"):
        FrameworkMemory(memory, user=find_user).conversation(RunIds(None))  # type: ignore[arg-type]


def test_ids_are_the_frameworks_own_unless_a_function_or_a_text_is_given(memory: blocking.Memory):
    """L2: one line of configuration."""
    ids = RunIds({"tenant": "x", "who": "eve"}, conversation="thread-1", user="bob", agent="cook")
    own = FrameworkMemory(memory, needs_user=False).conversation(ids)
    chosen = FrameworkMemory(memory, user=lambda run: run["who"], conversation="fixed").conversation(ids)
    assert (own.owner, own.id) == ("user:bob", "thread-1")
    assert (chosen.owner, chosen.id) == ("user:eve", "fixed")


def test_a_run_without_a_conversation_has_one_of_its_own(memory: blocking.Memory):
    """L2: two runs do not share what was said."""
    link = FrameworkMemory(memory, user="ada")
    assert link.conversation(RunIds(None)).id != link.conversation(RunIds(None)).id


@pytest.mark.parametrize("name", ["a\nb", "x" * 300, "\x00", "  "])
def test_an_id_that_cannot_be_stored_is_hashed(name: str):
    """Frameworks accept any text as an id; equal ids stay equal, others stay apart."""
    assert usable_id(name) == usable_id(name)
    assert usable_id(name).startswith("id-")
    assert usable_id(name) != usable_id(f"{name}!")


def test_a_user_that_cannot_be_stored_has_no_memory(memory: blocking.Memory, caplog: pytest.LogCaptureFixture):
    """Memory's failure never fails the run, and never hides: nobody gets the memory of somebody else."""
    link = FrameworkMemory(memory, user=lambda run: "x" * 300)
    assert link.begin("run", RunIds(None), ASKED) is None
    assert "continues without memory" in caplog.text
    failing = FrameworkMemory(memory, user=lambda run: run.user_id)
    assert failing.begin_blocking("run", RunIds(None), ASKED) is None
    assert "'NoneType' object has no attribute 'user_id'" in caplog.text


def test_a_turn_is_recorded_once_it_is_finished(memory: blocking.Memory):
    """C1: by its key, from whichever hook comes last."""
    link = FrameworkMemory(memory, user="ada")
    turn = link.begin_blocking("run", RunIds(None, conversation="c"), ASKED)
    assert turn is not None
    link.finish("run", ANSWERED)
    assert turn.wait_recorded(30)
    assert [entry.text for entry in records(memory)] == ["Miso.", "What is my cat called?"]
    assert link.find("run") is None
    link.finish("run", ANSWERED)


def test_hooks_of_both_kinds_share_a_turn(memory: blocking.Memory):
    """A framework may call a hook without an event loop in a run that has one."""
    memory.space("user:ada").add("My cat is called Miso", origin="user")
    memory.ready()
    link = FrameworkMemory(memory, user="ada")

    async def run() -> None:
        messages = list(ASKED)
        turn = link.begin("run", RunIds(None), messages)
        assert turn is not None
        assert await turn.inject(messages) is not None
        same = link.find_blocking("run")
        assert same is not None
        assert same.id == turn.id
        assert await asyncio.to_thread(same.before_tool, "shell", {"command": "ls"}) == afterturn.ToolAdvice()

    asyncio.run(run())


def test_a_run_that_was_not_continued_is_dropped(memory: blocking.Memory, monkeypatch: pytest.MonkeyPatch):
    """R4: some frameworks do not report that a run failed."""
    monkeypatch.setattr(core, "OPEN_RUNS_MAX", 2)
    link = FrameworkMemory(memory, user="ada")
    turns = [link.begin_blocking(str(number), RunIds(None), ASKED) for number in range(3)]
    assert all(turn is not None for turn in turns)
    assert link.find("0") is None
    assert link.find("2") is not None


def test_only_a_paused_run_is_continued(memory: blocking.Memory):
    """C3: a run of the same conversation that is still at work is not taken over."""
    link, ids = FrameworkMemory(memory, user="ada"), RunIds(None, conversation="c")
    link.begin_blocking("first", ids, ASKED)
    assert link.continue_paused(ids) is None
    link.pause("first")
    assert link.continue_paused(RunIds(None, conversation="other")) is None
    assert link.continue_paused(ids) == "first"
    assert link.continue_paused(ids) is None


def test_a_subagent_is_the_users_own_agent_if_the_adapter_is_told_so(memory: blocking.Memory):
    """A1: an agent may be a node of another graph and still talk to the user."""
    ids = RunIds(None, conversation="c", is_subagent=True)
    for link, origin in (
        (FrameworkMemory(memory, user="ada"), "subagent"),
        (FrameworkMemory(memory, user="ada", subagent=False), "user"),
    ):
        turn = link.begin_blocking(origin, ids, ASKED)
        link.finish(origin, ANSWERED)
        assert turn is not None
        assert turn.wait_recorded(30)
        asked = [entry for entry in records(memory) if entry.text == "What is my cat called?"]
        assert origin in {str(entry.origin) for entry in asked}


def test_an_adapter_opens_a_path_and_closes_it(tmp_path: Path):
    """A path is opened at once, so that a wrong one is noticed at once."""
    with pytest.raises(StoreUnavailable):
        FrameworkMemory(tmp_path / "missing" / "folder" / "memory.db", user="ada")
    link = FrameworkMemory(tmp_path / "memory.db", user="ada")
    space = link.space(RunIds(None))
    assert link.begin("run", RunIds(None), ASKED) is not None
    link.close()
    link.close()
    with pytest.raises(MemoryClosed):
        asyncio.run(space.list(limit=1))


def test_an_adapter_leaves_a_memory_open_that_it_was_given(memory: blocking.Memory):
    """Whoever opened it closes it."""
    FrameworkMemory(memory, user="ada").close()
    assert memory.space("user:ada").list(limit=1) == []


def test_a_forked_child_opens_its_own_store(tmp_path: Path):
    """Servers build agents before they fork."""
    link = FrameworkMemory(tmp_path / "memory.db", user="ada")
    child = os.fork()
    if child == 0:
        turn = link.begin_blocking("run", RunIds(None, conversation="c"), ASKED)
        link.finish("run", ANSWERED)
        os._exit(0 if turn is not None and turn.wait_recorded(30) else 1)
    signal.alarm(60)
    _, status = os.waitpid(child, 0)
    signal.alarm(0)
    assert os.waitstatus_to_exitcode(status) == 0
    link.close()
    with blocking.open(tmp_path / "memory.db") as memory:
        assert len(records(memory)) == 2


def test_rules_come_with_a_result(memory: blocking.Memory):
    """T1: with a text, or in a mapping."""
    advice = afterturn.ToolAdvice((afterturn.ToolRule("a", "user:ada", "Use pnpm", "npm"),))
    assert with_rules("done", advice) == f"done\n\n{advice.text}"
    assert with_rules_in({"ok": True}, advice) == {"ok": True, "rules": advice.text}
    assert with_rules_in([1], advice) == [1]
    assert with_rules("done", afterturn.ToolAdvice()) == "done"


def test_a_missing_framework_names_its_extra(monkeypatch: pytest.MonkeyPatch):
    """The import says what to install."""

    def version(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", version)
    with pytest.raises(ExtraMissing, match=r"langchain is not installed. Run `pip install 'afterturn\[langchain\]'`"):
        check_framework("langchain")


@pytest.mark.parametrize("version, warns", [("1.4.0", False), ("1.99.3", False), ("1.3.9", True), ("2.0.0rc1", True)])
def test_an_untested_version_warns_once(
    version: str, warns: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """One clear warning, and the adapter is used anyway."""
    monkeypatch.setattr(metadata, "version", lambda name: version if name == "langchain" else "1.2.5")
    monkeypatch.setattr("afterturn.frameworks.requirements._checked", set())
    with caplog.at_level(logging.WARNING):
        check_framework("langchain")
        check_framework("langchain")
    assert [f"langchain {version} is installed" in record.getMessage() for record in caplog.records] == [True] * warns


def test_every_extra_of_a_framework_is_known():
    """The ranges are read from the installed package."""
    for adapter in Path(core.__file__).parent.glob("*.py"):
        for line in adapter.read_text(encoding="utf-8").splitlines():
            if line.startswith("check_framework("):
                extra = line.split('"')[1]
                assert any(
                    f'extra == "{extra}"' in one.replace("'", '"') for one in metadata.requires("afterturn") or ()
                )

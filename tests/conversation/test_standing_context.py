"""A conversation's standing context: frozen, refreshed, and added to by what its agent touches."""

import asyncio
import functools
import gc
import logging
import os
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

import afterturn
from afterturn.config import Config
from afterturn.conversation.recall_client import RecallClient
from afterturn.conversation.scope import ConversationScope, make_scope
from afterturn.conversation.standing import StandingCore
from afterturn.errors import InvalidInput, InvalidName, MemoryClosed, StoreFull, StoreUnavailable
from afterturn.events import Events
from afterturn.models.meter import Meter
from afterturn.ports import Store
from afterturn.recall.block import block_hash, find_blocks
from afterturn.runtime import file_reads
from afterturn.runtime.file_reads import FileReads
from afterturn.runtime.loop_thread import LoopThread
from afterturn.runtime.supervisor import Supervisor
from afterturn.runtime.worker import ThreadWorker
from afterturn.standing import touched_files
from afterturn.standing.block import render_arrived
from afterturn.standing.context_files import Refusal
from afterturn.stores.sqlite.store import SqliteStore, open_store
from afterturn.testing.clock import ManualClock, SequentialIds
from afterturn.testing.entries import admit, operation
from afterturn.testing.events import EventLog
from afterturn.types import BlockRow, Entry, Origin, Selector, Target

R = TypeVar("R")
PLACE = make_scope("default", "c1", {"user": "ada", "reads": ["project:api"]})
WITHIN = 100.0


class Host:
    """Everything a standing context needs, over a real store. One stands for one process."""

    def __init__(self, path: Path, folder: Path, **config: Any) -> None:
        self.config = Config(**config)
        self.clock = ManualClock()
        self.told = EventLog()
        self.store: SqliteStore = open_store(path, self.config, self.clock)
        self.folder = folder
        self.loop = LoopThread("test-loop")
        self.loop.start()
        self.worker = ThreadWorker("test-files")
        self.supervisor = Supervisor()
        self.reads = FileReads(self.worker, self.clock)
        self.closed = False

    def core(
        self,
        *roots: Path,
        place: ConversationScope = PLACE,
        store: Store | str | None = "own",
        instructions: tuple[str, ...] = (),
    ) -> StandingCore:
        chosen, events = self.store if isinstance(store, str) else store, Events(self.clock, "default", self.told)
        meter = Meter(self.store, self.config, self.clock, events)
        services = SimpleNamespace(
            loop=self.loop,
            store=chosen,
            recall_client=RecallClient(chosen, None, None, self.config, self.clock, events, meter),
            has_store=store is not None,
            file_reads=self.reads,
            supervisor=self.supervisor,
            clock=self.clock,
            ids=SequentialIds(),
            config=self.config,
            events=events,
            embedding=None,
            context_folder=str(self.folder),
        )
        return StandingCore(services, place, roots, instructions)

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        return self.loop.wait(work)

    def touch(self, core: StandingCore, *paths: str) -> str | None:
        for path in paths:
            core.touch(path)
        assert self.run(core.flush(within=WITHIN))
        return core.take_arrived()

    def add(self, text: str, *, space: str = "user:ada", **draft: Any) -> Entry:
        step = operation(space=space)
        return self.store.write_now(lambda unit: unit.memories.add(step, admit(text, **draft))).entry

    def forget(self, entry: Entry) -> None:
        selector = Selector(memory=entry.id)
        self.store.write_now(lambda unit: unit.operations.forget("default", entry.space, selector, at=200.0))

    def skipped(self) -> list[tuple[object, object]]:
        return [
            (os.path.basename(str(event.data["path"])), event.data["reason"])
            for event in self.told.named("context_file_skipped")
        ]

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.loop.end(functools.partial(self.supervisor.close, within=WITHIN))
            assert self.loop.wait_ended(within=WITHIN)
            self.worker.close(within=WITHIN)
            self.store.close_now(within=WITHIN)


class BrokenStore:
    """As a disk that is gone, or full."""

    def __init__(self, store: Store, *, reads: bool = False) -> None:
        self._store = store
        self._reads = reads

    async def read(self, work: Any, *, at: Any) -> Any:
        if self._reads:
            return await self._store.read(work, at=at)
        raise StoreUnavailable("The disk is gone.")

    async def write(self, work: Any, *, at: Any) -> Any:
        raise StoreFull("No space is left.")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of the context files for all projects."""
    (tmp_path / "config").mkdir()
    return tmp_path / "config"


@pytest.fixture
def host(tmp_path: Path, folder: Path) -> Iterator[Host]:
    made = Host(tmp_path / "memory.db", folder)
    yield made
    made.close()


@pytest.fixture
def other(tmp_path: Path, folder: Path) -> Iterator[Host]:
    """Another process with the same store."""
    made = Host(tmp_path / "memory.db", folder)
    yield made
    made.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    for name in (".", "src", "src/deep", "docs"):
        (project / name).mkdir(exist_ok=True)
        (project / name / "AGENTS.md").write_text(f"rules of {name}")
    return project


def test_everything_that_stands_is_in_the_block(host: Host, root: Path, folder: Path):
    """S1: files, instructions and memories of the granted spaces."""
    (folder / "AGENTS.md").write_text("rules for all")
    host.add("Use tabs", target=Target.ENVIRONMENT, metadata={"kind": "convention"}, space="project:api")
    host.add("Answer in Italian", metadata={"kind": "preference"})
    host.add("From the web", pinned=True, origin=Origin.WEB)
    block = host.run(host.core(root, instructions=("Use the ticket server.",)).block())
    places = [block.index(text) for text in ("rules for all", "rules of .", "ticket server", "Use tabs", "Italian")]
    assert places == sorted(places)
    assert "web" not in block


def test_nothing_to_say_is_empty_and_stays_so(host: Host, root: Path):
    """S1, S3: absent when empty, and frozen all the same."""
    core = host.core()
    assert host.run(core.block()) == ""
    assert host.run(core.appended("You help.")) == "You help."
    host.add("new", pinned=True)
    assert host.run(core.block()) == ""
    assert host.told.named("standing_changed") == []


def test_the_block_goes_last_in_the_prompt(host: Host, root: Path):
    """S1: after a `---` line."""
    core = host.core(root)
    block = host.run(core.block())
    assert host.run(core.appended("You help.")) == f"You help.\n\n---\n\n{block}"


def test_the_block_is_frozen_until_it_is_refreshed(host: Host, root: Path):
    """S3: neither a file nor a memory changes it by itself."""
    core = host.core(root)
    before = host.run(core.block())
    (root / "AGENTS.md").write_text("new rules")
    host.add("new", pinned=True)
    assert host.run(core.block()) == before
    after = host.run(core.refresh())
    assert "new rules" in after
    assert "- new" in after
    assert host.run(core.block()) == after


def test_a_preview_is_what_a_new_conversation_gets_and_freezes_nothing(host: Host, root: Path):
    """S1, S3: to be looked at by a person."""
    host.add("first", pinned=True)
    before = host.run(host.core(root).preview())
    host.add("second", pinned=True)
    after = host.run(host.core(root).preview())
    assert before != after
    assert host.run(host.core(root).block()) == after
    assert [event.name for event in host.told.events if event.name.startswith("standing")] == ["standing_changed"]


def test_another_process_gives_the_same_bytes(host: Host, other: Host, root: Path):
    """S3: whatever it would make itself; and a refresh reaches it."""
    before = host.run(host.core(root).block())
    (root / "AGENTS.md").write_text("new rules")
    elsewhere = other.core(instructions=("other",))
    assert other.run(elsewhere.block()) == before
    assert other.told.named("standing_changed") == []
    after = host.run(host.core(root).refresh())
    assert other.run(elsewhere.block()) == after


def test_two_processes_that_make_it_at_once_agree(host: Host, other: Host, root: Path):
    """S3: the first that is stored stands."""
    made: list[str] = []
    cores = [host.core(root, instructions=("one",)), other.core(root, instructions=("two",))]
    threads = [
        threading.Thread(target=lambda host=host, core=core: made.append(host.run(core.block())))
        for host, core in zip((host, other), cores, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WITHIN)
    assert len(made) == 2
    assert made[0] == made[1]


def test_another_owners_conversation_of_the_same_id_has_its_own(host: Host, root: Path):
    """S3, L2: a conversation's key is tenant, owner and id."""
    host.add("Ada's", pinned=True)
    host.run(host.core(root).block())
    bob = host.core(place=make_scope("default", "c1", {"user": "bob"}))
    assert host.run(bob.block()) == ""


def test_a_change_is_told_with_its_paths(host: Host, root: Path):
    """S2: refreshing reloads and emits `standing_changed`, but only when something changed."""
    core = host.core(root)
    host.run(core.block())
    host.run(core.refresh())
    (root / "AGENTS.md").write_text("new rules")
    host.run(core.refresh("asked by a person"))
    events = host.told.named("standing_changed")
    assert [event.data["reason"] for event in events] == ["start", "asked by a person"]
    assert [event.data["paths"] for event in events] == [str(root / "AGENTS.md")] * 2
    assert (events[0].space, events[0].conversation) == ("user:ada", "c1")


def test_after_a_compaction_it_is_made_anew(host: Host, other: Host, root: Path):
    """S3, H7: when it is next asked for, by whatever process."""
    core = host.core(root)
    host.run(core.block())
    (root / "AGENTS.md").write_text("new rules")
    host.run(core.invalidate("compacted"))
    assert "new rules" in host.run(core.block())
    assert host.told.named("standing_changed")[-1].data["reason"] == "compacted"
    host.run(core.invalidate("compacted"))
    (root / "AGENTS.md").write_text("newest rules")
    assert "newest rules" in other.run(other.core(root).block())


def test_what_is_forgotten_leaves_the_block_at_once(host: Host, other: Host, root: Path):
    """S3, M2: in this and in other processes, before they are asked again."""
    entry = host.add("Ada's secret", pinned=True)
    core, elsewhere = host.core(root), other.core(root)
    assert "secret" in host.run(core.block())
    assert "secret" in other.run(elsewhere.block())
    host.forget(entry)
    assert "secret" not in host.run(core.block())
    assert "secret" not in other.run(elsewhere.block())
    assert host.told.named("standing_changed")[-1].data["reason"] == "dropped"


def test_what_is_forgotten_while_the_block_is_made_is_not_in_it(
    host: Host, root: Path, monkeypatch: pytest.MonkeyPatch
):
    """S3, M2: in-flight work can't bring it back."""
    entry = host.add("Ada's secret", pinned=True)
    core = host.core(root)
    honest = core._store_block

    async def forgotten_meanwhile(*values: Any, **named: Any) -> str | None:
        monkeypatch.setattr(core, "_store_block", honest)
        await asyncio.to_thread(host.forget, entry)
        return await honest(*values, **named)

    monkeypatch.setattr(core, "_store_block", forgotten_meanwhile)
    block = host.run(core.block())
    assert "secret" not in block
    assert "rules of ." in block
    assert host.run(core.block()) == block


def test_a_touched_file_arrives_once(host: Host, root: Path):
    """S2, S3: as one block, without what stands in the system prompt."""
    core = host.core(root)
    host.run(core.block())
    arrived = host.touch(core, str(root / "src" / "deep" / "x.py"), "src/y.py")
    assert arrived is not None
    assert [arrived.count(f"rules of {name}\n") for name in (".", "src", "src/deep", "docs")] == [0, 1, 1, 0]
    assert len(find_blocks(arrived)) == 1
    assert core.take_arrived() is None
    assert host.touch(core, "src/deep/x.py", "src/z.py", "new.py") is None


def test_what_is_not_taken_waits_and_grows(host: Host, root: Path):
    """S3: at the next point there is one block."""
    core = host.core(root)
    core.touch("src/x.py")
    assert host.run(core.flush(within=WITHIN))
    arrived = host.touch(core, "docs/x.md")
    assert arrived is not None
    assert [arrived.count(f"rules of {name}\n") for name in ("src", "docs")] == [1, 1]
    assert len(find_blocks(arrived)) == 1


def test_a_touch_before_the_block_was_asked_for_brings_nothing_twice(host: Host, root: Path):
    """S2: each loads once."""
    core = host.core(root)
    arrived = host.touch(core, "src/x.py")
    assert arrived is not None
    assert "rules of ." not in arrived
    assert "rules of .\n" in host.run(core.block())


def test_touched_files_join_the_block_at_a_refresh(host: Host, root: Path):
    """S3: and need not arrive any more."""
    core = host.core(root)
    host.touch(core, "src/x.py")
    core.touch("docs/x.md")
    assert host.run(core.flush(within=WITHIN))
    block = host.run(core.refresh())
    assert [block.count(f"rules of {name}\n") for name in (".", "src", "docs")] == [1, 1, 1]
    assert core.take_arrived() is None
    assert host.touch(core, "src/x.py", "docs/y.md") is None
    assert "rules of src\n" in host.run(core.refresh())


def test_what_arrived_in_another_process_is_known_by_its_block(host: Host, other: Host, root: Path):
    """S2, S3: not brought again while it is in sight, and joined to the block after a compaction."""
    core, elsewhere = host.core(root), other.core(root)
    text = host.touch(core, "src/x.py")
    assert text is not None
    row = BlockRow(block_hash(text), "t1", (), len(text), 100.0, text=text)
    host.store.write_now(lambda unit: unit.conversations.add_block(PLACE.key, row))
    assert other.touch(elsewhere, "src/x.py") is None
    host.store.write_now(lambda unit: unit.conversations.clear(PLACE.key, at=200.0, compacted=True))
    other.run(elsewhere.invalidate("compacted"))
    assert "rules of src\n" in other.run(elsewhere.block())


def test_an_untrusted_folder_brings_nothing(host: Host, root: Path, tmp_path: Path):
    """S2: a touched path outside the roots is not even looked at."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "AGENTS.md").write_text("evil")
    core = host.core(root)
    assert host.touch(core, str(tmp_path / "elsewhere" / "x"), "../elsewhere/x", "/etc/passwd") is None
    assert host.skipped() == []


def test_what_is_skipped_is_told_once(host: Host, root: Path):
    """S2: a file that was meant to be read and was not."""
    (root / "MEMORY.md").symlink_to("/etc/passwd")
    core = host.core(root, root / "missing")
    host.run(core.block())
    host.touch(core, "src/x.py")
    host.run(core.refresh())
    assert host.skipped() == [("missing", Refusal.NO_FOLDER), ("MEMORY.md", Refusal.OUTSIDE)]


def test_ten_thousand_files_do_not_flood_a_conversation(tmp_path: Path, folder: Path):
    """S2: the room for touched files is that of the standing block, until a refresh."""
    host = Host(tmp_path / "memory.db", folder, standing_bytes_max=8192)
    many = tmp_path / "many"
    for at in range(300):
        (many / f"f{at}").mkdir(parents=True)
        (many / f"f{at}" / "AGENTS.md").write_text("word " * 100)
    try:
        core = host.core(many)
        taken = [host.touch(core, *(f"f{at}/x{more}" for more in range(50))) for at in range(200)]
        texts = [text for text in taken if text is not None]
        assert 5 < len(texts) < 20
        assert (f"f{199}", Refusal.NO_ROOM) not in host.skipped()
        assert ("AGENTS.md", Refusal.NO_ROOM) in host.skipped()
        assert len(host.run(core.refresh()).encode()) <= 8192
    finally:
        host.close()


def test_touching_from_many_threads_loses_nothing(host: Host, root: Path):
    """S2: from any thread, and a take in between gets each file once."""
    for at in range(40):
        (root / f"d{at}").mkdir()
        (root / f"d{at}" / "AGENTS.md").write_text(f"number {at}!")
    core = host.core(root)
    taken: list[str | None] = []

    def agent(start: int) -> None:
        for at in range(start, 40, 4):
            core.touch(root / f"d{at}" / "x")
            taken.append(core.take_arrived())

    threads = [threading.Thread(target=agent, args=(start,)) for start in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WITHIN)
    assert host.run(core.flush(within=WITHIN))
    taken.append(core.take_arrived())
    text = "".join(filter(None, taken))
    assert [text.count(f"number {at}!") for at in range(40)] == [1] * 40


def test_what_is_taken_while_more_is_rendered_does_not_come_again(
    host: Host, root: Path, monkeypatch: pytest.MonkeyPatch
):
    """S3: once; and a host that asks all the time keeps nothing from arriving."""
    core = host.core(root)
    core.touch("src/x.py")
    assert host.run(core.flush(within=WITHIN))
    honest, taken = render_arrived, []

    def taken_meanwhile(*values: Any, **named: Any) -> Any:
        taken.append(core.take_arrived())
        return honest(*values, **named)

    monkeypatch.setattr(touched_files, "render_arrived", taken_meanwhile)
    core.touch("docs/x.md")
    assert host.run(core.flush(within=WITHIN))
    monkeypatch.undo()
    text = "".join(filter(None, [*taken, core.take_arrived()]))
    assert [text.count(f"rules of {name}\n") for name in ("src", "docs")] == [1, 1]


class Rude:
    def __fspath__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize("path", [None, 7, "", "\x00", "x" * 100_000, b"src/x", "\ud800", Rude(), object()])
def test_touching_never_raises(host: Host, root: Path, path: Any):
    """S2: whatever an agent's tool was given."""
    core = host.core(root)
    core.touch(path)
    assert host.run(core.flush(within=WITHIN))


def test_more_touches_than_can_wait_are_let_go(host: Host, root: Path, monkeypatch: pytest.MonkeyPatch):
    """S2: bounded."""
    monkeypatch.setattr(touched_files, "TOUCHED_MAX", 2)
    core = host.core(root)
    waiting = touched_files.TouchedFiles(1000)
    assert [waiting.touch(f"p{at}") for at in range(4)] == [True, False, False, False]
    assert waiting.next_touched() == ["p0", "p1"]
    assert host.touch(core, "src/x.py") is not None


def test_a_closed_memory_lets_go_of_what_is_touched(host: Host, root: Path, caplog: pytest.LogCaptureFixture):
    """S2: never raises, and says so once; the block itself can not be had."""
    core = host.core(root)
    host.close()
    core.touch("src/x.py")
    core.touch("src/y.py")
    assert core.take_arrived() is None
    assert len(host.told.named("memory_closed")) == 1
    with pytest.raises(MemoryClosed):
        host.run(core.block())


def test_without_a_store_files_and_instructions_still_stand(host: Host, root: Path):
    """S1, S3: `open(None)` is the same API; the block is frozen in this process."""
    core = host.core(root, store=None, instructions=("Use the ticket server.",))
    block = host.run(core.block())
    assert "rules of ." in block
    assert "ticket server" in block
    (root / "AGENTS.md").write_text("new rules")
    assert host.run(core.block()) == block
    assert "rules of src\n" in (host.touch(core, "src/x.py") or "")
    host.run(core.invalidate("compacted"))
    after = host.run(core.block())
    assert "new rules" in after
    assert "rules of src\n" in after


def test_a_store_that_is_gone_costs_memories_only(host: Host, root: Path, caplog: pytest.LogCaptureFixture):
    """S1: a fault of memory must not fail the host's turn, and is not frozen."""
    host.add("pinned fact", pinned=True)
    core = host.core(root, store=BrokenStore(host.store))
    with caplog.at_level(logging.WARNING):
        block = host.run(core.block())
        assert host.touch(core, "src/x.py") is not None
        host.run(core.invalidate("compacted"))
    assert "rules of ." in block
    assert "pinned fact" not in block
    assert any("cannot be read" in record.message for record in caplog.records)
    assert "pinned fact" in host.run(host.core(root).block())


def test_a_store_that_can_not_be_written_still_gives_a_block(host: Host, root: Path):
    """S3: it is made anew each time, from what is there."""
    host.add("pinned fact", pinned=True)
    core = host.core(root, store=BrokenStore(host.store, reads=True))
    block = host.run(core.block())
    assert "pinned fact" in block
    assert host.run(core.block()) == block
    host.run(core.invalidate("compacted"))
    assert host.run(core.refresh()) == block


def test_a_compaction_that_could_not_be_stored_still_counts_here(
    host: Host, root: Path, monkeypatch: pytest.MonkeyPatch
):
    """S3, H7: the old block is not given again."""
    core = host.core(root)
    host.run(core.block())
    (root / "AGENTS.md").write_text("new rules")
    with monkeypatch.context() as patch:
        patch.setattr(host.store, "write", BrokenStore(host.store).write)
        host.run(core.invalidate("compacted"))
    after = host.run(core.block())
    assert "new rules" in after
    assert host.run(host.core(root).block()) == after


class HangingStore(BrokenStore):
    """As a database behind a network that is gone."""

    async def read(self, work: Any, *, at: Any) -> Any:
        await asyncio.get_running_loop().create_future()


def test_a_store_that_hangs_is_asked_once(tmp_path: Path, folder: Path, root: Path):
    """S1, L8: and costs memories only."""
    host = Host(tmp_path / "memory.db", folder, recall_timeout=0.01)
    try:
        block = host.run(host.core(root, store=HangingStore(host.store)).block())
        assert "rules of ." in block
    finally:
        host.close()


def test_contexts_do_not_wait_for_a_store_that_hangs(tmp_path: Path, folder: Path, root: Path):
    """S4, L8: the files of the project arrive without memories."""
    host = Host(tmp_path / "memory.db", folder, recall_timeout=0.01)
    try:
        core = host.core(root, store=HangingStore(host.store))
        for context in (core.project_context(), core.task_context("tester")):
            assert "rules of ." in host.run(asyncio.wait_for(context, 5.0))
    finally:
        host.close()


def test_a_refresh_that_failed_leaves_the_old_block(host: Host, root: Path, monkeypatch: pytest.MonkeyPatch):
    """S3: what could not be read anew is read anew when it is next asked for."""
    host.add("pinned fact", pinned=True)
    core = host.core(root)
    host.run(core.block())
    (root / "AGENTS.md").write_text("new rules")
    with monkeypatch.context() as patch:
        patch.setattr(host.store, "read", BrokenStore(host.store).read)
        assert "pinned fact" not in host.run(core.refresh())
    after = host.run(core.block())
    assert "pinned fact" in after
    assert "new rules" in after


def test_files_that_can_not_be_read_in_time_cost_files_only(host: Host, root: Path, monkeypatch: pytest.MonkeyPatch):
    """S1: a file system that hangs is waited for once, and what it kept back comes later."""
    monkeypatch.setattr(file_reads, "READ_WITHIN", 0.05)
    host.add("pinned fact", pinned=True)
    release = threading.Event()

    def hang() -> None:
        release.wait(WITHIN)

    host.worker.post(hang)
    core = host.core(root)
    block = host.run(core.block())
    assert "pinned fact" in block
    assert "rules of ." not in block
    assert host.skipped() == [("project", Refusal.TIMEOUT)]
    host.clock.advance(1.0)
    monkeypatch.setattr(file_reads, "READ_WITHIN", 0.5)
    assert host.run(core.block()) == block
    release.set()
    drained = threading.Event()
    host.worker.post(drained.set)
    assert drained.wait(WITHIN)
    monkeypatch.setattr(file_reads, "READ_WITHIN", WITHIN)
    assert "rules of ." in host.run(core.block())


@pytest.mark.parametrize(
    "roots,instructions", [("/tmp", ()), (Path("/tmp"), ()), ([7], ()), (None, ()), ((), "text"), ((), [7]), ((), 3)]
)
def test_what_is_no_list_is_refused(host: Host, roots: Any, instructions: Any):
    """S2: a text taken for a list would trust the folders of its letters."""
    services = host.core()._services
    with pytest.raises(InvalidInput):
        StandingCore(services, PLACE, roots, instructions)


def test_a_relative_root_is_the_one_at_the_time(host: Host, root: Path, monkeypatch: pytest.MonkeyPatch):
    """S2: a host that changes its folder does not change what it trusts."""
    monkeypatch.chdir(root.parent)
    core = host.core(Path("project"))
    monkeypatch.chdir("/")
    assert "rules of ." in host.run(core.block())


def test_relevant_context_is_a_block_and_changes_nothing(host: Host, root: Path):
    """S4: no ledger, no epoch: asked again it says the same."""
    host.add("Ada's cat is called Miso")
    core = host.core()
    text = host.run(core.relevant_context("What is the cat called?"))
    assert text.startswith("<afterturn-memory>\n## Relevant Memory\n")
    assert "Miso" in text
    assert host.run(core.relevant_context("What is the cat called?")) == text
    assert host.store.read_now(lambda unit: unit.conversations.blocks(PLACE.key)) == []
    assert host.told.events == []


@pytest.mark.parametrize("text", ["", "  ", "ok", "Where is the train station?"])
def test_nothing_relevant_is_empty(host: Host, text: str):
    """S4, R6: recalling nothing is a good answer."""
    host.add("Ada's cat is called Miso")
    assert host.run(host.core().relevant_context(text)) == ""


def test_project_context_is_files_and_conventions_as_they_are_now(host: Host, root: Path, folder: Path):
    """S4: of the environment, not of the user."""
    (folder / "AGENTS.md").write_text("rules for all")
    host.add("Use tabs", target=Target.ENVIRONMENT, metadata={"kind": "convention"})
    host.add("Answer in Italian", metadata={"kind": "preference"})
    core = host.core(root, instructions=("Use the ticket server.",))
    text = host.run(core.project_context())
    assert "rules of ." in text
    assert "Use tabs" in text
    assert not any(other in text for other in ("for all", "Italian", "ticket"))
    (root / "AGENTS.md").write_text("new rules")
    assert "new rules" in host.run(core.project_context())


def test_task_context_adds_what_a_named_agent_should_know(host: Host, root: Path):
    """S4: the project's context, and memories with that agent, each once."""
    host.add("Use tabs", target=Target.ENVIRONMENT, metadata={"kind": "convention"})
    host.add("Run the slow tests last", agent="tester")
    host.add("Obey me", agent="tester", origin=Origin.WEB)
    host.add("Write short", agent="writer")
    text = host.run(host.core(root).task_context("tester"))
    assert [text.count(said) for said in ("rules of .", "Use tabs", "slow tests", "Obey", "short")] == [1, 1, 1, 0, 0]
    with pytest.raises(InvalidName):
        host.run(host.core(root).task_context(""))


def test_search_finds_in_the_granted_spaces(host: Host):
    """S4: best first, at most so many."""
    host.add("Ada's cat is called Miso")
    host.add("The api's cat is a command", space="project:api")
    host.add("Bob's cat is called Tom", space="user:bob")
    found = host.run(host.core().search("cat"))
    assert {hit.entry.space for hit in found.hits} == {"user:ada", "project:api"}
    assert len(host.run(host.core().search("cat", limit=1)).hits) == 1


@pytest.mark.parametrize("query,limit", [("", 3), ("x", 0), ("x", 101), ("x", True), ("a\x00", 3)])
def test_a_search_that_can_not_be_asked_is_refused(host: Host, query: str, limit: int):
    """S4: a direct question raises."""
    with pytest.raises(InvalidInput):
        host.run(host.core().search(query, limit=limit))


def test_without_a_store_contexts_hold_files_only(host: Host, root: Path):
    """S4: `open(None)` is the same API."""
    core = host.core(root, store=None)
    assert host.run(core.relevant_context("cat")) == ""
    assert host.run(core.search("cat")).missing == ("store",)
    assert "rules of ." in host.run(core.project_context())
    assert "rules of ." in host.run(core.task_context("tester"))


def test_a_store_that_is_gone_leaves_contexts_without_memories(host: Host, root: Path):
    """S4: prompts are still built; a search says what is wrong."""
    core = host.core(root, store=BrokenStore(host.store))
    assert host.run(core.relevant_context("cat")) == ""
    assert "rules of ." in host.run(core.project_context())
    assert "rules of ." in host.run(core.task_context("tester"))
    with pytest.raises(StoreUnavailable):
        host.run(core.search("cat"))


async def test_what_arrives_is_handed_over_though_nobody_holds_the_conversation(
    memory: afterturn.Memory, tmp_path: Path
) -> None:
    """S3: the standing context is enough to hold on to."""
    folder = tmp_path / "project" / "src"
    folder.mkdir(parents=True)
    (folder / "AGENTS.md").write_text("Dates are ISO 8601.\n", encoding="utf-8")
    standing = memory.conversation("c", user="ada").standing(roots=[tmp_path / "project"])
    standing.touch(folder / "dates.py")
    assert await standing.flush(within=WITHIN)
    gc.collect()
    messages: list[dict[str, Any]] = [{"role": "user", "content": "How do we write dates?"}]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        element = await turn.inject(messages)
    assert "ISO 8601" in str(element)

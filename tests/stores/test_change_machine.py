"""Whatever is said, proposed, decided, undone and forgotten in whatever order, a store's memories stay sound."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from afterturn.config import Config
from afterturn.errors import Conflict, NotFound
from afterturn.ports import Unit
from afterturn.stores.sqlite.engine import open_engine
from afterturn.testing.clock import ManualClock
from afterturn.testing.entries import admit, operation
from afterturn.types import Entry, Filter, Operation, Scope, Selector, Status, Verb

R = TypeVar("R")
ADA = Scope("default", ("user:ada",))
WAITING = (Status.PROPOSED, Status.WITHDRAWAL)
IDS = st.sampled_from([f"m{number}" for number in range(3)])
# Few, so that memories come to say the same; two differ in letters alone.
TEXTS = st.sampled_from(["Ada keeps bees", "ADA keeps bees", "Ada keeps wasps", "Ada keeps ants"])
GROUPS = st.sampled_from([None, "review-1", "review-2"])


class Changes(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.store = open_engine(self.folder / "memory.db", Config(synchronous="normal"), ManualClock())
        self.done: list[str] = []

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.folder)

    @rule(entry_id=IDS, text=TEXTS, proposed=st.booleans(), group=GROUPS)
    def add(self, entry_id: str, text: str, proposed: bool, group: str | None) -> None:
        step = operation(Verb.ADD, group=group)
        self._try(step, lambda unit: unit.memories.add(step, admit(text, id=entry_id, proposed=proposed)))

    @rule(entry_id=IDS, text=TEXTS, proposed=st.booleans(), group=GROUPS)
    def update(self, entry_id: str, text: str, proposed: bool, group: str | None) -> None:
        step, admitted = operation(Verb.UPDATE, group=group), admit(text, proposed=proposed)
        self._try(step, lambda unit: unit.memories.update(step, entry_id, admitted, expected_version=None))

    @rule(entry_id=IDS, group=GROUPS)
    def withdraw(self, entry_id: str, group: str | None) -> None:
        step = operation(Verb.DELETE, group=group)
        self._try(step, lambda unit: unit.memories.propose_delete(step, entry_id, expected_version=None))

    @rule(entry_id=IDS, group=GROUPS)
    def approve(self, entry_id: str, group: str | None) -> None:
        step, before = operation(Verb.APPROVE, group=group), self._versions(entry_id)
        waiting = [entry for entry in before if entry.status in WAITING]
        approved = self._try(step, lambda unit: unit.memories.approve(step, entry_id))
        if approved is not None:
            (proposal,) = waiting
            expected = Status.DELETED if proposal.status is Status.WITHDRAWAL else Status.ACTIVE
            assert (approved.version, approved.text, approved.status) == (proposal.version, proposal.text, expected)

    @rule(entry_id=IDS, group=GROUPS)
    def delete(self, entry_id: str, group: str | None) -> None:
        step, before = operation(Verb.DELETE, group=group), self._versions(entry_id)
        waits = any(entry.status in WAITING for entry in before)
        if self._try(step, lambda unit: unit.memories.delete(step, entry_id)) is not None and waits:
            assert _active(self._versions(entry_id)) == _active(before)

    @precondition(lambda self: self.done)
    @rule(data=st.data())
    def undo_and_do_again(self, data: st.DataObject) -> None:
        """Undone exactly, an undo leads back to where it began."""
        target = data.draw(st.sampled_from(self.done))
        before, step, again = self._everything(), operation(Verb.UNDO), operation(Verb.UNDO)
        if self._try(step, lambda unit: unit.operations.undo(step, target=target)) is None:
            assert self._everything() == before
            return
        if data.draw(st.booleans()):
            self.store.write_now(lambda unit: unit.operations.undo(again, target=step.id))
            assert self._everything() == before

    @rule(entry_id=IDS)
    def forget(self, entry_id: str) -> None:
        self.store.write_now(
            lambda unit: unit.operations.forget("default", "user:ada", Selector(memory=entry_id), at=1.0)
        )
        assert self._versions(entry_id) == []

    @invariant()
    def one_version_holds_and_one_waits(self) -> None:
        for versions in self._everything().values():
            statuses = [entry.status for entry in versions]
            assert statuses.count(Status.ACTIVE) <= 1
            assert sum(status in WAITING for status in statuses) <= 1

    @invariant()
    def nothing_is_active_or_proposed_twice(self) -> None:
        entries = [entry for versions in self._everything().values() for entry in versions]
        for status in (Status.ACTIVE, Status.PROPOSED):
            hashes = [entry.content_hash for entry in entries if entry.status is status]
            assert len(hashes) == len(set(hashes))

    @invariant()
    def what_a_memory_says_now_is_given_and_counted(self) -> None:
        everything = self._everything()
        active = [entry for versions in everything.values() if (entry := _active(versions)) is not None]
        for entry_id, versions in everything.items():
            now = self.store.read_now(lambda unit, entry_id=entry_id: unit.memories.get(ADA, entry_id))
            assert now == (_active(versions) or versions[-1])
        extents = self.store.read_now(lambda unit: unit.index.stats(ADA))
        assert sum(extent.documents for extent in extents.values()) == len(active)
        frequencies = self.store.read_now(lambda unit: unit.index.frequencies(ADA, ["bee", "wasp", "ant"]))
        for word, count in frequencies.get("user:ada", {}).items():
            assert count == sum(word in entry.text for entry in active)

    def _try(self, step: Operation, work: Callable[[Unit], R]) -> R | None:
        """None when it is refused, which a store may do for two reasons only."""
        try:
            result = self.store.write_now(work)
        except (Conflict, NotFound):
            return None
        self.done += [name for name in (step.id, step.group) if name is not None and name not in self.done]
        return result

    def _versions(self, entry_id: str) -> list[Entry]:
        return self._everything().get(entry_id, [])

    def _everything(self) -> dict[str, list[Entry]]:
        def work(unit: Unit) -> dict[str, list[Entry]]:
            page = unit.memories.page(ADA, Filter(statuses=tuple(Status)), limit=99)
            return {entry.id: unit.memories.history(ADA, entry.id) for entry in page}

        return self.store.read_now(work)


def _active(versions: list[Entry]) -> Entry | None:
    return next((entry for entry in versions if entry.status is Status.ACTIVE), None)


def test_memories_stay_sound_whatever_is_proposed_decided_undone_and_forgotten() -> None:
    """M1, V8, G6: one version holds, one change waits, nothing is said twice, and what is undone is as it was."""
    run_state_machine_as_test(Changes, settings=settings(max_examples=25, stateful_step_count=30, deadline=None))

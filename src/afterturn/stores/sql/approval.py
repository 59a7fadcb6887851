"""What waits until somebody approves it: a statement of its own, a change of one, or its withdrawal."""

from collections.abc import Sequence
from dataclasses import replace

from afterturn.base.errors import Conflict
from afterturn.base.types import Added, Admitted, Entry, Operation, Status
from afterturn.stores.sql.current import Current, Waiting, has_ended
from afterturn.stores.sql.entries import Entries, with_status
from afterturn.stores.sql.rows import new_entry


class Approval:
    def __init__(self, entries: Entries, current: Current) -> None:
        self._entries = entries
        self._current = current

    def propose(self, operation: Operation, admitted: Admitted) -> Added:
        """A statement of its own. What says the same, and is active or waits, is given instead."""
        for status in (Status.ACTIVE, Status.PROPOSED):
            found = self._current.find_duplicate(operation, admitted, status)
            if found is not None and not has_ended(found[1], admitted.recorded_at):
                return Added(found[1], created=False, operation=None)
            if found is not None and status is Status.PROPOSED:
                self._entries.move(operation, found[0], Status.PROPOSED, Status.EXPIRED)
        entry = self._entries.insert(operation, admitted, admitted.id)
        if entry is None:
            raise Conflict(f"{operation.space} has {admitted.id} or its like already. Read it and try again.")
        return Added(entry, created=True, operation=operation.id)

    def propose_change(self, operation: Operation, base: Entry, admitted: Admitted) -> Entry:
        ended = self._check_room(operation, base.id, admitted.recorded_at)
        like = self._current.find_duplicate(operation, admitted, Status.PROPOSED)
        if like is not None and like[1].id != base.id:
            if not has_ended(like[1], admitted.recorded_at):
                raise Conflict(f"{like[1].id} is proposed and says the same. Approve or reject that one first.")
            ended.append(like)
        version = self._current.next_version(operation, base.id)
        change = new_entry(admitted, base.id, version=version, space=operation.space, status=Status.PROPOSED)
        return self._wait(operation, change, base.version, ended)

    def propose_delete(self, operation: Operation, base: Entry) -> Entry:
        """With the same words and sources: whatever is forgotten takes this copy along."""
        ended = self._check_room(operation, base.id, operation.at)
        version = self._current.next_version(operation, base.id)
        copy = replace(base, version=version, status=Status.WITHDRAWAL, recorded_at=operation.at)
        return self._wait(operation, copy, base.version, ended)

    def approve(self, operation: Operation, entry_id: str) -> Entry:
        waiting = self._current.find_waiting(operation, entry_id)
        if waiting is None:
            status = self._current.newest_status(operation, entry_id)
            raise Conflict(f"{entry_id} is {status}; only what is proposed can be approved.")
        if waiting.entry.status is Status.WITHDRAWAL:
            return self._withdraw(operation, waiting)
        replaced = None if waiting.base is None else self._get_base(operation, waiting)
        rival = self._current.find_rival(operation, waiting.entry)
        if rival is not None and rival[0] != replaced:
            self._give_way(operation, *rival)
        if replaced is not None:
            self._entries.move(operation, replaced, Status.ACTIVE, Status.SUPERSEDED)
        self._entries.move(operation, waiting.key, Status.PROPOSED, Status.ACTIVE)
        return with_status(waiting.entry, Status.ACTIVE)

    def reject(self, operation: Operation, waiting: Waiting) -> Entry:
        self._entries.move(operation, waiting.key, waiting.entry.status, Status.DELETED)
        return with_status(waiting.entry, Status.DELETED)

    def _withdraw(self, operation: Operation, waiting: Waiting) -> Entry:
        self._entries.move(operation, self._get_base(operation, waiting), Status.ACTIVE, Status.DELETED)
        return self.reject(operation, waiting)

    def _get_base(self, operation: Operation, waiting: Waiting) -> int:
        active, entry_id = self._current.find_active(operation, waiting.entry.id), waiting.entry.id
        if active is None:
            raise Conflict(
                f"{entry_id} is not active any more, so what was proposed for it no longer applies. Reject it."
            )
        if active[1].version != waiting.base:
            raise Conflict(
                f"{entry_id} has changed since this was proposed: it was version {waiting.base} then and is version "
                f"{active[1].version} now. Reject it, and propose it anew if it still applies."
            )
        return active[0]

    def _give_way(self, operation: Operation, key: int, rival: Entry) -> None:
        if not has_ended(rival, operation.at):
            raise Conflict(f"{rival.id} says the same and is active. Delete one of the two.")
        self._entries.move(operation, key, Status.ACTIVE, Status.EXPIRED)

    def _check_room(self, operation: Operation, entry_id: str, now: float) -> list[tuple[int, Entry]]:
        """One change of a memory waits at a time. What has ended meanwhile is to give way: that, if anything."""
        waiting = self._current.find_waiting(operation, entry_id)
        if waiting is None:
            return []
        if not has_ended(waiting.entry, now):
            raise Conflict(f"A change of {entry_id} waits for approval already. Approve or reject that one first.")
        return [(waiting.key, waiting.entry)]

    def _wait(self, operation: Operation, change: Entry, base: int, ended: Sequence[tuple[int, Entry]]) -> Entry:
        for key, entry in ended:
            self._entries.move(operation, key, entry.status, Status.EXPIRED)
        self._entries.insert_waiting(operation, change, base=base)
        return change

"""Units of two stores on the same target, one held in its middle by an event while the other begins.

Needs two more fixtures than the other classes: `stores`, two open stores, and `is_waiting`, a function that tells
whether a unit of the second waits for a unit of the first.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

from afterturn.errors import AfterturnError, Conflict
from afterturn.ports import Store, Unit
from afterturn.testing.conformance.actions import ADA, ALL_SPACES, BOB, QUEUE, SMALL, SPACE, TALK, TENANT, add, get
from afterturn.testing.entries import admit, operation
from afterturn.types import BlockRow, Filter, Job, JobState, Kind, Scope, Selector, UnitScope, Verb

R = TypeVar("R")
IsWaiting = Callable[[], bool]
_WITHIN = 30.0
_POLL = 0.005
_BOTH = Scope(TENANT, (SPACE, BOB))
_VECTOR = bytes(8)


class _Held:
    """A unit that stops between its two halves until it is released, each time it runs."""

    def __init__(self, first: Callable[[Unit], Any], then: Callable[[Unit], Any] = lambda unit: None) -> None:
        self._first, self._then = first, then
        self.reached, self.release = threading.Event(), threading.Event()

    def __call__(self, unit: Unit) -> tuple[Any, Any]:
        found = self._first(unit)
        self.reached.set()
        assert self.release.wait(_WITHIN)
        return found, self._then(unit)


async def _overlap(
    stores: Sequence[Store],
    is_waiting: IsWaiting,
    first: tuple[Callable[[Unit], Any], Callable[[Unit], Any], UnitScope],
    second: tuple[Callable[[Unit], R], UnitScope],
) -> tuple[tuple[Any, Any], R | Exception]:
    """Holds the first unit until the second has ended or waits. Returns what both return; the second may raise."""
    held = _Held(*first[:2])

    async def write_second() -> R | Exception:
        try:
            return await stores[1].write(second[0], at=second[1])
        except AfterturnError as error:
            return error

    async def write_first() -> tuple[Any, Any]:
        return await stores[0].write(held, at=first[2])

    async with asyncio.timeout(_WITHIN), asyncio.TaskGroup() as group:
        slow = group.create_task(write_first())
        assert await asyncio.to_thread(held.reached.wait, _WITHIN)
        quick = group.create_task(write_second())
        while not quick.done() and not is_waiting():  # noqa: ASYNC110 other threads and processes decide it
            await asyncio.sleep(_POLL)
        held.release.set()
    return slow.result(), quick.result()


def _nothing(unit: Unit) -> None:
    """The half of a unit that only waits."""


def _next_position(unit: Unit) -> int:
    return unit.records.next_position(TENANT, SPACE, "talk")


def _say(unit: Unit) -> int:
    position = _next_position(unit)
    said = admit(f"message {position}", kind=Kind.RECORD, conversation="talk", position=position)
    unit.records.add(operation(Verb.RECORD), [said])
    return position


def _add(text: str, space: str = SPACE) -> Callable[[Unit], Any]:
    made, admitted = operation(space=space), admit(text)
    return lambda unit: unit.memories.add(made, admitted).entry


def _embed(unit: Unit) -> None:
    rows = unit.index.unembedded(TENANT, SPACE, SMALL, limit=10)
    unit.index.put_vectors(TENANT, SPACE, SMALL, [(key, _VECTOR) for key, _ in rows])


class TestInterleaved:
    async def test_a_position_is_given_once(self, stores: Sequence[Store], is_waiting: IsWaiting) -> None:
        """C2: what a unit has read before it writes stays true until it has."""
        first, second = await _overlap(stores, is_waiting, (_next_position, _say, ADA), (_say, ADA))
        assert (first, second) == ((0, 0), 1)

    async def test_an_entry_of_a_slow_writer_gets_its_vector(
        self, stores: Sequence[Store], is_waiting: IsWaiting
    ) -> None:
        """M3: also when later entries get theirs before it is committed."""

        def add_and_embed(unit: Unit) -> None:
            _add("the quick one")(unit)
            _embed(unit)

        # Otherwise the second unit would wait for the row of the new space.
        await stores[0].write(_add("an earlier one"), at=ADA)
        await _overlap(stores, is_waiting, (_add("the slow one"), _nothing, ADA), (add_and_embed, ADA))
        await stores[0].write(_embed, at=ADA)
        keys = await stores[1].read(lambda unit: unit.index.newest(TENANT, SPACE, limit=9), at=ADA)
        vectors = await stores[1].read(lambda unit: unit.index.vectors(TENANT, SPACE, SMALL, keys), at=ADA)
        assert (len(keys), set(vectors)) == (3, set(keys))

    @pytest.mark.parametrize("begins", ["block", "forget"])
    async def test_a_block_never_keeps_what_is_forgotten_in_another_space(
        self, stores: Sequence[Store], is_waiting: IsWaiting, begins: str
    ) -> None:
        """M2: whichever of the two begins first."""
        entry = (await add(stores[0], "Bob is allergic to nuts", within=operation(space=BOB))).entry
        block = BlockRow("hash", "turn-1", (entry.ref,), 9, 2.0, "user_message", "anchor", "a block about nuts")

        def show(unit: Unit) -> None:
            unit.conversations.add_block(TALK, block)
            # A store may keep writes until something is read.
            assert [row.hash for row in unit.conversations.blocks(TALK)] == ["hash"]

        def forget(unit: Unit) -> None:
            unit.operations.forget(TENANT, BOB, Selector(memory=entry.id), at=3.0)

        if begins == "block":
            await _overlap(stores, is_waiting, (show, _nothing, ADA), (forget, ALL_SPACES))
        else:
            await _overlap(stores, is_waiting, (forget, _nothing, ALL_SPACES), (show, ADA))
        shown = await stores[1].read(lambda unit: unit.conversations.blocks(TALK), at=ADA)
        assert [(row.hash, row.text) for row in shown] == [("hash", "")]

    async def test_a_job_is_claimed_by_one_owner(self, stores: Sequence[Store], is_waiting: IsWaiting) -> None:
        """C8: and none claims more than it asked for."""
        await stores[0].write(_add_jobs("j0", "j1", "j2"), at=ADA)
        (mine, _), theirs = await _overlap(
            stores, is_waiting, (_claim("one", 2), _nothing, QUEUE), (_claim("two", 2), QUEUE)
        )
        assert isinstance(theirs, list)
        rest = await stores[0].write(_claim("three", 9), at=QUEUE)
        assert (len(mine), len(theirs) <= 2) == (2, True)
        assert sorted([*mine, *theirs, *rest]) == ["j0", "j1", "j2"]

    async def test_a_claimed_job_does_not_stand_for_what_is_written_later(
        self, stores: Sequence[Store], is_waiting: IsWaiting
    ) -> None:
        """C8: the owner may have read the state before, so the writer's job is added and not left out."""
        await stores[0].write(_add_jobs("j0"), at=ADA)
        claim, later = _claim("one", 1), _job("later")
        await _overlap(
            stores, is_waiting, (claim, _nothing, QUEUE), (lambda unit: unit.jobs.add(later, coalesce=True), ADA)
        )
        jobs = await stores[0].read(lambda unit: unit.jobs.page(TENANT), at=ALL_SPACES)
        assert {job.id: job.state for job in jobs} == {"j0": JobState.LEASED, "later": JobState.READY}

    async def test_a_job_is_not_claimed_while_a_writer_relies_on_it(
        self, stores: Sequence[Store], is_waiting: IsWaiting
    ) -> None:
        """C8: the other order. Who claims it sees what the writer has written."""
        await stores[0].write(_add_jobs("j0"), at=ADA)

        def write(unit: Unit) -> None:
            _add("Ada keeps bees")(unit)
            unit.jobs.add(_job("later"), coalesce=True)

        def claim(unit: Unit) -> tuple[list[str], int]:
            return _claim("one", 9)(unit), len(unit.memories.page(ADA, Filter(), limit=9))

        _, claimed = await _overlap(stores, is_waiting, (write, _nothing, ADA), (claim, QUEUE))
        assert claimed in (([], 0), (["j0"], 1))
        jobs = await stores[0].read(lambda unit: unit.jobs.page(TENANT), at=ALL_SPACES)
        assert [job.id for job in jobs] == ["j0"]

    async def test_two_spaces_in_opposite_order_are_written_once(
        self, stores: Sequence[Store], is_waiting: IsWaiting
    ) -> None:
        """C2: both units succeed, whatever the store had to do again."""
        reversed_scope = Scope(TENANT, (BOB, SPACE))
        _, second = await _overlap(
            stores,
            is_waiting,
            (_add("first bees"), _add("first bees", BOB), _BOTH),
            (_in_order(_add("second bees", BOB), _add("second bees")), reversed_scope),
        )
        assert not isinstance(second, Exception)
        counts = await stores[0].read(lambda unit: unit.memories.counts(_BOTH), at=_BOTH)
        assert {space: count for (space, *_), count in counts.items()} == {SPACE: 2, BOB: 2}

    async def test_a_unit_that_runs_again_has_its_effects_once(
        self, stores: Sequence[Store], is_waiting: IsWaiting
    ) -> None:
        """C2: two units that each need what the other has changed: a store may run one of them again."""
        await stores[0].write(_add_jobs("a", "b"), at=ADA)
        await stores[0].write(_claim("one", 2), at=QUEUE)
        first, second = await _overlap(
            stores, is_waiting, (_end("a"), _end("b"), QUEUE), (_in_order(_end("b"), _end("a")), QUEUE)
        )
        assert isinstance(second, list)
        ended_b, ended_a = second
        assert [first[0] + ended_a, first[1] + ended_b] == [1, 1]
        assert await stores[0].read(lambda unit: unit.jobs.page(TENANT), at=ALL_SPACES) == []

    async def test_a_refused_unit_has_changed_nothing(self, stores: Sequence[Store], is_waiting: IsWaiting) -> None:
        """C2: not even what it wrote before it was refused."""
        entry = (await add(stores[0], "Ada keeps bees")).entry

        def change(text: str) -> Callable[[Unit], Any]:
            made, admitted = operation(Verb.UPDATE), admit(text)
            return lambda unit: unit.memories.update(made, entry.id, admitted, expected_version=1)

        _, refused = await _overlap(
            stores,
            is_waiting,
            (change("Ada keeps ten bees"), _nothing, ADA),
            (_in_order(_add("Ada likes tea"), change("Ada keeps no bees")), ADA),
        )
        assert isinstance(refused, Conflict)
        found = await stores[1].read(lambda unit: unit.memories.page(ADA, Filter(), limit=9), at=ADA)
        assert [found.text for found in found] == ["Ada keeps ten bees"]
        assert (await get(stores[1], entry.id)).version == 2


def _in_order(*parts: Callable[[Unit], Any]) -> Callable[[Unit], list[Any]]:
    return lambda unit: [part(unit) for part in parts]


def _job(name: str) -> Job:
    return Job(name, "embed", TENANT, SPACE, "{}", 1.0)


def _add_jobs(*names: str) -> Callable[[Unit], None]:
    def work(unit: Unit) -> None:
        for name in names:
            unit.jobs.add(_job(name))

    return work


def _claim(owner: str, limit: int) -> Callable[[Unit], list[str]]:
    return lambda unit: [job.id for job in unit.jobs.claim(["embed"], owner=owner, now=5.0, lease=60.0, limit=limit)]


def _end(job_id: str) -> Callable[[Unit], bool]:
    return lambda unit: unit.jobs.complete(job_id, owner="one")

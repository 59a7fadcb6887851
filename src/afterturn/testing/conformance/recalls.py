"""Recalls: one row for each phase, a limited number per space, without forgotten entries."""

from dataclasses import replace

import pytest

from afterturn.ports import Store
from afterturn.testing.conformance.actions import ALL_SPACES, SPACE, TALK, TENANT, add, candidate, forget_memory, update
from afterturn.testing.entries import operation
from afterturn.types import Candidate, ConversationKey, Decision, HandoverPoint, Outcome, Phase, RecallCause, RecallRow

_ROW = RecallRow(
    correlation="c1",
    turn="turn-1",
    epoch=1,
    cause=RecallCause.MESSAGE,
    phase=Phase.FAST,
    question='do bees "sleep"? 蜂',
    asked_at=10.0,
    settled_at=10.5,
    outcome=Outcome.DELIVERED,
    reason="",
)
_FULL = replace(
    _ROW,
    reads=(SPACE, "team:bees"),
    missing=("vectors",),
    excluded=("m1", "m2.2"),
    visible=("hash-1",),
    visible_bytes=12,
    settings={"recall_entries_max": 8, "recall_score_min": 0.16, "refined": False, "model": None, "embedder": "static"},
    point=HandoverPoint.TOOL_RESULT,
    block="block-hash",
    delivered_in="turn-2",
    delivered_at=11.0,
)


class TestRecalls:
    async def test_a_row_comes_back_as_it_was(self, store: Store) -> None:
        """R5: with every field, so that a person can ask why."""
        entry = (await add(store, "Ada keeps bees")).entry
        newer = await update(store, entry.id, "Ada keeps many bees")
        candidates = (
            candidate(newer, score=0.75, similarity=0.25, decision=Decision.SHOWN),
            candidate(entry, decision=Decision.FLOOR),
        )
        row = replace(_FULL, candidates=candidates)
        await _add(store, row)
        assert await _page(store) == [row]

    async def test_a_recall_that_never_settled_is_told_too(self, store: Store) -> None:
        """R5: every phase ends in one outcome."""
        row = replace(_ROW, settled_at=None, outcome=Outcome.CANCELLED, reason="abort", cause=RecallCause.INTERJECTION)
        await _add(store, row)
        assert await _page(store) == [row]

    @pytest.mark.parametrize("question", ["half a pair \ud83d", "a NUL \x00", "both \x00\udc00", ""])
    async def test_a_question_is_whatever_the_host_s_message_says(self, store: Store, question: str) -> None:
        """R5: text that no column could hold is still told as it was asked."""
        row = replace(_ROW, question=question)
        await _add(store, row)
        assert await _page(store) == [row]

    async def test_each_phase_has_its_row(self, store: Store) -> None:
        """R7: fast and refined are consumed separately."""
        refined = replace(_ROW, phase=Phase.REFINED, outcome=Outcome.UNDELIVERED)
        await _add(store, _ROW)
        await _add(store, refined)
        assert await _page(store) == [_ROW, refined]

    async def test_a_later_one_replaces_it_in_its_place(self, store: Store) -> None:
        """R5, R8: what was carried is told again when it is delivered, and ends in one outcome."""
        waiting = replace(_ROW, outcome=Outcome.UNDELIVERED, reason="no_safe_point")
        other = replace(_ROW, correlation="c2", turn="turn-2", asked_at=20.0)
        delivered = replace(_ROW, delivered_in="turn-2", delivered_at=21.0)
        for row in (waiting, other, delivered):
            await _add(store, row)
        assert await _page(store) == [delivered, other]

    async def test_the_oldest_come_first_and_the_newest_are_given(self, store: Store) -> None:
        """R5: by when they were asked."""
        rows = [replace(_ROW, correlation=f"c{at}", asked_at=at) for at in (3.0, 1.0, 2.0)]
        for row in rows:
            await _add(store, row)
        assert [row.asked_at for row in await _page(store)] == [1.0, 2.0, 3.0]
        assert [row.asked_at for row in await _page(store, limit=2)] == [2.0, 3.0]

    async def test_a_turn_gives_what_was_asked_or_handed_over_in_it(self, store: Store) -> None:
        """R8: a carried recall belongs to both."""
        carried = replace(_ROW, delivered_in="turn-2", delivered_at=21.0)
        own = replace(_ROW, correlation="c2", turn="turn-2", asked_at=20.0, delivered_in="turn-2")
        for row in (carried, own):
            await _add(store, row)
        by_turn = {turn: await _page(store, turn=turn) for turn in ("turn-1", "turn-2", "turn-3")}
        assert by_turn == {"turn-1": [carried], "turn-2": [carried, own], "turn-3": []}

    async def test_the_oldest_go_first(self, store: Store) -> None:
        """R5: bounded by space, over its conversations."""
        other = ConversationKey(TENANT, SPACE, "other")
        for number in range(6):
            row = replace(_ROW, correlation=f"c{number}", asked_at=float(number))
            await _add(store, row, other if number % 2 else TALK, entries_max=3)
        kept = [row.correlation for key in (TALK, other) for row in await _page(store, key)]
        assert kept == ["c4", "c3", "c5"]

    async def test_replacing_one_pushes_out_none(self, store: Store) -> None:
        """R5: the bound counts rows."""
        rows = [replace(_ROW, correlation=f"c{number}") for number in (1, 2)]
        for row in (*rows, *rows):
            await _add(store, row, entries_max=2)
        assert await _page(store) == rows

    @pytest.mark.parametrize("entries_max", [0, 1])
    async def test_a_bound_of_a_few_holds(self, store: Store, entries_max: int) -> None:
        """R5: a limit of zero keeps none."""
        for number in range(3):
            await _add(store, replace(_ROW, correlation=f"c{number}"), entries_max=entries_max)
        assert [row.correlation for row in await _page(store)] == ["c2"][:entries_max]

    @pytest.mark.parametrize(
        "elsewhere", [ConversationKey(TENANT, "user:bob", "talk"), ConversationKey("acme", SPACE, "talk")]
    )
    async def test_another_s_rows_are_apart_and_push_out_none(self, store: Store, elsewhere: ConversationKey) -> None:
        """L2: by tenant and owner, with a bound for each space."""
        await _add(store, _ROW, entries_max=1)
        theirs = replace(_ROW, question="and wasps?")
        await _add(store, theirs, elsewhere, entries_max=1)
        assert (await _page(store), await _page(store, elsewhere)) == ([_ROW], [theirs])

    async def test_a_conversation_that_is_not_there_has_none(self, store: Store) -> None:
        """R5: and looking does not make it."""
        assert await _page(store) == []
        assert await store.read(lambda unit: unit.conversations.page(TENANT, SPACE, limit=9), at=ALL_SPACES) == []

    async def test_what_was_forgotten_is_absent(self, store: Store) -> None:
        """M2: from candidates and from what was excluded; the question stays with its conversation."""
        gone, stays = (await add(store, "Ada keeps bees")).entry, (await add(store, "Ada likes tea")).entry
        candidates = (candidate(gone), candidate(stays))
        await _add(store, replace(_FULL, candidates=candidates, excluded=(stays.ref, gone.ref)))
        await forget_memory(store, gone.id)
        assert await _page(store) == [replace(_FULL, candidates=candidates[1:], excluded=(stays.ref,))]

    async def test_what_another_space_forgot_is_absent(self, store: Store) -> None:
        """M2: a conversation reads more spaces than its own."""
        team = (await add(store, "Bees swarm in May", within=operation(space="team:bees"))).entry
        await _add(store, replace(_ROW, candidates=(candidate(team),)))
        await forget_memory(store, team.id, space="team:bees")
        assert await _candidates(store) == ()

    async def test_a_late_row_does_not_name_what_was_forgotten(self, store: Store) -> None:
        """M2: what was in flight finds it gone."""
        gone = (await add(store, "Ada keeps bees")).entry
        await forget_memory(store, gone.id)
        await _add(store, replace(_ROW, candidates=(candidate(gone),)))
        assert await _candidates(store) == ()


async def _add(store: Store, row: RecallRow, key: ConversationKey = TALK, *, entries_max: int = 100) -> None:
    await store.write(lambda unit: unit.recalls.add(key, row, entries_max=entries_max), at=key.scope)


async def _page(
    store: Store, key: ConversationKey = TALK, *, turn: str | None = None, limit: int = 100
) -> list[RecallRow]:
    return await store.read(lambda unit: unit.recalls.page(key, turn=turn, limit=limit), at=key.scope)


async def _candidates(store: Store) -> tuple[Candidate, ...]:
    (row,) = await _page(store)
    return row.candidates

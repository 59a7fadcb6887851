"""What a consolidation writes: all of a group or nothing of it, and nothing that has changed since it was planned."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import afterturn
from afterturn.errors import NotFound
from afterturn.guard import gate as guard_gate
from afterturn.space.consolidation import Consolidation, ConsolidationReason, ConsolidationStep
from afterturn.space.reviews import Review
from afterturn.testing.clock import ManualClock
from afterturn.types import Draft, Entry, Filter, Kind, Origin, ReviewState, Status

TEA = "Ada prefers oolong tea"
LONG = "Ada prefers oolong tea from the shop at the corner of the long street by the old harbour"
_STATEMENTS = Filter(kind=Kind.STATEMENT)
_CONFIG: dict[str, Any] = {"embedder": "none", "rules": False, "synchronous": "normal"}


def _opened(path: Path, **config: Any) -> afterturn.Memory:
    return afterturn.open(
        path / "memory.db", {**_CONFIG, **config}, components=afterturn.Components(clock=ManualClock())
    )


@pytest.fixture
async def plain(tmp_path: Path) -> AsyncIterator[afterturn.Memory]:
    """Without an embedder."""
    async with _opened(tmp_path) as memory:
        yield memory


async def _said(space: afterturn.Space) -> dict[str, Entry]:
    return {entry.text: entry for entry in await space.list(filter=_STATEMENTS, limit=100)}


async def _consolidate_around(memory: afterturn.Memory, change: Callable[[], Coroutine[Any, Any, object]]) -> Review:
    """`change` happens between the plan and the commit, as another process may have it."""
    services = memory._services
    prepared = await services.store.read(
        lambda unit: Consolidation.prepared(unit, services, "default", "user:ada"), at=None
    )
    assert prepared.steps
    await change()
    row, _ = await services.store.write(prepared.commit, at=None)
    return await memory.space("user:ada").review(row.id)


async def test_a_merge_that_is_refused_has_deleted_nothing(plain: afterturn.Memory) -> None:
    """V10, V8: either both are one memory, or both stand; and the review says which."""
    ada = plain.space("user:ada")
    await ada.add(TEA, origin="agent", clean=True, sources=["ticket-1"])
    await ada.add(f"{TEA}.", origin="agent", clean=True, sources=["c3d4c3d4"])
    # By now the source of one of them is a page that nobody trusts.
    await ada.add_many([Draft("something a page said", origin=Origin.WEB, id="c3d4c3d4")])
    before = await _said(ada)
    review = await ada.consolidate()

    assert await _said(ada) == before
    assert (review.row.state, review.row.refusals, review.changes) == (ReviewState.NOTHING, ("not_allowed",), ())
    with pytest.raises(NotFound):
        await ada.undo_review(review.row.id)


async def test_one_whose_source_is_not_trusted_keeps_no_others_apart(plain: afterturn.Memory) -> None:
    """V10, G2: of three that say the same, the two that may be merged are."""
    ada = plain.space("user:ada")
    for text, source in ((f"{TEA}!", "ticket-3"), (f"{TEA}.", "c3d4c3d4"), (TEA, "ticket-1")):
        await ada.add(text, origin="agent", clean=True, sources=[source])
    await ada.add_many([Draft("something a page said", origin=Origin.WEB, id="c3d4c3d4")])
    review = await ada.consolidate()
    left = {entry.sources for entry in (await _said(ada)).values() if "tea" in entry.text}

    assert {frozenset(sources) for sources in left} == {frozenset(["ticket-1", "ticket-3"]), frozenset(["c3d4c3d4"])}
    assert review.row.refusals == ("not_allowed",)


async def test_what_cannot_be_written_again_stops_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """V10, G5: a pair that the guard would not take any more is left as it is; the rest is tidied up."""
    async with _opened(tmp_path) as memory:
        ada = memory.space("user:ada")
        await ada.add("The user lives in Lyon", origin="agent", clean=True, target="environment", occurred_at=100.0)
        await ada.add("The user lives in Oslo", origin="agent", clean=True, target="environment", occurred_at=200.0)
        await ada.add(LONG, origin="agent", clean=True, sources=["ticket-1"])
        await ada.add(f"{LONG}.", origin="agent", clean=True, sources=["ticket-2"])
    monkeypatch.setattr(guard_gate, "STATEMENT_BYTES_MAX", 64)
    async with _opened(tmp_path) as memory:
        ada = memory.space("user:ada")
        review = await ada.consolidate()

        assert sorted(await _said(ada)) == [LONG, f"{LONG}.", "The user lives in Oslo"]
    assert (review.row.state, review.row.refusals) == (ReviewState.SAVED, ("guard",))


async def test_however_many_say_the_same_become_one_at_once(plain: afterturn.Memory) -> None:
    """V10: one new version that rests on all of them, and one undo that brings them all back."""
    ada = plain.space("user:ada")
    for number, text in enumerate(
        ("I like green tea", "The user likes green tea", "likes green tea", "likes green tea!")
    ):
        await ada.add(text, sources=[f"ticket-{number}"], occurred_at=100.0 + number)
    before = await _said(ada)
    review = await ada.consolidate()
    (left,) = (await _said(ada)).values()
    await ada.undo_review(review.row.id)

    assert set(left.sources) == {"ticket-0", "ticket-1", "ticket-2", "ticket-3"}
    assert (left.version, left.occurred_at) == (2, before[left.text].occurred_at)
    assert (review.row.written, review.row.refusals) == (3, ())
    assert await _said(ada) == before


async def test_what_one_says_on_its_own_account_outlives_the_others_sources(plain: afterturn.Memory) -> None:
    """V10, M2: where one of many rests on nothing, so does what they become."""
    ada = plain.space("user:ada")
    heard = (await ada.add("Bob said so")).entry
    await ada.add("likes green tea")
    await ada.add("I like green tea", sources=[heard.id])
    await ada.add("The user likes green tea", sources=["ticket-1"])
    await ada.consolidate()
    await ada.forget(memory=heard.id)
    (left,) = (await _said(ada)).values()

    assert left.sources == ()


async def test_merging_gives_back_no_trust_that_a_forgotten_source_has_taken(plain: afterturn.Memory) -> None:
    """V10, G2: what rested on a tool's word is trusted no further once that word is gone."""
    ada = plain.space("user:ada")
    tool = (await ada.add("The gauge shows 42 bar", origin="tool")).entry
    for text, ticket in ((TEA, "ticket-1"), (f"{TEA}.", "ticket-2")):
        await ada.add(text, origin="background_review", sources=[tool.id, ticket])
    await ada.forget(memory=tool.id)
    review = await ada.consolidate()
    (left,) = (await _said(ada)).values()

    assert review.row.written == 1
    assert set(left.sources) == {"ticket-1", "ticket-2"}
    assert left.trust == Origin.TOOL.trust


@pytest.mark.parametrize("which", ["goes", "stays"])
@pytest.mark.parametrize("how", ["updated", "deleted", "forgotten", "rests on more", "rests on less"])
async def test_what_changes_after_the_plan_is_left_alone(plain: afterturn.Memory, which: str, how: str) -> None:
    """V10, M2: neither the memory that would go nor the one that stays for it may have changed in anything."""
    ada = plain.space("user:ada")
    heard = (await ada.add("Bob said so", origin="agent", clean=True)).entry
    for text, ticket in ((TEA, "ticket-1"), (f"{TEA}.", "ticket-2")):
        await ada.add(text, origin="agent", clean=True, sources=[heard.id, ticket])
    planned = (await ada.consolidate(dry_run=True)).changes[0].before
    assert planned is not None
    texts = {"goes": planned.text, "stays": f"{TEA}." if planned.text == TEA else TEA}
    entry = (await _said(ada))[texts[which]]
    changes: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "updated": lambda: ada.update(entry.id, "Ada prefers coffee by now"),
        "deleted": lambda: ada.delete(entry.id),
        "forgotten": lambda: ada.forget(memory=entry.id),
        "rests on more": lambda: ada.add(entry.text, origin="agent", clean=True, sources=["ticket-3"]),
        "rests on less": lambda: ada.forget(memory=heard.id),
    }
    kept: dict[str, Entry] = {}

    async def change() -> None:
        await changes[how]()
        kept.update(await _said(ada))

    review = await _consolidate_around(plain, change)

    assert await _said(ada) == kept
    assert (review.row.state, review.row.refusals, review.changes) == (ReviewState.NOTHING, ("changed",), ())


async def test_a_contradiction_is_not_settled_by_what_is_gone(plain: afterturn.Memory) -> None:
    """V10: the older statement goes for the newer one, or not at all."""
    ada = plain.space("user:ada")
    await ada.add("The user lives in Lyon", origin="agent", clean=True, occurred_at=100.0)
    newer = (await ada.add("The user lives in Oslo", origin="agent", clean=True, occurred_at=200.0)).entry
    await _consolidate_around(plain, lambda: ada.delete(newer.id))

    assert list(await _said(ada)) == ["The user lives in Lyon"]


async def test_what_both_gives_way_and_is_merged_into_is_one_group(plain: afterturn.Memory) -> None:
    """V10: the same memory may stay for a restatement and for a contradiction; neither makes the other "changed"."""
    ada = plain.space("user:ada")
    await ada.add("The user lives in Lyon", origin="agent", clean=True, occurred_at=100.0)
    for text, ticket in (("The user lives in Oslo", "ticket-1"), ("The user lives in Oslo.", "ticket-2")):
        await ada.add(text, origin="agent", clean=True, occurred_at=200.0, sources=[ticket])
    review = await ada.consolidate()
    (left,) = (await _said(ada)).values()

    assert "Oslo" in left.text
    assert set(left.sources) == {"ticket-1", "ticket-2"}
    assert review.row.refusals == ()


async def test_with_approval_a_restatement_waits_and_nothing_is_merged_before(tmp_path: Path) -> None:
    """V8, V10: what waits for a person has changed nothing, and asking again adds nothing."""
    async with _opened(tmp_path, approval="background") as memory:
        ada = memory.space("user:ada")
        await ada.add(TEA, origin="agent", clean=True, sources=["ticket-1"])
        await ada.add(f"{TEA}.", origin="agent", clean=True, sources=["ticket-2"])
        before = await _said(ada)
        review, again = await ada.consolidate(), await ada.consolidate()
        waiting = await ada.proposals()

        assert await _said(ada) == before
    assert [entry.status for entry in waiting] == [Status.WITHDRAWAL]
    assert (review.row.written, review.row.proposed) == (0, 1)
    assert (again.row.state, again.row.refusals) == (ReviewState.NOTHING, ("changed",))


async def test_what_the_guard_would_put_out_of_sight_by_now_is_not_merged(tmp_path: Path) -> None:
    """V10, G2: else the others would go, and nothing would be left to be seen."""
    key = "The key is ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    async with _opened(tmp_path, scanners="none") as memory:
        ada = memory.space("user:ada")
        await ada.add(key, origin="tool", sources=["ticket-1"])
        await ada.add(f"{key}.", origin="tool", sources=["ticket-2"])
        before = await _said(ada)
    async with _opened(tmp_path) as memory:
        ada = memory.space("user:ada")
        review = await ada.consolidate()

        assert await _said(ada) == before
    assert (review.row.state, review.row.refusals) == (ReviewState.NOTHING, ("not_allowed",))


async def test_a_pinned_memory_is_left_alone_whatever_the_plan_says(plain: afterturn.Memory) -> None:
    """V10, G2: only its user takes it back."""
    ada = plain.space("user:ada")
    pinned = (await ada.add(TEA, pinned=True)).entry
    services = plain._services
    prepared = await services.store.read(
        lambda unit: Consolidation.prepared(unit, services, "default", "user:ada"), at=None
    )
    planned = prepared._replace(steps=[ConsolidationStep(ConsolidationReason.UNUSED, pinned)])
    row, _ = await services.store.write(planned.commit, at=None)

    assert await _said(ada) == {TEA: pinned}
    assert row.refusals == ("not_allowed",)


def _learned(text: str, *sources: str) -> Draft:
    return Draft(text, origin=Origin.BACKGROUND_REVIEW, sources=sources, metadata={"kind": "preference"})


@pytest.mark.parametrize("untyped", [f"{TEA}.", LONG, TEA.replace("oolong", "black")])
async def test_what_the_user_did_not_type_takes_nothing_out_of_the_system_prompt(
    plain: afterturn.Memory, untyped: str
) -> None:
    """V10, S1, G2b: neither hides what the user typed nor gets its sources, whichever of them says more."""
    ada = plain.space("user:ada")
    said = [
        Draft(TEA, kind=Kind.RECORD, conversation="c", id="typed000"),
        Draft(untyped, kind=Kind.RECORD, origin=Origin.AGENT, conversation="c", id="answer00"),
    ]
    await ada.add_many(said, clean=True)
    await ada.add_many([_learned(TEA, "typed000"), _learned(untyped, "answer00")])
    before = await plain.conversation("d", user="ada").standing().block()
    await ada.consolidate()
    after = await plain.conversation("d", user="ada").standing().refresh()
    assert after == before
    assert f"{TEA}\n" in after
    assert untyped not in after


async def test_a_merge_does_not_take_an_approved_memory_out_of_the_system_prompt(plain: afterturn.Memory) -> None:
    """V10, S1, V8: the new version has the text that a person has approved."""
    ada = plain.space("user:ada")
    standing = {"kind": "preference"}
    for at, text in enumerate((TEA, f"{TEA}.")):
        added = await ada.add(text, origin="agent", metadata=standing, sources=[f"ticket-{at}"])
        await ada.approve(added.entry.id)
    review = await ada.consolidate()
    shown = await plain.conversation("d", user="ada").standing().block()
    assert review.row.state is ReviewState.SAVED
    assert [line for line in shown.splitlines() if line.startswith("- ")] == [f"- {TEA}."]

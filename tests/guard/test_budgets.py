"""How much a space may hold about a target, and what waits for approval."""

import pytest

import afterturn
from afterturn.config import Config
from afterturn.errors import OverBudget
from afterturn.guard.trust import waits
from afterturn.types import Draft, Kind, Origin, Status

TEN = "tea is nice"[:10]
TOKEN = "ghp_" + "a1B2" * 9


@pytest.fixture(params=[Config().scanners, "none"], ids=["scanning", "not_scanning"])
def scanners(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_over_budget_lists_what_could_go(opened, scanners: str) -> None:
    """G4: least trusted first, then the oldest, what is pinned last; ids with how they begin."""
    async with opened(user_bytes_max=200, scanners=scanners) as memory:
        ada = memory.space("user:ada")
        pinned = (await ada.add("p" * 60, pinned=True)).entry
        old = (await ada.add("Ada likes tea with milk, and biscuits that are dunked for three seconds")).entry
        web = (await ada.add("w" * 40, origin="web")).entry
        with pytest.raises(OverBudget) as refused:
            await ada.add("x" * 40)
    error = refused.value
    assert (error.used_bytes, error.limit_bytes) == (171, 200)
    assert [entry_id for entry_id, _ in error.candidates] == [web.id, old.id, pinned.id]
    assert error.candidates[1][1] == "Ada likes tea with milk, and biscuits that are dunked for t…"
    assert f'{web.id} "{"w" * 40}"' in str(error)
    assert "`user_bytes_max`" in str(error)


async def test_at_most_ten_candidates_are_named(opened) -> None:
    """G4: a list that a model can read."""
    async with opened(user_bytes_max=100) as memory:
        ada = memory.space("user:ada")
        added = [(await ada.add(f"fact {n:03}")).entry.id for n in range(12)]
        with pytest.raises(OverBudget) as refused:
            await ada.add("one fact more")
    assert [entry_id for entry_id, _ in refused.value.candidates] == added[:10]


async def test_targets_and_spaces_have_a_budget_each(opened) -> None:
    """G4: by target, by space, and off unless set."""
    async with opened(user_bytes_max=20) as memory:
        ada, grace = memory.space("user:ada"), memory.space("user:grace")
        await ada.add("x" * 20)
        await ada.add("y" * 500, target="environment")
        await grace.add("z" * 20)
        with pytest.raises(OverBudget, match="its user"):
            await ada.add("x")


async def test_a_budget_counts_bytes_of_active_statements(opened) -> None:
    """G4: not characters, and neither records nor what is deleted or quarantined."""
    async with opened(user_bytes_max=20) as memory:
        ada = memory.space("user:ada")
        await ada.add_many([Draft("r" * 500, kind=Kind.RECORD)])
        await ada.add(f"q {TOKEN}", origin="web")
        gone = (await ada.add("é" * 10)).entry
        with pytest.raises(OverBudget):
            await ada.add("e")
        await ada.delete(gone.id)
        assert (await ada.add("ü" * 10)).created


async def test_what_is_held_already_needs_no_room(opened) -> None:
    """G4, G6: a duplicate gives the memory that holds it, and a promotion grows nothing."""
    async with opened(user_bytes_max=10) as memory:
        ada = memory.space("user:ada")
        await ada.add(TEN, origin="web")
        assert (await ada.add(TEN, origin="tool")).created is False
        assert (await ada.add(TEN)).entry.trust == 100


async def test_an_update_may_shrink_and_grow_into_what_is_left(opened) -> None:
    """G4: only what it grows by is weighed; one that is over its limit can still be shortened."""
    async with opened(user_bytes_max=1000) as memory:
        entry = (await memory.space("user:ada").add("x" * 100)).entry
    async with opened(user_bytes_max=50) as memory:
        ada = memory.space("user:ada")
        await ada.update(entry.id, "x" * 90)
        with pytest.raises(OverBudget):
            await ada.update(entry.id, "x" * 91)
        await ada.update(entry.id, "x" * 20)
        await ada.update(entry.id, "x" * 50)


async def test_what_moves_to_another_target_needs_room_there(opened) -> None:
    """G4: what it gives up elsewhere is no room here; the other changes of that edit stand."""
    async with opened(user_bytes_max=30) as memory:
        ada = memory.space("user:ada")
        for n in range(3):
            await ada.add(f"environment fact {n}", target="environment")
        text = (await ada.as_markdown()).replace("## environment", "## user")
        edited = await ada.apply_edits(await ada.compare_markdown(text))
        held = [entry.target.value for entry in await ada.list()]
    assert sorted(held) == ["environment", "environment", "user"]
    assert len(edited.changed) == 1
    assert all("`user_bytes_max`" in left.reason for left in edited.skipped)
    assert len(edited.skipped) == 2


async def test_an_import_over_budget_is_refused(opened) -> None:
    """G4: many at once are weighed one by one."""
    async with opened(user_bytes_max=50) as memory:
        ada = memory.space("user:ada")
        with pytest.raises(OverBudget):
            await ada.add_many([Draft(f"{n:010}") for n in range(10)])
        assert await ada.list() == []


async def test_approving_is_weighed_too(opened) -> None:
    """G4, V8: what waits takes no room until somebody wants it."""
    async with opened(user_bytes_max=30) as memory:
        ada = memory.space("user:ada")
        await ada.add_many([Draft("p" * 20, origin=Origin.SUBAGENT, proposed=True)])
        (waiting,) = await ada.proposals()
        held = (await ada.add("x" * 20)).entry
        with pytest.raises(OverBudget, match=held.id):
            await ada.approve(waiting.id)
        await ada.delete(held.id)
        assert (await ada.approve(waiting.id)).entry.status is Status.ACTIVE


async def test_candidates_show_no_secret_that_is_known_today(opened) -> None:
    """G3, G4: a list of memories is looked at like any other rendering."""
    async with opened(scanners="none") as memory:
        await memory.space("user:ada").add(f"key {TOKEN}")
    async with opened(user_bytes_max=10) as memory:
        with pytest.raises(OverBudget) as refused:
            await memory.space("user:ada").add("tea")
    assert TOKEN not in str(refused.value)
    assert refused.value.candidates[0][1] == "key [redacted: github token]"


@pytest.mark.parametrize(
    "approval, waiting",
    [
        ("off", set()),
        ("background", {Origin.BACKGROUND_REVIEW}),
        ("all", set(Origin) - {Origin.USER}),
    ],
)
def test_whose_writes_wait(approval: str, waiting: set[Origin]) -> None:
    """V8: nobody's, a review's, or everybody's but the user's."""
    config = afterturn.Config(approval=approval)
    assert {origin for origin in Origin if waits(config, origin)} == waiting


async def test_what_waits_is_neither_recalled_nor_active(opened) -> None:
    """V8: an addition, in the inbox."""
    async with opened(approval="all") as memory:
        ada = memory.space("user:ada")
        by_agent = await ada.add("Node 22 is used", origin="agent")
        by_user = await ada.add("Ada likes tea")
        assert (by_agent.entry.status, by_user.entry.status) == (Status.PROPOSED, Status.ACTIVE)
        assert [entry.text for entry in await ada.list()] == ["Ada likes tea"]


async def test_a_change_that_waits_leaves_the_memory_as_it_is(opened) -> None:
    """V8: an update is the next version, which waits; approving makes it so."""
    async with opened(approval="all") as memory:
        ada = memory.space("user:ada")
        entry = (await ada.add("The port is 5432")).entry
        changed = await ada.update(entry.id, "The port is 5433", origin="agent")
        assert (changed.entry.status, (await ada.get(entry.id)).text) == (Status.PROPOSED, "The port is 5432")
        await ada.approve(entry.id)
        assert (await ada.get(entry.id)).text == "The port is 5433"


async def test_a_change_is_weighed_by_what_it_grows_when_it_is_approved(opened) -> None:
    """G4, V8: against the version that it takes the place of."""
    async with opened(approval="all", user_bytes_max=30) as memory:
        ada = memory.space("user:ada")
        entry = (await ada.add("x" * 20)).entry
        await ada.update(entry.id, "y" * 25, origin="agent")
        filler = (await ada.add("z" * 8)).entry
        with pytest.raises(OverBudget):
            await ada.approve(entry.id)
        await ada.delete(filler.id)
        await ada.approve(entry.id)
        assert (await ada.get(entry.id)).text == "y" * 25


async def test_deleting_a_memory_takes_the_change_that_waits_along(opened) -> None:
    """V8, M1: one delete hides the memory, not merely what was proposed of it; one undo brings both back."""
    async with opened(approval="all") as memory:
        ada = memory.space("user:ada")
        entry = (await ada.add("The port is 5432")).entry
        await ada.update(entry.id, "The port is 5433", origin="agent")
        deleted = await ada.delete(entry.id)
        assert (await ada.list(), deleted.entry.text) == ([], "The port is 5432")
        await ada.undo(deleted.operation)
        assert [one.text for one in await ada.list()] == ["The port is 5432"]
        assert [one.text for one in await ada.proposals()] == ["The port is 5433"]

"""The direct verbs, on a real store."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import afterturn
from afterturn.errors import Conflict, EmptyText, InvalidInput, InvalidName, NotFound, TooLarge
from afterturn.testing.clock import ManualClock
from afterturn.testing.hashing import HashingEmbedder
from afterturn.types import Draft, Filter, Kind, Lane, SpaceSummary, Status, Target, Verb


async def texts(space: afterturn.Space, query: str, **options: object) -> list[str]:
    found = await space.search(query, **options)  # type: ignore[arg-type]
    return [hit.entry.text for hit in found.hits]


async def test_a_statement_is_found_by_words_at_once_and_by_vectors_after_its_job(
    memory: afterturn.Memory, ada: afterturn.Space
) -> None:
    """C8: embedding follows as a job; lexical recall does not wait for it."""
    added = await ada.add("Ada's cat is called Miso")
    assert added.created
    first = await ada.search("the cat Miso")
    assert [hit.entry.id for hit in first.hits] == [added.entry.id]
    assert await memory.drain()
    (hit,) = (await ada.search("the cat Miso")).hits
    assert hit.similarity is not None
    assert hit.lane is Lane.LONG_TERM
    assert hit.terms == ("cat", "miso")


async def test_the_same_statement_is_stored_once(ada: afterturn.Space) -> None:
    """G6: a duplicate gives the existing memory, however it is typed."""
    first = await ada.add("Ada likes tea")
    again = await ada.add("  ada LIKES tea ")
    assert (again.created, again.entry.id, again.operation) == (False, first.entry.id, None)
    assert len(await ada.list()) == 1


async def test_concurrent_duplicates_make_one_memory(ada: afterturn.Space) -> None:
    """G6: by constraint, not by race."""
    added = await asyncio.gather(*(ada.add("Ada likes tea") for _ in range(32)))
    assert sum(one.created for one in added) == 1
    assert len({one.entry.id for one in added}) == 1


async def test_a_more_trusted_origin_promotes_a_duplicate(ada: afterturn.Space) -> None:
    """G6: what a tool reported and the user then says is the user's."""
    reported = await ada.add("Ada likes tea", origin="tool")
    said = await ada.add("Ada likes tea", origin="user")
    assert (said.created, said.entry.id, said.entry.origin) == (False, reported.entry.id, "user")
    assert said.entry.version == 2


async def test_an_update_supersedes_and_keeps_the_history(ada: afterturn.Space, clock: ManualClock) -> None:
    """M1, L7: the old version is not recalled any more, and not lost."""
    added = await ada.add("Ada lives in Turin")
    clock.advance(60)
    changed = await ada.update(added.entry.id, "Ada lives in Bergen")
    assert (changed.entry.id, changed.entry.version) == (added.entry.id, 2)
    assert await texts(ada, "Where does Ada live?") == ["Ada lives in Bergen"]
    history = await ada.history(added.entry.id)
    assert [(entry.text, entry.status) for entry in history.versions] == [
        ("Ada lives in Turin", Status.SUPERSEDED),
        ("Ada lives in Bergen", Status.ACTIVE),
    ]


async def test_an_update_is_whose_call_it_was(ada: afterturn.Space) -> None:
    """G2: origin is stamped by the call: a tool's report that the user puts right is the user's."""
    reported = await ada.add("Ada lives in Turin", origin="tool")
    corrected = await ada.update(reported.entry.id, "Ada lives in Bergen")
    assert (corrected.entry.origin, corrected.entry.trust) == ("user", 100)
    (step, *_) = [step for step in (await ada.history(reported.entry.id)).steps if step.operation.verb == "update"]
    assert step.operation.actor == "user"


async def test_an_update_of_a_version_that_moved_on_is_a_conflict(ada: afterturn.Space) -> None:
    """M1: nobody overwrites what they have not seen."""
    added = await ada.add("Ada lives in Turin")
    await ada.update(added.entry.id, "Ada lives in Bergen", expected_version=1)
    with pytest.raises(Conflict):
        await ada.update(added.entry.id, "Ada lives in Oslo", expected_version=1)


async def test_as_of_tells_what_was_known_then(ada: afterturn.Space, clock: ManualClock) -> None:
    """L7: superseded and deleted memories are known to their own time only."""
    added = await ada.add("Ada lives in Turin")
    before = clock.advance(60)
    clock.advance(60)
    await ada.update(added.entry.id, "Ada lives in Bergen")
    clock.advance(60)
    assert await texts(ada, "Where does Ada live?", as_of=before) == ["Ada lives in Turin"]
    assert await texts(ada, "Where does Ada live?", as_of=datetime(2023, 1, 1, tzinfo=UTC)) == []


class Heard(HashingEmbedder):
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.texts += texts
        return super().embed(texts)


async def test_the_past_is_asked_for_by_words_alone(tmp_path: Path, clock: ManualClock) -> None:
    """L7: nothing is compared with vectors, so nobody is asked for one."""
    embedder = Heard()
    parts = afterturn.Components(embedder=embedder, clock=clock)
    async with afterturn.open(tmp_path / "memory.db", components=parts) as memory:
        await memory.ready()
        ada = memory.space("user:ada")
        await ada.add("Ada lives in Turin")
        past = await ada.search("Who lives in Turin?", as_of=clock.advance(60))
        await ada.search("Where is Turin?")
    assert (len(past.hits), past.missing) == (1, ("vectors",))
    assert "Where is Turin?" in embedder.texts
    assert "Who lives in Turin?" not in embedder.texts


@pytest.mark.parametrize("as_of", [None, 2e9])
async def test_a_secret_in_a_query_is_not_repeated(ada: afterturn.Space, as_of: float | None) -> None:
    """G1: who logs an answer logs its question."""
    await ada.add("Deploy with make ship")
    found = await ada.search(f"Deploy with ghp_{'a1B2' * 9} please", as_of=as_of)
    assert found.query == "Deploy with […] please"
    assert [hit.entry.text for hit in found.hits] == ["Deploy with make ship"]


async def test_undo_takes_back_add_update_and_delete_exactly(ada: afterturn.Space) -> None:
    """M1: by operation, and an undo can be undone."""
    added = await ada.add("Ada lives in Turin")
    changed = await ada.update(added.entry.id, "Ada lives in Bergen")
    deleted = await ada.delete(added.entry.id)
    assert await ada.list() == []
    await ada.undo(deleted.operation)
    assert (await ada.get(added.entry.id)).text == "Ada lives in Bergen"
    undone = await ada.undo(changed.operation)
    assert await texts(ada, "Where does Ada live?") == ["Ada lives in Turin"]
    await ada.undo(undone.operation)
    assert await texts(ada, "Where does Ada live?") == ["Ada lives in Bergen"]


async def test_undo_out_of_order_is_a_conflict_and_changes_nothing(ada: afterturn.Space) -> None:
    """M1: what a later operation touched is not torn out from under it."""
    added = await ada.add("Ada lives in Turin")
    await ada.update(added.entry.id, "Ada lives in Bergen")
    with pytest.raises(Conflict):
        await ada.undo(str(added.operation))
    assert (await ada.get(added.entry.id)).text == "Ada lives in Bergen"


async def test_an_import_is_undone_as_one_group(ada: afterturn.Space) -> None:
    """M1: undo by group."""
    seen: list[int] = []
    imported = await ada.add_many((Draft(f"Fact number {at}") for at in range(1200)), progress=seen.append)
    assert (imported.created, imported.existing) == (1200, 0)
    assert seen == sorted(seen)
    assert seen[-1] == 1200
    await ada.undo(imported.group)
    assert await ada.list() == []


async def test_a_refused_line_stops_an_import_after_whole_chunks(ada: afterturn.Space) -> None:
    """G1: every draft passes the gate; what stood before stands whole."""
    drafts = [Draft(f"Fact number {at}") for at in range(600)] + [Draft("")]
    with pytest.raises(EmptyText):
        await ada.add_many(drafts)
    assert len(await ada.list(limit=1000)) in (0, 500, 512)


async def test_forgotten_text_is_gone_from_every_verb(memory: afterturn.Memory, ada: afterturn.Space) -> None:
    """M2: by memory; it can not be undone."""
    added = await ada.add("Ada's secret is xylophone")
    await memory.drain()
    forgotten = await ada.forget(memory=added.entry.id)
    assert (forgotten.state, forgotten.erased) == ("erased", 1)
    assert await texts(ada, "xylophone") == []
    with pytest.raises(NotFound):
        await ada.get(added.entry.id)
    with pytest.raises(NotFound):
        await ada.undo(str(added.operation))
    assert "xylophone" not in str(await ada.export())


async def test_a_review_of_another_space_is_as_unknown_as_none(memory: afterturn.Memory, ada: afterturn.Space) -> None:
    """L2: the error does not say that somebody else has it."""
    messages = [{"role": "user", "content": "I prefer green tea."}]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        messages.append({"role": "assistant", "content": "I see."})
    await turn.wait_recorded()
    await memory.drain()
    (row,) = await ada.reviews()
    bob, unused = memory.space("user:bob"), row.id[:-1] + ("0" if row.id[-1] != "0" else "1")
    for verb in (bob.review, bob.undo_review):
        with pytest.raises(NotFound) as foreign:
            await verb(row.id)
        with pytest.raises(NotFound) as nobody:
            await verb(unused)
        assert str(foreign.value).replace(row.id, "ID") == str(nobody.value).replace(unused, "ID")


async def test_forget_wants_exactly_one_selector(ada: afterturn.Space) -> None:
    """M2: nothing is erased by accident."""
    with pytest.raises(InvalidInput, match="exactly one"):
        await ada.forget()
    with pytest.raises(InvalidInput, match="exactly one"):
        await ada.forget(conversation="c", everything=True)
    with pytest.raises(NotFound):
        await ada.forget(memory="nosuchmemory")


async def test_filters_narrow_inside_a_space(ada: afterturn.Space) -> None:
    """L2: agent, project, target and flat metadata, by equality or membership."""
    await ada.add("The api deploys on Fridays", project="api", target="memory", metadata={"tier": 1})
    await ada.add("The site deploys on Mondays", project="site", target="environment", metadata={"tier": 2})
    by_project = await texts(ada, "deploys", filter=Filter(project="api"))
    by_metadata = await texts(ada, "deploys", filter=Filter(metadata={"tier": (2, 3)}))
    assert by_project == ["The api deploys on Fridays"]
    assert by_metadata == ["The site deploys on Mondays"]
    assert len(await ada.list(filter=Filter(target=Target.ENVIRONMENT))) == 2
    await ada.add("A page says that deploys are fast", origin="web")
    assert [one.origin for one in await ada.list(filter=Filter(origin="web"))] == ["web"]
    assert [one.origin for one in await ada.list(filter=Filter(trusted=False))] == ["web"]
    assert {one.origin for one in await ada.list(filter=Filter(trusted=True))} == {"user"}


async def test_expired_and_not_yet_valid_memories_are_not_recalled(ada: afterturn.Space, clock: ManualClock) -> None:
    """L7: validity and expiry hold at the time of the query."""
    now = clock.now()
    await ada.add("The museum is free today", expires_at=now + 60)
    await ada.add("The museum closes for repairs", valid_from=now + 120)
    assert await texts(ada, "museum") == ["The museum is free today"]
    clock.advance(200)
    assert await texts(ada, "museum") == ["The museum closes for repairs"]


async def test_an_expired_statement_can_be_said_again(ada: afterturn.Space, clock: ManualClock) -> None:
    """G6: inactive rows take no part in duplicate checks."""
    await ada.add("The museum is free today", expires_at=clock.now() + 60)
    clock.advance(120)
    again = await ada.add("The museum is free today")
    assert again.created
    assert await texts(ada, "museum") == ["The museum is free today"]


async def test_export_holds_every_version_operation_and_event(ada: afterturn.Space) -> None:
    """M4: everything stored in a space, a header first."""
    added = await ada.add("Ada lives in Turin")
    await ada.update(added.entry.id, "Ada lives in Bergen")
    lines = await ada.export()
    assert lines[0]["afterturn_export"] == 1
    assert lines[0]["space"] == "user:ada"
    assert [line["entry"]["text"] for line in lines if "entry" in line] == ["Ada lives in Turin", "Ada lives in Bergen"]
    assert sum("operation" in line for line in lines) == 2


async def test_tenants_never_meet(memory: afterturn.Memory, ada: afterturn.Space) -> None:
    """L2: the same space name under another tenant is another space."""
    await ada.add("Ada likes tea")
    path = memory._target
    async with afterturn.open(path, {"embedder": "none"}, tenant="other") as other:
        assert await texts(other.space("user:ada"), "tea") == []


@pytest.mark.parametrize("name", ["", "ada", "user:", "User:ada", "user:a\nb", "user:" + "x" * 300, 17, None])
async def test_invalid_spaces_are_refused_with_an_example(memory: afterturn.Memory, name: object) -> None:
    """L2: a missing or malformed space is an error."""
    with pytest.raises(InvalidName):
        memory.space(name)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "where", [{}, {"user": "ada", "owner": "user:ada"}, {"user": ""}, {"user": "ada", "reads": "user:bob"}]
)
async def test_a_conversation_without_a_clear_owner_is_refused(memory: afterturn.Memory, where: dict[str, str]) -> None:
    """L2: with neither user nor owner it raises."""
    with pytest.raises(InvalidInput):
        memory.conversation("c", **where)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", ["../etc", "x", "A" * 16, "m 1", "", None])
async def test_invalid_ids_are_refused(ada: afterturn.Space, bad: object) -> None:
    """G1: an id that can not be one is told apart from one that is not there."""
    with pytest.raises(InvalidName, match="afterturn list"):
        await ada.get(bad)  # type: ignore[arg-type]


async def test_bad_input_leaves_the_store_as_it_was(ada: afterturn.Space) -> None:
    """G1: a refusal writes nothing."""
    for text in ("", "a\x00b", "\ud800"):
        with pytest.raises(InvalidInput):
            await ada.add(text)
    with pytest.raises(TooLarge):
        await ada.add("x" * 10_000_000)
    with pytest.raises(InvalidInput, match="no time zone"):
        await ada.add("Ada likes tea", occurred_at=datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(InvalidInput, match="not a valid origin"):
        await ada.add("Ada likes tea", origin="oracle")
    with pytest.raises(TypeError, match="colour"):
        await ada.add("Ada likes tea", colour="blue")  # type: ignore[call-arg]
    assert (await ada.stats())["searchable"] == 0
    assert await ada.operations() == []


async def test_imported_records_are_recalled_and_stored_once(ada: afterturn.Space) -> None:
    """M4: what an export holds of a conversation can be brought back, however often."""
    said = Draft("Ada said her cat is called Miso", kind=Kind.RECORD, id="m00000000001", conversation="c", position=0)
    first, again = await ada.add_many([said]), await ada.add_many([said])
    assert (first.created, again.created, again.existing) == (1, 0, 1)
    assert await texts(ada, "What is the cat called?") == ["Ada said her cat is called Miso"]


async def test_an_update_keeps_when_it_is_true_and_says_when_it_was_said(
    ada: afterturn.Space, clock: ManualClock
) -> None:
    """M1: new words for the same fact; only the telling is new."""
    start, end = clock.now() - 60, clock.now() + 3600
    added = await ada.add("Ada is on leave", valid_from=start, valid_to=end, occurred_at=1e9, pinned=True)
    clock.advance(60)
    changed = (await ada.update(added.entry.id, "Ada is on leave in Lyon")).entry
    assert (changed.valid_from, changed.valid_to, changed.pinned) == (start, end, True)
    assert changed.occurred_at == clock.now()
    clock.advance(3600)
    assert await texts(ada, "Is Ada on leave?") == []


async def test_a_search_may_ask_for_another_minimum_score(ada: afterturn.Space) -> None:
    """Nothing is found if the best score is lower; 0 finds everything."""
    await ada.add("Ada's cat is called Miso")
    await ada.add_many([Draft(f"Bob has a cat, a dog and {number} hens in the barn") for number in range(9)])
    every = (await ada.search("the cat Miso", score_min=0)).hits
    best, second = every[0].score, every[1].score
    assert (len(every), second < 0.9 * best < 1) == (10, True)
    assert await texts(ada, "the cat Miso", score_min=best) == ["Ada's cat is called Miso"]
    assert await texts(ada, "the cat Miso", score_min=best + 0.01) == []


async def test_a_search_leaves_out_what_is_excluded_in_every_version(ada: afterturn.Space) -> None:
    """L3: by id, before the best are chosen."""
    unwanted, wanted = await ada.add("Ada likes oolong tea"), await ada.add("Ada bought a tea pot for tea")
    await ada.update(unwanted.entry.id, "Ada likes green tea")
    found = await ada.search("tea", limit=1, exclude=[unwanted.entry.id])
    assert [hit.entry.id for hit in found.hits] == [wanted.entry.id]


async def test_a_time_range_takes_seconds_datetimes_and_texts(ada: afterturn.Space) -> None:
    """L2: from `since` on and before `until`, in search and list alike; newest first whatever was stored first."""
    for day in (3, 1, 2):
        await ada.add(f"Ada drank tea number {day}", occurred_at=f"2026-11-0{day}T12:00:00+00:00")
    second = datetime(2026, 11, 2, 12, tzinfo=UTC)
    for since in (second, second.timestamp(), "2026-11-02T12:00:00Z"):
        narrowed = Filter(since=since, until="2026-11-03T12:00:00Z")
        assert [entry.text for entry in await ada.list(filter=narrowed)] == ["Ada drank tea number 2"]
        assert await texts(ada, "tea", filter=narrowed) == ["Ada drank tea number 2"]
    assert [entry.text[-1] for entry in await ada.list()] == ["3", "2", "1"]


async def test_spaces_are_listed_with_their_counts(memory: afterturn.Memory, ada: afterturn.Space) -> None:
    await ada.add("Ada likes tea", occurred_at=1_000_000.0)
    await memory.space("project:api").add("The API speaks JSON", occurred_at=2_000_000.0)
    assert await memory.spaces() == [
        SpaceSummary("project:api", 1, 0, 2_000_000.0),
        SpaceSummary("user:ada", 1, 0, 1_000_000.0),
    ]
    stats = await memory.stats()
    assert (stats["spaces"], stats["entries"]) == (2, {"statement.active": 2})


async def test_a_tenant_without_spaces_has_empty_stats(memory: afterturn.Memory) -> None:
    stats = await memory.stats()
    assert (stats["spaces"], stats["entries"]) == (0, {})


async def test_operations_say_which_memory_they_changed(ada: afterturn.Space) -> None:
    """M3: with the words that they left behind, so that one can choose what to undo."""
    added = await ada.add("Ada likes tea")
    updated = await ada.update(added.entry.id, "Ada likes coffee")
    many = await ada.add_many([Draft(f"Ada has cat number {number}") for number in (1, 2, 3)])
    deleted = await ada.delete(added.entry.id)
    logged = await ada.operations()
    assert [(one.verb, one.text, one.entries) for one in logged] == [
        (Verb.DELETE, "Ada likes coffee", 1),
        (Verb.IMPORT, "Ada has cat number 3", 3),
        (Verb.UPDATE, "Ada likes coffee", 1),
        (Verb.ADD, "Ada likes tea", 1),
    ]
    assert [logged[0].id, logged[0].entry_id, logged[1].group] == [deleted.operation, added.entry.id, many.group]
    assert logged[2].id == updated.operation


async def test_the_results_of_a_search_are_a_sequence(ada: afterturn.Space) -> None:
    """They can be counted, indexed and iterated over; nothing found counts as false."""
    for text in ("The cat is called Miso.", "The cat likes tuna."):
        await ada.add(text)
    found = await ada.search("cat")
    assert len(found) == 2
    assert list(found) == [found[0], found[1]] == list(found[:2]) == list(found.hits)
    assert found[-1] is found.hits[-1]
    assert not await ada.search("zeppelin")


async def taught(memory: afterturn.Memory) -> tuple[str, str]:
    """The ids of a memory that rules learned, and of the message that says it."""
    messages = [{"role": "user", "content": "My sister Ruth is coeliac."}]
    async with memory.conversation("c", user="ada").turn(messages) as turn:
        messages.append({"role": "assistant", "content": "I see."})
    await turn.wait_recorded()
    await memory.drain()
    (learned,) = await memory.space("user:ada").list(filter=Filter(kind=Kind.STATEMENT))
    return learned.id, learned.sources[0]


async def test_forgetting_what_was_learned_names_the_message_that_still_says_it(
    memory: afterturn.Memory, ada: afterturn.Space
) -> None:
    """M2: the message stays, and can be forgotten then."""
    learned, message = await taught(memory)
    assert (await ada.forget(memory=learned)).sources == (message,)
    assert await texts(ada, "Ruth coeliac") == ["My sister Ruth is coeliac."]
    assert (await ada.forget(memory=message)).sources == ()
    assert "coeliac" not in str(await ada.export())


async def test_a_memory_and_the_messages_it_was_learned_from_are_forgotten_together(
    memory: afterturn.Memory, ada: afterturn.Space
) -> None:
    """M2: with `sources=True` nothing says it any more."""
    learned, message = await taught(memory)
    forgotten = await ada.forget(memory=learned, sources=True)
    assert (forgotten.sources, forgotten.erased) == ((message,), 2)
    assert "coeliac" not in str(await ada.export())


async def test_a_memory_whose_message_was_deleted_can_be_forgotten(
    memory: afterturn.Memory, ada: afterturn.Space
) -> None:
    """M2: a deleted message still says it, and can be brought back."""
    learned, message = await taught(memory)
    await ada.delete(message)
    assert (await ada.forget(memory=learned)).sources == (message,)


async def test_sources_are_forgotten_with_one_memory_only(ada: afterturn.Space) -> None:
    """M2: nothing is erased by accident."""
    with pytest.raises(InvalidInput, match="Pass `memory`"):
        await ada.forget(speaker="bob", sources=True)

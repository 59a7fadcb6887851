"""What the verbs of every space share, handed over by `runtime`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Unpack

from afterturn.drafts import successor
from afterturn.errors import Conflict, InvalidInput
from afterturn.guard.statement_writer import embed_later
from afterturn.ports import Unit
from afterturn.recall.search import recall, recall_as_of
from afterturn.space import reviews
from afterturn.space.arguments import (
    LIMIT_MAX,
    DraftFields,
    check_conversation,
    check_filter,
    check_selector,
    check_version,
    draft_of,
    origin_of,
    search_request,
)
from afterturn.space.consolidation import consolidate
from afterturn.space.inbox import Proposal, get_proposal
from afterturn.space.markdown import Edited, Edits, apply_edits, as_markdown, compare_markdown
from afterturn.space.transfer import Imported, Progress, every_conversation, export_lines, import_drafts
from afterturn.types import (
    ANYTHING,
    Added,
    Changed,
    ConversationKey,
    Draft,
    Entry,
    Erased,
    Event,
    Filter,
    Forgotten,
    History,
    JobKind,
    Kind,
    Lane,
    LoggedOperation,
    Operation,
    Origin,
    Review,
    ReviewRow,
    Scope,
    SearchResults,
    Selector,
    Status,
    Undone,
    UsageRow,
    Verb,
    new_job,
)
from afterturn.validation import check_id, check_limit, check_name, check_space, moment

if TYPE_CHECKING:
    from afterturn.services import Services

# The inbox of a space: what was proposed, and somebody's word on it. No tool of a model's reaches this (A3, V8).

_WAITING = (Status.PROPOSED, Status.WITHDRAWAL)
_PROPOSED = Filter(statuses=_WAITING)


async def list_proposals(services: Services, space: str, *, limit: int, before: str | None) -> list[Entry]:
    count, last = check_limit(limit, LIMIT_MAX), None if before is None else check_id(before)
    scope = Scope(services.tenant, (space,))
    return await services.store.read(lambda unit: unit.memories.page(scope, _PROPOSED, limit=count, before=last))


async def approve(services: Services, space: str, entry_id: str) -> Changed:
    check_id(entry_id)
    operation = _operation(services, space, Verb.APPROVE)

    def work(unit: Unit) -> Entry:
        return services.statement_writer.approve(unit, operation, entry_id)

    approved = await services.store.write(work)
    services.wake_jobs()
    return Changed(approved, operation.id)


async def reject(services: Services, space: str, entry_id: str) -> Changed:
    check_id(entry_id)
    scope, operation = Scope(services.tenant, (space,)), _operation(services, space, Verb.DELETE)

    def work(unit: Unit) -> Entry:
        versions = unit.memories.history(scope, entry_id)
        if not any(entry.status in _WAITING for entry in versions):
            status = unit.memories.get(scope, entry_id).status
            raise Conflict(f"{entry_id} is {status}; only what is proposed can be rejected. Delete it instead.")
        return unit.memories.delete(unit.operations.start(operation), entry_id)

    return Changed(await services.store.write(work), operation.id)


def _operation(services: Services, space: str, verb: Verb) -> Operation:
    return Operation(services.ids.new(), services.tenant, space, verb, Origin.USER, services.clock.now())


class SpaceCore:
    """The verbs of one space. Its coroutines run on memory's loop; `Space` and `blocking.Space` call them."""

    def __init__(self, services: Services, name: str) -> None:
        self._services = services
        self.name = check_space(name)
        self._scope = Scope(services.tenant, (self.name,))

    async def get(self, entry_id: str, *, version: int | None = None) -> Entry:
        check_id(entry_id)
        check_version(version)
        return await self._services.store.read(lambda unit: unit.memories.get(self._scope, entry_id, version=version))

    async def list(self, *, limit: int = 50, before: str | None = None, filter: Filter = ANYTHING) -> Sequence[Entry]:
        """Lists statements and records, newest `occurred_at` first; `before` is the last id of the previous page.

        A memory that changes between two pages may be listed on both. Numbers in a filter are compared as numbers: 1
        finds 1.0, but not True.
        """
        count, narrowed = check_limit(limit, LIMIT_MAX), check_filter(filter)
        last = None if before is None else check_id(before)
        return await self._services.store.read(
            lambda unit: unit.memories.newest(self._scope, narrowed, limit=count, before=last)
        )

    async def search(
        self,
        query: str,
        *,
        limit: int = 10,
        lanes: Sequence[Lane] | None = None,
        conversation: str | None = None,
        as_of: float | datetime | str | None = None,
        filter: Filter = ANYTHING,
        exclude: Iterable[str] = (),
    ) -> SearchResults:
        """Finds what this space holds on `query`, best first. `as_of` searches what was known at that time.

        `filter` and `exclude`, ids of memories, apply before the best `limit` are chosen.
        """
        at = moment(as_of)
        request = search_request(
            query,
            self._scope,
            self._services.config,
            limit=limit,
            lanes=lanes,
            filter=filter,
            exclude=exclude,
            now=self._services.clock.now(),
            correlation=self._services.ids.new(),
            conversation=conversation,
        )
        embedding = self._services.embedding if at is None else None
        embed = embedding.find_immediate() if embedding else None
        if embed is not None:
            request = request._replace(embed=embed)
        elif embedding is not None:
            request = request._replace(query_vector=await embedding.query_vector(request.text, self._scope))
        if at is not None:
            return await self._services.store.read(lambda unit: recall_as_of(unit, request, at))
        if embedding is not None:
            return await embedding.recall(request)
        return await self._services.store.read(lambda unit: recall(unit, request))

    async def add(self, text: str, **fields: Unpack[DraftFields]) -> Added:
        """Remembers one statement. What the space already holds is given back with `created=False` (G6).

        OverBudget lists what could go when the space may hold no more (G4); NotAllowed when an untrusted one pins it.
        """
        admitted = self._services.gate.admit(draft_of(text, fields))
        operation = self._operation(Verb.ADD, admitted.draft.origin)
        added = await self._services.store.write(
            lambda unit: self._services.statement_writer.add(unit, operation, admitted)
        )
        self._services.wake_jobs()
        return added

    async def add_many(
        self, drafts: Iterable[Draft], *, group: str | None = None, progress: Progress | None = None
    ) -> Imported:
        """Stores many statements or records in chunks, operations of one group, so that one `undo` takes all back.

        A draft that the guard refuses raises InvalidInput; the chunks before it stand.
        """
        named = self._services.ids.new() if group is None else check_name(group, "group")
        imported = await import_drafts(self._services, self.name, drafts, group=named, progress=progress)
        self._services.wake_jobs()
        return imported

    async def update(
        self, entry_id: str, text: str, *, expected_version: int | None = None, origin: str = Origin.USER
    ) -> Changed:
        """Supersedes a statement. With `expected_version`, only if nobody changed it meanwhile; else Conflict.

        New words for the same fact: everything else stays, also from when to when it is true and when it expires.
        But `origin` is whose words they are now, and `occurred_at` the time of the update.
        """
        check_version(expected_version)
        current = await self.get(entry_id)
        if current.kind is Kind.RECORD:
            raise InvalidInput(f"{entry_id} is a recorded message, and what was said stays. Add a statement instead.")
        admitted = self._services.gate.admit(replace(successor(current, text), origin=origin_of(origin)))
        operation = self._operation(Verb.UPDATE, admitted.draft.origin)
        entry = await self._services.store.write(
            lambda unit: self._services.statement_writer.update(
                unit, operation, entry_id, admitted, expected_version=expected_version
            )
        )
        self._services.wake_jobs()
        return Changed(entry, operation.id)

    async def delete(self, entry_id: str) -> Changed:
        """Hides an entry. `undo` brings it back; `forget` is for what must be gone."""
        check_id(entry_id)
        operation = self._operation(Verb.DELETE, Origin.USER)

        def work(unit: Unit) -> Entry:
            return self._services.statement_writer.delete(unit, operation, entry_id, trust=Origin.USER.trust)

        return Changed(await self._services.store.write(work), operation.id)

    async def history(self, entry_id: str) -> History:
        check_id(entry_id)

        def work(unit: Unit) -> History:
            versions = unit.memories.history(self._scope, entry_id)
            return History(tuple(versions), tuple(unit.operations.steps(self._scope, entry_id=entry_id)))

        return await self._services.store.read(work)

    async def operations(self, *, limit: int = 50) -> Sequence[LoggedOperation]:
        """The operations on this space, newest first, each with a memory that it changed. `undo` takes their ids."""
        count = check_limit(limit, LIMIT_MAX)
        return await self._services.store.read(lambda unit: unit.operations.log(self._scope, limit=count))

    async def undo(self, target: str) -> Undone:
        """Takes back an operation, or a group of them, exactly. The answer's `operation` can be undone in turn."""
        check_name(target, "operation")
        operation = self._operation(Verb.UNDO, Origin.USER)

        def work(unit: Unit) -> Undone:
            steps = unit.operations.undo(unit.operations.start(operation), target=target)
            embed_later(unit, operation)
            return Undone(operation.id, tuple(steps))

        undone = await self._services.store.write(work)
        self._services.wake_jobs()
        return undone

    async def forget(
        self,
        *,
        memory: str | None = None,
        conversation: str | None = None,
        source: str | None = None,
        speaker: str | None = None,
        everything: bool = False,
    ) -> Forgotten:
        """Erases for good, with every version, vector, index entry, job and waiting recording. Name exactly one."""
        selector = check_selector(Selector(memory, conversation, source, speaker, everything))
        if memory is not None:
            await self.get(memory)
        return await self._forget(selector)

    async def proposals(self, *, limit: int = 50, before: str | None = None) -> Sequence[Entry]:
        """What waits for approval, newest first; `before` is the last id of the previous page."""
        return await list_proposals(self._services, self.name, limit=limit, before=before)

    async def proposal(self, entry_id: str) -> Proposal:
        """One of them, with what it would change. Conflict when nothing of that id waits."""
        return await get_proposal(self._services, self.name, entry_id)

    async def approve(self, entry_id: str) -> Changed:
        """Makes a proposal a memory; `undo` makes it wait again. Conflict when the same is remembered already."""
        return await approve(self._services, self.name, entry_id)

    async def reject(self, entry_id: str) -> Changed:
        """Hides a proposal; `undo` brings it back. Conflict when it is none, or none any more."""
        return await reject(self._services, self.name, entry_id)

    async def reviews(
        self, *, conversation: str | None = None, limit: int = 50, before: str | None = None
    ) -> Sequence[ReviewRow]:
        """What reviewed this space's conversations, newest first, and how each ended."""
        return await reviews.list_reviews(
            self._services, self.name, conversation=conversation, limit=limit, before=before
        )

    async def review(self, review_id: str) -> Review:
        """One review with all that it changed."""
        return await reviews.get_review(self._services, self.name, review_id)

    async def undo_review(self, review_id: str) -> Sequence[Undone]:
        """Takes back all that a review did, in whatever spaces. Conflict, and nothing changed, as for `undo`."""
        return await reviews.undo_review(self._services, self.name, review_id)

    async def run_review(
        self, conversation: str, *, writes: str | None = None, rules: bool = False, everything: bool = False
    ) -> Review | None:
        """Reviews a conversation of this space now, and waits for it; None when nothing new was said in it.

        By a model, or with `rules` without one. `everything`: also what was reviewed before. `writes` is the space that
        the conversation is recorded in, if not this one. ConfigError without a model.
        """
        return await reviews.run_review(
            self._services, self.name, conversation, writes=writes, rules=rules, everything=everything
        )

    async def usage(self, *, limit: int = 1000) -> Sequence[UsageRow]:
        """What models have cost for this space by day and purpose, newest day first."""
        count = check_limit(limit, LIMIT_MAX)
        return await self._services.store.read(
            lambda unit: unit.usage.page(self._services.tenant, space=self.name, limit=count)
        )

    async def consolidate(self, *, dry_run: bool = False) -> Review:
        """Merges what says the same, drops what something newer contradicts and, with `fade_days`, what nobody uses.

        One `undo_review` takes it back. With `dry_run`, what it would do.
        """
        return await consolidate(self._services, self.name, dry_run=dry_run)

    async def as_markdown(self, *, target: str | None = None, project: str | None = None) -> str:
        """The statements of this space as a text for a person to edit: one bullet each, below headings."""
        return await as_markdown(self._services, self.name, target=target, project=project)

    async def compare_markdown(self, text: str) -> Edits:
        """What an edited text changes; nothing is done. InvalidInput names the line that can not be read."""
        return await compare_markdown(self._services, self.name, text)

    async def apply_edits(self, edits: Edits) -> Edited:
        """Does what `compare_markdown` found, as a person's own words, in one group for `undo`.

        What others changed meanwhile, or the guard refuses, is in `left`; the rest stands.
        """
        return await apply_edits(self._services, self.name, edits)

    async def trace(self, *, conversation: str | None = None, limit: int = 200) -> Sequence[Event]:
        """The timeline, oldest first: the newest `limit` events of the space or of one conversation."""
        count, named = check_limit(limit, LIMIT_MAX), check_conversation(conversation)
        return await self._services.store.read(
            lambda unit: unit.timeline.page(self._scope, conversation=named, limit=count)
        )

    async def conversations(self, *, limit: int = 50, turn: str | None = None) -> Sequence[str]:
        """Their ids, newest activity first; with `turn`, of those that have a turn of that id."""
        count, named = check_limit(limit, LIMIT_MAX), None if turn is None else check_name(turn, "turn id")

        def work(unit: Unit) -> list[str]:
            if named is not None:
                return list(islice(self._having(unit, named), count))
            return unit.conversations.page(self._services.tenant, self.name, limit=count)

        return await self._services.store.read(work)

    async def export(self) -> Sequence[dict[str, Any]]:
        """Everything held on the space as JSON-able lines, under the name of their kind, after a header.

        Entries in all versions, operations with their steps, conversations with their turns and blocks, events.
        """
        now = self._services.clock.now()
        return await self._services.store.read(lambda unit: export_lines(unit, self._scope, now))

    async def stats(self) -> dict[str, Any]:
        def work(unit: Unit) -> dict[str, Any]:
            counts = unit.memories.counts(self._scope)
            extent = unit.index.extents(self._scope).get(self.name)
            return {
                "space": self.name,
                "entries": {f"{kind}.{status}": count for (_, kind, status), count in sorted(counts.items())},
                "searchable": extent.documents if extent else 0,
                "changes": extent.seq if extent else 0,
            }

        return await self._services.store.read(work)

    def _having(self, unit: Unit, turn: str) -> Iterator[str]:
        for conversation in every_conversation(unit, self._services.tenant, self.name):
            key = ConversationKey(self._services.tenant, self.name, conversation)
            if unit.conversations.find_turn(key, turn) is not None:
                yield conversation

    async def _forget(self, selector: Selector) -> Forgotten:
        services, at = self._services, self._services.clock.now()
        waiting = await services.forget_cached(self.name, selector)
        erased, number = await services.store.write(lambda unit: self._erase(unit, selector, at))
        # Once more: a turn that the store refused meanwhile may have gone into a file since.
        waiting += await services.forget_cached(self.name, selector)
        for space in {self.name, *erased.spaces}:
            services.note_forget(space, number)
        scrubbed = await services.store.scrub()
        services.wake_jobs()
        state = "erased" if scrubbed else "pending"
        services.events.emit("forgotten", space=self.name, erased=len(erased.ids) + waiting, state=state)
        return Forgotten(state, len(erased.ids) + waiting, tuple(services.unreachable_copies()))

    def _erase(self, unit: Unit, selector: Selector, at: float) -> tuple[Erased, int]:
        """And the number of the forget."""
        erased = unit.operations.forget(self._services.tenant, self.name, selector, at=at)
        # In the same transaction: whoever is cancelled or killed before the bytes are gone leaves that to others.
        scrub = new_job(JobKind.SCRUB, self._services.ids.new(), self._services.tenant, self.name, at)
        unit.jobs.add(scrub, coalesce=True)
        return erased, unit.operations.forgets(self._services.tenant, self.name)

    def _operation(self, verb: Verb, actor: Origin) -> Operation:
        services = self._services
        return Operation(services.ids.new(), services.tenant, self.name, verb, actor, services.clock.now())

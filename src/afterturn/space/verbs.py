"""The verbs of one space: add, update, delete, list, search, undo, forget, review, export and the like."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, Unpack

from afterturn.errors import InvalidInput
from afterturn.guard.output_filter import event_content
from afterturn.guard.statement_writer import embed_later
from afterturn.guard.trust import as_report, find_entry, is_privileged
from afterturn.ports import Unit
from afterturn.recall.profile import Profile, make_profile
from afterturn.recall.search import search, search_as_of
from afterturn.space.arguments import (
    LIMIT_MAX,
    DraftFields,
    check_conversation,
    check_filter,
    check_selector,
    check_version,
    make_draft,
    parse_origin,
    search_request,
)
from afterturn.space.inbox import InboxVerbs
from afterturn.space.markdown import MarkdownVerbs
from afterturn.space.reviews import Review, ReviewVerbs
from afterturn.space.transfer import Imported, every_conversation, export_lines, import_drafts
from afterturn.standing.audit import StandingLine, audit_standing
from afterturn.standing.lineage import is_hidden
from afterturn.stores.threaded_store import RemainingKey
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
    LaneQuery,
    LoggedOperation,
    Origin,
    SearchResults,
    Selector,
    Status,
    Tenant,
    Undone,
    UsageRow,
    Verb,
    new_job,
)
from afterturn.validation import check_id, check_limit, check_name, check_no_secret, moment

P = ParamSpec("P")
R = TypeVar("R")


def reported(
    method: Callable[Concatenate[SpaceCore, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SpaceCore, P], Coroutine[Any, Any, R]]:
    """Passes `verb_ended` on to the host's event handler, if there is one."""

    @functools.wraps(method)
    async def call(self: SpaceCore, /, *args: P.args, **kwargs: P.kwargs) -> R:
        services, verb = self._services, method.__name__
        if not services.events.has_handler:
            return await method(self, *args, **kwargs)
        started, result, error = services.clock.monotonic(), None, ""
        try:
            result = await method(self, *args, **kwargs)
        except BaseException as failure:
            error = type(failure).__name__
            raise
        finally:
            query, entries, count = _affected(result)
            memory = kwargs.get("memory") or kwargs.get("entry_id") or (args[0] if args and verb in _BY_ID else "")
            content = None
            if services.events.wants_content and not error:
                content = event_content(query, entries, scanning=services.config.scan_policy)
            services.events.pass_on(
                "verb_ended",
                content,
                space=self.name,
                verb=verb,
                memory=entries[0].id if isinstance(result, Added | Changed) else str(memory),
                memories=count,
                milliseconds=round((services.clock.monotonic() - started) * 1000, 2),
                error=error,
            )
        return result

    return call


_BY_ID = ("update", "set_firm", "set_pinned", "delete", "hide_standing")


def _affected(result: object) -> tuple[str, Sequence[Entry], int]:
    """The query of a search, the entries that a verb found or changed as far as they are known, and how many."""
    match result:
        case SearchResults():
            return result.query, [hit.entry for hit in result.hits], len(result.hits)
        case Added() | Changed():
            return "", [result.entry], 1
        case Imported():
            return "", [], result.created + result.existing
        case Forgotten():
            return "", [], result.erased
        case _:
            return "", [], 0


class SpaceCore(InboxVerbs, MarkdownVerbs, ReviewVerbs):
    """All verbs of one space, which `Space` and `blocking.Space` call."""

    async def get(self, entry_id: str, *, version: int | None = None) -> Entry:
        """Returns an entry: the active version, the newest one if none is active, or the given `version`.

        Raises NotFound if this space has no such entry or version.
        """
        check_id(entry_id)
        check_version(version)
        return await self._services.store.read(
            lambda unit: unit.memories.get(self._scope, entry_id, version=version), at=self._scope
        )

    async def list(self, *, limit: int = 50, before: str | None = None, filter: Filter = ANYTHING) -> Sequence[Entry]:
        """Returns active statements and records, newest `occurred_at` first, at most `limit` (up to 10,000).

        For the next page pass the last id as `before`. A memory that changes between two pages may be on both. `filter`
        narrows the list; numbers in its metadata are compared as numbers: 1 finds 1.0, but not True.
        """
        count, narrowed = check_limit(limit, LIMIT_MAX), check_filter(filter)
        last = None if before is None else check_id(before)
        return await self._services.store.read(
            lambda unit: unit.memories.newest(self._scope, narrowed, limit=count, before=last), at=self._scope
        )

    @reported
    async def search(
        self,
        query: str,
        *,
        limit: int = 10,
        lanes: Sequence[Lane | Literal["short_term", "long_term", "episodic"]] | None = None,
        conversation: str | None = None,
        as_of: float | datetime | str | None = None,
        filter: Filter = ANYTHING,
        exclude: Iterable[str] = (),
        score_min: float | None = None,
    ) -> SearchResults:
        """Searches this space by words and, if there is an embedder, by meaning. Best hits first, at most `limit`.

        `lanes` and `filter` narrow the search, `exclude` leaves out memories by id; all apply before the best are
        chosen. `conversation` is the one whose records are the short-term lane. `as_of` searches the space as it was at
        that time, by words only: Unix seconds, or a datetime or ISO 8601 text with a time zone. If the best hit has a
        lower score than `score_min` (default: 0.5), nothing is found; 0 finds everything. A lane that failed or was too
        slow is listed in the answer's `missing`. Raises InvalidInput for arguments of the wrong type.
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
            score_min=score_min,
        )
        if at is not None:
            return await self._services.store.read(lambda unit: search_as_of(unit, request, at), at=self._scope)
        return await self._services.recall_client.ask(request, search)

    async def profile(self, *, limit: int = 50, project: str | None = None) -> Profile:
        """Returns what this space knows now, by subject, newest first: at most `limit` entries.

        These are trusted statements that hold. While there are few of them, messages in which the user states
        something about themselves are added. With `project`, nothing that belongs to another project.
        """
        count, named = check_limit(limit, LIMIT_MAX), None if project is None else check_name(project, "project")
        narrowed = ANYTHING if named is None else Filter(project=(named, None))
        query = LaneQuery(self._scope, self._services.clock.now(), filter=narrowed)
        return await self._services.store.read(lambda unit: make_profile(unit, query, limit=count), at=self._scope)

    @reported
    async def add(self, text: str, **fields: Unpack[DraftFields]) -> Added:
        """Adds one statement as a memory. If the space already says so, returns that memory with `created=False`.

        `target` is "user" (default) or "environment"; `origin` says who states it ("user" by default) and decides its
        trust. Times are Unix seconds, or datetimes or ISO 8601 texts with a time zone.

        Raises InvalidInput if the text is empty, too long or refused by the guard; OverBudget, with the memories that
        could go, if the space is full; NotAllowed if an untrusted origin wants it pinned, a convention or a preference,
        or another than the user wants it `firm`: a rule that refuses the tool calls that it concerns.

        A statement of an agent (origin "agent") waits for approval if it would be standing. Anything else is kept as a
        report, unless you report with `clean=True` that no text of others had entered its turn. A standing memory that
        looks like an instruction to the model waits too, unless the user pins it or makes it firm.
        """
        draft, lineage = as_report(make_draft(text, fields), clean=fields.get("clean", False))
        admitted = self._services.gate.admit(draft, lineage=lineage)
        operation = self._operation(Verb.ADD, admitted.draft.origin)
        added = await self._services.write_change(
            operation, lambda unit: self._services.statement_writer.add(unit, operation, admitted)
        )
        if draft.firm and added.entry.status is Status.ACTIVE and not added.entry.firm:
            changed = await self.set_firm(added.entry.id)
            return replace(added, entry=changed.entry, operation=changed.operation)
        return added

    @reported
    async def add_many(
        self,
        drafts: Iterable[Draft],
        *,
        group: str | None = None,
        progress: Callable[[int], None] | None = None,
        clean: bool = False,
    ) -> Imported:
        """Adds many statements or records in chunks. All operations have one `group`, so one `undo` takes all back.

        Statements of an agent are reports unless `clean`, as for `add`, and so are its messages. `progress` is
        called with the number of drafts stored so far. Raises InvalidInput for a draft that the guard refuses; the
        chunks before it remain stored.
        """
        named = self._services.ids.new() if group is None else check_name(group, "group")
        check_no_secret(named, "group", scanning=self._services.config.scan_policy)
        imported = await import_drafts(self._services, self.name, drafts, group=named, progress=progress, clean=clean)
        self._services.wake_jobs()
        self._services.events.pass_on(
            "memories_imported",
            space=self.name,
            group=imported.group,
            created=imported.created,
            existing=imported.existing,
        )
        return imported

    @reported
    async def update(
        self,
        entry_id: str,
        text: str,
        *,
        expected_version: int | None = None,
        origin: str = Origin.USER,
        clean: bool = False,
    ) -> Changed:
        """Writes a new version of a memory with a new text. `undo` brings the old version back.

        All other fields stay, except `origin`, which says who states it now, and `occurred_at`, the time of the update.
        An agent's change of a trusted memory waits for approval, unless its turn was `clean` and the memory is not
        standing, as for `add`.

        Raises Conflict if `expected_version` is given and is not the current version; NotFound if this space has no
        such memory; InvalidInput for a record, or for a text that the guard refuses; NotAllowed if `origin` is not
        trusted enough to change this memory.
        """
        check_version(expected_version)
        current = await self.get(entry_id)
        if current.kind is Kind.RECORD:
            raise InvalidInput(f"{entry_id} is a recorded message, which cannot be changed. Add a statement instead.")
        changed = replace(Draft.successor(current, text), origin=parse_origin(origin))
        draft, lineage = as_report(changed, clean=clean, current=current)
        return await self._write_version(entry_id, draft, lineage, expected_version)

    @reported
    async def set_firm(self, entry_id: str, firm: bool = True) -> Changed:  # noqa: FBT001, FBT002
        """Makes a memory a firm rule, or no longer: `turn.before_tool` refuses the calls that a firm rule concerns.

        Writes a new version of the memory, as the user's, which `undo` takes back. Call it only for a person. Raises
        NotFound if this space has no such memory, InvalidInput for a record or what is not active, NotAllowed if it was
        learned from text of others.
        """
        return await self._set(entry_id, "firm", firm)

    @reported
    async def set_pinned(self, entry_id: str, pinned: bool = True) -> Changed:  # noqa: FBT001, FBT002
        """Lets a memory stand in every prompt, or no longer, like `add` with `pinned`. Otherwise as `set_firm`."""
        return await self._set(entry_id, "pinned", pinned)

    async def _set(self, entry_id: str, name: str, value: bool) -> Changed:  # noqa: FBT001
        current = await self.get(entry_id)
        if current.kind is Kind.RECORD or current.status is not Status.ACTIVE:
            raise InvalidInput(
                f"{entry_id} is not an active statement, so it cannot be {name}. Add a statement instead."
            )
        if getattr(current, name) is value:
            return Changed(current, "")
        draft = replace(Draft.successor(current, current.text), origin=Origin.USER)
        draft = replace(draft, **{name: value})  # type: ignore[arg-type]  # firm or pinned
        lineage = () if current.origin is Origin.USER else (current.trust,)
        return await self._write_version(entry_id, draft, lineage, current.version)

    async def _write_version(
        self, entry_id: str, draft: Draft, lineage: Sequence[int], expected_version: int | None
    ) -> Changed:
        admitted = self._services.gate.admit(draft, lineage=lineage)
        operation = self._operation(Verb.UPDATE, admitted.draft.origin)
        entry = await self._services.write_change(
            operation,
            lambda unit: self._services.statement_writer.update(
                unit, operation, entry_id, admitted, expected_version=expected_version
            ),
        )
        return Changed(entry, operation.id)

    @reported
    async def delete(self, entry_id: str, *, origin: str = Origin.USER, clean: bool = False) -> Changed:
        """Hides a memory or record from recall and lists. `undo` brings it back; `forget` erases.

        `origin` says who wants it deleted. An agent's deletion of a trusted memory waits for approval, unless its turn
        was `clean` and the memory is not standing, as for `add`.

        Raises NotFound if this space has no such entry, NotAllowed if `origin` is not trusted enough to delete it.
        """
        check_id(entry_id)
        actor = parse_origin(origin)
        operation = self._operation(Verb.DELETE, actor)

        def work(unit: Unit) -> Entry:
            current = unit.memories.get(self._scope, entry_id)
            is_report = actor is Origin.AGENT and (clean is not True or is_privileged(current))
            asks = is_report and (current.kind is Kind.RECORD or current.trust > Origin.TOOL.trust)
            trust = Origin.TOOL.trust if is_report and not asks else actor.trust
            return self._services.statement_writer.delete(unit, operation, entry_id, trust=trust, asks=asks)

        return Changed(await self._services.write_change(operation, work), operation.id)

    async def history(self, entry_id: str) -> History:
        """Returns all versions of an entry and the steps of the operations that changed it, oldest first.

        Raises NotFound if this space has no such entry.
        """
        check_id(entry_id)

        def work(unit: Unit) -> History:
            versions = unit.memories.history(self._scope, entry_id)
            return History(tuple(versions), tuple(unit.operations.steps(self._scope, entry_id=entry_id)))

        return await self._services.store.read(work, at=self._scope)

    async def operations(self, *, limit: int = 50) -> Sequence[LoggedOperation]:
        """Returns the operations on this space, newest first, each with one memory that it changed."""
        count = check_limit(limit, LIMIT_MAX)
        return await self._services.store.read(
            lambda unit: unit.operations.log(self._scope, limit=count), at=self._scope
        )

    async def undo(self, target: str) -> Undone:
        """Takes back one operation, or all operations of a group such as an import or a review, given its id.

        The answer's `operation` can be undone in turn. Raises NotFound if this space has no such operation or group,
        and Conflict, with nothing changed, if something later depends on it.
        """
        check_name(target, "operation")
        operation = self._operation(Verb.UNDO, Origin.USER)

        def work(unit: Unit) -> Undone:
            steps = unit.operations.undo(operation, target=target)
            embed_later(unit, operation)
            return Undone(operation.id, tuple(steps))

        undone = await self._services.store.write(work, at=self._scope)
        self._services.wake_jobs()
        self._services.events.report_undone(self.name, target, undone)
        return undone

    @reported
    async def forget(
        self,
        *,
        memory: str | None = None,
        conversation: str | None = None,
        source: str | None = None,
        speaker: str | None = None,
        everything: bool = False,
        sources: bool = False,
    ) -> Forgotten:
        """Erases for good: every version, vector, index entry, job and recording that waits. Pass exactly one selector.

        `memory`, `conversation` and `source` are ids, `speaker` is a name; `everything=True` erases the space. This
        cannot be undone. The recorded messages that a memory was learned from still say it: the answer's `sources` has
        their ids, and with `sources=True` they are erased too, with what was learned only from them. The answer's
        `state` is "pending" while another process still reads the bytes, and its `out_of_reach` lists what is not
        erased: backups, and other spaces that recorded conversations of this one (`writes=`); forget them there. Raises
        NotFound if there is no such `memory`, and InvalidInput unless exactly one selector is given.
        """
        selector = check_selector(Selector(memory, conversation, source, speaker, everything))
        said: tuple[str, ...] = ()
        if memory is not None:
            said = await self._find_messages(memory, hide=not sources)
            selector = Selector(memories=(memory, *said)) if sources else selector
        elif sources:
            raise InvalidInput("`sources` is for one memory. Pass `memory` with it, or leave it out.")
        services, at = self._services, self._services.clock.now()
        waiting = await services.forget_cached(self.name, selector)
        # Memories learned from it, and blocks that show it, may be in every space of the tenant.
        erased, number = await services.store.write(
            lambda unit: self._erase(unit, selector, at), at=Tenant(services.tenant)
        )
        # Again: a turn that the store refused meanwhile may have been written to a file since.
        waiting += await services.forget_cached(self.name, selector)
        for space in {self.name, *erased.spaces}:
            services.note_forget(space, number)
        return replace(await self._scrub(selector, erased, waiting), sources=said)

    async def _find_messages(self, entry_id: str, *, hide: bool) -> tuple[str, ...]:
        """The recorded messages that a memory was learned from, oldest first. Raises NotFound.

        With `hide`, what is forgotten does not stand in their words.
        """
        operation = self._operation(Verb.HIDE, Origin.USER)

        def work(unit: Unit) -> tuple[str, ...]:
            named = {source for one in unit.memories.history(self._scope, entry_id) for source in one.sources}
            found = (find_entry(unit, self._scope, source) for source in sorted(named))
            records = [one for one in found if one is not None and one.kind is Kind.RECORD]
            for record in records if hide else ():
                if record.status is Status.ACTIVE and not is_hidden(unit, self._scope, record.id):
                    unit.memories.hide(operation, record.id)
            return tuple(record.id for record in records)

        return await self._services.store.write(work, at=self._scope)

    async def usage(self, *, limit: int = 1000) -> Sequence[UsageRow]:
        """Returns the model calls and tokens for this space by day and purpose, newest day first."""
        count = check_limit(limit, LIMIT_MAX)
        return await self._services.store.read(
            lambda unit: unit.usage.page(self._services.tenant, space=self.name, limit=count), at=self._scope
        )

    async def consolidate(self, *, dry_run: bool = False) -> Review:
        """Merges duplicates, hides memories that a newer one contradicts and, if `fade_days` is set, unused ones.

        Returns the review, which `undo_review` takes back. With `dry_run`, only reports what it would do.
        """
        from afterturn.space.consolidation import consolidate

        return await consolidate(self._services, self.name, dry_run=dry_run)

    async def standing_audit(
        self,
        *,
        conversation: str | None = None,
        agent: str | None = None,
        project: str | None = None,
        left_out: bool = False,
    ) -> Sequence[StandingLine]:
        """Returns every line that this space gives to a standing block now: who wrote it, when, and how it came in.

        With `conversation`, the lines that this conversation was given; NotFound if it was given none. Otherwise those
        for `agent` and `project`, and those for all; with `left_out`, also the facts that do not stand, and why.
        """
        return await audit_standing(
            self._services,
            self.name,
            conversation=check_conversation(conversation),
            agent=agent,
            project=project,
            left_out=left_out,
        )

    @reported
    async def hide_standing(self, entry_id: str, hidden: bool = True) -> Changed:  # noqa: FBT001, FBT002
        """Takes a memory or a recorded message out of the standing context, or puts it back. It can still be recalled.

        `undo` takes it back. Pinned and firm memories stay in the context. A conversation that has its standing block
        keeps it until the block is rebuilt. Raises NotFound if this space has no such entry.
        """
        check_id(entry_id)
        operation = self._operation(Verb.HIDE, Origin.USER)

        def work(unit: Unit) -> Changed:
            current = unit.memories.get(self._scope, entry_id)
            if is_hidden(unit, self._scope, entry_id) is hidden:
                return Changed(current, "")
            return Changed(unit.memories.hide(operation, entry_id), operation.id)

        return await self._services.store.write(work, at=self._scope)

    async def trace(self, *, conversation: str | None = None, limit: int = 200) -> Sequence[Event]:
        """Returns the newest `limit` events of this space, or of one conversation, oldest first."""
        count, named = check_limit(limit, LIMIT_MAX), check_conversation(conversation)
        return await self._services.store.read(
            lambda unit: unit.timeline.page(self._scope, conversation=named, limit=count), at=self._scope
        )

    async def conversations(self, *, limit: int = 50, turn: str | None = None) -> Sequence[str]:
        """Returns ids of conversations, newest activity first; with `turn`, of those that have a turn with that id."""
        count = check_limit(limit, LIMIT_MAX)
        named = None if turn is None else check_name(turn, "turn id")
        tenant = self._services.tenant

        def work(unit: Unit) -> list[str]:
            if named is None:
                return unit.conversations.page(tenant, self.name, limit=count)
            keys = (ConversationKey(tenant, self.name, one) for one in every_conversation(unit, tenant, self.name))
            return list(islice((key.id for key in keys if unit.conversations.find_turn(key, named)), count))

        return await self._services.store.read(work, at=self._scope)

    async def export(self) -> Sequence[dict[str, Any]]:
        """Returns everything that is stored about this space: a header, then one JSON-serialisable dict per row.

        Each dict has one key, the kind of the row: entries in all versions, operations with their steps, conversations
        with their turns and blocks, reviews, usage, events.
        """
        now = self._services.clock.now()
        return await self._services.store.read(lambda unit: export_lines(unit, self._scope, now), at=self._scope)

    async def stats(self) -> dict[str, Any]:
        """Returns counts: entries by kind and status, searchable entries, and changes so far."""

        def work(unit: Unit) -> dict[str, Any]:
            counts = unit.memories.counts(self._scope)
            extent = unit.index.stats(self._scope).get(self.name)
            return {
                "space": self.name,
                "entries": {f"{kind}.{status}": count for (_, kind, status), count in sorted(counts.items())},
                "searchable": extent.documents if extent else 0,
                "changes": extent.seq if extent else 0,
            }

        return await self._services.store.read(work, at=self._scope)

    async def _scrub(self, selector: Selector, erased: Erased, waiting: int) -> Forgotten:
        """Erases the bytes, and reports what cannot be erased. `waiting` counts turns that were not in the store."""
        services = self._services
        remaining = await services.store.scrub()
        keys = [place for place in remaining if isinstance(place, RemainingKey) and place.tenant == services.tenant]
        # Also those of an earlier forget: its rows in copies are the space's, too.
        key_destroyed = bool(erased.key_ids) and self.name not in {key.space for key in keys}
        copies = services.unreachable_copies()
        if key_destroyed and not erased.copied_to:
            # Nobody can read what the store's own pages, logs and copies have of it.
            remaining, copies = (), services.unreachable_copies(sealed=True)
        # Keys of other tenants are none of this caller's business.
        remaining = (*keys, *(place for place in remaining if not isinstance(place, RemainingKey)))
        services.wake_jobs()
        state = "pending" if any(place.retry for place in remaining) else "erased"
        for entry_id in erased.ids if services.events.has_handler else ():
            services.events.pass_on("memory_forgotten", space=self.name, memory=entry_id)
        services.events.emit("forgotten", space=self.name, erased=len(erased.ids) + waiting, state=state)
        out_of_reach = [*await self._find_elsewhere(selector), *copies]
        if key_destroyed:
            out_of_reach += [
                f"rows of {space} or copies of them: it quoted or learned from {self.name}, and has a key of its own"
                for space in erased.copied_to
            ]
        return Forgotten(state, len(erased.ids) + waiting, tuple(out_of_reach), remaining, key_destroyed)

    async def _find_elsewhere(self, selector: Selector) -> Sequence[str]:
        """Other spaces that recorded this space's conversations: what they have is theirs to forget."""
        if not (selector.everything or selector.conversation or selector.speaker):
            return []
        tenant, name = self._services.tenant, self.name
        spaces = await self._services.store.read(
            lambda unit: unit.records.spaces_of(
                tenant, name, conversation=selector.conversation, speaker=selector.speaker
            ),
            at=Tenant(tenant),
        )
        return [f"the space {space}, which has records of conversations of {name}" for space in spaces]

    def _erase(self, unit: Unit, selector: Selector, at: float) -> tuple[Erased, int]:
        """Returns the erased ids, and the number of this forget."""
        erased = unit.operations.forget(self._services.tenant, self.name, selector, at=at)
        # In the same transaction, so that another process erases the bytes if this one is killed before.
        scrub = new_job(JobKind.SCRUB, self._services.ids.new(), self._services.tenant, self.name, at)
        unit.jobs.add(scrub, coalesce=True)
        return erased, unit.conversations.forgets(self._services.tenant)

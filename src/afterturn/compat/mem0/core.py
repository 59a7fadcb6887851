"""The verbs of mem0's Memory as coroutines on memory's loop, over the verbs of spaces and the recorder."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from afterturn.compat.mem0.filters import (
    PROCEDURAL,
    Conditions,
    Entities,
    check_arguments,
    check_limits,
    check_scope,
    is_met,
    read_entities,
    read_filters,
    top_level_ids,
)
from afterturn.compat.mem0.payload import (
    KINDS,
    NO_RUN,
    REPLACES,
    Item,
    SaidMessage,
    check_metadata,
    end_of_day,
    flatten,
    iso,
    make_id,
    make_item,
    read_expiration,
    read_id,
    read_messages,
    unflatten,
)
from afterturn.conversation.recording import Recording
from afterturn.conversation.scope import is_private
from afterturn.errors import InvalidInput, InvalidName, ModelUnavailable, NotFound
from afterturn.guard.gate import RECORD_BYTES_MAX, Gate
from afterturn.guard.pasted import has_pasted
from afterturn.guard.scanning import scanner
from afterturn.guard.statement_writer import embed_later
from afterturn.guard.trust import as_report, find_entry
from afterturn.log import logger
from afterturn.ports import Unit
from afterturn.recall.broad_questions import read_broad_question
from afterturn.recall.features import features_of, is_request
from afterturn.recall.profile import profile_hits
from afterturn.recall.query import COMMON_TERMS, RecallRequest, has_content
from afterturn.recall.relevance import JUDGED_MAX, judge
from afterturn.recall.search import VECTORS, search
from afterturn.runtime.once_future import OnceFuture
from afterturn.scanners.secrets import MARGIN_CHARS, redact
from afterturn.services import Services
from afterturn.space.arguments import LIMIT_MAX, search_request
from afterturn.space.reviews import ReviewedChange
from afterturn.space.verbs import SpaceCore
from afterturn.text import content_hash, regex, terms
from afterturn.types import (
    Added,
    Draft,
    Entry,
    Filter,
    History,
    Hit,
    Kind,
    Message,
    Operation,
    Origin,
    ReviewRow,
    ReviewState,
    Scope,
    SearchResults,
    Status,
    Step,
    Taint,
    Target,
    Tenant,
    Verb,
)
from afterturn.utterance import states_about_speaker
from afterturn.validation import moment

if TYPE_CHECKING:
    from afterturn.recall.index.cache import IndexCache

Answer: TypeAlias = dict[str, list[Item]]
R = TypeVar("R")

# How long `add` waits after `busy_timeout`. Messages that the store does not take in time wait in a file.
RECORDED_WITHIN = 2.0
# How long a search waits for vectors of what was just added. It is found by its words in any case.
VECTORS_WITHIN = 0.5
# The most spaces for whose vectors a search waits. Those above it are found by their words until then.
UNEMBEDDED_MAX = 10_000
POLL = 0.01
# What is judged of the results of a search: enough for its best exchanges, and for what is left out.
_JUDGED = 2 * JUDGED_MAX
# Below this chance an assistant's message, or a clause, states nothing.
_STATES_MIN = 0.2
_CLAUSE_END = regex(r"(?i)[.,;:!?]\s+|\s(?:and|but|so)\s(?=(?:i|i'm|my|we|our)\b)")
PAGE = 500
STATEMENT_BYTES_MAX = 65_536


UNSET = object()


class RecordedTurn(NamedTuple):
    """The messages of one call of `add`."""

    conversation: str
    id: str
    at: float


class Mem0Core:
    """One open store behind mem0's interface. `wait` is the default of `add(wait=...)`."""

    def __init__(self, services: Services, *, wait: bool) -> None:
        self._services = services
        self._wait = wait
        # mem0 stores messages of any length.
        self._gate = Gate(services.config, services.clock, services.ids, statement_bytes_max=STATEMENT_BYTES_MAX)
        self._has_vectors: bool | None = None
        # Spaces with statements that may have no vectors yet: the next search there waits for them.
        self._unembedded: set[str] = set()

    async def add(
        self,
        messages: object,
        *,
        user_id: str | None = None,
        agent_id: str | None = None,
        run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        timestamp: float | datetime | str | None = None,
        expiration_date: object = None,
        infer: bool = True,
        memory_type: str | None = None,
        prompt: str | None = None,
        llm: object = None,
        wait: bool | None = None,
    ) -> Answer:
        """Records messages and learns from them in the background, or stores each as a memory with `infer=False`.

        Returns when the messages are stored durably, with one ADD for each. With `wait=True` it waits until they were
        reviewed, and returns what was learned as ADD, UPDATE and DELETE. `timestamp` is when they were said. `prompt`
        and `llm` are ignored. Raises ValueError (ValidationError) unless a user, an agent or a run is named.
        """
        given = {"user_id": user_id, "agent_id": agent_id, "run_id": run_id}
        entities = check_scope(given, memory_type)
        if prompt is not None or llm is not None:
            logger.warning("`prompt` and `llm` of add() are ignored: afterturn's reviews have prompts of their own")
        said, at = read_messages(messages), moment(timestamp)
        kept, day = check_metadata(metadata, given), read_expiration(expiration_date)
        if day is not None:
            kept["expiration_date"] = day
        if memory_type is not None and agent_id is not None:
            lines = "\n".join(f"{one.role}: {one.text}" for one in said)
            said, infer = [SaidMessage("assistant", lines, None)] if said else [], False
            kept["memory_type"] = PROCEDURAL
        if not said:
            return {"results": []}
        if not infer:
            return {"results": await self._store(entities, said, kept, at)}
        return {"results": await self._record(entities, said, kept, at, wait=self._wait if wait is None else wait)}

    async def _store(
        self, entities: Entities, said: Sequence[SaidMessage], metadata: Mapping[str, Any], at: float | None
    ) -> list[Item]:
        """Stores each message as a statement, all in one transaction. One that is known already is not repeated."""
        space, flat = self._services.space(entities.space), flatten(metadata)
        clean = not _is_tainted(said)
        drafts = [
            Draft(
                text=one.text,
                origin=one.origin,
                target=Target.USER,
                agent=entities.agent_id,
                # The same words in two runs are two memories.
                project=entities.run_id,
                conversation=entities.run_id,
                speaker=one.name,
                metadata={**flat, "role": one.role},
                occurred_at=at,
                expires_at=end_of_day(metadata.get("expiration_date")),
            )
            for one in said
        ]
        results = []
        for one, draft, added in zip(said, drafts, await self._add_drafts(space, drafts, clean=clean), strict=True):
            entry, event = added.entry, "ADD" if added.created else "NONE"
            if not added.created and not draft.metadata.items() <= entry.metadata.items():
                entry = await self._revise(space, entry, entry.text, {**entry.metadata, **draft.metadata})
                event = "UPDATE"
            if entry.status is not Status.ACTIVE:
                logger.warning("a message of %s is %s and will not be found", space.name, entry.status)
            results.append(_result(entry, event, actor_id=one.name, role=one.role))
        return results

    async def _add_drafts(self, space: SpaceCore, drafts: Sequence[Draft], *, clean: bool) -> list[Added]:
        services = self._services
        operation = self._operation(space, Verb.ADD)
        reports = [as_report(draft, clean=clean) for draft in drafts]
        admitted = [self._gate.admit(draft, lineage=lineage) for draft, lineage in reports]

        def work(unit: Unit) -> list[Added]:
            return [services.statement_writer.put(unit, operation, one) for one in admitted]

        return await self._write(operation, work)

    async def _write(self, operation: Operation, work: Callable[[Unit], R]) -> R:
        """Runs a unit that writes statements, and gives them their vectors: in the same transaction if possible."""
        services, embedding = self._services, self._services.embedding
        tenant, space = operation.tenant, operation.space

        def run(unit: Unit) -> tuple[R, bool]:
            result = work(unit)
            is_embedded = embedding is not None and embedding.embed_written(unit, tenant, space)
            if not is_embedded:
                embed_later(unit, operation)
            return result, is_embedded

        result, is_embedded = await services.write_change(operation, run)
        if embedding is not None and is_embedded:
            embedding.note_written(tenant, space)
        elif len(self._unembedded) < UNEMBEDDED_MAX:
            self._unembedded.add(space)
        return result

    async def _record(
        self,
        entities: Entities,
        said: Sequence[SaidMessage],
        metadata: Mapping[str, Any],
        at: float | None,
        *,
        wait: bool,
    ) -> list[Item]:
        """Records the messages as one turn. A review is scheduled in the same transaction."""
        services, space = self._services, self._services.space(entities.space)
        config = services.config
        if not config.recording or config.recorder == "none":
            logger.warning("add() records nothing: `recording` is switched off in the settings")
            return []
        if any(one.role == "user" and is_private(one.text) for one in said):
            return []
        now, conversation = services.clock.now(), entities.run_id or NO_RUN
        redacted = [self._redacted(one) for one in said]
        asked = [message for message, _ in redacted if message.role == "user"]
        recording = Recording(
            tenant=services.tenant,
            space=space.name,
            conversation=conversation,
            turn=services.ids.new(),
            owner=space.name,
            started_at=now,
            forgets=await services.store.read(
                lambda unit: unit.conversations.forgets(services.tenant),
                at=Scope(services.tenant, (space.name,)),
            ),
            user_hash=asked[-1].hash if asked else "",
            messages=tuple(message for message, _ in redacted),
            agent=entities.agent_id,
            ended_at=now if at is None else at,
            metadata=flatten(metadata),
            reads=(space.name,),
            redacted=tuple(kinds for _, kinds in redacted) if any(kinds for _, kinds in redacted) else (),
            taint=Taint.TOOL if _is_tainted(said) else None,
        )
        recorded: OnceFuture[bool] = OnceFuture()
        services.recorder.enqueue(recording, recorded)
        if not (is_recorded := await recorded.wait(within=config.busy_timeout + RECORDED_WITHIN)):
            if is_recorded is None:
                logger.warning("the store did not take messages of %s in time; they wait in a file", space.name)
            return []
        turn = RecordedTurn(conversation, recording.turn, recording.ended_at)
        return await (self._learned(space, turn) if wait else self._recorded(space, turn))

    def _redacted(self, said: SaidMessage) -> tuple[Message, tuple[str, ...]]:
        """The message without secrets, before it waits in memory or in a file, and the kinds of secrets."""
        scan = scanner(scanning=self._services.config.scan_policy)
        found = redact(said.text[: RECORD_BYTES_MAX + MARGIN_CHARS], scan)
        speaker = redact(said.name or said.role, scan)
        role = said.role if said.origin is not Origin.TOOL else "tool"
        message = Message(role, found.text, speaker.text, content_hash(found.text))
        return message, (*found.kinds, *speaker.kinds)

    async def _recorded(
        self, space: SpaceCore, turn: RecordedTurn, learned: Mapping[str, set[str]] | None = None
    ) -> list[Item]:
        """The messages of a turn; with what was `learned` from them only those that state more."""
        filter = Filter(kind=Kind.RECORD, conversation=turn.conversation, since=turn.at, until=turn.at + 0.001)
        found = [one for one in await space.list(limit=LIMIT_MAX, filter=filter) if one.turn == turn.id]
        return [
            _result(one, "ADD", actor_id=item.get("actor_id"), role=item.get("role"))
            for one in sorted(found, key=lambda one: one.position or 0)
            if learned is None or _adds(one, learned)
            for item in [make_item(one, one, None)]
        ]

    async def _learned(self, space: SpaceCore, turn: RecordedTurn) -> list[Item]:
        """Waits for the reviews of the turn. Raises ModelUnavailable if one failed and will be tried again."""
        try:
            rows = await self._wait_for_reviews(lambda: self._reviews(space, turn))
        except TimeoutError:
            logger.warning("a review was not finished in time; it continues in the background")
            return []
        if reasons := [row.reason for row in rows if row.state is ReviewState.WAITING]:
            raise ModelUnavailable(
                f"The messages are recorded; their review failed and will be tried again ({reasons[0]}).",
                reason="retrying",
            )
        return await self._changes(space, turn, rows)

    async def _changes(self, space: SpaceCore, turn: RecordedTurn, rows: Sequence[ReviewRow]) -> list[Item]:
        changes = [change for row in rows for change in (await space.review(row.id)).changes]
        learned: dict[str, set[str]] = {}
        _note_learned(learned, [change.after for change in changes if change.after is not None])
        said = await self._recorded(space, turn, learned)
        return [result for change in changes if (result := _learned_result(change)) is not None] + said

    async def _wait_for_reviews(self, find: Callable[[], Awaitable[Sequence[ReviewRow]]]) -> Sequence[ReviewRow]:
        """Until each has ended, or failed and will be tried again. Raises TimeoutError."""
        async with asyncio.timeout(2 * self._services.config.review_timeout):
            rows = await find()
            while any(row.state is ReviewState.WAITING and not row.reason for row in rows):
                await self._services.run_due_jobs()
                # Another process may run it.
                await asyncio.sleep(POLL)
                rows = await find()
        return rows

    async def _reviews(self, space: SpaceCore, turn: RecordedTurn) -> list[ReviewRow]:
        rows = await space.reviews(conversation=turn.conversation, limit=PAGE)
        return [row for row in reversed(rows) if row.turn == turn.id]

    async def search(
        self,
        /,
        query: str,
        *,
        top_k: int = 20,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = 0.1,
        rerank: bool = False,
        explain: bool = False,
        reference_date: object = None,
        show_expired: bool = False,
        records: bool = False,
        **kwargs: Any,
    ) -> Answer:
        """Searches the memories of one user, agent or run, and recorded messages that state something; with `records`
        all messages. A score is the chance that the memory helps with the query: 0 for a message that states nothing.

        Older code may pass `user_id`, `agent_id`, `run_id` and `limit` at the top level. Of `filters`, the ids apply
        before the best are chosen; other conditions apply to the best 10,000. Results are always reranked; `rerank`
        adds `rerank_score`.
        """
        if reference_date is not None or show_expired:
            name = "reference_date" if reference_date is not None else "show_expired"
            raise InvalidInput(f"search() does not support {name}. Use get_all(), or leave it out.")
        limit = check_limits(check_arguments(kwargs, "search").get("limit", top_k), threshold)
        if not isinstance(query, str):
            raise InvalidInput("Invalid query: must be a non-empty string.")
        if not query.strip():
            raise InvalidInput("Invalid query: cannot be empty or whitespace-only.")
        entities, conditions = read_filters(filters, top_level_ids(kwargs))
        if limit == 0:
            return {"results": []}
        space, least = self._services.space(entities.space), 0.1 if threshold is None else threshold
        hits, found = list[Hit](), SearchResults(query, ())
        wanted = max(limit, _JUDGED)
        for count in (min(wanted * 4 if conditions else wanted, LIMIT_MAX), LIMIT_MAX):
            found = await self._find_hits(space, query.strip(), count, entities.filter)
            hits = [hit for hit in found.hits if records or states_something(hit.entry)]
            if conditions:
                hits = [hit for hit in hits if _meets_all(await self._item(space, hit.entry), conditions)]
            if len(hits) >= limit or len(found.hits) < count:
                break
        now, results = self._services.clock.now(), list[Item]()
        if found.weights:  # the profile has none, and is in its own order
            hits = judge(query, hits, now=now, weights=found.weights, names=found.names)
        for hit in hits:
            if len(results) == limit or hit.score < least:
                break
            item = await self._item(space, hit.entry)
            if not _is_expired(item, now):
                item["score"] = hit.score
                item.update({"rerank_score": hit.score} if rerank else {})
                item.update({"score_details": _details(hit, least)} if explain else {})
                results.append(item)
        return {"results": results}

    async def _find_hits(self, space: SpaceCore, query: str, limit: int, filter: Filter) -> SearchResults:
        """Waits until the embedder is loaded, and until what was added here before can be found by its meaning."""
        if self._has_vectors is None:
            self._has_vectors = await self._services.maintenance.ready()
        is_fresh = self._has_vectors and space.name in self._unembedded
        self._unembedded.discard(space.name)
        ends_at = asyncio.get_running_loop().time() + VECTORS_WITHIN
        services = self._services
        request = search_request(
            query,
            Scope(services.tenant, (space.name,)),
            services.config,
            limit=limit,
            lanes=None,
            filter=filter,
            exclude=(),
            now=services.clock.now(),
            correlation=services.ids.new(),
            score_min=0.0,
        )
        found = await services.recall_client.ask(request, _search)
        while is_fresh and VECTORS in found.missing and asyncio.get_running_loop().time() < ends_at:
            await asyncio.sleep(POLL)
            found = await services.recall_client.ask(request, _search)
        return found

    async def get_all(
        self,
        /,
        *,
        filters: Mapping[str, Any] | None = None,
        top_k: int = 20,
        show_expired: bool = False,
        records: bool = False,
        **kwargs: Any,
    ) -> Answer:
        """Lists what is stored of one user, agent or run, newest first: memories, and messages that state more than was
        learned from them; with `records` all messages. Takes the ids and filters of `search`, for the newest 10,000."""
        limit = check_limits(check_arguments(kwargs, "get_all").get("limit", top_k), None)
        entities, conditions = read_filters(filters, top_level_ids(kwargs))
        space, results, now = self._services.space(entities.space), list[Item](), self._services.clock.now()
        learned: dict[str, set[str]] = {}
        statuses = (Status.ACTIVE, Status.EXPIRED) if show_expired else (Status.ACTIVE,)
        wanted = replace(entities.filter, statuses=statuses)
        async for page in _pages(space, wanted, size=max(60, min(4 * limit, PAGE))):
            # A message and what was learned from it have the same time, so they are next to each other.
            _note_learned(learned, page)
            for entry in page:
                if len(results) < limit and (records or _adds(entry, learned)):
                    item = await self._item(space, entry)
                    is_shown = show_expired or (entry.is_valid(now) and not _is_expired(item, now))
                    if is_shown and _meets_all(item, conditions):
                        results.append(item)
            if len(results) >= limit:
                break
        return {"results": results}

    async def get(self, memory_id: str) -> Item | None:
        """Returns the memory with this id, or None if there is none. Ids are opaque: take them from other results."""
        found = await self._find(memory_id)
        return None if found is None else {**await self._item(*found), "score": None}

    async def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expiration_date: object = UNSET,
        data: str | None = None,
    ) -> dict[str, str]:
        """Writes a new version of a memory. `metadata` is merged into what it has. Raises ValueError if it is gone.

        `data` is an older name of `text`. A recorded message is replaced by a memory with the same id.
        """
        text = data if text is None else text
        if text is None and metadata is None and expiration_date is UNSET:
            raise InvalidInput("At least one of text, metadata, or expiration_date must be provided.")
        found = await self._find(memory_id)
        if found is None:
            raise InvalidInput(f"Memory with id {memory_id} not found. Please provide a valid 'memory_id'")
        space, entry = found
        item = await self._item(space, entry)
        merged = {**unflatten(entry.metadata), **check_metadata(metadata, item)}
        if expiration_date is not UNSET:
            merged["expiration_date"] = read_expiration(expiration_date)
        kept = {key: value for key, value in entry.metadata.items() if key not in unflatten(entry.metadata)}
        fresh = {**kept, **flatten({key: value for key, value in merged.items() if value is not None})}
        await self._revise(space, entry, entry.text if text is None else text, fresh)
        return {"message": "Memory updated successfully!"}

    async def _revise(self, space: SpaceCore, entry: Entry, text: str, metadata: Mapping[str, Any]) -> Entry:
        """Writes a new version. A record cannot have one, so a statement takes its place.

        A new text is the user's. With the same text, other metadata does not make a tool's words the user's.
        """
        services, operation = self._services, self._operation(space, Verb.UPDATE)
        is_record, is_same = entry.kind is Kind.RECORD, text == entry.text
        role = make_item(entry, entry, None).get("role")
        draft = replace(
            Draft.successor(entry, text),
            kind=Kind.STATEMENT,
            origin=entry.origin if is_same else Origin.USER,
            metadata={**metadata, REPLACES: entry.id, "role": role} if is_record else metadata,
            occurred_at=entry.occurred_at if is_same else None,
            expires_at=end_of_day(unflatten(metadata).get("expiration_date")),
            id=None if is_record else entry.id,
            turn=None if is_record else entry.turn,
        )
        admitted = self._gate.admit(draft, lineage=[entry.trust] if is_same else ())

        def work(unit: Unit) -> Entry:
            writer = services.statement_writer
            if not is_record:
                return writer.update(unit, operation, entry.id, admitted, expected_version=None)
            writer.delete(unit, operation, entry.id, trust=Origin.USER.trust)
            return writer.put(unit, operation, admitted).entry

        return await self._write(operation, work)

    async def delete(self, memory_id: str) -> dict[str, str]:
        """Hides a memory or a recorded message. Raises ValueError if there is none. `afterturn undo` brings it back."""
        found = await self._find(memory_id)
        if found is None:
            raise InvalidInput(f"Memory with id {memory_id} not found")
        space, entry = found
        await space.delete(entry.id)
        return {"message": "Memory deleted successfully!"}

    async def delete_all(
        self, user_id: str | None = None, agent_id: str | None = None, run_id: str | None = None
    ) -> dict[str, str]:
        """Hides everything that all the given ids name. Without a user, that is looked for in the spaces of all."""
        entities = read_entities({"user_id": user_id, "agent_id": agent_id, "run_id": run_id})
        if entities == Entities():
            raise InvalidInput(
                "At least one filter is required to delete all memories. If you want to delete all memories, use the "
                "`reset()` method."
            )
        tenant, named = self._services.tenant, Filter(agent=entities.agent_id, conversation=entities.run_id)

        def find(unit: Unit) -> list[str]:
            names = (name for kind in KINDS for name in unit.memories.space_names(tenant, f"{kind}:"))
            return [name for name in names if unit.memories.newest(Scope(tenant, (name,)), named, limit=1)]

        deleted = await self._delete_entries(self._services.space(entities.space), entities.filter)
        if entities.user_id is None:
            for name in await self._services.store.read(find, at=Tenant(tenant)):
                deleted += await self._delete_entries(self._services.space(name), named)
        if not deleted:
            logger.warning("delete_all() has found nothing of %s", entities)
        return {"message": "Memories deleted successfully!"}

    async def _delete_entries(self, space: SpaceCore, filter: Filter) -> int:
        """Returns how many entries there were. First it waits for reviews, which would bring back what they read."""
        services, scope = self._services, Scope(self._services.tenant, (space.name,))
        count = 0

        def delete(unit: Unit, operation: Operation, page: Sequence[Entry]) -> None:
            for entry in page:
                # Somebody else may have deleted or forgotten it since it was listed.
                found = find_entry(unit, scope, entry.id)
                if found is not None and found.status is Status.ACTIVE:
                    services.statement_writer.delete(unit, operation, entry.id, trust=Origin.USER.trust)

        with suppress(TimeoutError):
            await self._wait_for_reviews(lambda: space.reviews(limit=PAGE))
        while page := await space.list(limit=PAGE, filter=filter):
            operation = self._operation(space, Verb.DELETE)
            await services.write_change(operation, functools.partial(delete, operation=operation, page=page))
            count += len(page)
        return count

    async def history(self, memory_id: str) -> list[Item]:
        """Returns the changes of a memory, oldest first. Empty for an id that is not known."""
        named = self._named(memory_id)
        if named is None:
            return []
        space, entry_id = named
        try:
            found = await space.history(entry_id)
        except (NotFound, InvalidName):
            return []
        rows = _history_rows(found, found.versions[0])
        replaced = await self._replacement(space, found.versions[-1], Status.DELETED, Status.EXPIRED)
        if replaced is not None:
            later = _history_rows(await space.history(replaced.id), found.versions[0])
            later[0].update(event="UPDATE", old_memory=found.versions[-1].text)
            rows = [*rows[:-1], *later]
        return rows

    async def reset(self) -> None:
        """Hides everything of all users, agents and runs in this store and tenant, also what other programs wrote.

        It is not erased: the same store may have the memories of coding agents. `afterturn undo` brings it back.
        """
        for summary in await self._services.maintenance.spaces():
            if summary.name.partition(":")[0] in KINDS:
                await self._delete_entries(self._services.space(summary.name), Filter())

    async def chat(self, query: str) -> None:
        raise NotImplementedError("Chat function not implemented yet.")

    def _named(self, memory_id: object) -> tuple[SpaceCore, str] | None:
        named = read_id(memory_id)
        try:
            return None if named is None else (self._services.space(named[0]), named[1])
        except InvalidName:
            return None

    async def _find(self, memory_id: object) -> tuple[SpaceCore, Entry] | None:
        named = self._named(memory_id)
        if named is None:
            return None
        space, entry_id = named
        try:
            entry: Entry | None = await space.get(entry_id)
        except (NotFound, InvalidName):
            return None
        assert entry is not None
        if entry.status is not Status.ACTIVE:
            entry = await self._replacement(space, entry)
        return None if entry is None else (space, entry)

    async def _replacement(self, space: SpaceCore, entry: Entry, *statuses: Status) -> Entry | None:
        """The memory that took the place of a recorded message."""
        if entry.kind is not Kind.RECORD or entry.status is Status.ACTIVE:
            return None
        filter = Filter(metadata={REPLACES: entry.id}, statuses=(Status.ACTIVE, *statuses))
        return next(iter(await space.list(limit=1, filter=filter)), None)

    async def _item(self, space: SpaceCore, entry: Entry) -> Item:
        replaced, first = entry.metadata.get(REPLACES), entry
        if isinstance(replaced, str) or entry.version > 1:
            first = await self._get(space, str(replaced or entry.id), version=1) or entry
        is_learned = entry.origin is Origin.BACKGROUND_REVIEW and entry.sources
        return make_item(entry, first, await self._get(space, entry.sources[0]) if is_learned else None)

    async def _get(self, space: SpaceCore, entry_id: str, *, version: int | None = None) -> Entry | None:
        try:
            return await space.get(entry_id, version=version)
        except (NotFound, InvalidInput):
            return None  # a source of an import may be any text

    def _operation(self, space: SpaceCore, verb: Verb) -> Operation:
        services = self._services
        return Operation(services.ids.new(), services.tenant, space.name, verb, Origin.USER, services.clock.now())


async def _pages(space: SpaceCore, wanted: Filter, *, size: int) -> AsyncIterator[Sequence[Entry]]:
    """The newest entries, at most 10,000."""
    before: str | None = None
    for _ in range(LIMIT_MAX // size):
        page = await space.list(limit=size, before=before, filter=wanted)
        yield page
        if len(page) < size:
            return
        before = page[-1].id


def _search(unit: Unit, request: RecallRequest, cache: IndexCache | None) -> SearchResults:
    """The profile answers "what do you know about me?", as it does in turns."""
    broad = read_broad_question(request.text)
    hits = profile_hits(unit, request, broad, limit=request.limit) if broad is not None else ()
    return SearchResults(request.text, tuple(hits)) if hits else search(unit, request, cache)


def states_something(entry: Entry) -> bool:
    """False for a recorded question, order or acknowledgement: "Noted." """
    features = features_of(entry)
    if entry.kind is Kind.STATEMENT:
        return True
    states = entry.origin is Origin.USER or features.utterance.states >= _STATES_MIN
    return states and has_content(features.terms) and not is_request(entry)


def _note_learned(learned: dict[str, set[str]], entries: Iterable[Entry]) -> None:
    """Adds the words of statements to those that were learned from each message."""
    for entry in entries:
        for source in entry.sources:
            learned.setdefault(source, set()).update(features_of(entry).terms)


def _adds(entry: Entry, learned: Mapping[str, set[str]]) -> bool:
    """Whether an entry or one of its clauses states something, at least half of which was not learned from it: "I love
    hiking and I'm vegetarian." does if only the second half was learned."""
    if (told := learned.get(entry.id)) is None:
        return states_something(entry)
    clauses = [one for one in _CLAUSE_END.split(entry.text) if states_about_speaker(one) >= _STATES_MIN]
    said = [set(terms(one)) - COMMON_TERMS for one in (entry.text, *clauses)]
    return states_something(entry) and any(2 * len(each - told) >= max(1, len(each)) for each in said)


def _is_tainted(said: Sequence[SaidMessage]) -> bool:
    """Whether text of others is in it: a tool's, or something that the user has pasted."""
    return any(one.origin is Origin.TOOL or (one.role == "user" and has_pasted(one.text)) for one in said)


def _meets_all(item: Item, conditions: Sequence[Conditions]) -> bool:
    payload = {**(item["metadata"] or {}), **{key: value for key, value in item.items() if key != "metadata"}}
    return all(is_met(payload, condition) for condition in conditions)


def _is_expired(item: Item, now: float) -> bool:
    """Recorded messages expire by their metadata alone."""
    ends = end_of_day(item.get("expiration_date"))
    return ends is not None and ends <= now


def _details(hit: Hit, threshold: float) -> dict[str, float]:
    """The parts of a score under mem0's names. There are no entities."""
    similarity = hit.similarity or 0.0
    return {
        "semantic_score": similarity,
        "bm25_score": hit.lexical,
        "entity_boost": 0.0,
        "raw_score": similarity + hit.lexical,
        "max_possible_score": 1.0,
        "final_score": hit.score,
        "threshold": threshold,
    }


def _result(entry: Entry, event: str, **more: Any) -> Item:
    return {"id": make_id(entry), "memory": entry.text, "event": event, **more}


def _learned_result(change: ReviewedChange) -> Item | None:
    """One change of a review as an event of mem0. None if it waits for approval, or was taken back since."""
    if change.state not in ("active", "approved") or change.space.partition(":")[0] not in KINDS:
        return None
    if change.after is None:
        return None if change.before is None else _result(change.before, "DELETE")
    if change.before is None:
        return _result(change.after, "ADD")
    return _result(change.after, "UPDATE", previous_memory=change.before.text)


def _history_rows(history: History, first: Entry) -> list[Item]:
    versions = {entry.version: entry for entry in history.versions}
    rows = []
    for step in history.steps:
        entry = versions[step.version]
        texts = _texts_changed(step, entry, versions.get(step.version - 1))
        if texts is None:
            continue
        event, old, new = texts
        item = make_item(entry, first, None)
        rows.append(
            {
                "id": step.operation.id,
                "memory_id": item["id"],
                "old_memory": old,
                "new_memory": new,
                "event": event,
                "created_at": item["created_at"],
                "updated_at": iso(step.operation.at),
                "is_deleted": event == "DELETE",
                "actor_id": item.get("actor_id"),
                "role": item.get("role"),
            }
        )
    return rows


def _texts_changed(step: Step, entry: Entry, before: Entry | None) -> tuple[str, str | None, str | None] | None:
    """The event of a step, with the old and the new text. None for a version that gave way to another."""
    if step.after is Status.ACTIVE:
        is_update = step.before is None and before is not None
        return ("UPDATE", before.text, entry.text) if is_update and before else ("ADD", None, entry.text)
    if step.after in (Status.DELETED, Status.EXPIRED) and step.before is Status.ACTIVE:
        return "DELETE", entry.text, None
    return None

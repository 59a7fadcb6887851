"""In which space something that was learned belongs (L2): what a speaker said, into that speaker's space only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from afterturn.drafts import successor
from afterturn.errors import AfterturnError, Conflict, InvalidInput, NotAllowed, NotFound, OverBudget
from afterturn.guard.quotas import Quota
from afterturn.guard.secrets import tells_secret
from afterturn.guard.trust import waits
from afterturn.learning import evidence
from afterturn.learning.changes import Action, Change
from afterturn.learning.prompts import is_ours
from afterturn.learning.snapshot import with_sources
from afterturn.ports import Unit
from afterturn.types import (
    Admitted,
    ConversationKey,
    Draft,
    Entry,
    Kind,
    Metadata,
    Operation,
    Origin,
    ReviewKind,
    ReviewMessage,
    ReviewRow,
    Scope,
    Status,
    Target,
    Verb,
)

if TYPE_CHECKING:
    from afterturn.services import Services

PERSON = "user:"


@dataclass(frozen=True, slots=True)
class TargetSpace:
    """`waits`: only with a person's approval. `speaker` is who said it, where the host has named somebody."""

    space: str
    waits: bool = False
    speaker: str | None = None


def voices(messages: Sequence[ReviewMessage], cited: Sequence[int], target: Target) -> list[ReviewMessage]:
    """What was named; and when only the agent says something about a user, also what it answered to."""
    named = [messages[at] for at in cited]
    if target is not Target.USER or any(message.role == "user" for message in named):
        return named
    asked = (_answered(messages[:at]) for at in cited if messages[at].role == "assistant")
    return named + [message for message in asked if message is not None]


def _answered(before: Sequence[ReviewMessage]) -> ReviewMessage | None:
    return next((message for message in reversed(before) if message.role == "user"), None)


def find_home(review: ReviewRow, target: Target, cited: Sequence[ReviewMessage]) -> TargetSpace | None:
    """None when it belongs nowhere that this conversation may write."""
    named = {message.speaker for message in cited if message.role == "user" and message.speaker not in ("", "user")}
    if len(named) > 1:
        return None
    if named:
        return _of_speaker(review, named.pop())
    if target is Target.USER and not review.writes.startswith(PERSON) and review.space.startswith(PERSON):
        # A shared space is no place for what is personal.
        return TargetSpace(review.space)
    return TargetSpace(review.writes)


def find_home_of(review: ReviewRow, memory: Entry, cited: Sequence[ReviewMessage]) -> TargetSpace | None:
    """Where `memory` is, if what was said may change it there; None when what was said belongs elsewhere."""
    home = find_home(review, memory.target, cited)
    if home is None or home.space != memory.space:
        return None
    of_another = memory.speaker not in (None, home.speaker) and not memory.space.startswith(PERSON)
    return replace(home, waits=home.waits or of_another)


def _of_speaker(review: ReviewRow, speaker: str) -> TargetSpace | None:
    granted = {space.casefold(): space for space in (*review.reads, review.writes, review.space)}
    own = granted.get(f"{PERSON}{speaker}".casefold())
    if own is not None:
        return TargetSpace(own, speaker=speaker)
    # Into a space that several share, with somebody's consent; into another person's, never.
    return None if review.writes.startswith(PERSON) else TargetSpace(review.writes, waits=True, speaker=speaker)


# What a review wants to change, checked one by one and kept back until all of it is written at once (V4, V5).

# After so many refusals a model is told to stop: it will not get there.
REFUSALS_MAX = 10
BUDGET_REFUSALS_MAX = 3


class Refused(Exception):
    """One change can not be: `reason` is one word for the log, the message is for the model."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Staged:
    """A change that may be written, for as long as `base` is the version that holds; `trust` is a delete's."""

    change: Change
    home: TargetSpace
    admitted: Admitted | None
    base: Entry | None
    cited: tuple[int, ...]
    trust: int = Origin.BACKGROUND_REVIEW.trust


@dataclass(frozen=True, slots=True)
class StagingOutcome:
    """What a commit came to. `spaces` are those it wrote to."""

    written: int = 0
    proposed: int = 0
    refusals: tuple[str, ...] = ()
    spaces: tuple[str, ...] = ()


@dataclass(slots=True)
class Staging:
    """The changes of one review. Nothing is written before `commit`, and that happens once."""

    services: Services
    review: ReviewRow
    messages: Sequence[ReviewMessage]
    known: Sequence[Entry] = ()
    staged: list[Staged] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    @property
    def is_hopeless(self) -> bool:
        return len(self.refusals) >= REFUSALS_MAX or self.refusals.count("budget") >= BUDGET_REFUSALS_MAX

    async def stage(self, change: Change) -> str:
        """The answer for the model. What is refused is told, and counts for nothing."""
        try:
            staged = await self.services.store.read(lambda unit: self._check(unit, change))
        except Refused as refused:
            self.refusals.append(refused.reason)
            return f"Refused. {refused}"
        self.staged.append(staged)
        return "This will wait for a person's approval." if self._waits(staged) else "Saved."

    def commit(self, unit: Unit) -> StagingOutcome:
        """Writes what still holds. What has changed or gone meanwhile is refused by itself; the rest stands."""
        counts = {Status.ACTIVE: 0, Status.PROPOSED: 0}
        refusals, spaces = list(self.refusals), []
        key = ConversationKey(self.review.tenant, self.review.space, self.review.conversation)
        messages = with_sources(unit, key, self.review.writes, self.messages)
        for staged in self.staged:
            try:
                entry = self._write(unit, staged, messages)
            except Refused as refused:
                refusals.append(refused.reason)
                continue
            if entry is None:
                refusals.append("known")
                continue
            waiting = entry.status in (Status.PROPOSED, Status.WITHDRAWAL)
            counts[Status.PROPOSED if waiting else Status.ACTIVE] += 1
            spaces.append(staged.home.space)
        return StagingOutcome(
            counts[Status.ACTIVE], counts[Status.PROPOSED], tuple(refusals), tuple(dict.fromkeys(spaces))
        )

    # Checks, on a reader's thread.

    def _check(self, unit: Unit, change: Change) -> Staged:
        limit = self.services.config.review_entries_max
        if len(self.staged) >= limit:
            raise Refused("limit", f"At most {limit} changes can be saved in one review. Stop here.")
        cited = self._cited(change)
        if change.action is Action.ADD:
            return self._added(unit, change, cited)
        base = self._base(unit, change)
        home = find_home_of(self.review, base, voices(self.messages, cited, base.target))
        if home is None:
            raise Refused("speaker", "Whoever said this has no say in this memory. Leave it.")
        if change.action is Action.DELETE:
            return self._deleted(change, base, home, cited)
        return self._updated(change, base, home, cited)

    def _cited(self, change: Change) -> tuple[int, ...]:
        unknown = [number for number in change.messages if not 0 <= number < len(self.messages)]
        if unknown:
            raise Refused("evidence", f"There is no message {unknown[0] + 1}. Name messages of this conversation.")
        cited = change.messages or evidence.find_evidence(change.text, self.messages)
        if not cited:
            raise Refused("evidence", "Name the messages that this rests on.")
        if not any(self.messages[at].fresh for at in cited):
            # It was saved then, was not worth it, or somebody has undone it since.
            raise Refused("seen", "This rests only on messages that were reviewed before. Leave it.")
        return cited

    def _base(self, unit: Unit, change: Change) -> Entry:
        """The memory as it is now; only statements of spaces that the conversation may change."""
        scope = Scope(self.review.tenant, self._spaces())
        try:
            base = unit.memories.get(scope, change.entry_id)
        except (NotFound, InvalidInput):
            raise Refused("unknown_memory", "There is no such memory. Use the id of a known one.") from None
        if base.kind is not Kind.STATEMENT or base.status is not Status.ACTIVE:
            raise Refused("unknown_memory", "There is no such memory any more. Use the id of a known one.")
        if base.pinned:
            raise Refused("pinned", "This memory is pinned: only its owner changes it. Leave it.")
        if any(staged.base is not None and staged.base.id == base.id for staged in self.staged):
            raise Refused("twice", "This memory is changed already in this review. Leave it.")
        return base

    def _spaces(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.review.writes, self.review.space)))

    def _added(self, unit: Unit, change: Change, cited: tuple[int, ...]) -> Staged:
        assert change.target is not None
        home = find_home(self.review, change.target, voices(self.messages, cited, change.target))
        if home is None:
            raise Refused("speaker", "What this speaker said can not be remembered here. Leave it.")
        inferred = self._weigh(change, cited, ())
        home = replace(home, waits=home.waits or inferred)
        admitted = self._admit(self._draft(change, home, cited), cited)
        self._check_room(unit, home, admitted)
        return Staged(change, home, admitted, None, cited)

    def _updated(self, change: Change, base: Entry, home: TargetSpace, cited: tuple[int, ...]) -> Staged:
        inferred = self._weigh(change, cited, (base.text,))
        home = replace(home, waits=home.waits or inferred)
        draft = self._successor(change, base, home, cited)
        return Staged(change, home, self._admit(draft, cited, base.trust), base, cited)

    def _deleted(self, change: Change, base: Entry, home: TargetSpace, cited: tuple[int, ...]) -> Staged:
        """A person looks at it, unless the messages speak of what goes; nobody else's words may have asked for it."""
        # A rule has found what contradicts it, in whatever words.
        text = "" if self.review.kind is ReviewKind.RULES else base.text
        support = evidence.weigh(text, [self.messages[at].text for at in cited]).support
        home = replace(home, waits=home.waits or support < evidence.SUPPORT_MIN)
        trust = min([Origin.BACKGROUND_REVIEW.trust, *evidence.lineage(text, cited, self.messages)])
        return Staged(change, home, None, base, cited, trust)

    def _weigh(self, change: Change, cited: Sequence[int], also: Sequence[str]) -> bool:
        """Whether it is an inference that a person should look at. Refused when it was not said at all (V5)."""
        if is_ours(change.text):
            raise Refused("prompt", "That is a piece of your instructions, not of the conversation.")
        if tells_secret(change.text):
            raise Refused("secret", "Passwords, PINs and keys are never saved. Leave it.")
        said = [self.messages[at].text for at in cited]
        found = evidence.weigh(change.text, [*said, *also])
        if missing := [*found.missing, *evidence.turned(change.text, said)]:
            raise Refused(
                "invented", f"{', '.join(missing[:5])}: not in the messages that you named. Use what was said."
            )
        if not found.is_said:
            raise Refused("unsupported", "The messages that you named do not say this.")
        return found.is_inference

    def _check_room(self, unit: Unit, home: TargetSpace, admitted: Admitted) -> None:
        """Told now, while the model can still do something about it (G4)."""
        try:
            Quota(self.services.config).check_new(unit, self._operation(home, Verb.ADD), admitted)
        except OverBudget as error:
            raise Refused("budget", str(error)) from error

    # Drafts.

    def _draft(self, change: Change, home: TargetSpace, cited: Sequence[int]) -> Draft:
        review = self.review
        assert change.target is not None
        return Draft(
            text=change.text.strip(),
            origin=Origin.BACKGROUND_REVIEW,
            target=change.target,
            agent=review.agent,
            project=review.project if change.target is Target.ENVIRONMENT else None,
            conversation=review.conversation or None,
            owner=None if home.space == review.space else review.space,
            turn=review.turn or None,
            speaker=home.speaker,
            occurred_at=max(self.messages[at].occurred_at for at in cited),
            metadata=self._metadata(change),
            proposed=home.waits or waits(self.services.config, Origin.BACKGROUND_REVIEW),
        )

    def _successor(self, change: Change, base: Entry, home: TargetSpace, cited: Sequence[int]) -> Draft:
        return replace(
            successor(base, change.text.strip()),
            origin=Origin.BACKGROUND_REVIEW,
            conversation=self.review.conversation or None,
            owner=None if home.space == self.review.space else self.review.space,
            turn=self.review.turn or None,
            occurred_at=max(self.messages[at].occurred_at for at in cited),
            metadata={**base.metadata, **self._metadata(change)},
            proposed=home.waits or waits(self.services.config, Origin.BACKGROUND_REVIEW),
        )

    def _metadata(self, change: Change) -> Metadata:
        named = {"kind": change.kind} if change.kind else {}
        return {**named, "review": self.review.id}

    def _admit(self, draft: Draft, cited: Sequence[int], *also: int) -> Admitted:
        """`also` is the trust of what its words are taken from besides."""
        try:
            trusts = evidence.lineage(draft.text, cited, self.messages, self.known)
            return self.services.gate.admit(draft, lineage=[*trusts, *also])
        except InvalidInput as error:
            raise Refused("guard", str(error)) from error

    # Writing, in the transaction that ends the review.

    def _write(self, unit: Unit, staged: Staged, messages: Sequence[ReviewMessage]) -> Entry | None:
        """The new version; None when the space says so already."""
        sources = tuple(dict.fromkeys(source for at in staged.cited if (source := messages[at].source) is not None))
        self._check_sources(unit, sources)
        writer = self.services.statement_writer
        try:
            if staged.change.action is Action.ADD:
                assert staged.admitted is not None
                operation = self._operation(staged.home, Verb.ADD)
                added = writer.add(unit, operation, _resting_on(staged.admitted, sources))
                return added.entry if added.operation is not None else None
            assert staged.base is not None
            version = staged.base.version
            if staged.admitted is None:
                operation = self._operation(staged.home, Verb.DELETE)
                return writer.delete(
                    unit,
                    operation,
                    staged.base.id,
                    trust=staged.trust,
                    expected_version=version,
                    asks=staged.home.waits,
                )
            operation = self._operation(staged.home, Verb.UPDATE)
            admitted = _resting_on(staged.admitted, sources or staged.base.sources)
            return writer.update(unit, operation, staged.base.id, admitted, expected_version=version)
        except (Conflict, NotFound) as error:
            raise Refused("changed", str(error)) from error
        except NotAllowed as error:
            raise Refused("not_allowed", str(error)) from error
        except OverBudget as error:
            raise Refused("budget", str(error)) from error

    def _check_sources(self, unit: Unit, sources: Sequence[str]) -> None:
        """What was forgotten meanwhile must not come back as somebody's summary (M2)."""
        scope = Scope(self.review.tenant, self._spaces())
        for source in sources:
            try:
                unit.memories.get(scope, source)
            except AfterturnError as error:
                raise Refused("forgotten", "What this rests on was forgotten.") from error

    def _operation(self, home: TargetSpace, verb: Verb) -> Operation:
        services, review = self.services, self.review
        return Operation(
            services.ids.new(),
            review.tenant,
            home.space,
            verb,
            Origin.BACKGROUND_REVIEW,
            services.clock.now(),
            review.id,
        )

    def _waits(self, staged: Staged) -> bool:
        return staged.home.waits or waits(self.services.config, Origin.BACKGROUND_REVIEW)


def _resting_on(admitted: Admitted, sources: tuple[str, ...]) -> Admitted:
    return replace(admitted, draft=replace(admitted.draft, sources=sources))

"""Checks the changes of a review one by one, and writes all of them at its end in one transaction."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from afterturn.errors import AfterturnError, Conflict, InvalidInput, NotAllowed, NotFound, OverBudget
from afterturn.guard.quotas import Quota
from afterturn.guard.trust import STANDING_KINDS, is_privileged, waits
from afterturn.learning import evidence
from afterturn.learning.changes import Action, Change
from afterturn.learning.prompts import is_prompt_text
from afterturn.learning.rules.clauses import is_temporary, is_unsure
from afterturn.learning.rules.sentences import split_sentences
from afterturn.learning.snapshot import ReviewView, views_of, with_sources
from afterturn.ports import Unit
from afterturn.recall.duplicates import has_all_words, is_restated
from afterturn.recall.times import resolve_times
from afterturn.scanners.secrets import mentions_secret
from afterturn.types import (
    QUOTES,
    Admitted,
    ConversationKey,
    Draft,
    Entry,
    Filter,
    Kind,
    Operation,
    Origin,
    ReviewKind,
    ReviewMessage,
    ReviewRow,
    Scope,
    Status,
    Target,
    Tenant,
    Verb,
    Verdict,
)
from afterturn.utterance import UtteranceKind, read_utterance

if TYPE_CHECKING:
    from afterturn.services import Services

PERSON = "user:"
# After this many refusals the review ends.
REFUSALS_MAX = 10
BUDGET_REFUSALS_MAX = 3
# How many proposals are compared with what the user says.
WAITING_MAX = 200
_VERBS = {Action.ADD: Verb.ADD, Action.UPDATE: Verb.UPDATE, Action.DELETE: Verb.DELETE}


@dataclass(frozen=True, slots=True)
class TargetSpace:
    """`needs_approval`: a person has to approve it. `speaker` is who said it, if the host named somebody."""

    space: str
    needs_approval: bool = False
    speaker: str | None = None


def attributed_messages(messages: Sequence[ReviewMessage], cited: Sequence[int], target: Target) -> list[ReviewMessage]:
    """The cited messages. If only the agent says something about a user, also the user messages that it answered."""
    named = [messages[at] for at in cited]
    if target is not Target.USER or any(message.role == "user" for message in named):
        return named
    for at in cited:
        if messages[at].role == "assistant":
            answered = (message for message in reversed(messages[:at]) if message.role == "user")
            named.extend(itertools.islice(answered, 1))
    return named


def find_target_space(review: ReviewRow, target: Target, cited: Sequence[ReviewMessage]) -> TargetSpace | None:
    """The space for a new memory: what a named speaker said goes to that speaker's space, or waits for approval.

    None if it belongs to no space that this conversation may write to.
    """
    named = {message.speaker for message in cited if message.role == "user" and message.speaker not in ("", "user")}
    if len(named) > 1:
        return None
    if named:
        speaker = named.pop()
        granted = {space.casefold(): space for space in (*review.reads, review.writes, review.space)}
        if (own := granted.get(f"{PERSON}{speaker}".casefold())) is not None:
            return TargetSpace(own, speaker=speaker)
        # It may go into a shared space if a person approves it, but never into another person's space.
        is_shared = not review.writes.startswith(PERSON)
        return TargetSpace(review.writes, needs_approval=True, speaker=speaker) if is_shared else None
    if target is Target.USER and not review.writes.startswith(PERSON) and review.space.startswith(PERSON):
        # Personal statements do not go into a shared space.
        return TargetSpace(review.space)
    if target is Target.ENVIRONMENT and review.environment:
        return TargetSpace(review.environment)
    return TargetSpace(review.writes)


def find_target_space_for(review: ReviewRow, memory: Entry, cited: Sequence[ReviewMessage]) -> TargetSpace | None:
    """The space of `memory`, or None if the cited messages may not change it."""
    target_space = find_target_space(review, memory.target, cited)
    if target_space is None or target_space.space != memory.space:
        return None
    of_another = memory.speaker not in (None, target_space.speaker) and not memory.space.startswith(PERSON)
    return replace(target_space, needs_approval=target_space.needs_approval or of_another)


class Refused(Exception):
    """A change was refused. `reason` is one word for the log; the message is for the model."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class StagedChange:
    """A checked change. It is written if `base` is still the current version. `trust` applies to a delete.

    `is_tainted`: it was derived from text of others.
    """

    change: Change
    target_space: TargetSpace
    admitted: Admitted | None
    base: Entry | None
    cited: tuple[int, ...]
    trust: int = Origin.BACKGROUND_REVIEW.trust
    is_tainted: bool = False


@dataclass(frozen=True, slots=True)
class StagingOutcome:
    """The result of a commit. `spaces` are those that it wrote to."""

    written: int = 0
    proposed: int = 0
    refusals: tuple[str, ...] = ()
    spaces: tuple[str, ...] = ()


@dataclass(slots=True)
class Staging:
    """The changes of one review. Nothing is written before `commit`, which is called once.

    `view` is what the reviewer is shown at the moment. A fact that it derives from a tainted view is a report, trusted
    like a tool's output. A preference, a convention, and a change of a memory with more trust wait for a person,
    whatever the settings say. A statement that a model derives from any other view becomes standing only if a sentence
    that its speaker typed states it by itself. Otherwise it waits too: the words may be the assistant's.
    """

    services: Services
    review: ReviewRow
    messages: Sequence[ReviewMessage]
    related: Sequence[Entry] = ()
    staged: list[StagedChange] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    views: list[ReviewView] = field(init=False)
    view: ReviewView = field(init=False)

    def __post_init__(self) -> None:
        self.views = views_of(self.messages, self.related)
        self.view = self.views[0] if self.views else ReviewView(self.messages, self.related, is_tainted=True)

    @property
    def is_hopeless(self) -> bool:
        return len(self.refusals) >= REFUSALS_MAX or self.refusals.count("budget") >= BUDGET_REFUSALS_MAX

    @property
    def spaces(self) -> tuple[str, ...]:
        """Where `commit` writes."""
        return tuple(dict.fromkeys(staged.target_space.space for staged in self.staged))

    async def stage(self, change: Change) -> str:
        """Checks and stages one change. Returns the answer for the model, with the reason if it is refused."""
        try:
            staged = await self.services.store.read(
                lambda unit: self._check(unit, change), at=Tenant(self.review.tenant)
            )
        except Refused as refused:
            self.refusals.append(refused.reason)
            return f"Refused. {refused}"
        self.staged.append(staged)
        return "This will wait for a person's approval." if self._waits(staged) else "Saved."

    def commit(self, unit: Unit) -> StagingOutcome:
        """Writes the staged changes. A change whose memory was changed or deleted meanwhile is refused on its own."""
        written: list[Entry] = []
        refusals = list(self.refusals)
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
            else:
                written.append(entry)
        waiting = sum(entry.status in (Status.PROPOSED, Status.WITHDRAWAL) for entry in written)
        spaces = dict.fromkeys(entry.space for entry in written)
        return StagingOutcome(len(written) - waiting, waiting, tuple(refusals), tuple(spaces))

    def _check(self, unit: Unit, change: Change) -> StagedChange:
        limit = self.services.config.review_entries_max
        if len(self.staged) >= limit:
            raise Refused("limit", f"At most {limit} changes can be saved in one review. Stop here.")
        cited = self._cited(change)
        if change.action is Action.ADD:
            return self._stage_add(unit, change, cited)
        base = self._base(unit, change)
        target_space = find_target_space_for(self.review, base, attributed_messages(self.messages, cited, base.target))
        if target_space is None:
            raise Refused("speaker", "The speaker of these messages may not change this memory. Leave it.")
        if change.action is Action.DELETE:
            return self._stage_delete(change, base, target_space, cited)
        return self._stage_update(change, base, target_space, cited)

    def _cited(self, change: Change) -> tuple[int, ...]:
        shown = self.view.messages
        unknown = [number for number in change.messages if not (0 <= number < len(shown) and shown[number].text)]
        if unknown:
            raise Refused(
                "evidence", f"There is no message {unknown[0] + 1}. Give numbers of messages of this conversation."
            )
        cited = change.messages or evidence.find_evidence(change.text, shown)
        if not cited:
            raise Refused("evidence", "Give the numbers of the messages that support this.")
        if not any(shown[at].fresh for at in cited):
            # It was saved then, or not worth saving, or somebody has undone it since.
            raise Refused("seen", "Only messages that were reviewed before support this. Leave it.")
        return cited

    def _base(self, unit: Unit, change: Change) -> Entry:
        """The current version of the memory to change, in a space that the conversation may change."""
        scope = Scope(self.review.tenant, self.review.changeable)
        try:
            base = unit.memories.get(scope, change.entry_id)
        except (NotFound, InvalidInput):
            raise Refused("unknown_memory", "There is no such memory. Use the id of a known one.") from None
        if base.kind is not Kind.STATEMENT or base.status is not Status.ACTIVE:
            raise Refused("unknown_memory", "There is no such memory any more. Use the id of a known one.")
        if base.pinned or base.firm:
            raise Refused("pinned", "This memory is pinned or firm: only its owner may change it. Leave it.")
        if any(staged.base is not None and staged.base.id == base.id for staged in self.staged):
            raise Refused("twice", "This review has already changed this memory. Leave it.")
        return base

    def _stage_add(self, unit: Unit, change: Change, cited: tuple[int, ...]) -> StagedChange:
        assert change.target is not None
        target_space = find_target_space(
            self.review, change.target, attributed_messages(self.messages, cited, change.target)
        )
        if target_space is None:
            raise Refused("speaker", "Statements of this speaker cannot be remembered here. Leave it.")
        self._check_unsaved(change)
        inferred = self._is_inference(change, cited, ())
        is_typed = change.kind not in STANDING_KINDS or self._is_typed(change.text, target_space, cited)
        waits_for_person = inferred or not is_typed
        target_space = replace(target_space, needs_approval=target_space.needs_approval or waits_for_person)
        admitted = self._admit(change, self._draft(change, None, target_space, cited), cited)
        try:
            # Before the commit too, while the model can still react.
            Quota(self.services.config).check_new(unit, self._operation(target_space, Verb.ADD), admitted)
        except OverBudget as error:
            raise Refused("budget", str(error)) from error
        return StagedChange(change, target_space, admitted, None, cited, is_tainted=self.view.is_tainted)

    def _stage_update(
        self, change: Change, base: Entry, target_space: TargetSpace, cited: tuple[int, ...]
    ) -> StagedChange:
        self._check_unsaved(change)
        said = [self.view.messages[at].text for at in cited]
        # A rule replaces a value that it has found contradicted.
        lost = evidence.find_losses(change.text, base.text, said) if self.review.kind is not ReviewKind.RULES else ()
        if lost:
            raise Refused(
                "lossy", f"The new text loses {', '.join(lost[:5])} of the memory. Keep everything that still holds."
            )
        is_standing = is_privileged(base) or change.kind in STANDING_KINDS
        is_untyped = is_standing and not self._is_typed(change.text, target_space, cited)
        waits_for_person = self._is_inference(change, cited, (base.text,)) or self._is_above(base) or is_untyped
        target_space = replace(target_space, needs_approval=target_space.needs_approval or waits_for_person)
        draft = self._draft(change, base, target_space, cited)
        admitted = self._admit(change, draft, cited, base.trust)
        return StagedChange(change, target_space, admitted, base, cited, is_tainted=self.view.is_tainted)

    def _stage_delete(
        self, change: Change, base: Entry, target_space: TargetSpace, cited: tuple[int, ...]
    ) -> StagedChange:
        """Needs approval unless the cited messages mention what the memory says; of a standing memory, unless its
        speaker does."""
        # A rule found the contradiction, so the words need not match.
        text = "" if self.review.kind is ReviewKind.RULES else base.text
        said, needed = [self.view.messages[at].text for at in cited], evidence.SUPPORT_MIN
        if is_privileged(base):
            said, needed = self._typed(target_space, cited), evidence.SUPPORT_ENOUGH
        waits_for_person = evidence.measure_support(text, said).support < needed or self._is_above(base)
        target_space = replace(target_space, needs_approval=target_space.needs_approval or waits_for_person)
        trust = Origin.BACKGROUND_REVIEW.trust
        if self.view.is_tainted and not target_space.needs_approval:
            trust = Origin.TOOL.trust
        return StagedChange(change, target_space, None, base, cited, trust, self.view.is_tainted)

    def _is_above(self, base: Entry) -> bool:
        """Whether what was derived from a tainted view would change something that is trusted more, or that other
        projects recall too."""
        return self.view.is_tainted and (base.trust > Origin.TOOL.trust or base.project != self.review.project)

    def _typed(self, target_space: TargetSpace, cited: Sequence[int]) -> list[str]:
        """The cited messages that the speaker typed, or the user if nobody is named. Empty in a tainted view."""
        speakers = ("", "user") if target_space.speaker is None else (target_space.speaker,)
        found = [self.view.messages[at] for at in cited] if not self.view.is_tainted else []
        return [message.text for message in found if message.role == "user" and message.speaker in speakers]

    def _is_typed(self, text: str, target_space: TargetSpace, cited: Sequence[int]) -> bool:
        """Whether a typed sentence states it by itself. Rules read nothing else in a clean view."""
        if self.review.kind is ReviewKind.RULES:
            return not self.view.is_tainted
        sentences = (one for said in self._typed(target_space, cited) for one in split_sentences(said))
        return any(
            evidence.is_stated(text, one.text)
            and read_utterance(one.text).kind is UtteranceKind.STATEMENT
            and not (one.is_question or is_unsure(one.plain) or is_temporary(one.plain))
            for one in sentences
        )

    def _check_unsaved(self, change: Change) -> None:
        """Raises Refused for a change from a tainted view that the clean view has led to already."""
        earlier = [staged.change.text for staged in self.staged if not staged.is_tainted and staged.change.text]
        if self.view.is_tainted and any(evidence.is_repeated(change.text, text) for text in earlier):
            raise Refused("known", "This is saved already. Leave it.")

    def _is_inference(self, change: Change, cited: Sequence[int], also: Sequence[str]) -> bool:
        """Whether it is an inference that a person should approve. Raises Refused if the messages do not support it."""
        if is_prompt_text(change.text):
            raise Refused("prompt", "That is part of your instructions, not of the conversation.")
        if mentions_secret(change.text):
            raise Refused("secret", "Passwords, PINs and keys are never saved. Leave it.")
        said = [self.view.messages[at].text for at in cited]
        found = evidence.measure_support(change.text, [*said, *also])
        if missing := [*found.missing, *evidence.find_reversals(change.text, said)]:
            raise Refused(
                "invented", f"{', '.join(missing[:5])}: not in the messages that you cited. Use only what was said."
            )
        if not found.is_supported:
            raise Refused("unsupported", "The messages that you cited do not say this.")
        return found.is_inference

    def _draft(self, change: Change, base: Entry | None, target_space: TargetSpace, cited: Sequence[int]) -> Draft:
        review = self.review
        occurred_at = max(self.messages[at].occurred_at for at in cited)
        text = resolve_times(change.text.strip(), occurred_at)
        if base is None:
            assert change.target is not None
            # A report stays in its project.
            is_report = self.view.is_tainted and not target_space.needs_approval
            project = review.project if is_report or change.target is Target.ENVIRONMENT else None
            speaker = target_space.speaker
            draft = Draft(text, target=change.target, agent=review.agent, project=project, speaker=speaker)
        else:
            draft = Draft.successor(base, text)
        inherited = {name: value for name, value in draft.metadata.items() if name != QUOTES}
        named = {"kind": change.kind} if change.kind else {}
        quotes = {QUOTES: "user"} if change.is_quote else {}
        return replace(
            draft,
            origin=Origin.BACKGROUND_REVIEW,
            conversation=review.conversation or None,
            owner=None if target_space.space == review.space else review.space,
            turn=review.turn or None,
            occurred_at=occurred_at,
            metadata={**inherited, **named, **quotes, "review": review.id},
            proposed=target_space.needs_approval or waits(self.services.config, Origin.BACKGROUND_REVIEW),
        )

    def _admit(self, change: Change, draft: Draft, cited: Sequence[int], *also: int) -> Admitted:
        """`also` is the trust of further texts that its words come from. Dates in the draft are ours.

        A proposal has the trust of its origin: it counts only once a person has approved it.
        """
        try:
            trusts = [*(self.view.messages[at].trust for at in cited), *also]
            if self.view.is_tainted:
                trusts = [] if draft.proposed else [*trusts, Origin.TOOL.trust]
            admitted = self.services.gate.admit(draft, lineage=trusts)
        except InvalidInput as error:
            raise Refused("guard", str(error)) from error
        if change.is_quote and admitted.verdict is Verdict.REDACT:
            raise Refused("secret", "Passwords, PINs and keys are never saved. Leave it.")
        return admitted

    def _write(self, unit: Unit, staged: StagedChange, messages: Sequence[ReviewMessage]) -> Entry | None:
        """The new version; None if the space already says so."""
        sources = tuple(dict.fromkeys(source for at in staged.cited if (source := messages[at].source) is not None))
        self._check_sources(unit, sources)
        writer = self.services.statement_writer
        operation = self._operation(staged.target_space, _VERBS[staged.change.action])
        try:
            if staged.change.action is Action.ADD:
                assert staged.admitted is not None
                if (settled := self._settle_waiting(unit, staged, sources)) is not None:
                    return settled
                added = writer.add(unit, operation, _with_sources(staged.admitted, sources))
                return added.entry if added.operation is not None else None
            assert staged.base is not None
            version = staged.base.version
            if staged.admitted is None:
                return writer.delete(
                    unit,
                    operation,
                    staged.base.id,
                    trust=staged.trust,
                    expected_version=version,
                    asks=staged.target_space.needs_approval,
                )
            admitted = _with_sources(staged.admitted, sources, staged.base.sources)
            return writer.update(unit, operation, staged.base.id, admitted, expected_version=version)
        except (Conflict, NotFound) as error:
            raise Refused("changed", str(error)) from error
        except NotAllowed as error:
            raise Refused("not_allowed", str(error)) from error
        except OverBudget as error:
            raise Refused("budget", str(error)) from error

    def _settle_waiting(self, unit: Unit, staged: StagedChange, sources: tuple[str, ...]) -> Entry | None:
        """Settles the proposals that say the same as the user has said now. They need no approval any more.

        The user's words are stored, not those of the proposal. Returns the new version if one of them is a change of a
        memory that loses nothing by it: which memory a proposal would change may have been chosen by somebody else.
        """
        admitted, space = staged.admitted, staged.target_space.space
        if staged.is_tainted or admitted is None or admitted.draft.proposed:
            return None
        scope, changed = Scope(self.review.tenant, (space,)), None
        wanted = Filter(kind=Kind.STATEMENT, target=admitted.draft.target, statuses=(Status.PROPOSED,))
        origin = Origin.USER if staged.change.is_quote else Origin.BACKGROUND_REVIEW
        for waiting in unit.memories.page(scope, wanted, limit=WAITING_MAX):
            if waiting.project != admitted.draft.project or not is_restated(waiting, admitted.text, origin):
                continue
            operation = self._operation(staged.target_space, Verb.DELETE)
            unit.memories.delete(operation, waiting.id)
            current = unit.memories.get(scope, waiting.id)
            is_own = current.pinned or current.firm
            is_changed = changed is None and current.status is Status.ACTIVE and not is_own
            if is_changed and has_all_words(admitted.text, origin, current):
                operation = self._operation(staged.target_space, Verb.UPDATE)
                draft = _with_sources(admitted, sources)
                changed = self.services.statement_writer.update(
                    unit, operation, current.id, draft, expected_version=current.version
                )
        return changed

    def _check_sources(self, unit: Unit, sources: Sequence[str]) -> None:
        """What was forgotten meanwhile must not come back as a memory, nor what rests on deleted messages alone."""
        scope = Scope(self.review.tenant, self.review.changeable)
        try:
            records = [unit.memories.get(scope, source) for source in sources]
        except AfterturnError as error:
            raise Refused("forgotten", "The messages that support this were forgotten.") from error
        if records and all(record.status is not Status.ACTIVE for record in records):
            raise Refused("deleted", "The messages that support this were deleted.")

    def _operation(self, target_space: TargetSpace, verb: Verb) -> Operation:
        services, review = self.services, self.review
        return Operation(
            services.ids.new(),
            review.tenant,
            target_space.space,
            verb,
            Origin.BACKGROUND_REVIEW,
            services.clock.now(),
            review.id,
        )

    def _waits(self, staged: StagedChange) -> bool:
        if staged.admitted is not None:
            return staged.admitted.draft.proposed
        return staged.target_space.needs_approval or waits(self.services.config, Origin.BACKGROUND_REVIEW)


def _with_sources(admitted: Admitted, sources: tuple[str, ...], earlier: tuple[str, ...] = ()) -> Admitted:
    """With `earlier` ones if it has none. Then nobody can see later who typed it, so what would be standing waits."""
    draft = admitted.draft
    waiting = draft.proposed or (not sources and is_privileged(draft))
    return admitted._replace(draft=replace(draft, sources=sources or earlier, proposed=waiting))

"""The JSON of the API: what requests carry and what answers have. Times are Unix seconds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from afterturn.dialects.history import DIALECTS
from afterturn.types.conversations import Outcome, Phase, RecallCause, TurnStatus
from afterturn.types.entries import Kind, Origin, Scalar, Status, Target, Verb
from afterturn.types.rows import Decision, Purpose, ReviewKind, ReviewState
from afterturn.types.searches import Lane

WITHIN_MAX = 20.0
TEXT_CHARS_MAX = 100_000
MESSAGES_MAX = 20_000

# As `validation.check_space` has it.
SPACE_PATTERN = r"^[a-z][a-z0-9_-]{0,31}:\S(?:.*\S)?$"

Name = Annotated[str, Field(min_length=1, max_length=200)]
SpaceText = Annotated[str, Field(min_length=3, max_length=200, pattern=SPACE_PATTERN, examples=["user:ada"])]
Text = Annotated[str, Field(min_length=1, max_length=TEXT_CHARS_MAX)]
# Other types are refused, and not turned into these.
Flag = Annotated[bool, Field(strict=True)]
Time = Annotated[
    Annotated[float, Field(strict=True)] | Annotated[str, Field(max_length=64)],
    Field(description="Unix seconds, or an ISO 8601 text with a time zone.", examples=["2026-11-15T09:30:00Z"]),
]
Within = Annotated[
    Annotated[float, Field(strict=True, ge=0, le=WITHIN_MAX)] | None,
    Field(description="Wait for at most this many seconds instead of the default."),
]
Metadata = dict[str, Scalar]
# One message in the format of the client's model provider. It is not changed.
Messages = Annotated[
    list[dict[str, Any]],
    Field(
        max_length=MESSAGES_MAX,
        description="The messages as they are sent to the model, in any format of docs/dialects.md, the whole list.",
        examples=[[{"role": "user", "content": "What food is my cat allergic to?"}]],
    ),
]


class _Named(BaseModel):
    """A class for the JSON of one of the library's classes ends in `Json`. The OpenAPI document leaves that out."""

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        cls.__name__ = cls.__qualname__ = cls.__name__.removesuffix("Json")


class AnswerJson(_Named):
    """The base of answers, which are made from the library's values."""

    model_config = ConfigDict(from_attributes=True)


class Body(_Named):
    """The base of requests. An unknown field is an error, so that a typo does not pass."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class ErrorDetail(BaseModel):
    """`type` is for programs, `message` says what happened and what to do."""

    type: str = Field(examples=["NotFound"])
    message: str = Field(examples=["There is no conversation 'support-42' in user:ada, or it has no turn yet."])


class ErrorAnswer(BaseModel):
    """Every error has this form."""

    error: ErrorDetail


class ConversationWhere(Body):
    """A conversation, and what it may reach. Send the same with every verb of one turn.

    The defaults come from the token: its first space owns the conversation, reads and writes it.
    """

    id: Name | None = Field(
        default=None, description="Needed, unless the token is for one conversation.", examples=["support-42"]
    )
    owner: SpaceText | None = Field(default=None, description="The space that owns it.")
    reads: list[SpaceText] = Field(
        default=[], max_length=50, description="Further spaces that it reads.", examples=[["team:support"]]
    )
    writes: SpaceText | None = Field(default=None, description="The space that is written, by default the owner.")
    environment: SpaceText | None = Field(
        default=None, description="A space for what is learned about the environment."
    )
    agent: Name | None = Field(default=None, description="Labels what is recorded.")
    project: Name | None = Field(default=None, description="Labels what is recorded, and narrows what is recalled.")
    history: Literal["shown", "hidden", "reported"] = Field(
        default="shown", description="Whether `messages` is all that the model sees."
    )
    placement: Literal["append", "merge"] = Field(default="append", description="How a block is added.")
    dialect: Annotated[str, Field(json_schema_extra={"enum": [*DIALECTS]})] | None = Field(
        default=None, description="The message format, which is detected otherwise."
    )
    subagent: Flag = Field(default=False, description="Two agents talk: nothing is learned from it automatically.")
    trusted_only: Flag = Field(default=False, description="Blocks have no line with words of others.")
    incognito: Flag = Field(default=False, description="Nothing of its turns is recorded or learned.")
    standing: Literal["inject", "system", "off"] | None = Field(
        default=None, description="How the model gets the standing block."
    )


class EntryJson(AnswerJson):
    """One version of a statement or of a recorded message."""

    id: str
    version: int
    space: str
    text: str
    kind: Kind
    status: Status
    origin: Origin
    target: Target
    trust: int
    agent: str | None
    project: str | None
    conversation: str | None
    owner: str | None
    turn: str | None
    position: int | None
    speaker: str | None
    valid_from: float | None
    valid_to: float | None
    expires_at: float | None
    pinned: bool
    firm: bool
    metadata: dict[str, Any]
    sources: tuple[str, ...]
    recorded_at: float
    occurred_at: float
    reason: str


# ---------------------------------------------------------------- Turns


class TurnStart(Body):
    """Begins a turn with the latest user message of `messages`."""

    conversation: ConversationWhere
    messages: Messages
    turn: Name | None = Field(
        default=None, description="Your id of the turn. With it, the request may be repeated safely."
    )
    speaker: Name | None = Field(default=None, description="Who wrote the message.")
    incognito: Flag = Field(default=False, description="Nothing of this turn is recorded or learned.")


class TurnCall(Body):
    conversation: ConversationWhere


class TurnInject(TurnCall):
    messages: Messages
    within: Within = None
    phase: Literal["fast", "refined"] = "fast"


class TurnBlock(TurnCall):
    within: Within = None
    phase: Literal["fast", "refined"] = "fast"


class TurnText(TurnCall):
    text: Text


class ToolCallJson(TurnCall):
    name: Name = Field(examples=["bash"])
    arguments: Any = Field(default=None, description="Those of the call.", examples=[{"command": "npm install"}])


class TurnFinish(TurnCall):
    messages: Messages
    within: Within = None


class TurnAbort(TurnCall):
    reason: str = Field(default="aborted", max_length=1000)


class TurnWait(TurnCall):
    within: Within = None


class TurnState(AnswerJson):
    """A turn. `recorded`: its messages are durably stored. `reason` says why an ended turn was not recorded, if that is
    known yet."""

    turn: str
    status: TurnStatus
    recorded: bool
    reason: str = ""


class Inserted(AnswerJson):
    """One change of the message list. Apply them in order: put `element` at `index`, or with `replaces` replace the
    element there."""

    index: int
    element: dict[str, Any]
    replaces: bool = False


class Injected(AnswerJson):
    """What to change in the list that was sent: new blocks, blocks that were put back, and the standing block."""

    turn: str
    inserted: list[Inserted]


class BlockAnswer(AnswerJson):
    """The blocks of this turn as text; empty if there is none. Later answers begin with the same bytes."""

    turn: str
    text: str


class ToolRuleJson(AnswerJson):
    ref: str
    space: str
    text: str
    why: str
    firm: bool


class ToolAdviceJson(AnswerJson):
    """The rules of the user that concern the call. With a `refusal`, do not run the tool: give the model that text."""

    rules: list[ToolRuleJson]
    text: str
    refusal: str | None


# ---------------------------------------------------------------- Conversations


class StandingBody(Body):
    conversation: ConversationWhere = ConversationWhere()
    instructions: list[Text] = Field(
        default=[], max_length=50, description="Further texts for the block, such as from MCP."
    )
    refresh: Flag = Field(default=False, description="Make it again, though it is frozen for the conversation.")


class CompactedBody(Body):
    conversation: ConversationWhere = ConversationWhere()
    messages: Messages | None = Field(default=None, description="Those that are left, unless the history is hidden.")


class MessagesBody(Body):
    conversation: ConversationWhere = ConversationWhere()
    messages: Messages


class TextBody(Body):
    conversation: ConversationWhere = ConversationWhere()
    text: Text


class PlainBody(Body):
    conversation: ConversationWhere = ConversationWhere()


class ConversationToolCall(Body):
    conversation: ConversationWhere = ConversationWhere()
    name: Name = Field(examples=["bash"])
    arguments: Any = Field(default=None, examples=[{"command": "npm install"}])


class IncognitoBody(Body):
    conversation: ConversationWhere = ConversationWhere()
    on: Flag


class ReplayBody(Body):
    owner: SpaceText | None = None
    turn: Annotated[int, Field(strict=True, ge=1, le=2**31)] | Name = Field(
        default="last", description="An id, a number from 1 on, or last."
    )
    changes: Metadata = Field(
        default={}, max_length=50, description="Settings to try instead.", examples=[{"block_bytes_max": 2000}]
    )


class Done(AnswerJson):
    done: Literal[True] = True


class TextAnswer(AnswerJson):
    text: str


class IncognitoAnswer(AnswerJson):
    on: Flag


class ExplainedJson(AnswerJson):
    """One memory and what happened to it in one recall."""

    ref: str
    space: str
    lane: Lane
    why: Decision
    reason: str
    score: float | None
    lexical: float | None
    similarity: float | None
    score_kind: str | None
    terms: tuple[str, ...]
    by: str
    text: str


class TracedRecallJson(AnswerJson):
    correlation: str
    cause: RecallCause
    phase: Phase
    epoch: int
    question: str
    asked_at: float
    milliseconds: float | None
    outcome: Outcome
    reason: str
    fate: str
    reads: tuple[str, ...]
    missing: tuple[str, ...]
    block: str
    shown: list[ExplainedJson]
    left_out: list[ExplainedJson]


class TracedBlockJson(AnswerJson):
    """`text` is empty if something in it was forgotten, or if the token may not read all of its spaces."""

    hash: str
    point: str
    injected_at: float
    size_bytes: int
    tokens: int | None
    memories: int
    refs: tuple[str, ...]
    text: str
    in_sight: bool


class TracedRuleJson(AnswerJson):
    tool: str
    ref: str
    rule: str
    why: str
    refused: bool


class TracedTurnJson(AnswerJson):
    number: int
    id: str
    status: TurnStatus
    started_at: float
    ended_at: float | None
    recorded_at: float | None
    incognito: bool
    no_recall: str | None
    not_recorded: str
    blocks: list[TracedBlockJson]
    recalls: list[TracedRecallJson]
    rules: list[TracedRuleJson]


class TraceJson(AnswerJson):
    """The newest turns of a conversation, oldest first, out of `turns_total`."""

    space: str
    conversation: str
    turns_total: int
    turns: list[TracedTurnJson]


class WhyAnswer(AnswerJson):
    turn: int
    question: str
    asked_at: float
    phase: str
    explained: ExplainedJson


class WhyAnswers(AnswerJson):
    answers: list[WhyAnswer]


class ReplayedJson(AnswerJson):
    """One block, rendered again. `changed` is the block under the settings of `changes`."""

    hash: str
    point: str
    questions: tuple[str, ...]
    stored: str
    rendered: str
    identical: bool
    reason: str
    changed: str | None


class ReplayJson(AnswerJson):
    space: str
    conversation: str
    number: int
    turn: str
    identical: bool
    settings: dict[str, Any]
    changes: dict[str, Any]
    blocks: list[ReplayedJson]


# ---------------------------------------------------------------- Spaces


class SpaceSummaryJson(AnswerJson):
    name: str
    statements: int
    records: int
    newest_at: float | None


class SpacesJson(AnswerJson):
    spaces: list[SpaceSummaryJson]


class SearchHit(AnswerJson):
    """`lexical` and `similarity` are between 0 and 1. `answer` is the other message of a record's exchange."""

    entry: EntryJson
    lane: Lane
    score: float
    lexical: float
    similarity: float | None
    is_earlier: bool
    partner: EntryJson | None


class SearchAnswer(AnswerJson):
    """Best hits first. `missing` names what was not available: a lane, vectors or the store."""

    query: str
    hits: list[SearchHit]
    missing: tuple[str, ...]


class NewMemory(Body):
    """One statement. Only `text` is needed."""

    text: Text = Field(examples=["My cat Miso is allergic to chicken."])
    target: Target | None = None
    origin: Origin | None = Field(default=None, description="Who states it, by default the user. It decides the trust.")
    clean: Flag = Field(default=False, description="For an agent's statement: no text of others had entered its turn.")
    agent: Name | None = None
    project: Name | None = None
    speaker: Name | None = None
    conversation: Name | None = None
    owner: SpaceText | None = Field(
        default=None, description="The space that owns the conversation, if it is another one."
    )
    metadata: Metadata | None = None
    pinned: Flag = False
    firm: Flag = Field(default=False, description="A rule that refuses the tool calls that it concerns.")
    occurred_at: Time | None = None
    valid_from: Time | None = None
    valid_to: Time | None = None
    expires_at: Time | None = None
    sources: list[Name] = Field(default=[], max_length=1000)


class MemoryChangeJson(Body):
    text: Text
    expected_version: Annotated[int, Field(strict=True)] | None = Field(
        default=None, ge=1, le=2**63 - 1, description="409 if it is another one by now."
    )
    origin: Origin = Origin.USER
    clean: Flag = False


class AddedJson(AnswerJson):
    """`created` is false if the space already held the statement. `undo` takes `operation`."""

    entry: EntryJson
    created: bool
    operation: str | None


class ChangedJson(AnswerJson):
    """The entry as it is now. `undo` takes `operation`, which is empty if nothing changed."""

    entry: EntryJson
    operation: str


class MemoriesJson(AnswerJson):
    """`before` is what to pass for the next page; null after the last one."""

    memories: list[EntryJson]
    before: str | None


class OperationJson(AnswerJson):
    id: str
    space: str
    verb: Verb
    actor: Origin
    at: float
    group: str | None


class LoggedOperationJson(OperationJson):
    """`text` is that of the last entry that it changed, `entries` is how many it changed."""

    entry_id: str | None
    text: str
    entries: int


class OperationsJson(AnswerJson):
    operations: list[LoggedOperationJson]


class StepJson(AnswerJson):
    operation: OperationJson
    entry_id: str
    version: int
    before: Status | None
    after: Status


class HistoryJson(AnswerJson):
    versions: list[EntryJson]
    steps: list[StepJson]


class UndoBody(Body):
    target: Name = Field(description="The id of an operation, or of a group such as an import or a review.")


class UndoneJson(AnswerJson):
    operation: str
    steps: list[StepJson]


class UndoneAll(AnswerJson):
    undone: list[UndoneJson]


class ForgetBody(Body):
    """Exactly one of the first five. `sources`: with `memory`, also the messages that it was learned from."""

    memory: Name | None = None
    conversation: Name | None = None
    source: Name | None = None
    speaker: Name | None = None
    everything: Flag = False
    sources: Flag = False


class ForgetPreviewJson(AnswerJson):
    """What `forget` would erase: `matching` entries of any status, by kind and status, and the first of them.

    Statements that were learned only from them go too and are not counted. `sources` still say it, unless they are
    erased too.
    """

    matching: int
    kinds: dict[str, int]
    entries: list[EntryJson]
    sources: list[EntryJson]


class RemainingBytesJson(AnswerJson):
    where: str
    until: str
    retry: bool


class ForgottenJson(AnswerJson):
    """`state` is erased, or pending while another process still reads the bytes. `out_of_reach` names what may still
    hold the text."""

    state: str
    erased: int
    out_of_reach: tuple[str, ...]
    remaining: list[RemainingBytesJson]
    key_destroyed: bool
    sources: tuple[str, ...]


class ProfileSubjectJson(AnswerJson):
    name: str
    entries: list[EntryJson]


class ProfileJson(AnswerJson):
    space: str
    subjects: list[ProfileSubjectJson]


class HideBody(Body):
    hidden: Flag = Field(description="Whether the memory is left out of the standing context.")


class FirmBody(Body):
    firm: Flag = Field(description="Whether it refuses the tool calls that it concerns.")


class StandingLineJson(AnswerJson):
    part: str
    text: str
    author: str
    at: float | None
    through: tuple[str, ...]
    entry: EntryJson | None
    kind: str
    chance: float | None
    left_out: str


class StandingAudit(AnswerJson):
    lines: list[StandingLineJson]


class ConversationsJson(AnswerJson):
    conversations: list[str]


class UsageRowJson(AnswerJson):
    space: str
    day: str
    purpose: Purpose
    calls: int
    tokens_in: int
    tokens_out: int
    estimated: int


class UsageJson(AnswerJson):
    usage: list[UsageRowJson]


class SpaceStatsJson(AnswerJson):
    space: str
    entries: dict[str, int]
    searchable: int
    changes: int


class Stats(AnswerJson):
    """What is stored for the tenant, and what waits to be done."""

    tenant: str
    spaces: int
    entries: dict[str, int]
    jobs: dict[str, int]
    recordings_waiting: int
    vectors: bool
    vectors_waiting: int | None
    embedder: str


# ---------------------------------------------------------------- Inbox and reviews


class ProposalJson(AnswerJson):
    """`base` is the version that the proposal was made for, `current` the active one. `obstacle` says why it cannot be
    approved now."""

    entry: EntryJson
    base: EntryJson | None
    current: EntryJson | None
    obstacle: str


class ProposalsJson(AnswerJson):
    proposals: list[EntryJson]
    before: str | None


class ProposalEdit(Body):
    text: Text = Field(description="Approve the proposal with this text.")


class DecisionBody(Body):
    ids: list[Name] = Field(min_length=1, max_length=1000)


class DecidedJson(AnswerJson):
    """`undo` takes `group`. `skipped` says, by id, why a proposal could not be decided."""

    group: str | None
    changed: list[ChangedJson]
    skipped: dict[str, str]


class ReviewRowJson(AnswerJson):
    id: str
    kind: ReviewKind
    space: str
    writes: str
    conversation: str
    turn: str
    state: ReviewState
    created_at: float
    ended_at: float | None
    written: int
    proposed: int
    refusals: tuple[str, ...]
    notes: tuple[str, ...]
    calls: int
    tokens: int
    reason: str


class ReviewsJson(AnswerJson):
    reviews: list[ReviewRowJson]
    before: str | None


class ReviewedChangeJson(AnswerJson):
    verb: Verb
    space: str
    operation: str
    before: EntryJson | None
    after: EntryJson | None
    state: str


class ReviewJson(AnswerJson):
    row: ReviewRowJson
    changes: list[ReviewedChangeJson]


class ReviewRun(Body):
    conversation: Name
    writes: SpaceText | None = Field(
        default=None, description="The space that it is recorded in, if it is another one."
    )
    rules: Flag = Field(default=False, description="By rules instead of a model.")
    everything: Flag = Field(default=False, description="Also messages that were reviewed before.")


class ReviewRan(AnswerJson):
    """`review` is null if there was nothing new to review."""

    review: ReviewJson | None

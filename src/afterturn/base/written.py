"""Values of writing and looking after memories, beside those that are read; `base.types` gives them all."""

from dataclasses import dataclass, field
from enum import StrEnum

from afterturn.base.types import Entry, Hit, Kind, Metadata, Origin, Status, Target, Verdict


class Verb(StrEnum):
    """What an operation did; `undo` is an operation too, so it can be undone."""

    ADD = "add"
    UPDATE = "update"
    PROMOTE = "promote"
    APPROVE = "approve"
    DELETE = "delete"
    RECORD = "record"
    IMPORT = "import"
    UNDO = "undo"


@dataclass(frozen=True, slots=True)
class Draft:
    """What somebody asks to have stored, before the guard has seen it.

    `owner` is the space whose conversation it was said in; None is the space that it is stored in. `proposed`: a
    statement that waits for approval, and is not recalled before.
    """

    text: str
    kind: Kind = Kind.STATEMENT
    origin: Origin = Origin.USER
    target: Target = Target.USER
    agent: str | None = None
    project: str | None = None
    conversation: str | None = None
    owner: str | None = None
    turn: str | None = None
    position: int | None = None
    speaker: str | None = None
    occurred_at: float | None = None
    valid_from: float | None = None
    valid_to: float | None = None
    expires_at: float | None = None
    pinned: bool = False
    metadata: Metadata = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    id: str | None = None
    proposed: bool = False


@dataclass(frozen=True, slots=True)
class Admitted:
    """A draft that passed the guard. Only `guard.gate` makes one, and a store writes nothing else (G1).

    `terms` is the text as the lexical index sees it, in order, repeats included.
    """

    draft: Draft
    id: str
    text: str
    content_hash: str
    terms: tuple[str, ...]
    trust: int
    recorded_at: float
    verdict: Verdict = Verdict.ALLOW
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Added:
    """`created` is False when the space already held the statement (G6); `operation` is what undo takes."""

    entry: Entry
    created: bool
    operation: str | None


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """Vectors of two identities never meet in one comparison (M3)."""

    name: str
    version: str
    dimensions: int
    normalised: bool = True


@dataclass(frozen=True, slots=True)
class Operation:
    """One undoable step in one space, at one time. Steps that belong together share a `group`."""

    id: str
    tenant: str
    space: str
    verb: Verb
    actor: Origin
    at: float
    group: str | None = None


@dataclass(frozen=True, slots=True)
class LoggedOperation(Operation):
    """An operation with a memory that it changed: the last one, as it left it. `entries` is how many it changed."""

    entry_id: str | None = None
    text: str = ""
    entries: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What one operation did to one version."""

    operation: Operation
    entry_id: str
    version: int
    before: Status | None
    after: Status


@dataclass(frozen=True, slots=True)
class Selector:
    """What to forget; exactly one is set. `everything` is the whole space.

    `memories` are several at once: forgetting looks through the space's jobs and timeline, and once is enough.
    """

    memory: str | None = None
    conversation: str | None = None
    source: str | None = None
    speaker: str | None = None
    everything: bool = False
    memories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpaceSummary:
    """A space at a glance. Counts are of active entries; `newest_at` is their newest `occurred_at`."""

    name: str
    statements: int
    records: int
    newest_at: float | None


@dataclass(frozen=True, slots=True)
class Erased:
    """What a store's `forget` removed: entry ids with every version of them, and in which `spaces` they were."""

    ids: tuple[str, ...]
    versions: int
    spaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Forgotten:
    """`pending`: the rows are gone from every query, but a reader still holds old bytes; a job finishes it.

    `out_of_reach` names what may still hold the text: backups, a recording provider of the host's.
    """

    state: str
    erased: int
    out_of_reach: tuple[str, ...] = ()


class JobKind(StrEnum):
    """What is done behind a write. A store takes other kinds too."""

    EMBED = "embed"
    SCRUB = "scrub"
    REVIEW = "review"
    RULES = "rules"
    CONSOLIDATE = "consolidate"


class JobState(StrEnum):
    READY = "ready"
    LEASED = "leased"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Job:
    """Work that follows a write, committed with it. `payload` is JSON text and holds ids, never memory text."""

    id: str
    kind: str
    tenant: str
    space: str
    payload: str
    run_at: float
    attempts: int = 0
    state: JobState = JobState.READY
    error: str = ""


def new_job(kind: JobKind, job_id: str, tenant: str, space: str, at: float) -> Job:
    """For the whole space, so that those which wait coalesce; due at `at`."""
    return Job(job_id, kind, tenant, space, "{}", at)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that memory did. `data` holds ids, counts and reasons, never memory text."""

    name: str
    at: float
    tenant: str = ""
    space: str = ""
    conversation: str = ""
    turn: str = ""
    data: Metadata = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `doctor`: `level` is ok, warning or error; `remedy` says what to do."""

    level: str
    subject: str
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Changed:
    """An update or a delete: the entry as it is now, and what `undo` takes."""

    entry: Entry
    operation: str


@dataclass(frozen=True, slots=True)
class Undone:
    """What `undo` did: an operation too, and its steps."""

    operation: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class History:
    """Every version of one entry, oldest first, and every step that was taken on them."""

    versions: tuple[Entry, ...]
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A hit that was chosen for a block; `text` is what is shown of it, and where it was cut it says "…"."""

    hit: Hit
    text: str

"""Entries: what they are, who wrote them, what was done to them, and the scopes they are found in."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self, TypeAlias

from afterturn.errors import InvalidName

if TYPE_CHECKING:
    from afterturn.recall.features import EntryFeatures


Scalar: TypeAlias = str | int | float | bool | None
Metadata: TypeAlias = Mapping[str, Scalar]
SOURCES_MAX = 1000


class Kind(StrEnum):
    """The kind of an entry: a statement is one fact, a record is one message of a recorded turn."""

    STATEMENT = "statement"
    RECORD = "record"


class Status(StrEnum):
    """The state of one version of an entry. Only `active` versions are recalled.

    `proposed` waits for approval; next to an active version with the same id it is a proposed change. `withdrawal` is a
    proposal to delete. `quarantined` is an untrusted text that contained a secret; models never see it.
    """

    ACTIVE = "active"
    SUPERSEDED = "superseded"
    DELETED = "deleted"
    PROPOSED = "proposed"
    WITHDRAWAL = "withdrawal"
    EXPIRED = "expired"
    UNDONE = "undone"
    QUARANTINED = "quarantined"


class Target(StrEnum):
    """The subject of a statement: the user, or the environment, that is projects, tools and systems."""

    USER = "user"
    ENVIRONMENT = "environment"


class Origin(StrEnum):
    """Who wrote an entry. The caller sets it; it is never read from text. `trust`: how far it is trusted."""

    _value_: str
    trust: int

    USER = "user", 100
    AGENT = "agent", 80
    BACKGROUND_REVIEW = "background_review", 60
    SUBAGENT = "subagent", 40
    TOOL = "tool", 40
    WEB = "web", 40
    IMPORT = "import", 20

    def __new__(cls, name: str, trust: int = 0) -> Self:  # `Origin("user")` names no trust
        origin = str.__new__(cls, name)
        origin._value_, origin.trust = name, trust
        return origin


class Verb(StrEnum):
    """The verb of an operation. `undo` is an operation too, so it can be undone."""

    ADD = "add"
    UPDATE = "update"
    PROMOTE = "promote"
    APPROVE = "approve"
    DELETE = "delete"
    HIDE = "hide"
    RECORD = "record"
    IMPORT = "import"
    UNDO = "undo"


class Verdict(StrEnum):
    ALLOW = "allow"
    FLAG = "flag"
    REDACT = "redact"
    QUARANTINE = "quarantine"


# The trust from which somebody's words are shown as they are; below it they are quoted, as a report.
TRUSTED_MIN = Origin.BACKGROUND_REVIEW.trust
# The key of metadata that marks a message which the user has pasted into.
PASTED = "pasted"
# The key of metadata that says whose words a learned statement is in.
QUOTES = "quotes"


@dataclass(frozen=True, slots=True)
class Scope:
    """The spaces that a query may see, within one tenant. There is at least one."""

    tenant: str
    spaces: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.spaces:
            raise InvalidName('No space was named. Name at least one, such as "user:ada".')


class Tenant(NamedTuple):
    """All spaces of a tenant, also those that are made later."""

    name: str


class ConversationKey(NamedTuple):
    """Identifies a conversation. `space` is its owner's: the same id under another owner is another one."""

    tenant: str
    space: str
    id: str

    @property
    def scope(self) -> Scope:
        return Scope(self.tenant, (self.space,))


class _HasFeatures:
    """A slot that is not a field: what recall computes from an entry is neither compared, copied nor exported."""

    __slots__ = ("features",)
    features: EntryFeatures


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class EntryFields(_HasFeatures):
    """The fields that a draft and a stored entry share.

    `owner` is the space that owns the conversation it was said in, None if that is the space it is stored in. `sources`
    are the ids of the entries that a statement was learned from. A `firm` statement is a rule that refuses tool calls.
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
    valid_from: float | None = None
    valid_to: float | None = None
    expires_at: float | None = None
    pinned: bool = False
    firm: bool = False
    metadata: Metadata = field(default_factory=dict, hash=False)
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(EntryFields):
    """One stored version of a statement or of a recorded message. Times are Unix seconds.

    `reason` says why a quarantined version was quarantined.
    """

    id: str
    version: int
    space: str
    status: Status
    trust: int
    content_hash: str
    recorded_at: float
    occurred_at: float
    reason: str = ""

    @property
    def ref(self) -> str:
        """Names this version: the id alone for version 1, `id.2` for version 2."""
        return self.id if self.version == 1 else f"{self.id}.{self.version}"

    @property
    def is_quote(self) -> bool:
        """Whether a review took it from the user's message word for word, so that "I" is the user."""
        return self.origin is Origin.BACKGROUND_REVIEW and self.metadata.get(QUOTES) == "user"

    @property
    def is_report(self) -> bool:
        """Whether it has words of others in it: it is not trusted, or it is a message that the user has pasted into."""
        return self.trust < TRUSTED_MIN or (self.kind is Kind.RECORD and self.metadata.get(PASTED) is True)

    def is_from_elsewhere(self, projects: Collection[str] | None) -> bool:
        """Whether it belongs to a project, and to none of these. None means all projects."""
        return self.project is not None and projects is not None and self.project not in projects

    def holds(self, at: float) -> bool:
        """Whether it may be recalled at that time."""
        return self.status is Status.ACTIVE and self.is_valid(at)

    def is_valid(self, at: float) -> bool:
        """Whether that time is within its validity and before its expiry, whatever its status is now."""
        return (
            (self.expires_at is None or self.expires_at > at)
            and (self.valid_from is None or self.valid_from <= at)
            and (self.valid_to is None or self.valid_to > at)
        )


def reference(entry_id: str, version: int) -> str:
    return entry_id if version == 1 else f"{entry_id}.{version}"


class ReadMetadata(dict[str, Any]):
    """The metadata of an entry that was read from a store. It is shared, so it cannot be changed.

    A copy, also a deep or a pickled one, is a plain dictionary.
    """

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("The metadata of a stored entry cannot be changed. Change a copy: dict(entry.metadata).")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[type[dict[str, Any]], tuple[dict[str, Any]]]:
        return dict, (dict(self),)

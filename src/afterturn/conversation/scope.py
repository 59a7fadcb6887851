"""The scope of a conversation: whose it is, which spaces it may read and which one it writes."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Literal, NamedTuple, TypedDict, TypeVar

from afterturn.errors import InvalidInput, InvalidName
from afterturn.guard.scanning import scanner
from afterturn.scanners.detection import Scanning
from afterturn.scanners.secrets import redact
from afterturn.types import ConversationKey, Scope, Target
from afterturn.validation import check_name, check_no_secret, check_space, mend_name

E = TypeVar("E", bound=StrEnum)
PRIVATE_PREFIX = "private:"


class Visibility(StrEnum):
    """Whether the host shows us the messages that its model sees, and if not, whether it reports every compaction."""

    SHOWN = "shown"
    HIDDEN = "hidden"
    REPORTED = "reported"


class Placement(StrEnum):
    """How a block is added: as an element of its own, or merged into a copy of the last user element."""

    APPEND = "append"
    MERGE = "merge"


class StandingDelivery(StrEnum):
    """How a host gets the standing block: `inject` and `block` bring it, the host asks for it, or not at all."""

    INJECT = "inject"
    SYSTEM = "system"
    OFF = "off"


class ConversationScope(NamedTuple):
    """A conversation's key is tenant, owner and id; the rest is what the host granted and set this time."""

    id: str
    tenant: str
    owner: str
    reads: tuple[str, ...]
    writes: str
    agent: str | None = None
    project: str | None = None
    history: Visibility = Visibility.SHOWN
    placement: Placement = Placement.APPEND
    dialect: str | None = None
    subagent: bool = False
    environment: str = ""
    trusted_only: bool = False
    incognito: bool = False
    standing: StandingDelivery | None = None

    @property
    def is_hidden(self) -> bool:
        return self.history is not Visibility.SHOWN

    @property
    def key(self) -> ConversationKey:
        return ConversationKey(self.tenant, self.owner, self.id)

    def space_for(self, target: Target) -> str:
        """The space for what is learned about `target`."""
        return self.environment if target is Target.ENVIRONMENT and self.environment else self.writes

    def projects(self, scanning: Scanning) -> tuple[str, ...]:
        """Its own project and those whose spaces it reads, for example after a merge."""
        names = (space.removeprefix("project:") for space in self.reads if space.startswith("project:"))
        read = (clean_name(name, "project", scanning=scanning) for name in names)
        return tuple(dict.fromkeys(name for name in (self.project, *read) if name))

    @property
    def readable(self) -> Scope:
        """The spaces that it may read, as a store takes them."""
        return Scope(self.tenant, self.reads)


class ConversationOptions(TypedDict, total=False):
    """The options of `memory.conversation(...)`. `user="ada"` is short for `owner="user:ada"`.

    A conversation reads its owner's space and `reads`, and writes one space, by default its owner's. `environment` is
    another space for what is learned about the environment, for example a project's; it is read too. Pass
    `history="hidden"` if the list given to `turn` is not everything that the model sees: memory then remembers what it
    handed over, until you call `compacted()`, and repeats it if nothing else is relevant. `history="reported"` is the
    same without repetition, for hosts that report every compaction. `dialect` names the message format, which is
    detected otherwise. `subagent=True` marks a conversation with another agent: its messages are recorded as a
    sub-agent's, and nothing is learned from them automatically. `trusted_only=True` is for hosts that can put a block
    only into a system or developer message: it then has no line with words of others. `incognito=True`: nothing
    of its turns is recorded or learned. `standing` says how the model gets the standing block: "inject" brings it with
    the first block of the conversation, "system" is for hosts that put `standing().block()` into their system prompt,
    "off" leaves it out. If you omit it, hosts that have called `standing().block()` are "system", and others "inject".
    """

    user: str | None
    owner: str | None
    reads: Sequence[str]
    writes: str | None
    environment: str | None
    agent: str | None
    project: str | None
    history: Literal["shown", "hidden", "reported"]
    placement: Literal["append", "merge"]
    dialect: str | None
    subagent: bool
    trusted_only: bool
    incognito: bool
    standing: Literal["inject", "system", "off"]


def make_scope(
    tenant: str, conversation: str, where: ConversationOptions, *, scanning: Scanning = True
) -> ConversationScope:
    """Raises InvalidInput unless exactly one owner is named.

    A secret in the name of an agent or a project is taken out here, so that the name is the same everywhere.
    """
    unknown = set(where) - set(ConversationOptions.__annotations__)
    if unknown:
        raise TypeError(
            f"conversation() has no {', '.join(sorted(unknown))}. "
            f"It takes {', '.join(ConversationOptions.__annotations__)}."
        )
    home = _owner(where.get("user"), where.get("owner"))
    writes, agent, project = where.get("writes"), where.get("agent"), where.get("project")
    dialect, environment, standing = where.get("dialect"), where.get("environment"), where.get("standing")
    if dialect is not None:
        # Loaded here: a hook that answers alone reads no messages of a host.
        from afterturn.dialects.history import get_dialect

        dialect = get_dialect(dialect).name
    for name, what in ((conversation, "conversation"), (home, "owner"), (writes, "space"), (environment, "space")):
        if isinstance(name, str):
            check_no_secret(name, what, scanning=scanning)
    return ConversationScope(
        id=check_name(conversation, "conversation"),
        tenant=tenant,
        owner=home,
        reads=_reads(home, where.get("reads", ()), environment),
        writes=home if writes is None else check_space(writes),
        agent=clean_name(agent, "agent", scanning=scanning),
        project=clean_name(project, "project", scanning=scanning),
        history=_one_of(Visibility, where.get("history", "shown"), "history"),
        placement=_one_of(Placement, where.get("placement", "append"), "placement"),
        dialect=dialect,
        subagent=bool(where.get("subagent", False)),
        environment="" if environment is None else check_space(environment),
        trusted_only=bool(where.get("trusted_only", False)),
        incognito=bool(where.get("incognito", False)),
        standing=None if standing is None else _one_of(StandingDelivery, standing, "standing"),
    )


def clean_name(name: str | None, what: str, *, scanning: Scanning) -> str | None:
    """The name of an agent or a project as it is stored, without a secret."""
    if name is None:
        return None
    return mend_name(redact(check_name(name, what), scanner(scanning=scanning)).text)


def _one_of(choices: type[E], value: str, what: str) -> E:
    try:
        return choices(value)
    except ValueError:
        known = " or ".join(f'"{choice}"' for choice in choices)
        raise InvalidInput(f"{what}={value!r} is not a valid value. Pass {known}.") from None


def _owner(user: str | None, owner: str | None) -> str:
    if (user is None) == (owner is None):
        raise InvalidInput('Pass either user="ada" or owner="project:api", and not both.')
    if user is not None and str(user).startswith("user:"):
        raise InvalidInput(f'user={user!r} names a space. Pass user="{user[5:]}", or owner={user!r}.')
    return check_space(owner if user is None else f"user:{check_name(user, 'user')}")


def _reads(home: str, others: Sequence[str], environment: str | None) -> tuple[str, ...]:
    if isinstance(others, str):
        raise InvalidInput(f"`reads` is a list of spaces, not text. Pass [{others!r}].")
    granted = others if environment is None else (*others, environment)
    return tuple(dict.fromkeys((home, *(check_space(space) for space in granted))))


def is_private(text: str) -> bool:
    """Whether the user asks for incognito, by the words at the beginning of a message. The case does not matter."""
    return text.lstrip()[: len(PRIVATE_PREFIX)].casefold() == PRIVATE_PREFIX


def find_usable_name(name: object, what: str, *, scanning: Scanning) -> str | None:
    """A host's name for something, or None if it cannot be stored: the turn continues without it.

    `scanning` refuses secrets in an id; a speaker's name is redacted later.
    """
    if name is None:
        return None
    try:
        return check_no_secret(check_name(name, what), what, scanning=scanning)
    except InvalidName as error:
        from afterturn.log import logger  # here: `logging` takes 3 ms, and a hook seldom logs

        logger.warning("%s The turn continues without it.", error)
        return None

"""The rights of a connection: the spaces that it reads and those that it writes. No call can change them."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from afterturn.config import Config
from afterturn.errors import InvalidInput
from afterturn.hosts.projects import PROJECT, current_user_space, find_project
from afterturn.types import Target
from afterturn.validation import check_name, check_no_secret, check_space

# What a token may be allowed: turns and standing context; reading memories; changing them; reviews and the inbox;
# erasing; traces, events and the pages.
SCOPES = ("turns", "read", "write", "review", "forget", "inspect")
_CHANGING = frozenset({"turns", "write", "review", "forget"})


@dataclass(frozen=True, slots=True)
class Grant:
    """`reads` are the readable spaces, the owner's first. `writes` is None if the connection may only read.

    A space may be a pattern with a star at its end, such as "user:*" or "*", for clients that serve many users. MCP
    needs a first space without one. Statements about the environment are written to `environment` if it is set, such
    as the space of a project. `conversation` is the only one that the connection may speak of. `agent` names the
    client. `scopes` are those of SCOPES that HTTP requests are allowed.
    """

    tenant: str
    reads: tuple[str, ...]
    writes: str | None
    environment: str | None = None
    conversation: str | None = None
    agent: str | None = None
    scopes: frozenset[str] = frozenset(SCOPES)

    @property
    def owner(self) -> str:
        """The space that owns the conversations of this connection."""
        return self.reads[0]

    @property
    def writable(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(space for space in (self.writes, self.environment) if space is not None))

    @property
    def project(self) -> str | None:
        """The project that the connection works in."""
        return next(iter(self.projects), None)

    @property
    def projects(self) -> tuple[str, ...]:
        """The project that the connection works in, and those that were merged into it."""
        return tuple(space.removeprefix(PROJECT) for space in self.reads if space.startswith(PROJECT))

    def may_read(self, space: str) -> bool:
        return _matches(space, self.reads)

    def may_write(self, space: str) -> bool:
        return _matches(space, self.writable)

    def allows(self, scope: str) -> bool:
        """Whether the connection has this scope, one of SCOPES. One that only reads has none that changes anything."""
        return scope in self.scopes and (self.writes is not None or scope not in _CHANGING)

    def space_for(self, target: Target) -> str | None:
        """The space for a new statement; None if the connection may only read."""
        if self.writes is None or target is Target.USER:
            return self.writes
        return self.environment or self.writes


def _matches(space: str, patterns: Collection[str]) -> bool:
    return any(space.startswith(pattern[:-1]) if pattern.endswith("*") else space == pattern for pattern in patterns)


def make_grant(
    config: Config,
    *,
    space: str,
    reads: Sequence[str] = (),
    read_only: bool = False,
    conversation: str | None = None,
    agent: str | None = None,
    scopes: Collection[str] = SCOPES,
) -> Grant:
    """One space, which is written unless `read_only`, and others that are only read. Both may be patterns.

    Raises InvalidName, or InvalidInput for an unknown scope.
    """
    names = tuple(dict.fromkeys(name if _is_pattern(name) else check_space(name) for name in (space, *reads)))
    if unknown := sorted(set(scopes) - set(SCOPES)):
        raise InvalidInput(f"{unknown[0]!r} is not a scope. Use one of {', '.join(SCOPES)}.")
    tenant = check_name(config.tenant, "tenant")
    given = [(name, "space") for name in names] + [(tenant, "tenant")]
    given += [(check_name(conversation, "conversation"), "conversation")] if conversation is not None else []
    given += [(check_name(agent, "agent"), "agent")] if agent is not None else []
    for name, what in given:
        check_no_secret(name, what, scanning=config.scan_policy)
    writes = None if read_only else names[0]
    return Grant(tenant, names, writes, conversation=conversation, agent=agent, scopes=frozenset(scopes))


def _is_pattern(name: str) -> bool:
    """Raises InvalidName for a star elsewhere than at the end."""
    kind, colon, rest = name.partition(":")
    return name == "*" or (bool(colon) and rest == "*" and check_space(f"{kind}:x") != "")


def local_grant(
    config: Config,
    *,
    space: str | None = None,
    reads: Sequence[str] = (),
    read_only: bool = False,
    folder: str | os.PathLike[str] | None = None,
    agent: str | None = None,
) -> Grant:
    """The grant of a client that the user starts in `folder`: their own space and that of the folder's project.

    With `space`, that one instead. Raises InvalidInput if the folder is gone.
    """
    if space is not None:
        return make_grant(config, space=space, reads=reads, read_only=read_only, agent=agent)
    try:
        project = find_project(os.getcwd() if folder is None else folder)
    except OSError as error:
        raise InvalidInput(f"The current folder cannot be read ({error.strerror}). Start it in another one.") from error
    others = (project.space, *project.merged, *reads)
    grant = make_grant(config, space=current_user_space(config), reads=others, read_only=read_only, agent=agent)
    return replace(grant, environment=None if read_only else project.space)

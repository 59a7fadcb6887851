"""The rights of a connection: the spaces that it reads and those that it writes. No call can change them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from afterturn.config import Config
from afterturn.errors import InvalidInput
from afterturn.hosts.projects import PROJECT, current_user_space, find_project
from afterturn.types import Target
from afterturn.validation import check_name, check_no_secret, check_space


@dataclass(frozen=True, slots=True)
class Grant:
    """`reads` are the readable spaces, the owner's first. `writes` is None if the connection may only read.

    Statements about the environment are written to `environment` if it is set, such as the space of a project.
    `conversation` is the only one that the connection may speak of. `agent` names the client.
    """

    tenant: str
    reads: tuple[str, ...]
    writes: str | None
    environment: str | None = None
    conversation: str | None = None
    agent: str | None = None

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

    def space_for(self, target: Target) -> str | None:
        """The space for a new statement; None if the connection may only read."""
        if self.writes is None or target is Target.USER:
            return self.writes
        return self.environment or self.writes


def make_grant(
    config: Config,
    *,
    space: str,
    reads: Sequence[str] = (),
    read_only: bool = False,
    conversation: str | None = None,
    agent: str | None = None,
) -> Grant:
    """One space, which is written unless `read_only`, and others that are only read. Raises InvalidName."""
    names = tuple(dict.fromkeys(check_space(name) for name in (space, *reads)))
    tenant = check_name(config.tenant, "tenant")
    given = [(name, "space") for name in names] + [(tenant, "tenant")]
    given += [(check_name(conversation, "conversation"), "conversation")] if conversation is not None else []
    given += [(check_name(agent, "agent"), "agent")] if agent is not None else []
    for name, what in given:
        check_no_secret(name, what, scanning=config.scan_policy)
    return Grant(tenant, names, None if read_only else names[0], conversation=conversation, agent=agent)


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

"""`token`: the bearer tokens of clients that use a server of memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import click

from afterturn.errors import InvalidInput
from afterturn.hosts.cli.command import Invocation, command, commands, group
from afterturn.hosts.cli.output import age, note, one_line, print_table
from afterturn.hosts.projects import current_user_space
from afterturn.hosts.server.grant import make_grant
from afterturn.hosts.server.tokens import Token, create_token, list_tokens, revoke_token
from afterturn.runtime.clock import SystemClock

_DAY = 86_400.0


@group("token", commands(__name__, create="create", list="list_all", revoke="revoke"))
def token() -> None:
    """Manage the tokens of clients that use `afterturn mcp --http`."""


@command("create")
@click.option("--name", metavar="NAME", default="client", show_default=True, help="What you call it; labels writes.")
@click.option("--reads", metavar="SPACE", multiple=True, help="A further space that it may read.")
@click.option("--read-only", is_flag=True, help="It may not write.")
@click.option("--conversation", metavar="ID", help="The only conversation that it may speak of.")
@click.option("--days", type=click.FloatRange(min=0, min_open=True), help="Expires after this many days.")
def create(
    invocation: Invocation,
    *,
    name: str,
    reads: Sequence[str],
    read_only: bool,
    conversation: str | None,
    days: float | None,
) -> None:
    """Create a token and print it, once.

    It reads and writes one space: yours, or --space. Only its hash is stored.
    """
    config = invocation.config()
    grant = make_grant(
        config,
        space=invocation.space or current_user_space(config),
        reads=reads,
        read_only=read_only,
        conversation=conversation,
        agent=name,
    )
    if any(known.name == name for known in list_tokens()) and name != "client":
        raise InvalidInput(f"There is a token {name!r} already. Choose another name, or revoke it first.")
    expires_at = None if days is None else SystemClock().now() + days * _DAY
    created, text = create_token(grant, name=name, expires_at=expires_at)
    if invocation.print_json({**_shown(created), "token": text}):
        return
    click.echo(text)
    spaces = ", ".join(grant.reads) + ("" if grant.writes else ", read only")
    note(f"Token {created.id} for {spaces}. It is not shown again.")


@command("list")
def list_all(invocation: Invocation) -> None:
    """List the tokens: what they may do, and until when."""
    tokens = list_tokens()
    empty = "There are no tokens. `afterturn token create` makes one."
    if invocation.print_rows([_shown(one) for one in tokens], empty=empty):
        return
    print_table(
        ("ID", "NAME", "TENANT", "READS", "WRITES", "CREATED", "EXPIRES"),
        [
            (
                one.id,
                one_line(one.name),
                one_line(one.grant.tenant),
                one_line(", ".join(one.grant.reads)),
                one_line(one.grant.writes or ""),
                age(one.created_at),
                _expiry(one),
            )
            for one in tokens
        ],
    )


@command("revoke")
@click.argument("token")
def revoke(invocation: Invocation, token: str) -> None:
    """Revoke a token, by its id or name. Running servers refuse it at once."""
    revoked = revoke_token(token)
    invocation.answer(_shown(revoked), f"Revoked {revoked.id} ({one_line(revoked.name)}).")


def _expiry(one: Token) -> str:
    if one.expires_at is None:
        return "never"
    if not one.is_valid(SystemClock().now()):
        return "expired"
    return datetime.fromtimestamp(one.expires_at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _shown(one: Token) -> dict[str, object]:
    return {
        "id": one.id,
        "name": one.name,
        "tenant": one.grant.tenant,
        "reads": list(one.grant.reads),
        "writes": one.grant.writes,
        "conversation": one.grant.conversation,
        "created_at": one.created_at,
        "expires_at": one.expires_at,
    }

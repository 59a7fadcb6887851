"""`mcp` and `token`: memory as a server for MCP clients, and the bearer tokens of those that use it over HTTP."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeAlias

import click

from afterturn.config import Config, StoreUrl
from afterturn.errors import AfterturnError, ExtraMissing, InvalidInput
from afterturn.hosts.cli.command import Invocation, command, commands, group
from afterturn.hosts.cli.output import age, local, note, one_line, print_table
from afterturn.hosts.cli.process import show_warnings
from afterturn.hosts.projects import current_user_space
from afterturn.hosts.server.grant import SCOPES, Grant, local_grant, make_grant
from afterturn.hosts.server.tokens import Token, as_row, create_token, list_tokens, revoke_token
from afterturn.runtime.clock import SystemClock

FindStore: TypeAlias = Callable[[], tuple[Path | StoreUrl | None, Config]]

PORT = 7433


@command("mcp")
@click.option("--client", metavar="NAME", help="The client that starts it, such as codex. Labels what it writes.")
@click.option("--read-only", is_flag=True, help="Offer no tool that writes.")
@click.option("--reads", metavar="SPACE", multiple=True, help="A further space that it may read.")
@click.option(
    "--standing",
    is_flag=True,
    help="Put the standing context into the server's instructions, for a client without hooks.",
)
@click.option("--http", is_flag=True, help="Serve HTTP, for clients with a token (`afterturn token`).")
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="With --http: listen here.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=PORT, show_default=True, help="With --http: 0 finds a free port."
)
@click.option("--allow-host", metavar="NAME", multiple=True, help="With --http: a further host name in clients' URLs.")
def mcp(
    invocation: Invocation,
    *,
    client: str | None,
    read_only: bool,
    reads: Sequence[str],
    standing: bool,
    http: bool,
    host: str,
    port: int,
    allow_host: Sequence[str],
) -> None:
    """Serve memory to an MCP client."""
    show_warnings()

    def find_store() -> tuple[Path | StoreUrl | None, Config]:
        return invocation.path(), invocation.config()

    def find_grant() -> Grant:
        return local_grant(invocation.config(), space=invocation.space, reads=reads, read_only=read_only, agent=client)

    if not http:
        if host != "127.0.0.1" or port != PORT or allow_host:
            raise InvalidInput("--host, --port and --allow-host are for --http. Add it, or leave them out.")
        _serve_stdio(find_store, find_grant, _find_standing(find_store, find_grant()) if standing else "")
        return
    if client or read_only or reads or standing or invocation.space:
        raise InvalidInput(
            "With --http, the client's token decides what it may do. Leave --client, --space, --reads, --standing and "
            "--read-only out, and pass the others to `afterturn token create`."
        )
    _serve_http(find_store, host, port, allow_host)


def _find_standing(find_store: FindStore, grant: Grant) -> str:
    """The current standing context. A store that cannot be read must not keep the server from starting."""
    from afterturn.oneshot import standing_once

    store, config = find_store()
    try:
        return standing_once(
            space=grant.reads[0], reads=grant.reads[1:], project=grant.project, store=store, config=config
        )
    except AfterturnError as error:
        note(f"The instructions have no standing context: {error}")
        return ""


def _serve_stdio(find_store: FindStore, find_grant: Callable[[], Grant], standing: str) -> None:
    _import_sdk()
    import asyncio

    from afterturn.hosts.server.mcp_server import serve_stdio
    from afterturn.hosts.server.memories import OpenMemories

    if sys.stdin.isatty():
        note("Waiting for an MCP client on stdin. A client starts this command itself; press Ctrl-C to stop.")
    asyncio.run(serve_stdio(OpenMemories(find_store), find_grant, standing))


def _serve_http(find_store: FindStore, host: str, port: int, names: Sequence[str]) -> None:
    _import_sdk()
    import asyncio

    from afterturn.hosts.server.app import ServerOptions, Service, make_app
    from afterturn.hosts.server.connections import allowed_hosts, bind, check_start, is_loopback, serve
    from afterturn.hosts.server.mcp_http import PATH

    check_start(host, names)
    listener = bind(host, port)
    options = ServerOptions(host, allowed_hosts(host, listener.getsockname()[1], names), parts=frozenset({"mcp"}))

    def started(port: int) -> None:
        shown = f"[{host}]" if ":" in host else host
        click.echo(f"Serving http://{shown}:{port}{PATH}. Press Ctrl-C to stop.", err=True)
        if not is_loopback(host):
            click.echo("Nothing is encrypted on the way. Put a proxy with TLS before this server.", err=True)

    with listener:
        asyncio.run(serve(make_app(Service(find_store, options)), listener, started))


def _import_sdk() -> None:
    try:
        import mcp.server  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise ExtraMissing(f"The MCP SDK is not installed ({error}). Run `pip install 'afterturn[mcp]'`.") from error


_DAY = 86_400.0


@group("token", commands(__name__, create="create", list="list_all", revoke="revoke", audit="audit"))
def token() -> None:
    """Manage the tokens of clients that use `afterturn serve` or `afterturn mcp --http`."""


@command("create")
@click.option("--name", metavar="NAME", default="client", show_default=True, help="Its name; labels MCP writes.")
@click.option("--reads", metavar="SPACE", multiple=True, help="A further space that it may read.")
@click.option("--read-only", is_flag=True, help="It may not write.")
@click.option("--scope", type=click.Choice(SCOPES), multiple=True, help="What it may do; without, everything.")
@click.option("--conversation", metavar="ID", help="The only conversation that it may speak of.")
@click.option("--days", type=click.FloatRange(min=0, min_open=True), help="Expires after this many days.")
def create(
    invocation: Invocation,
    *,
    name: str,
    reads: Sequence[str],
    read_only: bool,
    scope: Sequence[str],
    conversation: str | None,
    days: float | None,
) -> None:
    """Create a token and print it, once.

    It reads and writes one space: yours, or --space, which may be a pattern such as 'user:*' or '*'. Only its hash is
    stored.
    """
    config = invocation.config()
    grant = make_grant(
        config,
        space=invocation.space or current_user_space(config),
        reads=reads,
        read_only=read_only,
        conversation=conversation,
        agent=name,
        scopes=scope or SCOPES,
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
        ("ID", "NAME", "TENANT", "READS", "WRITES", "SCOPES", "CREATED", "EXPIRES"),
        [
            (
                one.id,
                one_line(one.name),
                one_line(one.grant.tenant),
                one_line(", ".join(one.grant.reads)),
                one_line(one.grant.writes or ""),
                _scopes(one),
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


@command("audit")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="The newest rows.")
def audit(invocation: Invocation, *, limit: int) -> None:
    """Show who read and changed what over HTTP, oldest first.

    Kept are the newest 10 to 20 MB, in the state folder.
    """
    from afterturn.hosts.server.audit import read_audit

    rows = list(deque(read_audit(), maxlen=limit))
    if invocation.print_rows(rows, empty="No request was noted yet."):
        return
    print_table(
        ("TIME", "TOKEN", "STATUS", "REQUEST", "READS", "WRITES", "CONVERSATION"),
        [
            (
                local(float(row["at"])),
                one_line(f"{row['name']} ({row['caller']})"),
                str(row["status"]),
                one_line(f"{row['method']} {row['path']}"),
                *(one_line(", ".join(row.get(kind, ()))) for kind in ("reads", "writes", "conversation")),
            )
            for row in rows
        ],
    )


def _scopes(one: Token) -> str:
    """What it may really do: a token that only reads has no scope that changes anything."""
    found = [scope for scope in SCOPES if one.grant.allows(scope)]
    return "all" if len(found) == len(SCOPES) else ", ".join(found)


def _expiry(one: Token) -> str:
    if one.expires_at is None:
        return "never"
    if not one.is_valid(SystemClock().now()):
        return "expired"
    return datetime.fromtimestamp(one.expires_at, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _shown(one: Token) -> dict[str, object]:
    row = as_row(one)
    del row["sha256"]
    return {"id": one.id, **row}

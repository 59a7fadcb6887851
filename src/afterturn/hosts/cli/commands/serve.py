"""`serve` and `ui`: memory as an HTTP service, and its pages in a browser."""

from __future__ import annotations

import re
import webbrowser
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import click

from afterturn.config import Config, StoreUrl
from afterturn.errors import ExtraMissing, InvalidInput
from afterturn.hosts.cli.command import Invocation, command
from afterturn.hosts.cli.process import show_warnings
from afterturn.hosts.server.grant import Grant, make_grant

PORT = 7433
PARTS = ("api", "mcp", "mem0", "proxy", "pages")


@command("serve")
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Listen here.")
@click.option("--port", type=click.IntRange(0, 65_535), default=PORT, show_default=True, help="0 finds a free port.")
@click.option("--allow-host", metavar="NAME", multiple=True, help="A further host name in clients' URLs.")
@click.option("--upstream", metavar="NAME=URL", multiple=True, help="A model provider for the proxy: openai=https://…")
@click.option(
    "--upstream-key", metavar="NAME=FILE", multiple=True, help="A file with the key for requests that have none."
)
@click.option("--without", type=click.Choice(PARTS), multiple=True, help="Leave a part out.")
@click.option(
    "--rate", type=click.FloatRange(min=1), default=1000.0, show_default=True, help="Requests a second of one token."
)
@click.option("--insecure-local", is_flag=True, help="Serve this machine's requests without a token.")
def serve(
    invocation: Invocation,
    *,
    host: str,
    port: int,
    allow_host: Sequence[str],
    upstream: Sequence[str],
    upstream_key: Sequence[str],
    without: Sequence[str],
    rate: float,
    insecure_local: bool,
) -> None:
    """Serve the HTTP API, MCP, mem0's routes, a proxy and the pages."""
    show_warnings()
    _check_libraries()
    from afterturn.hosts.server.connections import check_start, is_loopback

    if insecure_local and not is_loopback(host):
        raise InvalidInput(f"--insecure-local is for a loopback address, not {host}. Leave it out, and create tokens.")
    check_start(host, allow_host, needs_token=not insecure_local)
    local = make_grant(invocation.config(), space="*") if insecure_local else None
    parts = frozenset(PARTS) - set(without)
    upstreams = _upstreams(upstream)
    keys = _upstream_keys(upstream_key, upstreams)
    _serve(invocation, host, port, allow_host, upstreams, local, parts, keys=keys, rate=rate)


@command("ui")
@click.option("--port", type=click.IntRange(0, 65_535), default=0, help="The default finds a free port.")
@click.option("--no-browser", is_flag=True, help="Only print the link.")
def ui(invocation: Invocation, *, port: int, no_browser: bool) -> None:
    """Show and correct memory in a browser."""
    show_warnings()
    _check_libraries()
    _serve(invocation, "127.0.0.1", port, (), {}, None, frozenset({"pages", "api"}), link=True, browser=not no_browser)


def _serve(
    invocation: Invocation,
    host: str,
    port: int,
    names: Sequence[str],
    upstreams: Mapping[str, str],
    local: Grant | None,
    parts: frozenset[str],
    *,
    keys: Mapping[str, bytes] | None = None,
    link: bool = False,
    browser: bool = False,
    rate: float = 1000.0,
) -> None:
    import asyncio

    from afterturn.hosts.server.app import ServerOptions, Service, make_app
    from afterturn.hosts.server.connections import allowed_hosts, bind, is_loopback, serve

    def find_store() -> tuple[Path | StoreUrl | None, Config]:
        return invocation.path(), invocation.config()

    listener = bind(host, port)
    bound = listener.getsockname()[1]
    options = ServerOptions(host, allowed_hosts(host, bound, names), upstreams, keys or {}, local, parts, rate)
    service = Service(find_store, options)

    def started(port: int) -> None:
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        if link:
            url += f"/login?code={service.sessions.create_link(make_grant(invocation.config(), space='*'))}"
            click.echo(f"Open {url}", err=True)
            if browser:
                webbrowser.open(url)
        click.echo(f"Serving {url.partition('/login')[0]}. Press Ctrl-C to stop.", err=True)
        if not is_loopback(host):
            click.echo("Nothing is encrypted on the way. Put a proxy with TLS before this server.", err=True)

    with listener:
        asyncio.run(serve(make_app(service), listener, started))


def _upstreams(given: Sequence[str]) -> dict[str, str]:
    upstreams = {}
    for one in given:
        name, _, url = one.partition("=")
        if not name or not re.match(r"https?://[^/]", url):
            raise InvalidInput(f"{one[:60]!r} is not a name and a URL. Write --upstream openai=https://…")
        upstreams[name] = url.rstrip("/")
    return upstreams


def _upstream_keys(given: Sequence[str], upstreams: Mapping[str, str]) -> dict[str, bytes]:
    keys = {}
    for one in given:
        name, _, path = one.partition("=")
        if name not in upstreams:
            raise InvalidInput(
                f"{one[:60]!r} is not the name of an upstream and a file. Write --upstream-key openai=FILE."
            )
        try:
            keys[name] = Path(path).read_bytes().strip()
        except OSError as error:
            raise InvalidInput(f"The key of {name} cannot be read: {path}: {error.strerror}.") from error
        if not re.fullmatch(rb"[!-~]+", keys[name]):
            raise InvalidInput(f"The key of {name} is not in {path}. Write it there, as one line.")
    return keys


def _check_libraries() -> None:
    missing = [name for name in ("fastapi", "httpx2", "jinja2", "mcp", "uvicorn") if find_spec(name) is None]
    if missing:
        raise ExtraMissing(
            f"The server's libraries are missing ({', '.join(missing)}). Run `pip install 'afterturn[server]'`."
        )

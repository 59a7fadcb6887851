"""`serve` and `token audit` on the command line: what is refused before the server listens, and what is shown."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.hosts.conftest import CommandLine


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERTURN_STATE", str(tmp_path / "state"))


def serve(cli: CommandLine, *options: str) -> str:
    """The one line in which it is refused."""
    answer = cli("serve", "--port", "0", *options, space=None)
    assert answer.code == 2
    assert answer.out == ""
    (line,) = answer.err.splitlines()
    return line


def test_a_server_that_nobody_could_use_does_not_start(cli: CommandLine) -> None:
    assert "There is no valid token" in serve(cli)
    cli("token", "create", "--name", "laptop")
    assert "Name the host that clients use: --allow-host NAME" in serve(cli, "--host", "0.0.0.0")


def test_only_a_server_on_loopback_may_do_without_tokens(cli: CommandLine) -> None:
    """B3: also with a name that clients may use."""
    refused = serve(cli, "--insecure-local", "--host", "0.0.0.0", "--allow-host", "memory.example.org")
    assert "--insecure-local is for a loopback address, not 0.0.0.0." in refused


@pytest.mark.parametrize(
    "upstream", ["openai", "openai=", "openai=ftp://example.org", "=https://a.b", "openai=http://"]
)
def test_an_upstream_is_a_name_and_a_url(cli: CommandLine, upstream: str) -> None:
    refused = serve(cli, "--insecure-local", "--upstream", upstream)
    assert refused == f"afterturn: {upstream!r} is not a name and a URL. Write --upstream openai=https://…"


@pytest.mark.parametrize(
    "content, problem",
    [
        (None, "cannot be read: {path}: No such file or directory."),
        (b"", "is not in {path}. Write it there, as one line."),
        (b"\n", "is not in {path}. Write it there, as one line."),
        (b"sk-1\nx-header: sk-2\n", "is not in {path}. Write it there, as one line."),
    ],
    ids=str,
)
def test_a_key_is_one_line_of_a_file(cli: CommandLine, tmp_path: Path, content: bytes | None, problem: str) -> None:
    """It is sent as a header."""
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    refused = serve(cli, "--insecure-local", "--upstream=openai=https://a.b", f"--upstream-key=openai={path}")
    assert refused == "afterturn: The key of openai " + problem.format(path=path)


def test_a_key_is_for_an_upstream_that_is_named(cli: CommandLine) -> None:
    refused = serve(cli, "--insecure-local", "--upstream-key", "anthropic=key")
    assert "'anthropic=key' is not the name of an upstream and a file." in refused


@pytest.mark.parametrize("library", ["fastapi", "httpx2", "jinja2", "mcp", "uvicorn"])
def test_a_missing_library_names_the_extra(cli: CommandLine, monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    answer = cli("serve", "--port", "0", space=None)
    assert answer.code != 0
    assert answer.err == (
        f"afterturn: The server's libraries are missing ({library}). Run `pip install 'afterturn[server]'`.\n"
    )


def test_the_audit_log_is_shown_without_lines_that_are_damaged(cli: CommandLine, tmp_path: Path) -> None:
    row = {
        "at": 1.0,
        "tenant": "default",
        "caller": "a1",
        "name": "laptop",
        "method": "GET",
        "path": "/x",
        "status": 200,
    }
    (tmp_path / "state").mkdir()
    lines = ["{", "[]", '{"at": 1}', json.dumps({**row, "at": "soon"}), json.dumps(row)]
    (tmp_path / "state" / "audit.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert cli("token", "audit", "--json", space=None).lines == [row]
    shown = cli("token", "audit", space=None)
    assert (shown.code, shown.out.count("laptop (a1)")) == (0, 1)

"""Real MCP clients of the SDK, over stdio and HTTP, and the servers that they talk to."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2
import pytest
from mcp.client import stdio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent

WITHIN = 100.0
# The last versions of both eras: a handshake, and requests that stand alone.
ERAS = {"legacy": "2025-11-25", "2026-07-28": "2026-07-28"}


@asynccontextmanager
async def over_stdio(folder: Path, *options: str, mode: str = "legacy", **variables: str) -> AsyncIterator[Client]:
    """A client that has started `afterturn mcp` in `folder`, with a store there and the space user:ada."""
    known = {**os.environ, "AFTERTURN_STORE": str(folder / "memory.db"), "AFTERTURN_SPACE": "user:ada", **variables}
    started = StdioServerParameters(
        command=sys.executable, args=["-m", "afterturn", "mcp", *options], env=known, cwd=folder
    )
    with open(folder / "stderr.txt", "w", encoding="utf-8") as errors, pytest.MonkeyPatch.context() as patch:
        # The SDK kills a server that takes longer to end.
        patch.setattr(stdio, "PROCESS_TERMINATION_TIMEOUT", WITHIN)
        async with Client(stdio_client(started, errlog=errors), mode=mode) as client:
            yield client


@contextmanager
def http_server(folder: Path, *options: str) -> Iterator[str]:
    """The URL of a server in a process of its own."""
    known = {**os.environ, "AFTERTURN_STORE": str(folder / "memory.db")}
    command = [sys.executable, "-m", "afterturn", "mcp", "--http", "--port", "0", *options]
    with subprocess.Popen(command, env=known, cwd=folder, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert child.stderr is not None
            line = child.stderr.readline()
            assert line.startswith("Serving http://"), line
            yield line.split()[1].removesuffix(".")
        finally:
            child.terminate()
            child.wait(timeout=WITHIN)


@asynccontextmanager
async def over_http(url: str, token: str, mode: str = "legacy") -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=WITHIN) as transport,
        Client(streamable_http_client(url, http_client=transport), mode=mode) as client,
    ):
        yield client


async def ask(client: Client, name: str, **arguments: object) -> str:
    result = await client.call_tool(name, arguments)
    (content,) = result.content
    assert isinstance(content, TextContent)
    assert result.structured_content is None
    return content.text

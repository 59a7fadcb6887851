"""The MCP server: memory's tools and instructions, over stdio. The SDK speaks both eras of the protocol.

A client waits for the first answer, so the store is opened when the tools are listed, which is after that answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging.config
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

from afterturn.config import Config, StoreUrl
from afterturn.errors import AfterturnError, NotAllowed
from afterturn.hosts.server.grant import Grant
from afterturn.hosts.server.tools import (
    DEFINITIONS,
    DELETE,
    INSTRUCTIONS,
    UPDATE,
    WRITING,
    call_tool,
    definitions,
    failure,
)
from afterturn.hosts.server.typed_statements import remove_old_statements
from afterturn.log import logger
from afterturn.standing.block import append_standing

if TYPE_CHECKING:
    from afterturn.memory import Memory

# The SDK and uvicorn log what clients send, and tracebacks.
QUIET: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"none": {"class": "logging.NullHandler"}},
    "loggers": {name: {"handlers": ["none"], "propagate": False} for name in ("mcp", "uvicorn", "uvicorn.error")},
}

Context: TypeAlias = ServerRequestContext[Any, Any]
TENANTS_MAX = 64


class OpenMemories:
    """Use it with `async with`, on one event loop.

    `find_store` returns the path of the store, None if memory is off, and the settings. It is called again after a
    failure, so that a user can correct what was wrong while the server runs.
    """

    def __init__(self, find_store: Callable[[], tuple[Path | StoreUrl | None, Config]]) -> None:
        self._find_store = find_store
        self._memories: dict[str, Memory] = {}
        self._lock = asyncio.Lock()

    async def get(self, tenant: str) -> Memory:
        """Raises AfterturnError if the store cannot be opened."""
        async with self._lock:
            if tenant not in self._memories:
                if len(self._memories) >= TENANTS_MAX:
                    raise NotAllowed(f"This server has {TENANTS_MAX} tenants open. Start another one for {tenant!r}.")
                memory = await asyncio.to_thread(self._open, tenant)
                self._memories[tenant] = await memory.start()
            return self._memories[tenant]

    def _open(self, tenant: str) -> Memory:
        """Loads the library, on a thread: a client waits for the first answers of a server that it has just started."""
        from afterturn.memory import open

        path, config = self._find_store()
        return open(path, replace(config, tenant=tenant))

    async def __aenter__(self) -> OpenMemories:
        await asyncio.to_thread(remove_old_statements)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """May be called twice."""
        async with self._lock:
            memories, self._memories = list(self._memories.values()), {}
            for memory in memories:
                await memory.close()


def make_server(
    memories: OpenMemories, find_grant: Callable[[Context], Grant], instructions: str = INSTRUCTIONS
) -> Server[Any]:
    """`find_grant` returns what a request may do, or raises AfterturnError."""

    @asynccontextmanager
    async def lifespan(_: Server[Any]) -> AsyncIterator[asyncio.TaskGroup]:
        async with memories, asyncio.TaskGroup() as opening:
            yield opening

    async def open_early(tenant: str) -> None:
        try:
            await memories.get(tenant)
        except Exception as error:  # noqa: BLE001 the boundary of a task: the next call tries again and reports it
            logger.warning("memory cannot be opened: %r", error)

    async def list_tools(context: Context, params: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        try:
            grant = find_grant(context)
        except AfterturnError:
            # A client that gets no list gives up. A call says what is wrong.
            offered = DEFINITIONS
        else:
            offered = definitions(grant)
            context.lifespan_context.create_task(open_early(grant.tenant))
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=one.name,
                    description=one.description,
                    input_schema=dict(one.parameters),
                    annotations=types.ToolAnnotations(
                        read_only_hint=one.name not in WRITING,
                        destructive_hint=one.name in (UPDATE, DELETE),
                        open_world_hint=False,
                    ),
                )
                for one in offered
            ]
        )

    async def handle_call(context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        """Text alone: with structured content as well, some clients show it twice."""
        try:
            grant = find_grant(context)
            memory = await memories.get(grant.tenant)
        except Exception as error:  # noqa: BLE001 the boundary to a client: `failure` logs it
            answer = failure(error)
        else:
            answer = await call_tool(memory, grant, params.name, params.arguments)
        return types.CallToolResult(content=[types.TextContent(type="text", text=answer.text)], is_error=answer.failed)

    return Server(
        "afterturn",
        version=version("afterturn"),
        instructions=instructions,
        lifespan=lifespan,
        on_list_tools=list_tools,
        on_call_tool=handle_call,
    )


async def serve_stdio(memories: OpenMemories, find_grant: Callable[[], Grant], standing: str = "") -> None:
    """Serves the client that has started this process, until it closes the pipe. Nothing else is written to stdout.

    The instructions end with `standing`, the standing block. SIGINT and SIGTERM close memory and end the process.
    """
    logging.config.dictConfig(QUIET)
    instructions = append_standing(INSTRUCTIONS, standing)
    server, stopped = make_server(memories, lambda context: find_grant(), instructions), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with asyncio.TaskGroup() as group:
        watcher = group.create_task(_exit_when(stopped, memories))
        async with stdio_server() as (reader, writer):
            with contextlib.redirect_stdout(sys.stderr):
                await server.run(reader, writer, server.create_initialization_options())
        watcher.cancel()


async def _exit_when(stopped: asyncio.Event, memories: OpenMemories) -> None:
    await stopped.wait()
    await memories.close()
    # A thread of the SDK waits for the next line, and nothing can interrupt it.
    os._exit(0)

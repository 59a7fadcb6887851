"""The MCP server: memory's tools and instructions, over stdio. The SDK speaks both eras of the protocol.

A client waits for the first answer, so the store is opened when the tools are listed, which is after that answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any, TypeAlias

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server

from afterturn.errors import AfterturnError
from afterturn.hosts.server.grant import Grant
from afterturn.hosts.server.library_logs import silence_libraries
from afterturn.hosts.server.memories import OpenMemories
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
from afterturn.log import logger
from afterturn.standing.block import append_standing

Context: TypeAlias = ServerRequestContext[Any, Any]


def make_server(
    memories: OpenMemories, find_grant: Callable[[Context], Grant], instructions: str = INSTRUCTIONS
) -> Server[Any]:
    """`find_grant` returns what a request may do, or raises AfterturnError. The caller opens and closes `memories`."""

    @asynccontextmanager
    async def lifespan(_: Server[Any]) -> AsyncIterator[asyncio.TaskGroup]:
        async with asyncio.TaskGroup() as opening:
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
    silence_libraries()
    instructions = append_standing(INSTRUCTIONS, standing)
    server, stopped = make_server(memories, lambda context: find_grant(), instructions), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with memories, asyncio.TaskGroup() as group:
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

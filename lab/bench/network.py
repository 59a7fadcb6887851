"""Turns over a network: how many get their block within the default grace when each round trip takes longer.

A proxy in a process of its own delays every message of a host to the server. It is part of `make bench-postgres`.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter

import afterturn
from lab.bench.report import Figure, Goal, Progress, judge, milliseconds, percentile
from lab.postgres.server import PostgresServer

ROOT = Path(__file__).resolve().parents[2]
DELAYS = (0.0, 0.001)
ANSWER = "It is noted in the plan."
WITHIN = 60.0


@dataclass(slots=True)
class Turns:
    """`waits` are the seconds that each `inject` took, `stored` those until the turn was recorded."""

    delivered: int = 0
    waits: list[float] = field(default_factory=list)
    stored: list[float] = field(default_factory=list)


def measure_network(
    server: PostgresServer, memories: Sequence[str], questions: Sequence[str], users: int, progress: Progress
) -> list[Figure]:
    """Each user asks the first question to warm up, and the others are counted."""
    figures: list[Figure] = []
    for delay in DELAYS:
        progress(f"network: {users} users, {delay * 1000:g} ms")
        with _proxy(server.port, delay) as port:
            url = server.url(schema=f"network_{int(delay * 1000)}").replace(f":{server.port}/", f":{port}/")
            found = asyncio.run(_take_turns(url, memories, questions, users))
        share = 100 * found.delivered / len(found.waits)
        notes = (
            f"{len(found.waits)} turns; wait of a host: p50 {milliseconds(percentile(found.waits, 0.5))}, "
            f"p99 {milliseconds(percentile(found.waits, 0.99))}",
            f"recorded after p50 {milliseconds(percentile(found.stored, 0.5))}",
        )
        goal = Goal(99, "%", at_least=True)
        figures.append(judge(f"{delay * 1000:g} ms of network, delivered in the same turn", "%", share, goal, *notes))
    return figures


async def _take_turns(url: str, memories: Sequence[str], questions: Sequence[str], users: int) -> Turns:
    found = Turns()
    async with afterturn.open(url) as memory:
        await memory.ready(within=WITHIN)
        for number in range(users):
            user = f"ada-{number}"
            await memory.space(f"user:{user}").add_many([afterturn.Draft(text) for text in memories])
            await memory.drain(within=WITHIN)
            conversation, messages = memory.conversation("talk", user=user), list[dict[str, str]]()
            for at, question in enumerate(questions):
                await _take_turn(conversation, messages, question, found if at else Turns())
                # The index in memory follows the recording a moment later.
                await asyncio.sleep(0.2)
    return found


async def _take_turn(
    conversation: afterturn.Conversation, messages: list[dict[str, str]], question: str, found: Turns
) -> None:
    messages.append({"role": "user", "content": question})
    async with conversation.turn(messages) as turn:
        began = perf_counter()
        found.delivered += await turn.inject(messages) is not None
        found.waits.append(perf_counter() - began)
        messages.append({"role": "assistant", "content": ANSWER})
    left = perf_counter()
    await turn.wait_recorded(within=WITHIN)
    found.stored.append(perf_counter() - left)


@contextmanager
def _proxy(port: int, delay: float) -> Iterator[int]:
    command = [sys.executable, "-m", "lab.postgres.wire_proxy", str(port), str(delay)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            # It ends with its input.
            process.stdin.close()

"""What memory tells of itself, in the words of the right column."""

from __future__ import annotations

import asyncio
import contextlib
import re

from afterturn.types import Event, Scalar

_EVENT_WITHIN = 3.0
_POINTS = {"user_message": "after Ada", "tool_result": "after tool"}
_BULLET = re.compile(r"^- \[(?P<ref>[0-9a-z.]+)\] [^:]*?, (?:(?:user|assistant): )?(?P<text>.*)$", re.MULTILINE)


class EventQueue:
    """Takes events on memory's thread and gives them, in order, to the host's loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Event] = asyncio.Queue()

    def put(self, event: Event) -> None:
        self._loop.call_soon_threadsafe(self._queue.put_nowait, event)

    async def take(self, *, until: str = "") -> list[Event]:
        """What has come; with `until`, waits for an event of that name first, for at most three seconds."""
        taken: list[Event] = []
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EVENT_WITHIN):
                while until and (not taken or taken[-1].name != until):
                    taken.append(await self._queue.get())
        await asyncio.sleep(0)
        while not self._queue.empty():
            taken.append(self._queue.get_nowait())
        return taken


def describe(event: Event) -> list[str]:
    """A line, or none for what nobody has to see."""
    data = event.data
    match event.name:
        case "recall_started":
            return ["recall starts, and the turn goes on"]
        case "recall_settled":
            return [f"recalled in {data['milliseconds']:.1f} ms: {_lanes(event)}"]
        case "recall_carried":
            return [f"too late for this turn: {counted(data['memories'])} carried"]
        case "handed_over":
            return [f"handed over {_POINTS[str(data['point'])]}: {counted(data['memories'])}, {data['tokens']} tokens"]
        case "tool_called":
            return [f"looked up {counted(data['memories'])}, nothing injected"]
        case "proposed":
            return ["proposed: waits in Ada's inbox"]
        case "recorded":
            return [f"recorded for good: {data['records']} messages"]
    return []


def bullets(block: str) -> dict[str, str]:
    """The memories in a block by what names them: their words, and of reports whose they are."""
    return {found["ref"]: found["text"] for found in _BULLET.finditer(block)}


def counted(memories: Scalar) -> str:
    return "1 memory" if memories == 1 else f"{memories} memories"


def _lanes(event: Event) -> str:
    counts = {name: event.data[name] for name in ("short_term", "long_term", "episodic")}
    found = [f"{count} {name.replace('_', '-')}" for name, count in counts.items() if count]
    return " + ".join(found) or "nothing to add"

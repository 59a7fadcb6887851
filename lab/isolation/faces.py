"""The interfaces of other libraries over a party's space: mem0's, and LangGraph's store if langgraph is installed."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from typing import Any, TypeVar

from afterturn.compat.mem0.core import Mem0Core
from afterturn.frameworks.core import FrameworkMemory
from lab.isolation.world import Party

R = TypeVar("R")
HAS_LANGGRAPH = find_spec("langgraph") is not None


async def call_mem0(party: Party, call: Callable[[Mem0Core], Any]) -> object:
    """Calls a verb of mem0's interface on the party's open memory."""
    services = FrameworkMemory(party.memory, needs_user=False).services
    return await services.loop.run(call(Mem0Core(services, wait=True)))


def mem0_user(party: Party) -> dict[str, Any]:
    """The ids by which mem0's interface names the party's space. A project is not a user: it gets one of its own."""
    kind, _, name = party.space.partition(":")
    return {"user_id": name if kind == "user" else party.canary}


def mem0_id(party: Party, entry_id: str) -> str:
    """The id that mem0's interface would give to this entry in the party's space."""
    return f"{entry_id}-{base64.urlsafe_b64encode(party.space.encode()).decode().rstrip('=')}"


async def call_langgraph(party: Party, call: Callable[[Any, tuple[str, ...]], Awaitable[R]]) -> R:
    """Calls a verb of LangGraph's store. The party's space is a namespace of one label."""
    from afterturn.frameworks.langgraph_store import AfterturnStore

    kind, _, name = party.space.partition(":")
    return await call(AfterturnStore(party.memory, root=kind), (name,))

"""The scripted agent's tools: tables, texts, invitations. They are real functions over an invented town."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

LATENCY = 0.03

_TABLES = {"Satay House": ("19:30", "peanut sauces, lively"), "Casa Nova": ("20:30", "grilled fish, quiet")}


def find_tables(day: str, guests: int) -> str:
    return "; ".join(f"{place} {time} ({note})" for place, (time, note) in _TABLES.items())


def book_table(place: str, time: str, note: str) -> str:
    if _TABLES.get(place, ("",))[0] != time:
        return f"{place} has no table at {time}"
    return f"confirmed; kitchen told: {note}"


def send_text(to: str, text: str) -> str:
    return "delivered" if to.replace(" ", "").isdigit() else "that is no number"


def invite(guest: str) -> str:
    return f"{guest} has an invitation"


_FUNCTIONS: dict[str, Callable[..., str]] = {
    function.__name__: function for function in (find_tables, book_table, send_text, invite)
}
_TYPES = {str: "string", int: "integer"}


def _schema(function: Callable[..., str]) -> dict[str, Any]:
    arguments = {name: kind for name, kind in function.__annotations__.items() if name != "return"}
    properties = {name: {"type": _TYPES[kind]} for name, kind in arguments.items()}
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": function.__name__, "parameters": parameters}}


TOOLS = [_schema(function) for function in _FUNCTIONS.values()]


async def run_tools(calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One tool message a call, after the moment that a service in town would take."""
    await asyncio.sleep(LATENCY)
    return [{"role": "tool", "tool_call_id": call["id"], "content": _run(call["function"])} for call in calls]


def describe_call(call: Mapping[str, Any]) -> str:
    """As one would write it: `find_tables(day="Friday", guests=2)`."""
    function = call["function"]
    arguments = ", ".join(f"{name}={json.dumps(value)}" for name, value in json.loads(function["arguments"]).items())
    return f"{function['name']}({arguments})"


def _run(function: Mapping[str, Any]) -> str:
    return _FUNCTIONS[function["name"]](**json.loads(function["arguments"]))

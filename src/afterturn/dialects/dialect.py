"""What a message format has to tell. Dialects read the host's messages and never edit one; `history` does the rest."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from afterturn.base.turns import Message

Strip: TypeAlias = Callable[[str], str]
"""Takes our own blocks out of a text; whoever knows their hashes supplies it."""


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a host's list: mostly one message. Anthropic puts tool results and what the user adds into one,
    Gemini a model's words and its calls.

    `calls` are the ids of the calls it makes and `answers` those it responds to, in order; a call without an id is
    named by its tool, as Gemini's are.
    """

    messages: tuple[Message, ...]
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as a model is told of it. `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


class Dialect(Protocol):
    """Messages may be mappings or a client library's objects. No method raises for what a host puts in its list."""

    @property
    def name(self) -> str: ...

    def speaks(self, message: object) -> bool | None:
        """True for a message that only this format has, False for one of another's, None when it could be this one."""

    def read(self, message: object) -> Element | None:
        """Roles are system, user, assistant and tool. None for an element that this dialect does not know.

        Reasoning is no text. A message without anything in it has one blank message.
        """

    def said(self, role: str, text: str) -> Mapping[str, Any]:
        """A new message of the user's or the assistant's; a block goes in as the user's."""

    def merged(self, message: object, text: str) -> object | None:
        """A copy of a user's element with `text` after what it holds; None when it can not be extended."""

    def tool(self, definition: ToolDefinition) -> Mapping[str, Any]:
        """As this format's requests list tools."""

"""What a message format has to tell. Dialects read the host's messages and never edit one; `history` does the rest."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from afterturn.base.terms import content_hash
from afterturn.base.turns import Message

Strip: TypeAlias = Callable[[str], str]
"""Takes our own blocks out of a text; whoever knows their hashes supplies it."""


@dataclass(frozen=True, slots=True)
class Said:
    """What one speaker says in an element. Roles are system, user, assistant and tool; a blank `name` is the role's."""

    role: str
    text: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Element:
    """One element of a host's list: mostly one message. Anthropic puts tool results and what the user adds into one,
    Gemini a model's words and its calls.

    `calls` are the ids of the calls it makes and `answers` those it responds to, in order. Gemini's are named by their
    tool; one that nothing names is blank. What an assistant's element holds besides text says nothing: an element of
    calls, reasoning or pictures alone has no `said`. `leads`: it belongs to the element after it, as reasoning does.
    """

    said: tuple[Said, ...]
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    leads: bool = False

    @property
    def role(self) -> str:
        """Of who spoke last in it."""
        return self.said[-1].role if self.said else "assistant"

    @property
    def messages(self) -> tuple[Message, ...]:
        """As they are recorded and compared. Their hashes are made anew at each reading, for a hand-over needs none."""
        return tuple(Message(one.role, one.text, one.name or one.role, content_hash(one.text)) for one in self.said)

    def text_of(self, role: str) -> str:
        """All that this role says in it, one text a line."""
        return "\n".join(one.text for one in self.said if one.role == role and one.text)


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
        """None for an element that this dialect does not know. Parts that it does not know are skipped.

        Reasoning is no text. A message with nothing in it says one blank text, and so does what a user shows that is
        no text.
        """

    def said(self, role: str, text: str) -> Mapping[str, Any]:
        """A new message of the user's or the assistant's; a block goes in as the user's."""

    def merged(self, message: object, text: str) -> object | None:
        """A copy of a user's element with `text` after what it holds; None when it can not be extended."""

    def tool(self, definition: ToolDefinition) -> Mapping[str, Any]:
        """As this format's requests list tools."""

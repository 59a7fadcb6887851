"""What the turn needs from a message format. Dialects read the host's messages and never edit one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from afterturn.base.types import Message

Strip: TypeAlias = Callable[[str], str]
"""Takes our own blocks out of a text; whoever knows their hashes supplies it."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """The messages of one turn, as they will be recorded (C1); empty when its user message is not in the list.

    `ends_complete`: the list ends in an assistant's message and no call is open. Elements that can not be read are
    left out.
    """

    messages: tuple[Message, ...]
    ends_complete: bool


class Dialect(Protocol):
    """Messages may be mappings or a client library's objects. No method raises for what a host puts in its list."""

    @property
    def name(self) -> str: ...

    def read(self, message: object) -> Message | None:
        """The message's role, text and speaker; None for an element that this dialect does not know."""

    def latest_user(self, messages: Sequence[object], strip: Strip) -> tuple[int, str] | None:
        """Where the user last said something, and what: not blank once our own blocks are out of it."""

    def has_open_call(self, messages: Sequence[object]) -> bool:
        """Whether the last assistant message waits for a response to one of its calls."""

    def is_point(self, messages: Sequence[object]) -> bool:
        """Whether a block may be appended now: after a user's message or after all responses to the calls (H1)."""

    def element(self, text: str) -> Mapping[str, Any]:
        """A new message with the user's role that carries a block."""

    def exchange(self, messages: Sequence[object], user_hash: str, strip: Strip) -> Exchange:
        """The turn that began with the last user message of that content hash."""

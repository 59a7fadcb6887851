"""What hosts with and without an event loop tell a conversation, from any thread."""

from __future__ import annotations

from collections.abc import Sequence

from afterturn.base.loop import PrivateLoop
from afterturn.turn.boundary import contained
from afterturn.turn.conversation import ConversationCore
from afterturn.turn.place import Place


class ConversationVerbs:
    """Never raises, never waits. Turns are made by the two kinds of `Conversation`."""

    def __init__(self, core: ConversationCore, place: Place, loop: PrivateLoop) -> None:
        self._core = core
        self._place = place
        self._loop = loop

    @property
    def id(self) -> str:
        return self._place.id

    @contained
    def expect(self, text: str) -> None:
        """What the user is typing: recall starts, and is used when what is said in the end is close to it."""
        self._core.expect(self._place, text)

    @contained
    def compacted(self, messages: Sequence[object] | None = None) -> None:
        """The context was compacted. Pass what is left of it when the history is shown: what went may come again."""
        self._core.compacted(self._place, messages)

    @contained
    def compacting(self, messages: Sequence[object]) -> None:
        """A compaction of these messages was decided. With `review_compaction`, what they teach is kept."""
        self._core.compacting(self._place, messages)

    @contained
    def reset(self) -> None:
        """The conversation begins anew: nothing counts as shown any more, and no memory is lost."""
        self._core.reset(self._place)

"""Messages of the provider tests, an embedder that a test can block, and functions that read prompts."""

import json
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from provider_loops import TOOL
from provider_server import ProviderServer
from provider_wires import Call, Json, Reply

from afterturn.testing.hashing import HashingEmbedder
from afterturn.types import Entry

HELD_MAX = 100.0
TAG = "<afterturn-memory>"

SAID = "My cat Miso is allergic to chicken."
ASKED = "What food is my cat Miso allergic to?"
LOOKS = Reply("Let me look.", (Call("call_a", TOOL, {"what": "cats"}), Call("call_b", TOOL, {"what": "soup"})))
ANSWERS = Reply("Chicken.")
RECORDED = [
    ("user", ASKED),
    ("assistant", "Let me look."),
    ("tool", "The shelf has nothing about cats."),
    ("tool", "The shelf has nothing about soup."),
    ("assistant", "Chicken."),
]


class HeldEmbedder(HashingEmbedder):
    """Answers at once, but for the time when a test holds it, and with it every recall."""

    def __init__(self) -> None:
        super().__init__()
        self._free = threading.Event()
        self._free.set()

    def hold(self) -> None:
        self._free.clear()

    def let_go(self) -> None:
        self._free.set()

    def embed(self, texts: Sequence[str]) -> Any:
        assert self._free.wait(HELD_MAX)
        return super().embed(texts)


class WatchedConversation:
    """A conversation whose turns a test can look at, though a loop keeps them to itself."""

    def __init__(self, conversation: Any) -> None:
        self._conversation = conversation
        self.settles_first = True
        self.turns: list[Any] = []

    def turn(self, messages: Any) -> Any:
        """With `settles_first` the recall is there before the loop goes on, however busy the machine is."""
        self.turns.append(self._conversation.turn(messages))
        if self.settles_first:
            self.wait_settled()
        return self.turns[-1]

    def wait_settled(self) -> None:
        """Blocks this thread until memory has whatever it will have for what was said last."""
        assert self.turns[-1]._turn.shared.current.fast.settled.wait_blocking(within=HELD_MAX) is not None


def settle_before_first_reply(
    server: ProviderServer, embedder: HeldEmbedder, conversation: WatchedConversation
) -> None:
    """The recall comes when the model has the first prompt already, and before it answers."""

    def once() -> None:
        server.before_reply = lambda: None
        embedder.let_go()
        conversation.wait_settled()
        conversation.settles_first = True

    conversation.settles_first = False
    embedder.hold()
    server.before_reply = once


def said_in(conversation: str, records: Iterable[Entry]) -> list[tuple[str | None, str]]:
    """Who said what, in order."""
    said = sorted((one for one in records if one.conversation == conversation), key=lambda one: one.position or 0)
    return [(one.speaker, one.text) for one in said]


def blocks_in(prompt: Sequence[Json]) -> list[int]:
    """Where elements stand that carry a block."""
    return [at for at, element in enumerate(prompt) if TAG in json.dumps(element)]


def begins_with(prompt: Sequence[Json], earlier: Sequence[Json]) -> bool:
    """To the byte, as a prompt cache would have it."""
    return json.dumps(prompt).startswith(json.dumps(earlier)[:-1])


def text_of(element: Json) -> str:
    """Of an element with nothing but one text."""
    content = element.get("content") or element["parts"]
    return str(content if isinstance(content, str) else content[0]["text"])

"""A scene in which a recall ends after its turn, and its memories are delivered in the next one."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from afterturn.embedders.sentence_encoder import SentenceEncoder
from afterturn.testing.model import Answer, Messages
from lab.demo.host import Host, SceneContext
from lab.demo.screen import Cell
from lab.demo.story import USER, Exchange, text_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Together less than a recall waits for its vector, so that the whole recall is late.
SLOWED_BY = 0.2
HELD_MAX = 0.4


class SlowEmbedder(SentenceEncoder):
    """The default embedder, except that one question takes long: until the `slow_for` context has been left."""

    def __init__(self) -> None:
        super().__init__()
        self._question = ""
        self._left = threading.Event()

    @contextlib.contextmanager
    def slow_for(self, question: str) -> Iterator[None]:
        self._question = question
        self._left.clear()
        try:
            yield
        finally:
            self._left.set()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if list(texts) == [self._question]:
            self._question = ""
            time.sleep(SLOWED_BY)
            self._left.wait(HELD_MAX)
        return super().embed(texts)


def _soup(messages: Messages) -> Answer:
    if "allergic to peanuts" not in text_of(messages):
        return "I would have to look that up."
    return "No, not the peanut soup: she is allergic to peanuts."


ASKED = Exchange("Can my mother have the peanut soup?", (_soup,), patient=False, carries=True)
ASKED_AGAIN = Exchange("Please do.", (_soup,), proof="allergic to peanuts")


async def play_late(embedder: SlowEmbedder, play: SceneContext) -> None:
    host = Host(play, play.memory.conversation("soup", user=USER))
    play.screen.moment(
        [Cell("note", "(memory is slowed down on purpose)")], ["it answers only after this turn has ended"]
    )
    await host.play(ASKED, slowed=embedder.slow_for(ASKED.says))
    await host.play(ASKED_AGAIN)

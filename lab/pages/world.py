"""A store with everything that a page can show: several people and projects, and turns that ended in each way.

`python -m lab.pages.world FILE` makes one.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import afterturn
from afterturn.conversation.scope import ConversationOptions
from afterturn.embedders.sentence_encoder import SentenceEncoder
from afterturn.recall import search
from afterturn.recall.query import read_query
from afterturn.services import Components
from afterturn.types import Filter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DAY = 86_400.0
HOUR = 3600.0
MINUTE = 60.0
# How long the model of these conversations takes to answer.
ANSWERS_AFTER = 0.6
LATE = "Which port does the metrics exporter use again?"
BROKEN = "Wie heißt der Bruder meiner Nachbarin?"


class ShiftedClock:
    """The time of now, minus a number of seconds that may become smaller."""

    def __init__(self) -> None:
        self.earlier = 30 * DAY

    def now(self) -> float:
        return time.time() - self.earlier

    def monotonic(self) -> float:
        return time.monotonic()


class SlowEmbedder(SentenceEncoder):
    """The default embedder, except that one question takes too long."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = threading.Event()

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if list(texts) == [LATE]:
            self.may_end.wait(1.0)
        return super().embed(texts)


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation: how long ago, who, and messages with answers."""

    ago: float
    id: str
    where: ConversationOptions
    exchanges: tuple[tuple[str, str], ...]


ADA = ConversationOptions(owner="user:ada", agent="basil")
HERON = ConversationOptions(
    owner="user:ada", reads=["project:heron"], environment="project:heron", project="heron", agent="basil"
)
GRACE = ConversationOptions(owner="user:grace", reads=["team:support"], agent="basil")

STATEMENTS = (
    ("project:heron", "The staging database of heron runs on db-2.heron.internal.", "environment", 21),
    ("project:heron", "Heron is released on Thursdays, after the smoke tests in CI are green.", "environment", 20),
    ("project:heron", "The metrics exporter listens on port 9464.", "environment", 16),
    ("project:heron", "CI caches the pnpm store; a cold run takes eleven minutes.", "environment", 12),
    ("project:heron", "Migrations run before the new pods start, never after.", "environment", 12),
    ("team:support", "Refunds above 200 euros need the approval of Noor.", "environment", 9),
    ("team:support", "The status page is updated by whoever is on call.", "environment", 9),
)

TALKS = (
    Talk(
        21 * DAY,
        "first-day",
        ADA,
        (
            (
                "Hi! I'm Ada, I lead the platform team in Utrecht. I prefer pnpm over npm, and short answers.",
                "Noted, Ada: pnpm, and short answers.",
            ),
            (
                "My sister Grace visits in spring. She is allergic to peanuts, so remember that for any restaurant.",
                "I will keep peanuts in mind when Grace is with you.",
            ),
            ("We have a cat, Miso, who eats nothing with chicken in it.", "A cat with standards."),
        ),
    ),
    Talk(
        9 * DAY,
        "heron-migrations",
        HERON,
        (
            ("How do we run the migrations of heron?", "Before the new pods start, never after."),
            (
                "The nightly job locked the orders table for six minutes. Remember that it must use batches of 500.",
                "I will suggest batches of 500 for the nightly job.",
            ),
        ),
    ),
    Talk(
        3 * DAY,
        "spring-dinner",
        ADA,
        (
            (
                "Can you find a place for Friday's dinner? Grace is coming.",
                "Casa Nova at 20:30: quiet, and it cooks without peanuts.",
            ),
            (
                "Great, book it. And something for Miso on the way home?",
                "Booked. The salmon pouches; nothing with chicken.",
            ),
        ),
    ),
    Talk(
        1 * DAY,
        "refund-4711",
        GRACE,
        (
            ("A customer wants 340 euros back. May I do that?", "Only with Noor's approval: it is above 200 euros."),
            ("And who updates the status page tonight?", "Whoever is on call."),
        ),
    ),
    Talk(
        5 * HOUR,
        "private-question",
        ConversationOptions(**ADA, incognito=True),
        (("How do I tell my team that I am leaving?", "Plainly, and in person."),),
    ),
    Talk(
        50 * MINUTE,
        "heron-release",
        ConversationOptions(**HERON, standing="off"),
        (
            ("Is heron ready for a release today?", "It is Thursday, so yes, once the smoke tests are green."),
            ("Where does the staging database run? I need to dump it.", "On db-2.heron.internal."),
            (LATE, "I would have to look that up."),
            ("Please do.", "The exporter listens on port 9464."),
            ("Thanks, that is all for now.", "Good luck with the release."),
            (BROKEN, "Das weiß ich nicht."),
        ),
    ),
)


def _fail_once(index: Any, scope: Any, words: Any, asked: Any, *others: Any) -> Any:
    if BROKEN.split()[0].lower() in str(words).lower():
        raise RuntimeError("the search failed on purpose")
    return read_query(index, scope, words, asked, *others)


async def build(path: Path) -> None:
    with mock.patch.object(search, "read_query", _fail_once):
        await _build(path)


async def _build(path: Path) -> None:
    clock, embedder = ShiftedClock(), SlowEmbedder()
    components = Components(clock=clock, embedder=embedder)
    settings: dict[str, Any] = {"tenant": "default"}
    async with afterturn.open(path, settings, components=components) as memory:
        await memory.ready()
        for space, text, target, days in STATEMENTS:
            clock.earlier = days * DAY
            await memory.space(space).add(text, target=target, origin="user")
        for talk in TALKS:
            clock.earlier = talk.ago
            await _play(memory, talk, clock, embedder)
        ada = memory.space("user:ada")
        await ada.add("The user's standing desk is number 14.", origin="agent", target="user")
        await ada.add("Never push to main of heron on a Friday.", target="environment", firm=True, project="heron")
        await _propose(ada)
        wrong = await ada.add("The user's phone number is 555 0142.", origin="user")
        await ada.forget(memory=wrong.entry.id)
        await memory.drain()


async def _propose(ada: afterturn.Space) -> None:
    """What waits in the inbox: a wish, a change and a deletion."""
    learned = {one.text: one.id for one in await ada.list(filter=Filter(kind="statement"))}
    prefers = next(id for text, id in learned.items() if "pnpm" in text)
    platform = next(id for text, id in learned.items() if "platform team" in text)
    await ada.add("Answer in Dutch on weekends.", origin="agent", agent="basil", metadata={"kind": "preference"})
    await ada.update(prefers, "The user prefers bun over npm, and short answers", origin="agent")
    await ada.delete(platform, origin="agent")


async def _play(memory: afterturn.Memory, talk: Talk, clock: ShiftedClock, embedder: SlowEmbedder) -> None:
    conversation = memory.conversation(talk.id, **talk.where)
    messages: list[dict[str, Any]] = []
    for asked, answer in talk.exchanges:
        messages.append({"role": "user", "content": asked})
        embedder.may_end.clear()
        async with conversation.turn(messages) as turn:
            await turn.inject(messages, within=0.0 if asked == LATE else 5.0)
            await asyncio.sleep(ANSWERS_AFTER)
            messages.append({"role": "assistant", "content": answer})
        embedder.may_end.set()
        await turn.wait_recorded()
        await asyncio.sleep(0.3)
        clock.earlier = max(1.0, clock.earlier - MINUTE)
    await memory.drain()


if __name__ == "__main__":
    asyncio.run(build(Path(sys.argv[1])))

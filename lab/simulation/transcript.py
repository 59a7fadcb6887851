"""A simulated conversation: its topics, the host's habits, its message list and what must be true of it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any, Literal, TypeAlias, TypedDict

from afterturn.recall.block import find_blocks

TOPICS = {
    "tea": "green jasmine oolong kettle",
    "sailing": "harbour regatta keel anchor",
    "compiler": "parser lexer bytecode linker",
    "garden": "tulip compost greenhouse rake",
    "opera": "soprano libretto overture aria",
}
MEMORIES_EACH = 4
OWNERS = ("user:ada", "user:bob")
# Words that a user says once, in one message: wherever one of them is found, it came from there.
MARK = re.compile(r"mark\d{9}")


def memories(owner: str) -> list[str]:
    """What the store knows before the first turn."""
    name = owner.partition(":")[2]
    return [
        f"{name} noted about {topic} number {number}: {words.split()[number % 4]}"
        for topic, words in TOPICS.items()
        for number in range(MEMORIES_EACH)
    ]


def question(random: Random) -> str:
    if random.random() < 0.1:
        return random.choice(["ok", "thanks", "…", "👍"])
    if random.random() < 0.2:
        return (
            f"{random.choice(['Remember that I like', 'I prefer', 'I have seen'])} mark{random.randrange(10**9):09d}."
        )
    topic = random.choice(sorted(TOPICS))
    return f"{random.choice(['What of', 'Tell me of', 'And'])} {topic} {random.choice(TOPICS[topic].split())}?"


def answer(random: Random) -> str:
    topic = random.choice(sorted(TOPICS))
    return f"Here is what there is on {topic}, part {random.randrange(1000)}."


def result(random: Random) -> str:
    return f"file {random.randrange(1000)} holds {random.choice(sorted(TOPICS))}"


class Kind(StrEnum):
    """What a host does with its list of messages.

    `growing`: it only grows. `merging`: the same, with placement="merge". `rebuilding`: it is written anew at steps,
    without our blocks. `hidden`: memory is shown this turn's messages alone. `writing`: the host writes its prompt
    itself, with `turn.block()`.
    """

    GROWING = "growing"
    MERGING = "merging"
    REBUILDING = "rebuilding"
    HIDDEN = "hidden"
    WRITING = "writing"


class Options(TypedDict, total=False):
    history: Literal["shown", "hidden"]
    placement: Literal["append", "merge"]


@dataclass(frozen=True, slots=True)
class Manners:
    """Chances from 0 to 1, each time there is an occasion. `stalls`: its client library blocks its loop."""

    kind: Kind
    grace: float
    stalls: float = 0.0
    aborts: float = 0.05
    cancels: float = 0.12
    completes: float = 0.5
    compacts: float = 0.1
    resets: float = 0.04
    types: float = 0.2
    interjects: float = 0.12
    cues: float = 0.12
    lingers: float = 0.08
    outlives: float = 0.1

    @property
    def is_shown(self) -> bool:
        return self.kind is not Kind.HIDDEN

    @property
    def options(self) -> Options:
        if self.kind is Kind.MERGING:
            return {"placement": "merge"}
        return {} if self.is_shown else {"history": "hidden"}


def draw(random: Random, grace: float, *, stalls: bool) -> Manners:
    return Manners(random.choice([Kind.GROWING, *Kind]), grace, stalls=0.2 if stalls else 0.0)


Message: TypeAlias = dict[str, Any]

_REFERENCE = re.compile(r"^- \[([^\]]+)\]", re.MULTILINE)


SUMMARY: tuple[Message, ...] = (
    {"role": "user", "content": "Summary: we talked."},
    {"role": "assistant", "content": "Let us go on."},
)


class Broken(AssertionError):
    """A promise was not kept."""


@dataclass(slots=True)
class Told:
    """One turn as its host knows it. `said` are the texts that a record of it must hold, in order.

    `promised`: the host left it complete while its memory was open. `acknowledged`: memory said that it is stored.
    `refused`: the host gave it up, so that nothing of it may be stored. `end`: how many messages the host had then.
    `began` and `left` are when, on the world's clock.
    """

    id: str
    process: str
    began: float
    said: list[str] = field(default_factory=list)
    promised: bool = False
    acknowledged: bool = False
    refused: bool = False
    end: int = 0
    left: float = 0.0


@dataclass(slots=True)
class Transcript:
    """One conversation: its list of messages, and its turns. The host keeps both whatever becomes of its process.

    `sent` is what the model was last shown. `resumable` is a turn that was left open for another process. `has_erased`:
    something was forgotten that our blocks may hold, so that not all of them are put back or written again.
    `is_forgotten`: the conversation was, and with it what was shown in it, though its host goes on.
    """

    id: str
    owner: str
    kind: Kind
    messages: list[Message] = field(default_factory=list)
    turns: list[Told] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    resumable: Told | None = None
    has_erased: bool = False
    is_forgotten: bool = False

    @property
    def own(self) -> int:
        """How many messages are the host's own; memory may put blocks back among them."""
        return sum(not is_block(message) for message in self.messages)

    def cut(self, own: int) -> None:
        """The host goes back to when it had so many messages of its own."""
        places = [at for at, message in enumerate(self.messages) if not is_block(message)]
        if own < len(places):
            del self.messages[places[own] :]
        self.sent = []
        for told in self.turns:
            told.end = min(told.end, own)

    def compact(self, kept: list[Message]) -> None:
        """A summary stands for what was said before."""
        self.messages[:] = [dict(message) for message in SUMMARY] + kept
        self.sent = []
        for told in self.turns:
            told.end = 0

    def recover(self, process: str) -> None:
        """After the death of a process: of its turns only those count of which memory said that they are stored."""
        kept = 0
        for told in self.turns:
            if told.process == process:
                told.promised = told.promised and told.acknowledged
            kept = told.end if told.acknowledged else kept
        self.resumable = None
        self.cut(kept)

    def send(self) -> None:
        """The model is called: what it was shown before is still the beginning of what it is shown (H3)."""
        if self.kind is Kind.REBUILDING and self.has_erased:
            self.sent = []
        now = [json.dumps(message) for message in self.messages]
        if now[: len(self.sent)] != self.sent:
            at = next((at for at, text in enumerate(self.sent) if text not in now[at : at + 1]), 0)
            raise Broken(f"H3: {self.id}: message {at} of the prompt was {self.sent[at]}, and is {now[at : at + 1]}")
        check_pairs(self.messages)
        self.sent = now


class Watch:
    """Looks at a list before a call of memory's and after it (H1, H3): `check` raises Broken."""

    def __init__(self, messages: list[Message], kind: Kind) -> None:
        self._before = [json.dumps(message) for message in messages]
        self._last = messages[-1] if messages else {}
        self._kind = kind
        self._messages = messages

    def check(self, added: Message | None) -> None:
        if self._kind is Kind.REBUILDING:
            kept = [json.dumps(message) for message in self._messages if not is_block(message)]
            if kept != [text for text in self._before if not is_block(json.loads(text))]:
                raise Broken("H6: the host's own messages were changed")
        elif added is not None and len(self._messages) == len(self._before):
            self._check_merged(added)
        else:
            self._check_grown(added)
        check_pairs(self._messages)

    def _check_merged(self, added: Message) -> None:
        same = [json.dumps(message) for message in self._messages[:-1]] == self._before[:-1]
        begins = str(added.get("content")).startswith(str(self._last.get("content")))
        if not same or self._messages[-1] is not added or self._last["role"] != "user" or not begins:
            raise Broken("H1: a merged block changed more than the end of the last user message")
        if json.dumps(self._last) != self._before[-1]:
            raise Broken("H1: the host's own message was edited")

    def _check_grown(self, added: Message | None) -> None:
        after = [json.dumps(message) for message in self._messages]
        if after[: len(self._before)] != self._before:
            raise Broken("H3: earlier messages were changed")
        more = self._messages[len(self._before) :]
        # More than one: a host that went back and says the same again gets the block back that stood there (H6).
        is_told = any(message is added for message in more) if more else added is None
        if not is_told or not all(is_block(message) for message in more):
            raise Broken(f"H3: {len(more)} messages were added, and {added!r} was returned")


def check_pairs(messages: list[Message]) -> None:
    """H1: between a call and its responses stands nothing."""
    waiting: set[str] = set()
    for message in messages:
        if waiting and (message["role"] != "tool" or message["tool_call_id"] not in waiting):
            raise Broken(f"H1: {message!r} stands between calls and their responses")
        if message["role"] == "tool":
            waiting.discard(message["tool_call_id"])
        waiting |= {call["id"] for call in message.get("tool_calls") or ()}


def check_references(messages: list[Message]) -> None:
    """H5: what the model can see already is not shown again."""
    shown = Counter(reference for text in _blocks(messages) for reference in _REFERENCE.findall(text))
    twice = [reference for reference, count in shown.items() if count > 1]
    if twice:
        raise Broken(f"H5: {', '.join(twice)} can be seen twice")


def is_block(message: Message) -> bool:
    text = message.get("content") or ""
    return message["role"] == "user" and any(found.start == 0 for found in find_blocks(text))


def _blocks(messages: list[Message]) -> Iterator[str]:
    for message in messages:
        text = message.get("content") or ""
        if message["role"] == "user":
            yield from (text[found.start : found.end] for found in find_blocks(text))

"""A simulated conversation: its topics, the host's habits, its message list and the checks on it."""

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
# Words that a user says only once: wherever one appears, it came from that message.
MARK = re.compile(r"mark\d{9}")


def memories(owner: str) -> list[str]:
    """The memories in the store before the first turn."""
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
    """How a host treats its list of messages.

    `growing`: it only appends. `merging`: the same, with placement="merge". `rebuilding`: it sometimes rebuilds the
    list without our blocks. `hidden`: memory gets only this turn's messages. `writing`: the host writes its prompt
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
class Habits:
    """Probabilities from 0 to 1 for each occasion. `stalls`: the host's client library blocks its loop."""

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


def draw(random: Random, grace: float, *, stalls: bool) -> Habits:
    return Habits(random.choice([Kind.GROWING, *Kind]), grace, stalls=0.2 if stalls else 0.0)


Message: TypeAlias = dict[str, Any]

_REFERENCE = re.compile(r"^- \[([^\]]+)\]", re.MULTILINE)


SUMMARY: tuple[Message, ...] = (
    {"role": "user", "content": "Summary: we talked."},
    {"role": "assistant", "content": "Let us go on."},
)


class PromiseBroken(AssertionError):
    """A promise was not kept."""


@dataclass(slots=True)
class SimulatedTurn:
    """One turn as its host knows it. `said` lists the texts that its records must contain, in order.

    `promised`: the host ended it while its memory was open. `acknowledged`: memory confirmed that it is stored.
    `refused`: the host cancelled it, so nothing of it may be stored. `end`: how many messages the host had then.
    `began` and `left` are times on the world's clock.
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
    """One conversation: its messages and turns. The host keeps both even if its process dies.

    `sent` is the last prompt. `resumable` is a turn that was left open for another process. `has_erased`: something was
    forgotten that our blocks may contain, so not all of them are restored. `is_forgotten`: the conversation was
    forgotten, although its host continues.
    """

    id: str
    owner: str
    kind: Kind
    messages: list[Message] = field(default_factory=list)
    turns: list[SimulatedTurn] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    resumable: SimulatedTurn | None = None
    has_erased: bool = False
    is_forgotten: bool = False

    @property
    def own(self) -> int:
        """How many messages are the host's own; memory may restore blocks between them."""
        return sum(not is_block(message) for message in self.messages)

    def cut(self, own: int) -> None:
        """The host goes back to its first `count` messages."""
        places = [at for at, message in enumerate(self.messages) if not is_block(message)]
        if own < len(places):
            del self.messages[places[own] :]
        self.sent = []
        for noted in self.turns:
            noted.end = min(noted.end, own)

    def compact(self, kept: list[Message]) -> None:
        """Replaces earlier messages by a summary."""
        self.messages[:] = [dict(message) for message in SUMMARY] + kept
        self.sent = []
        for noted in self.turns:
            noted.end = 0

    def recover(self, process: str) -> None:
        """After the death of a process: only turns that memory acknowledged count."""
        kept = 0
        for noted in self.turns:
            if noted.process == process:
                noted.promised = noted.promised and noted.acknowledged
            kept = noted.end if noted.acknowledged else kept
        self.resumable = None
        self.cut(kept)

    def send(self) -> None:
        """A model call: the previous prompt is still the beginning of this one (H3)."""
        if self.kind is Kind.REBUILDING and self.has_erased:
            self.sent = []
        now = [json.dumps(message) for message in self.messages]
        if now[: len(self.sent)] != self.sent:
            at = next((at for at, text in enumerate(self.sent) if text not in now[at : at + 1]), 0)
            raise PromiseBroken(
                f"H3: {self.id}: message {at} of the prompt was {self.sent[at]}, and is {now[at : at + 1]}"
            )
        check_pairs(self.messages)
        self.sent = now


class ListCheck:
    """Compares a list before and after a call to memory (H1, H3): `check` raises PromiseBroken."""

    def __init__(self, messages: list[Message], kind: Kind) -> None:
        self._before = [json.dumps(message) for message in messages]
        self._last = messages[-1] if messages else {}
        self._kind = kind
        self._messages = messages

    def check(self, added: Message | None) -> None:
        if self._kind is Kind.REBUILDING:
            kept = [json.dumps(message) for message in self._messages if not is_block(message)]
            if kept != [text for text in self._before if not is_block(json.loads(text))]:
                raise PromiseBroken("H6: the host's own messages were changed")
        elif added is not None and len(self._messages) == len(self._before):
            self._check_merged(added)
        else:
            self._check_grown(added)
        check_pairs(self._messages)

    def _check_merged(self, added: Message) -> None:
        same = [json.dumps(message) for message in self._messages[:-1]] == self._before[:-1]
        begins = str(added.get("content")).startswith(str(self._last.get("content")))
        if not same or self._messages[-1] is not added or self._last["role"] != "user" or not begins:
            raise PromiseBroken("H1: a merged block changed more than the end of the last user message")
        if json.dumps(self._last) != self._before[-1]:
            raise PromiseBroken("H1: the host's own message was edited")

    def _check_grown(self, added: Message | None) -> None:
        after = [json.dumps(message) for message in self._messages]
        if after[: len(self._before)] != self._before:
            raise PromiseBroken("H3: earlier messages were changed")
        more = self._messages[len(self._before) :]
        # More than one: a host that went back and says the same again gets the same block again (H6).
        is_told = any(message is added for message in more) if more else added is None
        if not is_told or not all(is_block(message) for message in more):
            raise PromiseBroken(f"H3: {len(more)} messages were added, and {added!r} was returned")


def check_pairs(messages: list[Message]) -> None:
    """H1: nothing is between a call and its responses."""
    waiting: set[str] = set()
    for message in messages:
        if waiting and (message["role"] != "tool" or message["tool_call_id"] not in waiting):
            raise PromiseBroken(f"H1: {message!r} is between calls and their responses")
        if message["role"] == "tool":
            waiting.discard(message["tool_call_id"])
        waiting |= {call["id"] for call in message.get("tool_calls") or ()}


def check_references(messages: list[Message]) -> None:
    """H5: memories that the model already sees are not added again."""
    shown = Counter(reference for text in _blocks(messages) for reference in _REFERENCE.findall(text))
    twice = [reference for reference, count in shown.items() if count > 1]
    if twice:
        raise PromiseBroken(f"H5: {', '.join(twice)} is visible twice")


def is_block(message: Message) -> bool:
    text = message.get("content") or ""
    return message["role"] == "user" and any(found.start == 0 for found in find_blocks(text))


def _blocks(messages: list[Message]) -> Iterator[str]:
    for message in messages:
        text = message.get("content") or ""
        if message["role"] == "user":
            yield from (text[found.start : found.end] for found in find_blocks(text))

"""The turns behind proxied requests: which one a request begins or continues, what it adds, and how it ends."""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from starlette.datastructures import Headers

from afterturn.conversation.conversation import Conversation
from afterturn.conversation.turn import Turn
from afterturn.dialects.dialect import Element
from afterturn.dialects.history import get_dialect
from afterturn.errors import Conflict, NotFound
from afterturn.hosts.server.access import Caller
from afterturn.hosts.server.memories import OpenMemories
from afterturn.hosts.server.proxy_answers import ApiFormat, ModelAnswer
from afterturn.hosts.server.proxy_body import RequestBody
from afterturn.hosts.server.proxy_conversations import (
    ProxiedConversation,
    find_conversation,
    find_owner,
    open_conversation,
)
from afterturn.types.conversations import TurnStatus

# Of turns that wait for the results of tools. A turn that is not among them is resumed from the store.
OPEN_TURNS_MAX = 500
OPEN_BYTES_MAX = 128 * 1024 * 1024
# Of responses that the provider keeps, and whose conversation is known.
RESPONSES_MAX = 5000
# How often a turn that was given up may be tried again.
ATTEMPTS_MAX = 5
_LINE = re.compile(r"^- ", re.MULTILINE)


class ProxyTurnKey(NamedTuple):
    """`turn` is blank for the newest turn of a conversation that the provider keeps. Callers may read different spaces,
    so none gets the turn of another."""

    caller: str
    tenant: str
    owner: str
    conversation: str
    turn: str


@dataclass(slots=True, eq=False)
class WaitingTurn:
    """`earlier` is what the model was shown in this turn, if the provider keeps it, and `unanswered` the last request
    then, until it is answered. `users` counts the requests under way."""

    turn: Turn
    earlier: list[Any] = field(default_factory=list)
    unanswered: ProxiedTurn | None = None
    size_bytes: int = 0
    users: int = 0


class MessageReading(NamedTuple):
    """`start` is the index of the message with which the turn began, None if it is not in the list. `continues`: the
    model has answered since, for example with the call of a tool."""

    elements: Sequence[Element | None]
    start: int | None
    continues: bool

    def digest(self, until: int, *more: str) -> str:
        """Identifies what was said up to an index. System instructions do not count, nor where a cache ends."""
        said = [element.digest if element is not None else "" for element in self.elements[: until + 1]]
        return hashlib.sha256("\n".join([*more, *said]).encode("utf-8", "surrogatepass")).hexdigest()[:24]


class ProxyTurns:
    """The turns of all proxied requests of a server."""

    def __init__(self, memories: OpenMemories) -> None:
        self._memories = memories
        self._open: OrderedDict[ProxyTurnKey, WaitingTurn] = OrderedDict()
        self._responses: OrderedDict[tuple[str, str, str], str] = OrderedDict()

    async def begin(self, caller: Caller, format: ApiFormat, headers: Headers, body: RequestBody) -> ProxiedTurn | None:
        """The turn of a request. None if it has nothing that a user said.

        Raises AfterturnError if memory cannot be used.
        """
        reading = read_list(format, body.elements)
        where = self._find_conversation(caller, headers, body, reading)
        start = reading.start
        turn = "" if start is None else f"proxy-{reading.digest(start, where.continues)}"
        key = ProxyTurnKey(caller.id, where.tenant, where.owner, where.id, turn)
        opened = self._open.get(key)
        if opened is None and turn:
            conversation = await open_conversation(self._memories, caller, where, format.dialect)
            opened = await _open_turn(conversation, turn, body.elements, reading, is_unnamed=where.is_unnamed)
        if opened is None:
            return None
        self._keep(key, opened, len(body.raw))
        if where.continues:
            self._keep(key._replace(turn=""), opened, len(body.raw))
            if opened.unanswered is not None and opened.unanswered.is_retried(body):
                return opened.unanswered
        given = [*opened.earlier, *body.elements]
        await opened.turn.inject(given)
        turn_of_request = ProxiedTurn(self, format, where, opened, given, body)
        opened.unanswered = turn_of_request if where.continues else None
        return turn_of_request

    def _find_conversation(
        self, caller: Caller, headers: Headers, body: RequestBody, reading: MessageReading
    ) -> ProxiedConversation:
        first = next((at for at, one in enumerate(reading.elements) if one is not None and _is_said(one)), 0)
        # The same beginning is the same conversation, so that its blocks go back to their places.
        unnamed = f"unnamed-{reading.digest(first)}"
        where = find_conversation(caller, headers, body.fields, find_owner(caller, headers, body.fields), unnamed)
        if where.id != where.continues:
            return where
        return replace(where, id=self._responses.get((where.tenant, where.owner, where.continues), where.continues))

    def _keep(self, key: ProxyTurnKey, opened: WaitingTurn, size_bytes: int) -> None:
        opened.size_bytes = size_bytes
        self._open[key] = opened
        self._open.move_to_end(key)
        while len(self._open) > OPEN_TURNS_MAX or sum(one.size_bytes for one in self._open.values()) > OPEN_BYTES_MAX:
            self._open.popitem(last=False)

    def drop(self, opened: WaitingTurn) -> None:
        """It has ended."""
        for key in [key for key, one in self._open.items() if one is opened]:
            del self._open[key]

    def note_response(self, where: ProxiedConversation, response: str) -> None:
        """The client may continue this response of the provider, in the same conversation."""
        if response:
            conversation = response if where.is_unnamed else where.id
            self._responses[(where.tenant, where.owner, response)] = conversation
            if len(self._responses) > RESPONSES_MAX:
                self._responses.popitem(last=False)


class ProxiedTurn:
    """One request of a turn. `body` is what is forwarded, `lines` is how many lines of memory are at its end."""

    def __init__(
        self,
        turns: ProxyTurns,
        format: ApiFormat,
        where: ProxiedConversation,
        opened: WaitingTurn,
        given: list[Any],
        body: RequestBody,
    ) -> None:
        self._turns, self._format, self.where, self._opened, self._given = turns, format, where, opened, given
        self._raw, self._is_answered = body.raw, False
        opened.users += 1
        shown = given[len(opened.earlier) :]
        is_changed = len(shown) > len(body.elements)
        self.body = body.with_added(shown) if is_changed else body.raw
        dialect, last = get_dialect(format.dialect), shown[-1]
        added = dialect.read(last) if is_changed and last is not body.elements[-1] else None
        self.lines = 0 if added is None else len(_LINE.findall(added.text_of("user")))

    @property
    def id(self) -> str:
        return self._opened.turn.id

    def is_retried(self, body: RequestBody) -> bool:
        """Whether this is the same request once more. The provider has not kept the first one, and no list shows that
        its block is gone."""
        is_same = body.raw == self._raw
        self._opened.users += is_same
        return is_same

    def note_answer(self, answer: ModelAnswer, response: str) -> None:
        """The answer is complete. The turn goes on if it has called a tool, or is to be continued."""
        self._is_answered, self._opened.unanswered = True, None
        self._turns.note_response(self.where, response)
        dialect = get_dialect(self._format.dialect)
        read = [(one, dialect.read(one)) for one in answer.elements]
        # Whatever a provider answers, the user has not said it.
        given = [*self._given, *(one for one, element in read if element is None or not _is_said(element))]
        if answer.is_final and not any(element is not None and element.calls for _, element in read):
            self._opened.turn.finish(given)
            self._turns.drop(self._opened)
        elif self.where.continues:
            self._opened.earlier = given

    def leave(self, *, is_aborted: bool) -> None:
        """The request is over. `is_aborted`: the client has gone, and so has its turn unless it was answered."""
        self._opened.users -= 1
        if is_aborted and not self._is_answered and not self._opened.users:
            self._opened.turn.abort("the client closed the connection")
            self._turns.drop(self._opened)


def read_list(format: ApiFormat, messages: Sequence[object]) -> MessageReading:
    dialect = get_dialect(format.dialect)
    elements = [dialect.read(message) for message in messages]
    start, is_answered = None, False
    for at in range(len(elements) - 1, -1, -1):
        element = elements[at]
        if element is None:
            continue
        if start is not None:
            # What follows the results of tools was said in the middle of a turn.
            if element.answers:
                start = None
            elif element.role != "system":
                break
        if start is None and _is_said(element) and not element.answers:
            start = at
        is_answered = is_answered or (
            start is None and (element.role in ("assistant", "tool") or bool(element.answers))
        )
    return MessageReading(elements, start, is_answered)


def _is_said(element: Element) -> bool:
    return any(one.role == "user" for one in element.utterances)


async def _open_turn(
    conversation: Conversation, id: str, messages: list[Any], reading: MessageReading, *, is_unnamed: bool
) -> WaitingTurn:
    """A request that is sent again gets the same turn while that is open, and a new one if it was given up. If the turn
    was recorded, the new answer is not."""
    for attempt in range(ATTEMPTS_MAX):
        named = id if attempt == 0 else f"{id}-{attempt}"
        try:
            if reading.continues:
                try:
                    return WaitingTurn(await conversation.resume_turn(named))
                except NotFound:
                    pass  # it began before the server did, or without it
            return WaitingTurn(await conversation.start_turn(messages, id=named))
        except Conflict:
            if is_unnamed or await _is_recorded(conversation, named):
                break
    return WaitingTurn(await conversation.start_turn(messages, incognito=True))


async def _is_recorded(conversation: Conversation, id: str) -> bool:
    found = await conversation.trace(id)
    return any(one.turn.status is TurnStatus.COMPLETED for one in found.turns)

"""A turn as its host uses it. Its verbs never raise, and never wait longer than the host agreed to.

If memory fails inside `never_raises`, the turn continues without it.
"""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import Callable, Coroutine, Iterator, MutableSequence, Sequence
from itertools import islice
from types import TracebackType
from typing import Any, Concatenate, Literal, NamedTuple, ParamSpec, Protocol, TypeAlias, TypeVar

from afterturn.conversation.delivery import (
    BETWEEN,
    BlockPosition,
    HostTurn,
    Injection,
    PhaseRun,
    TurnMessages,
    copy_messages,
    find_index,
    insert_block,
)
from afterturn.conversation.engine import ConversationEngine
from afterturn.conversation.proposals import ProposalContext
from afterturn.conversation.read_turn import end_anchor, scan_blocks
from afterturn.conversation.subagents import assemble
from afterturn.dialects.dialect import Dialect, field
from afterturn.dialects.history import any_untrusted, find_dialect, find_point, find_user, follow_dialect
from afterturn.errors import AfterturnError, Conflict, ForkedProcess, InvalidInput, MemoryClosed
from afterturn.guard.pasted import has_pasted
from afterturn.guard.scanning import scanner
from afterturn.log import logger
from afterturn.models.meter import MODEL_TIMEOUT
from afterturn.recall.block import spoken_words
from afterturn.scanners.secrets import redact_within
from afterturn.tool_rules.advice import NO_ADVICE, GivenRules, ToolAdvice, ToolRule
from afterturn.types import HandoverPoint, Hit, Phase, RecallCause, Taint


class HostBoundary(Protocol):
    """A public object in front of memory's code."""

    @property
    def _core(self) -> ConversationEngine: ...


F = TypeVar("F", bound=HostBoundary)
P = ParamSpec("P")
R = TypeVar("R")


def never_raises(method: Callable[Concatenate[F, P], R]) -> Callable[Concatenate[F, P], R | None]:
    """Memory's fault never fails the host's turn: it is logged, and the call returns None."""

    @functools.wraps(method)
    def call(self: F, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            self._core.check()
            return method(self, *args, **kwargs)
        except ForkedProcess:
            self._core.warn_misuse("memory_forked", "in a forked child; open memory again there")
        except MemoryClosed:
            self._core.warn_misuse("memory_closed", "after its memory was closed")
        except Exception:  # the boundary: an error of memory must not end the host's turn
            logger.exception("memory failed; the turn continues without it")
        return None

    return call


M = TypeVar("M")

PhaseName: TypeAlias = Literal["fast", "refined"]
WITHIN_MAX = 86_400.0
REASON_CHARS_MAX = 200
# Enough to recognise a format by, or the place up to which a list is known; lists may be endless, and need not support
# slices.
NEWEST_EXAMINED = 32
# How many new messages of one step are searched for something that the user said.
ADDED_MAX = 1000
# A shorter text that was reported must be all that the user said.
QUOTED_CHARS_MIN = 16


class Wait(NamedTuple):
    """The recall that a call waits for, and the seconds."""

    run: PhaseRun
    seconds: float


class TurnVerbs:
    """The verbs that are the same with and without an event loop. They may be called from any thread."""

    def __init__(self, core: ConversationEngine, turn: HostTurn | None, messages: Sequence[object] | None) -> None:
        self._core = core
        self._turn = turn
        self._messages = messages
        self._completed: TurnMessages | None = None
        self._left = self._is_entered = False

    def __repr__(self) -> str:
        if self._turn is None:
            return f"<Turn of {self._core.key.id}, without memory>"
        return f"<Turn {self._turn.id} of {self._core.key.id}, {'ended' if self._left else 'open'}>"

    def _enter(self) -> None:
        if self._is_entered:
            raise Conflict("This turn was entered before. Begin another: `conversation.turn(messages)`.")
        self._is_entered = True

    def _warn_if_left(self) -> bool:
        """Whether the turn has ended. Reported once: no error may come out of a turn's verbs."""
        if self._left:
            how = "after it had ended (begin another: `conversation.turn(messages)`)"
            self._core.warn_misuse("turn_reused", how)
        return self._left

    @property
    def id(self) -> str:
        """Identifies the turn: recording it twice under one id stores it once. Blank if memory is closed."""
        return self._turn.id if self._turn else ""

    def inject_now(self, messages: MutableSequence[M]) -> M | None:
        """Adds the block to `messages` if it is ready and may be added here, and returns the new element. Never waits.

        Also puts back blocks that were dropped because you rebuilt the list.
        """
        self._notice(messages)
        return self._inject(messages)

    @never_raises
    def _inject(self, messages: MutableSequence[M]) -> M | None:
        """What is new in the list was noticed before."""
        turn = self._turn
        if turn is None or self._warn_if_left():
            return None
        if not isinstance(messages, MutableSequence):
            raise InvalidInput(f"`messages` must be a list that can grow, not {type(messages).__name__}.")
        self._messages = messages
        # First, because what is read from now on is too late for this call of the model.
        turn.shared.mark_model_called()
        if self._core.has_nothing_for(turn, messages):
            return None
        place = self._find_place(turn, messages)
        if place is None:
            return None
        dialect, point = place
        put_back = self._core.restore_blocks(turn, dialect, messages)
        injection = self._core.take(turn)
        return put_back if injection is None else self._hand_over(turn, injection, dialect, messages, point)

    def _hand_over(
        self, turn: HostTurn, injection: Injection, dialect: Dialect, messages: MutableSequence[M], point: HandoverPoint
    ) -> M:
        # A host that hides its history never gets a block put back, so its blocks need no anchor.
        anchor = ""
        if not turn.scope.is_hidden:
            anchor = end_anchor(dialect, messages, self._core.visible.blocks, turn.shared.chain)
        # Noted first: if memory is closing, this raises, and no block is added that would not be recognised later.
        rows = self._core.note_delivery(turn, injection, point, anchor)
        last, length = messages[-1], len(messages)
        text = BETWEEN.join(row.text for row in rows)
        index, element = insert_block(dialect, messages, text, turn.scope.placement)
        position = BlockPosition(index, element)
        user = turn.user_position
        if len(messages) == length:
            # The block was merged into a copy of the last element.
            turn.followed = position
            if user is not None and last is user.element:
                turn.user = position
        turn.shared.add_positions({row.hash: position for row in rows})
        return element

    def block_now(self) -> str:
        """The blocks of this turn as text, for hosts that write their prompt again at every step. Never waits.

        Once the text is not empty, later calls return the same bytes, possibly with more at the end.
        """
        return self._block_now() or ""

    @never_raises
    def _block_now(self) -> str:
        turn = self._turn
        if turn is None or self._warn_if_left():
            return ""
        injection = self._core.take(turn)
        if injection is not None:
            for row in self._core.note_delivery(turn, injection, HandoverPoint.PROMPT, ""):
                turn.shared.add_prompt_text(row.hash, row.text)
        return BETWEEN.join(turn.shared.prompt_texts)

    @never_raises
    def interject(self, text: str) -> None:
        """The user said more during the turn, and you have appended it to the messages: starts a new recall.

        If you show your messages, `inject` notices it too, and it is asked once.
        """
        self._start_epoch(text, RecallCause.INTERJECTION)

    @never_raises
    def cue(self, text: str) -> None:
        """The turn has a new focus, in your words: starts a new recall. At most four times in a turn."""
        self._start_epoch(text, RecallCause.CUE)

    def _start_epoch(self, text: str, cause: RecallCause) -> None:
        if not isinstance(text, str):
            raise InvalidInput(f"{cause} takes text, not {type(text).__name__}.")
        turn = self._turn
        if turn is None or self._warn_if_left():
            return
        if cause is RecallCause.INTERJECTION and text.strip():
            if _take_same(turn, turn.noticed, text.strip()):
                return
            turn.reported.append(text.strip())
            if has_pasted(text):
                self._core.mark_tainted(turn.shared, Taint.TOOL)
        self._core.start_epoch(turn, text, cause)

    @property
    def is_incognito(self) -> bool:
        """Whether nothing of this turn is recorded or learned."""
        return self._turn is not None and self._turn.shared.incognito

    @never_raises
    def _ask_clean(self, messages: Sequence[object] | None) -> Coroutine[Any, Any, bool] | None:
        """The question of `is_clean`, to be run on memory's loop."""
        turn = self._turn
        if turn is None or self._left or self._core.loop.in_thread:
            return None
        if messages is not None:
            self._notice_taint(turn, messages)
        return self._core.is_clean(turn)

    def delegate(self, task: str, *, remember: bool = False) -> str:
        """The prompt for a sub-agent: the task, what this turn has recalled about it, and its memory tools.

        Leaves out what has nothing to do with the task, and what is not trusted. With `remember` the sub-agent may
        propose memories. Never waits; `delegate_with_recall` does.
        """
        return self._delegate_with(task, None, remember=remember)

    def _delegate_with(self, task: str, answer: Sequence[Hit] | None, *, remember: bool) -> str:
        written = self._delegate(task, answer, remember=remember)
        return written or assemble(task if isinstance(task, str) else "", ())

    @never_raises
    def _delegate(self, task: str, answer: Sequence[Hit] | None, *, remember: bool) -> str | None:
        turn = self._turn
        if turn is None:
            return None
        context = proposal_context(turn)
        return self._core.subagents.delegate(context, turn.loop.recalled, task, remember=remember, answer=answer)

    @never_raises
    def _recall_for(self, task: str, within: float | None) -> Coroutine[Any, Any, list[Hit] | None] | None:
        """The recall that `delegate_with_recall` waits for, to be run on memory's loop."""
        if self._turn is None or not isinstance(task, str) or self._core.loop.in_thread:
            return None
        seconds = None if within is None else _bounded(within)
        return self._core.subagents.recall_for(self._turn.scope, task, within=seconds)

    @never_raises
    def _rules_for(self, name: str, arguments: object) -> Coroutine[Any, Any, list[ToolRule]] | None:
        """What `before_tool` waits for, to be run on memory's loop."""
        turn = self._turn
        if turn is None or self._left or self._core.loop.in_thread:
            return None
        return self._core.find_tool_rules(turn.scope, turn.id, str(name), arguments)

    def _advise(self, rules: Sequence[ToolRule], name: str, arguments: object) -> ToolAdvice:
        return self._advised(rules, name, arguments) or NO_ADVICE

    @never_raises
    def _advised(self, rules: Sequence[ToolRule], name: str, arguments: object) -> ToolAdvice:
        turn = self._turn
        if turn is None or not rules:
            return NO_ADVICE
        with turn.shared.lock:
            turn.given_rules = turn.given_rules or GivenRules()
            advice = turn.given_rules.choose(rules, str(name), arguments)
        if advice.rules:
            self._core.post(self._core.note_tool_rules, turn.id, str(name), advice)
        return advice

    @never_raises
    def returned(self, task: str, result: object, *, accept: bool = False) -> None:
        """A sub-agent has finished: what it learned is proposed, or stored at once with `accept`.

        `result` is a list of statements, or a text; of a long text, its bullet points are proposed. With `accept` they
        are recalled as a sub-agent's reports, unless `approval` says that they wait. An incognito turn stores nothing.
        """
        if self._turn is not None:
            self._core.mark_tainted(self._turn.shared, Taint.SUBAGENT)
            if not self._turn.shared.incognito:
                self._core.subagents.returned(proposal_context(self._turn), task, result, accept=accept is True)

    @never_raises
    def complete(self, messages: Sequence[object] | None = None) -> None:
        """The agent has answered. Omit `messages` if it is the list that `turn` was given."""
        if self._turn is None or not self._warn_if_left():
            self._complete(messages)

    @never_raises
    def abort(self, reason: str = "aborted") -> None:
        """Gives the turn up: nothing more is delivered, and nothing is recorded."""
        if self._turn is not None and not self._left:
            self._left = True
            # The reason becomes a stored event, and may well be an error's message.
            scan = scanner(scanning=self._core.config.scan_policy)
            redacted = redact_within(str(reason), REASON_CHARS_MAX, scan).text
            self._core.finished_turns.abort(self._turn, redacted.encode("utf-8", "replace").decode())

    @never_raises
    def finish(self, messages: Sequence[object] | None = None) -> None:
        """`complete` and leave, for a turn that is not a `with` block."""
        self._complete(messages)
        self._leave(failed=False)

    def _complete(self, messages: Sequence[object] | None) -> None:
        if messages is not None:
            self._messages = messages
        if self._turn is not None:
            self._completed = copy_messages(self._messages or (), self._turn)

    @never_raises
    def _leave(self, *, failed: bool) -> None:
        turn = self._turn
        if turn is None or self._left:
            return
        self._left = True
        try:
            messages = self._completed or copy_messages(self._messages or (), turn)
        except Exception:
            self._core.finished_turns.abort(turn, "unreadable_messages")
            raise
        self._core.finished_turns.leave(turn, messages, completed=self._completed is not None, failed=failed)

    # Waiting, shared by both kinds of turn.

    @never_raises
    def _find_wait(
        self, messages: Sequence[object] | None, within: float | None, phase: PhaseName, now: float
    ) -> Wait | None:
        """The recall that a hand-over may wait for, and how long: until the grace ends that its first point began.

        Agents that run at the same time in one turn all wait until then.
        """
        turn = self._turn
        if turn is None or self._left:
            return None
        self._notice(messages)
        run = turn.shared.find_run(Phase(phase))
        if run.settled.settled or run.consumed or (phase == "fast" and run.phase is Phase.REFINED):
            return None
        grace, correlation = self._core.config.grace, run.prefetch.correlation
        by_grace = within is None and phase == "fast"
        if by_grace and (grace == 0 or now >= turn.grace_ends.get(correlation, math.inf)):
            return None
        if messages is not None and self._find_place(turn, messages) is None:
            return None
        if within is not None:
            return Wait(run, _bounded(within))
        if phase == "refined":
            # The most that both phases may take: then it has settled, one way or the other.
            return Wait(run, self._core.config.recall_timeout + MODEL_TIMEOUT)
        ends = turn.grace_ends.setdefault(correlation, now + grace)
        # Never longer than the grace, though calls with and without an event loop may read different clocks.
        return Wait(run, min(ends - now, grace))

    def _waits(
        self, messages: Sequence[object] | None, within: float | None, phase: PhaseName, clock: Callable[[], float]
    ) -> Iterator[Wait]:
        """The recalls that one hand-over waits for, one after the other, all within the time of the first.

        There may be several: a compaction is noticed only when the turn's list was read, and replaces its recall.
        """
        deadline, waited = None, set[PhaseRun]()
        while deadline is None or clock() < deadline:
            now = clock()
            wait = self._find_wait(messages, within, phase, now)
            if wait is None or wait.run in waited:
                return
            deadline = now + wait.seconds if deadline is None else deadline
            waited.add(wait.run)
            yield wait._replace(seconds=deadline - now)
        self._notice(messages)

    @never_raises
    def _notice(self, messages: Sequence[object] | None) -> None:
        """Looks for what is new in the list: text of others, something that the user said, a compaction."""
        turn = self._turn
        if turn is None or self._left or messages is None:
            return
        if turn.shared.taint is None:
            self._notice_taint(turn, messages)
        if not turn.scope.is_hidden:
            self._notice_user(turn, messages)
        if turn.shared.is_intact(messages):
            return
        place = self._find_place(turn, messages)
        if place is not None:
            self._core.notice_compaction(turn, place[0], messages)

    def _notice_taint(self, turn: HostTurn, messages: Sequence[object]) -> None:
        """Text of others may be in this list, and not in the one that the turn is left with.

        Looked at again at each step, because hosts edit their messages.
        """
        began, start = turn.began_at, 0
        if began is not None and began.holds(messages):
            # What is before was read when the turn began.
            start = began.index
        dialect = self._detect(turn, messages)
        if dialect is None:
            return
        newest = range(max(start, len(messages) - ADDED_MAX), len(messages))
        elements = [dialect.read(messages[at]) for at in newest]
        said = [element.text_of("user") for element in elements[-NEWEST_EXAMINED:] if element is not None]
        texts = (spoken_words(text, self._core.visible.blocks) for text in said if text)
        if any_untrusted(elements) or any(map(has_pasted, texts)):
            self._core.mark_tainted(turn.shared, Taint.TOOL)

    def _notice_user(self, turn: HostTurn, messages: Sequence[object]) -> None:
        """A user's message that was appended in the middle of the turn, and not reported, is an interjection."""
        last = len(messages) - 1
        if last < 0 or (turn.followed is not None and turn.followed.index == last):
            return
        start = self._find_unread(turn, messages)
        turn.followed = BlockPosition(last, messages[last])
        if start is None:
            return
        added = [messages[at] for at in range(max(start, last + 1 - ADDED_MAX), last + 1)]
        dialect = self._detect(turn, added)
        if dialect is None:
            return
        self._notice_provider(turn, messages, added, dialect)
        # A look at one field: most steps add only calls and responses, and a block of ours.
        ours = {id(position.element) for position in turn.shared.positions.values()}
        others = [message for message in added if id(message) not in ours]
        spoken = [message for message in others if field(message, "role") in ("user", None)]
        elements = [dialect.read(message) for message in spoken]
        texts = [spoken_words(one.text_of("user"), self._core.visible.blocks).strip() for one in elements if one]
        said = [text for text in texts if text and not _take_same(turn, turn.reported, text)]
        if said:
            turn.noticed.extend(said)
            self._core.start_epoch(turn, "\n".join(said), RecallCause.INTERJECTION)

    def _notice_provider(
        self, turn: HostTurn, messages: Sequence[object], added: Sequence[object], dialect: Dialect
    ) -> None:
        """An answer among the newest elements may say that the provider has compacted its context."""
        if not any(one.compacted for one in map(dialect.read, added) if one is not None):
            return
        # An answer may repeat what an earlier one has said.
        if scan_blocks(dialect, messages, ()).start >= len(messages) - len(added):
            self._core.compactions.examine(turn, list(messages), dialect, "seen")

    def _find_unread(self, turn: HostTurn, messages: Sequence[object]) -> int | None:
        """The index after the last element that was looked at, or None if the list is another one."""
        if turn.followed is None:
            return None
        index = find_index(messages, turn.followed)
        if index is None and (dialect := self._detect(turn, messages)) is not None:
            # A host that rebuilds its list has another object there, which says the same.
            known = dialect.read(turn.followed.element)
            newest = range(len(messages) - 1, max(-1, len(messages) - 1 - NEWEST_EXAMINED), -1)
            index = next((at for at in newest if known is not None and dialect.read(messages[at]) == known), None)
        return None if index is None else index + 1

    def _detect(self, turn: HostTurn, messages: Sequence[object]) -> Dialect | None:
        """The format that the host named, or in which the turn began, unless the newest messages are in another."""
        if not messages:
            return None
        newest = list(islice(reversed(messages), NEWEST_EXAMINED))[::-1]
        opened, named = turn.shared.opened.peek(), turn.scope.dialect
        if opened is not None and named is None:
            found = follow_dialect(self._core.dialects[opened.dialect], newest)
        else:
            found = find_dialect(newest, named)
        return None if found is None else self._core.dialects[found]

    def _find_place(self, turn: HostTurn, messages: Sequence[object]) -> tuple[Dialect, HandoverPoint] | None:
        """The format of the messages, and the point at which a block may be added now.

        A call that an earlier turn left without a response does not stop it.
        """
        dialect = self._detect(turn, messages)
        if dialect is None:
            return None
        point = find_point(dialect, messages)
        if point is None and (start := self._find_start(turn, dialect, messages)) is not None:
            point = find_point(dialect, messages, turn_start=start)
        return None if point is None else (dialect, point)

    def _find_start(self, turn: HostTurn, dialect: Dialect, messages: Sequence[object]) -> int | None:
        """The index of the user's message with which the turn began."""
        if turn.began_at is None:
            # The turn was started elsewhere: only the text of its user message is known.
            strip = functools.partial(spoken_words, known_hashes=self._core.visible.blocks)
            return find_user(dialect, messages, turn.loop.user_hash, strip)
        index = find_index(messages, turn.began_at)
        if index is None and turn.began_at.index < len(messages):
            # A host that rebuilds its list has another object there, which says the same.
            index = turn.began_at.index
            if dialect.read(messages[index]) != dialect.read(turn.began_at.element):
                return None
        while index is not None and index >= 0:
            element = dialect.read(messages[index])
            if element is None or element.role != "system":
                return index if element is not None and element.role == "user" else None
            index -= 1
        return None

    def _recording_within(self, within: float) -> float | None:
        """How long to wait for the recording; None when nothing will ever be known here."""
        if self._turn is None or not self._left or self._core.loop.forked:
            return None
        try:
            return 0.0 if self._core.loop.gone else _bounded(within)
        except (TypeError, ValueError, OverflowError):
            logger.warning("wait_recorded(%r): pass a number of seconds", within)
            return 0.0


def recalled_hits(turn: TurnVerbs) -> tuple[Hit, ...]:
    """Everything that was recalled for the turn so far, whether a block shows it or not."""
    return () if turn._turn is None else turn._turn.loop.recalled


async def wait_read(turn: TurnVerbs, *, within: float) -> None:
    """Waits until the messages that the turn began with were read. Returns at once if they were."""
    if turn._turn is not None:
        await turn._turn.shared.opened.wait(within=within)


class Turn(TurnVerbs):
    """One user message and the agent's answer: `async with conversation.turn(messages) as turn`."""

    async def inject(
        self, messages: MutableSequence[M], *, within: float | None = None, phase: PhaseName = "fast"
    ) -> M | None:
        """Adds the block to `messages` and returns the new element, or None if there is nothing to add.

        Waits for it up to `grace` seconds, once for each thing that the user says and for each compaction; calls at the
        same time wait together. `within` replaces the grace at this call. `phase="refined"` waits for the choice of a
        model.
        """
        for wait in self._waits(messages, within, phase, asyncio.get_running_loop().time):
            await wait.run.settled.wait(within=wait.seconds)
        return self._inject(messages)

    async def block(self, *, within: float | None = None, phase: PhaseName = "fast") -> str:
        """`block_now`, waiting as `inject` does."""
        for wait in self._waits(None, within, phase, asyncio.get_running_loop().time):
            await wait.run.settled.wait(within=wait.seconds)
        return self.block_now()

    async def delegate_with_recall(self, task: str, *, remember: bool = False, within: float | None = None) -> str:
        """As `delegate`, with what memory knows about the task, whether this turn has recalled it or not.

        Waits for that up to `within` seconds (default: `recall_timeout`), then uses what the turn has recalled. Never
        raises.
        """
        asked, answer = self._recall_for(task, within), None
        if asked is not None:
            try:
                answer = await self._core.loop.run(asked)
            except AfterturnError:
                logger.warning("a task was delegated without a recall, because memory is closing")
        return self._delegate_with(task, answer, remember=remember)

    async def is_clean(self, messages: Sequence[object] | None = None) -> bool:
        """Whether no text of others has reached the assistant so far, in this turn or earlier in the conversation.

        Pass the messages of the turn so far if `inject` has not seen them all. False if it is not known. Never raises.
        """
        asked = self._ask_clean(messages)
        try:
            return asked is not None and await self._core.loop.run(asked)
        except (AfterturnError, TimeoutError):
            return False

    async def before_tool(self, name: str, arguments: object) -> ToolAdvice:
        """Call it before a tool runs: the standing rules that concern this very call, and whether one refuses it.

        `arguments` are those of the call. Each rule is returned once per turn, and again if the same call repeats.
        Needs no model and takes milliseconds. Never raises: if memory fails, there are no rules.
        """
        asked, rules = self._rules_for(name, arguments), list[ToolRule]()
        if asked is not None:
            try:
                rules = await self._core.loop.run(asked)
            except AfterturnError:
                logger.warning("a tool call was not checked against rules, because memory is closing")
        return self._advise(rules, name, arguments)

    async def wait_recorded(self, within: float = 5.0) -> bool:
        """Call it after the turn: whether it is durably stored, as far as that is known within `within` seconds."""
        wait = self._recording_within(within)
        if self._turn is None or wait is None:
            return False
        return await self._turn.shared.recorded.wait(within=wait) is True

    async def __aenter__(self) -> Turn:
        self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave(failed=kind is not None)


def proposal_context(turn: HostTurn) -> ProposalContext:
    """`since` is None until the turn's messages are read."""
    opened = turn.shared.opened.peek()
    return ProposalContext(turn.scope, turn.id, opened.forgets if opened is not None else None)


def _bounded(within: float) -> float:
    """Seconds that a thread can wait; it cannot wait for infinity."""
    return min(max(float(within), 0.0), WITHIN_MAX)


def _take_same(turn: HostTurn, texts: list[str], said: str) -> bool:
    """Removes the text that says the same from `texts`. A host may add something to what it reports, such as a name."""
    with turn.shared.lock:
        for text in texts:
            shorter, longer = sorted((text, said), key=len)
            if shorter == longer or (len(shorter) >= QUOTED_CHARS_MIN and shorter in longer):
                texts.remove(text)
                return True
    return False

"""Records finished turns in the background, retries what fails, and reports why a turn was not recorded."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from afterturn.config import Config
from afterturn.conversation.delivery import LoopTurn, TurnMessages
from afterturn.conversation.recall_client import OVERLOAD
from afterturn.conversation.record_sinks import RecordSink, RecordSinks
from afterturn.conversation.recording import Key, Recording, RecordingOutcome, RecordingResult, SinkKind, is_exchange
from afterturn.conversation.scope import is_private
from afterturn.conversation.spill import Spill, covers
from afterturn.conversation.tools import holds_answer
from afterturn.dialects.dialect import Dialect, Strip
from afterturn.dialects.history import (
    Exchange,
    any_untrusted,
    find_dialect,
    find_exchange,
    find_latest_user,
    read_exchange,
)
from afterturn.errors import DeadlineExceeded, KeyMissing, MemoryClosed, StoreError
from afterturn.events import Events
from afterturn.guard import gate
from afterturn.guard.output_filter import SNAPSHOT_START
from afterturn.guard.pasted import has_pasted
from afterturn.guard.scanning import scanner
from afterturn.log import logger
from afterturn.ports import Worker
from afterturn.recall.block import spoken_words
from afterturn.runtime.loop_thread import run_on
from afterturn.runtime.once_future import OnceFuture
from afterturn.runtime.supervisor import Supervisor
from afterturn.scanners.secrets import MARGIN_CHARS, redact
from afterturn.text import content_hash
from afterturn.types import BlockRow, Message, Scalar, Selector, Taint

# Turns that memory holds at once; others wait in files.
RECORDING_QUEUE_MAX = 1_000
RETRY_FIRST = 0.5
RETRY_MOST = 30.0
# It may take minutes to notice that a server does not answer, and a host that is killed meanwhile loses what is only in
# its memory. So a turn that takes longer than this to be stored is written to a file, too.
SPILL_AFTER = 1.0
# How many of these are written at a time. Others may be stored meanwhile, which costs less.
SPILLING_MAX = 16
# Closing writes turns to a file if they are not stored after this share of its time. A few are stored long before.
STORING_SHARE = 0.1
SWITCHED_OFF = "switched_off"
INCOGNITO = "incognito"
NO_FINAL_ANSWER = "no_final_answer"


@dataclass(eq=False, slots=True)
class PendingTurn:
    """A turn that is not recorded yet. `spilled`: it is also in a file, for a later process, or on its way there.
    `saved`: it is there."""

    recording: Recording
    recorded: OnceFuture[bool]
    spilled: bool = False
    saved: bool = False

    @property
    def key(self) -> Key:
        return self.recording.key


class Recorder:
    """Used on memory's loop, except `admit` and `append`, which hosts call from any thread. `enqueue` never fails and
    never waits; its once-future settles when the turn is stored."""

    def __init__(
        self,
        sinks: RecordSinks,
        events: Events,
        supervisor: Supervisor,
        file_writer: Worker,
        spill: Spill,
        wake_jobs: Callable[[], None],
    ) -> None:
        self._sinks = sinks
        self._events = events
        self._supervisor = supervisor
        self.file_writer = file_writer
        self.spill = spill
        self._wake_jobs = wake_jobs
        self._under_way: set[asyncio.Task[None]] = set()
        # In the order in which they ended. Files are stored in this order too.
        self._recording: dict[PendingTurn, None] = {}
        self._waiting: OrderedDict[Key, PendingTurn] = OrderedDict()
        self._retrying: asyncio.Task[None] | None = None
        # Turns that their hosts have left and that are being read, each with a function that makes its recording now.
        self._reading: dict[LoopTurn, Callable[[], Recording | None]] = {}
        # Those of them that closing did not wait for.
        self._saved_early: set[Key] = set()
        # Those whose end was posted to memory's loop. Changed by hosts too, under the lock.
        self._posted = 0
        self._lock = threading.Lock()
        # How many turns are being written to the file of `append` and wait in it. Changed under the lock.
        self._appending = self._appended = 0
        # The newest that were stored from files. Closing may have saved a turn in two, and a provider is asked once.
        self._recovered: deque[Key] = deque(maxlen=RECORDING_QUEUE_MAX)
        # How many turns are being written to files of their own, are nowhere.
        self._spilling = self._lost = 0
        # How many of these turns may be tainted, by conversation. Its later turns may be stored earlier.
        self._tainted: Counter[tuple[str, ...]] = Counter()

    def admit(self) -> bool:
        """Whether memory may hold one more turn that has ended. Then `track_reading` follows, on memory's loop."""
        with self._lock:
            if self._posted + len(self._reading) + len(self._recording) >= RECORDING_QUEUE_MAX:
                return False
            self._posted += 1
            return True

    def append(self, recording: Recording) -> bool:
        """Adds a turn to a file, because memory may not hold it. False if that is not possible."""
        if self._sinks.own is SinkKind.NOBODY:
            return False
        completed, is_added = self._completed(recording), False
        may_taint = recording.taint is not None or bool(recording.shown)
        with self._lock:
            self._appending += 1
            self._tainted[recording.key[:3]] += may_taint
        try:
            self.spill.append(completed)
            is_added = True
        except OSError as error:
            logger.warning("a finished turn cannot be appended to a file in %s: %s", self.spill.folder, error)
        finally:
            with self._lock:
                self._appending -= 1
                self._appended += is_added
                self._tainted[recording.key[:3]] -= may_taint and not is_added
        return is_added

    def _completed(self, recording: Recording) -> Recording:
        taint = Taint.EARLIER if self._tainted[recording.key[:3]] else None
        return replace(recording, kept_by=self._sinks.own, taint=recording.taint or taint)

    def track_reading(
        self, turn: LoopTurn, make: Callable[[], Recording | None], task: asyncio.Task[None], *, admitted: bool
    ) -> None:
        """The messages of a turn that has ended are being read by `task`, which enqueues its recording."""
        with self._lock:
            self._posted -= admitted
        self._reading[turn] = make
        self.expect(task)
        task.add_done_callback(lambda _: self._reading.pop(turn, None))

    def note_appended(self, turn: LoopTurn) -> None:
        """The turn was left to `append`. It is stored when fewer turns end."""
        turn.shared.recorded.settle(False)
        self._start_retrying()

    def expect(self, task: asyncio.Task[None]) -> None:
        """A turn is being read and will be enqueued: closing waits for it too."""
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def enqueue(self, recording: Recording, recorded: OnceFuture[bool]) -> None:
        if recording.key in self._saved_early:
            return
        pending = PendingTurn(self._completed(recording), recorded)
        self._recording[pending] = None
        task = self._supervisor.start(self._record(pending), f"record {recording.turn}")
        self.expect(task)
        task.add_done_callback(lambda _: self._ended(pending))

    async def recover(self) -> None:
        """Stores the turns in the spill folder: of earlier processes, and those that did not fit the queue."""
        with self._lock:
            appended, self._appended = self._appended, 0
        try:
            await run_on(self.file_writer, self.spill.unpack)
            appended = 0
        except OSError as error:
            logger.warning("turns in %s wait for the next attempt: %s", self.spill.folder, error)
        finally:
            with self._lock:
                self._appended += appended
        files = self.spill.waiting()
        while (recording := await run_on(self.file_writer, lambda: next(files, None))) is not None:
            if recording.key in self._waiting or recording.kept_by not in self._sinks.found:
                continue
            pending = PendingTurn(recording, OnceFuture(), spilled=True, saved=True)
            if recording.key in self._recovered:
                await self._remove_waiting(pending, self.spill.remove)
            elif (reason := await self._write(pending)) is not None:
                await self._hold(pending, reason)
                return
        with self._lock:
            if not self._appending and not self._appended:
                self._tainted.clear()

    async def drain(self, *, within: float) -> bool:
        """Waits for turns that are being recorded and tries the waiting ones again. False if any is left."""
        deadline = asyncio.get_running_loop().time() + within
        is_drained = await self._drain(deadline)
        if is_drained and self._appended:
            try:
                async with asyncio.timeout_at(deadline):
                    await self.recover()
            except TimeoutError:
                return False
        return is_drained and not self._waiting and not self._appended

    async def _drain(self, deadline: float) -> bool:
        while self._under_way and (left := deadline - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(set(self._under_way), timeout=left)
        try:
            async with asyncio.timeout_at(deadline):
                await self._retry_all()
        except TimeoutError:
            return False
        return not self._under_way and not self._waiting

    async def close(self, *, within: float) -> list[str]:
        """Drains. Before it waits for long, all turns in memory are written to one file, for the next process.

        Returns messages about turns that are not stored; none if all are.
        """
        now = asyncio.get_running_loop().time()
        is_drained = await self._drain(now + within * STORING_SHARE)
        if self._retrying is not None:
            self._retrying.cancel()
        # Hosts cannot append any more. A file of its own, which is not needed if its turns are all stored.
        _close_file(self.spill)
        last = Spill(self.spill.folder, self.spill.keys)
        if not is_drained:
            self._save_all(last)
            is_drained = await self._drain(now + within)
        _close_file(last, erase=is_drained)
        left = self._savable_turns()
        waits, lost = self._appended, self._lost
        for pending in left:
            waits, lost = waits + pending.saved, lost + (not pending.saved)
            if pending.saved:
                self._emit("recording_waits", pending, reason="closing", spilled=True, waiting=len(left))
            else:
                self._not_recorded(pending, "closing")
        if not waits and not lost:
            return []
        self._events.emit("turns_left", waiting=waits, lost=lost)
        are_lost = f", {lost} {'is' if lost == 1 else 'are'} lost" if lost else ""
        return [f"{waits} {'turn waits' if waits == 1 else 'turns wait'} in {self.spill.folder}{are_lost}"]

    def _save_all(self, file: Spill) -> None:
        """Writes all turns in memory to the file, without waiting for the thread of the other files."""
        for turn, make in list(self._reading.items()):
            try:
                recording = make()
            except Exception:  # the boundary of one turn: the others must be saved too
                logger.exception("turn %r cannot be read", turn.id)
                continue
            if recording is not None:
                self.enqueue(recording, turn.shared.recorded)
                self._saved_early.add(recording.key)
        left = [pending for pending in self._savable_turns() if not pending.saved]
        for pending in left:
            try:
                file.append(pending.recording)
                pending.spilled = pending.saved = True
            except OSError as error:
                logger.warning("a turn cannot be saved in %s: %s", file.folder, error)

    def _savable_turns(self) -> list[PendingTurn]:
        """The turns in memory that may be in a file: without recording no file may hold what was said."""
        found = dict.fromkeys([*self._recording, *self._waiting.values()])
        return [pending for pending in found if pending.recording.kept_by is not SinkKind.NOBODY]

    async def forget(self, tenant: str, space: str, selector: Selector) -> int:
        """Drops waiting turns that a selector covers, in memory and in the spill folder. Returns how many."""
        dropped = 0
        for pending in list(self._waiting.values()):
            if covers(pending.recording, tenant, space, selector):
                del self._waiting[pending.key]
                self._not_recorded(pending, "forgotten")
                dropped += not pending.spilled
        try:
            return dropped + await run_on(self.file_writer, lambda: self.spill.forget(tenant, space, selector))
        except OSError as error:
            raise StoreError(
                f"Turns waiting in {self.spill.folder} cannot be erased: {error}. "
                "Make the folder writable and try again."
            ) from error

    async def _record(self, pending: PendingTurn) -> None:
        # More turns end than the store takes: a file is cheaper, and is stored when fewer end.
        is_overload = len(self._recording) > RECORDING_QUEUE_MAX and pending.recording.kept_by is not SinkKind.NOBODY
        if is_overload and await self._spill(pending):
            await self._hold(pending, OVERLOAD)
            return
        slow = asyncio.get_running_loop().call_later(SPILL_AFTER, self._start_spill, pending)
        try:
            reason = await self._write(pending)
        finally:
            slow.cancel()
        if reason is not None:
            await self._hold(pending, reason)

    def _start_spill(self, pending: PendingTurn) -> None:
        # A provider may take its time, and without recording no file may hold what was said.
        if pending.recording.kept_by is not SinkKind.MEMORY or pending not in self._recording:
            return
        if self._spilling >= SPILLING_MAX:
            asyncio.get_running_loop().call_later(SPILL_AFTER, self._start_spill, pending)
            return
        self.expect(self._supervisor.start(self._spill_slow(pending), f"spill {pending.recording.turn}"))

    async def _spill_slow(self, pending: PendingTurn) -> None:
        """The write goes on. A turn that is written twice is stored once."""
        if pending in self._recording and not pending.spilled:
            self._spilling += 1
            try:
                if await self._spill(pending):
                    self._emit("recording_waits", pending, reason="slow", spilled=True, waiting=len(self._waiting))
            finally:
                self._spilling -= 1

    def _ended(self, pending: PendingTurn) -> None:
        self._recording.pop(pending, None)
        if self._waiting.get(pending.key) is not pending:
            # So that no caller waits for ever.
            pending.recorded.settle(False)

    def _sink_of(self, pending: PendingTurn) -> RecordSink:
        return self._sinks.found[pending.recording.kept_by]

    async def _write(self, pending: PendingTurn) -> str | None:
        """Returns why it has to wait, or None if nothing is left to do."""
        try:
            written = await self._sink_of(pending).record(pending.recording)
        except KeyMissing as error:
            # Turns of other spaces must not wait for a key that is gone.
            await self._give_up(pending, type(error).__name__)
            return None
        except (StoreError, DeadlineExceeded, MemoryClosed) as error:
            return type(error).__name__
        except Exception as error:  # the boundary of one turn: later turns must not wait for ever
            logger.exception("turn %r cannot be stored", pending.recording.turn)
            await self._give_up(pending, type(error).__name__)
            return None
        if written.outcome is RecordingOutcome.WAITS:
            return written.reason
        if written.outcome is RecordingOutcome.GIVEN_UP:
            await self._give_up(pending, written.reason)
            return None
        self._settle(pending, written)
        if pending.spilled:
            self._recovered.append(pending.key)
        await self._remove_waiting(pending, self.spill.remove)
        return None

    async def _give_up(self, pending: PendingTurn, reason: str) -> None:
        """Leaves it in a file for a person to examine. It is not tried again."""
        self._not_recorded(pending, reason)
        if not pending.spilled:
            await self._spill(pending)
        await self._remove_waiting(pending, self.spill.set_aside)

    def _settle(self, pending: PendingTurn, written: RecordingResult) -> None:
        if written.outcome not in (RecordingOutcome.STORED, RecordingOutcome.KNOWN):
            self._not_recorded(pending, str(written.outcome))
            return
        pending.recorded.settle(True)
        if written.outcome is RecordingOutcome.STORED:
            self._emit("recorded", pending, records=written.records, ended_at=pending.recording.ended_at)
            for one in written.scheduled:
                self._emit("review_scheduled", pending, review=one.review, kind=one.kind.value, messages=one.messages)
            if written.has_jobs:
                self._wake_jobs()
            if pending.spilled or pending.key in self._waiting:
                self._emit("recording_recovered", pending)
            kinds = [kind for found in pending.recording.redacted for kind in found]
            if kinds:
                self._emit("secrets_redacted", pending, secrets=len(kinds), kinds=", ".join(dict.fromkeys(kinds)))
        if written.cut:
            self._emit("record_cut", pending, records=written.cut)

    def _not_recorded(self, pending: PendingTurn, reason: str) -> None:
        pending.recorded.settle(False)
        self._emit("not_recorded", pending, reason=reason, ended_at=pending.recording.ended_at)

    async def _remove_waiting(self, pending: PendingTurn, how: Callable[[Recording], None]) -> None:
        # The same turn may have ended twice, and the other recording may still wait.
        other = self._waiting.pop(pending.key, pending)
        other.recorded.settle(pending.recorded.peek() is True)
        if not (pending.spilled or other.spilled):
            return
        try:
            await run_on(self.file_writer, lambda: how(pending.recording))
        except OSError as error:
            logger.warning("a stored turn's file stays in %s: %s", self.spill.folder, error)

    async def _hold(self, pending: PendingTurn, reason: str) -> None:
        self._waiting.setdefault(pending.key, pending)
        if not pending.spilled:
            await self._spill(pending)
        self._emit("recording_waits", pending, reason=reason, spilled=pending.spilled, waiting=len(self._waiting))
        # A turn whose file is being written may still come to need its place.
        settled = [one for one in self._waiting.values() if one.saved or not one.spilled]
        for oldest in settled[: max(0, len(self._waiting) - RECORDING_QUEUE_MAX)]:
            del self._waiting[oldest.key]
            oldest.recorded.settle(False)
            if not oldest.saved:
                self._lost += 1
                self._not_recorded(oldest, "queue_full")
        self._start_retrying()

    def _start_retrying(self) -> None:
        if self._retrying is None or self._retrying.done():
            self._retrying = self._supervisor.start(self._retry(), "retry recordings")

    async def _spill(self, pending: PendingTurn) -> bool:
        # Before the file is there: a write that ends meanwhile removes it, on the same thread, after it was written.
        pending.spilled = True

        def put() -> None:
            # It may have been stored, or saved by closing, while other files were written.
            if not pending.saved and pending.recorded.peek() is not True:
                self.spill.put(pending.recording)
                pending.saved = True

        try:
            await run_on(self.file_writer, put)
        except OSError as error:
            pending.spilled = False
            logger.warning(
                "a waiting turn cannot be saved in %s and is held in memory only: %s", self.spill.folder, error
            )
        return pending.spilled

    async def _retry(self) -> None:
        delay = RETRY_FIRST
        while self._waiting or self._appended:
            await asyncio.sleep(delay)
            if self._posted + len(self._reading) + len(self._recording) > RECORDING_QUEUE_MAX // 2:
                delay = RETRY_FIRST  # a store that is busy is not given more
                continue
            delay = min(delay * 2, RETRY_MOST)
            if await self._retry_all() or not all(
                self._sink_of(pending).in_order for pending in self._waiting.values()
            ):
                await self.recover()

    async def _retry_all(self) -> bool:
        """Stops at the first turn that still has to wait, because the others would time out too.

        For a sink that is not `in_order`, that turn is tried last in the next round.
        """
        for pending in list(self._waiting.values()):
            if self._waiting.get(pending.key) is pending and await self._write(pending) is not None:
                if not self._sink_of(pending).in_order and pending.key in self._waiting:
                    self._waiting.move_to_end(pending.key)
                return False
        return True

    def _emit(self, name: str, pending: PendingTurn, **data: Scalar) -> None:
        recording = pending.recording
        self._events.of(recording.tenant).emit(
            name, space=recording.owner, conversation=recording.conversation, turn=recording.turn, **data
        )


def _close_file(file: Spill, *, erase: bool = False) -> None:
    try:
        file.close(erase=erase)
    except OSError as error:
        logger.warning("a file of turns in %s cannot be closed: %s", file.folder, error)


def make_recording(
    turn: LoopTurn,
    left: TurnMessages,
    blocks: Mapping[str, BlockRow],
    config: Config,
    *,
    ended_at: float,
    completed: bool,
) -> tuple[Recording | None, str]:
    """Returns the recording, or None and the reason: `incognito` or `switched_off` only if all else is fulfilled.

    `completed`: the host reported that the agent has answered.
    """
    scope, messages = turn.scope, left.messages
    # A finished list shows its format more clearly than the one that the turn began with.
    dialect = find_dialect(messages, scope.dialect) or turn.dialect
    if dialect is None:
        return None, "unknown_dialect"
    handed_over = turn.shared.blocks
    strip = functools.partial(spoken_words, known_hashes={**blocks, **{row.hash: row for row in handed_over}})
    found = _find_exchange(turn, left, dialect, strip)
    if not found.messages:
        return None, "no_exchange"
    taint = _find_taint(turn, left, dialect, found)
    if taint is not None:
        # Also for a turn that is not recorded: the model may see later what entered it.
        turn.shared.mark_tainted(taint)
    if not completed and not found.ends_complete:
        return None, NO_FINAL_ANSWER
    if not is_exchange(found.messages):
        return None, "no_exchange"
    said = (message.text for message in found.messages if message.role == "user")
    if turn.shared.incognito or any(map(is_private, said)):
        return None, INCOGNITO
    if not config.recording:
        return None, SWITCHED_OFF
    return _recording_of(turn, found, blocks, config, ended_at=ended_at, taint=taint), ""


def _recording_of(
    turn: LoopTurn,
    found: Exchange,
    blocks: Mapping[str, BlockRow],
    config: Config,
    *,
    ended_at: float,
    taint: Taint | None,
) -> Recording:
    scope, handed_over, speaker = turn.scope, turn.shared.blocks, turn.shared.speaker
    read = (one for one in found.messages if one.role != "tool" or not holds_answer(one.text))
    # A compaction in the middle of a turn leaves a model's summary in the place of the user's message.
    authored = (replace(one, role="tool") if one.text.startswith(SNAPSHOT_START) else one for one in read)
    spoken = [replace(one, speaker=speaker) if speaker and one.role == "user" else one for one in authored]
    redacted = [_redacted(message, config) for message in spoken]
    return Recording(
        tenant=scope.tenant,
        space=scope.writes,
        conversation=scope.id,
        turn=turn.id,
        owner=scope.owner,
        started_at=turn.shared.started_at,
        forgets=turn.forgets_before,
        user_hash=turn.user_hash,
        messages=tuple(message for message, _ in redacted),
        agent=scope.agent,
        project=scope.project,
        # Without their texts: a file that waits must not contain a memory that is forgotten meanwhile.
        blocks=tuple(replace(row, text="") for row in handed_over),
        ended_at=ended_at,
        reads=scope.reads,
        subagent=scope.subagent,
        redacted=tuple(kinds for _, kinds in redacted) if any(kinds for _, kinds in redacted) else (),
        shown=tuple({ref: None for row in (*handed_over, *blocks.values()) if row.turn == turn.id for ref in row.refs}),
        taint=taint,
        environment=scope.environment,
    )


def _find_taint(turn: LoopTurn, left: TurnMessages, dialect: Dialect, found: Exchange) -> Taint | None:
    """What reached the assistant, as far as the messages and the host's calls show it."""
    if found.is_untrusted or any(message.role == "user" and has_pasted(message.text) for message in found.messages):
        return Taint.TOOL
    if turn.shared.taint is not None:
        return turn.shared.taint
    if not turn.is_read and (left.starts_with_user or any_untrusted(map(dialect.read, left.messages))):
        # The messages before the turn were not read, or hold a tool's output.
        return Taint.UNKNOWN
    return None


def _find_exchange(turn: LoopTurn, left: TurnMessages, dialect: Dialect, strip: Strip) -> Exchange:
    """The messages from the turn's user message on, or from the latest one if the host has rewritten that."""
    messages = left.messages
    start = _find_start(turn, left, dialect, strip)
    if start is not None and (found := read_exchange(dialect, messages, start, strip)).messages:
        return found
    if turn.user_hash and (found := find_exchange(dialect, messages, turn.user_hash, strip)).messages:
        return found
    latest = find_latest_user(dialect, messages, strip)
    return read_exchange(dialect, messages, latest[0], strip) if latest else Exchange((), ends_complete=False)


def _find_start(turn: LoopTurn, left: TurnMessages, dialect: Dialect, strip: Strip) -> int | None:
    """The index of the turn's user message, if that is certain: the same words may be said again in the turn."""
    if left.starts_with_user:
        return 0
    at = turn.user_index
    element = dialect.read(left.messages[at]) if at is not None and at < len(left.messages) else None
    if element is None or content_hash(strip(element.text_of("user"))) != turn.user_hash:
        return None
    return at


def _redacted(message: Message, config: Config) -> tuple[Message, tuple[str, ...]]:
    """Returns a copy without secrets, and their kinds. Done before the message waits in memory or in a file."""
    limit, scan = gate.RECORD_BYTES_MAX, scanner(scanning=config.scan_policy)
    found, speaker = redact(message.text[: limit + MARGIN_CHARS], scan), redact(message.speaker, scan)
    kinds = (*found.kinds, *speaker.kinds)
    if not kinds and len(message.text) <= limit + MARGIN_CHARS:
        return message, ()
    # Text that is not scanned is not stored; one character too many shows the gate that it was cut.
    text = found.text[: limit + 1]
    return replace(message, text=text, speaker=speaker.text, hash=content_hash(text)), kinds

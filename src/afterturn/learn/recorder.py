"""Takes finished turns off the host's hands and sees to it that they reach the store, or say why not."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from afterturn.base.config import Config
from afterturn.base.errors import StoreError
from afterturn.base.events import Events
from afterturn.base.loop import run_on
from afterturn.base.ports import Ids, Store, Worker
from afterturn.base.slot import Slot
from afterturn.base.supervisor import Supervisor
from afterturn.base.types import Selector
from afterturn.guard.gate import Gate
from afterturn.learn.recording import Outcome, Recording, Written, write_recording
from afterturn.learn.spill import Spill, covers

RETRY_FIRST = 0.5
RETRY_MOST = 30.0


@dataclass(frozen=True, slots=True)
class RecorderParts:
    store: Store
    gate: Gate
    ids: Ids
    events: Events
    supervisor: Supervisor
    worker: Worker


class Recorder:
    """Lives on memory's loop. `enqueue` never fails and never waits; the slot tells whether it was recorded (C4)."""

    def __init__(self, parts: RecorderParts, config: Config, spill: Spill, on_stored: Callable[[], None]) -> None:
        self._parts = parts
        self._queue_max = config.recording_queue_max
        self.spill = spill
        self._on_stored = on_stored
        self._under_way: set[asyncio.Task[None]] = set()
        self._waiting: OrderedDict[str, tuple[Recording, Slot[bool]]] = OrderedDict()
        self._retrying: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """Turns that the store has not taken yet."""
        return len(self._waiting)

    def expect(self, task: asyncio.Task[None]) -> None:
        """A turn is being read and will be enqueued: closing waits for it too."""
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    def enqueue(self, recording: Recording, recorded: Slot[bool]) -> None:
        task = self._parts.supervisor.start(self._record(recording, recorded), f"record {recording.turn}")
        self.expect(task)
        # Whatever became of it, nobody waits for ever.
        task.add_done_callback(lambda _: recording.turn in self._waiting or recorded.settle(False))

    async def recover(self) -> None:
        """Stores what an earlier process had to leave in the spill folder."""
        for recording in await run_on(self._parts.worker, lambda: list(self.spill.waiting())):
            await self._record(recording, Slot(), recovered=True)

    async def drain(self, *, within: float) -> bool:
        """Waits for what is under way and tries once more what had to wait. False when something is left."""
        deadline = asyncio.get_running_loop().time() + within
        while self._under_way and (left := deadline - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(set(self._under_way), timeout=left)
        for recording, recorded in list(self._waiting.values()):
            await self._record(recording, recorded, recovered=True)
        return not self._under_way and not self._waiting

    async def forget(self, tenant: str, space: str, selector: Selector) -> int:
        """Drops waiting turns that a selector covers, in memory and in the spill folder."""
        for turn, (recording, recorded) in list(self._waiting.items()):
            if covers(recording, tenant, space, selector):
                del self._waiting[turn]
                self._not_recorded(recording, recorded, "forgotten")
        return await run_on(self._parts.worker, lambda: self.spill.forget(tenant, space, selector))

    async def _record(self, recording: Recording, recorded: Slot[bool], *, recovered: bool = False) -> None:
        parts = self._parts
        try:
            written = await parts.store.write(lambda unit: write_recording(unit, recording, parts.gate, parts.ids))
        except StoreError as error:
            if recording.turn not in self._waiting:
                await self._wait(recording, recorded, error)
            return
        self._waiting.pop(recording.turn, None)
        self._settle(recording, recorded, written)
        if recovered:
            await run_on(parts.worker, lambda: self.spill.remove(recording))
            self._emit("recording_recovered", recording)

    def _settle(self, recording: Recording, recorded: Slot[bool], written: Written) -> None:
        if written.outcome not in (Outcome.STORED, Outcome.KNOWN):
            self._not_recorded(recording, recorded, str(written.outcome))
            return
        recorded.settle(True)
        if written.outcome is Outcome.STORED:
            self._emit("recorded", recording, records=written.records)
            self._on_stored()
        if written.cut:
            self._emit("record_cut", recording, records=written.cut)

    def _not_recorded(self, recording: Recording, recorded: Slot[bool], reason: str) -> None:
        recorded.settle(False)
        self._emit("not_recorded", recording, reason=reason)

    async def _wait(self, recording: Recording, recorded: Slot[bool], error: StoreError) -> None:
        spilled = await self._spilled(recording)
        self._waiting[recording.turn] = (recording, recorded)
        self._emit(
            "recording_waits", recording, reason=type(error).__name__, spilled=spilled, waiting=len(self._waiting)
        )
        if len(self._waiting) > self._queue_max:
            _, (oldest, slot) = self._waiting.popitem(last=False)
            self._not_recorded(oldest, slot, "queue_full")
        if self._retrying is None or self._retrying.done():
            self._retrying = self._parts.supervisor.start(self._retry(), "retry recordings")

    async def _spilled(self, recording: Recording) -> bool:
        try:
            await run_on(self._parts.worker, lambda: self.spill.put(recording))
        except OSError:
            return False
        return True

    async def _retry(self) -> None:
        delay = RETRY_FIRST
        while self._waiting:
            await asyncio.sleep(delay)
            delay = min(delay * 2, RETRY_MOST)
            for recording, recorded in list(self._waiting.values()):
                await self._record(recording, recorded, recovered=True)

    def _emit(self, name: str, recording: Recording, **data: str | int | bool) -> None:
        self._parts.events.emit(
            name, space=recording.space, conversation=recording.conversation, turn=recording.turn, **data
        )

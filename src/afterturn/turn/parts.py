"""What all conversations of one memory share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from afterturn.base.config import Config
from afterturn.base.events import Events
from afterturn.base.loop import PrivateLoop
from afterturn.base.ports import Clock, Ids, Store
from afterturn.base.supervisor import Supervisor
from afterturn.learn.recorder import Recorder
from afterturn.turn.errands import Errands
from afterturn.turn.recaller import Recaller
from afterturn.turn.standing_parts import StandingParts


@dataclass(frozen=True, slots=True)
class ConversationParts:
    """Handed over by `runtime`. Without a store, memory is off. `busy` are the conversations with an open turn;
    `on_write` wakes the jobs; `forgets` is the newest forget that this process knows of, by tenant."""

    loop: PrivateLoop
    store: Store | None
    recaller: Recaller
    recorder: Recorder
    supervisor: Supervisor
    clock: Clock
    ids: Ids
    config: Config
    events: Events
    errands: Errands
    standing: StandingParts
    on_write: Callable[[], None]
    busy: set[Any]
    forgets: dict[str, int]

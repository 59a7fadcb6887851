"""What the conversations of one memory are made of, put together when there is a first one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from afterturn.base.config import Config, config_folder
from afterturn.base.events import Events
from afterturn.base.loop import PrivateLoop
from afterturn.base.meter import Meter
from afterturn.base.ports import ChatModel, Clock, Ids, Store, Worker
from afterturn.base.supervisor import Supervisor
from afterturn.guard.gate import Gate
from afterturn.learn.recorder import Recorder
from afterturn.recall.embedding import Embedding
from afterturn.turn.errands import Errands
from afterturn.turn.file_reads import FileReads
from afterturn.turn.parts import ConversationParts
from afterturn.turn.proposals import ProposalParts, Proposals
from afterturn.turn.recaller import Recaller
from afterturn.turn.standing_parts import StandingParts
from afterturn.turn.tools import ToolParts


@dataclass(frozen=True, slots=True)
class Outfit:
    """Handed over by `runtime`. `no_store` stands where a store would, and says why there is none."""

    loop: PrivateLoop
    store: Store | None
    no_store: Store
    embedding: Embedding | None
    model: ChatModel | None
    meter: Meter
    recorder: Recorder
    supervisor: Supervisor
    gate: Gate
    reads: Worker
    clock: Clock
    ids: Ids
    config: Config
    events: Events
    on_write: Callable[[], None]
    busy: set[Any]
    forgets: dict[str, int]


def furnish(outfit: Outfit) -> ConversationParts:
    chosen = outfit.store or outfit.no_store
    return ConversationParts(
        loop=outfit.loop,
        store=outfit.store,
        recaller=Recaller(
            chosen, outfit.embedding, outfit.model, outfit.config, outfit.clock, outfit.events, outfit.meter
        ),
        recorder=outfit.recorder,
        supervisor=outfit.supervisor,
        clock=outfit.clock,
        ids=outfit.ids,
        config=outfit.config,
        events=outfit.events,
        errands=_errands(outfit, chosen),
        standing=_standing(outfit),
        on_write=outfit.on_write,
        busy=outfit.busy,
        forgets=outfit.forgets,
    )


def _standing(outfit: Outfit) -> StandingParts:
    return StandingParts(
        loop=outfit.loop,
        store=outfit.store,
        reads=FileReads(outfit.reads, outfit.clock),
        supervisor=outfit.supervisor,
        clock=outfit.clock,
        ids=outfit.ids,
        config=outfit.config,
        events=outfit.events,
        embedding=outfit.embedding,
        folder=str(config_folder()),
    )


def _errands(outfit: Outfit, store: Store) -> Errands:
    clock, ids, config, events = outfit.clock, outfit.ids, outfit.config, outfit.events
    proposals = Proposals(ProposalParts(store, outfit.gate, clock, ids, config, events))
    tools = ToolParts(outfit.store, outfit.embedding, proposals, clock, ids, config, events)
    return Errands(outfit.loop, outfit.supervisor, outfit.recorder.expect, tools)

"""What all conversations of one memory share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from afterturn.config import Config, config_folder
from afterturn.conversation.prefetcher import RecallClient
from afterturn.conversation.proposals import ProposalParts, Proposals
from afterturn.conversation.recorder import Recorder
from afterturn.conversation.standing import StandingParts
from afterturn.conversation.subagents import Subagents
from afterturn.conversation.tools import ToolParts
from afterturn.embedders.service import EmbeddingService
from afterturn.events import Events
from afterturn.guard.gate import Gate
from afterturn.models.meter import Meter
from afterturn.ports import ChatModel, Clock, Ids, Store, Worker
from afterturn.runtime.file_reads import FileReads
from afterturn.runtime.loop_thread import LoopThread
from afterturn.runtime.supervisor import Supervisor


@dataclass(frozen=True, slots=True)
class ConversationParts:
    """Handed over by `runtime`. Without a store, memory is off. `busy` are the conversations with an open turn;
    `on_write` wakes the jobs; `forgets` is the newest forget that this process knows of, by tenant."""

    loop: LoopThread
    store: Store | None
    recaller: RecallClient
    recorder: Recorder
    supervisor: Supervisor
    clock: Clock
    ids: Ids
    config: Config
    events: Events
    errands: Subagents
    standing: StandingParts
    on_write: Callable[[], None]
    busy: set[Any]
    forgets: dict[str, int]


# What the conversations of one memory are made of, put together when there is a first one.


@dataclass(frozen=True, slots=True)
class Outfit:
    """Handed over by `runtime`. `no_store` stands where a store would, and says why there is none."""

    loop: LoopThread
    store: Store | None
    no_store: Store
    embedding: EmbeddingService | None
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
        recaller=RecallClient(
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


def _errands(outfit: Outfit, store: Store) -> Subagents:
    clock, ids, config, events = outfit.clock, outfit.ids, outfit.config, outfit.events
    proposals = Proposals(ProposalParts(store, outfit.gate, clock, ids, config, events))
    tools = ToolParts(outfit.store, outfit.embedding, proposals, clock, ids, config, events)
    return Subagents(outfit.loop, outfit.supervisor, outfit.recorder.expect, tools)

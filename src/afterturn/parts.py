"""Chooses the parts: the one place that knows which stores, embedders, models, clocks and ids there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from afterturn.base.clock import SystemClock, TimeOrderedIds
from afterturn.base.config import Config, models_folder
from afterturn.base.errors import ConfigError
from afterturn.base.loading import load

if TYPE_CHECKING:
    import os
    from pathlib import Path

    from afterturn.base.loop import PrivateLoop
    from afterturn.base.ports import ChatModel, Clock, Embedder, Ids, Store, Worker
    from afterturn.base.recording_ports import RecordingProvider
    from afterturn.guard.gate import Gate
    from afterturn.learn.providers import Keepers
    from afterturn.stores.sqlite.engine import Engine as Engine


def private_loop(name: str) -> PrivateLoop:
    from afterturn.base.loop import PrivateLoop

    return PrivateLoop(name)


def thread_worker(name: str, threads: int) -> Worker:
    load("afterturn.base.worker")
    from afterturn.base.worker import ThreadWorker

    return ThreadWorker(name, threads)


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts that tests, simulations and unusual hosts bring themselves; each has a default."""

    embedder: Embedder | None = None
    model: ChatModel | None = None
    review_model: ChatModel | None = None
    provider: RecordingProvider | None = None
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=TimeOrderedIds)
    loop: Callable[[str], PrivateLoop] = private_loop
    worker: Callable[[str, int], Worker] = thread_worker
    store: Callable[[Path, Config, Clock], Store] | None = None

    @property
    def are_own(self) -> bool:
        """Whether loop, threads and store are ours."""
        return self.loop is private_loop and self.worker is thread_worker and self.store is None


def open_store(target: Path, config: Config, parts: Parts) -> Store:
    if parts.store is not None:
        return parts.store(target, config, parts.clock)
    return make_store(open_engine(target, config, parts), parts)


def open_engine(target: str | os.PathLike[str], config: Config, parts: Parts) -> Engine:
    """A store without an event loop. Blocks; raises the specific StoreError."""
    load("afterturn.stores.sqlite.engine")
    from afterturn.stores.sqlite.engine import open_engine as open_file

    return open_file(target, config, parts.clock)


def make_store(engine: Engine, parts: Parts) -> Store:
    load("afterturn.stores.sqlite.store")
    from afterturn.stores.sqlite.store import SqliteStore

    return SqliteStore(engine, parts.worker)


def load_turns() -> None:
    """The modules that conversations need, their first recall included."""
    from afterturn.stores.sql.unit import load_repositories

    load("afterturn.turn.waited")
    load("afterturn.turn.outfit")
    load_repositories()


_RULES = (
    "prose",
    "barring",
    "clause",
    "changes",
    "corrections",
    "preferences",
    "facts",
    "languages",
    "introductions",
    "notes",
    "secrets",
    "standing_rules",
    "unpasted",
    "finding",
)


def afterwards(config: Config) -> Sequence[str]:
    """The modules that the end of a turn needs, and with `background` what follows it, in that order.

    Small ones by name, before those that import them: whoever loads these can pause in between.
    """
    names = ["learn.providers", "learn.recording", "learn.rules", "stores.sql.reviews"]
    if config.background:
        names += ["learn.staging", "learn.reviewer", "learn.teaching", "learn.reviewing"]
        names += [f"learn.rules.{name}" for name in _RULES if config.rules]
    return [f"afterturn.{name}" for name in names]


def rescue(target: Path, source: Path, config: Config, progress: Callable[[int, int], None] | None) -> Path:
    """Puts a backup in the place of a store that is too damaged to open. Blocks; where the damaged file went."""
    from afterturn.stores.sqlite.engine import rescue_store

    return rescue_store(target, source, config, SystemClock(), progress=progress or no_progress)


def default_embedder(config: Config) -> Embedder | None:
    """The one that the settings name. It loads or connects when it is first asked."""
    if config.embedder == "static":
        load("afterturn.embedders.static")
        from afterturn.embedders.static import StaticEmbedder

        return StaticEmbedder()
    if config.embedder == "minilm":
        load("afterturn.embedders.minilm")
        from afterturn.embedders.minilm import MiniLmEmbedder

        return MiniLmEmbedder(models_folder(config))
    if config.embedder == "http":
        return _http_embedder(config)
    return None


def _http_embedder(config: Config) -> Embedder:
    load("afterturn.embedders.http")
    from afterturn.embedders.http import HttpEmbedder

    url, model = _embedding_server(config)
    return HttpEmbedder(
        url,
        model,
        key=config.embedder_key,
        dimensions=config.embedder_dimensions,
        timeout=config.embedder_timeout,
    )


def _embedding_server(config: Config) -> tuple[str, str]:
    if config.embedder_url is None or config.embedder_model is None:
        raise ConfigError(
            "embedder is 'http', but embedder_url or embedder_model is not set. Name the server and its model."
        )
    return config.embedder_url, config.embedder_model


def check_servers(config: Config, parts: Parts) -> None:
    """ConfigError as from making what asks them, none of which is loaded for it."""
    if parts.embedder is None and config.embedder == "http":
        from afterturn.base.endpoint import check_server
        from afterturn.embedders.service import EMBEDDINGS

        check_server(EMBEDDINGS, _embedding_server(config)[0], config.embedder_key)
    brought = parts.model is not None and (parts.review_model is not None or config.review_model is None)
    if config.model_url is not None and not brought:
        from afterturn.base.endpoint import check_server
        from afterturn.models.service import CHAT

        check_server(CHAT, config.model_url, config.model_key)


def default_model(config: Config) -> ChatModel | None:
    """The one that the settings name, if they do. It connects when it is first asked."""
    return _model(config, config.model, config.model_timeout)


def review_model(config: Config, parts: Parts) -> ChatModel | None:
    """Who reviews (V2): a model that was brought for it, the one that the settings name for it, or whoever else."""
    if parts.review_model is not None or (parts.model is not None and config.review_model is None):
        return parts.review_model or parts.model
    return _model(config, config.review_model or config.model, config.review_timeout) or parts.model


def _model(config: Config, name: str | None, timeout: float) -> ChatModel | None:
    if config.model_url is None:
        return None
    load("afterturn.models.openai_compatible")
    from afterturn.models.openai_compatible import OpenAICompatible

    return OpenAICompatible(config.model_url, name or "", key=config.model_key, timeout=timeout)


def make_keepers(config: Config, parts: Parts, store: Store, gate: Gate) -> Keepers:
    """Who keeps finished turns (C7): a provider that was brought, or the one that the settings name."""
    load("afterturn.learn.providers")
    from afterturn.learn.providers import Keeper, Keepers, Nobody, Provided, Verbatim
    from afterturn.learn.recording import KeptBy
    from afterturn.learn.scheduling import Plan

    own = KeptBy.NOBODY if config.recorder == "none" else KeptBy.MEMORY
    found: dict[KeptBy, Keeper] = {
        KeptBy.MEMORY: Verbatim(store, gate, parts.ids, Plan.of(config)),
        KeptBy.NOBODY: Nobody(store),
    }
    if parts.provider is not None:
        own, found[KeptBy.PROVIDER] = KeptBy.PROVIDER, Provided(store, parts.clock, parts.provider)
    return Keepers(own, found)


def no_progress(done: int, total: int) -> None:
    """Nobody watches."""

"""Chooses the parts: the one place that knows which stores, embedders, models, clocks and ids there are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from afterturn.base.clock import SystemClock, TimeOrderedIds
from afterturn.base.config import Config, models_folder
from afterturn.base.errors import ConfigError
from afterturn.base.loop import PrivateLoop
from afterturn.base.ports import ChatModel, Clock, Embedder, Ids, Store, Worker
from afterturn.base.recording_ports import RecordingProvider
from afterturn.base.worker import ThreadWorker
from afterturn.embedders.http import HttpEmbedder
from afterturn.embedders.minilm import MiniLmEmbedder
from afterturn.embedders.static import StaticEmbedder
from afterturn.guard.gate import Gate
from afterturn.learn.providers import Keeper, Keepers, Nobody, Provided, Verbatim
from afterturn.learn.recording import KeptBy
from afterturn.learn.scheduling import Plan
from afterturn.models.openai_compatible import OpenAICompatible
from afterturn.stores.sqlite.engine import rescue_store
from afterturn.stores.sqlite.store import open_store as open_file


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts that tests, simulations and unusual hosts bring themselves; each has a default."""

    embedder: Embedder | None = None
    model: ChatModel | None = None
    review_model: ChatModel | None = None
    provider: RecordingProvider | None = None
    clock: Clock = field(default_factory=SystemClock)
    ids: Ids = field(default_factory=TimeOrderedIds)
    loop: Callable[[str], PrivateLoop] = PrivateLoop
    worker: Callable[[str, int], Worker] = ThreadWorker
    store: Callable[[Path, Config, Clock], Store] | None = None


def open_store(target: Path, config: Config, parts: Parts) -> Store:
    """Blocks; raises the specific StoreError."""
    if parts.store is not None:
        return parts.store(target, config, parts.clock)
    return open_file(target, config, parts.clock, worker=parts.worker)


def rescue(target: Path, source: Path, config: Config, progress: Callable[[int, int], None] | None) -> Path:
    """Puts a backup in the place of a store that is too damaged to open. Blocks; where the damaged file went."""
    return rescue_store(target, source, config, SystemClock(), progress=progress or no_progress)


def default_embedder(config: Config) -> Embedder | None:
    """The one that the settings name. It loads or connects when it is first asked."""
    if config.embedder == "static":
        return StaticEmbedder()
    if config.embedder == "minilm":
        return MiniLmEmbedder(models_folder(config))
    if config.embedder == "http":
        return _http_embedder(config)
    return None


def _http_embedder(config: Config) -> Embedder:
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
    return OpenAICompatible(config.model_url, name or "", key=config.model_key, timeout=timeout)


def make_keepers(config: Config, parts: Parts, store: Store, gate: Gate) -> Keepers:
    """Who keeps finished turns (C7): a provider that was brought, or the one that the settings name."""
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

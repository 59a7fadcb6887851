"""mem0's interface over afterturn: `from afterturn.compat.mem0 import Memory`, and keep your code.

`Memory` waits for its results, `AsyncMemory` is awaited; both have the same verbs, which are in `core.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, TypeVar

from afterturn import blocking
from afterturn.compat.mem0.core import Mem0Core
from afterturn.compat.mem0.filters import ValidationError
from afterturn.config import Config
from afterturn.errors import ConfigError
from afterturn.log import logger
from afterturn.memory import DEFAULT_STORE, StoreTarget, merge_settings
from afterturn.runtime.bridge import AsyncFacade, BlockingFacade, Bridged
from afterturn.services import Components, Services

__all__ = ["AsyncMemory", "Memory", "ValidationError"]

# Nothing depends on them here.
_WITHOUT_EFFECT = {"version", "history_db_path"}
_HOSTED = ("MemoryClient", "AsyncMemoryClient")
F = TypeVar("F", bound="_Mem0Facade")


class _OpenStore(blocking.Memory):
    """A memory whose services the verbs use directly, so that a call changes threads once."""

    @property
    def services(self) -> Services:
        return self._services


class Component(SimpleNamespace):
    """Read-only attributes of one mem0 component. It has no methods: the verbs of `Memory` do all of its work."""

    def __getattr__(self, name: str) -> object:
        raise AttributeError(f"afterturn.compat.mem0 has no {name!r} here, only {', '.join(vars(self))}. Use Memory.")


class _Mem0Facade:
    """Base class of `Memory` and `AsyncMemory`: opening, closing, the list of verbs, and read-only attributes."""

    api_version = "v1.1"
    custom_instructions: str | None = None
    reranker: object = None

    def __init__(self, config: object = None) -> None:
        """Opens the store, as the real mem0 does: the configured one, or the one that `config` names."""
        target, settings, wait = _read_config(config)
        self._memory = _OpenStore(target, settings, Components(), None)
        self._memory.start()
        self._core = Mem0Core(self._memory.services, wait=wait)
        self._loop = self._memory.services.loop
        used: Any = _describe(config, self._memory.services)
        self.config: Any = used if isinstance(config, Mapping | None) else config
        self.db, self.vector_store = Component(db_path=used.history_db_path), used.vector_store.config
        self.collection_name = self.vector_store.collection_name
        self.llm, self.embedding_model = (
            Component(config=Component(**one.config)) for one in (used.llm, used.embedder)
        )

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any]) -> Self:
        """Takes mem0's configuration. `{"afterturn": {"store": "memory.db"}}` has settings of afterturn.

        `vector_store.config.path` names the folder of the store, and an `llm` with a URL reviews what is added. Other
        parts are ignored, with one warning that names them.
        """
        return cls(config_dict)

    def close(self) -> None:
        """Writes what is pending and ends all threads. It is done at exit, too. May be called twice."""
        self._memory.close()

    add = Bridged(Mem0Core.add)
    search = Bridged(Mem0Core.search)
    get = Bridged(Mem0Core.get)
    get_all = Bridged(Mem0Core.get_all)
    update = Bridged(Mem0Core.update)
    delete = Bridged(Mem0Core.delete)
    delete_all = Bridged(Mem0Core.delete_all)
    history = Bridged(Mem0Core.history)
    reset = Bridged(Mem0Core.reset)
    chat = Bridged(Mem0Core.chat)


class Memory(BlockingFacade, _Mem0Facade):
    """mem0's `Memory`, over afterturn. It may be used from any thread."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *left: object) -> None:
        self.close()


class AsyncMemory(AsyncFacade, _Mem0Facade):
    """mem0's `AsyncMemory`, over afterturn. It may be used from any event loop."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *left: object) -> None:
        await asyncio.to_thread(self.close)


def __getattr__(name: str) -> object:
    if name in _HOSTED:
        raise ImportError(
            f"{name} needs a server. Use {name.removesuffix('Client')}, which takes the same calls without one, "
            f"or mem0's own {name} with `afterturn serve`."
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _read_config(config: object) -> tuple[StoreTarget, Config, bool]:
    """The store, its settings, and whether `add` waits. Warns once of the parts that are ignored."""
    given = {} if config is None else _plain(config)
    if not isinstance(given, Mapping):
        raise ConfigError(f"The configuration is a {type(config).__name__}. Pass a dict, or a MemoryConfig of mem0.")
    own = dict(given.get("afterturn") or {})
    wait = own.pop("wait", False)
    settings = _model_settings(given.get("llm"))
    target = own.pop("store", None) or _store_file(given.get("vector_store"))
    used = {"afterturn", *_WITHOUT_EFFECT, *(["llm"] if "model_url" in settings else [])}
    used |= {"vector_store"} if target is not None else set()
    if ignored := sorted(set(given) - used):
        logger.warning(
            "afterturn.compat.mem0 ignores these parts of the configuration: %s. "
            "Settings of afterturn go into the part `afterturn`.",
            ", ".join(ignored),
        )
    merged = merge_settings({**settings, **own}, None, background=None)
    return DEFAULT_STORE if target is None else target, merged, bool(wait)


def _describe(config: object, services: Services) -> Any:
    """The configuration in use, with mem0's names. The path is blank for a store on a server."""
    given: Any = config.get("vector_store") or {} if isinstance(config, Mapping) else {}
    stored = {"collection_name": (given.get("config") or {}).get("collection_name") or "mem0"}
    path = str(services.target) if isinstance(services.target, Path) else ""
    own = {"provider": "afterturn"}
    return Component(
        version=_Mem0Facade.api_version,
        history_db_path=path,
        custom_instructions=None,
        reranker=None,
        vector_store=Component(**own, config=Component(**stored, path=path)),
        llm=Component(**own, config={"model": services.config.model}),
        embedder=Component(**own, config={"model": services.config.embedder}),
    )


def _plain(value: object) -> object:
    """The values that a caller has set: an object such as mem0's MemoryConfig becomes a dict without its defaults."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    fields = getattr(value, "model_fields_set", None)
    return value if fields is None else {name: _plain(getattr(value, name)) for name in sorted(fields)}


def _store_file(vector_store: object) -> Path | None:
    """One file for each collection, in the folder that mem0's vector store would use. Creates that folder."""
    options = vector_store.get("config") if isinstance(vector_store, Mapping) else None
    if not isinstance(options, Mapping) or not options.get("path"):
        return None
    folder = Path(str(options["path"]))
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{options.get('collection_name') or 'mem0'}.afterturn.db"


def _model_settings(llm: object) -> dict[str, Any]:
    """The model that reviews what is added, if the configuration says where it is."""
    options = llm.get("config") if isinstance(llm, Mapping) else None
    if not isinstance(options, Mapping):
        return {}
    urls = [(key, value) for key, value in options.items() if key.endswith("base_url") and value]
    if not urls or not options.get("model"):
        return {}
    key, url = urls[0]
    suffix = "/v1" if key == "ollama_base_url" else ""
    found = {"model_url": f"{str(url).rstrip('/')}{suffix}", "model": options["model"], "recorder": "extracting"}
    return {**found, "model_key": options["api_key"]} if options.get("api_key") else found

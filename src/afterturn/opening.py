"""What `open` takes, checked: where the store is, the settings of one memory, and the parts that a host brings."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeAlias, TypedDict

from afterturn.base.config import Config, default_store, load_config
from afterturn.base.errors import StoreUnavailable
from afterturn.base.names import check_name
from afterturn.base.ports import ChatModel
from afterturn.base.recording_ports import RecordingProvider
from afterturn.base.types import Event
from afterturn.parts import Parts


class _Configured:
    """Stands for: the store that the settings name."""


CONFIGURED: Final = _Configured()
Target: TypeAlias = str | os.PathLike[str] | _Configured | None
Settings: TypeAlias = Config | Mapping[str, Any] | None
Handler: TypeAlias = Callable[[Event], None]


class Options(TypedDict, total=False):
    """How a memory is opened. `model` chooses among what was found, writes summaries and reviews conversations, unless
    `review_model` does; `provider` keeps finished turns in memory's place; `on_event` hears of all that memory does;
    `background=False` leaves jobs to other processes; `parts` are for tests and unusual hosts."""

    tenant: str | None
    on_event: Handler | None
    background: bool | None
    model: ChatModel | None
    review_model: ChatModel | None
    provider: RecordingProvider | None
    parts: Parts | None


def chosen(config: Settings, options: Options) -> tuple[Config, Parts, Handler | None]:
    """What a memory is made of, from the arguments of `open`."""
    if unknown := set(options) - set(Options.__annotations__):
        raise TypeError(f"open() has no {', '.join(sorted(unknown))}. It takes {', '.join(Options.__annotations__)}.")
    parts = options.get("parts") or Parts()
    if (model := options.get("model")) is not None:
        parts = replace(parts, model=model)
    if (reviewer := options.get("review_model")) is not None:
        parts = replace(parts, review_model=reviewer)
    if (provider := options.get("provider")) is not None:
        parts = replace(parts, provider=provider)
    merged = settings(config, options.get("tenant"), background=options.get("background"))
    return merged, parts, options.get("on_event")


def settings(config: Settings, tenant: str | None, *, background: bool | None) -> Config:
    """The settings of one memory: arguments first, then environment, file and defaults."""
    given: dict[str, Any] = {
        name: value for name, value in (("tenant", tenant), ("background", background)) if value is not None
    }
    if isinstance(config, Config):
        merged = replace(config, **given) if given else config
    else:
        merged = load_config({**(config or {}), **given})
    check_name(merged.tenant, "tenant")
    return merged


def resolve_target(target: Target, config: Config) -> Path | None:
    """Where the store is. StoreUnavailable for a URL of a kind that this version does not know."""
    if isinstance(target, _Configured):
        target = config.store or default_store()
    if target is None:
        return None
    text = os.fspath(target) if isinstance(target, str | os.PathLike) else target
    if not isinstance(text, str) or not text or "\x00" in text:
        raise StoreUnavailable(f'{text!r} is no path. Pass the path of a file, such as "memory.db".')
    scheme, separator, rest = text.partition("://")
    if not separator:
        return _expand_home(text)
    if scheme == "sqlite" and rest.startswith("/") and rest != "/":
        return Path(rest[1:])  # sqlite:///relative and sqlite:////absolute, as SQLAlchemy has taught people
    # Not the URL itself: it may hold a password.
    raise StoreUnavailable(f"A {scheme!r} URL is no store that this version can open. Pass a path, or sqlite:///path.")


def _expand_home(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise StoreUnavailable(f"{text!r} names a home folder that is not known. Write the path out.") from error

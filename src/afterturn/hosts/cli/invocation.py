"""What every command is told: the store, the space, the tenant, the form of its output. Opens memory accordingly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from afterturn.base.config import Config, config_path, default_store, load_config
from afterturn.base.errors import InvalidInput, StoreUnavailable
from afterturn.base.names import check_space

if TYPE_CHECKING:
    from afterturn import blocking

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True)
class Invocation:
    """Filled by the shared options wherever they stand, before or after the command's name; the last one wins."""

    store: str | None = None
    space: str | None = None
    tenant: str | None = None
    json: bool = False
    debug: bool = False

    def overrides(self) -> dict[str, str]:
        given = {"store": self.store, "space": self.space, "tenant": self.tenant}
        return {name: value for name, value in given.items() if value is not None}

    def config(self) -> Config:
        return load_config(self.overrides())

    @contextmanager
    def memory(
        self, *, create: bool = False, vectors: bool = False, background: bool = False, floor: float | None = None
    ) -> Iterator[blocking.Memory]:
        """Without `create`, a store that is not there is an error: looking must not leave an empty file behind.

        Without `vectors` the embedder is not loaded, which is half the time that a short command takes. `floor` stands
        in for `recall_score_min`.
        """
        from afterturn import blocking

        config, path = self.config(), self.path()
        if not create and path is not None and not _is_there(path):
            raise StoreUnavailable(f"There is no store at {path}. `afterturn add` makes one; --store names another.")
        chosen = config if vectors else replace(config, embedder="none")
        chosen = chosen if floor is None else replace(chosen, recall_score_min=floor)
        with blocking.open(path, chosen, background=background) as memory:
            yield memory

    def path(self) -> Path | None:
        """Where the chosen store is."""
        from afterturn.opening import resolve_target

        config = self.config()
        return resolve_target(default_store() if config.store is None else config.store, config)

    @contextmanager
    def in_space(self, *, create: bool = False) -> Iterator[blocking.Space]:
        name = self.space_name()
        with self.memory(create=create) as memory:
            yield memory.space(name)

    def space_name(self) -> str:
        name = self.config().space
        if name is None:
            raise InvalidInput(
                f'No space is named. Pass `--space user:NAME`, set AFTERTURN_SPACE, or write space = "user:NAME" '
                f"into {config_path()}."
            )
        return check_space(name)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it can not be written as bytes"
        raise StoreUnavailable(f"{str(path)[:60]!r} is no path of a store: {reason}. Name another.") from error


class SharedOption(click.Option):
    """An option that every command takes; `--help` lists these last."""


def shared_options(function: F) -> F:
    for option in reversed(_SHARED):
        function = option(function)
    return function


def _keep(context: click.Context, parameter: click.Parameter, value: object) -> None:
    invocation = context.ensure_object(Invocation)
    if value is not None and value is not False:
        setattr(invocation, str(parameter.name), value)


def _shared(flag: str, **settings: Any) -> Callable[[F], F]:
    return click.option(flag, cls=SharedOption, expose_value=False, callback=_keep, **settings)


_SHARED: tuple[Callable[[Any], Any], ...] = (
    _shared("--store", metavar="PATH|URL", help="Where the memories are kept. Default: the setting `store`."),
    _shared("--space", metavar="NAME", help="Whose memory, such as user:ada. Default: the setting `space`."),
    _shared("--tenant", metavar="NAME", help="Which customer's data. Default: the setting `tenant`."),
    _shared("--json", is_flag=True, help="Print JSON instead of text; errors too, on stderr."),
    _shared("--debug", is_flag=True, help="Show the traceback of an unexpected error."),
)

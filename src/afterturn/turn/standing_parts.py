"""What standing contexts share and are made with. Checked once, where it comes in."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from afterturn.base.config import Config
from afterturn.base.errors import InvalidInput
from afterturn.base.events import Events
from afterturn.base.loop import PrivateLoop
from afterturn.base.ports import Clock, Ids, Store
from afterturn.base.supervisor import Supervisor
from afterturn.base.types import Scope
from afterturn.context.files import Places, file_names
from afterturn.context.lasting import Reader
from afterturn.context.standing import Room
from afterturn.recall.embedding import Embedding
from afterturn.turn.file_reads import FileReads
from afterturn.turn.place import Place


@dataclass(frozen=True, slots=True)
class StandingParts:
    """Of one memory, handed over by `runtime`. `folder` is that of the context files for all projects.

    Without a store, memory is off: files and instructions still stand.
    """

    loop: PrivateLoop
    store: Store | None
    reads: FileReads
    supervisor: Supervisor
    clock: Clock
    ids: Ids
    config: Config
    events: Events
    embedding: Embedding | None
    folder: str | None

    @property
    def room(self) -> Room:
        return Room(self.config.standing_bytes_max, self.config.entry_bytes_max, self.config.scanning)

    def places(self, roots: Iterable[str | os.PathLike[str]]) -> Places:
        names = file_names(self.config.context_files)
        return Places(self.folder, check_roots(roots), names, self.config.context_file_bytes_max)

    def reader(self, place: Place) -> Reader:
        return Reader(Scope(place.tenant, place.reads), self.clock.now(), place.agent, place.project, place.owner)


def check_roots(roots: Iterable[str | os.PathLike[str]]) -> tuple[str, ...]:
    if isinstance(roots, str | bytes | os.PathLike) or not isinstance(roots, Iterable):
        raise InvalidInput(f"`roots` is a list of folders, not {type(roots).__name__}. Pass [folder].")
    try:
        # Not `abspath`, which takes `..` away before links are followed.
        return tuple(os.path.join(os.getcwd(), os.fsdecode(root)) for root in roots)
    except TypeError as error:
        raise InvalidInput(f"A root is no path: {error}. Pass texts or Path objects.") from error


def check_instructions(instructions: Iterable[str]) -> tuple[str, ...]:
    is_list = isinstance(instructions, Iterable) and not isinstance(instructions, str | bytes)
    texts = tuple(instructions) if is_list else (None,)
    if not all(isinstance(text, str) for text in texts):
        raise InvalidInput("`instructions` is a list of texts. Pass [text].")
    return tuple(text for text in texts if isinstance(text, str))

"""One answer for a hook or a script: the store is read in the caller's thread, by words alone, and closed again.

Imports neither asyncio nor numpy and starts no thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from afterturn.config import Config, Settings, StoreUrl, default_store, find_store, load_config
from afterturn.conversation.read_turn import Ledger, make_question
from afterturn.conversation.scope import ConversationOptions, ConversationScope, make_scope
from afterturn.errors import InvalidInput
from afterturn.recall.answer import answer_question
from afterturn.recall.search import search
from afterturn.runtime.clock import SystemClock, TimeOrderedIds
from afterturn.stores.directory import find_tenant, needs_postgres
from afterturn.stores.keys import LOADS_MAX, KeyNeeded, KeyRing, key_provider, too_many_loads
from afterturn.stores.sqlite.session import read_once
from afterturn.types import ANYTHING, Scope
from afterturn.validation import check_name, check_space, check_text

if TYPE_CHECKING:
    from afterturn.ports import Unit
    from afterturn.types import Filter, Lane, SearchResults, StandingRow

R = TypeVar("R")


def recall_once(
    query: str,
    *,
    user: str | None = None,
    space: str | None = None,
    store: str | os.PathLike[str] | None = None,
    limit: int = 10,
    lanes: Sequence[Lane | Literal["short_term", "long_term", "episodic"]] | None = None,
    filter: Filter = ANYTHING,
    exclude: Iterable[str] = (),
    config: Config | Settings | Mapping[str, Any] | None = None,
) -> SearchResults:
    """Searches one space as `Space.search` does before vectors are loaded. `missing` holds "vectors" then.

    Name `user="ada"` or `space="project:api"`. `store` is a path or URL; omit it for the configured store. Never writes
    or creates a store: raises StoreUnavailable if there is none, or if it has an older schema.
    """
    # A hook does not need the arguments of all verbs, nor the values that they return.
    from afterturn.space.arguments import search_request

    settings = _settings(config)
    request = search_request(
        query,
        Scope(settings.tenant, (_space(user, space),)),
        settings,
        limit=limit,
        lanes=lanes,
        filter=filter,
        exclude=exclude,
        now=SystemClock().now(),
        correlation=TimeOrderedIds().new(),
    )
    return _read(store, settings, lambda unit: search(unit, request), request.scope)


def recall_block_once(
    text: str,
    *,
    user: str | None = None,
    space: str | None = None,
    reads: Sequence[str] = (),
    trusted_only: bool = False,
    project: str | None = None,
    standing: bool = True,
    store: str | os.PathLike[str] | None = None,
    config: Config | Settings | Mapping[str, Any] | None = None,
) -> str:
    """Returns what the first turn of a new conversation would get for this user message, by words alone: the standing
    block, unless `standing` is false, and the block.

    An empty text if there is nothing relevant. It does not know what the model has seen before. Name the space and the
    store as for `recall_once`. `reads`, `trusted_only` and `project` are those of `memory.conversation`.
    """
    settings, ids, now = _settings(config), TimeOrderedIds(), SystemClock().now()
    where: ConversationOptions = {"owner": _space(user, space), "reads": reads}
    where |= {"trusted_only": trusted_only, "project": project}
    scope = make_scope(settings.tenant, ids.new(), where)
    question = make_question(check_text(text, "text"), scope, Ledger(), settings)

    def work(unit: Unit) -> list[str]:
        stands = _make_standing(unit, scope, settings, now) if standing and settings.standing else None
        block = None
        if question is not None:
            asked = question.asked(now=now, correlation=ids.new())._replace(standing=stands)
            _, block = answer_question(unit, asked, None, config=settings)
        return [part.text for part in (stands, block) if part is not None]

    return "\n\n".join(_read(store, settings, work, scope.readable) if question is not None or standing else ())


def standing_once(
    *,
    space: str,
    reads: Sequence[str] = (),
    project: str | None = None,
    store: str | os.PathLike[str] | StoreUrl | None = None,
    config: Config,
) -> str:
    """Returns the standing block that a new conversation would get, empty if there is nothing to say."""
    now, where = SystemClock().now(), ConversationOptions(owner=space, reads=reads, project=project)
    scope = make_scope(config.tenant, "standing", where)
    made = _read(store, config, lambda unit: _make_standing(unit, scope, config, now), scope.readable)
    return made.text if made is not None else ""


def _make_standing(unit: Unit, scope: ConversationScope, config: Config, now: float) -> StandingRow | None:
    # Loaded when it is needed: its patterns take longer than a recall for a hook, which has the block already.
    from afterturn.standing.block import StandingBudget, StandingContent, render_standing
    from afterturn.standing.memories import StandingReader, find_standing
    from afterturn.types import StandingRow

    where = (scope.readable, now, scope.agent, scope.project, scope.owner)
    reader = StandingReader(*where, config.standing_chars_max, config.rules, config.scan_policy)
    content = StandingContent(memories=find_standing(unit, reader))
    room = StandingBudget(config.standing_bytes_max, scanning=config.scan_policy)
    made = render_standing(content, room)
    return StandingRow(made.text, made.refs, now) if made.text else None


def _read(store: str | os.PathLike[str] | StoreUrl | None, config: Config, work: Callable[[Unit], R], at: Scope) -> R:
    target = find_store(config.store or default_store() if store is None else store)
    provider = key_provider(config)
    keys = None if provider is None else KeyRing(provider, SystemClock())
    for _ in range(LOADS_MAX):
        try:
            if isinstance(target, StoreUrl):
                # Loaded when it is needed: it imports asyncio.
                with needs_postgres():
                    from afterturn.stores.postgres import engine
                return engine.read_once(
                    find_tenant(target, config.tenant), config, SystemClock(), work, at=at, keys=keys
                )
            return read_once(target, config, SystemClock(), work, keys=keys)
        except KeyNeeded as needed:
            assert keys is not None
            keys.load(needed)
    raise too_many_loads()


def _settings(config: Config | Settings | Mapping[str, Any] | None) -> Config:
    merged = config if isinstance(config, Config) else load_config(config)
    check_name(merged.tenant, "tenant")
    return merged


def _space(user: str | None, space: str | None) -> str:
    if (user is None) == (space is None):
        raise InvalidInput('Name one space: user="ada", or space="project:api".')
    return check_space(f"user:{check_name(user, 'user')}" if space is None else space)

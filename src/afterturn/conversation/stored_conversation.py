"""A conversation outside of its turns: whether memory is usable, and what the store has of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from afterturn.conversation.briefing import make_briefing
from afterturn.conversation.replay import Replay, check_changes, replay
from afterturn.conversation.scope import ConversationScope
from afterturn.conversation.subagents import Subagents
from afterturn.conversation.tool_advice import ToolAdvice, ToolRule, find_tool_rules, shown_name
from afterturn.conversation.trace import TURNS_MAX, Trace, TraceAnswer, answers, check_ref, check_turn, trace
from afterturn.errors import InvalidInput, StoreUnavailable
from afterturn.log import logger
from afterturn.ports import Store
from afterturn.text import estimate_tokens
from afterturn.types import ConversationKey, Scalar, Tenant
from afterturn.validation import check_limit, check_space

if TYPE_CHECKING:
    from afterturn.runtime.loop_thread import LoopThread
    from afterturn.services import Services


class StoredConversation:
    """The base of the engine. Its coroutines run on memory's loop, and raise StoreUnavailable if memory is off."""

    def __init__(self, services: Services, key: ConversationKey) -> None:
        self._services = services
        self.key = key
        # As far as this process knows: a turn that is recorded unread must not be in a file then.
        self._is_kept_incognito = False

    @property
    def loop(self) -> LoopThread:
        return self._services.loop

    @property
    def subagents(self) -> Subagents:
        return self._services.subagents

    def warn_misuse(self, event: str, how: str) -> None:
        """Reports once per memory, without its loop, that a turn is used without effect."""
        if self._services.events.emit_once(event, conversation=self.key.id):
            logger.warning("conversation %r: a turn was used %s; it continues without memory", self.key.id, how)

    @property
    def is_closed(self) -> bool:
        """Whether memory's loop has ended, so that nothing of a turn changes any more."""
        return self._services.loop.gone

    @property
    def is_forked(self) -> bool:
        return self._services.loop.forked

    @property
    def is_on_loop(self) -> bool:
        return self._services.loop.in_thread

    async def find_tool_rules(
        self, scope: ConversationScope, turn: str, name: str, arguments: object
    ) -> list[ToolRule]:
        """The standing rules that concern a tool call. None if memory is off, or does not answer in time."""
        services = self._services
        if not services.has_store:
            return []
        config, now = services.config, services.clock.now()
        try:
            async with asyncio.timeout(config.recall_timeout):
                return await services.store.read(
                    lambda unit: find_tool_rules(unit, scope, config, name, arguments, now=now), at=scope.readable
                )
        except Exception as error:  # the boundary: memory's fault must not stop the host's tools
            logger.warning("a tool call was not checked against rules: %s", type(error).__name__, exc_info=error)
            self._emit_of(turn, "tool_rules_failed", tool=shown_name(name), reason=type(error).__name__)
            return []

    def note_tool_rules(self, turn: str, name: str, advice: ToolAdvice) -> None:
        for rule in advice.rules:
            refused = advice.refusal is not None and rule.firm
            self._emit_of(
                turn, "tool_rule", tool=shown_name(name), memory=rule.ref, rule=rule.text, why=rule.why, refused=refused
            )

    def _emit_of(self, turn: str, event: str, **data: Scalar) -> None:
        self._services.events.emit(event, space=self.key.space, conversation=self.key.id, turn=turn, **data)

    async def briefing(self, scope: ConversationScope, on_untrusted: Callable[[], None]) -> str:
        """How the last conversation in the project ended. Blank if memory is off or fails."""
        services = self._services
        if not services.has_store:
            return ""
        config, now = services.config, services.clock.now()
        try:
            async with asyncio.timeout(config.recall_timeout):
                found = await services.store.read(
                    lambda unit: make_briefing(unit, scope, config, now=now), at=scope.readable
                )
        except Exception as error:  # the boundary: a conversation starts without a briefing
            logger.warning("there is no briefing: %s", type(error).__name__, exc_info=error)
            return ""
        if found.has_report:
            on_untrusted()
        if found.text:
            self._emit_of("", "briefed", about=found.conversation, tokens=estimate_tokens(found.text))
        return found.text

    async def set_incognito(self, *, on: bool) -> None:
        at = self._services.clock.now()
        await self._stored().write(
            lambda unit: unit.conversations.set_incognito(self.key, on=on, at=at), at=self.key.scope
        )
        self._is_kept_incognito = on
        self._emit_of("", "incognito_changed", on=on)

    async def is_kept_incognito(self) -> bool:
        state = await self._stored().read(lambda unit: unit.conversations.state(self.key), at=self.key.scope)
        return state.incognito

    async def trace(self, turn: str | int | None = None, *, limit: int = 20) -> Trace:
        wanted, count = check_turn(turn), check_limit(limit, TURNS_MAX)
        return await self._stored().read(
            lambda unit: trace(unit, self.key, wanted, limit=count), at=Tenant(self.key.tenant)
        )

    async def why(
        self, memory: str, *, turn: str | int | None = None, look_in: Sequence[str] = ()
    ) -> Sequence[TraceAnswer]:
        ref, wanted, spaces = check_ref(memory), check_turn(turn), [check_space(space) for space in look_in]
        return await self._stored().read(
            lambda unit: answers(unit, self.key, wanted, ref, spaces), at=Tenant(self.key.tenant)
        )

    async def replay(self, turn: str | int, *, changes: Mapping[str, Scalar] | None = None) -> Replay:
        wanted, others = check_turn(turn), check_changes(changes or {})
        if wanted is None:
            raise InvalidInput('No turn was given. Pass its id, its number (the first is 1), or "last".')
        return await self._stored().read(
            lambda unit: replay(unit, self.key, wanted, others), at=Tenant(self.key.tenant)
        )

    def _stored(self) -> Store:
        if not self._services.has_store:
            raise StoreUnavailable("Memory is off: it was opened without a store, so there are no past turns.")
        return self._services.store

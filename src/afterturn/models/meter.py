"""The token meter: counts every model call by space, day and purpose, and stops calls at the daily limit."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from afterturn.config import Config
from afterturn.errors import AfterturnError, ModelAnswerInvalid, ModelPaused, ModelUnavailable
from afterturn.events import Events
from afterturn.log import logger
from afterturn.ports import ChatModel, Clock, Store
from afterturn.text import estimate_tokens
from afterturn.types import Purpose, Scope, UsageRow

# The longest time that a store that hangs delays a model call, which takes seconds anyway.
STORE_WITHIN = 2.0
# How long one model call may take. No turn waits for it.
MODEL_TIMEOUT = 30.0
DAY = 86_400.0
# Larger counts from a server are ignored as mistakes: no model reads or writes so much at once.
REPORTED_TOKENS_MAX = 10_000_000


@dataclass(frozen=True, slots=True)
class Meter:
    """One per memory. If the store cannot be read, calls continue: the limit protects a budget, not safety."""

    store: Store
    config: Config
    clock: Clock
    events: Events

    def of(self, model: ChatModel, purpose: Purpose, tenant: str, space: str) -> MeteredModel:
        return MeteredModel(self, model, purpose, tenant, space)

    async def check(self, purpose: Purpose, tenant: str, space: str) -> None:
        """Raises ModelPaused if the space's tokens for this day are used up."""
        limit = self.config.tokens_per_day_max
        used = 0 if limit is None else await self._used(tenant, space)
        if limit is not None and used >= limit:
            self.events.of(tenant).emit("model_paused", space=space, purpose=purpose.value, tokens=used, limit=limit)
            raise ModelPaused(
                f"Models have used {used} tokens for {space} today, and tokens_per_day_max is {limit}. Model calls "
                "continue tomorrow. Raise the setting to continue now.",
                reason="paused",
                resumes_at=(self.clock.now() // DAY + 1) * DAY,
            )

    async def add(self, tenant: str, spent: UsageRow) -> None:
        try:
            async with asyncio.timeout(STORE_WITHIN):
                await self.store.write(lambda unit: unit.usage.add(tenant, spent), at=Scope(tenant, (spent.space,)))
        except (AfterturnError, TimeoutError) as error:
            logger.warning("%d tokens of a model call were not counted: %r", spent.tokens, error)

    async def _used(self, tenant: str, space: str) -> int:
        day = self.day()
        try:
            async with asyncio.timeout(STORE_WITHIN):
                return await self.store.read(
                    lambda unit: unit.usage.tokens(tenant, day, space=space), at=Scope(tenant, (space,))
                )
        except (AfterturnError, TimeoutError) as error:
            logger.warning("the tokens that models used today cannot be read: %r", error)
            return 0

    def day(self) -> str:
        return datetime.fromtimestamp(self.clock.now(), UTC).date().isoformat()


class MeteredModel:
    """A ChatModel that counts. `calls` and `tokens` count the calls of this object only, for example of one review."""

    def __init__(self, meter: Meter, model: ChatModel, purpose: Purpose, tenant: str, space: str) -> None:
        self._meter = meter
        self._model = model
        self._purpose = purpose
        self._tenant = tenant
        self._space = space
        self.calls = 0
        self.tokens = 0

    async def complete(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        await self._meter.check(self._purpose, self._tenant, self._space)
        # Counted before the answer: the prompt costs tokens even if the call is cancelled.
        asked = estimate([*messages, *tools])
        self.calls += 1
        await self._add(1, asked, 0, asked)
        answer = await self._answer(messages, tools, schema)
        reported = _reported(answer.get("usage"))
        tokens_in, tokens_out = reported or (asked, estimate([answer]))
        await self._add(0, tokens_in - asked, tokens_out, tokens_out if reported is None else -asked)
        return {name: value for name, value in answer.items() if name != "usage"}

    async def _answer(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        schema: Mapping[str, Any] | None,
    ) -> Mapping[str, Any]:
        """Turns SystemExit, KeyboardInterrupt and CancelledError from the host's model into ModelUnavailable."""
        try:
            answer = await self._model.complete(messages, tools, schema=schema)
        except (SystemExit, KeyboardInterrupt) as error:
            raise _no_answer(error) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            raise _no_answer(error) from error
        if not isinstance(answer, Mapping):
            raise ModelAnswerInvalid(
                f"The model returned a {type(answer).__name__}, not a message.", reason="no_message"
            )
        return answer

    async def _add(self, calls: int, tokens_in: int, tokens_out: int, estimated: int) -> None:
        self.tokens += tokens_in + tokens_out
        spent = UsageRow(self._space, self._meter.day(), self._purpose, calls, tokens_in, tokens_out, estimated)
        await self._meter.add(self._tenant, spent)


def _no_answer(error: BaseException) -> ModelUnavailable:
    return ModelUnavailable(f"The model raised {type(error).__name__}. Fix the model.", reason="raised")


def _reported(usage: object) -> tuple[int, int] | None:
    """The tokens of the call, as the server reports them."""
    if not isinstance(usage, Mapping):
        return None
    counts = [usage.get("prompt_tokens"), usage.get("completion_tokens")]
    first, second = (count if isinstance(count, int) and count >= 0 else None for count in counts)
    if max(first or 0, second or 0) > REPORTED_TOKENS_MAX:
        return None
    return None if first is None else (first, second or 0)


def estimate(parts: Sequence[Mapping[str, Any]]) -> int:
    """An estimate of the tokens of messages or tools."""
    return sum(estimate_tokens(json.dumps(part, ensure_ascii=False, default=str)) for part in parts)

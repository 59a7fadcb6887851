"""Token usage of models is counted, and a daily limit pauses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import afterturn
from afterturn.errors import ModelPaused, ModelUnavailable
from afterturn.models.meter import Meter
from afterturn.testing.clock import ManualClock
from afterturn.testing.model import Held, ScriptedModel
from afterturn.types import Purpose, UsageRow

QUESTION = [{"role": "user", "content": "What is the capital of Norway?"}]


class ModelWithUsage:
    """A model that reports its token usage."""

    async def complete(self, messages: Any, tools: Any = (), *, schema: Any = None) -> dict[str, Any]:
        return {"role": "assistant", "content": "Oslo.", "usage": {"prompt_tokens": 70, "completion_tokens": 7}}


async def spent(memory: afterturn.Memory) -> list[UsageRow]:
    return list(await memory.space("user:ada").usage())


def meter_of(memory: afterturn.Memory) -> Meter:
    return memory._services.meter


async def test_token_counts_of_the_server_are_used(tmp_path: Path) -> None:
    """V12: one row for each day, space and purpose; the answer comes without the bill."""
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}) as memory:
        model = meter_of(memory).of(ModelWithUsage(), Purpose.REVIEW, "default", "user:ada")
        answer = await model.complete(QUESTION)
        await model.complete(QUESTION)
        (row,) = await spent(memory)

    assert "usage" not in answer
    assert (row.purpose, row.calls, row.tokens_in, row.tokens_out, row.estimated) == (Purpose.REVIEW, 2, 140, 14, 0)
    assert (model.calls, model.tokens) == (2, 154)


@pytest.mark.parametrize("tokens_in, tokens_out", [(2**62, 2**62), (10**30, 1), (1, 10_000_001)])
async def test_impossible_token_counts_of_a_server_are_ignored(tmp_path: Path, tokens_in: int, tokens_out: int) -> None:
    """V12: what no model can have read fills neither the day's limit nor a store's numbers."""
    usage = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}
    boasting = ScriptedModel({"role": "assistant", "content": "Oslo.", "usage": usage})
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}) as memory:
        model = meter_of(memory).of(boasting, Purpose.REVIEW, "default", "user:ada")
        await model.complete(QUESTION)
        (row,) = await spent(memory)

    assert row.estimated == row.tokens == model.tokens < 1000


async def test_missing_token_counts_are_estimated(tmp_path: Path) -> None:
    """V12: and it says so."""
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}) as memory:
        await meter_of(memory).of(ScriptedModel("Oslo."), Purpose.RECALL, "default", "user:ada").complete(QUESTION)
        (row,) = await spent(memory)

    assert row.tokens_in > 5
    assert row.tokens_out > 0
    assert row.estimated == row.tokens


@pytest.mark.parametrize("fault", [ModelUnavailable("gone", reason="gone"), TimeoutError()])
async def test_a_failed_call_costs_its_prompt(tmp_path: Path, fault: Exception) -> None:
    """V12: given up or failed, the server has read it."""
    async with afterturn.open(tmp_path / "memory.db", {"embedder": "none"}) as memory:
        with pytest.raises(type(fault)):
            await meter_of(memory).of(ScriptedModel(fault), Purpose.REVIEW, "default", "user:ada").complete(QUESTION)
        (row,) = await spent(memory)

    assert (row.calls, row.tokens_out) == (1, 0)
    assert row.tokens_in > 5


async def test_over_the_days_limit_models_pause_until_tomorrow(tmp_path: Path) -> None:
    """V12: per space, and the next day begins at nothing."""
    clock, events = ManualClock(), []
    config = {"embedder": "none", "tokens_per_day_max": 100}
    async with afterturn.open(
        tmp_path / "memory.db", config, components=afterturn.Components(clock=clock), on_event=events.append
    ) as memory:
        meter = meter_of(memory)
        for _ in range(2):
            await meter.of(ModelWithUsage(), Purpose.REVIEW, "default", "user:ada").complete(QUESTION)
        with pytest.raises(ModelPaused, match="tokens_per_day_max is 100"):
            await meter.of(ModelWithUsage(), Purpose.REVIEW, "default", "user:ada").complete(QUESTION)
        await meter.of(ModelWithUsage(), Purpose.REVIEW, "default", "user:bob").complete(QUESTION)
        clock.advance(86_400.0)
        await meter.of(ModelWithUsage(), Purpose.REVIEW, "default", "user:ada").complete(QUESTION)

    assert [event.data["tokens"] for event in events if event.name == "model_paused"] == [154]


async def test_a_paused_selector_leaves_the_fast_recall(tmp_path: Path) -> None:
    """V12, R7: refined recall pauses and says so; what words and vectors found is handed over."""
    events: list[afterturn.Event] = []
    config = {"embedder": "none", "refined": True, "tokens_per_day_max": 1, "grace": 5.0, "recall_score_min": 0.0}
    model = ScriptedModel(Held())
    async with afterturn.open(tmp_path / "memory.db", config, model=model, on_event=events.append) as memory:
        await memory.space("user:ada").add("Ada's gecko is called Fermat")
        await meter_of(memory).of(ModelWithUsage(), Purpose.RECALL, "default", "user:ada").complete(QUESTION)
        messages = [{"role": "user", "content": "what is the gecko called?"}]
        async with memory.conversation("c", user="ada").turn(messages) as turn:
            block = await turn.inject(messages)
            await turn.inject(messages, phase="refined", within=5.0)

    assert block is not None
    assert "Fermat" in block["content"]
    assert [event.data["reason"] for event in events if event.name == "refined_failed"] == ["paused"]
    assert model.calls == []

"""The settings of compaction: which model summarises, from when on, and how much is kept (K1)."""

from pathlib import Path

import afterturn
from afterturn.conversation.compactor import StateSnapshot
from afterturn.testing.model import ScriptedModel

SNAPSHOT = StateSnapshot("Ship the api.", "- The port is 5432.", "None.", "- Read the log.", "[TODO] Ship it.").text


def history(turns: int = 30) -> list[object]:
    said: list[object] = []
    for number in range(turns):
        said.append({"role": "user", "content": f"Question {number}: " + "one more word " * 20})
        said.append({"role": "assistant", "content": "An answer of some length. " * 10})
    return said


async def compacted(path: Path, limit_tokens: int = 3_000) -> afterturn.Compacted:
    async with afterturn.open(path / "memory.db", {"embedder": "none"}, model=ScriptedModel(SNAPSHOT)) as memory:
        return await memory.conversation("c", user="ada").compact(history(), limit_tokens=limit_tokens)


async def test_another_model_may_summarise(tmp_path: Path) -> None:
    """K1: the model of reviews and recall is not called."""
    general, summarizer = ScriptedModel(), ScriptedModel(SNAPSHOT)
    settings = {"embedder": "none"}
    async with afterturn.open(tmp_path / "memory.db", settings, model=general, compaction_model=summarizer) as memory:
        done = await memory.conversation("c", user="ada").compact(history(), limit_tokens=3_000)
    assert done.changed
    assert (len(general.calls), len(summarizer.calls)) == (0, 1)


async def test_the_threshold_is_a_share_of_the_limit(tmp_path: Path) -> None:
    """K1: half of it."""
    tokens = (await compacted(tmp_path)).tokens_before
    assert (await compacted(tmp_path, round(tokens / 0.51))).changed
    assert (await compacted(tmp_path, round(tokens / 0.49))).reason == "below_threshold"


async def test_a_share_of_the_history_is_kept(tmp_path: Path) -> None:
    """K1: 30 % of its tokens."""
    done = await compacted(tmp_path)
    kept = len(history()) - done.summarised
    assert 0.2 < kept / len(history()) <= 0.3


async def test_the_model_of_the_settings_summarises() -> None:
    """K1: unless the host brings one for summaries."""
    server = "http://localhost:1/v1"
    async with afterturn.open(None, {"model": "large", "model_url": server}) as memory:
        assert repr(memory._services.compaction_model) == f"OpenAICompatible('{server}', 'large')"

"""The settings of compaction: which model summarises, from when on, and how much is kept (K1)."""

from pathlib import Path

import pytest

import afterturn
from afterturn.config import Config
from afterturn.prompt.compaction import StateSnapshot
from afterturn.services import compaction_model
from afterturn.testing.model import ScriptedModel

SNAPSHOT = StateSnapshot("Ship the api.", "- The port is 5432.", "None.", "- Read the log.", "[TODO] Ship it.").text


def history(turns: int = 30) -> list[object]:
    said: list[object] = []
    for number in range(turns):
        said.append({"role": "user", "content": f"Question {number}: " + "one more word " * 20})
        said.append({"role": "assistant", "content": "An answer of some length. " * 10})
    return said


async def compacted(path: Path, limit_tokens: int = 3_000, **settings: object) -> afterturn.Compacted:
    settings = {"embedder": "none", **settings}
    async with afterturn.open(path / "memory.db", settings, model=ScriptedModel(SNAPSHOT)) as memory:
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
    """K1: half of it, unless the host wants another."""
    tokens = (await compacted(tmp_path)).tokens_before
    limit = round(tokens / 0.6)
    assert (await compacted(tmp_path, limit)).changed
    assert (await compacted(tmp_path, limit, compaction_threshold_share=0.7)).reason == "below_threshold"


@pytest.mark.parametrize("share", [0.1, 0.6])
async def test_the_share_that_is_kept_can_be_set(tmp_path: Path, share: float) -> None:
    """K1: of the history's tokens."""
    done = await compacted(tmp_path, compaction_keep_share=share)
    kept = len(history()) - done.summarised
    assert share - 0.1 < kept / len(history()) <= share


def test_the_settings_name_the_model_that_summarises() -> None:
    """K1: at the same server; without a name of its own, the model for everything else."""
    server = "http://localhost:1/v1"
    named = Config(model="large", model_url=server, compaction_model="small")
    assert repr(compaction_model(named, afterturn.Components())) == f"OpenAICompatible('{server}', 'small')"
    unnamed = Config(model="large", model_url=server)
    assert repr(compaction_model(unnamed, afterturn.Components())) == f"OpenAICompatible('{server}', 'large')"

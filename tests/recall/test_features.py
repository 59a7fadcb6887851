"""What depends on an entry alone is computed once, and lives as long as the entry."""

import gc
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import afterturn
from afterturn.config import Config
from afterturn.recall import features as features_module
from afterturn.recall.block import Excerpt, render
from afterturn.recall.features import NormalForm, features_of, normal_form
from afterturn.testing.entries import NOW, entry, hit
from afterturn.testing.hashing import HashingEmbedder
from afterturn.text import estimate_tokens
from afterturn.types import Origin

QUESTION = "Which cats and dogs live in the village by the river?"


@pytest.fixture
def computed(monkeypatch) -> list[str]:
    """The texts whose normal form was computed, in order."""
    found: list[str] = []

    def counted(text: str, origin: Origin, voice: str) -> NormalForm | None:
        found.append(text)
        return normal_form(text, origin, voice)

    monkeypatch.setattr(features_module, "normal_form", counted)
    return found


async def ask(memory: afterturn.Memory, conversation: str) -> str:
    """The block of a turn that is not recorded, so that it adds no texts."""
    messages = [{"role": "user", "content": QUESTION}]
    async with memory.conversation(conversation, user="ada").turn(messages) as turn:
        await turn.inject(messages, within=20.0)
        turn.abort()
    return str(messages[-1]["content"])


async def test_a_warm_turn_computes_normal_forms_of_new_texts_only(tmp_path, computed):
    """G5: a turn costs little, however often the same memories are candidates."""
    old = [f"Cat {name} lives in the village by the river" for name in ("Miso", "Tofu", "Nori", "Soba")]
    new = [f"Dog {name} lives in the village by the river" for name in ("Rex", "Bello")]
    # What stands is compared once for each conversation, not in each turn.
    config, parts = Config(recall_score_min=0.0, standing=False), afterturn.Components(embedder=HashingEmbedder())
    async with afterturn.open(tmp_path / "store.db", config, components=parts) as memory:
        await memory.space("user:ada").add_many([afterturn.Draft(text) for text in old])
        await memory.drain()
        assert "Tofu" in await ask(memory, "first")
        first = list(computed)
        computed.clear()
        assert "Tofu" in await ask(memory, "second")
        assert computed == []
        await memory.space("user:ada").add_many([afterturn.Draft(text) for text in new])
        await memory.drain()
        assert "Bello" in await ask(memory, "third")
    assert sorted(first) == sorted(old)
    assert sorted(computed) == sorted(new)


def test_features_are_not_a_field_of_an_entry():
    """M1: what is compared, exported or copied is the entry alone."""
    one = entry("My cat is called Miso")
    form = features_of(one).form
    assert features_of(one).form is form is not None
    assert one == entry("My cat is called Miso")
    assert "features" not in asdict(one)
    other = features_of(replace(one, text="My dog is called Rex")).form
    assert other is not None
    assert "rex" in other.steps


def test_features_do_not_hold_their_entry():
    """M2: a cycle would keep a forgotten text in memory until the next garbage collection."""
    one = entry("My cat is called Miso")
    features = features_of(one)
    assert all((features.form, features.line_tokens, features.terms))
    assert not any(found is one for found in gc.get_referents(features, vars(features), features.form))


@given(st.lists(st.tuples(st.text(max_size=60), st.sampled_from(list(Origin))), min_size=1, max_size=4))
def test_a_blocks_tokens_are_those_of_its_text(texts):
    """H9: estimates that are cached by line add up to the estimate of the whole block."""
    hits = [hit(text, id=f"e{number}", origin=origin) for number, (text, origin) in enumerate(texts)]
    block = render([Excerpt(one, one.entry.text) for one in hits], now=NOW)
    assert block.tokens == estimate_tokens(block.text)
    cut = render([Excerpt(one, one.entry.text[: len(one.entry.text) // 2]) for one in hits], now=NOW)
    assert cut.tokens == estimate_tokens(cut.text)

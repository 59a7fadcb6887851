"""Words that come again are looked up. What comes out must be what the tokenizer gives for the whole text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterturn.embedders import word_vectors

EMBEDDER = word_vectors.StaticEmbedder()
PARTS = st.sampled_from(["tea", "Ada", " ", "  ", ".", "\n", "\t", "<s>", "</s>", "<", "▁", "\u3042", "é", "🍵", "0"])


@given(st.lists(st.lists(PARTS, max_size=12).map("".join) | st.text(max_size=40), max_size=4))
def test_pieces_give_the_tokens_of_the_whole_text(texts: list[str]):
    """One embedder, one vector for a text, alone or among others."""
    _, tokenizer = EMBEDDER._parts()
    plain = [text.encode("utf-8", "replace").decode() for text in texts]
    assert word_vectors._tokenised(tokenizer, texts, {}) == [word_vectors._tokens(tokenizer, text) for text in plain]


@pytest.mark.parametrize("text", ["Ada likes oolong tea, she said.", "tea tea tea", " tea", "tea ", "a  b", ""])
def test_a_text_has_the_same_vector_alone_and_among_others(text: str):
    alone, among = EMBEDDER.embed([text])[0], EMBEDDER.embed(["Something else about tea.", text])[1]
    assert (alone == among).all()

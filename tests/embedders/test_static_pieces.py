"""Texts are split into the tokens that the `tokenizers` package makes of them with the wheel's vocabulary."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from afterturn.embedders import word_vectors
from afterturn.embedders.word_vectors import StaticEmbedder, Vocabulary

EMBEDDER = StaticEmbedder()
PARTS = st.sampled_from(
    [
        "tea",
        "Ada",
        " ",
        "  ",
        "     ",
        ".",
        "\n",
        "\t",
        "<s>",
        "</s>",
        "<unk>",
        "<",
        "<0x41>",
        "▁",
        "\u3042",
        "é",
        "🍵",
        "0",
    ]
)
SPACELESS = st.text(st.characters(exclude_categories=["Z", "C"]), min_size=40, max_size=80)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return EMBEDDER._parts()[1]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    found = Tokenizer.from_file(str(word_vectors._find_folder() / word_vectors._TOKENIZER))
    found.no_truncation()
    found.no_padding()
    return found


@given(st.lists(PARTS, max_size=12).map("".join) | st.text(max_size=40) | SPACELESS)
def test_tokens_are_those_of_the_tokenizers_package(vocabulary: Vocabulary, tokenizer: Tokenizer, text: str):
    """M3: vectors that were made with it stay comparable."""
    plain = text.encode("utf-8", "replace").decode()
    assert vocabulary.tokens(plain, {}) == tokenizer.encode(plain, add_special_tokens=False).ids


@pytest.mark.parametrize("joined_by", ["", " ", "\n"])
def test_any_sequence_of_tokens_is_split_as_by_the_tokenizers_package(
    vocabulary: Vocabulary, tokenizer: Tokenizer, joined_by: str
):
    """M3: also where several ways of merging lead to the same token."""
    chance = random.Random(1)
    tokens = sorted(tokenizer.get_vocab())
    known: dict[str, list[int]] = {}
    for _ in range(500):
        text = joined_by.join(chance.choices(tokens, k=20))
        assert vocabulary.tokens(text, known) == tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("text", ["Ada likes oolong tea, she said.", "tea tea tea", " tea", "tea ", "a  b", ""])
def test_a_text_has_the_same_vector_alone_and_among_others(text: str):
    alone, among = EMBEDDER.embed([text])[0], EMBEDDER.embed(["Something else about tea.", text])[1]
    assert (alone == among).all()

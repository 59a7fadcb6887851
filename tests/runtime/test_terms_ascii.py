"""Plain text takes a shorter way through the analysis; it must come out the same."""

from hypothesis import given
from hypothesis import strategies as st

from afterturn import text


@given(st.text(alphabet=st.characters(max_codepoint=127)))
def test_plain_text_gives_the_words_that_the_general_way_gives(given_text: str):
    """L5: one analysis for all scripts."""
    assert text.words(given_text) == text._any_word().findall(given_text.lower())

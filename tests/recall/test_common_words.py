"""Words that say nothing by themselves, in all scripts; those of ASCII are known without the others."""

import pytest

from afterturn.recall import query
from afterturn.text import terms


def test_a_courtesy_in_plain_letters_is_known_without_those_of_other_scripts() -> None:
    """L5: a text in ASCII is judged as it would be beside all the words."""
    plain = {term for term in query._courtesy_terms() | query.COMMON_TERMS if term.isascii()}
    assert plain == query._ASCII_EMPTY_TERMS


@pytest.mark.parametrize(
    "text, says",
    [
        ("Noted, thanks!", False),
        ("teşekkürler, günaydın", False),
        ("谢谢你", False),
        ("ok, спасибо большое", False),
        ("thanks, the otter", True),
        ("спасибо, выдра", True),
        ("ok 水獭", True),
    ],
)
def test_what_is_said_beside_courtesies_counts(text: str, says: bool) -> None:
    """L5: in any script, and in two at once."""
    assert query.has_content(terms(text)) is says

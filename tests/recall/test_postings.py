"""Terms and the rows that hold them, however the rows came."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from afterturn.recall.index.snapshot import PostingForm, Postings, form_for, hashed

ROWS = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12), max_size=30)


def grown(postings: Postings, rows: list[list[str]], start: int) -> Postings:
    numbers = np.repeat(np.arange(start, start + len(rows), dtype=np.int32), [len(terms) for terms in rows])
    return postings.with_rows(hashed(rows), numbers)


def held(postings: Postings, term: str) -> dict[int, int]:
    [places] = postings.find([term])
    found = [pair for rows, counts in places for pair in zip(rows.tolist(), counts.tolist(), strict=True)]
    assert len(dict(found)) == len(found)
    return dict(found)


def expected(rows: list[list[str]], term: str) -> dict[int, int]:
    return {row: Counter(terms)[term] for row, terms in enumerate(rows) if term in terms}


@given(batches=st.lists(ROWS, max_size=6))
def test_every_occurrence_is_found_where_it_is(batches):
    """L6: whether rows came together or one after the other."""
    postings, rows = Postings(), []
    for batch in batches:
        postings = grown(postings, batch, len(rows))
        rows += batch
    for term in "abcdefghx":
        assert held(postings, term) == expected(rows, term)


def test_parts_stay_few():
    """L6: a thousand messages, each recorded by itself, are not a thousand places to look."""
    postings = Postings()
    for row in range(1000):
        postings = grown(postings, [["honey", f"word{row}"]], row)
    [places] = postings.find(["honey"])
    assert len(places) < 10
    assert held(postings, "honey") == dict.fromkeys(range(1000), 1)
    assert held(postings, "word500") == {500: 1}


def test_an_older_reader_keeps_what_it_has():
    """L6: postings that grow are others."""
    before = grown(Postings(), [["honey"]], 0)
    grown(before, [["honey"]], 1)
    assert held(before, "honey") == {0: 1}


@given(rows=ROWS, gone=st.sets(st.integers(0, 29)))
def test_blank_rows_hold_nothing(rows, gone):
    """M2: what was forgotten is not in memory."""
    postings = grown(Postings(), rows, 0)
    postings.blank(np.array(sorted(gone), np.int32))
    left = [[] if row in gone else terms for row, terms in enumerate(rows)]
    for term in "abcdefgh":
        assert {row: count for row, count in held(postings, term).items() if count} == expected(left, term)


def test_rows_beyond_the_form_of_the_first_are_held_too():
    """L6: a space may grow to any size, and each row counts."""
    postings = grown(Postings(), [["honey"]], 0)
    bits = form_for(1).row_bits
    for row in ((1 << bits) - 1, 1 << bits, 1 << (bits + 3)):
        postings = grown(postings, [["honey", "honey"]], row)
    assert held(postings, "honey") == {0: 1, (1 << bits) - 1: 2, 1 << bits: 2, 1 << (bits + 3): 2}


@given(st.integers(-(2**63), 2**63 - 1), st.integers(10, 30), st.data())
def test_term_and_row_come_back_from_their_number(term, bits, data):
    form = PostingForm(bits)
    row = data.draw(st.integers(0, 2**bits - 1))
    packed = form.packed(np.array([term]), np.array([row], np.int32))
    assert (packed & ((1 << bits) - 1)).tolist() == [row]
    assert (packed >> bits).tolist() == [term >> bits]

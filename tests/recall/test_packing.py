"""A shelf that was saved and read again is the same shelf."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from bookshelf import IDENTITY, SPACE, PlainIndex, PlainUnit, stocked
from hypothesis import given
from hypothesis import strategies as st
from test_shelf import assert_agrees, change, spaces, vector

from afterturn.base.digest import Digest
from afterturn.base.types import Kind, Origin, Shelved
from afterturn.recall.assembly import Place, Plan
from afterturn.recall.digests import load_digest, make_digest
from afterturn.recall.packing import FORM, Unpacked, is_intact, is_packable
from afterturn.recall.postings import hashed
from afterturn.recall.shelf import Shelf
from afterturn.recall.stock import Stock

PLACE = Place("default", SPACE)


def loaded(index: PlainIndex, digest: Digest) -> Stock:
    stock = load_digest(PlainUnit(index), PLACE, Plan(IDENTITY, index.extent()), digest)
    assert stock is not None
    return stock


def grow_plain(index: PlainIndex) -> None:
    for key, speaker in enumerate(("Ada Lovelace", "Bob"), 1):
        entry = Shelved(key, SPACE, Kind.RECORD, Origin.USER, speaker, "c1", None, key, ("apple", "pie"))
        index.put(entry)
        index.embed(key, vector(key))


def saved() -> tuple[PlainIndex, Digest]:
    """Two messages, and what their shelf is saved as."""
    index = PlainIndex()
    grow_plain(index)
    digest = make_digest(stocked(index))
    assert digest is not None
    return index, digest


@given(data=st.data(), first=st.sampled_from((1, 70_000, 1 << 40)))
def test_a_saved_shelf_goes_on_where_it_was(data, first):
    """L6, M2: whatever came, went or came back before it was saved, and after."""
    index = data.draw(spaces(first=first, rows_max=10))
    stock = stocked(index, embedder=None)
    away: list[Shelved] = []
    for key in range(first + 100, first + 106):
        change(data, index, key, away)
    assert stock.follow(index)
    digest = make_digest(stock)
    if digest is None:
        assert not index.entries
        return
    for key in range(first + 200, first + 206):
        change(data, index, key, away)
    again = loaded(index, digest)
    assert again.follow(index)
    assert_agrees(Shelf(again, index), index, vector(0))
    assert_agrees(Shelf(again, index), index, None)


@given(index=spaces(rows_max=12))
def test_saving_a_saved_shelf_gives_the_same_bytes(index):
    """L6: nothing is lost on the way, and nothing else gets in."""
    digest = make_digest(stocked(index))
    if digest is not None:
        assert make_digest(loaded(index, digest)) == digest


def test_rows_are_saved_in_the_order_of_their_keys():
    """M3: one that came back has a row behind the others, and its vector is looked up by key."""
    index = PlainIndex()
    grow_plain(index)
    stock = stocked(index)
    away = index.remove(1)
    assert stock.follow(index)
    index.put(away)
    index.embed(1, vector(1))
    assert stock.follow(index)
    digest = make_digest(stock)
    assert digest is not None
    again = loaded(index, digest)
    assert again.edition.has_vector.all()
    assert_agrees(Shelf(again, index), index, vector(0))


def test_the_same_entries_give_the_same_bytes_as_ever():
    """L6: if this fails because a constant of the ranking or the form of the bytes has changed, raise FORM: stores hold
    digests of before."""
    _, digest = saved()
    assert (digest.form, hashlib.sha256(digest.data).hexdigest()[:16]) == (1, "efbf142f6abc88e6")


def test_no_word_is_saved():
    """M2: terms are numbers, so that a digest holds no text; whoever spoke, and where, is named."""
    _, digest = saved()
    assert b"apple" not in digest.data
    assert b"Ada Lovelace" in digest.data


def test_what_went_is_not_saved():
    """M2: neither its row nor who alone had said it."""
    index = PlainIndex()
    grow_plain(index)
    stock = stocked(index)
    with_bob = make_digest(stock)
    index.remove(2)
    assert stock.follow(index)
    without_bob = make_digest(stock)
    assert with_bob is not None
    assert without_bob is not None
    assert (b"Bob" in with_bob.data, b"Bob" in without_bob.data) == (True, False)
    assert len(without_bob.data) < len(with_bob.data)


def test_a_space_of_which_keys_are_too_far_apart_is_not_saved():
    """L6: keys take four bytes each."""
    index = PlainIndex()
    grow_plain(index)
    assert is_packable(stocked(index).edition)
    index.put(index.entries[1]._replace(key=(1 << 32) + 2))
    assert not is_packable(stocked(index).edition)
    assert make_digest(stocked(index)) is None


@pytest.mark.parametrize("broken", [lambda data: b"", lambda data: data[:-1], lambda data: b"x" + data[1:]])
def test_bytes_that_are_not_what_was_saved_are_not_a_shelf(broken, caplog):
    """L6: it is said, and the space is read as if nothing had been saved."""
    index, digest = saved()
    damaged = replace(digest, data=broken(digest.data))
    assert (is_intact(digest), is_intact(damaged)) == (True, False)
    assert load_digest(PlainUnit(index), PLACE, Plan(IDENTITY, index.extent()), damaged) is None
    assert "is not what it should be" in caplog.text


def test_every_byte_counts():
    """L6: one that was changed anywhere is noticed."""
    _, digest = saved()
    for at in range(len(digest.data)):
        changed = bytearray(digest.data)
        changed[at] ^= 0x10
        assert not is_intact(replace(digest, data=bytes(changed)))


def test_another_space_s_shelf_is_not_taken_for_it(caplog):
    """L6: it has other entries."""
    index, other = PlainIndex(), PlainIndex()
    grow_plain(index)
    grow_plain(other)
    other.remove(2)
    digest = make_digest(stocked(other))
    assert digest is not None
    wrong = replace(digest, seq=len(index.changed))
    assert load_digest(PlainUnit(index), PLACE, Plan(IDENTITY, index.extent()), wrong) is None
    assert "is not what it should be" in caplog.text


def test_what_fails_to_be_read_is_passed_over(monkeypatch, caplog):
    """L6: whatever it is; the traceback is in the log."""
    index, digest = saved()
    monkeypatch.setattr(Unpacked, "put_vectors", lambda *_: 1 // 0)
    assert load_digest(PlainUnit(index), PLACE, Plan(IDENTITY, index.extent()), digest) is None
    assert "ZeroDivisionError" in caplog.text


def test_another_form_is_passed_over():
    """L6: an older or a newer version's."""
    index, digest = saved()
    other = replace(digest, form=FORM + 1)
    assert load_digest(PlainUnit(index), PLACE, Plan(IDENTITY, index.extent()), other) is None


def test_terms_have_the_same_numbers_in_every_process():
    """L6: pinned, since what was saved by one process is read by others."""
    apple, pie, honey = 0xA92ED050A77B07F3, 0x2257F47B5567710B, 0x9BCF178C4DCFB4EF
    assert hashed([["apple", "pie"], ["蜂蜜", "apple"]]).view(np.uint64).tolist() == [apple, pie, honey, apple]

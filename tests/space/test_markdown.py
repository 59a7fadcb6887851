"""A space as Markdown: written, read back, compared with what others did meanwhile, and applied as one group."""

from __future__ import annotations

import contextlib
import re
import time
import unicodedata

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

import afterturn
from afterturn.errors import InvalidInput
from afterturn.space.markdown import MarkdownText, compare, parse, render, render_skipped
from afterturn.types import Draft, Entry, Filter, Kind, Origin, Status, Target, Verb
from afterturn.validation import check_name

SPACE = "user:ada"


def an_entry(id: str = "0k3v8r2c4d5e6f7g", text: str = "Ada drinks tea", **fields: object) -> Entry:
    existing = {
        "id": id,
        "version": 1,
        "kind": Kind.STATEMENT,
        "space": SPACE,
        "text": text,
        "status": Status.ACTIVE,
        "origin": Origin.USER,
        "trust": 100,
        "target": Target.USER,
        "content_hash": "",
        "recorded_at": 0.0,
        "occurred_at": 0.0,
    }
    return Entry(**(existing | fields))  # type: ignore[arg-type]


def is_name(text: str) -> bool:
    try:
        return bool(check_name(text, "project"))
    except InvalidInput:
        return False


# As the gate leaves texts: normalised, without blanks around them; marks, comments and headings as a hostile one has.
PIECES = [
    "<!--",
    "-->",
    "<!-- abcd v1 -->",
    "<!-- shown",
    "- ",
    "## user",
    "\n",
    "\r\n",
    "\n\n",
    "  ",
    "\t",
    "pinned",
    "\x1b[0m",
]
TEXTS = (
    st.lists(st.sampled_from(PIECES) | st.text(max_size=8), min_size=1, max_size=8)
    .map(lambda pieces: unicodedata.normalize("NFC", "".join(pieces)).strip())
    .filter(lambda text: bool(text) and "\x00" not in text)
)
ENTRIES = st.lists(
    st.builds(
        an_entry,
        id=st.text("0123456789abcdefghjkmnpqrstvwxyz", min_size=4, max_size=16),
        text=TEXTS,
        version=st.integers(1, 10**6),
        target=st.sampled_from(Target),
        project=st.none() | st.text(min_size=1, max_size=8).filter(is_name),
        pinned=st.booleans(),
    ),
    max_size=6,
    unique_by=lambda entry: entry.id,
)


def unchanged(entries: list[Entry], text: str) -> bool:
    parsed = parse(text)
    found = compare(parsed, {entry.ref: entry for entry in entries}, {entry.id: entry for entry in entries})
    return not found.edits and not found.skipped


@given(ENTRIES)
def test_a_text_that_nobody_edited_changes_nothing(entries: list[Entry]) -> None:
    """M1, V8: whatever the memories say, also what looks like our own comments, headings and bullets."""
    text = render(SPACE, entries)
    assert unchanged(entries, text)
    parsed = parse(text)
    assert {(one.id, one.version, one.target, one.project, one.pinned) for one in parsed.bullets} == {
        (entry.id, entry.version, entry.target, entry.project, entry.pinned) for entry in entries
    }
    assert (parsed.space, parsed.shown) == (SPACE, {entry.id: entry.version for entry in entries})


@given(ENTRIES)
def test_what_editors_do_to_line_ends_is_no_change(entries: list[Entry]) -> None:
    """M1: trailing blanks trimmed, lines ended as on Windows, no line break at the end of the file."""
    text = render(SPACE, entries)
    assert unchanged(entries, "\n".join(line.rstrip() for line in text.split("\n")))
    assert unchanged(entries, text.replace("\r\n", "\n").replace("\n", "\r\n"))
    assert unchanged(entries, text.rstrip("\n"))


@given(ENTRIES)
def test_what_a_pipe_takes_out_of_a_text_is_no_change(entries: list[Entry]) -> None:
    """M1, G2: colours are stripped where nobody could see them; what another said does not become the user's so."""
    text = render(SPACE, entries)
    assert unchanged(entries, click.unstyle(text))
    assert all(character.isprintable() or not character.isascii() or character in "\n\t" for character in text)


@given(ENTRIES, TEXTS.filter(lambda text: "<!--" not in text))
def test_a_new_bullet_is_the_only_change(entries: list[Entry], words: str) -> None:
    """M1: whatever the memories around it say."""
    lines = words.replace("\r\n", "\n").split("\n")
    added = "\n".join([f"- {lines[0]}", *(f"  {line}" for line in lines[1:])])
    text = f"{render(SPACE, entries)}\n## environment\n\n{added} <!-- pinned -->\n"
    found = compare(parse(text), {one.ref: one for one in entries}, {one.id: one for one in entries})
    (edit,) = found.edits
    assert (edit.verb, edit.before, found.skipped) == (Verb.ADD, None, ())
    assert edit.bullet is not None
    assert edit.bullet.pinned
    assert edit.bullet.target is Target.ENVIRONMENT


@pytest.mark.parametrize("hidden", ["\u200b", "\U000e0041\U000e0042", "\u200b\n\u2060", "e\u200b\u0301"])
def test_a_memory_of_hidden_characters_does_not_make_the_others_uneditable(hidden: str) -> None:
    """M1: its bullet would be empty, and a file with one is refused."""
    assert unchanged(
        [an_entry("aaaa", hidden), an_entry("bbbb")], render(SPACE, [an_entry("aaaa", hidden), an_entry("bbbb")])
    )


def test_the_text_is_plain_markdown() -> None:
    """V8: one bullet a memory below its heading; what pins it to the memory stands in a comment."""
    entries = [
        an_entry("aaaa", "Ada drinks tea"),
        an_entry("bbbb", "Two\n\nlines", version=2, pinned=True),
        an_entry("cccc", "It builds on Debian", target=Target.ENVIRONMENT, project="api"),
    ]
    title, rest = render(SPACE, entries, [(Target.USER, None), (Target.ENVIRONMENT, None)]).split("\n", 1)
    body = re.sub(r"<!--\n.*?-->\n", "", rest.split("-->\n", 1)[1], flags=re.DOTALL)
    assert title == "# Memories of user:ada"
    assert body == (
        "\n## user\n\n- Ada drinks tea <!-- aaaa v1 -->\n- Two\n\n  lines <!-- bbbb v2 pinned -->\n"
        "\n## environment\n\n"
        "\n## environment, project api\n\n- It builds on Debian <!-- cccc v1 -->\n"
        "\n<!-- shown\naaaa bbbb.2 cccc\n-->\n"
    )


@pytest.mark.parametrize(
    "text, message",
    [
        ("- Tea", "Line 1 is not below a heading"),
        ("## user\n\nTea", "Line 3 is not a heading, bullet"),
        ("## user\n  Tea", "Line 2 is indented, but goes on from no bullet"),
        ("## user\n- Tea\nis good", "Line 3 is not a heading"),
        ("## somebody", "Line 1: 'somebody' is not a valid target"),
        ("## user, project \x07", "Line 1: "),
        ('## user, project "x', "Line 1: "),
        ("### user", "Line 1 is not a valid heading"),
        ("# My notes", "Line 1 is not a valid heading"),
        ("## user\n- <!-- aaaa v1 -->", "The bullet in line 2 says nothing"),
        ("## user\n-", "The bullet in line 2 says nothing"),
        ("## user\n- Tea <!-- aaaa -->", "The comment at the end of the bullet in line 2 is not whole"),
        ("## user\n- Tea <!-- aaaa v1", "The comment at the end of the bullet in line 2 is not whole"),
        ("## user\n- Tea aaaa v1 -->", "The comment at the end of the bullet in line 2 is not whole"),
        ("## user\n- Tea <!-- aaaa v1 -->\n- Two\n  lines <!-- aaaa v1 -->", "Line 3 names aaaa, and so does line 2"),
        ("## user\n- Tea\n<!-- aaaa v1 -->", "The comment in line 3 belongs to no bullet"),
        ("## user\n<!-- begun", "The comment that begins in line 2 does not end"),
        ("## user\n<!-- x --> y", "There is text after the comment that begins in line 2"),
        ("## user\n<!-- shown\nNo id!\n-->", "'No' in the comment that begins in line 2 is not an id"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(text: str, message: str) -> None:
    """V8: nothing is guessed."""
    with pytest.raises(InvalidInput) as raised:
        parse(text)
    assert message in str(raised.value)


@pytest.mark.parametrize("text", ["", "\n \n", "# Memories of user:ada\n", "<!-- shown\naaaa\n-->"])
def test_a_text_without_headings_and_bullets_is_blank(text: str) -> None:
    """V8: an emptied file is somebody who gave up, not somebody who wants all deleted."""
    assert parse(text).is_blank


def edits_of(text: str, *entries: Entry, now: tuple[Entry, ...] | None = None) -> list[tuple[Verb, str]]:
    current = entries if now is None else now
    bases = {entry.ref: entry for entry in (*entries, *current)}
    found = compare(parse(text), bases, {entry.id: entry for entry in current})
    return [(one.verb, "" if one.bullet is None else one.bullet.text) for one in found.edits]


def test_words_and_headings_and_pins_are_changes() -> None:
    """M1: each of one memory."""
    entry = an_entry("aaaa", "Ada drinks tea")
    shown = "<!-- shown\naaaa\n-->"
    for changed in (
        f"## user\n- Ada drinks oolong <!-- aaaa v1 -->\n{shown}",
        f"## environment\n- Ada drinks tea <!-- aaaa v1 -->\n{shown}",
        f"## user, project api\n- Ada drinks tea <!-- aaaa v1 -->\n{shown}",
        f"## user\n- Ada drinks tea <!-- aaaa v1 pinned -->\n{shown}",
    ):
        assert [verb for verb, _ in edits_of(changed, entry)] == [Verb.UPDATE]
    assert edits_of(f"## user\n{shown}", entry) == [(Verb.DELETE, "")]
    assert edits_of("## user\n", entry) == []


def test_a_bullet_that_lost_its_comment_is_still_that_memory() -> None:
    """M1: its history goes on."""
    entry = an_entry("aaaa", "Ada drinks tea", pinned=True)
    assert edits_of("## user\n- Ada drinks tea\n<!-- shown\naaaa\n-->", entry) == []


@pytest.mark.parametrize("words", ["Ada <!-- aaaa v1 --> likes tea", "Ada likes tea <!-- aaaa v1 --> Miso purrs"])
def test_a_comment_amid_words_is_an_error(words: str) -> None:
    """M1: joined bullets would delete a memory unawares."""
    entries = an_entry("aaaa", "Ada likes tea"), an_entry("bbbb", "Miso purrs")
    with pytest.raises(InvalidInput, match="The bullet in line 2 has a memory's comment inside its text"):
        edits_of(f"## user\n- {words} <!-- bbbb v1 -->\n<!-- shown\naaaa bbbb\n-->", *entries)
    with pytest.raises(InvalidInput, match="The bullet in line 2"):
        edits_of(f"## user\n- {words} or so\n<!-- shown\naaaa bbbb\n-->", *entries)


def test_what_others_changed_meanwhile_stays() -> None:
    """M1, V4: what this person left alone is as the others left it; what both changed is left to a person."""
    before, now = an_entry("aaaa", "Tea"), an_entry("aaaa", "Green tea", version=2)
    bases = {before.ref: before, now.ref: now}
    for words, skipped in (("Tea", 0), ("Green tea", 0), ("White tea", 1)):
        parsed = parse(f"## user\n- {words} <!-- aaaa v1 -->\n<!-- shown\naaaa\n-->")
        found = compare(parsed, bases, {"aaaa": now})
        assert (len(found.edits), len(found.skipped)) == (0, skipped)
    deleted = compare(parse("## user\n<!-- shown\naaaa\n-->"), bases, {"aaaa": now})
    assert [one.edit.verb for one in deleted.skipped] == [Verb.DELETE]
    assert compare(parse("## user\n<!-- shown\naaaa\n-->"), bases, {}).skipped == ()


def test_what_is_left_makes_a_text_that_does_it_after_all() -> None:
    """M1: with the version that holds now; a deletion is only told."""
    before, now = an_entry("aaaa", "Tea"), an_entry("aaaa", "Green --> tea", version=2)
    gone = an_entry("bbbb", "Coffee")
    bases = {one.ref: one for one in (before, now, gone, an_entry("cccc", "Old"))}
    text = "## user\n- White tea <!-- aaaa v1 pinned -->\n- Black coffee <!-- bbbb v1 -->\n<!-- shown\ncccc\n-->"
    current = {"aaaa": now, "cccc": an_entry("cccc", "New", version=2)}
    skipped = compare(parse(text), bases, current).skipped
    assert len(skipped) == 3
    again = parse(render_skipped(SPACE, skipped))
    assert [(one.text, one.id, one.version, one.pinned) for one in again.bullets] == [
        ("White tea", "aaaa", 2, True),
        ("Black coffee", None, None, False),
    ]
    assert [one.verb for one in compare(again, bases, current).edits] == [Verb.UPDATE, Verb.ADD]
    assert "afterturn delete cccc" in render_skipped(SPACE, skipped)


@pytest.mark.parametrize("words", ["vim: set hidden:", "first\nex: set hidden:"])
def test_no_memory_is_where_editors_look_for_settings(words: str) -> None:
    """G2: the first and the last five lines of a file are ours."""
    entry = an_entry("aaaa", words)
    skipped = compare(parse("## user\n- vim: set nohidden: <!-- aaaa v1 -->"), {"aaaa": entry}, {}).skipped
    for text in (render(SPACE, [entry]), render_skipped(SPACE, skipped)):
        lines = text.splitlines()
        assert "set " in text
        assert not [line for line in lines[:5] + lines[-5:] if "set " in line]


def test_the_words_of_what_was_forgotten_are_not_kept() -> None:
    """M2: neither version is there any more."""
    skipped = compare(parse("## user\n- A secret, changed <!-- aaaa v1 -->"), {}, {}).skipped
    assert [one.reason for one in skipped] == ["aaaa was forgotten after you began to edit."]
    assert render_skipped(SPACE, skipped) == ""


# In a store


async def texts(space: afterturn.Space) -> list[str]:
    return sorted(entry.text for entry in await space.list(filter=Filter(kind=Kind.STATEMENT)))


async def test_edits_are_one_group_that_undo_takes_back(ada: afterturn.Space) -> None:
    """M1, G2: added, changed, deleted, moved, all at once, as the user's own words; and back."""
    tea = (await ada.add("Ada drinks tea", origin="agent", clean=True, expires_at=10**10, metadata={"team": "a"})).entry
    await ada.add("Ada drinks coffee")
    build = (await ada.add("It builds on Debian")).entry
    text = (await ada.as_markdown()).replace("Ada drinks tea", "Ada drinks oolong tea")
    text = text.replace(f"- It builds on Debian <!-- {build.id} v1 -->\n", "")
    text = text.replace("## environment\n", f"## environment\n\n- It builds on Debian <!-- {build.id} v1 -->\n- New\n")
    text = "\n".join(line for line in text.split("\n") if "coffee" not in line)
    edits = await ada.compare_markdown(text)
    assert sorted(one.verb for one in edits.edits) == [Verb.ADD, Verb.DELETE, Verb.UPDATE, Verb.UPDATE]
    edited = await ada.apply_edits(edits)
    assert (len(edited.changed), edited.skipped, edited.existing) == (4, (), 0)
    assert await texts(ada) == ["Ada drinks oolong tea", "It builds on Debian", "New"]
    changed = await ada.get(tea.id)
    assert (changed.version, changed.origin, changed.trust) == (2, Origin.USER, 100)
    assert (changed.expires_at, changed.metadata) == (10**10, {"team": "a"})
    assert (await ada.get(build.id)).target is Target.ENVIRONMENT
    assert edited.group is not None
    await ada.undo(edited.group)
    assert await texts(ada) == ["Ada drinks coffee", "Ada drinks tea", "It builds on Debian"]
    assert (await ada.get(tea.id)).origin is Origin.AGENT


async def test_what_changes_between_looking_and_doing_is_left(ada: afterturn.Space) -> None:
    """M1: compare-and-swap on versions; the rest stands."""
    first, second = (await ada.add("First")).entry, (await ada.add("Second")).entry
    third = (await ada.add("Third")).entry
    text = (await ada.as_markdown()).replace("- First", "- 1st").replace("- Second", "- 2nd")
    text = "\n".join(line for line in text.split("\n") if "Third" not in line)
    edits = await ada.compare_markdown(text)
    await ada.update(first.id, "The first")
    await ada.update(third.id, "The third")
    edited = await ada.apply_edits(edits)
    assert await texts(ada) == ["2nd", "The first", "The third"]
    assert [one.entry.id for one in edited.changed] == [second.id]
    assert {one.edit.verb: one.current and one.current.text for one in edited.skipped} == {
        Verb.DELETE: "The third",
        Verb.UPDATE: "The first",
    }


async def test_an_edit_that_the_guard_refuses_is_skipped_and_the_others_are_applied(ada: afterturn.Space) -> None:
    """G1: an edit passes the gate as any write does."""
    edits = await ada.compare_markdown(f"## user\n- {'x' * 9000}\n- short\n- key ghp_{'a1B2' * 9}\n")
    edited = await ada.apply_edits(edits)
    (skipped,) = edited.skipped
    assert "9000 bytes" in skipped.reason
    stored = await texts(ada)
    assert len(stored) == 2
    assert "short" in stored
    assert not any("ghp_" in text for text in stored)


async def test_a_memory_can_take_the_words_of_one_that_gives_them_up(ada: afterturn.Space) -> None:
    """G6: the order of bullets does not matter; what is known already is not added twice."""
    await ada.add("One")
    await ada.add("Two")
    text = (await ada.as_markdown()).replace("- Two", "- Three").replace("- One", "- Two")
    edited = await ada.apply_edits(await ada.compare_markdown(text + "## user\n- Three\n"))
    assert (await texts(ada), edited.skipped, edited.existing) == (["Three", "Two"], (), 1)


async def test_a_text_shows_what_was_asked_for(ada: afterturn.Space) -> None:
    """L2: one target or one project; recorded messages, proposals and deleted ones are no part of it."""
    await ada.add("Ada drinks tea")
    await ada.add("It builds on Debian", target="environment", project="api")
    deleted = (await ada.add("Old")).entry
    await ada.delete(deleted.id)
    await ada.add_many([Draft("Hello", kind=Kind.RECORD, conversation="c"), Draft("Perhaps", proposed=True)])
    assert [one.text for one in parse(await ada.as_markdown()).bullets] == ["Ada drinks tea", "It builds on Debian"]
    assert [one.text for one in parse(await ada.as_markdown(target="user")).bullets] == ["Ada drinks tea"]
    only = await ada.as_markdown(project="api")
    assert [one.text for one in parse(only).bullets] == ["It builds on Debian"]
    edited = await ada.apply_edits(await ada.compare_markdown(only + "## environment, project api\n- It has a quota\n"))
    assert [one.entry.project for one in edited.changed] == ["api"]


async def test_a_text_of_another_space_is_refused(memory: afterturn.Memory, ada: afterturn.Space) -> None:
    """L2: its bullets would be added to the wrong one."""
    text = await ada.as_markdown()
    with pytest.raises(InvalidInput, match="This is a text of user:ada, not of user:bob"):
        await memory.space("user:bob").compare_markdown(text)


async def test_an_edit_never_reaches_another_space(memory: afterturn.Memory, ada: afterturn.Space) -> None:
    """L2: an id of another space is not there."""
    other = (await memory.space("user:bob").add("Bob drinks tea")).entry
    edits = await ada.compare_markdown(f"## user\n- Mine now <!-- {other.id} v1 -->\n<!-- shown\n{other.id}\n-->")
    assert (edits.edits, len(edits.skipped)) == ((), 1)


async def test_an_edit_that_is_nothing_leaves_no_group(ada: afterturn.Space) -> None:
    """M1: there is nothing to undo."""
    assert (await ada.apply_edits(await ada.compare_markdown(await ada.as_markdown()))).group is None
    assert (await ada.compare_markdown("")).edits == ()
    assert parse("") == MarkdownText()


@given(st.lists(st.sampled_from([*PIECES, "# ", "<!-- aaaa v1 -->", "aaaa"]) | st.text(max_size=6), max_size=20))
def test_whatever_a_file_holds_is_read_or_refused(pieces: list[str]) -> None:
    """G5: no text breaks the reader, and what it takes has words in it."""
    try:
        parsed = parse("".join(pieces))
    except InvalidInput:
        return
    assert all(bullet.text for bullet in parsed.bullets)


@pytest.mark.parametrize("piece", ["<!--", "-->", "<!-- ", "- <!--\n", "  \n", "\t", "<!-- aaaa v1 ", "##", " "])
def test_reading_takes_time_in_proportion(piece: str) -> None:
    """G5: a file of a megabyte of anything is read or refused at once; squared, it would take minutes."""
    text = f"## user\n- x{piece * (1_000_000 // len(piece))}\n"
    began = time.process_time()
    with contextlib.suppress(InvalidInput):
        compare(parse(text), {}, {})
    assert time.process_time() - began < 5.0

"""The standing block: its shape, its order, its size, and that no content can change these."""

import os
import unicodedata
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterturn.guard.output_filter import neutralise_lines
from afterturn.lasting_facts import FactKind
from afterturn.recall.block import find_blocks
from afterturn.standing.block import (
    SEPARATOR,
    StandingBlock,
    StandingBudget,
    StandingContent,
    append_standing,
    render_arrived,
    render_standing,
    shown_path,
    shown_paths,
)
from afterturn.standing.context_files import ContextFile, Tier
from afterturn.standing.memories import StandingFact, StandingMemories
from afterturn.testing.entries import entry
from afterturn.text import LINES_CUT, WORDS_CUT, cut, shares, size
from afterturn.types import Entry, Target

NOTICE = (
    'From earlier conversations, newest first; the newer of two lines holds. "I" is the user. Follow these wishes and '
    "rules. A plan is no proof that something was done. Tool results win over these lines.\n"
)
ROOM = StandingBudget(32768, 512)
TAGS = ["<afterturn-standing>", "</afterturn-standing>", "<afterturn-file", "</afterturn-file>", "<afterturn-memory>"]
PIECES = [
    *TAGS,
    "</afterturn-memory>",
    "<",
    "</",
    "＜",
    "AFTERTURN-",
    "standing",
    "\n",
    "\r",
    "\u2028",
    "\t",
    "- [m1] ",
    "## ",
    "---",
    "\x00",
]
ODD = ["\u200b", "\u202e", "\U000e0041", '"', ">", "雪", "e\u0301", " ", "x" * 300]
contents = st.text(max_size=80) | st.lists(st.sampled_from(PIECES + ODD), max_size=20).map("".join)


def file(path: str, text: str, *, goes_on: bool = False) -> ContextFile:
    return ContextFile(path, Tier.ENVIRONMENT, text, goes_on)


def fact(said: Entry, *refs: str, left_out: str = "") -> StandingFact:
    return StandingFact(said, FactKind.LIFE, 0.9, refs or (said.ref,), text=said.text, left_out=left_out)


def full(text: str = "x") -> StandingContent:
    """Something in every part."""
    return StandingContent(
        files=(file("/p/AGENTS.md", text),),
        instructions=(text,),
        memories=StandingMemories(
            conventions=(entry(text, id="c001", target=Target.ENVIRONMENT),),
            pinned=(entry(text, id="p001", pinned=True),),
            facts=(fact(entry(" ".join(text.split()), id="u001")),),
        ),
    )


def test_a_standing_block_reads_like_this():
    """S1: context files, instructions, conventions, pinned memories, facts and wishes, in this order; no ids."""
    content = StandingContent(
        files=(
            file("/project/AGENTS.md", "# Rules\n\n- Run `make`\n    - twice\n"),
            file("/project/b/MEMORY.md", "Long", goes_on=True),
        ),
        instructions=("Use the ticket server for tickets.", "  \n"),
        memories=StandingMemories(
            conventions=(entry("Tabs, not spaces", id="c001", target=Target.ENVIRONMENT, version=2),),
            pinned=(entry("Ada is deaf", id="p002"), entry("Ada lives in Turin", id="p001")),
            facts=(
                fact(entry("Answer me in Italian.", id="u001"), "u001", "r001"),
                fact(entry("I had soup.", id="u002"), left_out="passing"),
                fact(entry("My son is Leo.", id="r001")),
            ),
        ),
    )
    block = render_standing(content, ROOM)
    assert block.text == (
        "<afterturn-standing>\n"
        "## Context Files\n"
        '<afterturn-file path="/project/AGENTS.md">\n'
        "# Rules\n\n- Run `make`\n    - twice\n"
        "</afterturn-file>\n"
        '<afterturn-file path="/project/b/MEMORY.md">\n'
        "Long\n[…]\n"
        "</afterturn-file>\n"
        "## Instructions\n"
        "Use the ticket server for tickets.\n"
        f"{NOTICE}"
        "## Project Conventions\n"
        "- Tabs, not spaces\n"
        "## Pinned Memories\n"
        "- Ada is deaf\n"
        "- Ada lives in Turin\n"
        "## About the User\n"
        "- Answer me in Italian.\n"
        "- My son is Leo.\n"
        "</afterturn-standing>"
    )
    assert block.refs == ("c001.2", "p002", "p001", "u001", "r001")
    assert block.paths == ("/project/AGENTS.md", "/project/b/MEMORY.md")


def test_nothing_to_say_is_no_block():
    """S1: absent when empty, and blank parts are dropped."""
    invisible = (file("/p/AGENTS.md", "\u200b\n\u2066"),)
    assert render_standing(StandingContent(invisible, ("", " \n\t")), ROOM) == StandingBlock()
    assert render_arrived((), 4096) == StandingBlock()


def test_the_block_goes_last_after_a_line():
    """S1: in the system prompt, whose own bytes stay as they are."""
    assert append_standing("You help.\n", "B") == "You help.\n\n\n---\n\nB"
    assert append_standing("You help.", "") == "You help."
    assert append_standing("", "B") == append_standing("  ", "B") == "B"


def test_a_block_is_not_appended_twice():
    """S1: a host may keep what it was given."""
    once = append_standing("You help.", "B")
    assert append_standing(once, "B") == once
    assert append_standing("B", "B") == "B"
    assert once.count(SEPARATOR) == 1


@given(contents, contents, contents)
def test_no_content_can_close_or_forge_a_tag(text, told, path):
    """S1: whatever a file, an instruction, a memory or a path says."""
    content = StandingContent(
        files=(file("/" + path, text + "!"),),
        instructions=(told + "!",),
        memories=StandingMemories(pinned=(entry(text + "!", id="p001"),)),
    )
    folded = render_standing(content, ROOM).text.casefold()
    assert [folded.count(tag) for tag in TAGS] == [1, 1, 1, 1, 0]
    arrived = render_arrived(content.files, 32768).text
    assert len(find_blocks(arrived)) == 1
    assert [arrived.casefold().count(tag) for tag in TAGS] == [0, 0, 1, 1, 1]


@given(contents)
def test_a_memory_stays_on_its_line(text):
    """S1: it can not pass for a heading or for another memory."""
    block = render_standing(StandingContent(memories=StandingMemories(pinned=(entry(text, id="p001"),))), ROOM)
    lines = block.text.splitlines()
    assert len(lines) == 5
    assert lines[3].startswith("- ")


@given(contents, st.integers(512, 5000), st.integers(64, 512))
def test_the_block_keeps_its_size(text, bytes_max, entry_bytes_max):
    """S1, H9: whatever goes in."""
    many = full(text * 20)
    content = StandingContent(many.files * 5, many.instructions * 5, many.memories, many.memories.pinned)
    assert size(render_standing(content, StandingBudget(bytes_max, entry_bytes_max)).text) <= bytes_max
    assert size(render_arrived(content.files, bytes_max).text) <= bytes_max


def test_no_part_starves_another():
    """S1: a file that could fill the block leaves every other part its share."""
    large = file("/p/AGENTS.md", "rule\n" * 10_000)
    memories = tuple(entry(f"fact {at} " + "x" * 200, id=f"p{at:03}") for at in range(100))
    facts = tuple(fact(replace(memory, id=f"f{memory.id}")) for memory in memories)
    content = StandingContent((large,), ("do this",), StandingMemories(memories, memories, facts=facts))
    block = render_standing(content, StandingBudget(4096, 512))
    parts = block.text.split("\n## ")
    assert [part.split("\n")[0] for part in parts[1:]] == [
        "Context Files",
        "Instructions",
        "Project Conventions",
        "Pinned Memories",
        "About the User",
    ]
    assert "do this" in parts[2]
    assert all(len(part) > 550 for part in [parts[1], *parts[3:]])
    assert size(block.text) > 3600


def test_many_files_share_their_room():
    """S1, H9: each is cut and says so; those that would say nothing are left out."""
    files = tuple(file(f"/p/{at}/AGENTS.md", f"{at} " + "word " * 500) for at in range(30))
    block = render_standing(StandingContent(files), StandingBudget(4096, 512))
    assert block.text.count(LINES_CUT) == len(block.paths)
    assert 10 < len(block.paths) < 30
    assert block.paths == tuple(file.path for file in files[: len(block.paths)])


def test_the_most_important_memories_are_kept():
    """S1: the order in which they are given says what is kept."""
    memories = tuple(entry("y" * 80, id=f"p{at:03}") for at in (7, 3, 9, 1))
    block = render_standing(StandingContent(memories=StandingMemories(pinned=memories)), StandingBudget(512, 512))
    assert block.refs == ("p007", "p003", "p009")


def test_a_long_memory_is_cut_and_says_so():
    """H9: 512 bytes a memory."""
    block = render_standing(StandingContent(memories=StandingMemories(pinned=(entry("word " * 500, id="p001"),))), ROOM)
    line = block.text.splitlines()[3]
    assert line.endswith(WORDS_CUT)
    assert size(line) <= 512 + len("- ")


@given(st.lists(contents, max_size=5))
def test_the_same_content_gives_the_same_bytes(texts):
    """S3: or a frozen block would not be the same in another process."""
    content = StandingContent(tuple(file(f"/{at}", text) for at, text in enumerate(texts)), tuple(texts))
    assert render_standing(content, ROOM) == render_standing(content, ROOM)


@given(st.lists(st.text(st.characters(exclude_characters="\x00/"), min_size=1, max_size=20), max_size=4), contents)
def test_the_files_of_a_block_are_found_again_in_its_text(names, text):
    """S2: so that another process knows what was loaded; no content can add to it."""
    files = [file(f"/{name}/AGENTS.md", text + "!") for name in dict.fromkeys(names)]
    found = shown_paths(render_arrived(files, 1_000_000).text)
    assert found == {shown_path(item.path) for item in files}


def test_odd_bytes_in_a_path_can_be_shown():
    """S2: a file system knows names that are no text."""
    path = os.fsdecode(b'/caf\xe9/"><x>\n')
    shown_path(path).encode()
    assert shown_path(path) == "/caf\ufffd/'><x>"


def test_what_a_person_cannot_see_in_a_file_the_model_does_not_either():
    """S1: hidden instructions in rule files are a known attack; code keeps its shape."""
    hidden = "if x:\n\ty = 1  # ok\u202e\u200b\U000e0068\U000e0069\x1b[31m\r\n    z\u00ad\u2028end\x0c"
    assert neutralise_lines(hidden) == "if x:\n\ty = 1  # ok\n    z\nend"


def _is_sign(name: str) -> bool:
    """Format characters that are drawn or that a script needs: signs before numbers, joints of hieroglyphs."""
    return name.startswith(("ARABIC", "SYRIAC", "KAITHI", "EGYPTIAN", "MONGOLIAN")) and name != "ARABIC LETTER MARK"


def test_no_character_that_is_not_seen_comes_through():
    """S1: in no script, beside whatever letters; the quick look at plain text lets none pass."""
    unseen = [
        chr(code)
        for code in (*range(0x20), *range(0x7F, 0xA0), *range(0xFE00, 0xFE0E), *range(0xE0000, 0xE1000))
        if chr(code) not in "\t" and not chr(code).isspace()
    ]
    unseen += [
        chr(code)
        for code in range(0x30000)
        if unicodedata.category(chr(code)) == "Cf" and not _is_sign(unicodedata.name(chr(code), ""))
    ]
    assert [text for text in unseen if neutralise_lines(f"a{text}é") != "aé"] == []


@pytest.mark.parametrize("first", ["a", "A", "ａ", "\u0430", "\u03b1", "\u00e0", "\U0001d41a"])
def test_a_tag_is_disarmed_whatever_its_first_letter_is_drawn_like(first):
    """S1: the quick look at a bracket's first letter takes none of these for another."""
    assert "<" not in neutralise_lines(f"x </{first}fterturn-file> y")


def test_a_tag_over_several_lines_is_disarmed():
    """S1: a model reads over line breaks."""
    assert "<" not in neutralise_lines("<\n / \tafterturn-standing>")
    assert neutralise_lines("<div>\n<after>") == "<div>\n<after>"


@given(contents, st.integers(0, 400), st.sampled_from([LINES_CUT, WORDS_CUT]))
def test_a_cut_keeps_its_size_and_is_marked(text, most, mark):
    """H9: cuts fall between characters and say so."""
    text = text.encode("utf-8", "ignore").decode()
    shown = cut(text, most, mark)
    assert size(shown) <= most
    if shown != text:
        assert shown == "" or (shown.endswith(mark) and text.startswith(shown.removesuffix(mark)))


@pytest.mark.parametrize(
    "text,most,shown",
    [
        ("one two three", 20, "one two three"),
        ("one two three", 11, "one two…"),
        ("aaaaaaaaaaaa", 8, "aaaaa…"),
        ("雪雪雪雪", 10, "雪雪…"),
        ("abce\u0301e\u0301", 8, "abc…"),
        ("👩\u200d💻👩\u200d💻", 15, "👩\u200d💻…"),
        ("", 0, ""),
    ],
)
def test_a_cut_falls_where_something_ends(text, most, shown):
    """H9: a word, or at least a character with its marks."""
    assert cut(text, most, WORDS_CUT) == shown


@given(st.lists(st.integers(0, 1000), max_size=8), st.integers(0, 3000))
def test_shares_are_fair(wanted, total):
    """H9: nobody gets more than it wants, or less than an equal part while others get more."""
    given_shares = shares(wanted, total)
    assert sum(given_shares) <= total
    assert all(share <= want for share, want in zip(given_shares, wanted, strict=True))
    equal = total // len(wanted) if wanted else 0
    assert all(share >= min(want, equal) for share, want in zip(given_shares, wanted, strict=True))
    assert sum(given_shares) == min(total, sum(wanted))

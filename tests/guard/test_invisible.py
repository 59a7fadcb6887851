"""Which invisible characters a text keeps, which are removed, and that none of these carries data through."""

import json
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import afterturn
from afterturn.guard.output_filter import neutralise, neutralise_lines
from afterturn.hosts.cli.output import safe
from afterturn.learning.prompts import review_prompt
from afterturn.scanners.instructions import InvisibleScanner
from afterturn.scanners.invisible import clean, find_hidden
from afterturn.space.markdown import show_controls
from afterturn.types import ReviewMessage

NEEDED = {
    "persian": "می\u200cخواهم، نمی\u200cدانم، خانه\u200cها و کتاب\u200cهای او",
    "devanagari": "क्\u200dष and क्\u200cष",
    "malayalam": "ന്\u200d",
    "sinhala": "ශ්\u200dරී",
    "bengali": "র\u200d্য",
    "mongolian": "\u182d\u180b",
    "old hangul": "\u115f\u1161",
    "profession": "👩🏽\u200d💻 joined",
    "family": "👨\u200d👩\u200d👧\u200d👦",
    "kiss": "👩\u200d❤\ufe0f\u200d💋\u200d👨",
    "walking": "🏃🏽\u200d♀\ufe0f\u200d➡\ufe0f",
    "handshake": "🧑🏻\u200d🤝\u200d🧑🏿",
    "between others": "😀👩\u200d💻😀👨\u200d👩\u200d👧",
    "rainbow": "🏳\ufe0f\u200d🌈",
    "heart, telephone, keycap": "❤\ufe0f ☎\ufe0f 1\ufe0f\u20e3",
    "as text": "⌚\ufe0e ☎\ufe0e",
    "england": "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f England",
    "hebrew with a mark": "שלום (abc)\u200f 10",
    "hebrew with an isolate": "שלום \u2066abc\u2069 עולם",
    "arabic with an embedding": "مرحبا \u202aabc\u202c",
    "braille": "⠓⠑⠇⠇⠕⠀⠺⠕⠗⠇⠙",
    "arabic abbreviation": "سنة 1446 ه\u200d تقريبا",
    "spaces": "« Bonjour\u00a0! » 東京\u3000大阪",
    "lines": "a\tb\nc\r\nd",
}


@pytest.mark.parametrize("text", NEEDED.values(), ids=NEEDED)
def test_what_a_script_needs_stays_as_it_was_written(text: str) -> None:
    """H4: it changes what is drawn."""
    assert clean(text) == text
    assert find_hidden(text) == []


HIDDEN = {
    "zero width space": ("i\u200bg\u200bn", "ign"),
    "word joiner": ("ig\u2060n", "ign"),
    "soft hyphen": ("ig\u00adn", "ign"),
    "joiner in latin": ("a\u200db\u200cc", "abc"),
    "joiner between accents": ("é\u200dé\u200cé", "ééé"),
    "joiner between emoji that are none together": ("😀\u200d😀", "😀😀"),
    "joiner between two women": ("👩\u200d👩 x", "👩👩 x"),
    "joiner between letters that are joined anyway": ("ن\u200dن", "نن"),
    "joiner after a letter that never joins": ("را\u200cه", "راه"),
    "joiner between ideographs": ("漢\u200d字", "漢字"),
    "selector after an emoji": ("😀\ufe0f😀\ufe0e", "😀😀"),
    "selector after a letter": ("a\ufe0fb\ufe0e", "ab"),
    "two selectors": ("❤\ufe0f\ufe0f", "❤\ufe0f"),
    "selectors of the supplement": ("Nice 😀\U000e0151\U000e015c", "Nice 😀"),
    "tags behind a flag": (
        "Ok \U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f\U000e0068\U000e0069\U000e0021!",
        "Ok \U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f!",
    ),
    "controls of hieroglyphs": ("No\U00013431tes.", "Notes."),
    "tags": ("Notes\U000e0001\U000e0073\U000e0065\U000e007f.", "Notes."),
    "flag that does not exist": ("\U0001f3f4\U000e0075\U000e0073\U000e007f", "\U0001f3f4"),
    "override": ("\u202etpmorp\u202c", "tpmorp"),
    "override in hebrew": ("שלום \u202eabc\u202c", "שלום abc"),
    "isolate in latin": ("note \u2067ignore\u2069", "note ignore"),
    "isolate that is not closed": ("שלום \u2067abc", "שלום abc"),
    "marks between letters": ("ש\u200fל\u200fו", "שלו"),
    "marks in latin": ("a\u200e \u200fb", "a b"),
    "hangul filler": ("ignore\u3164previous\uffa0rules", "ignore previous rules"),
    "braille blank": ("a\u2800b", "a b"),
    "interlinear": ("note\ufff9seen\ufffaunseen\ufffb", "noteseenunseen"),
    "terminal": ("\x1b[8mhidden\x1b[0m \x1b]8;;http://x\x07link\x1b]8;;\x07", "hidden link"),
    "noncharacter": ("user\ufffe", "user"),
    "line separator": ("a\u2028b", "a\nb"),
    "carriage return": ("Paid by Ada.\rPaid by Bob.", "Paid by Ada.\nPaid by Bob."),
    "line break behind a control character": ("a\x00\x85b", "a\nb"),
    "escape that goes on to the next line": ("\x1b]0;a\u2028b", "\nb"),
    "nul": ("a\x00b", "ab"),
}


@pytest.mark.parametrize("text, cleaned", HIDDEN.values(), ids=HIDDEN)
def test_what_only_hides_something_is_removed(text: str, cleaned: str) -> None:
    """H4: nobody would see it, and a model would read it."""
    assert clean(text) == cleaned
    assert find_hidden(text)


@pytest.mark.parametrize("letters", ["aé漢ر", "👩😀❤", "नमन"], ids=["letters", "emoji", "devanagari"])
@pytest.mark.parametrize("zero, one", [("\u200c", "\u200d"), ("", "\u200d"), ("\ufe0e", "\ufe0f"), ("", "\u200b")])
def test_bits_do_not_come_through(zero: str, one: str, letters: str) -> None:
    """H4: 48 bits in front of 48 letters. What is left cannot tell one message from another."""

    def written(bits: int) -> str:
        return "".join(letters[at % len(letters)] + (one if bits >> at & 1 else zero) for at in range(48))

    messages = {clean(written(bits).replace("❤\ufe0e", "❤").replace("❤\ufe0f", "❤")) for bits in range(1, 2**48, 2**43)}
    assert len(messages) == 1


@settings(max_examples=300)
@given(
    st.text(
        st.sampled_from(
            "ab של1 👩💻❤ن\u200b\u200c\u200d\u200e\u202e\u2067\u2069\ufe0f\U000e0041\n\r\x0b\u2028\x1b]\x07\x00\ufffe"
        )
    )
)
@example("\u05e9\x0b\u1100\u200f")
@example("\x1b\ufffe")
@example("\x1b]\u200b")
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    """H4: whoever shows it, it is the same."""
    assert clean(clean(text)) == clean(text)
    assert show_controls(show_controls(text)) == show_controls(text)


@pytest.mark.parametrize("text", ["Paid by Ada.\rPaid by Bob.", "a\r\nb", "a\r\r\nb", "\r"])
def test_no_line_is_written_over_in_a_terminal(text: str) -> None:
    """H4: what stands before a carriage return stays readable."""
    assert "\r" not in safe(text)
    assert safe(text).replace("\\r", "").replace("\n", "") == text.replace("\r", "").replace("\n", "")


def test_a_progress_bar_hides_nothing() -> None:
    """H4: programs write over their own lines; what they printed is not held back."""
    assert InvisibleScanner().find("".join(f"downloading {at} %\r" for at in range(50))) == ()


@pytest.mark.parametrize("unit", ["\u200d", "👩\u200d", "ש\u200f", "א\u2067", "\x1b]", "\U000e0041", "a\n\u202b"])
def test_hidden_characters_are_cleaned_in_linear_time(unit: str) -> None:
    """G5: four times the text takes about four times the CPU; the square would take sixteen times as much."""

    def seconds(length: int) -> float:
        text = unit * (length // len(unit))
        begun = time.thread_time()
        assert len(clean(text)) <= len(text)
        assert find_hidden(text)
        return time.thread_time() - begun

    assert min(seconds(80_000), seconds(80_000)) < 10 * seconds(20_000) + 0.02


def test_models_and_people_are_shown_the_same_clean_text() -> None:
    """H4, V2: blocks, context files and what a review reads."""
    hidden = "likes\U000e0041\U000e0042 tea\u202e\u3164now"
    assert neutralise(hidden) == neutralise_lines(hidden) == "likes tea now"
    prompt = review_prompt([ReviewMessage("user", "", hidden, None, 100, 0.0)], [], entries_max=5)
    assert json.dumps("likes tea now") in prompt[1]["content"]


async def test_what_was_written_is_stored(ada: afterturn.Space) -> None:
    """M1: cleaning is for what is shown; the memory stays as it was said."""
    added = await ada.add("likes\u200b tea\u202e")
    assert (await ada.get(added.entry.id)).text == "likes\u200b tea\u202e"

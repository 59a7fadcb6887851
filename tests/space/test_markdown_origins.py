"""The Markdown view and the words of others: it shows whose they are, and an edit does not make them the user's."""

import pytest

import afterturn
from afterturn.types import Entry, Origin

PAGE = "Ends answers with a link"


@pytest.fixture
async def quoted(ada: afterturn.Space) -> Entry:
    return (await ada.add(PAGE, origin="web")).entry


async def edited(ada: afterturn.Space, old: str, new: str) -> afterturn.Edited:
    text = await ada.as_markdown()
    assert old in text
    return await ada.apply_edits(await ada.compare_markdown(text.replace(old, new)))


async def test_the_view_says_who_wrote_a_memory(ada: afterturn.Space, quoted: Entry) -> None:
    """G2b: nothing for the user's own."""
    mine = (await ada.add("Likes tea")).entry
    learned = (await ada.add("Likes trains", origin="background_review")).entry
    text = await ada.as_markdown()
    assert f"{PAGE} <!-- {quoted.id} v1 from web, quoted -->" in text
    assert f"Likes tea <!-- {mine.id} v1 -->" in text
    assert f"Likes trains <!-- {learned.id} v1 from background_review -->" in text
    assert (await ada.compare_markdown(text)).edits == ()


async def test_an_edited_report_stays_a_report(ada: afterturn.Space, quoted: Entry) -> None:
    """G2b: some of its words are still those of others."""
    result = await edited(ada, PAGE, f"{PAGE} and a smile")
    (changed,) = result.changed
    assert (changed.entry.text, changed.entry.origin, changed.entry.trust) == (f"{PAGE} and a smile", Origin.WEB, 40)


@pytest.mark.parametrize("mark", ["v1 pinned from web, quoted", "v1 from web, quoted pinned", "v1 pinned"])
async def test_a_report_cannot_be_pinned(ada: afterturn.Space, quoted: Entry, mark: str) -> None:
    """G2b, S1: the system prompt is no place for it, whatever the comment says."""
    result = await edited(ada, "v1 from web, quoted", mark)
    (skipped,) = result.skipped
    now = await ada.get(quoted.id)
    assert "not trusted enough to be pinned" in skipped.reason
    assert (now.origin, now.trust, now.pinned) == (Origin.WEB, 40, False)


async def test_a_copy_of_a_report_does_not_make_it_the_users(ada: afterturn.Space, quoted: Entry) -> None:
    """G2b: only other words do."""
    line = f"- {PAGE} <!-- {quoted.id} v1 from web, quoted -->"
    copied = await edited(ada, line, f"{line}\n- {PAGE} <!-- pinned -->")
    own = await edited(ada, line, f"{line}\n- I want a link at the end of answers")
    assert [skipped.reason for skipped in copied.skipped] == [
        f"{quoted.id} has the same text, from web. Write it in your own words."
    ]
    assert [(one.entry.origin, one.entry.trust) for one in own.changed] == [(Origin.USER, 100)]


async def test_a_report_without_its_comment_is_the_same_report(ada: afterturn.Space, quoted: Entry) -> None:
    """G2b: moved to another heading, it is found again by its text."""
    line = f"- {PAGE} <!-- {quoted.id} v1 from web, quoted -->\n"
    text = (await ada.as_markdown()).replace(line, "").replace("## environment\n", f"## environment\n\n- {PAGE}\n")
    result = await ada.apply_edits(await ada.compare_markdown(text))
    assert [(one.entry.id, one.entry.origin, one.entry.trust) for one in result.changed] == [
        (quoted.id, Origin.WEB, 40)
    ]


async def test_a_report_copied_in_other_lines_or_capitals_is_still_a_copy(ada: afterturn.Space) -> None:
    """G2b: an editor may have wrapped it."""
    await ada.add("Ends answers\nwith a link", origin="web")
    result = await edited(ada, "## user\n", "## user\n\n- ends answers with a link.\n")
    assert [result.changed, len(result.skipped)] == [(), 1]

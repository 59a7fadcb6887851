"""Edits in a JSON text keep every other byte."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterturn.hosts.install import json_text

SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
OBJECTS = st.dictionaries(st.text(min_size=1, max_size=5).filter(lambda key: key not in ("hooks", "new")), VALUES)
STYLES = st.sampled_from([None, 1, 2, 4, "\t"])


@given(data=OBJECTS, value=VALUES, style=STYLES, crlf=st.booleans())
def test_a_member_that_is_added_and_removed_leaves_the_same_bytes(data, value, style, crlf):
    text = json.dumps(data, indent=style, ensure_ascii=False) + "\n"
    text = text.replace("\n", "\r\n") if crlf else text
    added = json_text.set_value(text, ("new",), value)
    assert json_text.parse(added) == data | {"new": value}
    if data:
        assert json_text.remove(added, ("new",)) == text


@given(data=OBJECTS, items=st.lists(VALUES, min_size=1, max_size=3), style=STYLES)
def test_items_can_be_appended_and_removed_in_any_value(data, items, style):
    text = json.dumps(data, indent=style)
    for item in items:
        text = json_text.append(text, ("hooks", "Stop"), item)
    assert json_text.parse(text) == data | {"hooks": {"Stop": items}}
    text = json_text.remove(text, ("hooks", "Stop", 0))
    assert json_text.parse(text) == data | {"hooks": {"Stop": items[1:]}}


COMMENTED = """\
// my settings
{
  "theme": "dark", // the best
  /* servers
     of the team */
  "mcpServers": {
    "other": {"command": "x"}, // theirs
  },
}
"""


def test_comments_and_trailing_commas_stay():
    added = json_text.set_value(COMMENTED, ("mcpServers", "afterturn"), {"command": "y"})
    assert '"other": {"command": "x"}, // theirs\n    "afterturn": {\n      "command": "y"\n    },\n  },' in added
    assert json_text.remove(added, ("mcpServers", "afterturn")) == COMMENTED


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1 // last\n}',
        "{ // nothing yet\n}",
        '{"a": [1, 2 // last\n]}',
        '{"a": 1, // one\n "b": 2}',
        '{\n  "a": 1\n  // nothing below\n}',
    ],
)
def test_a_line_comment_never_swallows_an_entry(text):
    before = json_text.parse(text)
    added = json_text.set_value(text, ("new",), 5)
    assert json_text.parse(added) == before | {"new": 5}
    assert json_text.parse(json_text.remove(added, ("new",))) == before
    for key in before:
        assert json_text.parse(json_text.remove(added, (key,))) == {
            name: value for name, value in (before | {"new": 5}).items() if name != key
        }


@pytest.mark.parametrize(
    "text, line",
    [("", 1), ("{", 1), ('{"a": 1', 1), ('{\n"a" 1}', 2), ("{} {}", 1), ('{\n\n"a": tru}', 3), ("{'a': 1}", 1)],
)
def test_a_text_that_is_not_json_is_refused_with_its_line(text, line):
    with pytest.raises(ValueError, match=rf"^line {line}: "):
        json_text.parse(text)


def test_deep_nesting_is_refused():
    with pytest.raises(ValueError, match="nested too deeply"):
        json_text.parse("[" * 5000)


def test_of_a_key_that_is_there_twice_the_last_one_is_changed():
    assert json_text.parse(json_text.set_value('{"a": 1, "a": 2}', ("a",), 3)) == {"a": 3}

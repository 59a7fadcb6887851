"""Values on the command line: times, JSON, safe text, metadata, lines to import."""

import json
from datetime import UTC

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterturn.config import Config
from afterturn.errors import InvalidInput
from afterturn.hosts.cli.commands.history import _operation_row
from afterturn.hosts.cli.commands.search import explain
from afterturn.hosts.cli.commands.transfer import LineReader, ParsedLines
from afterturn.hosts.cli.options import as_filter, parse_time
from afterturn.hosts.cli.output import count, iso, jsonable, one_line, safe
from afterturn.types import Entry, Event, Hit, Kind, Lane, LoggedOperation, Origin, Status, Target, Verb

OWN_ENTRY = {
    "id": "0k3v8r2c4d5e6f7g",
    "version": 1,
    "kind": "statement",
    "status": "active",
    "text": "tea",
    "origin": "user",
    "trust": 100,
}


def an_entry(**fields: object) -> Entry:
    known = {
        "id": "0k3v8r2c4d5e6f7g",
        "version": 1,
        "kind": Kind.STATEMENT,
        "space": "user:ada",
        "text": "Ada prefers oolong tea",
        "status": Status.ACTIVE,
        "origin": Origin.USER,
        "trust": 100,
        "target": Target.USER,
        "content_hash": "0" * 32,
        "recorded_at": 1_000.0,
        "occurred_at": 1_000.0,
    }
    return Entry(**(known | fields))  # type: ignore[arg-type]


def read(*lines: object, keep_origin: bool = False) -> ParsedLines:
    texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    return LineReader(Config(), keep_origin=keep_origin).read(texts)


@pytest.mark.parametrize(
    "text, seconds",
    [
        ("1970-01-02", 86_400.0),
        ("1970-01-01T00:01", 60.0),
        ("1970-01-01T00:00:01.5Z", 1.5),
        ("1970-01-01T01:00:00+01:00", 0.0),
        ("1969-12-31", -86_400.0),
    ],
)
def test_iso_times_become_unix_seconds(text: str, seconds: float) -> None:
    assert parse_time(text, zone=UTC) == seconds


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "12"])
def test_an_invalid_time_is_bad_input_with_an_example(text: str) -> None:
    with pytest.raises(InvalidInput, match="Write it like 2026-11-15"):
        parse_time(text, zone=UTC)


def test_times_are_printed_in_utc_and_read_back_the_same() -> None:
    assert iso(1_700_000_000.25) == "2023-11-14T22:13:20.250Z"
    assert parse_time("2023-11-14T22:13:20.250Z", zone=None) == 1_700_000_000.25


@pytest.mark.parametrize("moment", [1e18, -1e18, float("inf"), float("nan")])
def test_a_time_outside_the_calendar_is_printed_as_its_number(moment: float) -> None:
    assert iso(moment) is moment


def test_values_become_json_with_their_own_field_names_and_iso_times() -> None:
    form = jsonable(an_entry(metadata={"seen_at": 5.0}, sources=("a", "b"), expires_at=0.0))
    assert isinstance(form, dict)
    assert form["recorded_at"] == "1970-01-01T00:16:40.000Z"
    assert form["expires_at"] == "1970-01-01T00:00:00.000Z"
    assert form["valid_to"] is None
    assert form["sources"] == ["a", "b"]
    assert form["metadata"] == {"seen_at": 5.0}


def test_an_events_data_is_left_as_it_is() -> None:
    form = jsonable(Event("recorded", 0.0, data={"at": 3.0}))
    assert isinstance(form, dict)
    assert (form["at"], form["data"]) == ("1970-01-01T00:00:00.000Z", {"at": 3.0})


@given(st.text())
def test_no_text_can_steer_the_terminal_it_is_shown_on(text: str) -> None:
    assert all(character.isprintable() or not character.isascii() for character in one_line(text))
    assert not set(safe(text)) & set("\x1b\x9b\x07\r\u202e\u2066\ud800")


def test_text_that_is_harmless_is_shown_as_it_is() -> None:
    assert one_line("Ada\n  trinkt  茶 👩‍🔬") == "Ada trinkt 茶 👩‍🔬"


def test_counts_are_said_in_singular_and_plural() -> None:
    assert [count(number, "entry", "entries") for number in (0, 1, 1200)] == ["0 entries", "1 entry", "1,200 entries"]


def test_a_hit_says_why_it_was_found() -> None:
    hit = Hit(an_entry(speaker="bob"), Lane.LONG_TERM, 0.625, 0.5, 0.75, ("tea", "prefer"))
    assert explain(hit).startswith("score 0.62 · lexical 0.50 (tea, prefer) · similarity 0.75 · long_term · ")
    assert explain(hit).endswith('years ago · from user "bob"')


def test_a_hit_without_vectors_says_so() -> None:
    hit = Hit(an_entry(), Lane.EPISODIC, 0.5, 0.5, None, ())
    assert "lexical 0.50 · similarity none · episodic" in explain(hit)


def test_values_given_for_one_metadata_key_are_alternatives() -> None:
    options = {"target": None, "agent": None, "project": None}
    found = as_filter(options | {"metadata": [("a", 1), ("b", "x"), ("a", None)]})
    assert found.metadata == {"a": (1, None), "b": "x"}


def test_a_plain_line_becomes_a_draft_of_origin_import() -> None:
    reading = read({"text": "tea", "origin": "user", "occurred_at": "1970-01-02", "metadata": {"a": 1}, "pinned": True})
    (draft,) = reading.drafts
    assert (draft.text, draft.origin, draft.occurred_at) == ("tea", Origin.IMPORT, 86_400.0)
    assert (draft.metadata, draft.pinned) == ({"a": 1}, False)


def test_the_origin_is_kept_only_with_consent() -> None:
    """G2: an import keeps the exported origin only with the person's consent."""
    line = {"text": "tea", "origin": "agent"}
    assert read(line).drafts[0].origin is Origin.IMPORT
    assert read(line, keep_origin=True).drafts[0].origin is Origin.AGENT


@pytest.mark.parametrize(
    "line, complaint",
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff", "not UTF-8"),
        (["text"], "not a JSON object"),
        ({}, '"text" is missing'),
        ({"text": 5}, '"text" is missing'),
        ({"text": " "}, "empty"),
        ({"text": "a\u0000b"}, "NUL"),
        (b'{"text": "\\ud800"}', "surrogate"),
        ({"text": "x" * 9_000}, "9000 bytes"),
        ({"text": "tea", "txet": 1}, "'txet' is not a known key"),
        ({"text": "tea", "target": "moon"}, "must be one of: user, environment, memory"),
        ({"text": "tea", "pinned": 1}, "must be true or false"),
        ({"text": "tea", "metadata": []}, "must be an object"),
        ({"text": "tea", "metadata": {"a": []}}, "list"),
        ({"text": "tea", "sources": "a"}, "must be a list"),
        ({"text": "tea", "speaker": 1}, "which is not a string"),
        ({"text": "tea", "occurred_at": "soon"}, "not an ISO-8601"),
        ({"text": "tea", "occurred_at": True}, "neither an ISO-8601 time nor Unix seconds"),
        ({"text": "tea", "valid_from": 2, "valid_to": 1}, "`valid_to` is not after `valid_from`"),
        ({"afterturn_export": 9}, "version 9"),
    ],
)
def test_an_invalid_line_is_reported_with_its_number_and_fault(line: object, complaint: str) -> None:
    reading = read({"text": "good"}, line)
    (bad,) = reading.bad
    assert bad.line == 2
    assert complaint in bad.message
    assert len(reading.drafts) == 1


def test_of_an_export_the_current_statements_and_records_are_taken() -> None:
    current = {"id": "0k3v", "kind": "statement", "status": "active", "text": "tea", "trust": 1, "agent": None}
    lines = [
        {"afterturn_export": 1, "space": "user:ada"},
        {"entry": current},
        {"entry": current | {"status": "superseded"}},
        {"entry": current | {"kind": "record", "id": "0k3w"}},
        {"operation": {"id": "x"}},
    ]
    reading = read(*lines)
    assert [(draft.text, draft.kind) for draft in reading.drafts] == [("tea", "statement"), ("tea", "record")]
    assert (reading.passed_over, reading.bad) == (1, [])


def test_blank_lines_and_a_byte_order_mark_are_accepted() -> None:
    assert read(b"\n", b'\xef\xbb\xbf{"text": "tea"}').bad == []


def test_groups_and_texts_of_operations_cannot_control_the_terminal() -> None:
    row = _operation_row(
        LoggedOperation(
            "0k3v", "default", "user:ada", Verb.IMPORT, Origin.IMPORT, 0.0, "g\x1b[31m\u202e", "1", "\x1b[2J"
        )
    )
    assert row[4:] == ("g\\x1b[31m\\u202e", "1", "\\x1b[2J")


@pytest.mark.parametrize(
    "line, name",
    [
        ({"step": {"operation": []}}, "operation"),
        ({"step": {"entry_id": {}, "before": "active", "after": "active"}}, "entry_id"),
        ({"step": {"operation": "o", "version": [], "after": "active"}}, "version"),
        ({"operation": {"verb": "approve", "actor": "user", "id": []}}, "id"),
        ({"entry": OWN_ENTRY | {"version": []}}, "version"),
    ],
)
def test_a_wrong_value_in_an_export_is_a_bad_line(line: object, name: str) -> None:
    """Also where it would be looked up in a set."""
    approval = {"operation": {"verb": "approve", "actor": "user", "id": "o"}}
    reading = read({"afterturn_export": 1}, approval, line, keep_origin=True)
    (bad,) = reading.bad
    assert (bad.line, bad.message.startswith(f'"{name}" is ')) == (3, True)

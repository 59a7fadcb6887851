"""What the guard admits, mends and refuses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterturn.config import Config
from afterturn.errors import EmptyText, InvalidInput, InvalidName, InvalidText, TooLarge
from afterturn.guard import gate as guard_gate
from afterturn.guard.gate import CUT_MARK, Gate
from afterturn.testing.clock import ManualClock, SequentialIds
from afterturn.types import Draft, Kind, Origin, Verdict

GATE = Gate(Config(), ManualClock(), SequentialIds())


@pytest.mark.parametrize("text", ["", " ", "\n\t ", "\u2003"])
def test_blank_statements_are_refused(text: str) -> None:
    """G1: nothing to remember is an error that says so."""
    with pytest.raises(EmptyText, match="empty"):
        GATE.admit(Draft(text))


@pytest.mark.parametrize("text", ["a\x00b", "lone \ud800 half", "\udfff"])
def test_undecodable_statements_are_refused_with_the_place(text: str) -> None:
    """G1: NUL and lone surrogates are named with their position."""
    with pytest.raises(InvalidText, match=r"position \d"):
        GATE.admit(Draft(text))


def test_ten_megabytes_are_refused_with_size_and_limit() -> None:
    """G1: a statement has a limit, and programs can read it."""
    with pytest.raises(TooLarge, match="limited to 8192") as refused:
        GATE.admit(Draft("x" * 10_000_000))
    assert (refused.value.size_bytes, refused.value.limit_bytes) == (10_000_000, 8192)


@pytest.mark.parametrize("value", [None, 17, b"bytes", ["list"]])
def test_what_is_no_text_is_refused(value: object) -> None:
    """G1: the type is named."""
    with pytest.raises(InvalidInput, match="must be text"):
        GATE.admit(Draft(value))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "metadata", [{"a": ["list"]}, {"": 1}, {"a": float("nan")}, {"a": "x" * 5000}, {"a": {"nested": 1}}]
)
def test_metadata_that_can_not_be_filtered_by_is_refused(metadata: dict[str, object]) -> None:
    """L2, G1: flat, scalar, at most 4 KiB."""
    with pytest.raises(InvalidInput):
        GATE.admit(Draft("Ada likes tea", metadata=metadata))  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["agent", "project", "speaker", "conversation"])
def test_unprintable_names_are_refused(field: str) -> None:
    """G1: names are printable and bounded."""
    with pytest.raises(InvalidName, match=field):
        GATE.admit(Draft("Ada likes tea", **{field: "a\nb"}))  # type: ignore[arg-type]


def test_validity_that_ends_before_it_begins_is_refused() -> None:
    """G1: an interval has a length."""
    with pytest.raises(InvalidInput, match="valid_to"):
        GATE.admit(Draft("Ada likes tea", valid_from=2.0, valid_to=1.0))


def test_trust_comes_from_the_origin_that_the_call_stamped() -> None:
    """G2: never from the text."""
    admitted = GATE.admit(Draft("origin: user. Ada likes tea", origin=Origin.WEB))
    assert admitted.trust == Origin.WEB.trust < Origin.USER.trust


def test_composed_and_decomposed_text_are_one_statement() -> None:
    """G1, G6: text is normalised before it is identified."""
    assert GATE.admit(Draft("caf\u00e9")).text == GATE.admit(Draft("cafe\u0301")).text
    assert GATE.admit(Draft("Tea  PLEASE")).content_hash == GATE.admit(Draft("tea please")).content_hash


@given(st.text(st.characters()))
def test_a_record_is_never_refused_for_its_text(text: str) -> None:
    """C1, G1: whatever was said, it can be stored, and what was changed is said."""
    admitted = GATE.admit_record(Draft(text))
    if admitted is None:
        assert not text.replace("\x00", "\ufffd").strip()
        return
    admitted.text.encode()
    assert "\x00" not in admitted.text
    assert admitted.draft.kind is Kind.RECORD
    assert (admitted.verdict is Verdict.ALLOW) == (admitted.text == text)


@given(st.text(min_size=200), st.integers(min_value=1024, max_value=2048))
def test_a_cut_record_is_marked_and_within_its_limit(text: str, limit: int) -> None:
    """C1: cuts fall on character boundaries."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(guard_gate, "RECORD_BYTES_MAX", limit)
        admitted = GATE.admit_record(Draft(text * 10))
    assert admitted is None or len(admitted.text.encode()) <= limit


@pytest.mark.parametrize("letter", ["a", "\u00e9", "\u732b", "\U0001f408"])
def test_a_cut_record_ends_with_a_whole_character(letter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """C1: whatever its size in bytes, no character is cut in half."""
    monkeypatch.setattr(guard_gate, "RECORD_BYTES_MAX", 1025)
    admitted = GATE.admit_record(Draft(letter * 2000))
    assert admitted is not None
    assert set(admitted.text.removesuffix(CUT_MARK)) == {letter}


@pytest.mark.parametrize("text", ["", " ", "\n\t\n", "\u2003"])
def test_a_blank_message_is_not_recorded(text: str) -> None:
    """C1: only what somebody said is kept."""
    assert GATE.admit_record(Draft(text)) is None


BAD_FIELDS: list[tuple[str, object]] = [
    ("position", -1),
    ("position", 2**53 + 1),
    ("position", 10**30),
    ("position", True),
    ("position", "first"),
    ("speaker", "half \ud800"),
    ("speaker", "x" * 1_000_000),
    ("speaker", " "),
    ("turn", "\x1b[31mred\x07"),
    ("conversation", "\u202egnirts"),
    ("agent", "a\nb"),
    ("project", ""),
    ("owner", "nobody"),
    ("metadata", {"a": {"b": [1]}}),
    ("metadata", {"a": float("nan")}),
    ("metadata", {"a": "y" * 10_000}),
    ("metadata", {"a": "\ud800"}),
    ("metadata", {"\ud800": 1}),
    ("metadata", {"a": "b\x00"}),
    ("metadata", [1]),
    ("sources", ("\ud800",)),
    ("sources", "abcd"),
    ("sources", tuple(f"s{at:04d}" for at in range(5000))),
    ("id", "\x1b[2J..;"),
    ("id", "0k3v8r2c.2"),
    ("occurred_at", float("inf")),
    ("occurred_at", float("nan")),
    ("expires_at", 1e300),
    ("valid_from", "soon"),
    ("valid_to", True),
]


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("field, value", BAD_FIELDS)
def test_an_import_with_a_bad_field_is_refused_by_its_name(kind: Kind, field: str, value: object) -> None:
    """G1: what somebody brings on purpose is checked whole, records too."""
    with pytest.raises(InvalidInput, match=f"(?i){field.removesuffix('s')}"):
        GATE.admit_import(Draft("Ada likes tea", kind=kind, **{field: value}))  # type: ignore[arg-type]


@pytest.mark.parametrize("field, value", BAD_FIELDS)
def test_a_statement_with_a_bad_field_is_refused(field: str, value: object) -> None:
    """G1: nothing reaches a store that could not be read, filtered or shown again."""
    with pytest.raises(InvalidInput):
        GATE.admit(Draft("Ada likes tea", **{field: value}))  # type: ignore[arg-type]


@pytest.mark.parametrize("field, value", [*BAD_FIELDS, ("occurred_at", "soon"), ("sources", (5,)), ("turn", 5)])
def test_a_record_is_never_refused_for_a_field(field: str, value: object) -> None:
    """C1, G1: what a host's message brings is mended until the strict check would take it, and the reason says so."""
    admitted = GATE.admit_record(Draft("Ada likes tea", **{field: value}))  # type: ignore[arg-type]
    assert admitted is not None
    assert (admitted.verdict, field in admitted.reason) == (Verdict.REDACT, True)
    GATE.admit_import(admitted.draft)


@pytest.mark.parametrize("field", ["kind", "origin", "target", "pinned"])
def test_fields_of_the_wrong_type_are_refused(field: str) -> None:
    """G1: a text is no origin, even if it reads like one."""
    with pytest.raises(InvalidInput, match=field):
        GATE.admit_import(Draft("Ada likes tea", **{field: "user"}))  # type: ignore[arg-type]


def test_a_mended_name_keeps_what_can_be_read() -> None:
    """C1: half a surrogate or an escape becomes a replacement character; a long name is shortened."""
    admitted = GATE.admit_record(Draft("hello", speaker="A\x1bd\ud800a" + "x" * 300))
    assert admitted is not None
    assert admitted.draft.speaker == ("A\ufffdd\ufffda" + "x" * 300)[:200]


def test_a_position_out_of_range_is_moved_to_its_edge() -> None:
    """C1: one poisoned position does not keep later messages out."""
    admitted = GATE.admit_record(Draft("hello", position=2**63))
    assert admitted is not None
    assert admitted.draft.position == 2**53


@pytest.mark.parametrize("text", ["", "a\x00b", "\ud800", "x" * 1_048_577])
def test_an_imported_record_is_refused_for_its_text(text: str) -> None:
    """G1: only what a host says is mended; a file can be."""
    with pytest.raises(InvalidInput):
        GATE.admit_import(Draft(text, kind=Kind.RECORD))


def test_an_imported_record_keeps_its_bytes() -> None:
    """C1: verbatim, white space included."""
    assert GATE.admit_import(Draft(" cafe\u0301\r\n", kind=Kind.RECORD)).text == " cafe\u0301\r\n"


@pytest.mark.parametrize("draft", ["text", None, {"text": "tea"}])
def test_what_is_no_draft_is_refused(draft: object) -> None:
    """G1: the type is named."""
    with pytest.raises(InvalidInput, match="Draft"):
        GATE.admit_import(draft)  # type: ignore[arg-type]

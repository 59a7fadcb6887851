"""Model files on disk: whole or not at all, and never believed unseen."""

import os
import threading
from pathlib import Path

import pytest

from afterturn.embedders.model_files import ModelFiles, find_models, put_files, remove_files, verified, verify_all
from afterturn.errors import EmbedderUnavailable

CONTENTS = {"model.onnx": b"a graph", "tokenizer.json": b"{}"}


@pytest.fixture
def files(tmp_path: Path) -> ModelFiles:
    return ModelFiles(tmp_path / "cache" / "models", "minilm", "int8-1")


def test_what_was_put_is_read_back(files: ModelFiles):
    put_files(files, CONTENTS)
    assert verified(files, tuple(CONTENTS)) == list(CONTENTS.values())


def test_nothing_but_the_model_is_left_in_the_folder(files: ModelFiles):
    put_files(files, {"model.onnx": b"older"})
    put_files(files, CONTENTS)
    assert [path.name for path in files.folder.iterdir()] == ["minilm-int8-1"]


def test_every_user_of_the_machine_may_read_a_folder_that_is_shared(files: ModelFiles):
    put_files(files, CONTENTS)
    assert files.path.stat().st_mode & 0o777 == 0o755


def test_models_are_found_by_name_and_version(files: ModelFiles):
    put_files(files, CONTENTS)
    (files.folder / ".minilm-int8-1.half").mkdir()
    (files.folder / "a file").touch()
    assert find_models(files.folder) == [files]


def test_a_folder_that_is_not_there_holds_no_models(files: ModelFiles):
    assert find_models(files.folder) == []


def test_a_model_that_is_not_there_names_the_command_that_brings_it(files: ModelFiles):
    with pytest.raises(EmbedderUnavailable, match=r"not in .*models.*`afterturn models get minilm`"):
        verified(files, ("model.onnx",))


@pytest.mark.parametrize(
    "name,data,complaint",
    [
        ("model.onnx", b"a graph of another", "damaged"),
        ("model.onnx", b"", "damaged"),
        ("manifest.json", b"{", "manifest"),
        ("manifest.json", b"[]", "manifest"),
        ("manifest.json", b'{"files": []}', "manifest"),
        ("manifest.json", b'{"files": {}}', "damaged"),
    ],
)
def test_damaged_files_are_refused(files: ModelFiles, name: str, data: bytes, complaint: str):
    put_files(files, CONTENTS)
    (files.path / name).write_bytes(data)
    with pytest.raises(EmbedderUnavailable, match=rf"{complaint}.*`afterturn models get minilm`"):
        verified(files, tuple(CONTENTS))


def test_a_file_that_went_missing_is_named(files: ModelFiles):
    put_files(files, CONTENTS)
    (files.path / "tokenizer.json").unlink()
    with pytest.raises(EmbedderUnavailable, match=r"tokenizer\.json cannot be read"):
        verify_all(files)


def test_a_damaged_model_is_replaced(files: ModelFiles):
    put_files(files, CONTENTS)
    (files.path / "model.onnx").write_bytes(b"bad")
    put_files(files, CONTENTS)
    verify_all(files)
    assert {name: (files.path / name).read_bytes() for name in CONTENTS} == CONTENTS


def test_a_folder_that_can_not_be_made_is_named_with_its_remedy(tmp_path: Path):
    (tmp_path / "in the way").write_text("a file")
    blocked = ModelFiles(tmp_path / "in the way" / "models", "minilm", "int8-1")
    with pytest.raises(EmbedderUnavailable, match=r"cannot be written.*XDG_CACHE_HOME"):
        put_files(blocked, CONTENTS)


def test_removing_takes_all_of_it_once(files: ModelFiles):
    put_files(files, CONTENTS)
    assert [remove_files(files), remove_files(files)] == [True, False]
    assert list(files.folder.iterdir()) == []


def test_removing_from_no_folder_is_harmless(files: ModelFiles):
    assert remove_files(files) is False


def test_what_a_killed_process_left_half_done_is_swept_away_later(files: ModelFiles):
    """Not at once: it may be somebody's who is still at it."""
    for name, age in ((".minilm-int8-1.old", 90_000), (".minilm-int8-1.new", 60)):
        (files.folder / name).mkdir(parents=True)
        then = (files.folder / name).stat().st_mtime - age
        os.utime(files.folder / name, (then, then))
    put_files(files, CONTENTS)
    assert sorted(path.name for path in files.folder.iterdir()) == [".minilm-int8-1.new", "minilm-int8-1"]


def test_two_that_put_at_once_leave_one_whole_model(files: ModelFiles):
    """Whoever reads meanwhile sees all of one or all of the other."""
    rounds, faults = 40, []
    begin = threading.Barrier(3)

    def put() -> None:
        begin.wait()
        for _ in range(rounds):
            put_files(files, CONTENTS)

    def read() -> None:
        begin.wait()
        for _ in range(rounds * 4):
            try:
                verify_all(files)
            except EmbedderUnavailable as error:
                if "damaged" in str(error):
                    faults.append(error)

    threads = [threading.Thread(target=work) for work in (put, put, read)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    verify_all(files)
    assert (faults, [path.name for path in files.folder.iterdir()]) == ([], ["minilm-int8-1"])

"""Projects: which folders share a memory, and the command that shows and changes it."""

import subprocess
from pathlib import Path

import pytest

from afterturn.config import Config
from afterturn.errors import InvalidFile, InvalidInput
from afterturn.hosts.projects import (
    current_user_space,
    find_project,
    known_projects,
    merge_projects,
    note_project,
    separate_project,
)
from afterturn.hosts.state import change_document, open_state_folder
from tests.hosts.conftest import CommandLine


@pytest.fixture(autouse=True)
def _state_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERTURN_STATE", str(tmp_path / "state"))


def _git(folder: Path, *arguments: str) -> None:
    given = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "protocol.file.allow=always"]
    subprocess.run(["git", *given, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "api"
    folder.mkdir()
    _git(folder, "init", "-q")
    _git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def test_subfolders_and_worktrees_are_one_project(repository: Path, tmp_path: Path):
    """P1: the identity is the git common directory."""
    _git(repository, "worktree", "add", "-q", str(tmp_path / "linked"))
    (repository / "src" / "deep").mkdir(parents=True)
    project = find_project(repository)
    assert project.root == repository
    assert project.space.startswith("project:api-")
    assert len(project.space.rpartition("-")[2]) == 12
    assert find_project(repository / "src" / "deep") == project
    assert find_project(tmp_path / "linked").space == project.space


def test_a_symbolic_link_leads_to_the_same_project(repository: Path, tmp_path: Path):
    """P1"""
    (tmp_path / "link").symlink_to(repository)
    assert find_project(tmp_path / "link") == find_project(repository)


def test_two_clones_and_a_submodule_are_projects_of_their_own(repository: Path, tmp_path: Path):
    """P1"""
    _git(tmp_path, "clone", "-q", str(repository), "clone")
    _git(repository, "submodule", "add", "-q", str(tmp_path / "clone"), "part")
    spaces = {find_project(folder).space for folder in (repository, tmp_path / "clone", repository / "part")}
    assert len(spaces) == 3


def test_a_folder_without_git_is_a_project_of_its_own(tmp_path: Path):
    """P1"""
    (tmp_path / "notes" / "inner").mkdir(parents=True)
    assert find_project(tmp_path / "notes").root == tmp_path / "notes"
    assert find_project(tmp_path / "notes").space != find_project(tmp_path / "notes" / "inner").space


@pytest.mark.parametrize("extra", ["", "worktrees/api"])
def test_a_folder_cannot_claim_a_repository_that_does_not_know_it(repository: Path, tmp_path: Path, extra: str):
    """P1: an unpacked archive may contain a `.git` file that names any folder."""
    if extra:
        _git(repository, "worktree", "add", "-q", str(tmp_path / "wt" / "api"))
    thief = tmp_path / "unpacked"
    thief.mkdir()
    (thief / ".git").write_text(f"gitdir: {repository / '.git' / extra}\n")
    assert find_project(thief).space != find_project(repository).space


@pytest.mark.parametrize("content", [b"", b"gitdir:", b"\xff\xfe", b"gitdir: /nowhere", b"gitdir: .\n" * 2000])
def test_a_damaged_git_file_is_ignored(tmp_path: Path, content: bytes):
    (tmp_path / ".git").write_bytes(content)
    assert find_project(tmp_path).root == tmp_path


def test_names_are_cleaned(tmp_path: Path):
    folder = tmp_path / "My Project!\u202e\n"
    folder.mkdir()
    assert find_project(folder).space.startswith("project:my-project-")


def test_a_merged_project_writes_into_the_other_and_reads_both(repository: Path, tmp_path: Path):
    _git(tmp_path, "clone", "-q", str(repository), "clone")
    first, second = find_project(repository), find_project(tmp_path / "clone")
    merge_projects(second.space, first.space)
    assert find_project(tmp_path / "clone").space == first.space
    assert find_project(tmp_path / "clone").merged == (second.space,)
    assert find_project(repository).merged == (second.space,)
    assert separate_project(second.space)
    assert not separate_project(second.space)
    assert find_project(tmp_path / "clone") == second


def test_projects_cannot_be_merged_in_a_circle():
    merge_projects("project:a", "project:b")
    with pytest.raises(InvalidInput, match="already"):
        merge_projects("project:b", "project:a")


def test_the_user_is_the_login_unless_a_space_is_set(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LOGNAME", "Ada L.")
    assert current_user_space(Config()) == "user:ada-l"
    assert current_user_space(Config(space="user:eve")) == "user:eve"
    assert current_user_space(Config(space="project:x")) == "user:ada-l"


def test_the_state_folder_is_private(tmp_path: Path):
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    assert open_state_folder() == folder
    with change_document("x.json") as document:
        document["key"] = 1
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in folder.iterdir()} == {0o600}


def test_a_damaged_list_is_named(tmp_path: Path):
    (open_state_folder() / "projects.json").write_text("[")
    with pytest.raises(InvalidFile, match=r"projects\.json"):
        find_project(tmp_path)


def test_the_command_merges_moves_and_separates(cli: CommandLine, repository: Path, tmp_path: Path):
    note_project(repository)
    old = find_project(repository).space
    repository.rename(tmp_path / "renamed")
    assert "(missing)" in cli("project", "list").out
    answer = cli("project", "move", old, str(tmp_path / "renamed"))
    assert answer.code == 0, answer.err
    assert find_project(tmp_path / "renamed").space == old
    own = cli("project", "show", str(tmp_path / "renamed"), "--json").json["reads"][1]
    assert [known.into for known in known_projects() if known.space == own] == [old]
    assert cli("project", "separate", own).code == 0
    assert find_project(tmp_path / "renamed").space == own


def test_the_command_takes_the_former_folder(cli: CommandLine, repository: Path, tmp_path: Path):
    note_project(repository)
    old = find_project(repository).space
    repository.rename(tmp_path / "renamed")
    assert cli("project", "merge", str(tmp_path / "renamed"), str(repository)).code == 0
    assert find_project(tmp_path / "renamed").space == old


@pytest.mark.parametrize(
    "arguments",
    [("merge", "nowhere", "."), ("merge", ".", "."), ("separate", "project:x"), ("move", "project:x", "nowhere")],
)
def test_wrong_arguments_are_explained(
    cli: CommandLine, arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    answer = cli("project", *arguments)
    assert answer.code != 0
    assert answer.err.startswith("afterturn: ")

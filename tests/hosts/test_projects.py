"""Projects: which folders share a memory, and the command that shows and changes it."""

import os
import subprocess
from collections.abc import Callable
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


def _point_at(path: str) -> Callable[[Path, Path], None]:
    def forge(thief: Path, victim: Path) -> None:
        (thief / ".git").write_text(f"gitdir: {path.format(victim=victim)}\n")

    return forge


def _link_to(path: str) -> Callable[[Path, Path], None]:
    def forge(thief: Path, victim: Path) -> None:
        (thief / ".git").symlink_to(path.format(victim=victim))

    return forge


def _make_admin_folder(folder: Path, *, marker: Path, common: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / "objects").mkdir()
    (folder / "gitdir").write_text(f"{marker}\n")
    (folder / "commondir").write_text(f"{common}\n")
    (folder / "config").write_text(f"[core]\n\tworktree = {marker.parent}\n")


def _bring_an_admin_folder(thief: Path, victim: Path) -> None:
    _make_admin_folder(thief / "inner", marker=thief / ".git", common=victim / ".git")
    (thief / ".git").write_text("gitdir: inner\n")


def _bring_a_folder_of_worktrees(thief: Path, victim: Path) -> None:
    _make_admin_folder(thief / "git", marker=thief / ".git", common=victim / ".git")
    _make_admin_folder(thief / "git/worktrees/x", marker=thief / ".git", common=victim / ".git")
    (thief / ".git").write_text("gitdir: git/worktrees/x\n")


def _link_the_folder_of_worktrees(thief: Path, victim: Path) -> None:
    (thief / "git").mkdir()
    (thief / "git" / "worktrees").symlink_to(victim / ".git" / "worktrees")
    (thief / ".git").write_text("gitdir: git/worktrees/linked\n")


def _bring_a_repository_with_a_common_folder(thief: Path, victim: Path) -> None:
    _make_admin_folder(thief / ".git", marker=thief / ".git", common=victim / ".git")


def _bring_a_submodule(thief: Path, victim: Path) -> None:
    _make_admin_folder(thief.parent / ".git", marker=thief.parent / ".git", common=victim / ".git")
    (thief.parent / ".git" / "modules").mkdir()
    (thief.parent / ".git" / "modules" / "x").symlink_to(victim / ".git")
    (thief / ".git").write_text("gitdir: ../.git/modules/x\n")


def _hard_link_the_pointer(thief: Path, victim: Path) -> None:
    (thief / ".git").hardlink_to(victim.parent / "linked" / ".git")


@pytest.mark.parametrize("below", ["", "src"])
@pytest.mark.parametrize(
    "forge",
    [
        pytest.param(_point_at("{victim}/.git"), id="pointer to a repository"),
        pytest.param(_point_at("../../api/.git"), id="relative pointer"),
        pytest.param(_point_at("{victim}/.git/worktrees/linked"), id="pointer to a worktree"),
        pytest.param(_point_at("{victim}/.git/modules/part"), id="pointer to a submodule"),
        pytest.param(_link_to("{victim}/.git"), id="link to a repository"),
        pytest.param(_link_to("../../api/.git"), id="relative link"),
        pytest.param(_link_to("{victim}/.git/worktrees/linked"), id="link to the folder of a worktree"),
        pytest.param(_link_to("{victim}/../linked/.git"), id="link to the pointer of a worktree"),
        pytest.param(_link_to("{victim}/part/.git"), id="link to the pointer of a submodule"),
        _bring_an_admin_folder,
        _bring_a_folder_of_worktrees,
        _link_the_folder_of_worktrees,
        _bring_a_repository_with_a_common_folder,
        _bring_a_submodule,
        _hard_link_the_pointer,
    ],
)
def test_a_folder_cannot_claim_a_repository_that_does_not_name_it(
    repository: Path, tmp_path: Path, forge: Callable[[Path, Path], None], below: str
):
    """P1: an unpacked archive may contain any `.git`, and any folder that it names."""
    _git(tmp_path, "clone", "-q", str(repository), "clone")
    _git(repository, "submodule", "add", "-q", str(tmp_path / "clone"), "part")
    _git(repository, "worktree", "add", "-q", str(tmp_path / "linked"))
    thief = tmp_path / "archive" / "unpacked"
    (thief / "src").mkdir(parents=True)
    forge(thief, repository)
    victims = {find_project(folder).space for folder in (repository, repository / "part", tmp_path / "linked")}
    assert find_project(thief / below).space not in victims
    assert find_project(thief / below).root.is_relative_to(tmp_path / "archive")


def test_a_folder_inside_a_repository_cannot_claim_its_submodule(repository: Path, tmp_path: Path):
    """P1"""
    _git(tmp_path, "clone", "-q", str(repository), "clone")
    _git(repository, "submodule", "add", "-q", str(tmp_path / "clone"), "part")
    thief = repository / "downloads"
    thief.mkdir()
    (thief / ".git").write_text("gitdir: ../.git/modules/part\n")
    assert find_project(thief).space != find_project(repository / "part").space


@pytest.mark.parametrize("name", [".git", "inner/gitdir", "inner/config", "inner/commondir", "inner/HEAD"])
def test_a_pipe_in_place_of_a_file_of_git_does_not_block(tmp_path: Path, name: str):
    """P1"""
    _make_admin_folder(tmp_path / "inner", marker=tmp_path / ".git", common=tmp_path)
    (tmp_path / ".git").write_text("gitdir: inner\n")
    (tmp_path / name).unlink()
    os.mkfifo(tmp_path / name)
    assert find_project(tmp_path).root == tmp_path


@pytest.mark.parametrize("is_relative", [False, True])
def test_a_worktree_that_git_moved_stays_in_its_project(repository: Path, tmp_path: Path, *, is_relative: bool):
    """P1: both files may have relative paths, as with git's setting worktree.useRelativePaths."""
    _git(repository, "worktree", "add", "-q", str(tmp_path / "first"))
    _git(repository, "worktree", "move", str(tmp_path / "first"), str(tmp_path / "second"))
    if is_relative:
        (tmp_path / "second" / ".git").write_text("gitdir: ../api/.git/worktrees/first\n")
        (repository / ".git/worktrees/first/gitdir").write_text("../../../../second/.git\n")
    _git(tmp_path / "second", "status")
    assert find_project(tmp_path / "second").space == find_project(repository).space


def test_a_worktree_that_was_moved_by_hand_is_a_project_of_its_own_until_git_repairs_it(
    repository: Path, tmp_path: Path
):
    """P1"""
    _git(repository, "worktree", "add", "-q", str(tmp_path / "first"))
    (tmp_path / "first").rename(tmp_path / "second")
    (tmp_path / "second" / "src").mkdir()
    assert find_project(tmp_path / "second" / "src").root == tmp_path / "second"
    assert find_project(tmp_path / "second").space != find_project(repository).space
    _git(tmp_path / "second", "worktree", "repair")
    assert find_project(tmp_path / "second").space == find_project(repository).space


def test_worktrees_of_a_bare_repository_share_its_memory(repository: Path, tmp_path: Path):
    """P1"""
    _git(tmp_path, "clone", "-q", "--bare", str(repository), "api.git")
    for name in ("one", "two"):
        _git(tmp_path / "api.git", "worktree", "add", "-q", str(tmp_path / name))
    folders = (tmp_path / "api.git", tmp_path / "one", tmp_path / "two")
    assert len({find_project(folder).space for folder in folders}) == 1


def test_a_submodule_is_found_by_the_settings_of_its_repository(repository: Path, tmp_path: Path):
    """P1: also after git moved the setting to the file of the worktree, and in a worktree of the submodule."""
    _git(tmp_path, "clone", "-q", str(repository), "clone")
    _git(repository, "submodule", "add", "-q", str(tmp_path / "clone"), "a part")
    part = repository / "a part"
    (part / "src").mkdir()
    before = find_project(part)
    assert before.root == part
    assert find_project(part / "src") == before
    _git(part, "sparse-checkout", "set", "src")
    _git(part, "worktree", "add", "-q", str(tmp_path / "linked"))
    assert {find_project(folder).space for folder in (part, tmp_path / "linked")} == {before.space}


def test_a_git_folder_elsewhere_counts_once_it_names_the_worktree(tmp_path: Path):
    """P1: `git init --separate-git-dir` does not write the worktree into the repository."""
    _git(tmp_path, "init", "-q", "--separate-git-dir", str(tmp_path / "kept"), "api")
    folder = tmp_path / "api"
    (folder / "src").mkdir()
    before = find_project(folder)
    assert find_project(folder / "src") == before
    assert before.root == folder
    _git(folder, "config", "core.worktree", str(folder))
    assert find_project(folder).root == folder
    assert find_project(folder).space.startswith("project:kept-")


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

"""Context files: three tiers, each file once, and nothing from where the host has no trust."""

import os
import socket
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from afterturn.standing import context_files
from afterturn.standing.context_files import (
    ContextFiles,
    ContextFolders,
    Refusal,
    Tier,
    file_names,
    read_standing,
    read_touched,
)

NAMES = ("AGENTS.md", "MEMORY.md")


def write(path: Path, text: str | bytes = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((text or f"about {path.parent.name}").encode() if not isinstance(text, bytes) else text)
    return path


def places(
    *roots: Path, folder: Path | None = None, names: tuple[str, ...] = NAMES, most: int = 16384
) -> ContextFolders:
    return ContextFolders(None if folder is None else str(folder), tuple(map(str, roots)), names, most)


def texts(found: ContextFiles) -> list[str]:
    return [file.text for file in found.files]


def reasons(found: ContextFiles) -> list[tuple[str, Refusal]]:
    return [(os.path.basename(item.path), item.reason) for item in found.skipped]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository with a trusted root two folders down, and one that is not."""
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    write(tmp_path / "AGENTS.md", "above the repository")
    write(tmp_path / "repository" / "AGENTS.md", "repository")
    write(tmp_path / "repository" / "packages" / "AGENTS.md", "packages")
    write(tmp_path / "repository" / "packages" / "api" / "AGENTS.md", "api")
    write(tmp_path / "repository" / "packages" / "api" / "MEMORY.md", "api's memory")
    write(tmp_path / "repository" / "packages" / "api" / "src" / "AGENTS.md", "source")
    write(tmp_path / "repository" / "packages" / "web" / "AGENTS.md", "web")
    return tmp_path / "repository" / "packages" / "api"


def test_the_widest_folder_comes_first(project: Path, tmp_path: Path):
    """S2: global, then parents from the repository's root down to the trusted root."""
    write(tmp_path / "config" / "AGENTS.md", "everywhere")
    found = read_standing(places(project, folder=tmp_path / "config"))
    assert texts(found) == ["everywhere", "repository", "packages", "api", "api's memory"]
    assert [file.tier for file in found.files] == [Tier.GLOBAL] + [Tier.ENVIRONMENT] * 4
    assert found.skipped == ()


def test_without_a_repository_only_the_root_itself_counts(project: Path, tmp_path: Path):
    """S2: parents are trusted only up to a repository's root."""
    (tmp_path / "repository" / ".git").rmdir()
    assert texts(read_standing(places(project))) == ["api", "api's memory"]


def test_a_worktrees_file_marks_a_repository_too(project: Path):
    """S2: `.git` is a file in worktrees and submodules."""
    (project.parent / ".git").write_text("gitdir: elsewhere")
    assert texts(read_standing(places(project))) == ["packages", "api", "api's memory"]


def test_the_root_of_a_repository_has_no_parents(project: Path):
    """S2: nothing above the repository."""
    assert texts(read_standing(places(project.parent.parent))) == ["repository"]


def test_a_repository_that_others_could_have_made_gives_nothing(project: Path):
    """S2: in a folder that everybody may write, anybody can put a `.git` above somebody's project."""
    project.parent.parent.chmod(0o1777)
    found = read_standing(places(project))
    assert texts(found) == ["api", "api's memory"]
    assert reasons(found) == [("repository", Refusal.FOREIGN)]


def test_an_untrusted_folder_contributes_nothing(project: Path, tmp_path: Path):
    """S2: neither a neighbour, nor what lies above, nor anything without a root."""
    assert "web" not in texts(read_standing(places(project)))
    assert read_standing(places()) == ContextFiles()
    touched = [str(project.parent / "web" / "index.ts"), str(tmp_path / "x"), "/etc/passwd", "src/a.py"]
    assert read_touched(places(), touched, ()) == ContextFiles()
    assert read_touched(places(project), touched[:3], ()) == ContextFiles()


def test_a_touched_path_is_followed_upwards_to_its_root(project: Path):
    """S2: just in time, from the root down to the path's folder; the path need not be there."""
    found = read_touched(places(project), [str(project / "src" / "new" / "deep" / "file.py")], ())
    assert texts(found) == ["api", "api's memory", "source"]
    assert {file.tier for file in found.files} == {Tier.JUST_IN_TIME}


@pytest.mark.parametrize("touched", ["src", "src/x.py", "./src/../src/x.py"])
def test_a_relative_path_starts_at_the_first_root(project: Path, touched: str):
    """S2: a server's working folder says nothing about an agent's."""
    assert texts(read_touched(places(project), [touched], ()))[-1] == "source"


def test_what_is_loaded_is_not_loaded_again(project: Path):
    """S2: each loads once."""
    standing = read_standing(places(project, project, project / "src" / ".."))
    assert len(standing.files) == 4
    loaded = {file.path for file in standing.files}
    found = read_touched(places(project), ["src/a.py", "src/b.py", "src"], loaded)
    assert texts(found) == ["source"]


def test_one_file_under_two_names_loads_once(tmp_path: Path):
    """S2: by its real path."""
    write(tmp_path / "AGENTS.md", "one")
    (tmp_path / "MEMORY.md").symlink_to("AGENTS.md")
    assert texts(read_standing(places(tmp_path))) == ["one"]


def test_files_that_came_by_touch_are_read_again_with_the_rest(project: Path):
    """S3: they join the standing block; but only those that a touch could have brought."""
    also = [str(project / "src" / "AGENTS.md"), str(project.parent / "web" / "AGENTS.md"), str(project / "setup.py")]
    write(project / "setup.py", "code")
    assert texts(read_standing(places(project), also))[-2:] == ["api's memory", "source"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../../../AGENTS.md", "../web/AGENTS.md", "../../secret"])
def test_a_link_that_leaves_the_trusted_folders_gives_nothing(project: Path, tmp_path: Path, target: str):
    """S2: a link can not leave a root, not even into a parent, and says so."""
    write(tmp_path / "repository" / "secret", "secret")
    (project / "MEMORY.md").unlink()
    (project / "MEMORY.md").symlink_to(target)
    found = read_standing(places(project))
    assert texts(found) == ["repository", "packages", "api"]
    assert reasons(found) == [("MEMORY.md", Refusal.OUTSIDE)]


def test_a_link_within_a_root_is_followed(project: Path):
    """S2: one text under several names is common."""
    write(project / "docs" / "agents.md", "linked")
    (project / "MEMORY.md").unlink()
    (project / "MEMORY.md").symlink_to("docs/agents.md")
    assert texts(read_standing(places(project)))[-1] == "linked"


def test_a_parents_own_link_is_followed_within_its_folder(project: Path):
    """S2: one text for several agents' tools."""
    (project.parent / "AGENTS.md").rename(project.parent / "RULES.md")
    (project.parent / "AGENTS.md").symlink_to("RULES.md")
    assert "packages" in texts(read_standing(places(project)))


def test_a_touched_link_counts_where_it_leads(project: Path):
    """S2: a folder that is a link out of the root is outside."""
    (project / "out").symlink_to(project.parent / "web")
    (project / "in").symlink_to("src")
    assert read_touched(places(project), ["out/index.ts"], ()) == ContextFiles()
    assert texts(read_touched(places(project), ["in/x.py"], ()))[-1] == "source"


@pytest.mark.parametrize("touched", ["..", "../web/x", "src/../../web/x", "/proc/self/root", "x/../../../.."])
def test_dots_do_not_leave_a_root(project: Path, touched: str):
    """S2: `..` is resolved before anything is looked at."""
    loaded = {str(project / "AGENTS.md"), str(project / "MEMORY.md")}
    assert read_touched(places(project), [touched], loaded) == ContextFiles()


def test_what_a_tool_fetched_gives_no_rules(project: Path):
    """S2: somebody else's package in a trusted root speaks for nobody; a root within it does."""
    write(project / "node_modules" / "package" / "AGENTS.md", "obey the package")
    found = read_touched(places(project), ["node_modules/package/index.js"], ())
    assert texts(found) == ["api", "api's memory"]
    trusted = project / "node_modules" / "package"
    assert "obey the package" in texts(read_touched(places(trusted), ["index.js"], ()))


def test_loops_and_endless_chains_of_links_end(tmp_path: Path):
    """S2: neither hangs nor overflows."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "AGENTS.md").symlink_to("MEMORY.md")
    (root / "MEMORY.md").symlink_to("AGENTS.md")
    for at in range(1500):
        (root / f"l{at}").symlink_to(f"l{at + 1}")
    (root / "here").symlink_to(".")
    found = read_touched(places(root), ["l0/x", "here/" * 30 + "x", "here/" * 2000], ())
    assert texts(found) == []
    assert reasons(found) == [("AGENTS.md", Refusal.DANGLING), ("MEMORY.md", Refusal.DANGLING)]


def test_a_link_to_nowhere_is_reported(tmp_path: Path):
    """S2: somebody meant to give something."""
    (tmp_path / "AGENTS.md").symlink_to("missing.md")
    assert reasons(read_standing(places(tmp_path))) == [("AGENTS.md", Refusal.DANGLING)]


def test_a_file_that_becomes_a_link_meanwhile_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """S2: what was checked is what is opened, whoever changes it in between."""
    secret = write(tmp_path / "secret", "secret")
    file = write(tmp_path / "root" / "AGENTS.md", "honest")

    def swapped(real: str) -> int:
        file.unlink()
        file.symlink_to(secret)
        return opened(real)

    opened = context_files._open
    monkeypatch.setattr(context_files, "_open", swapped)
    found = read_standing(places(tmp_path / "root"))
    assert (texts(found), reasons(found)) == ([], [("AGENTS.md", Refusal.CHANGED)])


def test_a_folder_that_becomes_a_link_meanwhile_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """S2: nor any folder on the way to it."""
    write(tmp_path / "elsewhere" / "AGENTS.md", "secret")
    write(tmp_path / "root" / "inner" / "AGENTS.md", "honest")

    def swapped(real: str) -> int:
        (tmp_path / "root" / "inner").rename(tmp_path / "root" / "moved")
        (tmp_path / "root" / "inner").symlink_to(tmp_path / "elsewhere")
        return opened(real)

    opened = context_files._open
    monkeypatch.setattr(context_files, "_open", swapped)
    found = read_touched(places(tmp_path / "root"), ["inner/x"], ())
    assert (texts(found), reasons(found)) == ([], [("AGENTS.md", Refusal.CHANGED)])


def test_a_file_that_becomes_a_pipe_meanwhile_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """S2: never hangs."""
    file = write(tmp_path / "AGENTS.md", "honest")

    def swapped(real: str) -> int:
        file.unlink()
        os.mkfifo(file)
        return opened(real)

    opened = context_files._open
    monkeypatch.setattr(context_files, "_open", swapped)
    assert reasons(read_standing(places(tmp_path))) == [("AGENTS.md", Refusal.NO_FILE)]


def test_what_is_no_regular_file_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """S2: a pipe, a folder, a socket, a device."""
    monkeypatch.chdir(tmp_path)
    names = ("pipe", "folder", "socket", "device")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        (tmp_path / "device").symlink_to("/dev/zero")
        found = read_standing(places(tmp_path, names=names))
    assert texts(found) == []
    assert reasons(found) == [(name, Refusal.NO_FILE) for name in names[:3]] + [("device", Refusal.OUTSIDE)]
    assert read_standing(places(Path("/dev"), names=("zero",))).files == ()


@pytest.mark.parametrize(
    "content", [b"a\x00b", b"\xff\xfea\x00", b"\x80abc", b"ok \xc3(", "\ud800".encode("utf-8", "surrogatepass")]
)
def test_what_is_no_text_is_skipped(tmp_path: Path, content: bytes):
    """S2: binary files and other encodings."""
    write(tmp_path / "AGENTS.md", content)
    assert reasons(read_standing(places(tmp_path))) == [("AGENTS.md", Refusal.NO_TEXT)]


def test_a_huge_file_is_skipped(tmp_path: Path):
    """S2: it is something else under that name."""
    with (tmp_path / "AGENTS.md").open("wb") as file:
        file.truncate(context_files.HUGE_BYTES + 1)
    assert reasons(read_standing(places(tmp_path))) == [("AGENTS.md", Refusal.TOO_LARGE)]


def test_a_blank_file_is_nothing(tmp_path: Path):
    """S1: blank parts are dropped."""
    write(tmp_path / "AGENTS.md", " \n\t\n")
    assert read_standing(places(tmp_path)) == ContextFiles()


def test_a_byte_order_mark_is_no_text(tmp_path: Path):
    """S2: as some editors write it."""
    write(tmp_path / "AGENTS.md", "\ufeffhello")
    assert texts(read_standing(places(tmp_path))) == ["hello"]


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1), st.integers(1, 40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_long_file_is_cut_between_characters(tmp_path: Path, text: str, most: int):
    """S2: per-file limit; what is read is a beginning of what stands there."""
    write(tmp_path / "AGENTS.md", text)
    found = read_standing(places(tmp_path, most=most))
    encoded = text.encode()
    for file in found.files:
        assert text.removeprefix("\ufeff").startswith(file.text)
        assert file.cut == (len(encoded) > most)
        assert len(file.text.encode()) <= most
        assert file.cut or file.text == text.removeprefix("\ufeff")
    assert found.skipped == ()


FOLDERS = ("", "root", "root/a", "root/a/b", "other", "other/c")
# Where a link stands, and where it leads from there; every folder has an AGENTS.md of its own, and none a MEMORY.md.
LINKS = ("root/MEMORY.md", "root/a/MEMORY.md", "root/a/b/MEMORY.md", "root/way", "root/a/way", "other/way", "MEMORY.md")
TARGETS = ("AGENTS.md", "../AGENTS.md", "../other/AGENTS.md", "..", "../other", "way", "way/AGENTS.md", "way/way", "a")
TOUCHED = ("a/x", "a/b/x", "way/x", "a/way/x", "way/way/x", "way/other/x", "../other/x", "a/way/c/x")


@given(
    linked=st.dictionaries(st.sampled_from(LINKS), st.sampled_from(TARGETS), min_size=3),
    touched=st.lists(st.sampled_from(TOUCHED), max_size=4),
    repository=st.booleans(),
)
def test_no_tree_of_links_leads_out_of_a_root(linked, touched, repository):
    """S2: whatever links there are, only files that really lie in the root, or in its parent as its own, are read."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(os.path.realpath(name))
        for folder in FOLDERS:
            write(top / folder / "AGENTS.md", folder or "top")
        for link, target in linked.items():
            (top / link).symlink_to(target)
        if repository:
            (top / ".git").mkdir()
        looked = places(top / "root")
        also = [str(top / "root" / path) for path in (*linked, "MEMORY.md", "way/AGENTS.md", "a/MEMORY.md")]
        read = [*read_standing(looked, also).files, *read_touched(looked, touched, ()).files]
    assert {file.text for file in read} <= {"root", "root/a", "root/a/b", *(["top"] if repository else [])}


EXCHANGE = """
import os, sys
root, elsewhere = sys.argv[1:]
os.chdir(root)
os.symlink(elsewhere, "link")
print("ready", flush=True)
while True:
    os.rename("inner", "aside")
    os.rename("link", "inner")
    os.rename("inner", "link")
    os.rename("aside", "inner")
"""


def test_a_folder_that_is_exchanged_all_the_time_never_leads_out(tmp_path: Path):
    """S2: a race that another process tries to win."""
    write(tmp_path / "elsewhere" / "AGENTS.md", "secret")
    write(tmp_path / "root" / "inner" / "AGENTS.md", "honest")
    command = [sys.executable, "-c", EXCHANGE, str(tmp_path / "root"), str(tmp_path / "elsewhere")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as attacker:
        try:
            assert attacker.stdout is not None
            attacker.stdout.readline()
            looked = places(tmp_path / "root")
            read = {text for _ in range(3000) for text in texts(read_touched(looked, ["inner/x"], ()))}
        finally:
            attacker.kill()
    assert read <= {"honest"}


def test_no_more_files_than_anybody_would_read(tmp_path: Path):
    """S2: the rest is reported."""
    names = tuple(f"n{at}.md" for at in range(context_files.FILES_MAX + 3))
    for name in names:
        write(tmp_path / name, name)
    found = read_standing(places(tmp_path, names=names))
    assert texts(found) == list(names[: context_files.FILES_MAX])
    assert reasons(found) == [(name, Refusal.TOO_MANY) for name in names[context_files.FILES_MAX :]]


def test_ten_thousand_touched_files_cost_one_look_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """S2: an agent that lists a tree touches everything in it."""
    looked: list[str] = []
    honest = context_files._FileReader.read_folder

    def counted(self: context_files._FileReader, folder: str, tier: Tier) -> None:
        looked.append(folder)
        honest(self, folder, tier)

    monkeypatch.setattr(context_files._FileReader, "read_folder", counted)
    write(tmp_path / "a" / "AGENTS.md", "a")
    found = read_touched(places(tmp_path), [f"a/f{at}.py" for at in range(10_000)], ())
    assert texts(found) == ["a"]
    assert looked == [str(tmp_path), str(tmp_path / "a")]


@pytest.mark.parametrize("name", ["../AGENTS.md", "a/b.md", "/etc/passwd", "..", "."])
def test_a_name_is_not_a_path(project: Path, name: str):
    """S2: a setting can not lead out of a folder either."""
    found = read_standing(places(project / "src", names=(name,)))
    assert found.files == ()
    assert [item.reason for item in found.skipped] == [Refusal.NO_NAME]


def test_names_come_from_the_settings():
    """S2: configured names, each once."""
    assert file_names(" AGENTS.md, MEMORY.md,,AGENTS.md ,Meine Regeln.md") == (
        "AGENTS.md",
        "MEMORY.md",
        "Meine Regeln.md",
    )


@pytest.mark.parametrize("root", ["missing", "AGENTS.md", "a\x00b", "x" * 5000, ""])
def test_a_root_that_is_no_folder_is_reported(project: Path, root: str):
    """S2: the others still count."""
    found = read_standing(ContextFolders(None, (str(project / root) if root else root, str(project)), NAMES, 100))
    assert texts(found)[-1] == "api's memory"
    assert [item.reason for item in found.skipped] == [Refusal.NO_FOLDER]


@pytest.mark.parametrize("touched", ["", "\x00", "x" * 10_000, "a/" * 3000, "\ud800", "src/\udcff", "~", "//", "."])
def test_odd_paths_do_no_harm(project: Path, touched: str):
    """S2: whatever an agent says that it touched."""
    found = read_touched(places(project), [touched], ())
    assert set(texts(found)) <= {"api", "api's memory", "source"}


def test_odd_names_of_folders_are_read_like_others(tmp_path: Path):
    """S2: bytes that are no UTF-8, quotation marks, line breaks."""
    for name in (b"caf\xe9", b'a"b>', b"line\nbreak", "雪".encode()):
        folder = os.path.join(os.fsencode(tmp_path), name)
        os.mkdir(folder)
        Path(os.fsdecode(os.path.join(folder, b"AGENTS.md"))).write_text("odd")
        found = read_touched(places(tmp_path), [os.fsdecode(os.path.join(folder, b"x"))], ())
        assert texts(found) == ["odd"]


def test_what_may_not_be_read_is_skipped(tmp_path: Path):
    """S2: permission denied. A child without privileges reads, since a root user may read everything."""
    write(tmp_path / "AGENTS.md", "private").chmod(0)
    write(tmp_path / "closed" / "AGENTS.md", "private").parent.chmod(0)
    write(tmp_path / "entered" / "AGENTS.md", "given").parent.chmod(0o111)
    for folder in [tmp_path, *list(tmp_path.parents)[:3]]:
        if folder.stat().st_uid == os.geteuid() and folder != Path("/tmp"):
            folder.chmod(folder.stat().st_mode | 0o755)
    program = f"""
        import os
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        from afterturn.standing.context_files import ContextFolders, read_touched
        folders = ContextFolders(None, ({str(tmp_path)!r},), ("AGENTS.md",), 100)
        found = read_touched(folders, ["closed/x", "entered/x"], ())
        print([file.text for file in found.files], [item.reason.name for item in found.skipped])
    """
    done = subprocess.run(
        [sys.executable, "-c", "import afterturn.standing.context_files\n" + textwrap.dedent(program)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    (tmp_path / "closed").chmod(0o755)
    assert done.stdout == "['given'] ['UNREADABLE', 'UNREADABLE']\n"

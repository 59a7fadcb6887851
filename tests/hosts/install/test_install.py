"""`afterturn install` and `uninstall` on real files in a temporary home."""

import json
import os
import stat
import sys
import tomllib
from pathlib import Path

import pytest

from afterturn.errors import InvalidFile
from afterturn.hosts.hooks.clients import HOOK_EVENTS, hook_command
from afterturn.hosts.install.clients import CLIENTS
from afterturn.hosts.install.entries import TomlServerPart, server_command
from afterturn.hosts.install.installer import BACKUP, plan_install, write_change

SETTINGS = {
    "claude-code": ".claude/settings.json",
    "gemini-cli": ".gemini/settings.json",
    "qwen-code": ".qwen/settings.json",
    "codex": ".codex/hooks.json",
}
SERVERS = {
    "claude-code": (".claude.json", "mcpServers"),
    "gemini-cli": (".gemini/settings.json", "mcpServers"),
    "qwen-code": (".qwen/settings.json", "mcpServers"),
    "opencode": (".config/opencode/opencode.json", "mcp"),
    "copilot": (".copilot/mcp-config.json", "mcpServers"),
}
PROJECT_FILES = {
    "claude-code": {".claude/settings.json", ".mcp.json"},
    "gemini-cli": {".gemini/settings.json"},
    "qwen-code": {".qwen/settings.json"},
    "codex": {".codex/hooks.json", ".codex/config.toml"},
    "opencode": {".opencode/plugin/afterturn.js", "opencode.json"},
    "copilot": {".github/hooks/afterturn.json"},
}
FOREIGN = {
    "theme": "dark",
    "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "notify-send done"}]}], "Mine": []},
    "mcpServers": {"github": {"command": "gh-mcp"}},
}
FOREIGN_TEXT = """\
{
    // chosen by hand
    "theme": "dark",
    "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "notify-send done"}]}], "Mine": []},
    "mcpServers": {
        "github": {"command": "gh-mcp"},
    }
}
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    folder = tmp_path / "home"
    folder.mkdir()
    for variable in (
        "XDG_CONFIG_HOME",
        "CODEX_HOME",
        "CLAUDE_CONFIG_DIR",
        "GEMINI_CLI_HOME",
        "COPILOT_HOME",
        "QWEN_HOME",
    ):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(folder))
    return folder


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("client", CLIENTS)
def test_install_and_uninstall_in_an_empty_home_leave_no_file(home, cli, client):
    assert cli("install", client).code == 0
    assert files_below(home)
    assert cli("uninstall", client).code == 0
    assert files_below(home) == {}


@pytest.mark.parametrize("client", SETTINGS)
def test_every_event_of_a_client_is_registered_with_its_command(home, cli, client):
    cli("install", client)
    hooks = json.loads((home / SETTINGS[client]).read_text())["hooks"]
    assert set(hooks) == {event.name for event in HOOK_EVENTS[client]}
    for event in HOOK_EVENTS[client]:
        (group,) = hooks[event.name]
        wanted = {"type": "command", "command": hook_command(client, event.name), "timeout": event.timeout}
        assert group["hooks"] == [wanted]
        assert group.get("matcher", "") == event.matcher


@pytest.mark.parametrize("client", SERVERS)
def test_the_server_is_registered_with_its_client(home, cli, client):
    cli("install", client)
    path, key = SERVERS[client]
    entry = json.loads((home / path).read_text())[key]["afterturn"]
    command = entry["command"] if isinstance(entry["command"], list) else [entry["command"], *entry["args"]]
    assert command[-3:] == ["mcp", "--client", client]
    assert "trust" not in entry


@pytest.mark.parametrize("client", ["gemini-cli", "qwen-code"])
def test_foreign_entries_and_comments_stay_and_uninstall_restores_the_bytes(home, cli, client):
    settings = write(home / SETTINGS[client], FOREIGN_TEXT)
    cli("install", client)
    installed = settings.read_text()
    assert installed.startswith('{\n    // chosen by hand\n    "theme": "dark",\n')
    assert '{"type": "command", "command": "notify-send done"}' in installed
    assert '"github": {"command": "gh-mcp"},\n' in installed
    assert settings.with_name(settings.name + BACKUP).read_text() == FOREIGN_TEXT
    assert cli("uninstall", client).code == 0
    assert files_below(home) == {SETTINGS[client]: FOREIGN_TEXT.encode()}


@pytest.mark.parametrize("client", ["claude-code", "gemini-cli", "qwen-code", "codex"])
def test_what_was_changed_since_stays_when_it_is_uninstalled(home, cli, client):
    settings = write(home / SETTINGS[client], json.dumps(FOREIGN, indent=2))
    cli("install", client)
    changed = json.loads(settings.read_text())
    changed["model"] = "large"
    changed["hooks"]["Stop"].append({"hooks": [{"type": "command", "command": "later"}]})
    settings.write_text(json.dumps(changed))
    assert cli("uninstall", client).code == 0
    expected = json.loads(json.dumps(FOREIGN)) | {"model": "large"}
    expected["hooks"]["Stop"].append({"hooks": [{"type": "command", "command": "later"}]})
    assert json.loads(settings.read_text()) == expected
    assert not settings.with_name(settings.name + BACKUP).exists()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_second_install_changes_nothing(home, cli, client):
    for path in SETTINGS.values():
        write(home / path, FOREIGN_TEXT)
    cli("install", client)
    first = files_below(home)
    answer = cli("install", client, "--json")
    assert files_below(home) == first
    assert not any(file["changed"] for file in answer.json["files"])


@pytest.mark.parametrize("client", SETTINGS)
def test_entries_of_another_environment_are_replaced(home, cli, client):
    settings = home / SETTINGS[client]
    cli("install", client)
    ours = settings.read_text()
    event = HOOK_EVENTS[client][0].name
    old = hook_command(client, event)
    settings.write_text(ours.replace(json.dumps(old)[1:-1], "/old/python -I -S /old/afterturn/hosts/hooks/client.py x"))
    assert "/old/python" in settings.read_text()
    states = cli("install", client, "--status", "--json").json
    assert states[0]["user"] == "outdated"
    cli("install", client)
    assert json.loads(settings.read_text()) == json.loads(ours)
    assert cli("install", client, "--status", "--json").json[0]["user"] == "installed"


@pytest.mark.parametrize("text", ['{"hooks": {', '{"hooks": []}', '["a list"]', "\udcff", '{"mcpServers": 5}'])
def test_a_file_that_cannot_be_understood_is_refused_and_stays(home, cli, text):
    settings = home / ".gemini/settings.json"
    settings.parent.mkdir()
    settings.write_bytes(text.encode("utf-8", "surrogateescape"))
    before = files_below(home)
    for command in ("install", "uninstall"):
        answer = cli(command, "gemini-cli")
        if text != '{"mcpServers": 5}' or command == "install":
            assert answer.code == 2
            assert str(settings) in answer.err
            assert len(answer.err.splitlines()) == 1
        assert files_below(home) == before


def test_no_file_is_written_if_another_one_of_the_client_cannot_be(home, cli):
    write(home / ".codex/config.toml", "this is = = not toml")
    before = files_below(home)
    assert cli("install", "codex").code == 2
    assert files_below(home) == before


def test_a_read_only_file_is_refused(home, cli):
    settings = write(home / ".claude/settings.json", "{}")
    settings.chmod(0o444)
    answer = cli("install", "claude-code")
    assert answer.code == 2
    assert "read-only" in answer.err
    assert files_below(home) == {".claude/settings.json": b"{}"}


@pytest.mark.parametrize(
    "text", ['{"hooks": {}}', '{"hooks": {"BeforeAgent": []}, "a": 1}', '{"mcpServers": {}, "a": {}}\n']
)
def test_empty_objects_that_were_there_are_used_and_restored(home, cli, text):
    file = home / ".gemini" / "settings.json"
    file.parent.mkdir()
    file.write_text(text)
    assert cli("install", "gemini-cli").code == 0
    assert "afterturn" in file.read_text()
    assert cli("uninstall", "gemini-cli").code == 0
    assert file.read_text() == text


def test_what_is_not_a_file_is_refused(home, cli):
    """Reading a pipe would never end."""
    (home / ".claude").mkdir()
    os.mkfifo(home / ".claude" / "settings.json")
    assert "is not a file" in cli("install", "claude-code").err


def test_files_of_another_user_are_refused(home, cli, monkeypatch):
    """Root would leave files that their owner cannot change."""
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert "belongs to another user" in cli("install", "gemini-cli").err
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("entry", [{"command": 5, "args": 7}, {"command": {"a": 1}}, {"args": "mcp"}])
def test_a_server_of_a_strange_form_is_left_alone(home, cli, entry):
    (home / ".gemini").mkdir()
    (home / ".gemini" / "settings.json").write_text(json.dumps({"mcpServers": {"afterturn": entry}}))
    assert cli("install", "gemini-cli").code == 0
    assert json.loads((home / ".gemini" / "settings.json").read_text())["mcpServers"] == {"afterturn": entry}


def test_a_server_is_started_without_the_modules_of_the_project(tmp_path, monkeypatch):
    """Clients start it in the project's folder, which may have a file of the same name as a module."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert server_command("codex")[1:] == ["-P", "-m", "afterturn", "mcp", "--client", "codex"]


def test_a_path_with_any_character_is_valid_toml():
    command = ['/home/a\U0001f600 "b"/afterturn', "mcp"]
    written = TomlServerPart(command).add("")
    assert tomllib.loads(written)["mcp_servers"]["afterturn"]["command"] == command[0]


def test_the_mode_and_the_symbolic_link_of_a_file_stay(home, cli):
    real = write(home / "dotfiles/claude.json", json.dumps(FOREIGN))
    real.chmod(0o640)
    link = home / ".claude/settings.json"
    link.parent.mkdir()
    link.symlink_to(real)
    cli("install", "claude-code")
    assert link.is_symlink()
    assert "client.py" in real.read_text()
    backup = link.with_name(link.name + BACKUP)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (real, backup)] == [0o640, 0o640]
    cli("uninstall", "claude-code")
    assert link.is_symlink()
    assert real.read_text() == json.dumps(FOREIGN)
    assert not backup.exists()


CONFIG_TOML = '# mine\nmodel = "gpt"\n\n[mcp_servers.github]\ncommand = "gh-mcp"\n'


@pytest.mark.parametrize("ending", ["", "\n", "\n\n\n", "\r\n"])
def test_codex_keeps_its_toml(home, cli, ending):
    text = CONFIG_TOML.rstrip("\n") + ending.replace("\r", "")
    config = write(home / ".codex/config.toml", text.replace("\n", "\r\n") if "\r" in ending else text)
    before = config.read_bytes()
    cli("install", "codex")
    assert config.read_bytes().startswith(before.rstrip())
    servers = tomllib.loads(config.read_bytes().decode())["mcp_servers"]
    assert servers["github"] == {"command": "gh-mcp"}
    assert servers["afterturn"]["args"][-3:] == ["mcp", "--client", "codex"]
    cli("uninstall", "codex")
    assert files_below(home) == {".codex/config.toml": before}


def test_codex_tables_below_the_server_go_with_it_and_later_ones_stay(home, cli):
    config = write(home / ".codex/config.toml", CONFIG_TOML)
    cli("install", "codex")
    with config.open("a") as file:
        file.write('\n[mcp_servers.afterturn.tools.add_memory]\nmode = "ask"\n\n[projects."/x"]\ntrust = true\n')
    cli("uninstall", "codex")
    assert tomllib.loads(config.read_text()) == tomllib.loads(CONFIG_TOML) | {"projects": {"/x": {"trust": True}}}


def test_codex_is_never_trusted_on_behalf_of_the_user(home, cli):
    answer = cli("install", "codex")
    assert "/hooks" in answer.out
    assert "trusted_hash" not in "".join(path.read_text() for path in home.rglob("*") if path.is_file())


def test_an_inline_table_of_servers_is_refused(home, cli):
    write(home / ".codex/config.toml", 'mcp_servers = { github = { command = "gh-mcp" } }\n')
    before = files_below(home)
    assert cli("install", "codex").code == 2
    assert files_below(home) == before


def test_somebody_elses_server_of_the_same_name_is_left_alone(home, cli):
    other = {"mcpServers": {"afterturn": {"httpUrl": "http://127.0.0.1:7433/mcp"}}}
    settings = write(home / ".qwen/settings.json", json.dumps(other, indent=2))
    answer = cli("install", "qwen-code")
    assert "left alone" in answer.out
    assert json.loads(settings.read_text())["mcpServers"] == other["mcpServers"]
    cli("uninstall", "qwen-code")
    assert json.loads(settings.read_text()) == other


@pytest.mark.parametrize("client", CLIENTS)
def test_project_writes_below_the_repository_and_not_into_the_home(home, cli, tmp_path, monkeypatch, client):
    root = tmp_path / "repository"
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (root / ".git" / "objects").mkdir()
    (root / ".git" / "refs").mkdir()
    below = root / "src"
    below.mkdir()
    monkeypatch.chdir(below)
    before = files_below(root)
    assert cli("install", client, "--project").code == 0
    if client == "codex":
        assert "`afterturn uninstall codex --project` removes it." in (root / ".codex/config.toml").read_text()
    assert set(files_below(root)) - set(before) == PROJECT_FILES[client]
    assert {path for path in files_below(home) if not path.startswith(".local/state/")} == set()
    assert cli("uninstall", client, "--project").code == 0
    assert files_below(root) == before


def test_dry_run_prints_the_difference_and_writes_nothing(home, cli):
    settings = write(home / ".gemini/settings.json", FOREIGN_TEXT)
    answer = cli("install", "gemini-cli", "--dry-run")
    assert f"+++ {settings}" in answer.out
    assert "+        " in answer.out
    assert files_below(home) == {".gemini/settings.json": FOREIGN_TEXT.encode()}


def test_the_list_shows_which_clients_are_there_and_installed(home, cli, monkeypatch):
    monkeypatch.setenv("PATH", str(home / "bin"))
    program = write(home / "bin/codex", "#!/bin/sh\n")
    program.chmod(0o755)
    cli("install", "gemini-cli")
    write(home / ".qwen/settings.json", "{")
    answer = cli("install", "--json")
    found = {one["client"]: (one["found"], one["user"]) for one in answer.json}
    assert found == {
        "claude-code": (False, "not installed"),
        "gemini-cli": (True, "installed"),
        "qwen-code": (True, "unreadable"),
        "codex": (True, "not installed"),
        "opencode": (False, "not installed"),
        "copilot": (False, "not installed"),
    }
    assert "gemini-cli" in cli("install").out


def test_a_file_that_another_program_changes_meanwhile_is_not_overwritten(home):
    settings = write(home / ".gemini/settings.json", "{}")
    (change,) = map(plan_install, CLIENTS["gemini-cli"].targets(None))
    settings.write_text('{"theme": "dark"}')
    with pytest.raises(Exception, match="changed by another program"):
        write_change(change)
    assert settings.read_text() == '{"theme": "dark"}'


def test_no_temporary_file_stays_if_a_file_cannot_be_replaced(home, cli):
    (home / ".gemini/settings.json").mkdir(parents=True)
    assert cli("install", "gemini-cli").code == 2
    assert os.listdir(home / ".gemini") == ["settings.json"]


def test_folders_that_variables_name_are_used(home, cli, monkeypatch):
    monkeypatch.setenv("CODEX_HOME", str(home / "elsewhere"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(home / "claude"))
    cli("install", "codex")
    cli("install", "claude-code")
    assert set(files_below(home)) == {
        "elsewhere/hooks.json",
        "elsewhere/config.toml",
        "claude/settings.json",
        "claude/.claude.json",
    }


def test_opencode_uses_the_file_that_is_there(home, cli):
    config = write(home / ".config/opencode/opencode.jsonc", '{\n  // mine\n  "theme": "x",\n}\n')
    cli("install", "opencode")
    assert '"afterturn"' in config.read_text()
    assert not (home / ".config/opencode/opencode.json").exists()
    plugin = (home / ".config/opencode/plugin/afterturn.js").read_text()
    assert "@COMMAND@" not in plugin


@pytest.fixture
def project(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def links_of(client: str) -> list[tuple[str, str]]:
    """Every place in a project where a link can lead a write of `install` away."""
    files = sorted(PROJECT_FILES[client])
    folders = {str(folder) for file in files for folder in Path(file).parents} - {"."}
    return [(client, path) for file in files for path in (file, file + BACKUP)] + [(client, one) for one in folders]


@pytest.mark.parametrize("is_dangling", [False, True])
@pytest.mark.parametrize("client, place", sorted(pair for client in CLIENTS for pair in links_of(client)))
def test_a_link_in_a_project_is_refused_and_nothing_is_written(
    home, cli, project, tmp_path, client, place, *, is_dangling
):
    """P1: a repository may bring links to any file of its user."""
    away = tmp_path / "away"
    if not is_dangling and any(name.startswith(f"{place}/") for name in PROJECT_FILES[client]):
        away.mkdir()
    elif not is_dangling:
        away.write_text("")
    (project / place).parent.mkdir(parents=True, exist_ok=True)
    (project / place).symlink_to(away)
    if place.endswith(BACKUP):
        # A copy is made of a file that is there.
        content = {".json": "{}\n", ".toml": "# mine\n", ".js": ""}
        original = project / place.removesuffix(BACKUP)
        original.write_text(content[original.suffix] if "afterturn" not in original.name else "")
    before = tree(tmp_path)
    for command in ("install", "uninstall"):
        answer = cli(command, client, "--project")
        assert answer.code == 2
        assert "symbolic link" in answer.err
        assert "Nothing was changed" in answer.err
        assert tree(tmp_path) == before


def tree(folder: Path) -> dict[str, object]:
    """All names below a folder, with what is in files and where links lead."""
    return {
        str(path.relative_to(folder)): path.readlink()
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in folder.rglob("*")
    }


def test_a_linked_file_of_a_project_is_shown_as_unreadable(home, cli, project, tmp_path):
    """P1"""
    write(tmp_path / "away.json", "{}")
    (project / ".qwen").symlink_to(tmp_path)
    answer = cli("install", "qwen-code", "--status")
    assert "unreadable" in answer.out
    assert "symbolic link" in answer.err


def test_a_link_that_appears_after_the_plan_is_refused(home, project, tmp_path):
    """P1"""
    (change,) = map(plan_install, CLIENTS["qwen-code"].targets(project))
    (tmp_path / "away").mkdir()
    (project / ".qwen").symlink_to(tmp_path / "away")
    with pytest.raises(InvalidFile, match="symbolic link"):
        write_change(change)
    assert list((tmp_path / "away").iterdir()) == []


def test_a_link_in_place_of_the_copy_of_a_users_file_is_not_followed(home, cli):
    """P1: the settings themselves may be linked, the copy never is."""
    settings = write(home / ".qwen/settings.json", '{"theme": "dark"}')
    victim = write(home / ".bashrc", "# mine\n")
    copy = settings.with_name(settings.name + BACKUP)
    copy.symlink_to(victim)
    assert cli("install", "qwen-code").code == 0
    assert victim.read_text() == "# mine\n"
    assert not copy.is_symlink()
    assert copy.read_text() == '{"theme": "dark"}'
    copy.unlink()
    copy.symlink_to(victim)
    assert cli("uninstall", "qwen-code").code == 0
    assert victim.read_text() == "# mine\n"
    assert files_below(home) == {".bashrc": b"# mine\n", ".qwen/settings.json": b'{"theme": "dark"}'}


def test_a_users_link_to_a_missing_file_is_as_before_after_uninstall(home, cli):
    (home / ".qwen").mkdir()
    (home / ".qwen/settings.json").symlink_to(home / "dotfiles/qwen.json")
    before = tree(home)
    assert cli("install", "qwen-code").code == 0
    assert "client.py" in (home / "dotfiles/qwen.json").read_text()
    assert cli("uninstall", "qwen-code").code == 0
    assert tree(home) == before


def test_another_name_of_a_file_keeps_its_content(home, cli, project):
    """P1: a hard link is not written through, because the file is replaced."""
    other = write(home / "other", "{}\n")
    (project / ".mcp.json").hardlink_to(other)
    assert cli("install", "claude-code", "--project").code == 0
    assert other.read_text() == "{}\n"


@pytest.mark.parametrize("in_project", [False, True])
@pytest.mark.parametrize("client", CLIENTS)
def test_uninstall_leaves_empty_files_and_folders_that_were_there_and_no_others(
    home, cli, project, client, *, in_project
):
    options = ["--project"] if in_project else []
    root = project if in_project else home
    assert cli("install", client, *options).code == 0
    installed = [Path(name) for name in files_below(root)]
    assert cli("uninstall", client, *options).code == 0
    assert tree(root) == {}

    for name in installed:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
    before = tree(root)
    cli("install", client, *options)
    cli("uninstall", client, *options)
    assert tree(root) == before

    for name in installed:
        (root / name).touch()
    before = tree(root)
    cli("install", client, *options)
    cli("install", client, *options)
    cli("uninstall", client, *options)
    assert tree(root) == before


def test_a_created_folder_stays_while_something_is_in_it(home, cli):
    cli("install", "codex")
    write(home / ".codex/mine", "")
    cli("uninstall", "codex")
    assert files_below(home) == {".codex/mine": b""}
    (home / ".codex/mine").unlink()
    cli("uninstall", "codex")
    assert list(home.iterdir()) == []

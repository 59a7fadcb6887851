"""The process around a command: help, exit codes, one-line errors, pipes, Ctrl-C, terminals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.hosts.conftest import CommandLine

from afterturn.errors import AfterturnError, DeadlineExceeded
from afterturn.hosts.cli.app import SECTIONS
from afterturn.hosts.cli.process import report

COMMANDS = [name for names in SECTIONS.values() for name in names]

HELP_OF_EVERYTHING = """
import sys
from afterturn.hosts.cli.app import run
for arguments in [["--version"], [], ["--help"]] + [[name, "--help"] for name in sys.argv[1:]]:
    assert run(arguments) == 0, arguments
print("heavy:", [name for name in ("numpy", "apsw", "tokenizers", "rich", "asyncio") if name in sys.modules])
"""


def test_help_and_version_load_neither_numpy_nor_apsw() -> None:
    child = subprocess.run(
        [sys.executable, "-c", HELP_OF_EVERYTHING, *COMMANDS, "config"], capture_output=True, text=True, check=True
    )
    assert child.stdout.splitlines()[-1] == "heavy: []"


@pytest.mark.parametrize("name", [*COMMANDS, "config show", "config schema", "config path"])
def test_every_command_explains_itself_with_examples(cli: CommandLine, name: str) -> None:
    answer = cli(*name.split(), "--help")
    assert answer.code == 0
    assert f"Usage: afterturn {name}" in answer.out
    assert "\nExamples:\n  $ " in answer.out


def test_the_version_is_one_line(cli: CommandLine) -> None:
    answer = cli("--version")
    assert (answer.code, answer.out.split()[0], answer.out.count("\n")) == (0, "afterturn", 1)


@pytest.mark.parametrize(
    "arguments, complaint",
    [
        (["nonsense"], "No such command"),
        (["add"], "Missing argument"),
        (["add", "a", "b"], "unexpected extra argument"),
        (["list", "--limit", "0"], "--limit"),
        (["list", "--nonsense"], "--nonsense"),
        (["list", "--status", "asleep"], "asleep"),
        (["search", "tea", "--as-of", "soon"], "is not a time"),
        (["add", "tea", "--meta", "text"], "is not KEY=VALUE"),
        (["add", "tea", "--meta", "=text"], "is not KEY=VALUE"),
        (["import", "nowhere.jsonl"], "cannot be read"),
        (["import", "."], "cannot be read"),
        (["forget"], "Say what to forget"),
        (["forget", "0k3v8r2c", "--everything"], "Say what to forget"),
        (["restore", "nowhere.db", "--yes"], "There is no file"),
        (["show", "no id!"], "not a valid memory id"),
        (["--space", "ada", "list"], "not a valid space name"),
        (["--tenant", " ", "add", "tea"], "not a valid tenant"),
        (["--store", "", "list"], "is not a path"),
    ],
)
def test_bad_input_gets_exit_code_2_and_one_line(cli: CommandLine, arguments: list[str], complaint: str) -> None:
    cli.store.touch()
    answer = cli(*arguments)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert answer.err.startswith("afterturn: ")
    assert complaint in answer.err


@pytest.mark.parametrize("arguments", [["nonsense"], ["list", "--limit", "0"], ["show", "no id!"]])
def test_with_json_errors_are_json_too(cli: CommandLine, arguments: list[str]) -> None:
    cli.store.touch()
    answer = cli(*arguments, "--json")
    error = json.loads(answer.err)["error"]
    assert (answer.code, answer.out, sorted(error)) == (2, "", ["message", "type"])


def test_text_that_looks_like_an_option_does_not_change_the_output(cli: CommandLine) -> None:
    answer = cli("show", "--", "--json")
    assert (answer.code, answer.err.startswith("afterturn: ")) == (2, True)


def test_without_a_space_a_command_uses_the_space_of_the_login(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOGNAME", "ada")
    cli.add("Ada prefers oolong tea")
    assert "oolong" in cli("list", space=None).out
    monkeypatch.setenv("LOGNAME", "eve")
    assert "oolong" not in cli("list", space=None).out


@pytest.mark.parametrize("name", ["list", "stats", "trace", "history", "export"])
def test_looking_into_a_store_that_is_not_there_makes_none(cli: CommandLine, name: str) -> None:
    answer = cli(name)
    assert (answer.code, answer.err.count("\n"), cli.store.exists()) == (2, 1, False)


def test_a_store_may_be_named_from_home_or_as_a_url(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(cli.folder))
    cli("--store", "~/mine.db", "add", "tea")
    assert "tea" in cli("--store", "~/mine.db", "list").out
    assert "tea" in cli("--store", f"sqlite:///{cli.folder}/mine.db", "list").out


def test_a_folder_is_not_a_store(cli: CommandLine) -> None:
    cli.store.mkdir()
    answer = cli("add", "tea")
    assert (answer.code, answer.err.count("\n")) == (2, 1)


def test_a_file_of_another_kind_is_refused_and_left_as_it_is(cli: CommandLine) -> None:
    cli.store.write_text("a shopping list\n" * 1000)
    answer = cli("add", "tea")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert cli.store.read_text() == "a shopping list\n" * 1000


def test_an_unknown_kind_of_store_is_bad_input(cli: CommandLine) -> None:
    answer = cli("--store", "carrier-pigeon://coop", "add", "tea")
    assert (answer.code, answer.err.count("\n")) == (2, 1)


def test_a_bad_setting_in_the_environment_is_named(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERTURN_GRACE", "soon")
    answer = cli("config", "show")
    assert (answer.code, "AFTERTURN_GRACE" in answer.err) == (2, True)


def test_an_unexpected_error_is_one_line_and_exit_code_70(capsys: pytest.CaptureFixture[str]) -> None:
    code = report(ZeroDivisionError("oh"), as_json=False, debug=False)
    shown = capsys.readouterr().err
    assert (code, shown.count("\n")) == (70, 1)
    assert "Unexpected ZeroDivisionError: oh." in shown
    assert "--debug" in shown


def test_with_debug_an_unexpected_error_shows_its_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise ZeroDivisionError("oh")
    except ZeroDivisionError as error:
        report(error, as_json=False, debug=True)
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize("error", [AfterturnError("one\ntwo"), DeadlineExceeded("one\ntwo")])
def test_a_message_of_several_lines_becomes_one(error: AfterturnError, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(error, as_json=False, debug=False) == 2
    assert capsys.readouterr().err == "afterturn: one two\n"


def test_a_pipe_that_nobody_reads_ends_the_command_quietly(cli: CommandLine) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with cli.child("config", "schema", stdout=writing) as child:
        os.close(writing)
        _, shown = child.communicate()
    assert (child.returncode, shown) == (141, b"")


def test_ctrl_c_ends_a_command_with_one_line_and_130(cli: CommandLine) -> None:
    fifo = cli.folder / "endless.jsonl"
    os.mkfifo(fifo)
    with cli.child("import", str(fifo)) as child, fifo.open("wb"):  # waits until the child reads
        child.send_signal(signal.SIGINT)
        out, shown = child.communicate()
    assert (child.returncode, out, shown) == (130, b"", b"afterturn: Interrupted.\n")


def test_colours_are_for_terminals_and_no_color_is_respected(cli: CommandLine) -> None:
    assert "\x1b[" in cli.on_a_terminal("config", "show")[1]
    assert "\x1b[" not in cli.on_a_terminal("config", "show", environment={"NO_COLOR": "1"})[1]
    assert "\x1b[" not in cli("config", "show").out


def test_a_line_is_cut_at_a_terminals_edge_and_whole_in_a_pipe(cli: CommandLine) -> None:
    long = "x" * 300
    on_terminal = cli.on_a_terminal("config", "show", environment={"AFTERTURN_TENANT": long})[1]
    assert long not in on_terminal
    assert long in cli("--tenant", long, "config", "show").out


def test_a_command_that_is_misspelt_is_guessed(cli: CommandLine) -> None:
    assert "Did you mean 'search'? See `afterturn --help`.\n" in cli("serch", "tea").err


def test_an_option_that_is_misspelt_is_guessed(cli: CommandLine) -> None:
    assert "'--space'?) See `afterturn list --help`.\n" in cli("list", "--sicne", "3").err


def test_a_misspelt_variable_is_a_warning_and_the_command_runs(
    cli: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFTERTURN_SPAEC", "user:bob")
    answer = cli("add", "tea")
    warning = "the environment variable AFTERTURN_SPAEC is not a setting. Did you mean AFTERTURN_SPACE?"
    assert (answer.code, answer.err) == (0, f"afterturn: warning: {warning}\n")


def test_with_json_the_warning_of_a_variable_is_json_too(cli: CommandLine) -> None:
    with cli.child("show", "no id!", "--json", environment={"AFTERTURN_GRAZE": "1"}) as child:
        _, shown = child.communicate()
    assert [next(iter(json.loads(line))) for line in shown.splitlines()] == ["warning", "error"]


def test_a_variable_with_a_token_is_not_reported(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERTURN_TOKEN", "secret")
    assert cli("add", "tea").err == ""


@pytest.mark.parametrize("path", ["C:\\Users\\ada\\memory.db", "c:/Users/ada/memory.db"])
def test_a_path_of_windows_is_refused_with_the_path_to_use(cli: CommandLine, path: str) -> None:
    answer = cli("add", "tea", "--store", path)
    assert answer.code == 2
    assert answer.err == (
        f"afterturn: {path} is a path of Windows, and this is another system. In WSL, write "
        "/mnt/c/Users/ada/memory.db.\n"
    )


def test_a_path_with_backslashes_is_refused_unless_there_is_such_a_file(cli: CommandLine) -> None:
    path = f"{cli.store.parent}\\notes.db"
    answer = cli("add", "tea", "--store", path)
    written = path.replace("\\", "/")
    assert (answer.code, answer.err) == (
        2,
        f"afterturn: {path} is a path of Windows, and this is another system. In WSL, write {written}.\n",
    )
    assert cli("add", "tea").code == 0
    cli.store.rename(path)
    assert "tea" in cli("list", "--store", path).out


def test_a_full_disk_behind_stdout_is_one_line(cli: CommandLine) -> None:
    with open("/dev/full", "wb") as full, cli.child("config", "schema", stdout=full) as child:
        _, shown = child.communicate()
    assert (child.returncode, shown.count(b"\n")) == (2, 1)
    assert b"No space left on device" in shown


def test_closed_standard_streams_do_no_harm(cli: CommandLine) -> None:
    script = f"{sys.executable} -m afterturn --store {cli.store} --space user:ada add tea <&- >&- 2>&-"
    assert subprocess.run(script, shell=True, check=False).returncode == 0
    assert "tea" in cli("list").out

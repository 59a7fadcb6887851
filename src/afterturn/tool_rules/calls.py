"""Reads a tool call: the commands that it runs, the paths that it writes and reads, its hosts, and its other words.

Understands the shell tools and file tools of common agents by the names of their arguments, and any other tool by the
words of its name. No rule concerns a call that only looks, plans or searches.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

from afterturn.text import regex

COMMAND_CHARS_MAX = 20_000
_COMMANDS_MAX = 50
_VALUE_CHARS_MAX = 200
_TEXT_CHARS_MAX = 200_000
_NESTED_MAX = 3

_COMMAND_KEYS = ("command", "cmd", "script", "commands")
_PATH_KEYS = "file_path path filepath filename file notebook_path target_file absolute_path uri".split()
_TEXT_KEYS = ("new_string", "content", "new_str", "text", "new_source", "file_text", "code_edit", "contents", "edits")
# Arguments with text for people. A rule is not about these words.
_PROSE_KEYS = frozenset((*_TEXT_KEYS, "prompt", "body", "description", "title", "message"))
_SHELL_WORDS = frozenset("bash sh shell zsh terminal exec execute run powershell cmd command process".split())
_WRITE_WORDS = frozenset(
    "edit write create replace insert patch update multiedit save append delete remove move rename "
    "overwrite put".split()
)
_READ_WORDS = frozenset("read view open cat show get load".split())
_LOOK_WORDS = frozenset(
    "grep glob search list ls find todo todos task plan think memory memories ask lookup query_docs skill agent".split()
)
_PATCHED = regex(r"^\*\*\* (?:Update|Add|Delete) File: (.+)$|^\+\+\+ (?:b/)?(\S+)", re.MULTILINE)
_URL = regex(r"https?://[^\s'\"<>)]+")
_CAMEL = regex(r"(?<=[a-z0-9])(?=[A-Z])")
_SEPARATORS = frozenset((";", "&&", "||", "|", "|&", "&", "\n", "(", ")", "{", "}", ";;"))
_REDIRECTS = frozenset((">", ">>", ">|", "&>", "&>>"))
_ASSIGNMENT = regex(r"[A-Za-z_][A-Za-z0-9_]*=")
# Programs that run the command in their arguments. Their own arguments before it are skipped.
_WRAPPERS = frozenset("sudo doas env time nohup nice xargs exec command stdbuf timeout npx bunx pnpx busybox".split())
# Their options that take the next word.
_VALUE_OPTIONS = {
    "sudo": frozenset("-u -g -h -p -C -D -R -T -U --user --group --host --prompt --chdir".split()),
    "doas": frozenset("-u -C".split()),
    "env": frozenset("-u -C --unset --chdir".split()),
    "nice": frozenset(("-n",)),
    "timeout": frozenset("-s -k".split()),
    "xargs": frozenset("-a -d -E -I -L -n -P -s".split()),
}
_SHELLS = frozenset("sh bash zsh dash ksh fish".split())
_ALIASES = {
    "npx": "npm",
    "pnpx": "pnpm",
    "bunx": "bun",
    "pip3": "pip",
    "python3": "python",
    "docker-compose": "docker",
    "nix-env": "nix",
}
_KEYWORDS = frozenset("if then else elif fi for while until do done case esac in ! [[ [ test function return".split())
_DELETERS = frozenset("rm unlink shred del erase remove-item".split())
_IN_PLACE = frozenset("sed perl gsed".split())
_WRITERS = frozenset("tee touch mv cp truncate install ln".split())
_QUERY_PROGRAMS = frozenset("psql mysql mariadb sqlite3 sqlcmd mongosh mongo clickhouse-client duckdb".split())


class ShellCommand(NamedTuple):
    """One simple command. `programs` are its program and those that it starts, such as `pip` of `python -m pip`.

    `words` are its arguments that are not flags, in order, then the values of flags. `into` is the program that it is
    piped into.
    """

    programs: tuple[str, ...]
    words: tuple[str, ...]
    flags: frozenset[str]
    into: str = ""

    @property
    def program(self) -> str:
        return self.programs[-1] if self.programs else ""


@dataclass(slots=True)
class IntendedCall:
    """Effects of a call. `words` are those of its name and `values` its short arguments, for tools that are neither a
    shell nor for files. `text` is what it writes."""

    name: str
    commands: list[ShellCommand] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    deletes: list[str] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    words: tuple[str, ...] = ()
    values: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    text: str = ""


def read_call(name: str, arguments: object) -> IntendedCall:
    """Never raises for any arguments. A call that only looks has nothing in it."""
    call = IntendedCall(name)
    # `mcp__github__create_pull_request` has the words mcp, github, create, pull, request.
    words = tuple(part.lower() for part in re.split(r"[^A-Za-z0-9]+", _CAMEL.sub("_", name[:_VALUE_CHARS_MAX])) if part)
    given = arguments if isinstance(arguments, Mapping) else {"command": arguments}
    command = next((given[key] for key in _COMMAND_KEYS if key in given), None)
    if command is not None and (_SHELL_WORDS.intersection(words) or not any(_paths(given))):
        _read_shell(call, command, _NESTED_MAX)
        return call
    if _LOOK_WORDS.intersection(words):
        return call
    paths = list(_paths(given))
    if paths and _WRITE_WORDS.intersection(words):
        call.writes += paths
        call.text = "\n".join(_texts(given))[:_TEXT_CHARS_MAX]
        if {"delete", "remove"}.intersection(words):
            call.deletes += paths
    elif paths and _READ_WORDS.intersection(words) and not name.startswith("mcp"):
        call.reads += paths
        return call
    for key, value in list(given.items())[:_COMMANDS_MAX]:
        if isinstance(value, str) and str(key) in ("url", "uri", "link", "address"):
            call.hosts += _hosts(value)
        elif isinstance(value, str) and str(key) in ("sql", "query", "statement"):
            call.queries.append(value[:COMMAND_CHARS_MAX])
        elif isinstance(value, str | int) and not isinstance(value, bool) and str(key) not in _PROSE_KEYS:
            call.values += [str(value)] if len(str(value)) <= _VALUE_CHARS_MAX else []
    call.words = words
    return call


def _paths(given: Mapping[object, object]) -> Iterator[str]:
    for key in _PATH_KEYS:
        value = given.get(key)
        if isinstance(value, str) and value and "://" not in value:
            yield value
    for value in given.values():
        if isinstance(value, str) and ("*** " in value or "+++ " in value):
            for match in _PATCHED.finditer(value[:_TEXT_CHARS_MAX]):
                yield (match.group(1) or match.group(2)).strip()


def _texts(given: Mapping[object, object]) -> Iterator[str]:
    for key in _TEXT_KEYS:
        value = given.get(key)
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from (text for one in value if isinstance(one, Mapping) for text in _texts(one))
    yield from (value for key, value in given.items() if isinstance(value, str) and key in ("patch", "input", "diff"))


def _hosts(text: str) -> list[str]:
    found = []
    for url in _URL.findall(text[:COMMAND_CHARS_MAX]):
        try:
            found.append((urlsplit(url).hostname or "").lower())
        except ValueError:
            continue
    return [host for host in found if host]


# Shell commands.


def _read_shell(call: IntendedCall, command: object, nested: int) -> None:
    if isinstance(command, list | tuple) and all(isinstance(one, str) for one in command):
        tokens = [one[:COMMAND_CHARS_MAX] for one in command[:_COMMANDS_MAX]]
        _read_command(call, tokens, "", nested)
    elif isinstance(command, str):
        for tokens, into in _simple_commands(_split(command[:COMMAND_CHARS_MAX])):
            if len(call.commands) < _COMMANDS_MAX:
                _read_command(call, tokens, into, nested)


def _split(command: str) -> list[str]:
    lexer = shlex.shlex(command.replace("\\\n", " ").replace("\n", " ; "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:
        # An open quote. The words up to it are still commands.
        return command.split()


def _simple_commands(tokens: Sequence[str]) -> Iterator[tuple[list[str], str]]:
    """Each command with the program that it is piped into."""
    commands: list[tuple[list[str], bool]] = []
    current: list[str] = []
    for token in [*tokens, ";"]:
        if token in _SEPARATORS or (token and set(token) <= set(";|&()")):
            if current:
                commands.append((current, token.startswith("|") and token != "||"))
            current = []
        else:
            current.append(token)
    for at, (one, is_piped) in enumerate(commands):
        following = commands[at + 1][0] if is_piped and at + 1 < len(commands) else []
        yield one, _base(following[0]) if following else ""


def _read_command(call: IntendedCall, tokens: list[str], into: str, nested: int) -> None:
    while tokens and (tokens[0] in _KEYWORDS or _ASSIGNMENT.match(tokens[0])):
        tokens = tokens[1:]
    if not tokens:
        return
    programs, rest = _programs(tokens)
    if programs[-1] in _SHELLS and nested:
        script = next((rest[at + 1] for at, one in enumerate(rest[:-1]) if re.fullmatch(r"-[a-z]*c", one)), None)
        if script is not None:
            if "sudo" in programs:
                call.commands.append(ShellCommand(("sudo",), (), frozenset()))
            _read_shell(call, script, nested - 1)
            return
    if programs[-1] == "eval" and nested:
        _read_shell(call, " ".join(rest), nested - 1)
        return
    rest, written = _redirected(rest)
    given = [one.partition("=")[2] for one in rest if one.startswith("--") and "=" in one]
    words = (*(one for one in rest if not one.startswith("-")), *given)
    flags = frozenset(one.partition("=")[0] for one in rest if one.startswith("-"))
    command = ShellCommand(programs, words, flags, into)
    call.commands.append(command)
    call.writes += written
    call.hosts += [host for one in words for host in _hosts(one)]
    _read_files(call, command)
    if _QUERY_PROGRAMS.intersection(programs):
        call.queries += [one for one in words if " " in one]


def _programs(tokens: list[str]) -> tuple[tuple[str, ...], list[str]]:
    """The program, and those that it starts, with the arguments of the last one."""
    programs, rest = [_base(tokens[0])], tokens[1:]
    while programs[-1] in _WRAPPERS:
        skipped = 0
        while skipped < len(rest) and (rest[skipped].startswith("-") or _ASSIGNMENT.match(rest[skipped])):
            skipped += 2 if rest[skipped] in _VALUE_OPTIONS.get(programs[-1], ()) else 1
        if programs[-1] == "timeout" and skipped < len(rest):
            skipped += 1
        if skipped >= len(rest):
            break
        programs.append(_base(rest[skipped]))
        rest = rest[skipped + 1 :]
    if programs[-1].startswith("python") and "-m" in rest[:-1]:
        at = rest.index("-m")
        programs.append(rest[at + 1])
        rest = rest[at + 2 :]
    return tuple(programs), rest


def _base(program: str) -> str:
    name = program.rsplit("/", 1)[-1].lower().removesuffix(".exe").removesuffix(".cmd")
    return re.sub(r"^python[\d.]+$", "python", name)


def _redirected(rest: Sequence[str]) -> tuple[list[str], list[str]]:
    kept, written, words = [], [], iter(rest)
    for one in words:
        target = next(words, None) if one in _REDIRECTS else None
        if target is None:
            kept.append(one)
        else:
            written.append(target)
    return kept, written


def _read_files(call: IntendedCall, command: ShellCommand) -> None:
    program, words, flags = command.program, command.words, command.flags
    deleted = deleted_files(command)
    if deleted is not None:
        call.deletes += deleted
        call.writes += deleted if program in _DELETERS else ()
    elif program in _IN_PLACE and any(flag.startswith("-i") or flag == "--in-place" for flag in flags):
        call.writes += words[1:]
    elif program in _WRITERS:
        call.writes += words
    elif program not in ("echo", "printf", "git", "ls", "cd", "mkdir"):
        call.reads += words


def deleted_files(command: ShellCommand) -> Sequence[str] | None:
    """None for a command that deletes no files."""
    program, words, flags = command.program, command.words, command.flags
    if program in _DELETERS:
        return words
    if program == "git" and words[:1] in (("rm",), ("clean",)):
        return words[1:] if words[0] == "rm" else (".",)
    is_find = program == "find" and ("-delete" in flags or ("-exec" in flags and "rm" in words))
    return words[:1] if is_find else None


def all_programs(command: ShellCommand) -> frozenset[str]:
    """With the programs that a program belongs to: `npx` is a part of npm."""
    return frozenset((*command.programs, *(_ALIASES[one] for one in command.programs if one in _ALIASES)))

"""Finds out whether a rule in words ("never push to main", "we use pnpm") concerns a tool call. Pure and deterministic.

A rule becomes triggers: what a call must do, and with what. A trigger without a rare word (a program, a path, a flag, a
branch, a host) needs an action that is rare itself, such as a push. So a general word never decides.
"""

from __future__ import annotations

import fnmatch
import functools
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from afterturn.text import regex
from afterturn.tool_rules.calls import IntendedCall, ShellCommand, all_programs, deleted_files


class _ToolTables(TypedDict):
    """`triggers.json`. Strings are words separated by spaces; the key "why" says what some of the tables are for."""

    words: dict[str, str]
    families: list[str]
    actions: dict[str, str]
    resources: dict[str, str]
    environments: dict[str, str]
    resource_programs: dict[str, str]
    resource_words: dict[str, str]
    languages: dict[str, str]
    instead: list[str]
    test_commands: list[str]


_TABLES: _ToolTables = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
_WORDS = {name: frozenset(words.split()) for name, words in _TABLES["words"].items()}
_FAMILIES = [frozenset(names.split()) for names in _TABLES["families"]]
_PROGRAMS = _WORDS["other_programs"].union(*_FAMILIES)
_ACTIONS = {form: action for action, forms in _TABLES["actions"].items() for form in forms.split()}
_RESOURCES = {form: noun for noun, forms in _TABLES["resources"].items() for form in forms.split()}
_RESOURCE_PROGRAMS = {noun: frozenset(names.split()) for noun, names in _TABLES["resource_programs"].items()}
_RESOURCE_WORDS = {noun: frozenset(words.split()) for noun, words in _TABLES["resource_words"].items()}

RULE_CHARS_MAX = 600
_SUBCOMMANDS_MAX = 3

Pattern = tuple[str, ...]


class Trigger(NamedTuple):
    """The conditions under which a rule concerns a call: one of each group that is not empty, all flags and resources.

    `commands` are programs with the words that follow. `rivals`: commands that only ask, such as `npm view`, do not
    count. `code` must be in the written text. `into_shell`: the command is piped into a shell.
    """

    actions: frozenset[str] = frozenset()
    commands: tuple[Pattern, ...] = ()
    flags: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    environments: tuple[str, ...] = ()
    literals: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    extensions: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    rivals: bool = False
    into_shell: bool = False

    @property
    def has_object(self) -> bool:
        groups = (self.commands, self.flags, self.paths, self.hosts, self.places, self.environments, self.literals)
        return any(groups) or bool(self.extensions) or self.into_shell

    @property
    def is_usable(self) -> bool:
        return (
            self.has_object
            or bool(self.actions & _WORDS["specific"])
            or bool(self.resources and self.actions - {"run", "edit"})
        )

    def describe(self) -> str:
        """The words that decided, for the trace."""
        named = [" ".join(one) for one in self.commands] if not self.rivals else ["another tool"]
        parts = (
            sorted(self.actions - {"run"}),
            named,
            sorted(self.flags),
            self.paths,
            self.hosts,
            self.places,
            self.environments,
            self.literals,
            self.resources,
            self.extensions,
            self.code,
        )
        return ", ".join(part for group in parts for part in group).replace("_", " ")


def find_trigger(text: str, call: IntendedCall) -> Trigger | None:
    """The trigger of the rule `text` that the call meets, None if the rule does not concern it."""
    return next((trigger for trigger in read_rule(text[:RULE_CHARS_MAX]) if meets(call, trigger)), None)


# Reading a rule.

_SAME = (
    (regex(r"[’‘`´](?=[a-z]{1,2}\b)"), "'"),
    (
        regex(r"\b(?:do|must|may|should|shall|can|are|is|may)\s+not\b(?!\s+(?:required|needed|necessary))"),
        "don't",
    ),
    (regex(r"\bforce[- ]push"), "force_push"),
    (regex(r"\b(pull|merge)[- ]request"), r"\1_request"),
    (regex(r"\bleave\s+(\S+)\s+(?:folder\s+|files?\s+)?alone\b"), r"don't edit \1"),
    (regex(r"(\S+)\s+(?:is|are)\s+off[- ]limits\b"), r"don't edit \1"),
    (regex(r"\bkeep (?:your )?hands off\b"), "don't edit"),
    (regex(r"^\s*no (?=(?:force_push|push|commit|merg|deploy|rebas)\w*)"), "don't "),
)
_CLAUSE = regex(r"[;!?]+|,\s|\.\s|\.$|\s[-–—]\s|\bbut\b|\band\s+(?=never\b|don't\b|always\b)")
_CUT = regex(
    r"\b(?:without|unless|by hand|manually|yourself|that|which|because|since|until|except|if|when|before|after)\b"
)
_BEFORE = regex(r"\b(?:before|prior to|bevor|avant de|avant|antes de)\b(.*)")
_WHEN = regex(r"^\s*(?:when|whenever|after|while|if)\s+(?:you(?:'re)?\s+|we\s+|i\s+)?(\S+ing\b.*|(?:you|we)\s+.*)")
_TOKEN = regex(r"`[^`]+`|[^\s,;\"“”()\[\]]+(?:\(\))?")
_OTHER_LANGUAGES = frozenset("nie niemals jamais nunca nicht mai nooit aldrig".split())
_PRONOUNS = frozenset("them it those these".split())
_FOLDERS = frozenset("folder folders directory directories".split())
_HOST = regex(r"(?:[a-z0-9-]+\.)+(?:com|org|net|io|dev|ai|app|co|de|fr|uk|eu|ch|edu|gov|info|local|internal|xyz)")
_NAME = regex(r"[a-z][a-z0-9_.+-]*")
_SUBCOMMAND = regex(r"[a-z0-9][a-z0-9_:.-]*")
_SCRIPT = regex(r"(?:\./)?[a-z0-9]+[a-z0-9_./-]*")
_STOP = frozenset(
    "a an the or and in on for to with from of at by as is are be this that these those any all anything "
    "everything each every against into onto here there again directly only first also just then than you "
    "me my your our we i it them command commands scripts script tests tools tool code files file folder "
    "directory instead unless without before after always never please here packages dependencies anymore "
    "ever itself yourself locally".split()
)


@functools.lru_cache(maxsize=2048)
def read_rule(text: str) -> tuple[Trigger, ...]:
    """The triggers of a rule; none for a text that prescribes nothing about calls."""
    original, lowered = text, text.lower()
    for pattern, by in _SAME:
        lowered = pattern.sub(by, lowered)
    clauses = [part for part in _CLAUSE.split(lowered) if part and part.strip()]
    found: list[Trigger] = []
    for at, clause in enumerate(clauses):
        found += _read_clause(clause, clauses[at - 1] if at else "")
    found += _read_subjects(lowered)
    if not any(trigger.commands for trigger in found):
        found += _read_language(lowered, original)
    preferred = {pattern[0] for clause in clauses for pattern in _preferred(clause)}
    usable = [trigger for trigger in found if trigger.is_usable]
    for at, trigger in enumerate(usable):
        if trigger.rivals:
            left = tuple(one for one in trigger.commands if one[0] not in preferred)
            usable[at] = trigger._replace(commands=left)
    return tuple(dict.fromkeys(trigger for trigger in usable if trigger.is_usable))


def _read_clause(clause: str, previous: str) -> Iterator[Trigger]:
    tokens = _TOKEN.findall(clause)
    negated = next((at for at, token in enumerate(tokens) if token in _WORDS["never"]), None)
    if negated is not None:
        foreign = tokens[negated] in _OTHER_LANGUAGES
        part = tokens if foreign else tokens[negated + 1 :]
        trigger = _make_trigger(_cut(" ".join(part)))
        if not trigger.has_object and _PRONOUNS.intersection(part):
            about = _make_trigger(previous)
            trigger = trigger._replace(paths=about.paths, commands=about.commands, hosts=about.hosts)
        yield trigger
        return
    before = _BEFORE.search(clause) or _WHEN.search(clause)
    if before is not None:
        yield _make_trigger(_cut(before.group(1)))
    yield from _read_alternatives(clause)


def _cut(part: str) -> str:
    """Without the conditions after it."""
    found = _CUT.search(part, 1)
    return part[: found.start()] if found else part


def _read_alternatives(clause: str) -> Iterator[Trigger]:
    for phrase in _TABLES["instead"]:
        _, found, avoided = clause.partition(f"{phrase} ")
        if found:
            yield Trigger(commands=tuple(_patterns(["use", *_TOKEN.findall(_cut(avoided))])))
    tokens = _TOKEN.findall(clause)
    for at, token in enumerate(tokens):
        if token == "not" and at + 1 < len(tokens):
            rest = [one for one in tokens[at + 1 : at + 4] if one not in ("with", "use", "by", "via", "the")]
            yield Trigger(commands=tuple(_patterns(["use", *rest])[:1]))
    preferred = _preferred(clause)
    rivals = {rival for pattern in preferred for family in _FAMILIES if pattern[0] in family for rival in family}
    if rivals:
        yield Trigger(commands=tuple((rival,) for rival in sorted(rivals)), rivals=True)
    if {"test", "tests", "testing"}.intersection(tokens) and any(one[0] in _WORDS["runners"] for one in preferred):
        yield Trigger(commands=tuple(tuple(command.split()) for command in _TABLES["test_commands"]), rivals=True)


def _preferred(clause: str) -> list[Pattern]:
    """The programs that a clause says to use."""
    if any(token in _WORDS["never"] for token in _TOKEN.findall(clause)):
        return []
    for phrase in (*_TABLES["instead"], "not"):
        clause = str(re.split(rf"\b{phrase}\b", clause)[0])
    tokens = _TOKEN.findall(clause)
    if not _WORDS["prescribing"].intersection(tokens) and (
        "user" in tokens or not {"with", "via"}.intersection(tokens)
    ):
        return []
    return [
        pattern
        for pattern in _patterns(tokens)
        if (at := tokens.index(pattern[0]) if pattern[0] in tokens else 0)
        and tokens[at - 1] in _WORDS["tool_words"]
        and (pattern[0] not in _WORDS["english_words"] or not pattern[1:] or pattern[1] in _WORDS["tasks"])
    ]


def _patterns(tokens: Sequence[str]) -> list[Pattern]:
    return list(_make_trigger(" ".join(tokens)).commands)


def _make_trigger(part: str) -> Trigger:
    return _PhraseReader(_TOKEN.findall(part)).read()


class _PhraseReader:
    """Sorts the words of a phrase, such as "push to main", into the groups of a trigger."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = [token if token.startswith("`") else _bare(token) for token in tokens]
        self._found: dict[str, list[str]] = {}
        self._commands: list[Pattern] = []
        self._at = 0

    def read(self) -> Trigger:
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            self._at += 1
            if token:
                kind, value = self._classify(token)
                if kind == "command":
                    self._commands.append(self._command(token))
                elif kind == "actions":
                    known = self._found.setdefault("actions", [])
                    joined = self._at > 1 and self._tokens[self._at - 2] in ("or", "and", "and/or")
                    if not known or joined or known == ["run"]:
                        known[:] = [*(one for one in known if one != "run"), value]
                elif kind:
                    self._found.setdefault(kind, []).append(value)
        found: dict[str, Any] = {name: tuple(dict.fromkeys(values)) for name, values in self._found.items()}
        actions = frozenset(found.pop("actions", ()))
        flags = frozenset(found.pop("flags", ()))
        into_shell = "pipe" in actions and bool({"shell", "bash", "sh"}.intersection(self._tokens))
        if "hosts" in found:
            actions -= {"post", "fetch"}
        # A flag or a host says enough, and so does the name of a channel.
        spare = ("channel", "message") if "literals" in found else ()
        needed = () if flags or into_shell or "hosts" in found else found.get("resources", ())
        found["resources"] = tuple(one for one in needed if one not in spare)
        trigger = Trigger(actions, tuple(self._commands), flags, into_shell=into_shell)
        return trigger._replace(**found)

    def _classify(self, token: str) -> tuple[str, str]:
        previous = self._tokens[self._at - 2] if self._at > 1 else ""
        following = self._tokens[self._at] if self._at < len(self._tokens) else ""
        is_program = token in _PROGRAMS and (token not in _WORDS["english_words"] or previous in _WORDS["tool_words"])
        if token.startswith("`") or is_program:
            return "command", token
        if following in _FOLDERS and _NAME.fullmatch(token) and token not in _STOP:
            return "paths", token + "/"
        for kind, test in _SHAPES if previous not in ("outside", "except", "besides") else ():
            if (value := test(token)) is not None:
                return kind, value
        if token in _ACTIONS:
            return "actions", _ACTIONS[token]
        is_run = self._found.get("actions") == ["run"] and previous in _ACTIONS
        if is_run and _SCRIPT.fullmatch(token) and token not in _STOP and "-" in token:
            return "command", token
        return "", ""

    def _command(self, token: str) -> Pattern:
        """A program with the subcommands and flags that follow it."""
        if token.startswith("`"):
            return self._quoted(token.strip("`"))
        pattern = [token]
        while self._at < len(self._tokens) and len(pattern) <= _SUBCOMMANDS_MAX:
            word = self._tokens[self._at]
            if word.startswith("-") and len(word) > 1:
                self._found.setdefault("flags", []).append(word)
            elif _SUBCOMMAND.fullmatch(word) and word not in _STOP and "/" not in word and word not in _PROGRAMS:
                pattern.append(_BASE_FORMS.get(word, word))
            else:
                break
            self._at += 1
        return tuple(pattern)

    def _quoted(self, text: str) -> Pattern:
        try:
            words = shlex.split(text)
        except ValueError:
            words = text.split()
        self._found.setdefault("flags", []).extend(word for word in words if word.startswith("-"))
        return tuple(word for word in words if not word.startswith("-"))[: _SUBCOMMANDS_MAX + 1] or (text,)


def _bare(token: str) -> str:
    """Without quotes and the punctuation after it. A leading dot belongs to a name such as `.env`."""
    return token.lstrip("'\"").rstrip(".:'\"") or token


_BASE_FORMS = {"commits": "commit", "pushes": "push", "merges": "merge", "installs": "install"}


def _path_of(token: str) -> str | None:
    """A folder, a file, an ending such as `.proto`, or a pattern of them."""
    if "://" in token or token.startswith("#"):
        return None
    if re.fullmatch(r"\.[a-z0-9_.-]+|\*\.?[a-z0-9_.*-]+", token):
        return token
    name = token.rstrip("/").rsplit("/", 1)[-1]
    if "/" in token and re.fullmatch(r"[\w.*@~/-]+", token) and len(token) > 2:
        return token
    is_file = "." in name and name.rsplit(".", 1)[-1] in _WORDS["extensions"]
    return token if is_file or name in ("dockerfile", "makefile", "jenkinsfile") else None


_SHAPES = (
    ("flags", lambda token: token if re.fullmatch(r"--?[a-z][a-z0-9-]*", token) else None),
    ("literals", lambda token: token if re.fullmatch(r"[#@][a-z0-9_-]{2,}", token) else None),
    ("code", lambda token: token[:-2] if re.fullmatch(r"[\w.:]+\(\)", token) else None),
    ("hosts", lambda token: host if _HOST.fullmatch(host := re.sub("^https?://", "", token).rstrip("/")) else None),
    ("paths", _path_of),
    ("environments", _TABLES["environments"].get),
    ("places", lambda token: token if token in _WORDS["places"] else None),
    ("resources", lambda token: _RESOURCES.get(token) or (token if token in _WORDS["services"] else None)),
)


def _read_subjects(text: str) -> Iterator[Trigger]:
    """Rules about the things that a call makes: commit messages, pull requests, the names of branches."""
    if re.search(r"\bcommit[- ]messages?\b|\bcommits? (?:must|should|are|use)\b", text):
        yield Trigger(actions=frozenset(("commit",)))
    if re.search(r"\b(?:pull|merge)_requests?\b|\bprs?\b", text) and not re.search(r"\breview", text):
        yield Trigger(actions=frozenset(("create",)), resources=("pull_request",))
    if re.search(r"\bbranch names?\b|\bname branches\b|\bbranches (?:are named|start with)\b", text):
        yield Trigger(actions=frozenset(("new_branch",)), commands=(("git",),))


def _read_language(text: str, original: str) -> Iterator[Trigger]:
    """Rules about code in one programming language concern every edit of its files."""
    tokens = [_bare(token) for token in _TOKEN.findall(text)]
    if _WORDS["chat_words"].intersection(tokens) or not _WORDS["prescribing"].intersection(tokens):
        return
    for at, token in enumerate(tokens):
        if token not in _TABLES["languages"] or (token == "go" and not re.search(r"\bGo\b", original)):
            continue
        following = tokens[at + 1] if at + 1 < len(tokens) else ""
        if following in _WORDS["code_nouns"] or (at and tokens[at - 1] == "in"):
            reader = _make_trigger(text)
            is_negative = bool(_WORDS["never"].intersection(tokens))
            yield Trigger(
                extensions=tuple(_TABLES["languages"][token].split()), code=reader.code if is_negative else ()
            )


# Matching.


def meets(call: IntendedCall, trigger: Trigger) -> bool:
    if trigger.extensions:
        written = any(path.lower().endswith(trigger.extensions) for path in call.writes)
        return written and (not trigger.code or any(code in call.text.lower() for code in trigger.code))
    if call.commands:
        return any(_command_meets(call, command, trigger) for command in call.commands)
    if trigger.commands or trigger.flags or trigger.into_shell:
        return False
    if not (call.words or call.writes or call.reads or call.deletes or call.hosts):
        return False
    values = [value.lower() for value in call.values]
    used = [*call.writes, *call.deletes]
    if trigger.actions - {"edit", "delete", "commit", "push"}:
        used += call.reads
    if trigger.paths and not any(fits_path(one, path) for one in trigger.paths for path in used):
        return False
    return (
        _any_host(trigger.hosts, call)
        and (not trigger.places or any(value in trigger.places for value in values))
        and _any_environment(trigger.environments, values)
        and (not trigger.literals or any(value in trigger.literals for value in values))
        and all(_tool_has(resource, call) for resource in trigger.resources)
        and (not trigger.actions or any(_tool_does(action, call, trigger) for action in trigger.actions))
    )


def _command_meets(call: IntendedCall, command: ShellCommand, trigger: Trigger) -> bool:
    if trigger.commands and not any(_runs(pattern, command, trigger) for pattern in trigger.commands):
        return False
    short = [one for one in command.flags if re.fullmatch(r"-[A-Za-z]+", one)]
    for flag in trigger.flags - command.flags:
        if len(flag) != 2 or not any(flag[1] in one for one in short):
            return False
    if trigger.into_shell and command.into not in ("sh", "bash", "zsh", "dash", "fish", "python", "ruby", "node"):
        return False
    words = [word.lower() for word in command.words]
    return (
        _has_place(call, command, trigger)
        and _any_environment(trigger.environments, [*words, command.program])
        and (not trigger.literals or any(word in trigger.literals for word in words))
        and _any_host(trigger.hosts, call)
        and all(_command_has(resource, command, call) for resource in trigger.resources)
        and _uses_path(call, command, trigger)
        and (not trigger.actions or any(_does(action, command, trigger) for action in trigger.actions))
    )


def _runs(pattern: Pattern, command: ShellCommand, trigger: Trigger) -> bool:
    program = pattern[0].rsplit("/", 1)[-1]
    if program not in all_programs(command) or command.flags & {"--version", "--help", "-V"}:
        return False
    words = [word.lower() for word in command.words]
    if trigger.rivals and len(pattern) == 1 and words[:1] and words[0] in _WORDS["asking"]:
        return False
    starting = words if program == command.program else [*command.programs, *words]
    return all(word in starting for word in pattern[1:])


def _has_place(call: IntendedCall, command: ShellCommand, trigger: Trigger) -> bool:
    """A branch must be named by the command itself; a commit is made on the branch that was chosen before."""
    if not trigger.places:
        return True
    others = call.commands if trigger.actions & {"commit", "edit"} else [command]
    named = {
        part.removeprefix("+").removeprefix("refs/heads/")
        for one in others
        if one.program == "git" and not {"log", "diff", "show"}.intersection(one.words[:1])
        for word in one.words
        for part in word.lower().split(":")
    }
    return bool(named.intersection(trigger.places))


def _any_environment(wanted: Iterable[str], texts: Iterable[str]) -> bool:
    names = set(wanted)
    if not names:
        return True
    parts = {part for text in texts for part in re.split(r"[^a-z0-9]+", text.lower())}
    return any(_TABLES["environments"].get(part) in names for part in parts)


def _any_host(wanted: Sequence[str], call: IntendedCall) -> bool:
    return not wanted or any(host == one or host.endswith(f".{one}") for host in call.hosts for one in wanted)


def _command_has(resource: str, command: ShellCommand, call: IntendedCall) -> bool:
    programs = all_programs(command)
    words = [word.lower() for word in command.words]
    if resource == "pull_request":
        return (command.program, *words[:1]) in (("gh", "pr"), ("glab", "mr"), ("hub", "pull-request"))
    if _RESOURCE_PROGRAMS.get(resource, frozenset()) & programs:
        return True
    return resource in _stems((*words, *call.queries)) or resource in programs


def _uses_path(call: IntendedCall, command: ShellCommand, trigger: Trigger) -> bool:
    if not trigger.paths:
        return True
    if trigger.actions <= {"edit", "delete"}:
        used: Sequence[str] = [*call.writes, *call.deletes]
    elif trigger.actions <= {"commit", "push"}:
        used = command.words if command.program == "git" and command.words[:1] in (("add",), ("commit",)) else ()
    else:
        used = [*command.words, *call.writes]
    return any(fits_path(one, path) for one in trigger.paths for path in used)


def fits_path(wanted: str, path: str) -> bool:
    """Whether a path is, or is below, what a rule names: a folder, a file, an ending or a pattern."""
    path, name = path.lower().rstrip("/"), path.lower().rstrip("/").rsplit("/", 1)[-1]
    if "*" in wanted:
        return fnmatch.fnmatch(path, wanted) or fnmatch.fnmatch(name, wanted)
    if wanted.startswith(".") and "/" not in wanted:
        is_sample = name.endswith((".example", ".sample", ".template"))
        return name == wanted or (name.startswith(f"{wanted}.") and not is_sample) or (name.endswith(wanted))
    parts, named = path.split("/"), wanted.strip("/").removeprefix("./").split("/")
    return any(parts[at : at + len(named)] == named for at in range(len(parts) - len(named) + 1))


# Whether `git` runs these, by the arguments and the flags.
_GIT: dict[str, Callable[[list[str], frozenset[str]], object]] = {
    "push": lambda words, flags: "push" in words[:2],
    "force_push": lambda words, flags: (
        "push" in words[:2]
        and (flags & {"-f", "--force", "--force-with-lease"} or any(word.startswith("+") for word in words))
    ),
    "amend": lambda words, flags: "commit" in words[:2] and "--amend" in flags,
    "new_branch": lambda words, flags: (
        (words[:1] in (["checkout"], ["switch"]) and flags & {"-b", "-B", "-c", "-C", "--create"})
        or (words[:1] == ["branch"] and len(words) > 1 and not flags & {"-d", "-D"})
    ),
}
# The rest of the trigger says what these are about.
_GENERAL = ("edit", "read", "run", "fetch", "pipe")
_DEPLOYING = (("kubectl", "apply"), ("helm", "upgrade"), ("helm", "install"), ("terraform", "apply"))


def _does(action: str, command: ShellCommand, trigger: Trigger) -> bool:
    words, program, flags = [word.lower() for word in command.words], command.program, command.flags
    if action in _GIT:
        return program == "git" and bool(_GIT[action](words, flags))
    match action:
        case "commit":
            return program == "git" and ("commit" in words[:2] or bool(trigger.paths and "add" in words[:2]))
        case "merge":
            return (program == "git" and "merge" in words[:1]) or words[:2] in (["pr", "merge"], ["mr", "merge"])
        case "create" if "tag" in trigger.resources:
            is_listing = flags & {"-l", "--list", "-d", "-n"}
            return program == "git" and words[:1] == ["tag"] and len(words) > 1 and not is_listing
        case "create":
            return bool(trigger.paths or {"create", "new", "open", "add"}.intersection(words[:3]))
        case "delete":
            if {"branch", "tag"}.intersection(trigger.resources):
                return program == "git" and bool(flags & {"-d", "-D", "--delete"})
            if trigger.resources or trigger.environments:
                return bool({"delete", "remove", "rm", "destroy", "drop", "prune"}.intersection(words[:3]))
            return deleted_files(command) is not None
        case "deploy":
            parts = {part for text in (program, *words[:2]) for part in re.split(r"[^a-z0-9]+", text)}
            return "deploy" in parts or (program, *words[:1]) in _DEPLOYING
        case "install":
            return program in _PROGRAMS and words[:1] in (["install"], ["add"], ["i"], ["get"]) and len(words) > 1
        case "drop":
            return program == "dropdb" or any(re.search(r"\b(?:drop|truncate)\b", word) for word in words)
    return action in _GENERAL or action in words[:3]


# Tools that are not a shell.


def _tool_has(resource: str, call: IntendedCall) -> bool:
    if resource == "pull_request":
        return {"pull", "request"} <= set(call.words) or {"merge", "request"} <= set(call.words) or "pr" in call.words
    return bool(_RESOURCE_WORDS.get(resource, frozenset()).intersection(call.words)) or resource in _said(call)


def _tool_does(action: str, call: IntendedCall, trigger: Trigger) -> bool:
    if action in ("run", "edit", "fetch"):
        return trigger.has_object
    if action == "read":
        return bool(trigger.paths)
    if action == "delete" and not trigger.resources and not trigger.environments:
        return bool(call.deletes)
    if action == "commit" and trigger.paths:
        return False
    said = _said(call)
    return action in {_ACTIONS.get(word, word) for word in said} or _stem(action) in said


def _said(call: IntendedCall) -> set[str]:
    """The stems of the words of its name, of its arguments and of its queries."""
    return _stems((*call.words, *call.values, *call.queries))


def _stems(texts: Iterable[str]) -> set[str]:
    return {_stem(part) for text in texts for part in re.findall(r"[a-z0-9]+", text.lower())}


def _stem(word: str) -> str:
    for ending, by in (("ies", "y"), ("sses", "ss"), ("ing", ""), ("ed", ""), ("es", "e"), ("s", "")):
        if word.endswith(ending) and len(word) > len(ending) + 2:
            word = word.removesuffix(ending) + by
            break
    return "close" if word == "clos" else word

"""Recognises statements about things that have only one value, such as a name or a home town, so that a newer value can
replace an older one. Pure functions that compare words; a statement of an unknown form contradicts nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from afterturn.learning.rules.extraction import VERB
from afterturn.text import expand_pattern, load_patterns, regex, terms, words

_STATEMENT_CHARS_MAX = 200
_NOT = "not "
# The subject of statements in other languages, which are in the first person.
_USER = "the user"
# Its key "why" says what each table is for.
_TABLES = json.loads(Path(__file__).with_suffix(".json").read_bytes())
_PATTERNS = load_patterns(__file__)
_LANGUAGES = {name: language for language, names in _TABLES["languages"].items() for name in names.split()}
_ARTICLES = frozenset("the our le la les l el los las der die das den".split())
_COMMON = frozenset(" ".join(_TABLES["common"]).split())

Value = tuple[str, str]


def single_value(text: str) -> Value | None:
    """(the thing, its value) of a statement, both folded; None if it has none of the known forms."""
    text = _NOW.sub("", text.strip().rstrip(".!"))
    if len(text) > _STATEMENT_CHARS_MAX or "\n" in text:
        return None
    for shape, read in _FORMS:
        found = shape.fullmatch(text)
        value = read(found) if found is not None else None
        if value is not None:
            return value
    return None


def contradict(one: str, other: str) -> bool:
    """Whether two values of the same thing exclude each other.

    "no longer at A" and "at B" do not, nor do "Max Power" and "Max".
    """
    if one.startswith(_NOT) != other.startswith(_NOT):
        return one.removeprefix(_NOT) == other.removeprefix(_NOT)
    words_of_one, words_of_other = set(one.split()), set(other.split())
    return not (one.startswith(_NOT) or words_of_one <= words_of_other or words_of_other <= words_of_one)


def _read_thing(found: re.Match[str]) -> Value | None:
    parts = found.groupdict()
    what = _KEYS.get(parts["what"].lower(), parts["what"].lower().replace("favourite", "favorite"))
    if not _is_value(what, parts["value"]):
        return None
    value = " ".join(terms(parts["value"])) or parts["value"].lower()
    return f"{parts['who'].lower()} {what}", f"{_no(found)}{value}"


def _is_value(what: str, value: str) -> bool:
    if _PATTERNS["NAME_KEYS"].fullmatch(what):
        return _is_name(value) and not _PATTERNS["SEVERAL"].search(value)
    if _PATTERNS["NUMBER_KEYS"].fullmatch(what):
        return any(map(str.isdigit, value))
    if _PATTERNS["MAIL_KEYS"].fullmatch(what):
        return "@" in value
    return not (
        value.startswith(("not ", "no longer ")) if what.startswith("favo") else _PATTERNS["STATE"].match(value)
    )


def _is_name(value: str) -> bool:
    named = value.removeprefix("the ")
    if not named[:1].islower():
        return True
    lower_words = value.lower().split()
    return len(lower_words) <= 2 and _COMMON.isdisjoint(lower_words)


def _who(found: re.Match[str]) -> str:
    return (found.groupdict().get("who") or _USER).lower()


def _no(found: re.Match[str]) -> str:
    return _NOT if found.groupdict().get("no") else ""


def _read_call_name(found: re.Match[str]) -> Value | None:
    value = found["value"]
    return (f"{_who(found)} called", " ".join(words(value)) or value.lower()) if _is_name(value) else None


def _read_name(found: re.Match[str]) -> Value | None:
    return "the user name", " ".join(terms(found["value"])) or found["value"].lower()


def _read_home(found: re.Match[str]) -> Value | None:
    value = found["value"]
    return None if _PATTERNS["SEVERAL"].search(value) else ("the user lives", " ".join(terms(value)) or value.lower())


def _read_branch(found: re.Match[str]) -> Value | None:
    value = found["value"]
    return None if _PATTERNS["STATE"].match(value) else (f"the {found['what'].lower()}", value.lower())


def _read_diet(found: re.Match[str]) -> Value | None:
    value = "vegan" if words(found["value"])[0].startswith("vegan") else found["value"].lower()
    value = "vegetarian" if words(value)[0].startswith("veget") else value
    return f"{_who(found)} diet", f"{_no(found)}{value}"


def _read_language(found: re.Match[str]) -> Value | None:
    language = _LANGUAGES.get("".join(words(found["value"])))
    return ("answers in", f"{_no(found)}{language}") if language else None


def _read_preference(found: re.Match[str]) -> Value | None:
    """A preference between two things: the thing is the pair, the value is the preferred one."""
    pair = [_without_article(found["one"]), _without_article(found["other"])]
    if not all(pair) or pair[0] == pair[1]:
        return None
    return f"{_who(found)} prefers {' | '.join(sorted(pair))}", pair[0]


def _without_article(text: str) -> str:
    found = words(text)
    return " ".join(found[1:] if len(found) > 1 and found[0] in _ARTICLES else found)


def _read_port(found: re.Match[str]) -> Value | None:
    of = _without_article(found["of"])
    return (f"{of} port", found["value"]) if of else None


def _read_instruction(found: re.Match[str]) -> Value | None:
    """An instruction with "always" or "never". Every word counts: "before" and "after" make two instructions."""
    parts = found.groupdict()
    thing = " ".join(words(parts["thing"]))
    never = (parts["ever"] or "").lower().startswith(("never", "do"))
    return (f"{(parts.get('who') or '').lower()} ever {thing}".strip(), "never" if never else "always")


_KEYS = {"live": "lives", "based": "lives", "living": "lives", "work": "works", "named": "called"}
_NOW = regex(r",?\snow$", re.IGNORECASE)
_READERS: tuple[Callable[[re.Match[str]], Value | None], ...] = (
    *(_read_branch, _read_port, _read_thing, _read_call_name, _read_name, _read_home, _read_diet),
    *(_read_language, _read_preference, _read_instruction),
)
_FORMS = tuple(
    (regex(expand_pattern(shape, {**_TABLES["parts"], "VERB": VERB}), re.IGNORECASE | re.VERBOSE), read)
    for read in _READERS
    for shape in _TABLES["forms"][read.__name__.removeprefix("_read_")]
)

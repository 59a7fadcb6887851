"""Secrets behind a label: "password: …", "api_key=…", "das Passwort lautet …", and before one: "use … as password".

Each occurrence of a name costs a bounded number of characters, and names without a possible value near them are skipped
at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from afterturn.scanners.secret_formats import (
    UUID,
    compiled,
    is_random,
    is_reference,
    is_scrambled,
    is_scrambled_case,
    is_value,
    longest_run,
)


def _read_names() -> Mapping[str, tuple[str, ...]]:
    """The lists of `secret_labels.json` by name; its "why" says what a list is for."""
    lists = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return {name: tuple(row["names"]) for name, row in lists.items()}


_NAMES = _read_names()
_SECRET_NAMES = _NAMES["secret_names"] + _NAMES["token_names"]
# Before these, the words below say that the value is not secret.
_SHARED = ("key", "token", "schlüssel")
_PUBLIC = (
    r"(?i:public|publickey|primary|foreign|partition|sort|cache|idempotency|host|map|object|dictionary|row|group|ssh"
    r"|page|next|continuation|pagination|cursor|sync|csrf|xsrf)[ _-]?\Z"
)

_QUOTE = r"[\\\"'`*“”‘’«»„]{0,4}"
# "for the staging database", "(staging)": between a name and its sign or verb.
_ABOUT = (
    r"(?:\s?[\[(][^()\[\]\n]{1,40}[)\]]|\s(?:for|of|to|on|at|in|fürs?|von|vom|beim|zum|zur|der|des|du|de|del|della|di"
    r"|pour|para|do|da|voor|van|till|til|для|от|к)\s[^\n:=.;!?\"']{1,40}?)?"
)
_SIGN = r"\s{0,3}(?::=|=>|->|==|[:=→：＝|]|%3[AaDd])\s{0,3}"
_VERB = (
    r"\s{1,3}(?:is|was|are|ist|war|lautet|est|es|era|è|é|jest|är|er|on|bu|это|-|–|—)"
    r"(?:\s{1,3}(?:now|currently|still|set to|changed to|jetzt|nun|ahora|maintenant|simply))?[\s:]{1,3}"
    r"|\s{0,2}(?:是|为|為|は|が|는|은|이)[\s:：]{0,3}"
    r"|\s{1,3}(?:(?:has been|was|is|got)\s)?(?:set|changed|reset|updated|rotated)\s(?:to|from)\s{1,3}"
)
# A command's option, an XML element, or a quotation directly behind the name.
_DIRECT = r"\s{0,3}>\s{0,3}|\s{1,3}(?=[\"'`“‘«][^\s]{4})"
_BARE = rf"\s{{1,3}}(?:to\s{{1,3}})?{_QUOTE}"

_QUOTED = r"[^\"'`“”‘’«»„\n]{4,128}(?=[\"'`“”‘’«»\\])"
_OPEN = r"[^\s\"'`,;<>]{3,127}[^\s\"'`,;<>.!?)\]}*\\:|]"
# "sk-abc..." is only the beginning of a key, and not secret.
_KEY = r"(?>[A-Za-z0-9+/_.~-]{15,511}[A-Za-z0-9+/_~-]={0,2})(?!\.\.)"
_SHORT_KEY = r"(?>[^\s\"'`,;<>&]{7,127}[^\s\"'`,;<>&.!?)\]}*\\:|])(?!\.\.)"
# Between the name of a variable, a header, an option or a parameter and its value.
_FIELD = (
    r"(?:[_-]?(?:access)?[_-]?key|[_-]?value)?[\\\"'`]{0,3}\]?"
    r"(?:\s{0,3}(?::=|=>|[:=]|%3[AaDd])\s{0,3}|\s(?:is|was|ist|lautet|est|es):?\s{1,3})[\\\"'`]{0,3}"
)
_OPTION = r"(?:(?<!\w)--?|\b(?:setx?|setenv)\s)[\w-]{0,40}\Z"

# A value has at least one of these: a digit, a sign, or a capital in the middle of a word.
_MARK = r"[\d!@#$%^&*+?~§€]|[a-z][A-Z]"
_REACH_CHARS = 220
_VALUE_CHARS_MAX = 512

# What has a digit next to "password" without being one: hashes, encodings, products, counts, ranges, dates, versions.
_TERMS = (
    r"(?i:(?:sha|md|base|utf|argon|pbkdf|bcrypt|scrypt|aes|rsa|oauth|ed|tls|ssl|http|h|ipv|wpa|web|win|python|py|es|v|id"
    r"|user|test|step|level|type|option|field|line|page|row|col|port)[-_]?\d{1,5}(?:id|bit|[a-z]{0,2})?"
    r"|\d{1,4}[-_ ]?[a-z]{1,12}|\d{1,4}(?:[-–.:/]\d{1,4}){1,5}|v?\d{1,4}(?:\.\d{1,4}){1,3}|1password|\d{1,3}%?"
    r"|\d{4}-\d{2}-\d{2}[tT_].*)\Z"
)
_ADDRESS = r"[^\s@]{1,64}@[^\s@]{1,64}\.[A-Za-z]{2,}|[a-z]{2,10}://"
_LETTERS_MIN = 2
_DIGITS_MIN = 4
_OWNER = r"(?:the|my|our|your|his|her|its|a|an|as|als|das|mein|comme|como)"


def is_password(text: str) -> bool:
    """Whether a value behind a name looks like a password, and not like a word, a count or the name of something."""
    if not is_value(text) or compiled(_TERMS).match(text) or compiled(_ADDRESS).match(text):
        return False
    digits = sum(map(str.isdigit, text))
    letters = sum(map(str.isalpha, text))
    signs = compiled(r"[!@#$%^&*+?~§€]").search(text) is not None
    if is_reference(text) and not signs:
        return False
    if compiled(r"(?i:pass(?!age)|secret|token|key|pwd)").search(text) and not signs:
        return False
    if digits:
        return len(text) >= 6 and (letters >= _LETTERS_MIN or signs)
    return (len(text) >= 8 and signs and letters >= _LETTERS_MIN) or (len(text) >= 10 and is_scrambled_case(text))


def is_strong(text: str) -> bool:
    """As `is_password`, for places where no sign says that a value follows: capitals, small letters and digits."""
    if len(text) < 8 or not is_password(text) or not any(map(str.isdigit, text)):
        return False
    if text.upper() == text or text.lower() == text:
        return False
    return compiled(r"[!@#$%^&*+?~]").search(text) is not None or is_scrambled(text)


def is_pin(text: str) -> bool:
    return _DIGITS_MIN <= len(text) <= 12 and text.isdecimal()


def is_key(text: str) -> bool:
    return len(text) >= 20 and is_random(text)


def is_short_key(text: str) -> bool:
    """For a field such as `client_secret=`: a password with a sign in it, or what is not made of words."""
    if len(text) < 8 or not is_password(text) or is_reference(text) or text.isalpha():
        return False
    if compiled(r"[!@#$%^&*?~§€]").search(text) is not None:
        return True
    if text.upper() == text or text.lower() == text:
        return is_scrambled(text) and compiled(r"[A-Za-z]{4}|[./]").search(text) is None
    return longest_run(text) < 6


def is_distinct_key(text: str) -> bool:
    """For a name that is clear, such as `api_key`: shorter keys, and UUIDs, count too."""
    if compiled(UUID).fullmatch(text.lower()):
        return True
    return is_random(text) and (len(text) >= 20 or is_scrambled(text))


class _Label(NamedTuple):
    """What may follow the names: the text between (a sign or a verb), and the value after that."""

    kind: str
    names: tuple[str, ...]
    words: tuple[str, ...]
    value: str
    is_one: Callable[[str], bool]


_LABELS = (
    _Label("password", _NAMES["password_names"], _NAMES["short_password_names"], _OPEN, is_password),
    _Label("secret", _SECRET_NAMES, _NAMES["short_secret_names"], _KEY, is_key),
)
_CLEAR = frozenset(_SECRET_NAMES) - {"token", "secret", "bearer", "authorization", "キー", "clé"}
_PINS = frozenset(["pin", "passcode", "暗証番号", "パスワード", "password", "passwort", "密码"])


class _Name(NamedTuple):
    text: str
    label: _Label
    is_word: bool


def _by_stem() -> Mapping[str, Sequence[_Name]]:
    """The names by the stem that they contain; those in other scripts under the blank one."""
    names = [_Name(name, label, False) for label in _LABELS for name in label.names]
    names += [_Name(name, label, True) for label in _LABELS for name in label.words]
    stems: dict[str, list[_Name]] = {}
    for name in names:
        stem = next((stem for stem in _NAMES["stems"] if stem in name.text), "")
        assert stem or not name.text.isascii(), name.text
        stems.setdefault(stem, []).append(name)
    return stems


_NAMES_BY_STEM = _by_stem()


def find_labelled(text: str) -> Iterator[tuple[str, int, int]]:
    """(kind, start, end) of the values behind names."""
    # The one letter that becomes longer in lower case.
    lowered = text.replace("\u0130", "i").lower()
    stems = [stem for stem in _NAMES["stems"] if stem in lowered]
    if not text.isascii():
        stems.append("")
    for stem in stems:
        for name in _NAMES_BY_STEM[stem]:
            if name.text in lowered:
                yield from _behind(text, lowered, name)


def _behind(text: str, lowered: str, named: _Name) -> Iterator[tuple[str, int, int]]:
    name, label, is_word = named
    at, mark = lowered.find(name), -1
    while at >= 0:
        behind = at + len(name)
        if mark < at - _REACH_CHARS:
            found = compiled(_MARK).search(text, max(0, at - _REACH_CHARS))
            if found is None:
                return
            mark = found.start()
        if mark > behind + _REACH_CHARS:
            # There is no value before that mark, so all names before it are skipped at once.
            at = lowered.find(name, mark - _REACH_CHARS)
            continue
        following = lowered.find(name, behind)
        is_public = name in _SHARED and compiled(_PUBLIC).search(text, max(0, at - 24), at) is not None
        if not is_public and (not is_word or _is_word(text, at, behind)):
            found_at = (
                _value_behind(text, behind, following, label, name)
                or _value_before(text, at, label)
                or (None if is_word or label.kind == "password" else _value_of_field(text, behind, following, name))
            )
            if found_at is not None:
                yield (label.kind, *found_at)
        if mark <= at:
            mark = -1
        at = following


def _is_word(text: str, start: int, end: int) -> bool:
    before, after = text[start - 1 : start], text[end : end + 1]
    if after.isalnum() and not (after.isdigit() and text[end + 1 : end + 2] in (":", "=", " ")):
        return False
    return not before.isalpha() or (before.islower() and text[start].isupper())


def _is_constant(text: str, start: int, end: int) -> bool:
    """Whether a name is the end of a variable of the environment, as in SNYK_TOKEN."""
    return text[start:end].isupper() and text[start - 1 : start] == "_" and text[start - 2 : start - 1].isupper()


def _value_of_field(text: str, behind: int, following: int, name: str) -> tuple[int, int] | None:
    """A value too short for a key, behind a name that ends at `behind` and directly followed by a sign."""
    begins = compiled(_FIELD).match(text, behind)
    if begins is None and compiled(_OPTION).search(text, max(0, behind - 60), behind) is not None:
        begins = compiled(r"[ =][\"']?").match(text, behind)
    if begins is None:
        return None
    is_next = following >= 0 and compiled(_FIELD).match(text, following + len(name)) is not None
    value = compiled(_SHORT_KEY).match(text, begins.end(), following if is_next else len(text))
    return value.span() if value is not None and (is_short_key(value.group()) or is_key(value.group())) else None


def _value_behind(text: str, behind: int, following: int, label: _Label, name: str) -> tuple[int, int] | None:
    """The value behind a name that ends at `behind`. It ends where the name occurs again, at `following`."""
    suffix = (
        r"(?:s|en|n)?(?:[_\s-]?access)?(?:[_\s-]?(?:key|id|value|wert|word))?"
        if label.kind == "secret"
        else "(?:s|er)?"
    )
    direct = "" if name in label.words else f"|{_DIRECT}"
    begins = compiled(rf"{suffix}{_QUOTE}{_ABOUT}(?:{_SIGN}|{_VERB}{direct}){_QUOTE}(?:\s{{1,2}}{_QUOTE})?").match(
        text, behind
    )
    is_clear = name in _CLEAR or _is_constant(text, behind - len(name), behind)
    checks = [
        label.is_one,
        *([is_distinct_key] if is_clear else []),
        *([is_strong] if name == "secret" else []),
        *([is_pin] if name in _PINS else []),
    ]
    if begins is None and name not in label.words:
        begins = compiled(rf"{suffix}{_BARE}").match(text, behind)
        if not text.startswith("--", behind - len(name) - 2):
            checks = [is_key if label.kind == "secret" else is_strong]
    if begins is None:
        return None
    start, end = begins.end(), min(len(text), begins.end() + _VALUE_CHARS_MAX)
    if start < following < end and compiled(rf"{_QUOTE}(?:{_SIGN}|{_VERB})").match(text, following + len(name)):
        end = following
    return _checked(text, start, end, label, checks)


def _checked(
    text: str, start: int, end: int, label: _Label, checks: list[Callable[[str], bool]]
) -> tuple[int, int] | None:
    patterns = [label.value]
    if label.kind == "password" and text[start - 1 : start] in tuple("\"'`“‘«"):
        patterns.insert(0, _QUOTED)
    for pattern in patterns:
        value = compiled(pattern).match(text, start, end)
        if value is not None and any(check(value.group()) for check in checks):
            return value.span()
    if label.kind == "password":
        # "credentials: bob / S3cret!9", "login: bob:S3cret!9"
        pair = compiled(r"[\w.@+-]{1,64}\s?[/:|]\s?([^\s\"'`,;]{5,127}[^\s\"'`,;.!?)\]}*\\])").match(text, start, end)
        if pair is not None and is_strong(pair.group(1)):
            return pair.span(1)
    return None


def _value_before(text: str, at: int, label: _Label) -> tuple[int, int] | None:
    """The value before a name: "use Xk9… as the password"."""
    first = max(0, at - 180)
    window = text[first:at]
    if not (window[-60:].count(" as ") or window[-60:].count(" is ") or window[-60:].count(" als ")):
        return None
    found = compiled(
        rf"([^\s\"'`]{{8,128}}+)[\"'`,]?\s(?:as|is|als)\s(?:{_OWNER}\s)?(?:[\w-]{{1,16}}\s){{0,2}}[\w-]{{0,16}}\Z"
    ).search(window)
    is_one = is_strong if label.kind == "password" else is_key
    if found is None or not is_one(found.group(1).rstrip(".,;:")):
        return None
    start = first + found.start(1)
    return start, start + len(found.group(1).rstrip(".,;:"))

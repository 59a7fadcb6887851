"""Finds secrets in texts and redacts them: by the formats of issuers, by labels, and in sentences.

It finds what is unmistakable and nothing else. The time grows no faster than the text: every expression matches a
bounded number of characters from its start, and repeats nothing that repeats.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple, Protocol, TypeAlias

from afterturn.text import content_hash

# How far a scan reads beyond the end that a text is cut at, so that no half of a secret remains.
MARGIN_CHARS = 8_192


class Secret(NamedTuple):
    """The place of a secret in a text, and its kind in a few words, such as "github token"."""

    kind: str
    start: int
    end: int


class Scanner(Protocol):
    def find(self, text: str) -> Sequence[Secret]:
        """The secrets in order, without overlaps. Never raises."""


class Redacted(NamedTuple):
    """A text without its secrets, and the kinds of the removed ones, in order."""

    text: str
    kinds: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """The reason stored with a memory, such as "github token redacted". Blank if nothing was redacted."""
        return f"{', '.join(dict.fromkeys(self.kinds))} redacted" if self.kinds else ""


class FormatScanner:
    """Finds the known formats and labels. A text without a hint of any costs one search per hint."""

    def find(self, text: str) -> Sequence[Secret]:
        found: list[Secret] = []
        for sign, hints in _HINTS:
            if sign in text:
                # A list, not a generator: this runs for every text, and is mostly empty.
                for hint in [hint for hint in hints if hint in text]:
                    for kind, find in _FINDERS[hint]:
                        found.extend(Secret(kind, start, end) for start, end in find(text))
        if any(sign in text for sign in _NAMING):
            found.extend(find_named(text))
        return _without_overlaps(found) if found else ()


class NoScanner:
    """Finds nothing, for hosts that scan their texts elsewhere."""

    def find(self, text: str) -> Sequence[Secret]:
        return ()


def scanner(*, scanning: bool) -> Scanner:
    return _SCANNER if scanning else _NONE


def redact(text: str, scanner: Scanner | None = None, *, mark: Callable[[str], str] | None = None) -> Redacted:
    """Replaces each secret with a mark. Marks in the text stay as they are."""
    secrets = (scanner or _SCANNER).find(text)
    if not secrets:
        return Redacted(text)
    parts: list[str] = []
    done = 0
    for secret in secrets:
        parts += [text[done : secret.start], (mark or marked)(secret.kind)]
        done = secret.end
    return Redacted("".join([*parts, text[done:]]), tuple(secret.kind for secret in secrets))


def redact_within(text: str, chars_max: int, scanner: Scanner, *, mark: Callable[[str], str] | None = None) -> Redacted:
    """Redacts and cuts a long text. It is cut after the scan, because a scanner does not recognise half a secret."""
    redacted = redact(text[: chars_max + MARGIN_CHARS], scanner, mark=mark)
    return Redacted(redacted.text[:chars_max], redacted.kinds)


def marked(kind: str) -> str:
    return f"[redacted: {kind}]"


def unnamed(kind: str) -> str:
    """A mark for questions: the words of the usual mark would match every memory that has one."""
    return "[…]"


class RedactedHashes:
    """A cache of the content hashes of redacted texts, by the hashes of the originals. It holds no texts."""

    def __init__(self, scanner: Scanner, *, entries_max: int = 16_384) -> None:
        self._scanner = scanner
        self._entries_max = entries_max
        self._known: dict[str, str] = {}

    def of(self, text: str, hash: str) -> str:
        """The content hash of the redacted text; `hash` itself if the text has no secrets. Safe from any thread."""
        known = self._known.get(hash)
        if known is None:
            redacted = redact(text, self._scanner)
            known = content_hash(redacted.text) if redacted.kinds else hash
            if len(self._known) >= self._entries_max:
                self._known.clear()
            self._known[hash] = known
        return known


def hashes(*, scanning: bool) -> RedactedHashes:
    """The cache of this process. Its content depends on the texts only."""
    return _HASHES if scanning else _UNCHANGED


def _without_overlaps(found: list[Secret]) -> list[Secret]:
    """In order. Overlapping secrets become one, of the kind of the first."""
    merged: list[Secret] = []
    for secret in sorted(found, key=lambda secret: (secret.start, -secret.end)):
        if merged and secret.start < merged[-1].end:
            merged[-1] = Secret(merged[-1].kind, merged[-1].start, max(secret.end, merged[-1].end))
        else:
            merged.append(secret)
    return merged


# Secrets behind a label: "password: …", "api_key=…"

_HEXADECIMAL_CHARS_MIN = 32
_DIGIT = r"[0-9]"
_DIGITS_ENOUGH = 4
_ANY_DIGIT = r"\d"
_HEXADECIMAL = r"[0-9a-f]++"
_SIGN = r"[^\w./\\-]"
_PLACEHOLDER = r"^[$<%({\[]|[$%{][{(]|\*\*\*|\.\.\.|x{4}|X{4}|example|EXAMPLE|changeme|placeholder|your|redacted"
_NO_VALUES = frozenset(["password", "passwd", "pass", "pwd", "secret", "token", "key", "none", "null", "true", "false"])
_CALL = r"[A-Za-z_][A-Za-z0-9_.]*+[(\[]"
_REFERENCE = r"[A-Za-z_][A-Za-z0-9_]*+\.|[.~]?/"
_NAMED_SO = r"(?i:pass|secret|token|key|pwd)"


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compiles a pattern when it is first needed: a hook must answer in milliseconds, and most texts need none."""
    return re.compile(pattern)


def is_value(text: str) -> bool:
    """Whether this is a value, and not a placeholder or the call that returns one."""
    return not (compiled(_PLACEHOLDER).search(text) or compiled(_CALL).match(text)) and text.lower() not in _NO_VALUES


def is_password(text: str) -> bool:
    """Whether this looks like a password: a digit, and two of small letters, capitals and signs."""
    if compiled(_ANY_DIGIT).search(text) is None:
        return False
    signs = compiled(_SIGN).search(text) is not None
    if (text.upper() != text) + (text.lower() != text) + signs < 2 or not is_value(text):
        return False
    return signs or not (compiled(_REFERENCE).match(text) or compiled(_NAMED_SO).search(text))


def is_random(text: str) -> bool:
    """Whether this looks random: small letters, capitals and digits, or a long hexadecimal number."""
    digits = len(compiled(_DIGIT).findall(text))
    if digits < 2 or not is_value(text) or compiled(_REFERENCE).match(text) or compiled(_NAMED_SO).search(text):
        return False
    if len(text) >= _HEXADECIMAL_CHARS_MIN and compiled(_HEXADECIMAL).fullmatch(text):
        return _DIGITS_ENOUGH <= digits < len(text)
    return text.upper() != text and text.lower() != text


class _Label(NamedTuple):
    """`between` matches the text after a name, `value` the text after that. Every value has a digit."""

    kind: str
    names: tuple[str, ...]
    between: str
    value: str
    chars_min: int
    chars_max: int
    is_one: Callable[[str], bool]

    @property
    def reach(self) -> int:
        """The largest distance between a name and the end of its value."""
        return self.chars_max + 40


_QUOTES = r"[\\\"'`*]{0,4}"
_IS = r"\s{0,3}(?:[:=]|%3[AaDd])\s{0,3}"
_LABELS = (
    _Label(
        "password",
        ("password", "passwd", "passphrase"),
        rf"{_QUOTES}(?:{_IS}|\s{{1,3}}is\s{{1,3}}){_QUOTES}",
        r"[^\s\"'`,;]{7,127}[^\s\"'`,;.!?)\]}*\\]",
        8,
        128,
        is_password,
    ),
    _Label(
        "secret",
        ("secret", "token", "apikey", "api_key", "api-key", "api key", "bearer"),
        rf"(?:[_\s-]?access)?(?:[_\s-]?key)?{_QUOTES}(?:{_IS}|\s{{1,3}}(?:is\s{{1,3}})?){_QUOTES}",
        # "sk-abc..." is only the beginning of a key, and not secret.
        r"(?>[A-Za-z0-9+/_.~-]{19,511}[A-Za-z0-9+/_~-]={0,2})(?!\.\.)",
        20,
        514,
        is_random,
    ),
)


def find_named(text: str) -> Iterator[Secret]:
    """The values behind labels."""
    # The one letter that becomes longer in lower case.
    lowered = text.replace("\u0130", "i").lower()
    for label in _LABELS:
        for name in label.names:
            # Most texts have none of the names: one search is cheaper than a generator for each.
            if name in lowered:
                for start, end in _values(text, lowered, label, name):
                    if label.is_one(text[start:end]):
                        yield Secret(label.kind, start, end)


def _values(text: str, lowered: str, label: _Label, name: str) -> Iterator[tuple[int, int]]:
    """The values behind each occurrence of a name. A value ends where the name occurs again."""
    at = lowered.find(name)
    digit = -1
    while at >= 0:
        behind = at + len(name)
        if digit < behind:
            digit = _next_digit(text, behind)
        if digit < 0:
            return
        if digit > behind + label.reach:
            # There is no value before that digit, so all names before it are skipped at once.
            at = lowered.find(name, digit - label.reach)
            continue
        following = lowered.find(name, behind)
        if (found := _value_at(text, behind, following, label, name)) is not None:
            yield found
        at = following


def _value_at(text: str, behind: int, following: int, label: _Label, name: str) -> tuple[int, int] | None:
    between = compiled(label.between)
    begins = between.match(text, behind)
    if begins is None:
        return None
    start, end = begins.end(), len(text)
    if 0 <= following < start + label.chars_max and between.match(text, following + len(name)):
        end = following
    value = compiled(label.value).match(text, start, end) if end - start >= label.chars_min else None
    return None if value is None else value.span()


def _next_digit(text: str, start: int) -> int:
    found = compiled(_ANY_DIGIT).search(text, start)
    return -1 if found is None else found.start()


# Secrets in the formats of their issuers: the hints that lead to each, and the pattern that it must match

Span: TypeAlias = tuple[int, int]

# How far from the id of a key its secret half is searched for.
_NEAR_CHARS = 200
# The largest length of that half, so that none is missed between two searches.
_SECRET_CHARS = 40
_PEM_CHARS_MAX = 32_768
_LONG_CHARS_MIN = 20
_LONG_CHARACTERS_MIN = 8
_PEM_LINE_CHARS_MIN = 24
_JWT_PARTS = 3
_JWT_HEADER_CHARS_MAX = 4_096
_JWT_BODY_CHARS_MIN = 16

# Escapes of line breaks, colours and signs: in JSON, terminals, URLs and mails.
_CODE = (
    r"(?:\\[bfnrtv0e]|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\[0-3][0-7]{2}|\[[0-9;:?]{0,16}[A-Za-z]"
    r"|%[0-9A-Fa-f]{2}|=[0-9A-F]{2})\Z"
)
_CODE_CHARS_MAX = 20


class Format(NamedTuple):
    """One format. Every text with such a secret contains one of the `hints`.

    If the pattern has a group, the group is the secret; `is_one` checks the text of the secret. A match inside a word
    must match `exact` too, which has the issuer's exact lengths.
    """

    kind: str
    hints: tuple[str, ...]
    pattern: str
    is_one: Callable[[str], bool] | None = None
    exact: str = ""

    def find(self, text: str) -> Iterator[Span]:
        for match in compiled(self.pattern).finditer(text):
            group = 1 if match.re.groups else 0
            if (group or self._is_separate(text, match)) and self._is_secret(match.group(group)):
                yield match.span(group)

    def _is_separate(self, text: str, match: re.Match[str]) -> bool:
        if _is_word_start(text, match.start()):
            return True
        return bool(self.exact) and compiled(self.exact).fullmatch(match.group()) is not None

    def _is_secret(self, found: str) -> bool:
        return _is_varied(found) and (self.is_one is None or self.is_one(found))


def _is_varied(found: str) -> bool:
    """False for the keys in manuals, which repeat one letter."""
    return len(found) < _LONG_CHARS_MIN or len(set(found)) >= _LONG_CHARACTERS_MIN


def _is_word_start(text: str, at: int) -> bool:
    """Whether a word may begin there: after anything but an ASCII letter or digit, or after an escape.

    A lookbehind in the pattern would be slow for texts without a match.
    """
    before = text[at - 1] if at else ""
    if not (before.isascii() and before.isalnum()):
        return True
    return compiled(_CODE).search(text[max(0, at - _CODE_CHARS_MAX) : at]) is not None


def _is_jwt(text: str) -> bool:
    """Whether the first part is the header of a JSON web token. The end may have been cut off."""
    parts = text.strip(".").split(".")
    if len(parts) < _JWT_PARTS and len(parts[-1] if len(parts) > 1 else "") < _JWT_BODY_CHARS_MIN:
        return False
    if len(parts[0]) > _JWT_HEADER_CHARS_MAX:
        return False
    try:
        fields = json.loads(urlsafe_b64decode(parts[0] + "=" * (-len(parts[0]) % 4)))
    except (ValueError, RecursionError):
        return False
    return isinstance(fields, dict) and "alg" in fields


def _has_digit(text: str) -> bool:
    return any(character.isdigit() for character in text)


def find_pem(text: str) -> Iterator[Span]:
    """Private keys from the first line to the last. Where the last is cut off, as far as the lines look like a key."""
    ends = list(compiled(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----").finditer(text))
    done = at = 0
    for begin in compiled(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----").finditer(text):
        if begin.start() < done:
            continue
        while at < len(ends) and ends[at].start() < begin.end():
            at += 1
        if at < len(ends) and ends[at].end() - begin.start() <= _PEM_CHARS_MAX:
            done = ends[at].end()
        else:
            done = _end_of_key(text, begin.end())
        if done > begin.end():
            yield begin.start(), done


def _end_of_key(text: str, start: int) -> int:
    """The end of the lines of a key that is cut off; `start` if there are none. Line breaks may be written as \\n."""
    line = compiled(r"(?:\\[nr]|[\s>|+#*\"']){0,16}+([A-Za-z0-9+/=]{1,4096}+)")
    end = start
    while end - start < _PEM_CHARS_MAX and (match := line.match(text, end)) is not None:
        if len(match.group(1)) < _PEM_LINE_CHARS_MIN:
            break
        end = match.end()
    return end


def find_aws(text: str) -> Iterator[Span]:
    """The key's id, and the secret next to it."""
    # Not the hash of a commit, which has no capitals.
    secret = compiled(
        r"(?:(?<![A-Za-z0-9/+=])|(?<=\\[nrt])|(?<=%3D)|(?<=[0-9]m))(?![0-9a-f]{40})[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])"
    )
    yield from _pairs(text, r"A[KS]IA[A-Z2-7]{16}(?![A-Za-z0-9])", secret)


def find_twilio(text: str) -> Iterator[Span]:
    """A key, and the token next to an account's id."""
    for match in compiled(r"SK[0-9a-f]{32}(?![A-Za-z0-9])").finditer(text):
        if _is_word_start(text, match.start()):
            yield match.span()
    token = compiled(r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%3D)|(?<=[0-9]m))[0-9a-f]{32}(?![A-Za-z0-9])")
    account = r"AC[0-9a-f]{32}(?![A-Za-z0-9])"
    for start, end in _pairs(text, account, token):
        if not text.startswith("AC", start):
            yield start, end


def _pairs(text: str, name: str, secret: re.Pattern[str]) -> Iterator[Span]:
    """Ids and the secrets near them. Text between two close ids is searched once."""
    done = 0
    for match in compiled(name).finditer(text):
        apart = _is_word_start(text, match.start()) or text[match.start() - 1].islower()
        if not apart or not _is_varied(match.group()):
            continue
        yield match.span()
        first, last = max(done, match.start() - _NEAR_CHARS), min(match.end() + _NEAR_CHARS, len(text))
        for other in secret.finditer(text, first, last):
            if _has_digit(other.group()) and any(map(str.isalpha, other.group())):
                yield other.span()
        done = max(done, last - _SECRET_CHARS)


FORMATS: tuple[Format, ...] = (
    Format(
        "github token",
        ("ghp_", "gho_", "ghs_", "ghu_", "ghr_"),
        r"gh[opsur]_[A-Za-z0-9]{36,}+",
        exact=r"gh[opsur]_[A-Za-z0-9]{36}",
    ),
    Format(
        "github token",
        ("github_pat_",),
        r"github_pat_[A-Za-z0-9_]{22,}+",
        exact=r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}",
    ),
    Format(
        "gitlab token",
        ("glpat-",),
        r"glpat-[A-Za-z0-9_-]{20,}+(?:\.[A-Za-z0-9]{2}\.[A-Za-z0-9]{7,12})?",
        exact=r"glpat-[A-Za-z0-9_.-]{20,80}",
    ),
    Format(
        "slack token",
        ("xox",),
        r"xox[abeoprs]-[A-Za-z0-9-]{10,}+",
        _has_digit,
        exact=r"xox[abeoprs]-(?:[0-9]{1,14}-){1,4}[A-Za-z0-9]{20,}+",
    ),
    Format(
        "slack token",
        ("xapp-",),
        r"xapp-[A-Za-z0-9-]{20,}+",
        _has_digit,
        exact=r"xapp-[0-9]-[A-Z0-9]{8,14}-[0-9]{8,14}-[0-9a-f]{32,}+",
    ),
    Format(
        "slack webhook",
        ("hooks.slack.com/",),
        r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/_-]{20,}+)",
    ),
    Format(
        "anthropic key",
        ("sk-",),
        r"sk-ant-[A-Za-z0-9_-]{20,}+",
        exact=r"sk-ant-[a-z]{3,8}[0-9]{2}-[A-Za-z0-9_-]{80,120}",
    ),
    Format("openrouter key", ("sk-",), r"sk-or-v1-[0-9a-f]{32,}+", exact=r"sk-or-v1-[0-9a-f]{64}"),
    # OpenAI's keys contain its name in base64.
    Format(
        "openai key",
        ("sk-",),
        r"sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,}+",
        exact=r"sk-[a-z]{4,8}-[A-Za-z0-9_-]{20,80}?T3BlbkFJ[A-Za-z0-9_-]{20,80}",
    ),
    Format(
        "openai key",
        ("sk-",),
        r"sk-[A-Za-z0-9]{32,}+",
        _has_digit,
        exact=r"sk-[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}",
    ),
    Format("google key", ("AIza",), r"AIza[A-Za-z0-9_-]{35,}+", exact=r"AIza[A-Za-z0-9_-]{35}"),
    Format("google key", ("GOCSPX-",), r"GOCSPX-[A-Za-z0-9_-]{20,}+", exact=r"GOCSPX-[A-Za-z0-9_-]{28}"),
    Format(
        "stripe key",
        ("k_live_", "k_test_"),
        r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}+",
        exact=r"[rs]k_(?:live|test)_(?:[A-Za-z0-9]{24}|[A-Za-z0-9]{98,104})",
    ),
    Format("hugging face token", ("hf_",), r"hf_[A-Za-z0-9]{30,}+", exact=r"hf_[A-Za-z0-9]{34}"),
    Format("npm token", ("npm_",), r"npm_[A-Za-z0-9]{36,}+", exact=r"npm_[A-Za-z0-9]{36}"),
    Format("pypi token", ("pypi-AgE",), r"pypi-AgE[A-Za-z0-9_-]{50,}+", exact=r"pypi-AgE[A-Za-z0-9_-]{50,}+"),
    Format(
        "sendgrid key",
        ("SG.",),
        r"SG\.[A-Za-z0-9_-]{16,32}+\.[A-Za-z0-9_-]{32,}+",
        exact=r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}",
    ),
    Format("digitalocean token", ("_v1_",), r"do[opr]_v1_[0-9a-f]{64,}+", exact=r"do[opr]_v1_[0-9a-f]{64}"),
    Format(
        "telegram token",
        (":AA",),
        r"(?<![0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])",
        exact=r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}",
    ),
    Format("web token", ("eyJ",), r"eyJ[A-Za-z0-9_.-]{30,}+", _is_jwt, exact=r"eyJ[A-Za-z0-9_.-]{30,}+"),
    Format(
        "age key",
        ("AGE-SECRET-KEY-",),
        r"AGE-SECRET-KEY-1[0-9A-Z]{50,}+",
        exact=r"AGE-SECRET-KEY-1[0-9A-Z]{58}",
    ),
    Format("azure key", ("AccountKey=",), r"AccountKey=([A-Za-z0-9+/]{40,}+={0,2})"),
    Format("azure key", ("SharedAccessKey=",), r"SharedAccessKey=([A-Za-z0-9+/]{40,}+={0,2})"),
    Format("azure signature", ("sig=",), r"[?&;]sig=([A-Za-z0-9%+/]{40,}+={0,2})"),
    Format("password", ("://",), r"://[^\s/:@\"'<>]{0,255}+:([^\s/\"'<>]{1,255})@", is_value),
)

FINDERS: tuple[tuple[str, tuple[str, ...], Callable[[str], Iterator[Span]]], ...] = (
    ("private key", ("PRIVATE KEY",), find_pem),
    ("aws key", ("AKIA", "ASIA"), find_aws),
    ("twilio key", ("SK", "AC"), find_twilio),
)


# Passwords, PINs and keys in a sentence: "the password is hunter2" has no format, but its words reveal it

_SECRET_SENTENCE = re.compile(
    r"\b(?:password|passphrase|passcode|pin|api key|(?:secret|access|private) key|(?:access|auth) token|passwort|"
    r"kennwort|mot de passe|contraseña)(?: (?:of|for|to|von|für|de|du)\b[^.!?\n]{0,30}?)?"
    r"(?: (?:is|are|ist|lautet|est|es)\b|\s?[:=])",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.,;!?]+(?:\s|$)|\n")
# Longer than any value, so that a long text costs no more than a short one.
_LOOKED_AT_CHARS = 200
_PASSWORD_QUOTES = "\"'`“‘«"
_REDACTED = "[redacted"
# Shorter words with a digit count something: 3 months, 12 characters.
_CODE_CHARS_MIN = 4
# Words after "the password is" that are not passwords.
_STATES = frozenset(
    """
    changed compromised correct encrypted expired gone hashed invalid leaked long missing needed new old optional
    outdated public required reset revoked rotated safe secret set shared short stored strong temporary unknown unset
    valid weak wrong
    """.split()
)


def mentions_secret(text: str) -> bool:
    """Whether a statement reveals a password, PIN or key: a value that ends the sentence, is quoted, or has digits.

    Where a key is stored, or how often it changes, reveals nothing.
    """
    return any(_begins_with_value(text[label.end() :][:_LOOKED_AT_CHARS]) for label in _SECRET_SENTENCE.finditer(text))


def _begins_with_value(rest: str) -> bool:
    rest = rest.lstrip()
    if not rest or rest.startswith(_REDACTED):
        return False
    if rest[0] in _PASSWORD_QUOTES:
        return True
    words = _SENTENCE_END.split(rest, maxsplit=1)[0].split()
    if not words:
        return False
    if len(words[0]) >= _CODE_CHARS_MIN and any(character.isdigit() for character in words[0]):
        return True
    return len(words) == 1 and words[0].casefold() not in _STATES


def _by_hint() -> Mapping[str, Sequence[tuple[str, Callable[[str], Iterable[Span]]]]]:
    finders: dict[str, list[tuple[str, Callable[[str], Iterable[Span]]]]] = {}
    for kind, hints, find in (*((format.kind, format.hints, format.find) for format in FORMATS), *FINDERS):
        for hint in hints:
            finders.setdefault(hint, []).append((kind, find))
    return finders


def _by_sign() -> Sequence[tuple[str, Sequence[str]]]:
    """The hints by a character that they contain: searching for one character is thirty times as fast as for three."""
    groups: dict[str, list[str]] = {}
    for hint in _FINDERS:
        groups.setdefault(next((sign for sign in "_=@/:.-" if sign in hint), ""), []).append(hint)
    return tuple(groups.items())


# One of these is between every label and its value, or is part of the label (bearer).
_NAMING = (":", "=", " is ", "%3", "earer")
_FINDERS = _by_hint()
_HINTS = _by_sign()
_SCANNER, _NONE = FormatScanner(), NoScanner()
_HASHES, _UNCHANGED = RedactedHashes(_SCANNER), RedactedHashes(_NONE, entries_max=1)

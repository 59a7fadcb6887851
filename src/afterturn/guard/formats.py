"""How the secrets look that can not be taken for anything else: what hints at each, and what it then must match.

Every expression takes a bounded number of characters a start and repeats nothing that repeats, so that no text makes
one slow (G5).
"""

import base64
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

Span: TypeAlias = tuple[int, int]

# How far from the name of a key its secret half is looked for.
_NEAR_CHARS = 200
_PEM_CHARS_MAX = 32_768
_LONG_CHARS_MIN = 20
_LONG_CHARACTERS_MIN = 8
_PEM_LINE_CHARS_MIN = 24
_JWT_PARTS = 3
_JWT_HEADER_CHARS_MAX = 4_096
_HEXADECIMAL_CHARS_MIN = 32


@dataclass(frozen=True, slots=True)
class Format:
    """`hints`: one of them is in every text that holds such a secret.

    Where a match has a group, that is the secret; `is_one` looks at the secret's text.
    """

    kind: str
    hints: tuple[str, ...]
    pattern: str
    is_one: Callable[[str], bool] | None = None

    def find(self, text: str) -> Iterator[Span]:
        for match in _compiled(self.pattern).finditer(text):
            group = 1 if match.re.groups else 0
            if (group or _begins(text, match.start())) and self._is_secret(match.group(group)):
                yield match.span(group)

    def _is_secret(self, found: str) -> bool:
        return _is_varied(found) and (self.is_one is None or self.is_one(found))


def _is_varied(found: str) -> bool:
    """In a manual a key is a row of the same letter."""
    return len(found) < _LONG_CHARS_MIN or len(set(found)) >= _LONG_CHARACTERS_MIN


def _begins(text: str, at: int) -> bool:
    """Whether no word goes on there. An expression that looks behind itself would be slow where nothing matches."""
    return at == 0 or not (text[at - 1].isalnum() or text[at - 1] in "_-")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """When it is first needed: a hook that answers in milliseconds has no time for what nothing hints at."""
    return re.compile(pattern)


def _is_jwt(text: str) -> bool:
    """Three parts, of which the first says how the last was signed."""
    parts = text.strip(".").split(".")
    if len(parts) != _JWT_PARTS or len(parts[0]) > _JWT_HEADER_CHARS_MAX:
        return False
    try:
        fields = json.loads(base64.urlsafe_b64decode(parts[0] + "=" * (-len(parts[0]) % 4)))
    except (ValueError, RecursionError):
        return False
    return isinstance(fields, dict) and "alg" in fields


def _has_digit(text: str) -> bool:
    return any(character.isdigit() for character in text)


_PLACEHOLDER = re.compile(
    r"^[$<%({\[]|[$%{][{(]|\*\*\*|\.\.\.|x{4}|X{4}|example|EXAMPLE|changeme|placeholder|your|redacted"
)
_NO_VALUES = frozenset(["password", "passwd", "pass", "pwd", "secret", "token", "key", "none", "null", "true", "false"])
_CALL = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*+[(\[]")
_REFERENCE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+\.|[.~]?/")
_NAMED_SO = re.compile(r"pass|secret|token|key|pwd", re.IGNORECASE)


def is_no_placeholder(text: str) -> bool:
    """A value, and not the place of one, or what gives it."""
    return not (_PLACEHOLDER.search(text) or _CALL.match(text)) and text.lower() not in _NO_VALUES


def is_password(text: str) -> bool:
    """What nobody writes behind "password:" for another reason: letters, digits, and capitals or signs among them."""
    signs = any(not character.isalnum() and character not in "_-./\\" for character in text)
    kinds = [any(map(str.islower, text)), any(map(str.isupper, text)), _has_digit(text), signs]
    named = _REFERENCE.match(text) or _NAMED_SO.search(text)
    return sum(kinds) >= 3 and _has_digit(text) and is_no_placeholder(text) and (signs or not named)


def is_random(text: str) -> bool:
    """Long, with small letters, capitals and digits all through; or a long hexadecimal number."""
    if not is_no_placeholder(text) or _REFERENCE.match(text) or _NAMED_SO.search(text):
        return False
    digits = sum(map(str.isdigit, text))
    if len(text) >= _HEXADECIMAL_CHARS_MIN and all(character in "0123456789abcdef" for character in text):
        return 4 <= digits < len(text)
    return digits >= 2 and any(map(str.islower, text)) and any(map(str.isupper, text))


def find_named(text: str) -> Iterator[tuple[str, int, int]]:
    """(kind, start, end) of values that are written behind what they are: "password: …", "api_key=…"."""
    lowered = text.lower()
    if len(lowered) != len(text):
        # Few letters take more room when they are small; none of ours does.
        lowered = "".join(low if len(low := letter.lower()) == 1 else letter for letter in text)
    for kind, names, behind, is_one in _NAMED:
        pattern = _compiled(behind)
        for name in names:
            at = lowered.find(name)
            while at >= 0:
                match = pattern.match(text, at + len(name))
                if match is not None and is_one(match.group(1)):
                    yield kind, *match.span(1)
                at = lowered.find(name, at + len(name))


def find_pem(text: str) -> Iterator[Span]:
    """From the first line of a private key to its last; where that is cut off, as far as it looks like one."""
    ends = list(_compiled(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----").finditer(text))
    done = at = 0
    for begin in _compiled(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----").finditer(text):
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
    """Where the lines of a key that is cut off end; `start` when there are none. Line breaks may be written as \\n."""
    line = _compiled(r"(?:\\[nr]|[\s>|+#*\"']){0,16}+([A-Za-z0-9+/=]{1,4096}+)")
    end = start
    while end - start < _PEM_CHARS_MAX and (match := line.match(text, end)) is not None:
        if len(match.group(1)) < _PEM_LINE_CHARS_MIN:
            break
        end = match.end()
    return end


def find_aws(text: str) -> Iterator[Span]:
    """The key's name, and the secret that stands next to it."""
    # Not a commit's name, which has no capitals.
    secret = _compiled(r"(?<![A-Za-z0-9/+=])(?![0-9a-f]{40})[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")
    yield from _pairs(text, r"A[KS]IA[A-Z2-7]{16}(?![A-Za-z0-9])", secret)


def find_twilio(text: str) -> Iterator[Span]:
    """A key, and the token that stands next to an account's name."""
    for match in _compiled(r"SK[0-9a-f]{32}(?![A-Za-z0-9])").finditer(text):
        if _begins(text, match.start()):
            yield match.span()
    token = _compiled(r"(?<![A-Za-z0-9])[0-9a-f]{32}(?![A-Za-z0-9])")
    account = r"AC[0-9a-f]{32}(?![A-Za-z0-9])"
    for start, end in _pairs(text, account, token):
        if not text.startswith("AC", start):
            yield start, end


def _pairs(text: str, name: str, secret: re.Pattern[str]) -> Iterator[Span]:
    for match in _compiled(name).finditer(text):
        if not _begins(text, match.start()) or not _is_varied(match.group()):
            continue
        yield match.span()
        first, last = max(0, match.start() - _NEAR_CHARS), match.end() + _NEAR_CHARS
        for other in secret.finditer(text, first, min(last, len(text))):
            if _has_digit(other.group()) and any(map(str.isalpha, other.group())):
                yield other.span()


_NAMED: tuple[tuple[str, tuple[str, ...], str, Callable[[str], bool]], ...] = (
    (
        "password",
        ("password", "passwd", "passphrase"),
        r"[\"'`*]{0,3}(?:\s{0,3}[:=]\s{0,3}|\s{1,3}is\s{1,3})[\"'`*]{0,3}([^\s\"'`,;]{7,127}[^\s\"'`,;.!?)\]}*])",
        is_password,
    ),
    (
        "secret",
        ("secret", "token", "apikey", "api_key", "api-key", "api key", "bearer"),
        r"(?:[_\s-]?access)?(?:[_\s-]?key)?[\"'`*]{0,3}(?:\s{0,3}[:=]\s{0,3}|\s{1,3}(?:is\s{1,3})?)[\"'`*]{0,3}"
        r"([A-Za-z0-9+/_.~-]{20,512}={0,2})",
        is_random,
    ),
)

FORMATS: tuple[Format, ...] = (
    Format("github token", ("ghp_", "gho_", "ghs_", "ghu_", "ghr_"), r"gh[opsur]_[A-Za-z0-9]{36,}+"),
    Format("github token", ("github_pat_",), r"github_pat_[A-Za-z0-9_]{22,}+"),
    Format("gitlab token", ("glpat-",), r"glpat-[A-Za-z0-9_-]{20,}+(?:\.[A-Za-z0-9]{2}\.[A-Za-z0-9]{7,12})?"),
    Format("slack token", ("xox",), r"xox[abeoprs]-[A-Za-z0-9-]{10,}+", _has_digit),
    Format("slack token", ("xapp-",), r"xapp-[A-Za-z0-9-]{20,}+", _has_digit),
    Format(
        "slack webhook",
        ("hooks.slack.com/",),
        r"hooks\.slack\.com/(?:services|workflows|triggers)/([A-Za-z0-9/_-]{20,}+)",
    ),
    Format("anthropic key", ("sk-",), r"sk-ant-[A-Za-z0-9_-]{20,}+"),
    Format("openrouter key", ("sk-",), r"sk-or-v1-[0-9a-f]{32,}+"),
    Format("openai key", ("sk-",), r"sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{20,}+"),
    Format("openai key", ("sk-",), r"sk-[A-Za-z0-9]{32,}+", _has_digit),
    Format("google key", ("AIza",), r"AIza[A-Za-z0-9_-]{35,}+"),
    Format("google key", ("GOCSPX-",), r"GOCSPX-[A-Za-z0-9_-]{20,}+"),
    Format("stripe key", ("k_live_", "k_test_"), r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}+"),
    Format("hugging face token", ("hf_",), r"hf_[A-Za-z0-9]{30,}+"),
    Format("npm token", ("npm_",), r"npm_[A-Za-z0-9]{36,}+"),
    Format("pypi token", ("pypi-AgE",), r"pypi-AgE[A-Za-z0-9_-]{50,}+"),
    Format("sendgrid key", ("SG.",), r"SG\.[A-Za-z0-9_-]{16,32}+\.[A-Za-z0-9_-]{32,}+"),
    Format("digitalocean token", ("_v1_",), r"do[opr]_v1_[0-9a-f]{64,}+"),
    Format("telegram token", (":AA",), r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])"),
    Format("web token", ("eyJ",), r"eyJ[A-Za-z0-9_.-]{30,}+", _is_jwt),
    Format("age key", ("AGE-SECRET-KEY-",), r"AGE-SECRET-KEY-1[0-9A-Z]{50,}+"),
    Format("azure key", ("AccountKey=",), r"AccountKey=([A-Za-z0-9+/]{40,}+={0,2})"),
    Format("azure key", ("SharedAccessKey=",), r"SharedAccessKey=([A-Za-z0-9+/]{40,}+={0,2})"),
    Format("azure signature", ("sig=",), r"[?&;]sig=([A-Za-z0-9%+/]{40,}+={0,2})"),
    Format("password", ("://",), r"://[^\s/:@\"'<>]{0,255}+:([^\s/\"'<>]{1,255})@", is_no_placeholder),
)

FINDERS: tuple[tuple[str, tuple[str, ...], Callable[[str], Iterator[Span]]], ...] = (
    ("private key", ("PRIVATE KEY",), find_pem),
    ("aws key", ("AKIA", "ASIA"), find_aws),
    ("twilio key", ("SK", "AC"), find_twilio),
)

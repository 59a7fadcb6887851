"""How the secrets look that can not be taken for anything else: what hints at each, and what it then must match.

Every expression takes a bounded number of characters a start and repeats nothing that repeats, so that no text makes
one slow (G5).
"""

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

from afterturn.guard.named import compiled, is_no_placeholder

Span: TypeAlias = tuple[int, int]

# How far from the name of a key its secret half is looked for.
_NEAR_CHARS = 200
# How long that is at most, so that none is missed between two looks.
_SECRET_CHARS = 40
_PEM_CHARS_MAX = 32_768
_LONG_CHARS_MIN = 20
_LONG_CHARACTERS_MIN = 8
_PEM_LINE_CHARS_MIN = 24
_JWT_PARTS = 3
_JWT_HEADER_CHARS_MAX = 4_096
_JWT_BODY_CHARS_MIN = 16

# How a line break, a colour or a sign is written where it can not stand itself: in JSON, terminals, addresses, mails.
_CODE = (
    r"(?:\\[bfnrtv0e]|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\[0-3][0-7]{2}|\[[0-9;:?]{0,16}[A-Za-z]"
    r"|%[0-9A-Fa-f]{2}|=[0-9A-F]{2})\Z"
)
_CODE_CHARS_MAX = 20


class Format(NamedTuple):
    """`hints`: one of them is in every text that holds such a secret.

    Where a match has a group, that is the secret; `is_one` looks at the secret's text. Amid a word it must match
    `exact` besides: where its issuer's own lengths are met it is no word that merely ends like that.
    """

    kind: str
    hints: tuple[str, ...]
    pattern: str
    is_one: Callable[[str], bool] | None = None
    exact: str = ""

    def find(self, text: str) -> Iterator[Span]:
        for match in compiled(self.pattern).finditer(text):
            group = 1 if match.re.groups else 0
            if (group or self._stands_apart(text, match)) and self._is_secret(match.group(group)):
                yield match.span(group)

    def _stands_apart(self, text: str, match: re.Match[str]) -> bool:
        if _begins(text, match.start()):
            return True
        return bool(self.exact) and compiled(self.exact).fullmatch(match.group()) is not None

    def _is_secret(self, found: str) -> bool:
        return _is_varied(found) and (self.is_one is None or self.is_one(found))


def _is_varied(found: str) -> bool:
    """In a manual a key is a row of the same letter."""
    return len(found) < _LONG_CHARS_MIN or len(set(found)) >= _LONG_CHARACTERS_MIN


def _begins(text: str, at: int) -> bool:
    """Whether no word goes on there. An expression that looks behind itself would be slow where nothing matches.

    Scripts that part no words end one anywhere; and the last letter of a code for a line break, a colour or a sign is
    none of a word.
    """
    before = text[at - 1] if at else ""
    if not (before.isascii() and before.isalnum()):
        return True
    return compiled(_CODE).search(text[max(0, at - _CODE_CHARS_MAX) : at]) is not None


def _is_jwt(text: str) -> bool:
    """Parts, of which the first says how the last was signed. A limit or a terminal may have cut off the end."""
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
    """From the first line of a private key to its last; where that is cut off, as far as it looks like one."""
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
    """Where the lines of a key that is cut off end; `start` when there are none. Line breaks may be written as \\n."""
    line = compiled(r"(?:\\[nr]|[\s>|+#*\"']){0,16}+([A-Za-z0-9+/=]{1,4096}+)")
    end = start
    while end - start < _PEM_CHARS_MAX and (match := line.match(text, end)) is not None:
        if len(match.group(1)) < _PEM_LINE_CHARS_MIN:
            break
        end = match.end()
    return end


def find_aws(text: str) -> Iterator[Span]:
    """The key's name, and the secret that stands next to it."""
    # Not a commit's name, which has no capitals.
    secret = compiled(
        r"(?:(?<![A-Za-z0-9/+=])|(?<=\\[nrt])|(?<=%3D)|(?<=[0-9]m))(?![0-9a-f]{40})[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])"
    )
    yield from _pairs(text, r"A[KS]IA[A-Z2-7]{16}(?![A-Za-z0-9])", secret)


def find_twilio(text: str) -> Iterator[Span]:
    """A key, and the token that stands next to an account's name."""
    for match in compiled(r"SK[0-9a-f]{32}(?![A-Za-z0-9])").finditer(text):
        if _begins(text, match.start()):
            yield match.span()
    token = compiled(r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])|(?<=%3D)|(?<=[0-9]m))[0-9a-f]{32}(?![A-Za-z0-9])")
    account = r"AC[0-9a-f]{32}(?![A-Za-z0-9])"
    for start, end in _pairs(text, account, token):
        if not text.startswith("AC", start):
            yield start, end


def _pairs(text: str, name: str, secret: re.Pattern[str]) -> Iterator[Span]:
    """Where names stand close together, what is between them is looked at once."""
    done = 0
    for match in compiled(name).finditer(text):
        apart = _begins(text, match.start()) or text[match.start() - 1].islower()
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
    # Amid those of OpenAI its name stands in base64.
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
    Format("password", ("://",), r"://[^\s/:@\"'<>]{0,255}+:([^\s/\"'<>]{1,255})@", is_no_placeholder),
)

FINDERS: tuple[tuple[str, tuple[str, ...], Callable[[str], Iterator[Span]]], ...] = (
    ("private key", ("PRIVATE KEY",), find_pem),
    ("aws key", ("AKIA", "ASIA"), find_aws),
    ("twilio key", ("SK", "AC"), find_twilio),
)

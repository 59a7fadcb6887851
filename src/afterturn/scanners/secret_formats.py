"""The formats of secrets, as their issuers document them: a prefix, an alphabet and a length.

The time to search one grows no faster than the text: every expression matches a bounded number of characters from its
start or repeats possessively, and repeats nothing that repeats.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode, urlsafe_b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple, TypeAlias

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
_HEXADECIMAL_CHARS_MIN = 32
_DIGITS_ENOUGH = 4
_LOWER_RUN_MAX = 6
_DASHED_CHARS_MIN, _DASHED_DIGITS_MIN = 40, 8
# Dates, numbers and UUIDs with names before them, and words with dashes.
_DASHED = r"[a-z]{3,}[-/]|[0-9]{4}[-/]|[0-9a-f]{8}-|.*[a-z]{7}|.*-[0-9]{4}-"
_WITHOUT_DIGITS = str.maketrans("", "", "0123456789")

# Escapes of line breaks, colours and signs: in JSON, terminals, URLs and mails.
_CODE = (
    r"(?:\\[bfnrtv0e]|\\x[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\[0-3][0-7]{2}|\[[0-9;:?]{0,16}[A-Za-z]"
    r"|%[0-9A-Fa-f]{2}|=[0-9A-F]{2})\Z"
)
_CODE_CHARS_MAX = 20

_PLACEHOLDER = (
    r"^[$<%({\[]|[$%{][{(]|\*\*\*|\.\.\.|\u2026|x{4}|X{4}|(?i:example|changeme|change_me|change-me|placeholder|your|"
    r"redacted|dummy|^p[a@]ssw[o0]rd$|insert[-_ ]|replace[-_ ])"
)
_NO_VALUES = frozenset(["password", "passwd", "pass", "pwd", "secret", "token", "key", "none", "null", "true", "false"])
_CALL = r"[A-Za-z_][A-Za-z0-9_.]*+[(\[]"
_REFERENCE = r"[A-Za-z_][A-Za-z0-9_]*+\.[A-Za-z_]|[.~]?/[A-Za-z]"
_NAMED_SO = r"(?i:pass|secret|token|key|pwd)"


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Compiles a pattern when it is first needed: a hook must answer in milliseconds, and most texts need none."""
    return re.compile(pattern)


# What a value looks like


def is_value(text: str) -> bool:
    """Whether this is a value, and not a placeholder or the call that returns one."""
    return not (compiled(_PLACEHOLDER).search(text) or compiled(_CALL).match(text)) and text.lower() not in _NO_VALUES


def is_reference(text: str) -> bool:
    """Whether this names something: the attribute of an object, or a file."""
    return compiled(_REFERENCE).match(text) is not None


def is_scrambled(text: str) -> bool:
    """Whether letters and digits look like a random draw, not like words: CamelCase, a version, a date or a name."""
    digits = sum(character.isdigit() for character in text)
    groups = len(compiled(r"[0-9]+").findall(text))
    if text.lower() == text or text.upper() == text:
        return digits >= _DIGITS_ENOUGH and groups >= 3 and digits < len(text)
    if longest_run(text) > max(_LOWER_RUN_MAX, len(text) // 6):
        return False
    changes = len(compiled(r"(?<=[a-z])[A-Z0-9]|(?<=[A-Z])[a-z0-9]|(?<=[0-9])[A-Za-z]").findall(text))
    return digits >= 1 and changes >= 0.25 * len(text)


def is_scrambled_case(text: str) -> bool:
    """As `is_scrambled`, for letters alone: capitals in the middle of what is not made of words."""
    if not text.isalpha() or longest_run(text) > 3:
        return False
    return len(compiled(r"(?<=[a-z])[A-Z]|(?<=[A-Z])[a-z]").findall(text)) >= max(3, 0.2 * len(text))


def longest_run(text: str) -> int:
    """The length of the longest run of small letters."""
    return max(map(len, compiled(r"[a-z]+").findall(text)), default=0)


def is_random(text: str) -> bool:
    """Whether this looks random: small letters, capitals and digits, or a long hexadecimal number."""
    digits = sum("0" <= character <= "9" for character in text)
    if digits < 2 and not (len(text) >= _LONG_CHARS_MIN and is_scrambled_case(text.translate(_WITHOUT_DIGITS))):
        return False
    if not is_value(text) or is_reference(text) or not any(map(str.isalpha, text)):
        return False
    # "key" may be in a random draw too.
    if compiled(_NAMED_SO).search(text) and not (len(text) >= _LONG_CHARS_MIN and is_scrambled(text)):
        return False
    if "/" in text and "." in text:
        return False
    if len(text) >= _HEXADECIMAL_CHARS_MIN and compiled(r"[0-9a-fA-F]++").fullmatch(text):
        return _DIGITS_ENOUGH <= digits < len(text)
    if text.upper() != text and text.lower() != text:
        return True
    if "-" in text or "/" in text:
        return len(text) >= _DASHED_CHARS_MIN and digits >= _DASHED_DIGITS_MIN and not compiled(_DASHED).match(text)
    return is_scrambled(text)


def _has_digit(text: str) -> bool:
    return any(character.isdigit() for character in text)


def _is_body_random(text: str) -> bool:
    """For formats that have only a word such as `token_` in front of them."""
    body = compiled(r"[_-]").split(text)[-1]
    if len(body) >= _HEXADECIMAL_CHARS_MIN and compiled(r"[0-9a-f]++").fullmatch(body):
        return _DIGITS_ENOUGH <= sum(map(str.isdigit, body)) < len(body)
    return is_value(text) and sum(map(str.isdigit, body)) >= 2 and is_scrambled(body)


def _is_basic(text: str) -> bool:
    """Whether this is a name and a password in base64, as HTTP's basic authentication sends them."""
    decoded = decode(text)
    return decoded is not None and ":" in decoded.strip(":")


def decode(text: str) -> str | None:
    """The printable text that this is the base64 of, in either alphabet. None if it is not."""
    kept = text.rstrip("=").replace("-", "+").replace("_", "/")
    if len(kept) % 4 == 1:
        kept = kept[:-1]
    try:
        decoded = b64decode(kept + "=" * (-len(kept) % 4), validate=True).decode("utf-8")
    except ValueError:
        return None
    plain = decoded.replace("\n", " ").replace("\r", " ").replace("\t", " ")
    return decoded if plain.isprintable() else None


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
    return isinstance(fields, dict) and ("alg" in fields or "enc" in fields)


class Format(NamedTuple):
    """One format. Every text with such a secret contains one of the `hints`; without hints, it has a long word.

    If the pattern has a group, the group is the secret; `is_one` checks the text of the secret. A match inside a word
    must match `exact` too, which has the issuer's exact lengths.
    """

    kind: str
    hints: tuple[str, ...]
    pattern: str
    is_one: Callable[[str], bool] | None = None
    exact: str = ""

    def find(self, text: str, *, any_case: bool = False) -> Iterator[Span]:
        for match in compiled(f"(?i:{self.pattern})" if any_case else self.pattern).finditer(text):
            group = 1 if match.re.groups else 0
            if (group or self._is_separate(text, match)) and self._is_secret(match.group(group)):
                yield match.span(group)

    def _is_separate(self, text: str, match: re.Match[str]) -> bool:
        if is_word_start(text, match.start()):
            return True
        return bool(self.exact) and compiled(self.exact).fullmatch(match.group()) is not None

    def _is_secret(self, found: str) -> bool:
        return _is_varied(found) and (self.is_one is None or self.is_one(found))


def _is_varied(found: str) -> bool:
    """False for the keys in manuals, which repeat one letter."""
    return len(found) < _LONG_CHARS_MIN or len(set(found)) >= _LONG_CHARACTERS_MIN


def is_word_start(text: str, at: int) -> bool:
    """Whether a word may begin there: after anything but an ASCII letter or digit, or after an escape.

    A lookbehind in the pattern would be slow for texts without a match.
    """
    before = text[at - 1] if at else ""
    if not (before.isascii() and before.isalnum()):
        return True
    return compiled(_CODE).search(text[max(0, at - _CODE_CHARS_MAX) : at]) is not None


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
    yield from _pairs(text, r"A(?:[KS]IA|BIA|CCA)[A-Z2-7]{16}(?![A-Za-z0-9])", secret)


def find_twilio(text: str) -> Iterator[Span]:
    """A key, and the token next to an account's id."""
    for match in compiled(r"SK[0-9a-f]{32}(?![A-Za-z0-9])").finditer(text):
        if is_word_start(text, match.start()):
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
        apart = is_word_start(text, match.start()) or text[match.start() - 1].islower()
        if not apart or not _is_varied(match.group()) or match.group().endswith("EXAMPLE"):
            continue
        yield match.span()
        first, last = max(done, match.start() - _NEAR_CHARS), min(match.end() + _NEAR_CHARS, len(text))
        for other in secret.finditer(text, first, last):
            if _has_digit(other.group()) and any(map(str.isalpha, other.group())):
                yield other.span()
        done = max(done, last - _SECRET_CHARS)


_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"

FORMATS: tuple[Format, ...] = (
    # Our own, of `afterturn token create`
    Format("afterturn token", ("afterturn_",), r"afterturn_[A-Za-z0-9_-]{43}", exact=r"afterturn_[A-Za-z0-9_-]{43}"),
    # Code hosting and packages
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
        "gitlab token",
        ("gldt-", "glrt-", "glcbt-", "glptt-", "glft-", "glimt-", "glagent-", "glsoat-", "gloas-", "glffct-"),
        r"gl(?:dt|rt|cbt|ptt|ft|imt|agent|soat|oas|ffct)-[A-Za-z0-9_-]{20,}+",
        _has_digit,
    ),
    Format("gitlab token", ("GR1348941",), r"GR1348941[A-Za-z0-9_-]{20,}+"),
    Format("bitbucket token", ("ATBB", "ATCTT3"), r"AT(?:BB|CTT3)[A-Za-z0-9_=-]{24,}+", _has_digit),
    Format("atlassian token", ("ATATT3",), r"ATATT3[A-Za-z0-9_=-]{60,}+"),
    Format("npm token", ("npm_",), r"npm_[A-Za-z0-9]{36,}+", exact=r"npm_[A-Za-z0-9]{36}"),
    Format("pypi token", ("pypi-AgE",), r"pypi-AgE[A-Za-z0-9_-]{50,}+", exact=r"pypi-AgE[A-Za-z0-9_-]{50,}+"),
    Format("rubygems key", ("rubygems_",), r"rubygems_[0-9a-f]{48}"),
    Format("nuget key", ("oy2",), r"oy2[a-z0-9]{43}(?![A-Za-z0-9])"),
    Format("clojars token", ("CLOJARS_",), r"CLOJARS_[a-z0-9]{60}"),
    Format("crates.io token", ("cio",), r"cio[A-Za-z0-9]{32}(?![A-Za-z0-9])", is_scrambled),
    Format("docker token", ("dckr_",), r"dckr_[a-z]{3}_[A-Za-z0-9_-]{20,}+"),
    Format("jfrog key", ("AKCp",), r"AKCp[A-Za-z0-9]{60,}+"),
    Format("sonar token", ("sqp_", "squ_", "sqa_"), r"sq[pua]_[0-9a-f]{40}"),
    Format("sourcegraph token", ("sgp_",), r"sgp_(?:[0-9a-f]{16}_|local_)?[0-9a-fA-F]{40,}+"),
    Format("snyk token", ("snyk_",), r"snyk_(?:uat|sat)\.[0-9a-f]{8}\.[A-Za-z0-9._-]{20,}+"),
    Format("circleci token", ("CCIPAT_", "CCIPRJ_"), r"CCIP(?:AT|RJ)_[A-Za-z0-9]{8,}+_[0-9a-f]{40}"),
    Format("buildkite token", ("bkua_", "bkat_"), r"bk(?:ua|at)_[a-z0-9]{40}"),
    Format("jfrog key", ("cmVmd",), r"cmVmd[A-Za-z0-9]{59}(?![A-Za-z0-9])"),
    Format("sidekiq key", ("CONTRIBSYS__COM",), r"CONTRIBSYS__COM\W{1,4}([0-9a-f]{8}:[0-9a-f]{8})(?![0-9a-f])"),
    Format("gitlab session", ("_gitlab_session",), r"_gitlab_session\W{1,4}([0-9a-f]{32})(?![0-9a-f])"),
    Format("adafruit key", ("aio_",), r"aio_[A-Za-z0-9]{28}(?![A-Za-z0-9])", _has_digit),
    # Clouds and hosting
    Format("clickhouse key", ("4b1d",), r"(?<![A-Za-z0-9])4b1d[A-Za-z0-9]{38}(?![A-Za-z0-9])", is_scrambled),
    Format("defined key", ("dnkey-",), r"dnkey-[a-z0-9=_-]{26}-[a-z0-9=_-]{52}"),
    Format("scalingo token", ("tk-us-",), r"tk-us-[A-Za-z0-9_-]{48}", _has_digit),
    Format("settlemint token", ("sm_",), r"sm_(?:aat|pat|sat)_[A-Za-z0-9]{16,}+"),
    Format("convex key", ("|",), r"(?:prod|dev|preview):[a-z]{2,20}-[a-z]{2,20}-[0-9]{1,4}\|[A-Za-z0-9+/=]{40,}+"),
    Format("aws key", ("ABSK",), r"ABSK[A-Za-z0-9+/]{100,}+={0,2}"),
    Format("google key", ("AIza",), r"AIza[A-Za-z0-9_-]{35,}+", exact=r"AIza[A-Za-z0-9_-]{35}"),
    Format("google key", ("GOCSPX-",), r"GOCSPX-[A-Za-z0-9_-]{20,}+", exact=r"GOCSPX-[A-Za-z0-9_-]{28}"),
    Format("google token", ("ya29.",), r"ya29\.[A-Za-z0-9_-]{20,}+(?:\.[A-Za-z0-9_-]{1,512}+)?"),
    Format("google token", ("1//0",), r"1//0[A-Za-z0-9_-]{38,}+"),
    Format("firebase key", (":APA91",), r"[A-Za-z0-9_-]{8,32}+:APA91[A-Za-z0-9_-]{100,}+"),
    Format("firebase key", ("AAAA",), r"AAAA[A-Za-z0-9_-]{7}:[A-Za-z0-9_-]{100,}+"),
    Format("azure key", ("AccountKey=",), r"AccountKey=([A-Za-z0-9+/]{40,}+={0,2})"),
    Format("azure key", ("SharedAccessKey=",), r"SharedAccessKey=([A-Za-z0-9+/]{40,}+={0,2})"),
    Format("azure signature", ("sig=",), r"[?&;]sig=([A-Za-z0-9%+/]{40,}+={0,2})"),
    Format("azure secret", ("Q~",), r"(?<![A-Za-z0-9_~.-])[A-Za-z0-9_~.-]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}"),
    Format("azure key", ("AZDO",), r"(?<![A-Za-z0-9])[A-Za-z0-9]{75,77}AZDO[A-Za-z0-9]{4}"),
    Format("alibaba key", ("LTAI",), r"LTAI[A-Za-z0-9]{12,26}(?![A-Za-z0-9])", is_random),
    Format("tencent key", ("AKID",), r"AKID[A-Za-z0-9]{32}(?![A-Za-z0-9])", is_scrambled),
    Format("yandex key", ("AQVN",), r"AQVN[A-Za-z0-9_-]{35,38}(?![A-Za-z0-9_-])"),
    Format("yandex token", ("y0_",), r"y0_[A-Za-z0-9_-]{55,}+"),
    Format("yandex token", ("t1.",), r"t1\.[A-Za-z0-9_-]{50,}+={0,2}\.[A-Za-z0-9_-]{80,}+={0,2}"),
    Format("digitalocean token", ("_v1_",), r"do[opr]_v1_[0-9a-f]{64,}+", exact=r"do[opr]_v1_[0-9a-f]{64}"),
    Format("together key", ("tgp_v1_",), r"tgp_v1_[A-Za-z0-9_-]{30,}+"),
    Format("heroku key", ("HRKU-",), r"HRKU-[A-Za-z0-9_-]{30,}+", _has_digit),
    Format("fly token", ("fm1", "fm2_", "fo1_"), r"(?:fm1[ar]|fm2|fo1)_[A-Za-z0-9_+/=-]{40,}+", _has_digit),
    Format("netlify token", ("nfp_", "nfc_"), r"nf[pc]_[A-Za-z0-9_]{36,}+"),
    Format("vercel token", ("vercel_", "vcp_", "vck_"), r"(?:vercel_|vc[pk]_)[A-Za-z0-9_]{24,}+", _is_body_random),
    Format("render key", ("rnd_",), r"rnd_[A-Za-z0-9]{28,}+", _has_digit),
    Format("cloudflare key", ("v1.0-",), r"v1\.0-[0-9a-f]{24}-[0-9a-f]{100,}+"),
    Format("cloudflare token", ("cfut_", "cfat_", "cfk_"), r"cf(?:ut|at|k)_[A-Za-z0-9_-]{36,}+"),
    Format("vault token", ("hvs.", "hvb.", "hvr."), r"hv[sbr]\.[A-Za-z0-9_-]{24,}+"),
    Format("vault token", ("s.",), r"(?<![A-Za-z0-9_.-])s\.[A-Za-z0-9]{24}(?![A-Za-z0-9_.(-])", is_scrambled),
    Format("terraform token", (".atlasv1.",), r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,}+"),
    Format("pulumi token", ("pul-",), r"pul-[0-9a-f]{40}"),
    Format("doppler token", ("dp.",), r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}"),
    Format("1password token", ("ops_eyJ",), r"ops_eyJ[A-Za-z0-9+/=_-]{100,}+"),
    Format("1password key", ("A3-",), r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}"),
    Format("openshift token", ("sha256~",), r"sha256~[A-Za-z0-9_-]{43}"),
    Format("tailscale key", ("tskey-",), r"tskey-[a-z]{2,8}-[A-Za-z0-9_-]{16,}+", _has_digit),
    Format("databricks token", ("dapi",), r"dapi[0-9a-f]{32}(?:-[0-9])?(?![A-Za-z0-9])"),
    Format("planetscale secret", ("pscale_",), r"pscale_[a-z]{2,5}_[A-Za-z0-9_=.-]{32,}+"),
    Format("supabase key", ("sbp_", "sb_secret_"), r"(?:sbp_[0-9a-f]{40}|sb_secret_[A-Za-z0-9_-]{24,}+)"),
    Format("neon key", ("napi_",), r"napi_[a-z0-9]{40,}+", _has_digit),
    Format("prefect key", ("pnu_", "pnb_"), r"pn[ub]_[A-Za-z0-9]{36}"),
    Format("harness token", ("pat.", "sat."), r"[ps]at\.[A-Za-z0-9_-]{22}\.[0-9a-f]{24}\.[A-Za-z0-9]{20}"),
    Format("age key", ("AGE-SECRET-KEY-",), r"AGE-SECRET-KEY-1[0-9A-Z]{50,}+", exact=r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    # Models
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
        r"sk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{20,}+",
        exact=r"sk-[a-zN]{4,8}-[A-Za-z0-9_-]{20,80}?T3BlbkFJ[A-Za-z0-9_-]{20,80}",
    ),
    Format(
        "openai key", ("sk-",), r"sk-[A-Za-z0-9]{32,}+", _has_digit, exact=r"sk-[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}"
    ),
    Format("langfuse key", ("sk-lf-",), rf"sk-lf-{_UUID}"),
    Format("langsmith key", ("lsv2_",), r"lsv2_[a-z]{2}_[0-9a-f]{32}_[0-9a-f]{10}"),
    Format("hugging face token", ("hf_",), r"hf_[A-Za-z0-9]{30,}+", exact=r"hf_[A-Za-z0-9]{34}"),
    Format("hugging face token", ("api_org_",), r"api_org_[A-Za-z0-9]{30,}+"),
    Format("groq key", ("gsk_",), r"gsk_[A-Za-z0-9]{40,}+"),
    Format("xai key", ("xai-",), r"xai-[A-Za-z0-9]{60,}+"),
    Format("replicate token", ("r8_",), r"r8_[A-Za-z0-9]{37}"),
    Format("perplexity key", ("pplx-",), r"pplx-[A-Za-z0-9]{40,}+"),
    Format("nvidia key", ("nvapi-",), r"nvapi-[A-Za-z0-9_-]{40,}+"),
    Format("cerebras key", ("csk-",), r"csk-[a-z0-9]{40,}+", _has_digit),
    Format("fireworks key", ("fw_",), r"fw_[A-Za-z0-9]{22,}+", is_scrambled),
    Format("pinecone key", ("pcsk_",), r"pcsk_[A-Za-z0-9]{4,8}_[A-Za-z0-9]{40,}+"),
    Format("tavily key", ("tvly-",), r"tvly-(?:dev-|prod-)?[A-Za-z0-9]{20,}+", _has_digit),
    Format("firecrawl key", ("fc-",), r"fc-[0-9a-f]{32}(?![A-Za-z0-9])"),
    Format("llamacloud key", ("llx-",), r"llx-[A-Za-z0-9]{40,}+"),
    Format("jina key", ("jina_",), r"jina_[A-Za-z0-9_-]{40,}+", _has_digit),
    Format("elevenlabs key", ("sk_",), r"sk_[0-9a-f]{48}(?![A-Za-z0-9])"),
    Format("wandb key", ("wandb_v1_",), r"wandb_v1_[A-Za-z0-9_]{40,}+"),
    # Payment and commerce
    Format(
        "stripe key",
        ("k_live_", "k_test_"),
        r"[rs]k_(?:live|test)_[A-Za-z0-9]{16,}+",
        exact=r"[rs]k_(?:live|test)_(?:[A-Za-z0-9]{24}|[A-Za-z0-9]{98,104})",
    ),
    Format("webhook secret", ("whsec_",), r"whsec_[A-Za-z0-9+/=]{24,}+"),
    Format("square token", ("EAAA",), r"EAAA[A-Za-z0-9_-]{60}(?![A-Za-z0-9_-])"),
    Format("square secret", ("sq0",), r"sq0[a-z]{3}-[A-Za-z0-9_-]{22,}+"),
    Format("paypal token", ("access_token$",), r"access_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[0-9a-f]{32}"),
    Format("plaid token", ("access-",), rf"access-(?:sandbox|development|production)-{_UUID}"),
    Format("shopify token", ("shpat_", "shpca_", "shppa_", "shpss_"), r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    Format("flutterwave key", ("FLWSECK",), r"FLWSECK(?:_TEST)?-[0-9a-h]{12,}+-X"),
    Format("razorpay key", ("rzp_",), r"rzp_(?:live|test)_[A-Za-z0-9]{14,}+"),
    Format("easypost key", ("EZAK", "EZTK"), r"EZ[AT]K[A-Za-z0-9]{54}"),
    Format("shippo token", ("shippo_",), r"shippo_(?:live|test)_[0-9a-f]{40}"),
    Format("duffel token", ("duffel_",), r"duffel_(?:live|test)_[A-Za-z0-9_=-]{40,}+"),
    Format("secret", ("live_", "test_"), r"(?:live|test)_[A-Za-z0-9_=-]{35,}+", is_random),
    # Messages and mail
    Format("mailersend key", ("mlsn.",), r"mlsn\.[0-9a-f]{64}"),
    Format("twitch token", ("oauth:",), r"oauth:[a-z0-9]{30}(?![A-Za-z0-9])", _has_digit),
    Format("42 secret", ("s-s4t2",), r"s-s4t2(?:ud|af)-[0-9a-f]{64}"),
    Format(
        "slack token",
        ("xox",),
        r"xox[abeoprs]-[A-Za-z0-9-]{10,}+",
        _has_digit,
        exact=r"xox[abeoprs]-(?:[0-9]{1,14}-){1,4}[A-Za-z0-9]{20,}+",
    ),
    Format("slack token", ("xoxe.",), r"xoxe\.xox[bp]-[0-9]-[A-Za-z0-9-]{40,}+"),
    Format("slack cookie", ("xoxd-",), r"xoxd-[A-Za-z0-9%+/=_-]{40,}+"),
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
        "discord webhook", ("/api/webhooks/",), r"discord(?:app)?\.com/api/webhooks/([0-9]{15,22}/[A-Za-z0-9_-]{40,}+)"
    ),
    Format(
        "discord token",
        (),
        r"(?<![A-Za-z0-9_.-])[MNO][A-Za-z0-9_-]{22,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}(?![A-Za-z0-9_.-])",
        _has_digit,
    ),
    Format(
        "teams webhook",
        (".webhook.office.com/", "outlook.office.com/webhook"),
        r"office\.com/webhook(?:b2)?/([0-9a-f@-]{36,80}+/IncomingWebhook/[A-Za-z0-9/-]{32,}+)",
    ),
    Format("zapier webhook", ("hooks.zapier.com/",), r"hooks\.zapier\.com/hooks/catch/([0-9]{4,12}/[A-Za-z0-9]{5,}+)"),
    Format(
        "telegram token",
        (":AA",),
        r"(?<![0-9])[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])",
        exact=r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}",
    ),
    Format(
        "sendgrid key",
        ("SG.",),
        r"SG\.[A-Za-z0-9_-]{16,32}+\.[A-Za-z0-9_-]{32,}+",
        exact=r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}",
    ),
    Format("mailgun key", ("key-",), r"key-[0-9a-f]{32}(?![A-Za-z0-9])"),
    Format("mailgun key", (), r"(?<![A-Za-z0-9-])[0-9a-f]{32}-[0-9a-f]{8}-[0-9a-f]{8}(?![A-Za-z0-9-])"),
    Format("mailchimp key", ("-us",), r"(?<![A-Za-z0-9-])[0-9a-f]{32}-us[0-9]{1,2}(?![A-Za-z0-9])"),
    Format("brevo key", ("xkeysib-", "xsmtpsib-"), r"x(?:key|smtp)sib-[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    Format("resend key", ("re_",), r"re_[A-Za-z0-9]{6,10}_[A-Za-z0-9]{20,}+", _has_digit),
    Format("postmark token", ("PMAT-", "PMAK-"), r"PMA[TK]-[0-9a-f]{24}-[0-9a-f]{34}"),
    # Work and data
    Format("notion token", ("ntn_",), r"ntn_[A-Za-z0-9]{40,}+"),
    Format("linear key", ("lin_",), r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}+"),
    Format("airtable token", ("pat",), r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    Format("asana token", (), r"(?<![0-9/])[0-9]/[0-9]{15,20}(?:/[0-9]{15,20})?:[0-9a-f]{32}(?![0-9a-f])"),
    Format("figma token", ("figd_", "figo_", "figu_"), r"fig[dou]_[A-Za-z0-9_-]{36,}+"),
    Format("hubspot token", ("pat-",), rf"pat-[a-z]{{2}}[0-9]-{_UUID}"),
    Format("typeform token", ("tfp_",), r"tfp_[A-Za-z0-9_.=-]{40,}+"),
    Format("contentful token", ("CFPAT-",), r"CFPAT-[A-Za-z0-9_-]{40,}+"),
    Format("dropbox token", ("sl.",), r"sl\.(?:u\.)?[A-Za-z0-9_-]{100,}+"),
    Format("adobe secret", ("p8e-", "p8-"), r"p8e?-[A-Za-z0-9_-]{32,}+", _has_digit),
    Format("frame.io token", ("fio-u-",), r"fio-u-[A-Za-z0-9_=-]{60,}+"),
    Format("readme key", ("rdme_",), r"rdme_[a-z0-9]{70}"),
    Format("apify token", ("apify_api_",), r"apify_api_[A-Za-z0-9]{30,}+"),
    Format("algolia key", ("algolia",), r"algolia[A-Za-z0-9_ -]{0,24}[\"']?\s{0,2}[:=]\s{0,2}[\"']?([0-9a-f]{32})"),
    Format("mapbox token", ("sk.eyJ", "tk.eyJ"), r"[st]k\.eyJ[A-Za-z0-9_-]{40,}+\.[A-Za-z0-9_-]{20,}+"),
    Format("maxmind key", ("_mmk",), r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk"),
    Format("rapidapi key", ("jsn",), r"[0-9a-f]{10}msh[0-9a-f]{15}p1[0-9a-f]{6}jsn[0-9a-f]{12}"),
    Format("facebook token", ("EAA",), r"EAA[A-Za-z0-9]{80,}+"),
    Format("instagram token", ("IGQV", "IGAA"), r"IG(?:QV|AA)[A-Za-z0-9_-]{80,}+"),
    Format("twitter token", ("AAAAAAAAAA",), r"A{18,24}[A-Za-z0-9%]{60,}+"),
    Format("linkedin secret", ("WPL_AP",), r"WPL_AP[01]\.[A-Za-z0-9+/=._-]{16,}+"),
    Format("intercom token", ("dG9rO",), r"dG9rO[A-Za-z0-9+/]{50,}+={0,2}"),
    # Observation
    Format("grafana token", ("eyJrIjoi",), r"eyJrIjoi[A-Za-z0-9+/]{70,}+={0,3}"),
    Format("grafana token", ("glsa_",), r"glsa_[A-Za-z0-9]{32}_[0-9a-fA-F]{8}"),
    Format("grafana token", ("glc_eyJ",), r"glc_eyJ[A-Za-z0-9+/=]{30,}+"),
    Format("newrelic key", ("NRAK-", "NRII-", "NRAA-", "NRRA-"), r"NR(?:AK|II|AA|RA)-[A-Za-z0-9_-]{27,}+"),
    Format("newrelic key", ("NRAL",), r"[0-9a-f]{36}(?:FFFF)?NRAL"),
    Format("dynatrace token", ("dt0",), r"dt0[a-z][0-9]{2}\.[A-Z0-9]{8,24}\.[A-Z0-9]{60,}+"),
    Format("sentry token", ("sntrys_", "sntryu_"), r"sntry[su]_[A-Za-z0-9+/=_-]{40,}+"),
    Format("launchdarkly key", ("sdk-", "api-", "mob-"), rf"(?:sdk|api|mob)-{_UUID}"),
    Format("posthog key", ("phx_", "phs_"), r"ph[xs]_[A-Za-z0-9]{36,}+"),
    Format("infracost key", ("ico-",), r"ico-[A-Za-z0-9]{32}"),
    Format("pagerduty key", ("u+",), r"(?<![A-Za-z0-9+])u\+[A-Za-z0-9_-]{18}(?![A-Za-z0-9_-])"),
    Format("splunk token", ("Splunk ",), rf"Splunk ({_UUID})"),
    Format("elastic key", ("essu_", "essa_"), r"ess[ua]_[A-Za-z0-9+/=]{40,}+"),
    Format("octopus key", ("API-",), r"API-[A-Z0-9]{25,32}(?![A-Za-z0-9])", _has_digit),
    Format("okta token", ("SSWS ",), r"SSWS (00[A-Za-z0-9_-]{38,42})"),
    # What a text reveals by itself
    Format("web token", ("eyJ",), r"eyJ[A-Za-z0-9_.-]{30,}+", _is_jwt, exact=r"eyJ[A-Za-z0-9_.-]{30,}+"),
    Format(
        "secret",
        tuple(
            word + sign
            for word in ("sk", "rk", "key", "pat", "token", "tok", "tkn", "secret", "sec", "auth", "pw")
            for sign in "_-"
        ),
        r"(?<![A-Za-z0-9])(?:[A-Za-z][A-Za-z0-9]{0,15}[_-])?(?:[A-Za-z][A-Za-z0-9]{0,15}[_-])?(?:sk|rk|key|apikey|pat|token|tok|tkn|secret|sec|auth|pw)"
        r"(?:[_-][A-Za-z0-9]{1,10})?(?:[_-][A-Za-z0-9]{1,10})?[_-][A-Za-z0-9]{22,}+(?![A-Za-z0-9_-])",
        _is_body_random,
    ),
    Format("password", ("://",), r"://[^\s/:@\"'<>]{0,255}+:([^\s/\"'<>]{1,255})@", is_value),
    Format("password", ("asic ",), r"[Bb]asic ([A-Za-z0-9+/_-]{12,512}+={0,2})", _is_basic),
    Format("password", (" -u", "--user"), r" (?:-u|--user)[ =]?[\"']?[^\s:\"'/]{1,64}:([^\s\"':/]{4,128})", is_value),
    Format(
        "password",
        ("mysql", "mariadb"),
        r"(?:mysql|mariadb)[a-z]{0,5}\s[^\n|;]{0,80}?\s-p([^\s'\"-][^\s'\"]{3,63})",
        is_value,
    ),
    Format("password", ("ldap",), r"ldap[a-z]{2,8}\s[^\n|;]{0,120}?\s-w[ =]?[\"']?([^\s'\"-][^\s'\"]{3,63})", is_value),
    Format(
        "one-time password secret", ("otpauth:",), r"otpauth://[^\s?]{1,200}\?[^\s]{0,100}?secret=([A-Za-z2-7]{16,}+)"
    ),
    Format("password", (" value=",), r"(?i:password|passwd|pwd)[\"'] {1,3}value=[\"']([^\"'\n]{4,64})[\"']", is_value),
    Format("password", ("sshpass",), r"sshpass -p[ =]?[\"']?([^\s'\"]{4,64})", is_value),
    Format(
        "password",
        (":5432:", ":3306:", ":*:"),
        r":(?:5432|3306|\*):[^\s:]{1,64}:[^\s:]{1,64}:([^\s:]{4,128})",
        is_value,
    ),
    Format("password", ("dentified by", "DENTIFIED BY"), r"(?i:identified by) [\"']([^\"'\n]{4,64})[\"']", is_value),
)


def find_putty(text: str) -> Iterator[Span]:
    """The private lines of a key of PuTTY."""
    for match in compiled(r"Private-Lines: [0-9]{1,3}").finditer(text):
        end = _end_of_key(text, match.end())
        if end > match.end():
            yield match.end(), end


FINDERS: tuple[tuple[str, tuple[str, ...], Callable[[str], Iterator[Span]]], ...] = (
    ("private key", ("PRIVATE KEY",), find_pem),
    ("private key", ("Private-Lines",), find_putty),
    ("aws key", ("AKIA", "ASIA", "ABIA", "ACCA"), find_aws),
    ("twilio key", ("SK", "AC"), find_twilio),
)


_Finder: TypeAlias = tuple[str, Callable[[str], Iterable[Span]]]
# A secret of a known format is one word, at least as long as this.
_WORD_CHARS_MIN = 12
_LONG_WORD_CHARS_MIN = 36


def find_formats(text: str) -> Iterator[tuple[str, int, int]]:
    """(kind, start, end) of what has a known format. Hints are searched in long words only: most texts have none."""
    # A dictionary, because two hints may lead to one finder, and in order.
    finders: dict[_Finder, None] = {}
    words = [word for word in text.split() if len(word) >= _WORD_CHARS_MIN]
    if words:
        long = " ".join(words)
        for sign, hints in _HINTS_BY_SIGN:
            if sign in long:
                for hint in [hint for hint in hints if hint in long]:
                    finders.update(dict.fromkeys(_FINDERS_BY_HINT[hint]))
        if max(map(len, words)) >= _LONG_WORD_CHARS_MIN:
            finders.update(dict.fromkeys(_FINDERS_BY_HINT[""]))
    for hint in [hint for hint in _SPOKEN_HINTS if hint in text]:
        finders.update(dict.fromkeys(_FINDERS_BY_HINT[hint]))
    for kind, find in finders:
        for start, end in find(text):
            yield kind, start, end
    yield from _find_uppercase(text, [word for word in words if word.isupper()])


def _find_uppercase(text: str, words: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Formats of one issuer in words that are in capitals throughout, as forms and labels print them."""
    uppercase = " ".join(word for word in words if compiled(r"[0-9A-Z]{16}").search(word)).lower()
    for format in FORMATS if uppercase else ():
        if format.kind not in ("secret", "password") and any(hint.lower() in uppercase for hint in format.hints):
            for start, end in format.find(text, any_case=True):
                if text[start:end].isupper() and compiled(r".*?\d.*?\d|.*?[0-9A-Z]{30}").match(text, start, end):
                    yield format.kind, start, end


def _by_hint() -> Mapping[str, Sequence[_Finder]]:
    finders: dict[str, list[_Finder]] = {}
    for kind, hints, find in (*((format.kind, format.hints, format.find) for format in FORMATS), *FINDERS):
        for hint in hints or ("",):
            finders.setdefault(hint, []).append((kind, find))
    return finders


def _by_sign() -> Sequence[tuple[str, Sequence[str]]]:
    """The hints by a character that they contain: searching for one character is thirty times as fast as for three."""
    groups: dict[str, list[str]] = {}
    for hint in filter(None, _FINDERS_BY_HINT):
        if hint not in _SPOKEN_HINTS:
            groups.setdefault(next((sign for sign in "_=@/:.-" if sign in hint), ""), []).append(hint)
    return tuple(groups.items())


# Hints that are words of their own, apart from the secret.
_SPOKEN_HINTS = (
    *("PRIVATE KEY", "asic ", " -u", "--user", "mysql", "mariadb", "sshpass", "dentified by", "DENTIFIED BY"),
    *("Splunk ", "SSWS ", "algolia", "ldap", " value="),
)
_FINDERS_BY_HINT = _by_hint()
_HINTS_BY_SIGN = _by_sign()

"""Finds secrets in texts and redacts them: by the formats of issuers, by labels, and in sentences.

It finds what is unmistakable and nothing else. `secret_formats.py` has the formats, `secret_labels.json` the names;
the time grows no faster than the text.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from afterturn.scanners.detection import Detection, Scanner, without_overlaps
from afterturn.scanners.secret_formats import (
    UUID,
    compiled,
    decode,
    find_formats,
    is_random,
    is_reference,
    is_scrambled,
    is_scrambled_case,
    is_value,
    longest_run,
)
from afterturn.text import content_hash, regex

# How far a scan reads beyond the end that a text is cut at, so that no half of a secret remains.
MARGIN_CHARS = 8_192
_CLEAN_MAX = 4_096


# Secrets behind a label: "password: …", "api_key=…", "das Passwort lautet …", and before one: "use … as password".
# Each occurrence of a name costs a bounded number of characters, and names without a possible value near them are
# skipped at once. The keys "why" of the lists say what each is for.

_LISTS = json.loads(Path(__file__).with_name("secret_labels.json").read_bytes())
_NAMES: Mapping[str, tuple[str, ...]] = {name: tuple(row["names"]) for name, row in _LISTS.items()}
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

# Words with a digit that are not passwords, even next to "password": hashes, encodings, products, counts, ranges,
# dates, versions.
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
    """The pattern of what follows the names: the text between (a sign or a verb), and the value after that."""

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


# By the stem that they contain; those in other scripts under the blank one.
_NAMES_BY_STEM: dict[str, list[_Name]] = {}
for _name in (
    *(_Name(name, label, False) for label in _LABELS for name in label.names),
    *(_Name(name, label, True) for label in _LABELS for name in label.words),
):
    _stem = next((stem for stem in _NAMES["stems"] if stem in _name.text), "")
    assert _stem or not _name.text.isascii(), _name.text
    _NAMES_BY_STEM.setdefault(_stem, []).append(_name)


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
    # As the end of a variable of the environment, as in SNYK_TOKEN, every name is clear.
    at = behind - len(name)
    is_constant = text[at:behind].isupper() and text[at - 1 : at] == "_" and text[at - 2 : at - 1].isupper()
    is_clear = name in _CLEAR or is_constant
    checks = [
        label.is_one,
        *([is_distinct_key] if is_clear else []),
        *([is_strong] if name == "secret" else []),
        *([is_pin] if name in _PINS else []),
    ]
    if begins is None and name not in label.words:
        begins = compiled(rf"{suffix}{_BARE}").match(text, behind)
        if not text.startswith("--", at - 2):
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


class Redacted(NamedTuple):
    """A text without its secrets, and the kinds of the removed ones, in order."""

    text: str
    kinds: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """The reason stored with a memory, such as "github token redacted". Blank if nothing was redacted."""
        return f"{', '.join(dict.fromkeys(self.kinds))} redacted" if self.kinds else ""


class SecretScanner:
    """Finds known formats, values behind labels, and both where they are wrapped or encoded."""

    name = "secrets"

    def __init__(self) -> None:
        # The hashes of texts without secrets: a message is scanned before it waits to be stored, when it is stored, and
        # in every list that contains it.
        self._clean: set[int] = set()

    def find(self, text: str) -> Sequence[Detection]:
        key = hash(text)
        if key in self._clean:
            return ()
        found = list(_find_plain(text))
        if "\n" in text:
            found.extend(_find_wrapped(text))
        if "%" in text:
            found.extend(_find_percent_encoded(text))
        if not text.isascii():
            found.extend(_find_disguised(text))
        if found:
            return without_overlaps(found)
        if len(self._clean) >= _CLEAN_MAX:
            self._clean.clear()
        self._clean.add(key)
        return ()


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

    def __init__(self, scanner: Scanner, *, entries_max: int) -> None:
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


def _find_plain(text: str) -> Iterator[Detection]:
    for one in find_formats(text):
        yield Detection(*one)
    for one in find_labelled(text):
        yield Detection(*one)
    if max(map(len, text.split()), default=0) >= _ENCODED_CHARS_MIN:
        yield from _find_encoded(text)


# Secrets that are wrapped, split or encoded

# A line break between two words, with the indentation, quotation or continuation marks around it.
_BREAK = r"\n[ \t>|#*+\"']{0,16}(?=[A-Za-z0-9+/_=.-])"
_BREAKS_MAX = 2_000
_ESCAPES_MAX = 20_000
_PIECE_CHARS_MAX = 96
_LAST_WORD = r"[^\s\"'`]{1,96}\Z"
# The end of a key is all that it has in common with a word: it may be followed by a quotation mark, not by a colon.
_FIRST_WORD = r"[A-Za-z0-9+/_.%-]{1,96}={0,2}(?=[\s\"'`,;)&\\]|\Z)"
_ENCODED = r"[A-Za-z0-9+/_-]{24,}+={0,2}"
_ENCODED_CHARS_MIN = 24
_ENCODED_CHARS_MAX = 16_384
_ENCODED_MAX = 64
_PROBE_CHARS = 48


def _find_wrapped(text: str) -> Iterator[Detection]:
    """Secrets with line breaks inside, as terminals and mails wrap them, and messages in several parts."""
    gaps = []
    for match in islice(compiled(_BREAK).finditer(text), _BREAKS_MAX):
        start, end = match.span()
        start -= text.endswith("\r", 0, start)
        start -= text.endswith("\\", 0, start)
        if _is_inside_key(text, start, end):
            gaps.append((start, end))
    yield from _find_across(text, gaps)


def _find_percent_encoded(text: str) -> Iterator[Detection]:
    """Secrets with some or all characters as escapes of URLs, encoded once or more often."""
    escapes = list(islice(compiled(r"%(?:25){0,3}([2-7][0-9A-Fa-f])").finditer(text), _ESCAPES_MAX))
    pieces, done = [], 0
    for match in escapes:
        # The character takes the last place of its escape, so that all places stay as they are.
        pieces += [text[done : match.end() - 1], chr(int(match.group(1), 16))]
        done = match.end()
    yield from _find_across("".join([*pieces, text[done:]]), [(one.start(), one.end() - 1) for one in escapes])


def _find_disguised(text: str) -> Iterator[Detection]:
    """Secrets with characters inside that are not drawn, and in full-width letters."""
    plain = text
    if compiled(_FULL_WIDTH).search(text) is not None:
        plain = text.translate(_HALF_WIDTH)
        yield from _find_plain(plain)
    yield from _find_across(plain, [match.span() for match in islice(compiled(_HIDDEN).finditer(plain), _BREAKS_MAX)])


def _find_across(text: str, gaps: Sequence[tuple[int, int]]) -> Iterator[Detection]:
    """Secrets that are found if the gaps are taken out, by their places in the text."""
    if not gaps:
        return
    pieces, joins, removed, done = [], [], [0], 0
    for start, end in gaps:
        pieces.append(text[done:start])
        joins.append(start - removed[-1])
        removed.append(removed[-1] + end - start)
        done = end
    for secret in _find_plain("".join([*pieces, text[done:]])):
        first, last = bisect_right(joins, secret.start), bisect_left(joins, secret.end)
        yield Detection(secret.kind, secret.start + removed[first], secret.end + removed[max(first, last)])


def _is_inside_key(text: str, start: int, end: int) -> bool:
    """Whether the words on both sides of a line break look like pieces of one key, and not like words of a text."""
    found = compiled(_LAST_WORD).search(text, max(0, start - _PIECE_CHARS_MAX), start)
    before = found.group() if found is not None else ""
    after = compiled(_FIRST_WORD).match(text, end, end + _PIECE_CHARS_MAX)
    if "://" in before and "@" in text[end : end + _PIECE_CHARS_MAX].split(None, 1)[0]:
        return True
    if after is None or not _is_piece(after.group()):
        return False
    if _is_piece(before) or "_" in before or before.endswith(("-", ".")):
        return True
    # "sk-ant-a", and a long rest on the next line.
    is_split = after.group()[0] in "_-" or compiled(r"\w[-=:/.]").search(before) is not None
    return is_split and len(after.group()) >= _REST_CHARS_MIN


def _is_piece(text: str) -> bool:
    if text.isdecimal():
        return len(text) >= _PIECE_DIGITS_MIN
    if any(map(str.isdigit, text)):
        return True
    return text.endswith("=") or (text.lower() != text and text[1:].lower() != text[1:])


_PIECE_DIGITS_MIN = 5
_REST_CHARS_MIN = 12
_FULL_WIDTH = "[\uff10-\uff5a]{8}"
# Characters that are not drawn, inside a word in ASCII.
_HIDDEN = (
    "(?<=[!-~])[\u00ad\u034f\u061c\u115f\u1160\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\U000e0000-\U000e0fff]{1,64}+(?=[!-~])"
)
_HALF_WIDTH = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}


def _find_encoded(text: str) -> Iterator[Detection]:
    """Texts in base64 or hexadecimal with a secret inside: as a whole, since any part of one is enough to read it."""
    for match in islice(compiled(_ENCODED).finditer(text), _ENCODED_MAX):
        found = match.group()[:_ENCODED_CHARS_MAX]
        if compiled(r"[2-7][0-9A-Fa-f](?:[0-9A-Fa-f]{2}){11,}+").fullmatch(found):
            found = b64encode(bytes.fromhex(found)).decode()
        if decode(found[:_PROBE_CHARS].rstrip("=")[: len(found) // 4 * 4 or None]) is None:
            continue
        decoded = decode(found)
        if decoded is not None:
            for kind, _, _ in (*find_formats(decoded), *find_labelled(decoded)):
                yield Detection(kind, *match.span())
                break


# Passwords, PINs and keys in a sentence: "the password is hunter2" has no format, but its words reveal it

_SECRET_SENTENCE = regex(
    r"\b(?:password|passphrase|passcode|pin|api key|(?:secret|access|private) key|(?:access|auth) token|passwort|"
    r"kennwort|mot de passe|contraseña)(?: (?:of|for|to|von|für|de|du)\b[^.!?\n]{0,30}?)?"
    r"(?: (?:is|are|ist|lautet|est|es)\b|\s?[:=])",
    re.IGNORECASE,
)
_SENTENCE_END = regex(r"[.,;!?]+(?:\s|$)|\n")
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


_SCANNER = SecretScanner()

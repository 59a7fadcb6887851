"""Text as the lexical index sees it, and the hash that identifies it. Pure and shared by every store."""

import re
import unicodedata
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b

import Stemmer

# Whatever makes the same text give other terms needs a migration that indexes every store anew.
TERMS_MAX = 8192
TERM_CHARS_MAX = 40
# Beyond these a text is a document, not a statement: what follows is not indexed, and it is hashed as it stands.
INDEXED_CHARS_MAX = 131_072
FOLDED_CHARS_MAX = 65_536

_MARKS = (
    r"\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    r"\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0900-\u0963\u0971-\u0dff\u0f18-\u0fbc\u1ab0-\u1aff\u1dc0-\u1dff"
    r"\u20d0-\u20ff\ufe20-\ufe2f"
)
# Scripts written without spaces are indexed by pairs of characters.
_UNSPACED = (
    r"\u0e01-\u0e4e\u0e81-\u0ece\u1000-\u109f\u1780-\u17d3\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
    r"\U00020000-\U0003ffff"
)
# What `_any_word` comes to where there is nothing but ASCII, at a quarter of the time.
_PLAIN_WORD = re.compile("[a-z0-9]+")
# It would remember ten thousand words by itself, forgotten ones too; without them a word takes 0.2 µs longer.
_STEMMER = Stemmer.Stemmer("english", 0)

STOP_WORDS = frozenset(
    """
    a about above after again all also am an and any are aren as at be because been before being below between
    both but by can cannot could couldn d did didn do does doesn doing don down during each few for from further
    had hadn has hasn have haven having he her here hers herself him himself his how i if in into is isn it its
    itself just let ll m me more most mustn my myself no nor not now of off on once only or other our ours
    ourselves out over own please re s same shall shan she should shouldn so some such t than that the their
    theirs them themselves then there these they this those through to too under until up ve very was wasn we were
    weren what when where which while who whom why will with won would wouldn you your yours yourself yourselves
    """.split()
)
_ACKNOWLEDGEMENTS = frozenset(
    """
    ok okay k kk thanks thank thx ty cheers great nice cool fine good perfect awesome yes yep yeah yup no nope
    sure right alright got hi hello hey bye goodbye lol haha hmm ah oh wow please welcome np well done
    """.split()
)
# Said together: what is asked about a night, or a meeting, is no acknowledgement.
_PLEASANTRY = re.compile(
    r"\b(?:good (?:morning|afternoon|evening|night|day|luck|point)|nice (?:to meet|meeting) you|take care|no worries"
    r"|happy birthday|see you (?:later|soon|tomorrow)|have a (?:good|great|nice) (?:day|evening|night|one|weekend))\b"
)
_ACKNOWLEDGEMENT_WORDS_MAX = 6
_ACKNOWLEDGEMENT_CHARS_MAX = 200


def words(text: str) -> list[str]:
    """Case and accents folded, in order; stop words still in. Of a long text, its beginning."""
    folded = _fold(text[:INDEXED_CHARS_MAX])
    return (_PLAIN_WORD if folded.isascii() else _any_word()).findall(folded)


def terms(text: str) -> tuple[str, ...]:
    """What is indexed and searched: English stems, other words as they are, pairs where a script has no spaces."""
    return _terms(words(text))


def _terms(said: Sequence[str]) -> tuple[str, ...]:
    found: list[str] = []
    plain: list[str] = []
    for word in said:
        if word in STOP_WORDS:
            continue
        if word.isascii():
            plain.append(word[:TERM_CHARS_MAX])
        elif _unspaced().match(word):
            found.extend(_pairs(word))
        else:
            found.append(word[:TERM_CHARS_MAX])
        if len(found) + len(plain) >= TERMS_MAX:
            break
    return tuple((_STEMMER.stemWords(plain) + found)[:TERMS_MAX])


def is_acknowledgement(text: str) -> bool:
    """ "ok", "thanks a lot", "hi there": said to the agent, and nothing to remember anything by (R6)."""
    return len(text) <= _ACKNOWLEDGEMENT_CHARS_MAX and _acknowledges(words(text))


def read_words(text: str) -> tuple[list[str], tuple[str, ...]]:
    """The words of what was asked, and its terms, of which an acknowledgement has none."""
    said = words(text)
    is_asked = len(text) > _ACKNOWLEDGEMENT_CHARS_MAX or not _acknowledges(said)
    return said, _terms(said) if is_asked else ()


def _acknowledges(said: Sequence[str]) -> bool:
    if len(said) > _ACKNOWLEDGEMENT_WORDS_MAX:
        return False
    plain, pleasantries = _PLEASANTRY.subn(" ", " ".join(said))
    rest = plain.split()
    return all(word in _ACKNOWLEDGEMENTS or word in STOP_WORDS or word == "lot" for word in rest) and (
        pleasantries > 0 or any(word in _ACKNOWLEDGEMENTS for word in rest)
    )


def content_hash(text: str) -> str:
    """The same for statements that differ only in case, width or white space. 32 hexadecimal digits."""
    folded = text
    if len(text) <= FOLDED_CHARS_MAX:
        folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return blake2b(folded.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    # Twice: 𝐀 becomes a letter with a case only when decomposed, and folding gives İ a dot of its own.
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return unicodedata.normalize("NFKC", re.sub(r"[\u0300-\u036f]", "", decomposed))


# Made when they are first needed: a text in ASCII needs neither, and each takes 4 ms to make.


@cache
def _any_word() -> re.Pattern[str]:
    # Python's \w leaves out combining marks, which would cut Hindi or Arabic words to pieces.
    return re.compile(rf"[{_UNSPACED}]+|(?:(?![{_UNSPACED}])(?:[^\W_]|[{_MARKS}]))+")


@cache
def _unspaced() -> re.Pattern[str]:
    return re.compile(rf"[{_UNSPACED}]")


def _pairs(run: str) -> list[str]:
    return [run] if len(run) == 1 else [run[at : at + 2] for at in range(len(run) - 1)]

"""Tells what a user typed in a message from what was pasted into it: mails, quotations, code, logs, markup.

Pure functions that read each character a bounded number of times. They go by form, and by the words with which people
announce a paste. Plain prose that is pasted without a word about it cannot be distinguished from typed text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from afterturn.text import regex

# Nobody types more than this in one message, or a longer paragraph.
TYPED_CHARS_MAX = 4_000
_LINES_MAX = 500
PARAGRAPH_CHARS_MAX = 1_500
# A quotation of this length is a sentence of somebody else and not a title or a word.
QUOTATION_CHARS_MIN = 40
_READ_CHARS_MAX = 16_384


class Span(NamedTuple):
    """A part of a text, from `start` up to but without `end`. Spans cover a text without gaps."""

    start: int
    end: int
    is_typed: bool


def split_pasted(text: str) -> list[Span]:
    """The typed and pasted parts of a user's message, in order. Neighbours differ."""
    spans: list[Span] = []
    at = 0
    for start, end in _merge(_find_pasted(text)):
        if start > at:
            spans.append(Span(at, start, is_typed=True))
        spans.append(Span(start, end, is_typed=False))
        at = end
    if at < len(text):
        spans.append(Span(at, len(text), is_typed=True))
    return spans


def typed_text(text: str) -> str:
    """The typed parts of a text. A line break takes the place of each pasted part."""
    spans = split_pasted(text)
    if all(span.is_typed for span in spans):
        return text
    return "\n".join(text[span.start : span.end] for span in spans if span.is_typed).strip("\n")


_KNOWN_MAX = 16_384
# The answers of `has_pasted`, by the hash of the text: a list is read again at every turn. No texts are kept.
_known: dict[int, bool] = {}


def has_pasted(text: str) -> bool:
    # A part of a longer message is always pasted, so it is not read.
    if len(text) > TYPED_CHARS_MAX:
        return True
    key = hash(text)
    found = _known.get(key)
    if found is None:
        if len(_known) >= _KNOWN_MAX:
            _known.clear()
        found = _known[key] = any(start < end for start, end in _find_pasted(text))
    return found


def any_pasted(texts: Collection[str], *, read_max: int) -> bool:
    """Whether one of them has a pasted part. Assumes so if more than `read_max` would have to be read for that."""
    unread = {text for text in texts if hash(text) not in _known}
    return len(unread) > read_max or any(map(has_pasted, texts))


# Lines

_LINE_ENDS = regex(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")


class _Line(NamedTuple):
    start: int
    end: int
    text: str

    @property
    def is_blank(self) -> bool:
        return not self.text or self.text.isspace()


def _lines(text: str) -> list[_Line]:
    found: list[_Line] = []
    at = 0
    for end in _LINE_ENDS.finditer(text):
        found.append(_Line(at, end.start(), text[at : end.start()]))
        at = end.end()
    found.append(_Line(at, len(text), text[at:]))
    return found


# Words

_LISTS: Mapping[str, Mapping[str, list[str]]] = json.loads(Path(__file__).with_name("pasted_words.json").read_bytes())


def _any_of(name: str) -> str:
    """A pattern for any word of a list. A star matches any ending."""
    listed = {word for words in _LISTS[name].values() for word in words}
    longest_first = sorted(listed, key=lambda word: (-len(word), word))
    return "(?:" + "|".join(re.escape(word).replace(r"\*", r"\w*") for word in longest_first) + ")"


def _listed(pattern: str) -> re.Pattern[str]:
    """`<name>` matches any word of the list."""
    return regex(lambda: re.sub(r"<(\w+)>", lambda found: _any_of(found[1]), pattern), re.IGNORECASE)


def _word_of(name: str) -> re.Pattern[str]:
    return _listed(rf"(?<![\w-])<{name}>(?![\w-])")


_HANDLES, _ASKS, _POINTS = _word_of("handles"), _word_of("asks"), _word_of("points")
_DOCUMENT, _RECEIVED = _word_of("documents"), _word_of("received")
_BELOW, _REACTION, _ARRIVED = _word_of("below"), _word_of("reactions"), _word_of("arrived")
_INSIDE, _INSIDE_OWN = regex(lambda: _any_of("inside")), regex(lambda: _any_of("inside_own"))
_OWN, _PERSONAL = _word_of("own"), _word_of("personal")
_WROTE, _SUBJECT = _word_of("wrote"), _word_of("subjects")
# A sentence that begins with a request, as an order or a question.
_REQUEST = _listed(r"\W*(?:<polite>\W+){0,5}(?:<handles>|<asks>)(?![\w-])")
# A line of nothing else: "please summarize"
_ORDER = _listed(r"\W*(?:<polite>\W+){0,5}<handles>(?:\W+<polite>){0,3}\W*")
_ORDER_CHARS_MAX = 40
# "ChatGPT gave me this"
_GIVEN = _listed(r"<asks>(?: me| us| mir| uns)?(?: the)? <points>(?!\w)")
_ANNOUNCEMENT_CHARS_MAX = 200
_SHORT_CHARS_MAX = 80
# At the beginning of a line.
_ANNOUNCING_SENTENCES = 3
# Of one line, so that a line of nothing else is read in time.
_SIGNS_MAX = 50
_COLON = regex(r"：|:(?=\s|$|[\"“„«「『]|[^\x00-\x7f])")
_SENTENCE_END = regex(r"[.!?](?:\s|$)|[。！？]")
_STOP = regex("[:：.]")
_FYI = regex(r"\s*(?:fyi|fwd?|wg|tr|rv|zur info|pour info|転送|转发|轉發)\b\s*[:：.,!–—-]*\s*", re.IGNORECASE)

# Every match of the long patterns below has one of these signs. Most messages have none, and are read twenty times as
# fast: the messages of a long conversation are read when it is taken up.
_QUOTE_SIGN = regex(r"[\"“„«»「『‘]|(?<!\w)'")
_HEADER_SIGN = regex("[:：]")
_TEMPLATE_SIGN = regex(r"[<\[#:]")

# From such a line on, nothing is typed any more.

_HEADER = _listed(r"(?:^|(?<=[\s|*]))\*{0,2}<headers>\*{0,2}\s?[:：]\*{0,2}[ \t]{0,8}\S")
_HEADER_LINE = _listed(r"\s*[*>|]{0,3}<headers>\**\s?[:：]")
_FORWARDED = _listed(
    r"\s*(?:[-_*=]{2,40}\s{0,3}[^-_*=\s][^-_*=\n]{0,60}(?<!\w)<documents>[^\n]{0,40}[-_*=]{2}"
    r"|[-=_]{5,40}\s{0,3}(?:original|forwarded|weitergeleitet|ursprüngliche|転送|原始|转发)"
    r"|begin forwarded message|anfang der weitergeleiteten)"
)
# "On Mon, 3 Mar 2025 at 10:02, Bob <bob@example.org> wrote:", in any language: a date or an address, and a colon.
_ATTRIBUTION = regex(r"[^\n]{0,300}(?:\d{1,2}[:.]\d{2}|\d{4}|@[\w.-]{1,64})[^\n]{0,100}[:：]\s*$")
_STAMPED = regex(
    r"\s*(?:\[[^\]\n]{0,40}\d[:./-]\d[^\]\n]{0,40}\]"
    r"|[^\W\d][\w .'’-]{0,30}[,\s]+\[?\(?(?:\d{1,2}[:.]\d{2}|\d{1,4}[/.-]\d{1,2}[/.-])[^\n]{0,20}$)"
)
# "[12/03/24, 10:32:11] Bob: hello", also alone
_STAMPED_SPEAKER = regex(
    r"\s*\[?\d{1,4}[/.-]\d{1,2}[/.-]\d{1,4},?\s+\d{1,2}[:.]\d{2}[^\n:]{0,3}(?::\d{2})?(?:\s?[ap]\.?m\.?)?\]?\s*(?:-\s)?"
    r"[^\n:]{1,40}:\s",
    re.IGNORECASE,
)
_TEMPLATE = regex(
    r"<\|[\w/ ]{0,40}\|?>|\[/?INST\]|^#{2,}\s*(?:instruction|system|response|input)s?\b"
    # Agents without calls get the output of tools in the role of the user.
    r"|^\s*\[?(?:observation|(?:tool|function|search|web search)[ _](?:results?|outputs?|responses?))\b[^:\n]{0,40}:",
    re.IGNORECASE,
)
_GREETING = _listed(
    r"\s*(?:<letters>\s+[^,.!?:;\n]{1,60}[,:!]|<greetings>\s+<groups>\b"
    r"|[^\s,。]{1,20}\s?(?:様|さま|先生)[,、]?\s*$|尊敬的)"
)
# After another line, this begins somebody's letter: "Hi Ada,".
_INNER_GREETING = _listed(r"\s*<greetings>(?:\s+[^\W\d][\w.'’-]{0,30}){0,3}\s*[,!]")
_CLOSING = _listed(r"\s*<closings>\s*[,.!]?\s*$")

# Parts that end where their form ends.

_FENCE = regex(r"\s{0,12}(```|~~~)")
_QUOTED_LINE = regex(r"\s*(?:>|\|\s?>)")
_TAG = regex(r"(?<![\w(/_-])</?([A-Za-z][\w.:-]{0,40})(?:\s[^<>]{0,200})?/?>")
_HTML = frozenset(
    "html head body title meta link style script div span p br hr a b i u em strong table thead tbody tr td th ul ol "
    "li h1 h2 h3 h4 h5 h6 img form input button font center blockquote pre section article header footer nav svg "
    "iframe".split()
)
_JSON = regex(r"\s*[{\[]\s*(?:[\"{\[\]}]|$)")
_PROMPT = regex(r"\s*(?:\$\s\S|>>>\s|PS [A-Z]:|[A-Z]:\\\S*>|Traceback \(|(?:Exception|Caused by)\b)")
_PRINTED = regex(
    r"\s*(?:\[?\d{4}-\d\d-\d\d[T ]\d|\[?\d\d:\d\d:\d\d\b|\[?(?:INFO|WARN|WARNING|ERROR|DEBUG|FATAL|TRACE)\b[\]:\s]"
    r"|at\s[\w.$<>/]{1,100}\(|File \"|(?:stdout|stderr|stdin)\b\s*[|:]|@@ |(?:\+\+\+|---) \S|(?:diff|index) \S+ \S"
    r"|\w{0,40}(?:Error|Exception):\s|\|.*\|\s*$|[^\t\n]*\t[^\t\n]*\t)"
    r"|[^\n]*\s[|]\s|[^\n]*\s//\s|[^\n]*\s#\s?(?:TODO|FIXME)"
)
_BLOB_CHARS_MIN = 100
_BLOB = regex(rf"[A-Za-z0-9+/=_%-]{{{_BLOB_CHARS_MIN},}}")
# Short ones are matched too, so that the end of one is not taken for the beginning of the next.
_QUOTATION = regex(
    r"""(?<![\w"])"(?=[^\s"])[^"]{1,2000}" | “[^“”]{1,2000}” | „[^„“”]{1,2000}[“”] | «[^«»]{1,2000}»
      | (?<!\w)'(?=[^\s'])(?:[^'\n]|(?<=\w)'(?=\w)){1,2000}'(?!\w) | ‘(?:[^‘’]|(?<=\w)’(?=\w)){1,2000}’(?!\w)
      | »[^«»]{1,2000}« | 「[^「」]{1,2000}」 | 『[^『』]{1,2000}』""",
    re.VERBOSE,
)
_SAID = _listed(r"<wrote>\s{0,3}[:,]?\s{0,3}([\"“„«])")
_OPENED = regex(r"(?<![\w\"“„«「『])[\"“„«「『](?=[^\s\"”»」』])")
_CLOSES = {'"': '"', "“": "”", "„": "“”", "«": "»", "「": "」", "『": "』"}
_SPEAKER = regex(r"\s*[*\[(]{0,3}([^\W\d_][\w .'’-]{0,30}?)[*\])]{0,3}(?:[:：]\**\s|\s-\s)\s*(\S[^\n]*)$")
_ROLES = frozenset(["user", "assistant", "human", "ai", "bot", "chatgpt", "claude", "gemini"])
_LIST_ITEM = regex(r"\s*(?:[-*•–]|\d{1,2}[.)])\s*\S")


def _find_pasted(text: str) -> Iterator[tuple[int, int]]:
    """The pasted parts, in no particular order. They may overlap."""
    read = text[:_READ_CHARS_MAX]
    lines = _lines(read)
    if len(lines) > _LINES_MAX:
        lines = lines[:_LINES_MAX]
        read = read[: lines[-1].end]
    rest, parts = _read_lines(read, lines)
    if _QUOTE_SIGN.search(read):
        parts += [found.span() for found in _QUOTATION.finditer(read, 0, rest) if _is_long(found.group())]
        parts += [
            span
            for found in islice(_SAID.finditer(read, 0, rest), _SIGNS_MAX)
            if _is_long(read[slice(*(span := _said(read, found)))])
        ]
    if max(map(len, read.split()), default=0) >= _BLOB_CHARS_MIN:
        parts += [found.span() for found in _BLOB.finditer(read, 0, rest)]
    parts += _long_parts(read, lines, rest, _merge(parts))
    yield from parts
    if rest < len(text):
        yield rest, len(text)


def _read_lines(read: str, lines: Sequence[_Line]) -> tuple[int, list[tuple[int, int]]]:
    """The position from which on nothing is typed, and the pasted parts before it."""
    written = [at for at, line in enumerate(lines) if not line.is_blank]
    if not written:
        return len(read), []
    start, rest = _typed_range(lines, written)
    parts = [(0, start)] if start else []
    resume = start
    for at in written:
        line = lines[at]
        if line.start < resume:
            continue
        if line.start >= rest:
            break
        if (ends := _block_end(read, lines, at)) is not None:
            parts.append((line.start, ends))
            resume = ends
        elif (tag := _TAG.search(line.text)) is not None:
            # To its last closing tag: what is pasted may contain one itself. HTML is a page up to its end.
            closing = f"</{tag.group(1)}>"
            at_end = -1 if tag.group(1).lower() in _HTML else read.rfind(closing, line.start + tag.end())
            resume = at_end + len(closing) if at_end >= 0 else len(read)
            parts.append((line.start + tag.start(), resume))
        elif _PRINTED.match(line.text):
            parts.append((line.start, line.end))
    return min(rest, len(read)), parts


def _typed_range(lines: Sequence[_Line], written: Sequence[int]) -> tuple[int, int]:
    """The positions between which typed text may be, by the lines that announce or begin somebody else's text."""
    last = lines[written[-1]]
    if any(_CLOSING.match(lines[at].text) for at in written[1:-1]):
        return last.end, last.end  # a letter
    rest = _find_rest(lines, written)
    if _asks_about_above(lines, written):
        # If something else is announced too, either may be a part of what is pasted.
        return (last.start if rest is None else last.end), last.end
    return 0, last.end if rest is None else rest


def _find_rest(lines: Sequence[_Line], written: Sequence[int]) -> int | None:
    turns = _transcript_start(lines, written)
    fenced = False
    for number, at in enumerate(written):
        line = lines[at]
        if _FENCE.match(line.text):
            fenced = not fenced
        if fenced:
            continue
        if line.start == turns or _begins_anothers(lines, written, number):
            return line.start
        has_more = number + 1 < len(written)
        marks = (_find_mark(line), _find_announced(line, is_first=number == 0, has_more=has_more))
        if found := [mark for mark in marks if mark is not None]:
            return line.start + min(found)
        if has_more and _hands_over(lines, written, number):
            return line.end
    return _find_unclosed(lines)


def _begins_anothers(lines: Sequence[_Line], written: Sequence[int], number: int) -> bool:
    """Whether a mail, a chat message or a letter of somebody else begins with this line."""
    text = lines[written[number]].text
    has_more = number + 1 < len(written)
    if _FORWARDED.match(text) or _GREETING.match(text) or _STAMPED_SPEAKER.match(text):
        return True
    if has_more and (_STAMPED.match(text) or (_ATTRIBUTION.match(text) and (_WROTE.search(text) or "@" in text))):
        return True
    if has_more and _HEADER_LINE.match(text) and _HEADER_LINE.match(lines[written[number + 1]].text):
        return True
    if number == 0 or _INNER_GREETING.match(text) is None:
        return False
    # Alone it is a letter only after a blank line and something that the user asks.
    before = lines[written[number - 1]].text
    is_apart = written[number] > written[number - 1] + 1
    return has_more or (is_apart and (_REQUEST.match(before) is not None or _DOCUMENT.search(before) is not None))


def _find_mark(line: _Line) -> int | None:
    """Where the headers of a mail in one line begin, or the marks of a model's prompt."""
    if _HEADER_SIGN.search(line.text):
        headers = list(islice(_HEADER.finditer(line.text[:2_000]), 2))
        if len(headers) == 2:
            return headers[0].start()
    template = _TEMPLATE.search(line.text) if _TEMPLATE_SIGN.search(line.text) else None
    return template.start() if template is not None else None


def _find_announced(line: _Line, *, is_first: bool, has_more: bool) -> int | None:
    """Where a text begins that is announced in the same line: "see this mail: …", "FYI …"."""
    if (found := _FYI.match(line.text)) is not None:
        # "FYI, I'm vegetarian" is the user's, if nothing else is in the message.
        is_alone = is_first and not has_more and not _STOP.search(found.group())
        is_own = is_alone and _PERSONAL.match(line.text, found.end())
        return None if is_own else found.end()
    for colon in islice(_COLON.finditer(line.text), _SIGNS_MAX):
        after = line.text[colon.end() :]
        if (has_more or (after and not after.isspace())) and _announces(_last_sentence(line.text[: colon.start()])):
            return colon.end()
    return _find_announced_by_sentence(line)


def _find_announced_by_sentence(line: _Line) -> int | None:
    """Where a text begins after a sentence about it: "I got this mail today. Hello, …", "Summarize this. …"."""
    start = 0
    for end in islice(_SENTENCE_END.finditer(line.text), _ANNOUNCING_SENTENCES):
        sentence, start = line.text[start : end.start()], end.end()
        has_more = len(sentence) <= _ANNOUNCEMENT_CHARS_MAX and not line.text[start:].isspace()
        if not has_more or not _POINTS.search(sentence) or _is_own(sentence):
            continue
        if _HANDLES.search(sentence) or (_DOCUMENT.search(sentence) and _ARRIVED.search(sentence)):
            return start if start < len(line.text) else None
    return None


def _announces(sentence: str) -> bool:
    """Whether a sentence, before a colon, is about a text that follows it."""
    if len(sentence) > _ANNOUNCEMENT_CHARS_MAX:
        return False
    if _WROTE.search(sentence) and not _SUBJECT.search(sentence):
        return True  # "my landlord writes:"
    if _is_own(sentence):
        return False
    if _HANDLES.search(sentence) or _INSIDE.search(sentence) or _REACTION.search(sentence):
        return True
    names = _DOCUMENT.search(sentence)
    if _POINTS.search(sentence):
        return names is not None or _ASKS.search(sentence) is not None
    return names is not None and _RECEIVED.search(sentence) is not None


def _is_own(sentence: str) -> bool:
    return _OWN.search(sentence) is not None or _INSIDE_OWN.search(sentence) is not None


def _hands_over(lines: Sequence[_Line], written: Sequence[int], number: int) -> bool:
    """Whether a line is a question or request about the lines below it, which are then most likely pasted."""
    text, following = lines[written[number]].text.rstrip(), lines[written[number + 1]].text
    asked = _last_sentence(text)
    if text.endswith((":", "：")):
        # In a language whose words are not known. People list their own points under a colon too.
        is_next = written[number + 1] == written[number] + 1
        is_own = _is_own(asked) or _PERSONAL.search(asked) or (is_next and _PERSONAL.match(following.lstrip()))
        return not is_own and not _LIST_ITEM.match(following)
    if len(text) > _ANNOUNCEMENT_CHARS_MAX or _is_own(asked):
        return False
    is_asked = text.endswith(("?", "？")) or _REQUEST.match(asked) is not None
    if number > 0:
        # After lines of the user's own, only a request that points at what follows a blank line.
        is_apart = written[number + 1] > written[number] + 1
        return is_apart and is_asked and _HANDLES.search(asked) is not None and _POINTS.search(asked) is not None
    if _INSIDE.search(asked) or (is_asked and (_HANDLES.search(asked) or _REACTION.search(asked))):
        return True
    if _BELOW.search(asked) and _DOCUMENT.search(asked):
        return True
    points = _POINTS.search(asked) is not None
    if points and (is_asked or _GIVEN.search(asked)):
        return True
    # A short line apart, before a text in which nobody says "I".
    is_apart = written[number + 1] > written[number] + 1 and len(text) <= _SHORT_CHARS_MAX
    is_one = len(asked.strip()) == len(text.strip()) and not _PERSONAL.search(asked)
    is_about_text = text.endswith(("?", "？")) or (is_one and (is_asked or points or bool(_DOCUMENT.search(asked))))
    return is_apart and is_about_text and not _PERSONAL.search(following) and not _LIST_ITEM.match(following)


def _asks_about_above(lines: Sequence[_Line], written: Sequence[int]) -> bool:
    """Whether the last line, after a blank one, asks to translate or summarize what is above it."""
    last = lines[written[-1]]
    is_apart = len(written) > 1 and written[-2] < written[-1] - 1
    if len(written) > 1 and len(last.text) <= _ORDER_CHARS_MAX and _ORDER.fullmatch(last.text):
        return True
    if not is_apart or len(last.text) > _ANNOUNCEMENT_CHARS_MAX:
        return False
    if _REACTION.search(last.text) and last.text.rstrip().endswith(("?", "？")):
        return True
    if last.text.lstrip().startswith(("^", "↑")):
        return True
    if last.text.rstrip().endswith(("?", "？")) and (_POINTS.search(last.text) or " that " in f" {last.text} "):
        above = [lines[at].text for at in written[:-1]]
        return len(last.text) <= _SHORT_CHARS_MAX and not any(map(_PERSONAL.search, above))
    handled = _REQUEST.match(last.text) is not None and _HANDLES.search(last.text) is not None
    return handled or _INSIDE.search(last.text) is not None


def _last_sentence(text: str) -> str:
    text = text[-2 * _ANNOUNCEMENT_CHARS_MAX :]
    ends = [found.end() for found in _SENTENCE_END.finditer(text.rstrip())]
    before = [end for end in ends if end < len(text.rstrip())]
    return text[before[-1] :] if before else text


def _transcript_start(lines: Sequence[_Line], written: Sequence[int]) -> int | None:
    """Where a conversation of others begins: lines with speakers that repeat, ask, or are a model's roles."""
    spoken = [(lines[at], found) for at in written if (found := _SPEAKER.match(lines[at].text[:2_000])) is not None]
    names = [found.group(1).casefold() for _, found in spoken]
    if len(spoken) < 2:
        return None
    plain = [name for name, (line, _) in zip(names, spoken, strict=True) if "*" not in line.text]  # not a form
    repeats = len(set(plain)) < len(plain)
    asks = any(found.group(2).rstrip().endswith(("?", "？")) for _, found in spoken[:-1])
    return spoken[0][0].start if repeats or asks or not _ROLES.isdisjoint(names) else None


def _find_unclosed(lines: Sequence[_Line]) -> int | None:
    """Where a quotation begins that goes on over the end of its line and is never closed."""
    opened: tuple[str, int, int] | None = None
    for number, line in enumerate(lines):
        if opened is not None and any(mark in line.text for mark in _CLOSES[opened[0]]):
            opened = None
        elif opened is None and (mark := _open_mark(line.text)) is not None:
            opened = (mark[0], line.start + mark[1], number)
    if opened is None or all(line.is_blank for line in lines[opened[2] + 1 :]):
        return None
    return opened[1]


def _open_mark(text: str) -> tuple[str, int] | None:
    """The last mark of a line that opens a quotation, if one is left open."""
    if not _QUOTE_SIGN.search(text):
        return None
    # Of each kind of mark, the last one decides: whether one is left open is the same for all.
    last = {found.group(): found.start() for found in _OPENED.finditer(text)}
    for opening, at in sorted(last.items(), key=itemgetter(1), reverse=True):
        closing = sum(text.count(mark) for mark in _CLOSES[opening])
        if closing % 2 if opening == '"' else closing < text.count(opening):
            return opening, at
    return None


def _said(read: str, found: re.Match[str]) -> tuple[int, int]:
    """The span of a quotation, up to the last mark of that kind in the paragraph: it may contain quotations itself."""
    end = read.find("\n\n", found.end())
    end = len(read) if end < 0 else end
    return found.start(1), max(read.rfind(mark, found.end(), end) + 1 for mark in _CLOSES[found.group(1)])


def _is_long(quotation: str) -> bool:
    # Words in Chinese and Japanese have a third of the letters.
    return len(quotation) > QUOTATION_CHARS_MIN * (1 if quotation.isascii() or " " in quotation else 0.5)


def _block_end(read: str, lines: Sequence[_Line], at: int) -> int | None:
    """The end of a block that begins with this line: code in a fence, a quotation, JSON, what a program printed."""
    text = lines[at].text
    if (fence := _FENCE.match(text)) is not None:
        # Up to the last one, if it closes: what is pasted may contain fences itself.
        fences = [line for line in lines[at + 1 :] if line.text.lstrip().startswith(fence.group(1))]
        return fences[-1].end if len(fences) % 2 else len(read)
    if _QUOTED_LINE.match(text) or _JSON.match(text) or _PROMPT.match(text):
        blank = next((line for line in lines[at + 1 :] if line.is_blank), None)
        return blank.start if blank is not None else len(read)
    return None


def _long_parts(
    read: str, lines: Sequence[_Line], rest: int, pasted: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Paragraphs that are too long to be typed; in a very long message all but a short first one."""
    paragraphs = _paragraphs(lines, rest)
    removed = sum(end - start for start, end in pasted)
    if rest - removed > TYPED_CHARS_MAX:
        first = paragraphs[0] if paragraphs else (0, 0)
        yield (first[1] if first[1] - first[0] <= PARAGRAPH_CHARS_MAX // 2 else 0), rest
        return
    for start, end in paragraphs:
        if end - start > PARAGRAPH_CHARS_MAX:
            yield start, end


def _paragraphs(lines: Sequence[_Line], rest: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    is_open = False
    for line in lines:
        if line.start >= rest:
            break
        if not line.is_blank:
            found.append((found.pop()[0] if is_open else line.start, line.end))
        is_open = not line.is_blank
    return found


def _merge(parts: Sequence[tuple[int, int]] | Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(part for part in parts if part[0] < part[1]):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged

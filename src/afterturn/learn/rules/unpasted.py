"""What of a message is its sender's own: rules learn from that alone, not from what is pasted, quoted or wrapped.

Rather too little than too much: a lasting thing is mostly said again, and a poisoned one would stand in system prompts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Beyond these a message is a document with a request at its beginning.
PARAGRAPHS_MAX = 3
CHARS_MAX = 1_200

_BREAKS = re.compile(r"\r\n?|[\v\f\x1c-\x1e\x85\u2028\u2029]")
_TAG = re.compile(r"</?[A-Za-z][\w.:-]*(?:\s[^<>]{0,200})?/?>")
_QUOTE = re.compile(r"\s*(?:[>|«»‹›「『＂‘“”—–•]|''|\"|\d{1,2}[:.]\d{2}\b|\[[^\]]{0,40}\d[^\]]{0,40}\])")
_FOREIGN = re.compile(r"\s[|]\s|\s//\s|\s#\s?(?:TODO|FIXME)")
_PERSONAL = re.compile(r"\s*(?:btw|by the way|also|oh|ps|p\.\s?s\.|and|but|i|i'm|i’m|my|call me)\b", re.IGNORECASE)
_GREETING = re.compile(
    r"\s*(?:hi|hello|hey|dear|good (?:morning|afternoon|evening)|greetings|hallo|guten tag|liebe[rs]?|sehr geehrte\w*|"
    r"bonjour|cher|chère|hola|estimad[oa])\b[^.!?\n]{0,60},\s*$",
    re.IGNORECASE,
)
_SIGNATURE = re.compile(
    r"\s*(?:best|(?:kind|best|warm) (?:regards|wishes)|regards|cheers|sincerely|yours(?: \w+)?|thanks|thank you|"
    r"mit freundlichen grüßen|viele grüße|liebe grüße|lg|cordialement|saludos|--+)\s*,?\s*$",
    re.IGNORECASE,
)
_SPEAKER = re.compile(r"\s*[\w][\w .']{0,30}(?:\s*\([^)]{0,20}\))?(?::\s+|\s-\s)\S")
# Nobody is called that: "Remember: CI runs on ARM."
_ASKS = re.compile(r"\s*(?:(?:please|pls|also)\s)?remember(?:\sthis)?:\s", re.IGNORECASE)
_STAMPED = re.compile(r"\s*[\w][\w .'-]{0,30}[,\s]+\[?(?:\d{1,2}[:.]\d{2}|\d{1,4}[/.-]\d{1,2})[^\n]{0,20}$")
_HANDED_OVER = re.compile(
    r"\b(?:summar\w*|tl;?dr|translat\w*|proofread\w*|rewrit\w*|rephras\w*|review|explain|analy[sz]e|fix|edit|improve|"
    r"check|read|reply|answer|respond|what (?:does|do|is)|(?:gave|sent|told|wrote|got) (?:me|us|this)|below|following|"
    r"this (?:text|page|mail|email|policy|article|message|is what)|think of|says|"
    r"attached|pasted?|forwarded|fwd|zusammenfass\w*|übersetz\w*|résum\w*|tradu\w*|resum\w*)\b",
    re.IGNORECASE,
)


def unpasted(text: str) -> str:
    """The lines that are likely the sender's own, up to the first sign of another's text; blank for a letter."""
    lines = _BREAKS.sub("\n", text).split("\n")
    last = max((at for at, line in enumerate(lines) if line.strip()), default=0)
    if any(_SIGNATURE.match(line) for line in lines[1:last]):
        return ""
    return _first_of_document("\n".join(_own(lines, last)))


def _own(lines: list[str], last: int) -> Iterator[str]:
    handed_over, quotes = False, 0
    for at, line in enumerate(lines):
        if _is_anothers(line, has_more=at < last):
            return
        if at and (quotes % 2 or (handed_over and line.strip() and not _PERSONAL.match(line))):
            return
        tag = _TAG.search(line)
        yield line[: tag.start()] if tag else line
        if tag:
            return
        handed_over = handed_over or _hands_over(line)
        quotes += line.count('"') + line.count("“") + line.count("”")


def _is_anothers(line: str, *, has_more: bool) -> bool:
    if _QUOTE.match(line) or _STAMPED.match(line) or _FOREIGN.search(line):
        return True
    if _ASKS.match(line):
        return False
    return has_more and (_GREETING.match(line) is not None or _SPEAKER.match(line) is not None)


def _hands_over(line: str) -> bool:
    """A question or a request with something below it, which is most likely what it is about."""
    return line.rstrip().endswith(("?", ":")) or _HANDED_OVER.search(line) is not None


def _first_of_document(text: str) -> str:
    """Of what is long, the first paragraph."""
    paragraphs = [part for part in re.split(r"\n\s*\n", text) if part.strip()]
    is_long = len(paragraphs) > PARAGRAPHS_MAX or len(text) > CHARS_MAX
    return paragraphs[0] if paragraphs and is_long else text

"""Finds the sentences of a message that its sender wrote: no code, logs, quotations, lists or pasted text.

Precision comes before recall. People repeat what matters to them, and a pasted sentence that was learned by mistake
would reach the system prompts of later conversations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from afterturn.text import load_patterns, regex

# A longer message is most likely pasted.
MESSAGE_CHARACTERS_MAX = 16_384

_PATTERNS = load_patterns(__file__)


def has_hint(text: str) -> bool:
    """False if no phrase of the rules is in `text`. One cheap pass over at most `MESSAGE_CHARACTERS_MAX` characters."""
    return bool(_PATTERNS["HINTS"].search(plain_start(text).lower()))


def may_introduce(text: str) -> bool:
    """Whether the text may contain a greeting followed by "I am …"."""
    return bool(_PATTERNS["INTRODUCTION"].search(plain_start(text).lower()))


def plain_start(text: str) -> str:
    """The part of a message that rules read, with straight apostrophes."""
    return text[:MESSAGE_CHARACTERS_MAX].replace("’", "'")


# More prose than this in one message is most likely pasted.
PROSE_CHARACTERS_MAX = 3_000
SENTENCE_CHARACTERS_MAX = 400
SENTENCES_MAX = 60

MASK = "\ufffc"

_FENCE = regex(r"\s*(```|~~~)")
_FOREIGN_LINE = regex(
    r"""\s*(?:
        [>|<{}\[\]$%@=#]                              # quotations, tables, markup, prompts, comments
      | //|/\*|--|\*|-\s|•|\d{1,3}[.)]\s              # comments, lists
      | \d{4}-\d\d-\d\d | \d\d:\d\d:\d\d              # logs
      | (?:def|class|function)\s\w+.*[({:] | import\s[\w.]+\s*(?:;|$|as\b) | from\s[\w.]+\simport\b
      | (?:const|let|var|int|String)\s\w+\s*= | (?:print|assert|return)\b.*[(=]
      | (?:SELECT|INSERT|UPDATE|DELETE)\s.*\b(?:FROM|INTO|SET)\b | (?:git|npm|pip|docker|curl)\s\S+\s(?:-|\S+:)
      | (?:Traceback|File|INFO|WARN|WARNING|ERROR|DEBUG)\b | \w*(?:Error|Exception):\s
      )""",
    re.VERBOSE,
)
# A shell prompt: the output follows, up to the next blank line.
_PROMPT = regex(r"\s*(?:\$|>>>|%|PS [A-Z]:|C:\\\\|Traceback\b)\s?\S")
_INDENTED = regex(r"(?:\t| {4,})\S")
# "A: My name is Tom." and "Subject: hi" quote somebody else. The words of OWN_WORDS do not, right before a colon and
# without a speaker after it. A heading of a document, such as "Context" or "Rules", is none of them.
_SPEAKER = regex(r"\s*[\w .-]{1,24}(?:\([^()]{1,24}\)\s?)?(?::(?:\s|$)|[：﹕︰∶꞉])")
# A line that ends with a colon announces pasted text.
_ANNOUNCES = regex(r":\s*$")


class Sentence(NamedTuple):
    """`plain` is what patterns match: as long as `text`, with quotations masked and straight apostrophes.

    `after_task`: the message gave the agent a task before this sentence.
    """

    text: str
    plain: str
    ending: str
    after_task: bool = False

    def without_smile(self) -> Sentence:
        """Without a smiley at its end: "never change :)" is the same saying as "never change"."""
        smile = _PATTERNS["SMILE"].search(self.plain)
        if smile is None or smile.start() == 0:
            return self
        return self._replace(text=self.text[: smile.start()], plain=self.plain[: smile.start()])

    @property
    def is_question(self) -> bool:
        return "?" in self.ending or "？" in self.ending


def split_sentences(text: str) -> list[Sentence]:
    """At most `SENTENCES_MAX`; none of a text that is too long to have been typed."""
    own = "\n".join(_own_lines(text[:MESSAGE_CHARACTERS_MAX]))
    if len(own) > PROSE_CHARACTERS_MAX:
        return []
    plain = _PATTERNS["QUOTED"].sub(_mask, own).replace("’", "'")
    return list(_split(own, plain))[:SENTENCES_MAX]


def _own_lines(text: str) -> Iterator[str]:
    fenced = printed = False
    for line in text.splitlines():
        if _PATTERNS["LETTER"].match(line):
            return
        printed = bool(line.strip()) and (printed or bool(_PROMPT.match(line)))
        if _FENCE.match(line):
            fenced = not fenced
        elif not (fenced or printed):
            if _is_own(line):
                yield line
            if _ANNOUNCES.search(line) and not _PATTERNS["OWN_WORDS"].match(line):
                return


def _is_own(line: str) -> bool:
    if _FOREIGN_LINE.match(line) or _INDENTED.match(line):
        return False
    introduced = _PATTERNS["OWN_WORDS"].match(line)
    return not _SPEAKER.match(line[introduced.end() :] if introduced is not None else line)


def _mask(found: re.Match[str]) -> str:
    """Line breaks stay, so that lines keep their positions."""
    return "".join(character if character == "\n" else MASK for character in found.group())


def _split(own: str, plain: str) -> Iterator[Sentence]:
    start = 0
    for line in plain.splitlines(keepends=True):
        at = start
        for end in _PATTERNS["END"].finditer(line):
            yield from _sentence(own, plain, at, start + end.end(), end.group())
            at = start + end.end()
        yield from _sentence(own, plain, at, start + len(line), "")
        start += len(line)


def _sentence(own: str, plain: str, start: int, end: int, ending: str) -> Iterator[Sentence]:
    while start < end and plain[start].isspace():
        start += 1
    stop = end - len(ending)
    while stop > start and plain[stop - 1].isspace():
        stop -= 1
    if start < stop <= start + SENTENCE_CHARACTERS_MAX:
        yield Sentence(own[start:stop], plain[start:stop], ending)

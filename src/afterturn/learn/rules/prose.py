"""What somebody wrote themselves, sentence by sentence: without code, logs, quotations, lists and pasted text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from afterturn.learn.rules.hints import MESSAGE_CHARACTERS_MAX

# Whoever writes more prose than this at once has pasted it.
PROSE_CHARACTERS_MAX = 3_000
SENTENCE_CHARACTERS_MAX = 400
SENTENCES_MAX = 60

MASK = "\ufffc"

_FENCE = re.compile(r"\s*(```|~~~)")
_FOREIGN_LINE = re.compile(
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
# What a terminal prints stands below what was typed, up to the next blank line.
_PROMPT = re.compile(r"\s*(?:\$|>>>|%|PS [A-Z]:|C:\\\\|Traceback\b)\s?\S")
_INDENTED = re.compile(r"(?:\t| {4,})\S")
# "A: My name is Tom." and "Subject: hi" are somebody else's; these words before a colon are the writer's own.
_SPEAKER = re.compile(r"\s*[\w .-]{1,24}:(?:\s|$)")
_OWN_WORDS = re.compile(
    r"\s*(?:(?:please|pls|also|and)\s+)*(?:remember|note|correction|fyi|btw|ps|for|save|store|keep|edit|merk|"
    r"wichtig|übrigens|"
    r"au fait|por cierto|important|reminder|one|another|quick|small|last|side|update|also|hi|hello|recuerda|"
    r"nota|souviens|rappel)\b",
    re.IGNORECASE,
)
# A mail, or a word to many, was not written to the agent.
_LETTER = re.compile(
    r"\s*(?:(?:subject|from|to|cc|date|sent|betreff|von|an|objet|asunto|de|para):\s|dear\s\w"
    r"|(?:hi|hello|hey|good\smorning)\s(?:all|team|everyone|everybody|folks|guys)\b)",
    re.IGNORECASE,
)
# Nothing but such an announcement in the line: what follows is pasted.
_ANNOUNCES = re.compile(r":\s*$")
_QUOTED = re.compile(
    r"""`[^`\n]{0,400}`?
      | (?<![\w"])"[^"]{0,2000}"?
      | “[^”]{0,2000}”? | „[^“”]{0,2000}[“”]? | «[^»]{0,2000}»?
      | (?<!\w)'[^'\n]{2,300}'(?!\w)
      | ‘[^’\n]{2,300}’(?!\w)
      | <[^<>\n]{1,300}>""",
    re.VERBOSE,
)
_END = re.compile(r"(?<!\bDr)(?<!\bMr)(?<!\bMs)(?<!\bMrs)(?<!\bSt)(?<!\bvs)(?<!\be\.g)(?<!\bi\.e)[.!?…。？！]+(?=\s|$)")

_SMILE = re.compile(
    r"""(?:\s*(?:(?<!\S)(?:[:;=]['^]?[-o]?[()\[\]dp3/\\|*]|<3+|\^_*\^|\([:;=])
    |[\u2600-\u27bf\u2b50\ufe0f\u200d\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff]))+$""",
    re.VERBOSE | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Sentence:
    """`plain` is as long as `said`, with what was quoted masked and apostrophes alike, for patterns to look at.
    `tasked`: a task was set before it."""

    said: str
    plain: str
    ending: str
    tasked: bool = False

    def without_smile(self) -> Sentence:
        """What is meant is the same: "never change :)" is the saying that it is without it."""
        smile = _SMILE.search(self.plain)
        if smile is None or smile.start() == 0:
            return self
        return replace(self, said=self.said[: smile.start()], plain=self.plain[: smile.start()])

    @property
    def asks(self) -> bool:
        return "?" in self.ending or "？" in self.ending


def sentences_of(text: str) -> list[Sentence]:
    """Empty where it is too long to have been written by hand."""
    own = "\n".join(_own_lines(text[:MESSAGE_CHARACTERS_MAX]))
    if len(own) > PROSE_CHARACTERS_MAX:
        return []
    plain = _QUOTED.sub(_mask, own).replace("’", "'")
    return list(_split(own, plain))[:SENTENCES_MAX]


def _own_lines(text: str) -> Iterator[str]:
    fenced = printed = False
    for line in text.splitlines():
        if _LETTER.match(line):
            return
        printed = bool(line.strip()) and (printed or bool(_PROMPT.match(line)))
        if _FENCE.match(line):
            fenced = not fenced
        elif not (fenced or printed):
            if _is_own(line):
                yield line
            if _ANNOUNCES.search(line) and not _OWN_WORDS.match(line):
                return


def _is_own(line: str) -> bool:
    if _FOREIGN_LINE.match(line) or _INDENTED.match(line):
        return False
    return not _SPEAKER.match(line) or bool(_OWN_WORDS.match(line))


def _mask(found: re.Match[str]) -> str:
    """White space stays, so that lines and words keep their places."""
    return "".join(character if character == "\n" else MASK for character in found.group())


def _split(own: str, plain: str) -> Iterator[Sentence]:
    start = 0
    for line in plain.splitlines(keepends=True):
        at = start
        for end in _END.finditer(line):
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

"""Scanners for text that is aimed at a model: hidden text, look-alikes, links that carry data out, and instructions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from afterturn.scanners.detection import Detection, ScanAction
from afterturn.scanners.instructions import INSTRUCTION, judge
from afterturn.scanners.invisible import find_hidden
from afterturn.scanners.normal_form import CHARS_MAX, is_readable, look_alikes, views

# How many hidden characters of a kind may be an accident: copied pages have some soft hyphens and spaces. Any number of
# line breaks: progress bars are full of carriage returns.
_ACCIDENTS = {
    "tag character": 1,
    "variation selector": 2,
    "direction override": 0,
    "direction mark": 7,
    "annotation character": 0,
    "blank letter": 1,
    "joiner": 5,
    "zero-width character": 15,
    "control character": 3,
}
_CONCEALED = re.compile(r"\x1b\[[0-9;]{0,16}8m")
_LOOK_ALIKES_MIN = 2
_OBFUSCATIONS = ("rot13", "reversed text", "spaced letters")


class InvisibleScanner:
    """Finds text that is hidden in characters that nobody sees. A few of them are an accident, and are only removed."""

    name = "invisible"

    def find(self, text: str) -> Sequence[Detection]:
        hidden = find_hidden(text)
        if not hidden:
            return ()
        counts: Counter[str] = Counter()
        for one in hidden:
            counts[one.kind] += one.end - one.start
        kinds = [kind for kind, count in counts.items() if count > _ACCIDENTS.get(kind, count)]
        if not kinds and not _CONCEALED.search(text):
            return ()
        first = next(one for one in hidden if not kinds or one.kind in kinds)
        return (Detection("hidden text", first.start, first.end, ScanAction.SUSPECT),)


class LookAlikeScanner:
    """Finds words that are written with letters of other scripts, and text that must be decoded to be read."""

    name = "look_alikes"

    def find(self, text: str) -> Sequence[Detection]:
        if look_alikes(text) >= _LOOK_ALIKES_MIN:
            return (Detection("look-alike letters", 0, len(text), ScanAction.SUSPECT),)
        for view in views(text):
            if view.how in _OBFUSCATIONS and is_readable(view.text):
                return (Detection(f"obfuscated text ({view.how})", 0, len(text), ScanAction.SUSPECT),)
        return ()


_SAID = r"(?:summar|conversation|chat|histor|message|memor|prompt|transcript|secret|context|user|data|content)"
# What a model is to put in: <summary>, {{conversation}}, [chat history], ${secret}, CONVERSATION_HERE.
_TO_FILL = re.compile(
    rf"<[^>\s][^>\n]{{0,80}}>|[{{\[][^}}\]\n]{{0,40}}?{_SAID}|\$\{{?\w{{0,30}}?{_SAID}|%7b|%3c"
    rf"|{_SAID}\w{{0,10}}(?:_|\+|%20)(?:here|so|of|text|goes|in|json|base64)",
    re.IGNORECASE,
)
_PARAMETER_TO_FILL = re.compile(rf"[?&][\w.-]{{1,30}}=[<{{\[$][^\s]{{0,40}}?{_SAID}", re.IGNORECASE)
# An image is fetched without a click.
_IMAGE = re.compile(r"!\[[^\]\n]{0,200}\]\(([^)\n]{1,400})|<img\b([^\n]{1,400})", re.IGNORECASE)
_ADDRESS = re.compile(r"https?://[^\s]{1,400}", re.IGNORECASE)


class LinkScanner:
    """Finds links and images whose address is to be filled with what the model knows."""

    name = "links"

    def find(self, text: str) -> Sequence[Detection]:
        if "://" not in text:
            return ()
        for match in _IMAGE.finditer(text, 0, CHARS_MAX):
            address = _ADDRESS.search(match.group(1) or match.group(2) or "")
            if address is not None and _TO_FILL.search(match.group(), match.group().find("://")):
                return (Detection("exfiltration link", *match.span(), ScanAction.SUSPECT),)
        for match in _ADDRESS.finditer(text, 0, CHARS_MAX):
            if _PARAMETER_TO_FILL.search(match.group()):
                return (Detection("exfiltration link", *match.span(), ScanAction.SUSPECT),)
        return ()


class InstructionScanner:
    """Finds text that tells a model what to do, in plain words or encoded."""

    name = "instructions"

    def find(self, text: str) -> Sequence[Detection]:
        found = judge(text)
        if found.score <= 0:
            return ()
        kind = f"{INSTRUCTION} ({found.how})" if found.how else INSTRUCTION
        return (Detection(kind, 0, len(text), ScanAction.SUSPECT),)

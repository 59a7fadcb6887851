"""English: what has changed in somebody's life or in how their team works, and what the team works with."""

from __future__ import annotations

import re

from afterturn.base.types import Target
from afterturn.learn.rules.clause import Rule, pattern
from afterturn.learn.rules.lesson import CORRECTION, FACT

_HAVE = r"i(?:'ve|\shave)?\s(?:just\s|recently\s)?"
_DOING = r"(?:work|live|eat|drink|smoke|use|drive|play|study|teach|own|run)"
_DOING_NOT = r"(?:smoking|drinking|eating|working|using|driving|playing)"
_POINTS = r"\b(?:this|that|these|those|it|here|there|our|version|flag)\b"
_TOOL = r"(?:[A-Z][\w.+#-]*|[a-z][\w.+#-]+)"
_OURS = r"""(?:project|repo|repository|codebase|team|back\s?end|front\s?end|api|company|stack|app|service|convention|
    default\sbranch|database|site)"""


def _changed(head: str, bars: str = "", *, proper: bool = False) -> Rule:
    return Rule(CORRECTION, Target.USER, pattern(head), bars=pattern(bars) if bars else None, proper=proper)


def _team(
    kind: str, head: str, wants: re.Pattern[str] | None = None, bars: str = _POINTS, *, proper: bool = False
) -> Rule:
    return Rule(kind, Target.ENVIRONMENT, pattern(head), wants, pattern(bars), proper=proper)


CHANGES = (
    _changed(rf"{_HAVE}(?:moved|relocated)\s(?:back\s)?(?:from\s\w+\s)?to\s", proper=True),
    _changed(rf"i\sno\slonger\s{_DOING}\b", _POINTS),
    _changed(rf"i\s(?:don't|dont|do\snot)\s{_DOING}\b(?=[^,;]{{0,60}}\sany\s?more\b)", _POINTS),
    _changed(
        r"(?:i'm|i\sam)\snot\s(?:an?\s)?(?:vegetarian|vegan|married|single|pescatarian|a\sstudent)\sany\s?more\b",
        _POINTS,
    ),
    _changed(r"(?:i'm|i\sam)\sno\slonger\s(?=an?\s|at\s|vegetarian|vegan|married|single|working|living)", _POINTS),
    _changed(rf"{_HAVE}(?:stopped|quit|given\sup|gave\sup)\s{_DOING_NOT}\b", _POINTS),
    _changed(
        rf"{_HAVE}changed\smy\s(?:phone\snumber|number|e-?mail(?:\saddress)?|address|name)(?=\s*(?:$|[,;]|to\b|"
        rf"and\b|recently|last))"
    ),
    _changed(rf"{_HAVE}started\sa\snew\sjob\s(?:as|at)\s"),
    _changed(r"(?:i'm|i\sam)\s(?:now\s)?(?:divorced|married|retired|engaged)\snow\b"),
    _team(CORRECTION, r"we\sno\slonger\suse\s", re.compile(_TOOL), rf"{_POINTS}|\b(?:much|often|yet)\b"),
    _team(
        CORRECTION,
        r"we(?:'ve|\shave)?\s(?:recently\s)?(?:moved|switched|migrated)\s(?:over\s)?(?:from\s\S+\s)?to\s",
        proper=True,
    ),
)

# Only after "no", and with what was wrong: anything else of that form is the affair of a task.
CORRECTED = (
    _team(
        CORRECTION,
        r"(?:the|our|my)\s(?:[\w-]+\s){1,4}(?:is|runs)\son\s(?=port\s)",
        re.compile(r"port\s\d{1,5},\snot\s(?:on\s)?(?:port\s)?\d{1,5}$"),
    ),
    _team(
        CORRECTION,
        r"(?:the|our)\s(?:default|main)\sbranch\sis\s(?:called\s)?",
        re.compile(r"[\w./-]+,\snot\s[\w./-]+$"),
        r"^(?:broken|slow|fast|down|red|green|fine|ok|clean|dirty|stable|\w+ed|\w+ing)\b",
    ),
)

STACK = (
    _team(
        FACT,
        r"we\s(?:always\s|only\s|now\s)?use\s(?!to\b|it\b)",
        re.compile(rf"{_TOOL},?\s(?:not|instead\sof|rather\sthan|in\sproduction|for\s\w+|\d|now$)"),
        r"\b(?:that|these|those|it|here|there)\b",
    ),
    _team(
        FACT,
        rf"""our\s(?:\w+\s)?{_OURS}\s(?:uses|targets|runs\son|is\s(?:written|built|hosted|deployed|called)|
        is\sthat|lives\sin|requires)\s""",
    ),
    _team(
        FACT,
        r"our\s(?:\w+\s)?(?:url|domain|port|registry|endpoint|bucket|host|default\sbranch|vat\sid|"
        r"fiscal\syear)\sis\s",
        re.compile(r"\S*[./:\d_]\S|[a-z]+$"),
        r"\b(?:down|slow|broken|wrong|missing|gone|this|that)\b",
    ),
)

"""English: what somebody asks to have remembered, in so many words."""

from __future__ import annotations

from afterturn.learn.rules.clause import pattern

_PLEASE = r"""(?:(?:please|pls|also|can\syou|could\syou|would\syou|i\swant\syou\sto|i'd\slike\syou\sto|
    i\sneed\syou\sto|
    you\sshould)\s)*"""


_HEADS = (
    pattern(rf"{_PLEASE}(?:always\s)?(?:remember|don'?t\sforget|do\snot\sforget|memori[sz]e)(?:\splease)?,?\sthat\s"),
    pattern(rf"{_PLEASE}remember(?:\sthis|\sfor\s(?:later|next\stime|the\sfuture))?\s*:\s+"),
    pattern(rf"{_PLEASE}remember\s(?=(?:i|i'm|my|we|our)\s)"),
    pattern(rf"{_PLEASE}(?:keep|bear)\sin\smind,?\s(?:that\s|(?=(?:i|i'm|my|we|our)\s))"),
    pattern(rf"{_PLEASE}(?:make|take)\sa?\s?(?:mental\s)?note,?\sthat\s"),
    pattern(
        rf"{_PLEASE}(?:just\s)?(?:note|fyi|info)?,?\s?for\s(?:the\sfuture|next\stime|future\sreference|"
        rf"later)(?:\s*[,:]\s*|\s)(?:note\s)?(?:that\s)?"
    ),
    pattern(rf"{_PLEASE}note\sfor\s(?:next\stime|later|the\sfuture)\sthat\s"),
    pattern(
        rf"{_PLEASE}(?:save|store|keep|put|add)\s(?:this|that)?\s?(?:for\slater|(?:in|into|"
        rf"to)\s(?:your\s)?memory)(?:\s*:\s+|\sthat\s)"
    ),
)
# "It", "he" and "there" point at what a lesson does not hold; the others announce a task or a question.
_NO_STATEMENT = pattern(
    r"""(?:it|its|it's|he|she|they|this|that|that's|these|those|there|here|you|to|what|how|why|who|where|when|if|
        and|line|page|step|
    the\s(?:input|output|function|list|array|file|user|users|test|exercise|task|deadline|code|above|following|
    first|second|
    last|next|button|form|error|loop|variable|process|text|string|result|answer|response|essay|article|title|
    program|script)|
    variable|text|sometimes|everyone|everything|[a-z]+ing\s(?:\w+\s){0,3}is|i\s(?:have\salready|already|just|
    (?:really\s)?(?:need|want)|said|told|asked|will|am\sgoing)|
    i'll|i'm\sgoing|we\sonly|we\s(?:have\sto|need|want|discussed|talked|said|will|are\sgoing))\b"""
)
_TASK = pattern(
    r"\b(?:left|already|only\shave|deadline|should|would\shave|needs?\sto|must\sbe|perfect|so\s(?!that\b|no\b|i\b|"
    r"i'm\b|we\b|the\b|it\b|they\b|he\b|she\b|you\b|don't\b|please\b)\w+\s)\b"
)
_STATES = pattern(
    r"\b(?:is|are|am|was|were|has|have|had|can|can't|must|will|do|does|don't|doesn't|need|needs|\w+s|\w+ed|i\s\w+|"
    r"we\s\w+|i'm|my)\b"
)


_POLITELY = pattern(r"(?:please\s)?(?:can|could|would)\syou\b")


def start_of_note(plain: str, *, asks: bool) -> int | None:
    """Where the statement begins that shall be remembered; None when nothing shall.

    A polite question asks for it too: "can you remember that ...?". "Remember that game?" does not.
    """
    if asks and not _POLITELY.match(plain):
        return None
    for head in _HEADS:
        found = head.match(plain)
        if found:
            return found.end() if _is_statement(plain[found.end() :]) else None
    return None


def _is_statement(rest: str) -> bool:
    if len(rest.split()) < 3 or _NO_STATEMENT.match(rest) or _TASK.search(rest):
        return False
    return bool(_STATES.search(rest))

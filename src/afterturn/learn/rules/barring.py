"""What teaches nothing however it is worded: fiction, work on a text, hypotheses, reports, jokes, passing things."""

from __future__ import annotations

import re

from afterturn.learn.rules.prose import Sentence

# From such a message on, whoever says "I" may be a character.
_PLAY = re.compile(
    r"""\b(?:pretend|role[\s-]?play(?:ing)?|imagine\s(?:that|you)|act\sas|you\sare\s(?:now\s)?an?\s(?:\w+\s)?(?:pirate|
    dragon|wizard|character|detective|knight|robot|king|queen|vampire)|let's\splay|in\sthis\sgame|you(?:'re|\sare)\s(?-i:[A-Z])\w+\sand\si(?:'m|\sam)|in\scharacter|stell\sdir\svor|tu\ses\sun
    |imagine\sque|imagina\sque|haz\scomo\ssi)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_WORK_ON_TEXT = re.compile(
    r"""^(?:(?:please|pls|can|could|would|you|now|hi|hey|hello|ok|bitte|kannst|du)[,\s]+){0,4}
    (?:translate|proofread|rephrase|paraphrase|summari[sz]e|reword|rewrite|classify|transcribe|correct|(?:fix|check)\s(?:the|my)
    \sgrammar|edit\sthis|improve\sthis|shorten|complete\sthe|continue\sthe|finish\sthe|how\sdo(?:\syou|\si)?\ssay|
    what\sdoes|what\sis\sthe\smeaning|parse|analy[sz]e\s(?:this|the\sfollowing)|here(?:\sis|\sare|'s)|generate|convert|
    (?:make|turn)\s(?:this|it|the\sfollowing)|add\s(?:the\sline|the\ssentence|a\s(?:note|comment|line))|(?:draft|compose|write|send|text|
    tell|email|message|mail|ask|remind)\s(?!me\s(?:always|never)\b)|übersetze?|fasse|korrigiere|schreib|traduis|traduisez|
    résume|corrige|écris|traduce|resume|escribe|translation)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_TEXTS = re.compile(
    r"""\b(?:story|stories|poem|novel|lyrics|song|haiku|rap|joke|screenplay|dialogue|chat\s?bot|(?:commit|error|log)\smessage|(?:the|this)\ssentence|test\sdata|bio|fairy\stale|fan\s?fic\w*|cover\sletter|
    (?:test|sample|example)\ssentence|system\sprompt|the\s(?:assistant|agent|bot|model)\sshould|
    once\supon\sa\stime|tool\soutput)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_JOKE = re.compile(r"\b(?:lol|lmao|rofl|haha+|hehe+|jk|just kidding|kidding|xd)\b|[😂🤣😜😝]", re.IGNORECASE)
_ORDER = re.compile(
    r"""\b(?:(?:i'd|i\swould)\slike|i\swant|i'll\s(?:have|take)|(?:can|could|may)\si\s(?:please\s)?(?:get|have|order))\s
    (?:to\s(?:order|book|reserve|have)|an?|one|two|three|some|the)\b""",
    re.IGNORECASE | re.VERBOSE,
)

_UNSURE = re.compile(
    r"""\b(?:if|suppose|supposing|imagine|assum(?:e|ing)|let'?s\ssay|what\sif|unless|maybe|perhaps|might|probably|
    i\s(?:guess|think|wish|hope|bet|doubt|wonder)|not\ssure|for\s(?:example|instance)|e\.g|as\sif|whether|in\scase|as\ssoon\sas|once\si|when\si'm|say(?=\s(?:i|my|that)\b)|
    hypothetically|would\sbe|wenn|falls|angenommen|vielleicht|si|supposons|imaginons|peut-être|quizás|quizá|
    supongamos|se)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_REPORTED = re.compile(
    r"""\b(?:said|says|say|saying|told|tells|claims?|claimed|wrote|writes|according\sto|mentioned|states|reads|asked|
    thinks|believes|heard|he|she|they|sagt|sagte|meint|dit|dice|dijo)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_PASSING = re.compile(
    r"""\b(?:today|tonight|tomorrow|yesterday|right\snow|for\snow|at\sthe\s(?:moment|airport|station)|currently|
    temporarily|until|till|this\s(?:once|one|week|month|year|morning|afternoon|evening|weekend|time|task|ticket|pr|file|
    function|method|class|endpoint|script|exercise|case|call|change|commit|branch|page|message|chat|session|conversation|
    thread|draft|document|test|order|trip|booking|problem|question|issue|bug|step|summer|winter|spring|fall|autumn)|
    for\sthis|just\s(?:for\s)?(?:once|this)|the\srest\sof|these\sdays|next\s(?:week|month)|
    heute|morgen|gerade|diesmal|im\smoment|aujourd'hui|demain|maintenant(?<!partir\sde\smaintenant)|pour\sl'instant|
    hoy|mañana|por\sahora|de\smomento|esta\svez)\b""",
    re.IGNORECASE | re.VERBOSE,
)


def begins_play(text: str) -> bool:
    return bool(_PLAY.search(text))


def is_no_talk(sentences: list[Sentence]) -> bool:
    """The message has somebody else's words in it, or is not meant."""
    return any(
        _WORK_ON_TEXT.search(sentence.plain) or _TEXTS.search(sentence.plain) or _JOKE.search(sentence.plain)
        for sentence in sentences
    )


def is_order(sentences: list[Sentence]) -> bool:
    """A name that is given with an order or a booking is the one to call out when it is ready."""
    return any(_ORDER.search(sentence.plain) for sentence in sentences)


def is_passing(plain: str) -> bool:
    """Holds for now, or for the thing at hand only."""
    return bool(_PASSING.search(plain))


def is_unsaid(before: str) -> bool:
    """What stands before a clause makes it a hypothesis or somebody else's claim."""
    return bool(_UNSURE.search(before) or _REPORTED.search(before))


def is_unsure(plain: str) -> bool:
    return bool(_UNSURE.search(plain))

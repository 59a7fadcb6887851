"""What teaches nothing however it is worded: fiction, work on a text, hypotheses, reports, jokes, passing things."""

from __future__ import annotations

import re

from afterturn.learn.rules.prose import Sentence

# From such a message on, whoever says "I" may be a character.
_PLAY = re.compile(
    r"""\b(?:pretend|role[\s-]?play(?:ing)?|imagine\s(?:that|you)|act\sas|in\scharacter|let's\splay|in\sthis\sgame
    |you\sare\s(?:now\s)?an?\s(?:\w+\s)?(?:pirate|dragon|wizard|character|detective|knight|robot|king|queen|vampire)
    |you(?:'re|\sare)\s(?:(?-i:[A-Z])\w+|the\s\w+|my\s\w+)\s(?:and|,)\si(?:'m|\sam)|as\sif\syou\swere
    |stell\sdir\svor|tu\ses\sun|imagine\sque|imagina\sque|haz\scomo\ssi)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_POLITE = (
    r"^(?:(?:please|pls|can|could|would|will|you|now|then|so|and|hi|hey|hello|ok|okay|bitte|kannst|du)[,\s]+){0,4}"
)
# What follows such a request, or what it points back at, is a text that somebody works on.
_WORK_ON_TEXT = re.compile(
    rf"""{_POLITE}(?:translate|proofread|rephrase|paraphrase|summari[sz]e|reword|rewrite|classify|transcribe|correct
    |(?:fix|check)\s(?:the|my)\s(?:grammar|spelling|english|german|french|spanish|homework|essay|text)|edit\sthis
    |improve\s(?:this|my)|shorten|complete\sthe|continue\sthe|finish\sthe|how\sdo(?:\syou|\si)?\ssay|what\sdoes
    |what\sis\sthe\smeaning|parse|analy[sz]e\s(?:this|the\sfollowing)|here(?:\sis|\sare|'s)|generate|convert|
    answer\sas
    |is\s(?:this|it|that)\s(?:correct|right|grammatical)|which\s(?:one\s)?is\s(?:right|correct|better)
    |(?:make|turn)\s(?:this|it|the\sfollowing)|add\s(?:the\sline|the\ssentence|a\s(?:note|comment|line))|seed\sthe
    |(?:draft|compose|write|send|text|tell|email|message|mail|ask|remind)\s(?!me\s(?:always|never)\b)
    |übersetze?|fasse|korrigiere|prüfe?|schreib|traduis|traduisez|résume|corrige|écris|traduce|resume|escribe)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_POINTS_BACK = re.compile(r"\b(?:this|that|it|above|these|those|das|ça|cela|esto|eso)\b", re.IGNORECASE)
_TEXTS = re.compile(
    r"""\b(?:story|stories|poem|novel|lyrics|song|haiku|rap|joke|screenplay|dialogue|fairy\stale|fan\s?fic\w*|
        tagline|slogan
    |essay|homework|headline|motto|caption|cover\sletter|(?:dating|linkedin)\sprofile|bio|(?:commit|error|
    log)\smessage
    |(?:test|sample|example|the|this)\ssentence|test\sdata|the\s(?:test\s)?(?:string|prompt|text)\b|
    system\sprompt|chat\s?bot
    |the\s(?:assistant|agent|bot|model)\s(?:should|must)|once\supon\sa\stime|tool\soutput)\b""",
    re.IGNORECASE | re.VERBOSE,
)
# What comes after it belongs to what shall be made: "Build a form. Always show the date first."
_TASK = re.compile(
    rf"""{_POLITE}(?:create|build|make|implement|refactor|design|develop|code|program|plan|set\sup|generate|add|
        fix|change|
    convert|rename|help\sme\s\w+|i\s(?:need|want)\s(?:an?|you\sto)|i'd\slike\s(?:an?|you\sto)|give\sme|show\sme)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_JOKE = re.compile(
    r"\b(?:lol|lmao|rofl|haha+|hehe+|(?:ja){2,}|mdr|ptdr|jk|just kidding|kidding|xd)\b|[😂🤣😜😝]", re.IGNORECASE
)
_ORDER = re.compile(
    r"""\b(?:(?:i'd|i\swould)\slike|i\swant|i'll\s(?:have|take)|(?:can|could|may)\si\s(?:please\s)?(?:get|have|
        order))\s
    (?:to\s(?:order|book|reserve|have)|an?|one|two|three|some|the)\b""",
    re.IGNORECASE | re.VERBOSE,
)

_UNSURE = re.compile(
    r"""\b(?:if|suppose|supposing|imagine|assum(?:e|ing)|let'?s\ssay|what\sif|unless|maybe|perhaps|might|probably|
    i\s(?:guess|think|wish|hope|bet|doubt|wonder)|not\ssure|for\s(?:example|instance)|e\.g|as\sif|whether|in\scase|
    as\ssoon\sas|once\si|when\si'm|as\sthey\ssay|say(?=\s(?:i|my|that)\b)|
    hypothetically|would\sbe|wenn|falls|angenommen|vielleicht|si|supposons|imaginons|peut-être|quizás|quizá|
    supongamos|se)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_REPORTED = re.compile(
    r"""\b(?:said|says|say|saying|told|tells|claims?|claimed|wrote|writes|according\sto|mentioned|states|reads|asked|
    thinks|believes|heard|he|she|they|sagt|sagte|meint|dit|dice|dijo)\b""",
    re.IGNORECASE | re.VERBOSE,
)
_SAID_SO = re.compile(
    r",\s(?:i|he|she|they|we|my\s\w+)\s(?:said|says|used\sto\ssay|say|told\s\w+|answered|replied)$", re.IGNORECASE
)
_PASSING = re.compile(
    r"""\b(?:today|tonight|tomorrow|yesterday|right\snow|for\snow|at\sthe\s(?:moment|airport|station)|
        on\sthe\s(?:plane|train|bus|road|way)|currently|
    temporarily|until|till|this\s(?:once|one|week|month|year|morning|afternoon|evening|weekend|time|task|ticket|
    pr|file|
    function|method|class|endpoint|script|exercise|case|call|change|commit|branch|page|message|chat|session|
    conversation|
    thread|draft|document|test|order|trip|booking|problem|question|issue|bug|step|summer|winter|spring|fall|autumn)|
    for\sthis|just\s(?:for\s)?(?:once|this)|the\srest\sof|these\sdays|next\s(?:week|month)|
    heute|morgen|gerade|diesmal|im\smoment|aujourd'hui|demain|maintenant(?<!partir\sde\smaintenant)|pour\sl'instant|
    hoy|mañana|por\sahora|de\smomento|esta\svez)\b""",
    re.IGNORECASE | re.VERBOSE,
)


def begins_play(text: str) -> bool:
    return bool(_PLAY.search(text))


def own_words(sentences: list[Sentence]) -> list[Sentence]:
    """Those that are meant, and the writer's own: none of a joke or of fiction, none that is to be worked on."""
    if any(_TEXTS.search(sentence.plain) or _JOKE.search(sentence.plain) for sentence in sentences):
        return []
    for at, sentence in enumerate(sentences):
        if _WORK_ON_TEXT.search(sentence.plain):
            return [] if _POINTS_BACK.search(sentence.plain) else sentences[:at]
    return sentences


def is_task(sentence: Sentence) -> bool:
    return bool(_TASK.search(sentence.plain))


def is_order(sentences: list[Sentence]) -> bool:
    """A name that is given with an order or a booking is the one to call out when it is ready."""
    return any(_ORDER.search(sentence.plain) for sentence in sentences)


def is_passing(plain: str) -> bool:
    """Holds for now or for the thing at hand only, or was only said: "I live in Oslo, I said"."""
    return bool(_PASSING.search(plain) or _SAID_SO.search(plain))


def is_unsaid(before: str) -> bool:
    """What stands before a clause makes it a hypothesis or somebody else's claim."""
    return bool(_UNSURE.search(before) or _REPORTED.search(before))


def is_unsure(plain: str) -> bool:
    return bool(_UNSURE.search(plain))

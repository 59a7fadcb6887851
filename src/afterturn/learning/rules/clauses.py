"""Clauses of a sentence, the shape of a rule, and the change from first to third person."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from afterturn.learning.rules.sentences import Sentence
from afterturn.types import Target

PREFERENCE = "preference"
NAME = "name"
FACT = "fact"
RULE = "rule"
CORRECTION = "correction"


@dataclass(frozen=True, slots=True)
class Lesson:
    """One statement that a message teaches. `message` is the index of that message.

    `replaces` is the value that a correction says is wrong; empty if there is none. `is_quote`: the text is in the
    user's own words, so "I" is the user.
    """

    text: str
    target: Target
    kind: str
    message: int
    replaces: str = ""
    is_quote: bool = False


# A statement has to make sense without its message, so the first "I" becomes "the user" and later ones "they":
# verbs after "they" keep their form.
_PRONOUNS = {
    "i'm": "they're",
    "im": "they're",
    "i am": "they are",
    "i was": "they were",
    "i've": "they've",
    "i'd": "they'd",
    "i'll": "they'll",
    "i": "they",
    "me": "them",
    "my": "their",
    "mine": "theirs",
    "myself": "themselves",
}
_NAMED = {
    "i'm": "the user is",
    "im": "the user is",
    "i am": "the user is",
    "i was": "the user was",
    "i've": "the user has",
    "i'd": "the user would",
    "i'll": "the user will",
    "i": "the user",
    "me": "the user",
    "my": "the user's",
    "mine": "the user's",
    "myself": "the user",
}
_FIRST_PERSON = re.compile(
    r"(?<![\w'-])(?:i'm|im|i am|i was|i've|i'd|i'll|i|me|my|mine|myself)(?![\w'])", re.IGNORECASE
)
# Words in -ly are adverbs, except for these verbs.
_ADVERBS = re.compile(
    r"""(?:(?:no\slonger|never|always|also|just|still|often|now|even|almost|both|seldom|
    (?!(?:apply|rely|reply|fly|supply|comply|multiply|imply)\s)[a-z]{2,20}ly)\s)*""",
    re.IGNORECASE | re.VERBOSE,
)
_NAME_IS = re.compile(r"^(my (?:\w+ )?name)'?s ", re.IGNORECASE)
_WORD = re.compile(r"[a-z]+(?:'t)?", re.IGNORECASE)
_UNCHANGED = frozenset(
    """
    can can't cant cannot will won't wont would wouldn't should shouldn't could couldn't might must may
    was wasn't had did didn't went got made took bought left sold met saw came grew ran lost won found told said thought
    kept wrote began became spent taught read put set cut let hurt quit used
    """.split()
)
_IRREGULAR = {
    "am": "is",
    "are": "is",
    "have": "has",
    "haven't": "hasn't",
    "do": "does",
    "don't": "doesn't",
    "dont": "doesn't",
}
_HISSING = ("s", "x", "z", "ch", "sh", "o")
_VOWELS = "aeiou"
_MARKS = " \t\n,;:–—-"
_FILLERS = (
    *("btw", "by the way", "please", "pls", "plz", "thanks", "thank you", "thx", "ok", "okay", "too", "though", "fyi"),
    *("just so you know", "so you know", "for the record", "always have", "if you don't mind", "if that's ok", "mate"),
)
_FILLERS_MAX = 3


def trim(text: str) -> str:
    """Without courtesies and punctuation at its end."""
    text = text.strip(_MARKS)
    for _ in range(_FILLERS_MAX):
        filler = next((filler for filler in _FILLERS if text.lower().endswith((f" {filler}", f",{filler}"))), "")
        if not filler:
            break
        text = text[: -len(filler)].rstrip(_MARKS)
    return text


def to_third_person(text: str) -> str:
    """ "aisle seats when I fly" -> "aisle seats when they fly"."""
    return _FIRST_PERSON.sub(_third, text.replace("’", "'"))


def state_about_user(text: str) -> str:
    """ "I'm allergic to nuts" -> "The user is allergic to nuts"."""
    text = text.strip().replace("’", "'")
    return capitalise(_of_user(_NAME_IS.sub(r"\1 is ", text)))


def state_instruction(text: str) -> str:
    """ "Always ask me first" -> "Always ask the user first". "You" stays: it is the agent."""
    return capitalise(_of_user(text.strip().replace("’", "'")))


def conjugate(text: str) -> str:
    """Puts the first verb into the third person singular: "never fly" -> "never flies"."""
    at = _ADVERBS.match(text)
    start = at.end() if at else 0
    verb = _WORD.match(text, start)
    if verb is None:
        return text
    return f"{text[:start]}{_third_of(verb.group())}{text[verb.end() :]}"


def capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def _of_user(text: str) -> str:
    """The first mention becomes "the user", later ones "they"."""
    found = _FIRST_PERSON.search(text)
    if found is None:
        return text
    word = found.group().lower()
    rest = text[found.end() :]
    if word == "i":
        rest = f" {conjugate(rest.lstrip())}"
    return f"{text[: found.start()]}{_NAMED[word]}{to_third_person(rest)}"


def _third(found: re.Match[str]) -> str:
    return _PRONOUNS[found.group().lower()]


def _third_of(verb: str) -> str:
    lower = verb.lower()
    if lower in _IRREGULAR:
        return _IRREGULAR[lower]
    if lower in _UNCHANGED or lower.endswith(("ed", "ing")):
        return verb
    if lower.endswith("y") and lower[-2:-1] not in _VOWELS:
        return f"{verb[:-1]}ies"
    return f"{verb}es" if lower.endswith(_HISSING) else f"{verb}s"


# Text that teaches nothing, whatever its words: fiction, text to work on, hypotheses, reports, jokes, temporary states.

# After such a message, "I" may be a character in a role play.
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
# The text after such a request, or the text that it points back to, is material to work on.
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
# Sentences after a task describe its result: "Build a form. Always show the date first."
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
_TEMPORARY = re.compile(
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
# Something that holds in the project at hand, and not everywhere.
OF_PROJECT = re.compile(
    r"""\b(?:(?:this|our|the\scurrent)\s(?:repo|repository|project|code\s?base|workspace|monorepo|package|tests?|build|ci
    )|here)\b|\b(?:diese[ms]|unser\w*)\s(?:repo\w*|projekt\w*|tests?)\b|\bce\s(?:dépôt|projet)\b|\beste\sproyecto\b""",
    re.IGNORECASE | re.VERBOSE,
)


def begins_play(text: str) -> bool:
    return bool(_PLAY.search(text))


def keep_own_sentences(sentences: list[Sentence]) -> list[Sentence]:
    """Without jokes, fiction, and text that the agent is asked to work on."""
    if any(_TEXTS.search(sentence.plain) or _JOKE.search(sentence.plain) for sentence in sentences):
        return []
    for at, sentence in enumerate(sentences):
        if _WORK_ON_TEXT.search(sentence.plain):
            return [] if _POINTS_BACK.search(sentence.plain) else sentences[:at]
    return sentences


def is_task(sentence: Sentence) -> bool:
    return bool(_TASK.search(sentence.plain))


def is_order(sentences: list[Sentence]) -> bool:
    """Whether something is ordered or booked. A name in such a message belongs to the order."""
    return any(_ORDER.search(sentence.plain) for sentence in sentences)


def is_temporary(plain: str) -> bool:
    """Whether it holds only for now or for the task at hand, or is reported speech: "I live in Oslo, I said"."""
    return bool(_TEMPORARY.search(plain) or _SAID_SO.search(plain))


def is_hypothesis_or_report(before: str) -> bool:
    """Whether the words before a clause make it a hypothesis or somebody else's claim."""
    return bool(_UNSURE.search(before) or _REPORTED.search(before))


def is_unsure(plain: str) -> bool:
    return bool(_UNSURE.search(plain))


CLAUSES_MAX = 12
_WORDS_MAX = 40

_LEAD = re.compile(
    r"""(?:hi(?:\sthere|\sagain)?|hello|hey|good\smorning|thanks(?:\sa\slot)?|thank\syou|great|cool|nice|
        ok(?:ay)?|oh|ah|u[hm]+|hm+|
    well|also|and|but|so|btw|by\sthe\sway|just\sso\s(?:you|u|ya)\sknow|(?:just\s)?fyi|for\swhat\sit'?s\sworth|
    fwiw|for\sthe\srecord|
    please|pls|yes|yeah|yep|sure|(?:one|another|a\squick|quick|small|last|side)\s(?:more\s)?(?:thing|update|note|
    remark|point)|in\sgeneral|generally|personally|honestly|to\sbe\shonest|tbh|
    we\sboth\sknow|you\sknow|as\syou\sknow|for\scontext|ps|p\.s\.|important|reminder|just|
    (?P<corrects>actually|no|nope|nah|sorry|correction|that'?s\s(?:wrong|not\sright|incorrect)|wrong|not\squite))
    (?:\s*[,:;!…–—-]+\s*|\.{2,}\s*|\s+)""",
    re.IGNORECASE | re.VERBOSE,
)
_LEADS_MAX = 6
_BREAK = re.compile(
    r"[,;]\s+(?:and\s|but\s|so\s)?|\s[–—-]\s|\s(?:and|but|so|because)\s(?=(?:i|i'm|im|i've|my|please|call|we|our)\b)",
    re.IGNORECASE,
)
_STOP = re.compile(
    r"""[,;]\s+(?=(?:so|because|but|which|since|cause|cos|coz|as|i|i'm|im|i've|i'd|i'll|my|please|pls|thanks|
        thank|btw|by\sthe|
        just|if|you|can|could|what|how|where|though|and\s(?:i|i'm|im|we|my|please|so|you|need|want))\b)
    |;|\s[–—-]\s|\s\(|:\s
    |\s(?:but|because|cause|cos)\s
    |\sand\s(?=(?:i|i'm|im|i've|i'd|my|please|we|have|need|want|am|would|was|looking)\b)
    |\s(?:so|as)\s(?=(?:please|i|i'm|my|we|keep|that|don't|no|you|can)\b)""",
    re.IGNORECASE | re.VERBOSE,
)
_AND = re.compile(r",\snot\s|\sand\s(?!some\b|an?\b|the\b|raised\b)(?=[a-z])")
_COMMON = re.compile(
    r"(?:an?|the|my|this|that|it|its|his|her|our|your|their|constant|fear|peace|hope|here|there|one|some|no|not|"
    r"home|night)\b",
    re.IGNORECASE,
)


def pattern(text: str) -> re.Pattern[str]:
    """Compiled to ignore case; white space in `text` is ignored too, so it has to be written as `\\s`."""
    return re.compile(text, re.IGNORECASE | re.VERBOSE)


@dataclass(frozen=True, slots=True)
class Clause:
    """A part of a sentence from `start` to the sentence's end.

    `is_correction`: it opened with "no", "actually" or the like. `is_first`: nothing but greetings comes before it.
    """

    text: str
    plain: str
    start: int
    is_question: bool = False
    is_correction: bool = False
    is_first: bool = True
    after_task: bool = False

    @property
    def is_lower(self) -> bool:
        return self.text == self.text.lower()


@dataclass(frozen=True, slots=True)
class Rule:
    """A clause teaches if it begins with `head`, continues with `requires` and does not contain `excludes`.

    `needs_name`: a name must follow `head`. `stops_at_and`: the words after "and" are not part of it.
    `keeps_only_required`: the match of `requires` is all that is kept. `restate` makes the statement.
    """

    kind: str
    target: Target
    head: re.Pattern[str]
    requires: re.Pattern[str] | None = None
    excludes: re.Pattern[str] | None = None
    needs_name: bool = False
    stops_at_and: bool = False
    keeps_only_required: bool = False
    restate: Callable[[str], str] = state_about_user

    def find(self, clause: Clause) -> RuleMatch | None:
        head = self.head.match(clause.plain)
        if head is None:
            return None
        end = self._end(clause, head.end())
        rest = clause.plain[head.end() : end]
        if self._is_excluded(clause, rest):
            return None
        return RuleMatch(self, clause, clause.text[head.start() : end], end)

    def _end(self, clause: Clause, start: int) -> int:
        if self.keeps_only_required and self.requires is not None:
            found = self.requires.match(clause.plain, start)
            return found.end() if found else start
        stop = _STOP.search(clause.plain, start)
        end = stop.start() if stop else len(clause.plain)
        if self.needs_name and clause.is_lower:
            end = min(end, clause.plain.find(",", start) % (len(clause.plain) + 1))
        if (self.stops_at_and or self.needs_name) and not clause.is_correction:
            other = _AND.search(clause.plain, start, end)
            return other.start() if other else end
        return end

    def _is_excluded(self, clause: Clause, rest: str) -> bool:
        if self.requires is not None and not self.requires.match(rest):
            return True
        if self.excludes is not None and self.excludes.search(rest):
            return True
        if self.needs_name and not _begins_with_name(rest, is_lower=clause.is_lower):
            return True
        return len(rest.split()) > _WORDS_MAX


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """A rule and the words that it matched; `end` is where they end in the clause."""

    rule: Rule
    clause: Clause
    matched: str
    end: int

    @property
    def statement(self) -> str:
        return self.rule.restate(trim(self.matched))


def split_clauses(sentence: Sentence) -> Iterator[Clause]:
    """Every part of a sentence in which the writer may begin to state something. At most `CLAUSES_MAX`."""
    starts = [0, *(found.end() for found in _BREAK.finditer(sentence.plain))]
    for start in starts[:CLAUSES_MAX]:
        if not is_hypothesis_or_report(sentence.plain[:start]):
            begin, is_correction = _after_leads(sentence.plain, start)
            yield Clause(
                sentence.text[begin:],
                sentence.plain[begin:],
                begin,
                is_question=sentence.is_question,
                is_correction=is_correction,
                is_first=begin <= _after_leads(sentence.plain, 0)[0],
                after_task=sentence.after_task,
            )


def _after_leads(plain: str, start: int) -> tuple[int, bool]:
    """The position after greetings, fillers and the like, and whether one of them announces a correction."""
    is_correction = False
    for _ in range(_LEADS_MAX):
        lead = _LEAD.match(plain, start)
        if lead is None:
            break
        is_correction = is_correction or bool(lead.group("corrects"))
        start = lead.end()
    return start, is_correction


_NO_NAME = re.compile(
    r"(?i:stage|team|level|step|phase|chapter|part|page|line|version|round|plan|option|hell|json|python|sql|"
    r"java\w*|html|"
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)day)\b"
)


def _begins_with_name(rest: str, *, is_lower: bool) -> bool:
    if _NO_NAME.match(rest):
        return False
    word = rest.removeprefix("the ")
    if is_lower:
        return bool(word) and word[0].isalpha() and not _COMMON.match(rest) and len(rest.split()) <= 3
    return bool(word) and word[0].isupper()

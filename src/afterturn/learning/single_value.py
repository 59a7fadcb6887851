"""Recognises statements about things that have only one value, such as a name or a home town, so that a newer value can
replace an older one. Pure functions that compare words; a statement of an unknown form contradicts nothing."""

from __future__ import annotations

import re
from collections.abc import Callable

from afterturn.learning.rules.english import VERB
from afterturn.text import regex, terms, words

_STATEMENT_CHARS_MAX = 200
_NOT = "not "
# The subject of statements in other languages, which are in the first person.
_USER = "the user"

# Things of which a person or a project has one.
_NAMED = r"""(?:first\s|last\s|full\s)?name|surname|nickname|city|hometown|home\stown|country|employer|company|manager|
    boss|wife|husband|spouse|time\s?zone"""
_NUMBERED = r"birthday|date\sof\sbirth|age|phone|phone\snumber|(?:home\s)?address|height|shoe\ssize"
_MAIL = r"email|email\saddress"
_OTHER = r"job|job\stitle|native\slanguage|mother\stongue|diet|favou?rite\s[a-z]+|preferred\s[a-z]+"
_ONLY_ONE = rf"{_NAMED}|{_NUMBERED}|{_MAIL}|{_OTHER}"
_WHO = r"(?P<who>the\suser(?:['’]s\s\w+)?|\w+)"
_RECENTLY = r"(?:(?:now|currently)\s)?"
_OFTEN = r"(?:(?:generally|usually|really|much|always|strongly|definitely|personally|still|also|just|now)\s)*"
_NAME_KEYS, _NUMBER_KEYS, _MAIL_KEYS = (
    regex(names, re.IGNORECASE | re.VERBOSE) for names in (rf"{_NAMED}|lives|works|called", _NUMBERED, _MAIL)
)

_LANGUAGES = {
    language: english
    for english, names in {
        "english": "english englisch anglais ingles inglese",
        "german": "german deutsch allemand aleman",
        "french": "french franzosisch francais frances",
        "spanish": "spanish spanisch espagnol espanol castellano",
        "italian": "italian italienisch italien italiano",
        "portuguese": "portuguese portugiesisch portugais portugues",
    }.items()
    for language in names.split()
} | {
    language: language
    for language in """
    arabic chinese czech danish dutch finnish greek hebrew hindi hungarian indonesian japanese korean mandarin norwegian
    polish romanian russian swedish thai turkish ukrainian vietnamese
    """.split()
}
_ARTICLES = frozenset("the our le la les l el los las der die das den".split())

# Lower-case words that are not names: "lives in peace", "works at night", "call the user back".
_COMMON = frozenset(
    """
    a an the my their his her our your its this that these those it one two three some no not any here there home night
    nights weekends least constant fear peace hope sin town student rented shared luxury poverty first back later soon
    again before after when if once every daily today tomorrow tonight on at in to by for from with about as himself
    herself themselves hard difficult easy long short old big small wrong misspelled spelled unknown secret private
    great nice good bad fine ok okay annoying strict kind away ill sick pregnant free fun peanuts money nothing
    """.split()
)
# The current state of a thing is not its value: "the default branch is protected".
_STATE = regex(
    r"""(?-i:(?:no\slonger|not|very|so|too|really|quite|pretty|always|never|still|also|in|at|on|with|about|to|up|down|
    broken|green|red|gone|fine|ok|okay|wrong|missing|stable|dirty|clean|behind|ahead|hard|boring|great|good|bad|safe|
    an?\s(?:bit|lot|mess|nightmare|secret|joke|problem|pain)|[a-z]+(?:ing|ed|ful|ous|less|able|ible))\b)""",
    re.VERBOSE,
)
# A person may live or work in two places.
_SEVERAL = regex(r"\b(?:and|or|during|when|half|partly|on|some|summers?|winters?|weekdays|weekends)\b|[;/]")

Value = tuple[str, str]


def single_value(text: str) -> Value | None:
    """(the thing, its value) of a statement, both folded; None if it has none of the known forms."""
    text = _NOW.sub("", text.strip().rstrip(".!"))
    if len(text) > _STATEMENT_CHARS_MAX or "\n" in text:
        return None
    for shape, read in _FORMS:
        found = shape.fullmatch(text)
        value = read(found) if found is not None else None
        if value is not None:
            return value
    return None


def contradict(one: str, other: str) -> bool:
    """Whether two values of the same thing exclude each other.

    "no longer at A" and "at B" do not, nor do "Max Power" and "Max".
    """
    if one.startswith(_NOT) != other.startswith(_NOT):
        return one.removeprefix(_NOT) == other.removeprefix(_NOT)
    words_of_one, words_of_other = set(one.split()), set(other.split())
    return not (one.startswith(_NOT) or words_of_one <= words_of_other or words_of_other <= words_of_one)


def _read_thing(found: re.Match[str]) -> Value | None:
    parts = found.groupdict()
    what = _KEYS.get(parts["what"].lower(), parts["what"].lower().replace("favourite", "favorite"))
    if not _is_value(what, parts["value"]):
        return None
    value = " ".join(terms(parts["value"])) or parts["value"].lower()
    return f"{parts['who'].lower()} {what}", f"{_NOT if parts.get('no') else ''}{value}"


def _is_value(what: str, value: str) -> bool:
    if _NAME_KEYS.fullmatch(what):
        return _is_name(value) and not _SEVERAL.search(value)
    if _NUMBER_KEYS.fullmatch(what):
        return any(map(str.isdigit, value))
    if _MAIL_KEYS.fullmatch(what):
        return "@" in value
    return not (value.startswith(("not ", "no longer ")) if what.startswith("favo") else _STATE.match(value))


def _is_name(value: str) -> bool:
    named = value.removeprefix("the ")
    if not named[:1].islower():
        return True
    lower_words = value.lower().split()
    return len(lower_words) <= 2 and _COMMON.isdisjoint(lower_words)


def _read_call_name(found: re.Match[str]) -> Value | None:
    value, who = found["value"], found.groupdict().get("who") or _USER
    return (f"{who.lower()} called", " ".join(words(value)) or value.lower()) if _is_name(value) else None


def _read_name(found: re.Match[str]) -> Value | None:
    return "the user name", " ".join(terms(found["value"])) or found["value"].lower()


def _read_home(found: re.Match[str]) -> Value | None:
    value = found["value"]
    return None if _SEVERAL.search(value) else ("the user lives", " ".join(terms(value)) or value.lower())


def _read_branch(found: re.Match[str]) -> Value | None:
    return None if _STATE.match(found["value"]) else (f"the {found['what'].lower()}", found["value"].lower())


def _read_diet(found: re.Match[str]) -> Value | None:
    value = "vegan" if words(found["value"])[0].startswith("vegan") else found["value"].lower()
    value = "vegetarian" if words(value)[0].startswith("veget") else value
    return (
        f"{(found.groupdict().get('who') or _USER).lower()} diet",
        f"{_NOT if found.groupdict().get('no') else ''}{value}",
    )


def _read_language(found: re.Match[str]) -> Value | None:
    language = _LANGUAGES.get("".join(words(found["value"])))
    return ("answers in", f"{_NOT if found.groupdict().get('no') else ''}{language}") if language else None


def _read_preference(found: re.Match[str]) -> Value | None:
    """A preference between two things: the thing is the pair, the value is the preferred one."""
    pair = [_without_article(found["one"]), _without_article(found["other"])]
    if not all(pair) or pair[0] == pair[1]:
        return None
    return f"{(found.groupdict().get('who') or _USER).lower()} prefers {' | '.join(sorted(pair))}", pair[0]


def _without_article(text: str) -> str:
    found = words(text)
    return " ".join(found[1:] if len(found) > 1 and found[0] in _ARTICLES else found)


def _read_port(found: re.Match[str]) -> Value | None:
    of = _without_article(found["of"])
    return (f"{of} port", found["value"]) if of else None


def _read_instruction(found: re.Match[str]) -> Value | None:
    """An instruction with "always" or "never". Every word counts: "before" and "after" make two instructions."""
    parts = found.groupdict()
    thing = " ".join(words(parts["thing"]))
    never = (parts["ever"] or "").lower().startswith(("never", "do"))
    return (f"{(parts.get('who') or '').lower()} ever {thing}".strip(), "never" if never else "always")


_KEYS = {"live": "lives", "based": "lives", "living": "lives", "work": "works", "named": "called"}
_NOW = regex(r",?\snow$", re.IGNORECASE)
_SHAPES: tuple[tuple[Callable[[re.Match[str]], Value | None], tuple[str, ...]], ...] = (
    (
        _read_branch,
        (r"(?:the|our)\s(?P<what>(?:default|main)\sbranch)\sis\s(?:now\s)?(?:(?:called|named)\s)?(?P<value>\S+)",),
    ),
    (
        _read_port,
        (
            r"(?P<of>\w[\w\s.'’/-]{0,60}?)\s(?:is|runs|is\srunning)\s(?:now\s)?on\sport\s(?P<value>\d{1,5})",
            r"(?P<of>(?:the|our)(?:\s[\w-]+){1,3})\sport\sis\s(?:now\s)?(?P<value>\d{1,5})",
        ),
    ),
    (
        _read_thing,
        (
            rf"{_WHO}['’]s\s(?P<what>{_ONLY_ONE})\sis\s(?:now\s)?(?P<value>.+)",
            rf"(?P<who>the)\s(?P<what>{_ONLY_ONE})\sis\s(?:now\s)?(?P<value>.+)",
            rf"{_WHO}\s{_RECENTLY}(?P<no>no\slonger\s)?(?P<what>lives)\sin\s(?P<value>.+)",
            rf"{_WHO}\sis\s{_RECENTLY}(?P<no>no\slonger\s)?(?P<what>based|living)\sin\s(?P<value>.+)",
            rf"{_WHO}\s{_RECENTLY}(?P<no>no\slonger\s)?(?P<what>works)\s(?:at|for)\s(?P<value>.+)",
            rf"{_WHO}\s(?P<no>does\snot|doesn['’]t)\s(?P<what>live|work)\s(?:in|at|for)\s(?P<value>.+?)\sany\s?more",
            rf"{_WHO}\s{_RECENTLY}(?P<what>works\sas)\s(?:an?\s)?(?P<value>(?!expected|designed|intended|documented).+)",
        ),
    ),
    (
        _read_call_name,
        (
            rf"{_WHO}\sis\s(?:called|named)\s(?P<value>.+)",
            r"call\s(?P<who>the\suser)\s(?P<value>.+)",
            r"(?:nenne?\smich|appelle[sz]?-moi|llám[ae]me|puedes\sllamarme)\s(?:bitte\s|einfach\s)?(?P<value>.+)",
        ),
    ),
    (
        _read_name,
        (
            r"""(?:ich\shei(?:ß|ss)e|mein\sname\sist|je\sm['’]appelle|mon\snom\sest|me\sllamo|mi\snombre\ses)
            \s(?P<value>.+)""",
        ),
    ),
    (
        _read_home,
        (
            r"""(?:ich\s(?:wohne|lebe)\s(?:jetzt\s)?in|(?:j['’]habite|je\svis)\s(?:maintenant\s)?(?:à|au|en|aux)
            |(?:yo\s|ahora\s)?vivo\s(?:ahora\s)?en)\s(?P<value>.+)""",
        ),
    ),
    (
        _read_diet,
        (
            rf"""{_WHO}\sis\s(?P<no>(?:no\slonger|not)\s)?(?:(?:now|also|strictly|mostly|currently|an?)\s)*
            (?P<value>vegetarian|vegan|pescatarian)(?:\sany\s?more)?""",
            r"""(?:ich\sbin|je\ssuis|(?:yo\s)?soy)\s
            (?P<value>vegetarier(?:in)?|veganer(?:in)?|végétarien(?:ne)?|végane?|vegan[oa]?|vegetarian[oa])""",
        ),
    ),
    (
        _read_language,
        (
            r"""(?P<no>(?:never|don['’]t|do\snot)\s)?(?:always\s)?(?:answer|reply|respond|talk|speak)(?:\sto)?
            (?:\s(?:the\suser|them))?\sin\s(?P<value>\w+)""",
            r"(?:always\s)?speak\s(?P<value>\w+)(?:\s(?:to|with)\s(?:the\suser|them))?",
            r"the\suser\s(?:prefers|wants)\s(?:answers|replies|responses)\sin\s(?P<value>\w+)",
            r"""(?:antworte|sprich|schreib)\s
            (?:(?:mir|bitte|ab\sjetzt|ab\ssofort|von\snun\san|künftig|immer)\s)*auf\s(?P<value>\w+)""",
            r"(?:à\spartir\sde\smaintenant|désormais),?\s(?:réponds|parle|écris)(?:-moi)?\s(?:toujours\s)?en\s"
            r"(?P<value>\w+)",
            r"a\spartir\sde\sahora,?\s(?:respóndeme|responde|háblame|habla|escríbeme)\s(?:siempre\s)?en\s"
            r"(?P<value>\w+)",
        ),
    ),
    (
        _read_preference,
        (
            rf"{_WHO}\s{_OFTEN}prefers\s(?P<one>.+?)\s(?:over|rather\sthan|instead\sof)\s(?P<other>.+)",
            rf"{_WHO}\s{_OFTEN}prefers\s(?P<one>.+?)\sto\s(?P<other>.+)",
            rf"{_WHO}\s{_OFTEN}likes\s(?P<one>.+?)\s(?:more|better)\sthan\s(?P<other>.+)",
            r"ich\s(?:trinke|esse|mag|lese|fahre)\slieber\s(?P<one>.+?)\sals\s(?P<other>.+)",
            r"je\spréfère\s(?P<one>.+?)\s(?:à|au|aux|plutôt\sque)\s(?P<other>.+)",
            r"(?:yo\s)?prefiero\s(?P<one>.+?)\s(?:a|al|antes\sque|en\svez\sde)\s(?P<other>.+)",
        ),
    ),
    (
        _read_instruction,
        (
            rf"(?P<ever>(?:always|never\sever|never|don['’]t\sever|do\snot\sever|don['’]t|do\snot)\s)?(?P<thing>{VERB}.*)",
            r"(?P<who>the\suser)\s(?P<ever>always|never)\s(?P<thing>.+)",
        ),
    ),
)
_FORMS = tuple((regex(shape, re.IGNORECASE | re.VERBOSE), read) for read, shapes in _SHAPES for shape in shapes)

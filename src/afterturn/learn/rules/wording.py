"""First person into third, so that a statement makes sense without its message. Nothing is added but "the user"."""

from __future__ import annotations

import re

# With "they" for every further "I", the verbs that follow stay as they were said.
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
# Any word in -ly but these verbs comes before the verb, and so do a few others.
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


def trimmed(said: str) -> str:
    """Without courtesies and marks at its end."""
    said = said.strip(_MARKS)
    for _ in range(_FILLERS_MAX):
        filler = next((filler for filler in _FILLERS if said.lower().endswith((f" {filler}", f",{filler}"))), "")
        if not filler:
            break
        said = said[: -len(filler)].rstrip(_MARKS)
    return said


def in_third_person(said: str) -> str:
    """ "aisle seats when I fly" -> "aisle seats when they fly"."""
    return _FIRST_PERSON.sub(_third, said.replace("’", "'"))


def told_of_user(said: str) -> str:
    """A whole statement: "I'm allergic to nuts" -> "The user is allergic to nuts"."""
    said = said.strip().replace("’", "'")
    return capitalised(_of_user(_NAME_IS.sub(r"\1 is ", said)))


def told_to_agent(said: str) -> str:
    """An instruction keeps its "you", which is the agent: "Always ask me first" -> "Always ask the user first"."""
    return capitalised(_of_user(said.strip().replace("’", "'")))


def conjugated(said: str) -> str:
    """Its first verb after adverbs, as it follows "the user": "never fly" -> "never flies"."""
    at = _ADVERBS.match(said)
    start = at.end() if at else 0
    verb = _WORD.match(said, start)
    if verb is None:
        return said
    return f"{said[:start]}{_third_of(verb.group())}{said[verb.end() :]}"


def capitalised(said: str) -> str:
    return said[:1].upper() + said[1:]


def _of_user(said: str) -> str:
    """The first mention names the user, and later ones refer to that."""
    found = _FIRST_PERSON.search(said)
    if found is None:
        return said
    word = found.group().lower()
    rest = said[found.end() :]
    if word == "i":
        rest = f" {conjugated(rest.lstrip())}"
    return f"{said[: found.start()]}{_NAMED[word]}{in_third_person(rest)}"


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

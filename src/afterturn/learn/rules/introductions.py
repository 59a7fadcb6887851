"""English: "Hi, I'm Jonas." Only right after a greeting, where people say who they are."""

from __future__ import annotations

from collections.abc import Sequence

from afterturn.base.types import Target
from afterturn.learn.rules.clause import pattern
from afterturn.learn.rules.lesson import NAME, Lesson
from afterturn.learn.rules.prose import Sentence

_GREETING = r"(?:hi|hello|hey|good\s(?:morning|afternoon|evening))(?:\s(?:there|again))?"
_GREETS = pattern(_GREETING)
_AFTER_GREETING = pattern(rf"{_GREETING}[\s,:;–—-]{{1,4}}")
# Whoever begins everything with a capital gives no name away: these are what else people are.
_IS_NAMED = pattern(
    r"""(?:i'm|i\sam)\s(?P<name>(?-i:(?:Dr\.?\s)?[A-ZÀ-Þ][\w'-]*[a-zß-ÿ](?:\s[A-ZÀ-Þ][\w'-]*[a-zß-ÿ]){0,2}))(?![\w'-])
    (?P<rest>\s*(?:$|[,;:(–—]|\s-\s)|\s(?:and|but|from|btw|by\sthe\sway)\b)"""
)
_NO_NAME = pattern(
    r"""\b(?:[\w'-]+ing|done|sorry|back|new|not|so|very|just|really|glad|happy|here|there|still|also|now|only|ready|fine|
    good|great|okay|stuck|lost|tired|bored|excited|confused|interested|curious|afraid|sure|sick|late|early|busy|free|
    in|on|at|from|with|a|an|the|your|my|writing|batman|groot|spartacus|iron|siri|alexa|claude|chatgpt|human|
    pregnant|married|single|republican|democrat|liberal|conservative|(?:mon|tues|wednes|thurs|fri|satur|sun)day|
    team|type|head|lead|senior|junior|software|product|project|data|student|director|chief|doctor|nurse|vice|president|
    professor|manager|engineer|developer|designer|owner|founder|
    aries|taurus|gemini|virgo|libra|scorpio|sagittarius|capricorn|aquarius|pisces|
    christian|catholic|protestant|orthodox|muslim|jewish|buddhist|hindu|sikh|atheist|vegan|vegetarian|gay|lesbian|
    african|albanian|algerian|american|arab|argentinian|armenian|asian|australian|austrian|bavarian|belgian|black|
    bolivian|bosnian|brazilian|british|bulgarian|canadian|catalan|chilean|chinese|colombian|croatian|cuban|czech|danish|
    dutch|egyptian|english|estonian|ethiopian|european|filipino|finnish|french|georgian|german|greek|hispanic|
    hungarian|icelandic|indian|indonesian|iranian|iraqi|irish|israeli|italian|jamaican|japanese|kenyan|korean|kurdish|
    latina?|latino|latvian|lebanese|lithuanian|malaysian|mexican|moroccan|nepali|nigerian|norwegian|pakistani|
    palestinian|persian|peruvian|polish|portuguese|romanian|russian|scottish|serbian|slovak|slovenian|spanish|swedish|
    swiss|syrian|taiwanese|thai|tunisian|turkish|ukrainian|venezuelan|vietnamese|welsh|white)\b"""
)


def find_introduction(sentences: Sequence[Sentence]) -> Lesson | None:
    """At the very beginning of a message, or after a greeting that is a sentence of its own."""
    if not sentences:
        return None
    first = sentences[0]
    if _GREETS.fullmatch(first.plain):
        return _read(sentences[1], 0) if len(sentences) > 1 else None
    greeting = _AFTER_GREETING.match(first.plain)
    return None if greeting is None else _read(first, greeting.end())


def _read(sentence: Sentence, start: int) -> Lesson | None:
    found = _IS_NAMED.match(sentence.plain, start)
    if found is None or _NO_NAME.search(found["name"]) or (sentence.asks and not found["rest"].strip()):
        return None
    name = sentence.said[found.start("name") : found.end("name")]
    return Lesson(f"The user's name is {name}", Target.USER, NAME, 0)

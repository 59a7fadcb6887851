"""The rules for German, French and Spanish: only the plainest forms, kept in the user's own words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from afterturn.learning.rules.clauses import FACT, NAME, PREFERENCE, RULE, Lesson, is_unsure
from afterturn.learning.rules.sentences import Sentence
from afterturn.types import Target

_NAME = r"(?P<name>[^\W\d_][\w'-]{1,20}(?:\s[A-ZÀ-Þ][\w'-]{1,20}){0,2})"
_NO_NAME = re.compile(
    r"(?i:nicht|nie|an|morgen|später|wenn|mal|doch|zurück|einen?|pas|plus|demain|quand|tard|un|une|le|la|cuando|"
    r"luego|"
    r"mañana|no|si|sobre|por|más)\b"
)
_POINTS = re.compile(
    r"(?i:\b(?:dies\w*|jene\w*|erste\w*|zweite\w*|dritte\w*|variante|version|option|hier|cette|cet|ce|ces|"
    r"deuxième|première?|"
    r"ici|este|esta|esto|ese|esa|eso|primera?|segunda?|opción|versión|aquí|es|"
    r"montage?|lundis?|lunes|angst|frieden|enfer|infierno|paix|paz|menschen|gens|gente)\b)"
)
_FIRST_PERSON = re.compile(
    r"(?i:\b(?:ich|mir|mich|meine?[mnrs]?|je|j'|me|moi|mon|ma|mes|yo|mi|mis|soy|tengo|prefiero|vivo|trabajo)\b)"
)


@dataclass(frozen=True, slots=True)
class Phrase:
    """A sentence of this shape teaches. `target` None: the user if it is in the first person, else the environment."""

    kind: str
    target: Target | None
    shape: re.Pattern[str]
    to_agent: bool = False


def _phrase(kind: str, shape: str, *, target: Target | None = Target.USER, to_agent: bool = False) -> Phrase:
    return Phrase(kind, target, re.compile(shape, re.VERBOSE), to_agent)


_REST = r"(?P<rest>\S.{1,200})"
_PLACE = r"(?P<rest>[A-ZÀ-Þ].{1,60})"
_PHRASES = (
    # German
    _phrase(FACT, rf"(?i:ich\sbin\s(?:stark\s|sehr\s)?allergisch\s(?:gegen|auf))\s{_REST}"),
    _phrase(
        FACT,
        r"(?i:ich\sbin\s(?:vegetarier(?:in)?|veganer(?:in)?|vegan|linkshänder(?:in)?|diabetiker(?:in)?|"
        r"laktoseintolerant))",
    ),
    _phrase(FACT, rf"(?i:ich\s(?:wohne|lebe)\s(?:jetzt\s)?in)\s{_PLACE}"),
    _phrase(FACT, rf"(?i:ich\sarbeite\s(?:als|bei))\s{_PLACE}"),
    _phrase("correction", r"(?i:ich\sbin\snach)\s(?P<rest>[A-ZÄÖÜ]\w+\s(?:um)?gezogen)"),
    _phrase(NAME, rf"(?i:nenne?\smich\s(?:bitte\s|einfach\s)?){_NAME}", to_agent=True),
    _phrase(NAME, rf"(?i:ich\shei(?:ß|ss)e|mein\sname\sist)\s{_NAME}"),
    _phrase(
        PREFERENCE,
        r"(?i:ich\s(?:trinke|esse|mag|lese|arbeite|reise|fahre)\slieber)\s(?P<rest>\S.{1,80}\sals\s.{2,80})",
    ),
    _phrase(PREFERENCE, r"(?i:ich\sbevorzuge)\s(?P<rest>(?!die\b|den\b|das\b)\S.{1,100})"),
    _phrase(
        PREFERENCE,
        r"(?i:antworte|sprich|schreib)\s(?P<rest>(?:mir\s)?(?:bitte\s)?(?:ab\sjetzt|ab\ssofort|von\snun\san|"
        r"künftig|immer|nie).{3,150})",
        to_agent=True,
    ),
    _phrase(
        FACT,
        rf"(?i:(?:bitte\s)?(?:merke?\sdir|vergiss\snicht|"
        rf"denke?\sdaran)(?:\sbitte)?,\sdass)\s{_REST}",
        target=None,
    ),
    _phrase(
        RULE,
        r"""(?P<rest>(?i:(?:push|committ?|benutz|verwend|nutz|lösch|frag|buch|deploy|änder|start|test|merg|
            führ)e?|nimm|gib)
        \s(?i:bitte\s)?(?i:nie|niemals|immer)\b.{3,150})""",
        target=Target.ENVIRONMENT,
        to_agent=True,
    ),
    # French
    _phrase(FACT, r"(?i:je\ssuis\s(?:très\s)?allergique)\s(?P<rest>(?:à|au|aux)\s.{2,80})"),
    _phrase(FACT, r"(?i:je\ssuis\s(?:végétarien(?:ne)?|vegan|végane?|gauchère?|gaucher|diabétique|daltonien(?:ne)?))"),
    _phrase(FACT, rf"(?i:j'habite|je\svis)\s(?:maintenant\s)?(?:à|au|en|aux)\s{_PLACE}"),
    _phrase(FACT, rf"(?i:je\stravaille\s(?:comme|chez))\s{_REST}"),
    _phrase("correction", rf"(?i:j'ai\sdéménagé\s(?:à|au|en))\s{_PLACE}"),
    _phrase(NAME, rf"(?i:appelle[sz]?-moi)\s{_NAME}", to_agent=True),
    _phrase(NAME, rf"(?i:je\sm'appelle|mon\sprénom\sest|mon\snom\sest)\s{_NAME}"),
    _phrase(PREFERENCE, r"(?i:je\spréfère)\s(?P<rest>\S.{1,80}\s(?:à|au|aux|plutôt\sque)\s.{2,80})"),
    _phrase(
        FACT,
        rf"(?i:(?:s'il\ste\splaît,?\s)?(?:souviens-toi|souvenez-vous|retiens|rappelle-toi|"
        rf"n'oublie\spas)\s(?:bien\s)?qu[e'])\s?{_REST}",
        target=None,
    ),
    _phrase(
        RULE,
        r"""(?P<rest>(?i:(?:ne\s|n')(?:supprime|pousse|utilise|modifie|change|efface|touche|déploie|fusionne|
            commite|lance|écrase|
        envoie|réserve|stocke|ajoute|installe|ouvre)[sz]?\sjamais)\s.{3,150})""",
        target=Target.ENVIRONMENT,
        to_agent=True,
    ),
    _phrase(
        PREFERENCE,
        r"(?i:(?:à\spartir\sde\smaintenant|désormais),?\s(?:réponds|parle|écris|explique))(?P<rest>.{3,150})",
        to_agent=True,
    ),
    # Spanish
    _phrase(FACT, r"(?i:(?:yo\s)?soy\s(?:muy\s)?alérgic[oa])\s(?P<rest>(?:a|al)\s.{2,80})"),
    _phrase(FACT, r"(?i:(?:yo\s)?soy\s(?:vegetarian[oa]|vegan[oa]|zurd[oa]|diabétic[oa]|celíac[oa]|daltónic[oa]))"),
    _phrase(FACT, rf"(?i:(?:yo\s|ahora\s)?vivo\s(?:ahora\s)?en)\s{_PLACE}"),
    _phrase(FACT, r"(?i:(?:yo\s)?trabajo\s(?:como|de))\s(?P<rest>(?!noche|momento)\S.{1,80})"),
    _phrase("correction", rf"(?i:me\s(?:he\s)?mud(?:é|ado)\sa)\s{_PLACE}"),
    _phrase(NAME, rf"(?i:llám[ae]me|puedes\sllamarme)\s{_NAME}", to_agent=True),
    _phrase(NAME, rf"(?i:me\sllamo|mi\snombre\ses)\s{_NAME}"),
    _phrase(PREFERENCE, r"(?i:(?:yo\s)?prefiero)\s(?P<rest>\S.{1,80}\s(?:a|al|antes\sque|en\svez\sde)\s.{2,80})"),
    _phrase(
        FACT,
        rf"(?i:(?:por\sfavor,?\s)?(?:recuerda|acuérdate\sde|no\solvides|ten\sen\scuenta))\sque\s{_REST}",
        target=None,
    ),
    _phrase(
        RULE,
        r"""(?P<rest>(?i:nunca\s(?:borres|uses|hagas|toques|subas|despliegues|ejecutes|cambies|elimines|envíes|
            reserves|modifiques|
        instales|guardes|añadas|fusiones))\s.{3,150})""",
        target=Target.ENVIRONMENT,
        to_agent=True,
    ),
    _phrase(
        PREFERENCE,
        r"(?i:a\spartir\sde\sahora,?\s(?:respóndeme|responde|háblame|habla|escríbeme|explícame))(?P<rest>.{3,150})",
        to_agent=True,
    ),
)
_LEAD = re.compile(
    r"(?i:(?:hallo|hi|bonjour|salut|hola|übrigens|ach ja|und|bitte|also|et|y|au fait|por cierto)[,:!\s]+)"
)


def find_phrase(sentence: Sentence) -> Iterator[Lesson]:
    """At most one lesson."""
    if sentence.is_question or is_unsure(sentence.plain):
        return
    lead = _LEAD.match(sentence.plain)
    start = lead.end() if lead else 0
    for phrase in _PHRASES:
        found = phrase.shape.fullmatch(sentence.plain, start)
        if found and not _is_excluded(found):
            yield _lesson(phrase, sentence, found, start)
            return


def _is_excluded(found: re.Match[str]) -> bool:
    parts = found.groupdict()
    name = parts.get("name")
    if name is not None:
        return bool(_NO_NAME.match(name))
    return bool(_POINTS.search(parts.get("rest") or ""))


def _lesson(phrase: Phrase, sentence: Sentence, found: re.Match[str], start: int) -> Lesson:
    """The user's own words after "The user says:": grammars differ too much for a change to the third person."""
    text = sentence.text[start:]
    if phrase.to_agent:
        return Lesson(f"The user asks: {text}", phrase.target or Target.USER, phrase.kind, 0)
    if phrase.target is None:
        text = sentence.text[found.start("rest") : found.end("rest")]
        target = Target.USER if _FIRST_PERSON.search(text) else Target.ENVIRONMENT
        return Lesson(f"The user says: {text}", target, phrase.kind, 0)
    return Lesson(f"The user says: {text}", phrase.target, phrase.kind, 0)

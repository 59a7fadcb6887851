"""Passwords, PINs and keys: whoever tells one has it recorded as the guard leaves it, and no rule learns it."""

from __future__ import annotations

from afterturn.learn.rules.clause import pattern
from afterturn.learn.rules.lesson import PREFERENCE, RULE, Lesson

_HARMLESS = r"""(?![\s-]?(?:managers?|polic(?:y|ies)|resets?|rotation|hash\w*|fields?|prompts?|vaults?|stores?|columns?|
    generators?|protect\w*|requirements?|lengths?|headers?|formats?|prefix\w*|management)\b)"""
_ENGLISH = r"""\bpass[\s-]?(?:word|phrase|code|wd)\b|\b(?:pwd|pw|passwd)\b
    |\b(?:user's|their|our|my)\s(?:\w+\s)?passwords\b
    |(?-i:\bPIN\b)|\bpin[\s-](?:code|number)\b
    |\b(?:user's|their|our|my|the|card|card's|door|phone|sim|bank|alarm)\spin\b
    |\b(?:api|secret|access|private|deploy|ssh|encryption|signing|licen[cs]e|master|recovery)[\s-](?:\w+\s)?key\b
    |\b(?:api|access|auth|authentication|bearer|refresh|secret|session)[\s-]token\b
    |\bclient\ssecret\b|\b(?:seed|recovery|secret)\sphrase\b|\bcredentials\s(?:are|for)\b|\b(?:access|security)\scode\b"""
_OTHERS = r"""\b(?:passwort|kennwort|passphrase|geheimzahl|zugangsdaten|zugangscode)\b
    |\b(?:api|zugangs|zugriffs|geheim|lizenz)[\s-]?schlüssel|\b(?:geheim|privat)e[nr]?\sschlüssel
    |\bmot\sde\spasse\b|\bphrase\s(?:secrète|de\spasse)|\bcode\s(?:pin|secret|d'accès)
    |\bclé\s(?:d'api|api|de\sl'api|secrète|privée|d'accès)
    |\bcontrase[ñn]a\b|\bfrase\s(?:secreta|de\scontraseña)|\bcódigo\s(?:pin|secreto|de\sacceso)
    |\b(?:mi|nuestra|la)\sclave\b|\bclave\s(?:secreta|privada|api|de\s(?:acceso|api|la\sapi))
    |\b(?:mein\w*|die|der|le|mon|el|mi)\spin\b"""
_SECRET = rf"(?:{_ENGLISH}|{_OTHERS}){_HARMLESS}"

_MENTIONED = pattern(_SECRET)
# A rule may speak of passwords, as long as it holds none.
_GIVEN = pattern(
    rf"""(?:{_SECRET})(?:\s[\w'-]+){{0,4}}?\s*(?:\b(?:is|are|lautet|ist|est|es)\b|[=:])\s*\S
    |\b(?:use|enter|type|try)\s(?:(?:the|my|our|their|this|as)\s)?(?:\w+\s)?(?:{_SECRET})
        \s(?!(?:for|from|in|to|when|on|at|only|twice|and|or|of|that|which|with|before|after|if|unless)\b)\S
    |(?:{_SECRET})\s\S*\d"""
)


def holds_secret(lesson: Lesson) -> bool:
    """Of a statement, rather too often: "the API key is in the vault" is not learned either."""
    shape = _GIVEN if lesson.kind in (RULE, PREFERENCE) else _MENTIONED
    return bool(shape.search(lesson.text.replace("’", "'")))

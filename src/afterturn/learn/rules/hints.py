"""Whether a message is worth a look: one cheap pass, without loading the rules. What it passes over, no rule reads."""

from __future__ import annotations

import re

LANGUAGES = ("en", "de", "fr", "es")
# Whoever writes more than this at once has pasted something.
MESSAGE_CHARACTERS_MAX = 16_384

# Lower case, for the text is brought there first: that is much faster than ignoring case.
_ENGLISH = r"""
    remember|memori[sz]e|forget\sthat|in\smind|note|memory|future|for\slater|next\stime
  | never|always|ever|from\s(?:now|here|today)\son|(?:going|moving)\sforward|henceforth|as\sa\s(?:general\s)?rule
  | whenever\syou|every\stime\syou|each\stime\syou|stop\s\w+ing
  | prefer(?:red)?|rather|dislike|hate|can(?:'t|not)\sstand|detest|favou?rite|pronouns|like\smy
  | (?:more|better)\sthan|(?:don't|dont|not)\s(?:really\s)?like|(?:calls?|address)\sme|my\s\w+\sname|my\sname|go\sby
  | (?:i'm|im|i\sam)\s(?:an?|also|allergic|severely|very|highly|quite|deathly|strictly|mostly|based|living|currently
      |now|originally|from|doing|married|engaged|divorced|retired|widowed|no\slonger|not|vegetarian|vegan|
      pescatarian|lactose
      |co?eliac|diabetic|colou?r|left|right|dyslexic|deaf|hard\sof|blind|autistic|gluten|night|early)\b
  | (?:don't|dont|not|can't|cannot)\s(?:eat|dr|sm|sw)|i\s(?:have|suffer|was|grew|speak|live|work|also|use\sa|need\sa)
  | i\s(?:currently|now|usually)\s(?:live|work)|we\shave|(?:i|we)'ve
  | my\s(?:[\w-]+\s){1,3}(?:is|are|falls|runs)|my\s\w+'s\sname
  | no\slonger|any\s?more|(?:moved|relocated|switched|migrated)\s(?:\S+\s){0,3}to|stopped|quit|gave\sup|changed\smy
  | (?:don'?t|not)\suse\s(?:so\smany\s|any\s)?em
  | new\sjob|we\s(?:\w+\s)?use|our\s(?:\w+\s){1,3}(?:uses|targets|runs|is|lives|requires)
  | (?:it's|its|it\sis|that's|is)\snot|isn't|ain't|not\s[^\n,]{1,190},
"""
_OTHERS = r"""
    ich\s(?:bin|hei|wohne|lebe|arbeite|trinke|esse|mag|lese|reise|fahre|bevorzuge)|mein\sname|nenne?\smich
  | merke?\sdir|vergiss\snicht|denke?\sdaran|nie|niemals|immer|ab\sjetzt|ab\ssofort|nun\san|künftig
  | je\s(?:suis|vis|travaille|m'appelle|préfère)|j'(?:habite|ai)|mon\s(?:pré)?nom|appelle[sz]?-moi|souviens-toi
  | souvenez-vous|retiens|rappelle-toi|oublie\spas|jamais|partir\sde\smaintenant|désormais
  | soy|vivo|trabajo|me\s(?:he\s)?mud\w+|llám[ae]me|llamarme|me\sllamo|mi\snombre|prefiero|recuerda|acuérdate|olvides
  | en\scuenta|nunca|partir\sde\sahora
"""
_INTRODUCES = r"(?<!\w)(?:hi|hello|hey|good\s(?:morning|afternoon|evening))(?:\s(?:there|again))?\W{1,8}i(?:'m|\sam)\s"
_HINTS = re.compile(rf"(?<!\w)(?:{_ENGLISH}|{_OTHERS})|,\snot\s|{_INTRODUCES}", re.VERBOSE)
_INTRODUCTION = re.compile(_INTRODUCES)


def may_teach(text: str) -> bool:
    """False when no rule finds anything in it. One pass over at most `MESSAGE_CHARACTERS_MAX` characters."""
    return bool(_HINTS.search(plain_start(text).lower()))


def may_introduce(text: str) -> bool:
    """Whether somebody may say who they are, right after a greeting."""
    return bool(_INTRODUCTION.search(plain_start(text).lower()))


def plain_start(text: str) -> str:
    """As much as is ever looked at, with every apostrophe alike."""
    return text[:MESSAGE_CHARACTERS_MAX].replace("’", "'")
